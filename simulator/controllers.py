"""What decides the draft length at run time, and what each way is worth on the given traffic.

None, one static length, vLLM's length by batch size, SGLang's adaptive controller, and a controller that knows
everything: an upper bound. All over the same draws (docs/model.md, eq. C1 to C3).
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hwmodel.records import dataclass
from hwmodel.step import StepCost
from simulator.acceptance_priors import priors
from simulator.closed_form import Load, acceptance_arrays, arm, capacity, prefill_cost
from simulator.comparison import Comparison
from simulator.decision import SCHEDULE_MARGIN, schedule_ranges
from simulator.serving.policies import (
    SGLANG_AVERAGE_VARIANCE,
    SGLANG_CANDIDATES,
    SglangAdaptive,
    sglang_candidates,
    sglang_drops_to,
    sglang_rises_above,
)
from simulator.serving.population import beta_levels
from simulator.summary import median
from simulator.switching import scheduling, switchable

Array = NDArray[np.float64]
Ints = NDArray[np.int_]

OFF, STATIC, SCHEDULE, ADAPTIVE, BOUND = "off", "static", "vllm-schedule", "sglang-adaptive", "optimal"
_LEVELS = 8  # of requests, for what a controller gains that tells them apart
_DOUBLINGS = 13  # 8192 updates of SGLang's average, 40,000 steps: about half an hour
_NO_SPREAD = 1e-9  # of an average whose drafts all fare alike
_MOSTLY = 0.95  # of the steps: then it is this length


@dataclass(frozen=True)
class Control:
    """One way to decide: gains over the baseline by draw and load, and the lengths it uses.

    `gain` and `tpot_gain` are `(num_draws, num_loads)`, more than 1 is better. `lengths` has one draft length a load,
    None where it depends on the draw or the request.
    """

    name: str
    gain: Array
    tpot_gain: Array
    lengths: tuple[int | None, ...]
    schedule: tuple[tuple[int, int, int], ...] = ()

    def overall(self, weights: Array) -> Array:
        """Throughput gain over the traffic, `(num_draws,)`: the weighted mean over the loads, as in `choose`."""
        return np.asarray(self.gain @ weights)

    def overall_tpot(self, weights: Array) -> Array:
        """TPOT gain over the traffic, `(num_draws,)`."""
        return np.asarray(self.tpot_gain @ weights)


def off(comparison: Comparison) -> Control:
    """No speculation: the baseline against itself."""
    draws, _, loads = comparison.shape
    return Control(OFF, np.ones((draws, loads)), np.ones((draws, loads)), (0,) * loads)


def static(comparison: Comparison, num_speculative_tokens: int) -> Control:
    """One length for all loads."""
    index = comparison.lengths.index(num_speculative_tokens)
    where = np.full(len(comparison.loads), index)
    return _at(STATIC, comparison, where)


def vllm_schedule(comparison: Comparison, *, minimum: int = 0) -> Control:
    """The best length for each load, as vLLM's schedule by batch size would set it.

    A load keeps the best static length unless another is better by `SCHEDULE_MARGIN` in the median, costs of switching
    included on both sides. `minimum` 0 allows a batch to draft nothing.
    """
    engine = scheduling(comparison)
    gain, allowed = engine.scores.gain, engine.scores.allowed
    kept = comparison.lengths.index(comparison.best_static)
    where = [
        _better_than(kept, median(gain[:, :, j]), np.array(engine.lengths) >= minimum, allowed[:, j])
        for j in range(len(engine.loads))
    ]
    found = _at(SCHEDULE, engine, np.array(where))
    limit = comparison.study.system.mode(0).max_num_seqs
    ranges = schedule_ranges(engine.loads, [k or 0 for k in found.lengths], limit)
    return replace(found, schedule=tuple((low, high, k) for low, high, k in ranges))


def _better_than(kept: int, medians: Array, enough: NDArray[np.bool_], allowed: NDArray[np.bool_]) -> int:
    """Index of the best allowed length; the `kept` one where nothing is better by the margin."""
    usable = [i for i in range(len(medians)) if enough[i] and (i == 0 or allowed[i])]
    best = max(usable, key=lambda i: (float(medians[i]), -i))
    if kept in usable and medians[best] < medians[kept] * (1.0 + SCHEDULE_MARGIN):
        return kept
    return best


def _at(name: str, comparison: Comparison, where: Ints) -> Control:
    """The control that uses the lengths of these indices, `(num_loads,)` or `(num_draws, num_loads)`."""
    draws, _, loads = comparison.shape
    index = np.broadcast_to(where, (draws, loads))
    rows, columns = np.arange(draws)[:, None], np.arange(loads)
    error = comparison.study.model_error_factor
    spec = comparison.of_arm(comparison.grid.speculative.tpot_s)
    faster = comparison.baseline.tpot_s / spec[rows, index, columns]
    faster = faster * np.where(index > 0, error, 1.0)
    lengths: tuple[int | None, ...] = (None,) * loads
    if where.ndim == 1:
        lengths = tuple(comparison.lengths[i] for i in where.tolist())
    return Control(name, comparison.gain[rows, index, columns], faster, lengths)


def longest_of_sglang() -> int:
    """The longest draft that SGLang's controller asks for."""
    return max(k for ks in SGLANG_CANDIDATES.values() for k in ks)


