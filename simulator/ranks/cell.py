"""The step in question: how many requests, which of them drafted, and what `hwmodel` says each part of it takes."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hwmodel.drafters import draft_time_s
from hwmodel.engine.graphs import graph_limit_tokens, padded_tokens
from hwmodel.parameters import Parameters
from hwmodel.percent import percent
from hwmodel.step import STEP_PARTS, Batch, StepMode, decode_batch, engine_parts
from simulator.closed_form import DCP_DRAFT_PASS_S, capacity
from simulator.study import Study
from simulator.system import System


@dataclass(frozen=True)
class StepCell:
    """One step of one replica: `sequences` requests, `drafted` of them with `query_tokens` rows, the others with one.

    `parts_s` is what `hwmodel` expects of the step, skew included.
    """

    system: System
    p: Parameters
    num_speculative_tokens: int
    concurrency: int
    sequences: int
    drafted: int
    query_tokens: int
    batch: Batch
    parts_s: dict[str, float]

    @property
    def rows(self) -> float:
        """Rows that the step runs, padding included."""
        return float(np.ravel(self.batch.rows)[0])

    @property
    def tokens(self) -> int:
        """Rows that carry work."""
        return self.sequences + self.drafted * (self.query_tokens - 1)

    @property
    def run_tokens(self) -> list[int]:
        """Consecutive tokens of each request, all replicas together: they meet at the experts."""
        runs = [self.query_tokens] * self.drafted + [1] * (self.sequences - self.drafted)
        return runs * self.system.parallel.data


def step_cell(study: Study, num_speculative_tokens: int, concurrency: int) -> StepCell:
    """The step at this load and draft length, at the posterior median of the parameters.

    Where drafts come and go (n-gram, suffix), a step that has some: as many as on average, at least one.
    """
    system, k = study.system, num_speculative_tokens
    mode = system.mode(k)
    running = capacity(system, k, study.kv_cache_tokens).running(concurrency)[0]
    sequences = max(-(-running // system.batch_divisor), 1)
    drafted = sequences
    if k and mode.variable_draft_length:
        share = study.acceptance.for_length(k).median_draft_probability
        drafted = min(max(round(sequences * share), 1), sequences)
    return cell_of(study, k, concurrency, sequences, drafted)


def cell_of(study: Study, num_speculative_tokens: int, concurrency: int, sequences: int, drafted: int) -> StepCell:
    """The step of `sequences` requests, `drafted` of them drafted."""
    system, k, p = study.system, num_speculative_tokens, replace(study.point_parameters, residual=None)
    query = int(system.verified_rows(np.array([k]))[0]) if k else 1
    uniform = drafted == sequences and not (k and system.mode(k).variable_draft_length)
    tokens = sequences + drafted * (query - 1)
    rows = max(float(padded_tokens(system.mode(k), np.array(tokens), uniform, k + 1)), float(tokens))
    batch = decode_batch(float(sequences), float(drafted), np.array([float(query)]), system.context_tokens, rows)
    if k:
        budget = float(system.deployment.speculation.expert_budget or np.inf)
        batch = replace(batch, expert_budget=budget, draft_depth=np.array([float(k)]))
    parts: dict[str, Any] = engine_parts(system.work, system.machine, batch, p, _step_mode(system, k, uniform))
    if k:
        extra = DCP_DRAFT_PASS_S if system.parallel.decode_context > 1 else 0.0
        parts["drafter"] = draft_time_s(system.drafter, batch, p, decode_context_extra_s=extra)
    named = {name: number(parts[name]) for name in STEP_PARTS}
    return StepCell(system, p, k, concurrency, sequences, drafted, query, batch, named)


def _step_mode(system: System, k: int, uniform: bool) -> StepMode:
    """Which software costs apply."""
    baseline, mode = system.mode(0), system.mode(k)
    return StepMode(
        graph=mode.uniform_decode_graph if uniform else mode.mixed_decode_graph,
        graph_limit_tokens=float(graph_limit_tokens(mode)),
        baseline_graph=baseline.uniform_decode_graph,
        synchronous_baseline=not baseline.async_scheduling,
        speculation=k > 0,
        loses_async=k > 0 and baseline.async_scheduling and not mode.async_scheduling,
        rows_as_prefill=k > 0 and mode.multi_token_rows_as_prefill,
    )


def left_out(study: Study, cell: StepCell) -> list[str]:
    """A sentence where a profile says that the whole step takes longer or shorter than its parts explain."""
    if study.point_residual is None:
        return []
    factor = study.point_residual.factor(float(cell.tokens), float(cell.sequences))
    if cell.num_speculative_tokens:
        factor = factor * study.point_residual.drafted_factor()
    return [
        f"the profile's measurements say {percent(number(factor) - 1.0, 1, signed=True)} for steps of"
        f" {cell.tokens} rows; this simulation"
        " has only the parts that the model knows"
    ]


def number(value: Any) -> float:
    """The one number in an array of a single draw and cell."""
    return float(np.ravel(np.asarray(value, dtype=float))[0])


def without_skew(p: Parameters) -> Parameters:
    """The parameters with nothing to wait for inside AllReduce: here waiting comes out of the simulation."""
    return replace(p, allreduce_skew_s=0.0)
