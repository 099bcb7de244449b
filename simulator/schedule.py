"""The draft length by batch size that `choose` recommends.

An engine that switches its length pays for that, and for steps that draft nothing: those costs are on the schedule's
side (docs/model.md, eq. C1), and it is recommended only where it is still better than one length, or than none.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwmodel.engine.flags import schedule_refusal
from hwmodel.percent import probability
from simulator.comparison import Comparison
from simulator.decision import Pick, lengths_by_load, schedule_ranges
from simulator.study import Study
from simulator.summary import median, share_above
from simulator.switching import scheduling

Array = NDArray[np.float64]

_EVEN_ODDS = 0.5
_LEAST_LEAD = 1.005  # over the static length: what the text shows as the same factor is not a schedule's gain


class Scheduled(NamedTuple):
    """The recommended ranges `[[lo, hi, k], ...]`, or why there are none; gains over the traffic, `(num_draws,)`."""

    ranges: list[list[int]] | None
    reason: str | None
    gain: Array | None = None  # of the objective
    throughput_gain: Array | None = None


def scheduled(comparison: Comparison, pick: Pick) -> Scheduled:
    """The schedule where it is better than `pick`, and this engine can run it."""
    study, static = comparison.study, pick.num_speculative_tokens
    need = study.deployment.objective.min_probability_faster
    each = _EVEN_ODDS if static else need  # once it is on, a load only needs the better odds
    if len({*lengths_by_load(comparison.scores, static, each)}) == 1:  # not even if switching cost nothing
        return Scheduled(None, _one_length(static) if static else None)
    engine = scheduling(comparison)
    lengths = lengths_by_load(engine.scores, static, each)
    ranges = schedule_ranges(engine.loads, lengths, study.system.mode(0).max_num_seqs)
    if len({k for _, _, k in ranges}) == 1:
        return Scheduled(None, _switching_costs(static))
    gain, throughput = (_over_traffic(engine, values, lengths) for values in (engine.scores.gain, engine.gain))
    if not _better(comparison, static, gain, need):
        return Scheduled(None, _not_better(static, ranges, gain))
    refusal = _refusal(study, ranges)
    if refusal:
        return Scheduled(
            None, f"{refusal}; by load the best is {_words(ranges)} ({median(gain):.2f}x over the traffic)"
        )
    return Scheduled(ranges, None, gain, throughput)


def _over_traffic(engine: Comparison, values: Array, lengths: list[int]) -> Array:
    """Gains `(num_draws, num_lengths, num_loads)` at one length a load, weighted over the loads, `(num_draws,)`."""
    where = [engine.lengths.index(k) for k in lengths]
    return np.asarray(values[:, where, np.arange(len(lengths))] @ engine.scores.weights)


def _better(comparison: Comparison, static: int, gain: Array, need: float) -> bool:
    """Whether a schedule beats the recommended length, or the baseline surely enough where none is recommended."""
    if not static:
        return bool(median(gain) > 1.0) and share_above(gain, 1.0) >= need
    scores = comparison.scores
    return bool(median(gain / (scores.gain[:, scores.lengths.index(static)] @ scores.weights)) >= _LEAST_LEAD)


def _refusal(study: Study, ranges: list[list[int]]) -> str | None:
    """Why this engine cannot run a schedule, None where it can."""
    mode = study.system.mode(max(k for _, _, k in ranges))
    parallel = study.system.parallel
    return schedule_refusal(mode.engine, mode.version, study.system.method, mode.model_runner, parallel.data)


def _words(ranges: list[list[int]]) -> str:
    return ", ".join(f"k={k} for {low} to {high} requests" for low, high, k in ranges)


def _one_length(static: int) -> str:
    return f"a shorter draft than k={static}, or none, is at no load more than 2 % better"


def _switching_costs(static: int) -> str:
    left = f"k={static}" if static else "no draft"
    return f"by batch size: with what switching costs, {left} is best at every load"


def _not_better(static: int, ranges: list[list[int]], gain: Array) -> str:
    found = f"{median(gain):.2f}x over the traffic"
    if not static:
        found = f"{found}, P(better) {probability(share_above(gain, 1.0))}"
    than = f"k={static} at all loads" if static else "leaving it off"
    return f"by batch size, {_words(ranges)}: {found}, not surely more than {than} (steps that draft nothing cost too)"