def sglang_adaptive(comparison: Comparison) -> Control:
    """SGLang's controller after half an hour of one load: a walk over its candidates (docs/model.md, eq. C2).

    The comparison must hold 0 to `longest_of_sglang()`.
    """
    engine = switchable(comparison, keeps_full_graphs=True)
    survival, share = acceptance_arrays(comparison.study.acceptance, point=False)
    running = np.maximum(comparison.baseline.running / comparison.study.system.batch_divisor, 1.0)
    visits = np.zeros(engine.shape)  # share of the steps spent at each length
    for j, sequences in enumerate(running.tolist()):
        candidates = sglang_candidates(round(sequences))
        columns = [engine.lengths.index(k) for k in candidates]
        visits[:, columns, j] = _visits(survival * share, candidates, sequences)
    return _mixed(ADAPTIVE, engine, visits)


def _visits(survival: Array, candidates: tuple[int, ...], sequences: float) -> Array:
    """Share of the steps at each candidate, `(num_draws, num_candidates)`, of a walk from the controller's start.

    At each update its average of accepted tokens is normal around the mean of the length in use: the variance of one
    draft over the rows of a step, times what the average keeps of independent steps.
    """
    from scipy.special import ndtr  # slow to import

    place = [0, *np.cumsum(survival, axis=1).T]
    square = [0, *np.cumsum(survival * (2.0 * np.arange(survival.shape[1]) + 1.0), axis=1).T]
    moves = np.zeros((len(survival), len(candidates), len(candidates)))
    for i, k in enumerate(candidates):
        mean = np.broadcast_to(place[k], len(survival))
        spread = np.sqrt(np.maximum(square[k] - mean**2, 0.0) / sequences * SGLANG_AVERAGE_VARIANCE) + _NO_SPREAD
        if i + 1 < len(candidates):
            moves[:, i, i + 1] = ndtr((mean - sglang_rises_above(k)) / spread)
        if i:
            moves[:, i, i - 1] = ndtr((sglang_drops_to(candidates[i - 1]) - mean) / spread) * (1 - moves[:, i].sum(1))
        moves[:, i, i] = 1.0 - moves[:, i].sum(axis=1)
    for _ in range(_DOUBLINGS):
        moves = moves @ moves
    start = SglangAdaptive().length
    return np.asarray(moves[:, max((i for i, k in enumerate(candidates) if k <= start), default=0)])


def _mixed(name: str, comparison: Comparison, visits: Array) -> Control:
    """The control that spends these shares of its steps `(num_draws, num_lengths, num_loads)` at each length."""
    study, system = comparison.study, comparison.study.system
    spec, base = comparison.grid.speculative, comparison.baseline
    steps = (visits * comparison.of_arm(spec.step_s)).sum(axis=1)
    tokens = (visits * comparison.of_arm(spec.tokens_per_step)).sum(axis=1)
    longest = max(comparison.lengths)
    load = Load.of(comparison.loads, [capacity(system, longest, study.kv_cache_tokens)] * len(comparison.loads))
    prompt = prefill_cost(system, study.parameters, load.sequences(system), base.step_s)
    reached = arm(system, StepCost({"step": steps}), prompt, tokens, load)
    error = visits[:, 0] + (1.0 - visits[:, 0]) * study.model_error_factor
    gain = reached.throughput_tokens_per_s / base.throughput_tokens_per_s * error
    usual = visits.mean(axis=0)
    lengths = [comparison.lengths[i] if usual[i, j] > _MOSTLY else None for j, i in enumerate(usual.argmax(axis=0))]
    return Control(name, gain, base.tpot_s / reached.tpot_s * error, tuple(lengths))


