"""An engine that may change its draft length at run time: what the lengths cost there, and what no draft at all costs.

An engine that can switch is not the same engine: it may lose full CUDA graphs, and a step without a draft still pays
for speculation being on (docs/model.md, eq. C1).
"""

from dataclasses import replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from hwmodel.engine.records import EngineMode
from hwmodel.step import StepCost
from simulator.closed_form import ArmResult, Load, arm, capacity, prefill_cost
from simulator.comparison import Comparison, compared
from simulator.serving.step_costs import Compositions, StepCosts
from simulator.study import Study
from simulator.system import System

Array = NDArray[np.float64]

_V2_RUNNERS = ("v2", "sglang")  # capture full graphs for every length they may use


def piecewise(system: System) -> System:
    """The system with piecewise graphs wherever drafts would have had full ones; the baseline is left alone."""

    @cache
    def mode(num_speculative_tokens: int) -> EngineMode:
        found = system.mode(num_speculative_tokens)
        if num_speculative_tokens == 0 or found.uniform_decode_graph != "full":
            return found
        return replace(found, uniform_decode_graph="piecewise", mixed_decode_graph="piecewise")

    return replace(system, mode=mode)


def undrafted(study: Study, configured: int, loads: tuple[int, ...]) -> ArmResult:
    """The speculating engine, configured for drafts of `configured` tokens, in steps that draft nothing.

    Arrays `(num_draws, num_loads)`.
    """
    system, p = study.system, study.parameters
    load = Load.of(loads, [capacity(system, configured, study.kv_cache_tokens)] * len(loads))
    sequences = load.sequences(system)
    none = np.zeros_like(sequences)
    context = np.full_like(sequences, system.context_tokens)
    cells = Compositions(sequences, none, none, context, none, none, none)
    step_s = StepCosts(system, p, configured).draws(cells)
    # What a prompt adds is the difference of two steps, both without drafts: the cost of speculation is in both.
    prompt = prefill_cost(system, p, sequences, StepCosts(system, p, 0).draws(cells))
    return arm(system, StepCost({"step": step_s}), prompt, 1.0, load)


def scheduling(comparison: Comparison) -> Comparison:
    """The same lengths and loads with a length by batch size, as vLLM runs it: V1 with piecewise graphs."""
    runner = comparison.study.system.mode(max(comparison.lengths)).model_runner
    return switchable(comparison, keeps_full_graphs=runner in _V2_RUNNERS)


def switchable(comparison: Comparison, *, keeps_full_graphs: bool) -> Comparison:
    """The same lengths and loads on an engine that switches between them; gains of its undrafted steps stand at 0."""
    study = comparison.study
    if not keeps_full_graphs and study.system.mode(max(comparison.lengths)).uniform_decode_graph == "full":
        changed = replace(study, system=piecewise(study.system))
        comparison = compared(changed, comparison.lengths, comparison.loads)
    idle = undrafted(comparison.study, max(comparison.lengths), comparison.loads)
    base, grid = comparison.baseline, comparison.grid
    loads = len(comparison.loads)

    def first(ours: Array, theirs: Array) -> Array:
        """Columns `theirs` with those of the draft length 0 replaced."""
        column = np.array(np.broadcast_to(theirs, comparison.speedup.shape))
        column[:, :loads] = ours
        return column

    spec = grid.speculative
    merged = replace(
        spec,
        step_s=first(idle.step_s, spec.step_s),
        tpot_s=first(idle.tpot_s, spec.tpot_s),
        ttft_s=first(idle.ttft_s, spec.ttft_s),
        throughput_tokens_per_s=first(idle.throughput_tokens_per_s, spec.throughput_tokens_per_s),
        tokens_per_step=first(idle.tokens_per_step, spec.tokens_per_step),
    )
    speedup = comparison.speedup.copy()
    speedup[:, :loads] = idle.throughput_tokens_per_s / base.throughput_tokens_per_s
    gain = comparison.scores.gain.copy()
    gain[:, 0] = base.tpot_s / idle.tpot_s if study.deployment.objective.maximise == "tpot" else speedup[:, :loads]
    scores = replace(comparison.scores, gain=gain, overall_gain=None)
    return replace(
        comparison,
        grid=replace(grid, speculative=merged),
        speedup=speedup,
        scores=scores,
    )