def optimal(comparison: Comparison) -> Control:
    """The most that any controller could reach: it knows each request's acceptance and every cost, and drafts for none
    at no cost where that is best. An upper bound, not a product (docs/model.md, eq. C3).
    """
    study, system = comparison.study, comparison.study.system
    _, _, loads = comparison.shape
    lead = np.maximum(_lead_of_knowing(comparison), 1.0)
    best = comparison.gain.argmax(axis=1)  # (num_draws, num_loads): 0 is the baseline
    tokens = comparison.of_arm(comparison.grid.speculative.tokens_per_step)
    steps = comparison.of_arm(comparison.grid.speculative.step_s)
    rows, columns = np.arange(len(best))[:, None], np.arange(loads)
    load = Load.of(comparison.loads, [capacity(system, 0, study.kv_cache_tokens)] * loads)
    base = comparison.baseline
    prompt = prefill_cost(system, study.parameters, load.sequences(system), base.step_s)
    quickest = StepCost({"step": steps[rows, best, columns] / lead})
    reached = arm(system, quickest, prompt, tokens[rows, best, columns], load)
    error = np.where((best > 0) | (lead > 1.0), study.model_error_factor, 1.0)
    gain = np.maximum(reached.throughput_tokens_per_s / base.throughput_tokens_per_s * error, comparison.gain.max(1))
    faster = np.maximum(base.tpot_s / reached.tpot_s * error, 1.0)
    return Control(BOUND, np.maximum(gain, 1.0), faster, (None,) * loads)


def _lead_of_knowing(comparison: Comparison) -> Array:
    """Tokens per second of the step loop with every request's best draft over those with the best one for all,
    `(num_draws, num_loads)`."""
    survival, share = acceptance_arrays(comparison.study.acceptance, point=False)
    longest = max(comparison.lengths)
    slots = survival[:, :longest] * share[:, -1:]
    stated = comparison.study.deployment.speculation.acceptance
    kappa = (stated.heterogeneity if stated else None) or float(priors()["spread"]["kappa_median"])
    means = np.clip(slots, 0.0, 1.0)
    levels = beta_levels(means.ravel(), kappa, _LEVELS).reshape(_LEVELS, *means.shape).transpose(1, 0, 2)
    steps = comparison.of_arm(comparison.grid.speculative.step_s)
    known = np.array(comparison.lengths, dtype=float)
    lead = np.empty((len(steps), len(comparison.loads)))
    for j, sequences in enumerate(comparison.baseline.running.tolist()):
        times = _at_every_length(steps[:, :, j], known, longest)
        lead[:, j] = _lead_alone(levels, times) if sequences <= 1 else _lead_in_batch(levels, times)
    return lead


def _at_every_length(step_s: Array, known: Array, longest: int) -> Array:
    """Step seconds at mean draft lengths 0 to `longest` in steps of 1 / `_LEVELS`, `(num_draws, n)`; linear between."""
    wanted = np.arange(longest * _LEVELS + 1) / _LEVELS
    high = np.clip(np.searchsorted(known, wanted), 1, len(known) - 1)
    weight = (wanted - known[high - 1]) / (known[high] - known[high - 1])
    return np.asarray(step_s[:, high - 1] * (1.0 - weight) + step_s[:, high] * weight)


def _lead_alone(levels: Array, times: Array) -> Array:
    """One request at a time: each at its own best length against one length for all. Requests are as many of each
    level as make the drafts of the longest length uniform over levels (docs/serving.md)."""
    tokens = 1.0 + np.concatenate([np.zeros((*levels.shape[:2], 1)), np.cumsum(levels, axis=2)], axis=2)
    requests = tokens[:, :, -1] / tokens[:, :, -1].sum(axis=1, keepdims=True)
    seconds = times[:, None, ::_LEVELS] / tokens  # a token, (num_draws, levels, lengths)
    for_all = np.einsum("dl,dlk->dk", requests, seconds).min(axis=1)
    each = (requests * seconds.min(axis=2)).sum(axis=1)
    return np.asarray(for_all / each)


def _lead_in_batch(levels: Array, times: Array) -> Array:
    """Many at once, as many of each level: slots are filled in order of survival, and the best size is taken."""
    even = levels.mean(axis=1)
    slots = -np.sort(-levels.reshape(len(levels), -1), axis=1) / levels.shape[1]
    accepted = np.concatenate([np.zeros((len(slots), 1)), np.cumsum(slots, axis=1)], axis=1)
    best = ((1.0 + accepted) / times).max(axis=1)
    tokens = 1.0 + np.concatenate([np.zeros((len(even), 1)), np.cumsum(even, axis=1)], axis=1)
    return np.asarray(best / (tokens / times[:, ::_LEVELS]).max(axis=1))
