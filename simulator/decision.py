"""What to deploy: the objective over the load levels, the best static draft length, a schedule, and the restart.

Works on draws of both arms over a grid; every rule here is documented in docs/model.md, section "Decision".
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hwmodel.percent import probability
from hwmodel.records import dataclass
from hwmodel.units import MINUTE, MS
from simulator.closed_form import ArmResult, Cell
from simulator.deployment import Deployment
from simulator.summary import median, quantiles, share_above

Array = NDArray[np.float64]

SCHEDULE_MARGIN = 0.02  # smaller differences are below the noise of any measurement that could confirm them


@dataclass(frozen=True, slots=True)
class Scores:
    """The objective relative to the baseline's: `gain` `(num_draws, num_lengths, num_loads)`, more than 1 is better."""

    lengths: tuple[int, ...]
    loads: tuple[int, ...]
    weights: Array  # (num_loads,), summing to 1
    gain: Array
    allowed: NDArray[np.bool_]  # (num_lengths, num_loads): fits in memory and keeps the limits
    overall_gain: Array | None = None  # where the whole is not the weighted mean of the loads (goodput)
    within: NDArray[np.bool_] | None = None  # (num_lengths, num_loads): keeps the objective's limits; None: all do

    @property
    def within_limits(self) -> NDArray[np.bool_]:
        """Which lengths keep the objective's limits at which load, `(num_lengths, num_loads)`."""
        return np.ones_like(self.allowed) if self.within is None else self.within

    @property
    def overall(self) -> Array:
        """Gain over the whole traffic, `(num_draws, num_lengths)`: the weighted mean over the loads."""
        return self.overall_gain if self.overall_gain is not None else np.asarray(self.gain @ self.weights)


def load_weights(deployment: Deployment, loads: Sequence[int]) -> Array:
    """The traffic weights of the loads, summing to 1: the file's where it has all of them, else equal."""
    workload = deployment.workload
    stated = dict(zip(workload.concurrency, workload.weights or (), strict=False))
    if set(loads) <= set(stated) and sum(stated[load] for load in loads) > 0:
        weights = np.array([stated[load] for load in loads], dtype=float)
        return np.asarray(weights / weights.sum())
    return np.full(len(loads), 1.0 / len(loads))


def score(
    deployment: Deployment,
    cells: Sequence[Cell],
    baseline: ArmResult,
    speculative: ArmResult,
    speedup: Array,
    point: tuple[ArmResult, ArmResult],
) -> Scores:
    """Scores of a full grid; `speedup` has model error in it, `point` are both arms at the median parameters."""
    lengths = tuple(sorted({c.num_speculative_tokens for c in cells}))
    loads = tuple(sorted({c.concurrency for c in cells}))
    where = {(c.num_speculative_tokens, c.concurrency): i for i, c in enumerate(cells)}
    order = [[where[k, c] for c in loads] for k in lengths]
    gain = speedup
    if deployment.objective.maximise == "tpot":
        error = speedup / (speculative.throughput_tokens_per_s / baseline.throughput_tokens_per_s)
        gain = baseline.tpot_s / speculative.tpot_s * error
    within = _keeps_limits(deployment, point[1])
    fits = np.array([limit != "does_not_fit" for limit in point[1].limited_by])
    columns = np.array(order)
    weights = load_weights(deployment, loads)
    scores = Scores(lengths, loads, weights, gain[:, columns], (within & fits)[columns], None, within[columns])
    if deployment.objective.maximise != "goodput":
        return scores
    goodput = _goodput(deployment, scores, columns, baseline, speculative)
    return replace(scores, overall_gain=goodput @ scores.weights, allowed=fits[columns])


def _limits_kept(deployment: Deployment, arm: ArmResult) -> NDArray[np.bool_]:
    objective = deployment.objective
    kept = np.ones(arm.tpot_s.shape, dtype=bool)
    if objective.tpot_ms_max is not None:
        kept &= arm.tpot_s <= objective.tpot_ms_max * MS
    if objective.ttft_ms_max is not None:
        kept &= arm.ttft_s <= objective.ttft_ms_max * MS
    return kept


def _keeps_limits(deployment: Deployment, point: ArmResult) -> NDArray[np.bool_]:
    return np.asarray(_limits_kept(deployment, point)[0])


def _goodput(
    deployment: Deployment, scores: Scores, order: Array, baseline: ArmResult, speculative: ArmResult
) -> Array:
    """Throughput that keeps the limits over the baseline's in the whole traffic, `(num_draws, lengths, loads)`.

    Weighted over the loads it is the ratio of goodputs. A baseline that keeps the limits nowhere has goodput 0: then
    anything that does counts as 1 plus its throughput relative to the baseline's.
    """
    ours = np.where(_limits_kept(deployment, speculative), speculative.throughput_tokens_per_s, 0.0)[:, order]
    served = baseline.throughput_tokens_per_s[:, order[0]]
    kept = np.where(_limits_kept(deployment, baseline)[:, order[0]], served, 0.0)
    good, total = (np.maximum(x @ scores.weights, 0.0)[:, None, None] for x in (kept, served))
    return np.asarray(np.where(good > 0, ours / np.maximum(good, 1e-12), 1.0 + ours / total))


@dataclass(frozen=True, slots=True)
class Pick:
    """The recommended draft length (0: leave it off), how sure, and the best one had it been enabled anyway."""

    num_speculative_tokens: int
    best_enabled: int  # 0 only when nothing but the baseline was in the grid
    probability_better: float  # of best_enabled over the whole traffic
    gain: Array  # draws of best_enabled over the whole traffic, (num_draws,)
    reason: str


def pick_static(scores: Scores, min_probability: float) -> Pick:
    """The best single draft length for the weighted traffic.

    Largest median gain among the allowed; recommended only where the gain exceeds 1 with `min_probability`.
    """
    overall = scores.overall
    usable = [i for i, k in enumerate(scores.lengths) if k > 0 and scores.allowed[i].all()]
    enabled = [i for i, k in enumerate(scores.lengths) if k > 0]
    if not enabled:
        return Pick(0, 0, 0.0, np.ones(len(overall)), "only the baseline was asked for")
    pool = usable or enabled
    medians = median(overall)
    best = max(pool, key=lambda i: (round(float(medians[i]), 6), -scores.lengths[i]))
    probability = share_above(overall[:, best], 1.0)
    k = scores.lengths[best]
    if not usable:
        return Pick(0, k, probability, overall[:, best], "no draft length fits in memory and keeps the limits")
    if medians[best] <= 1.0:
        return Pick(0, k, probability, overall[:, best], "no draft length is expected to be faster")
    if probability < min_probability:
        return Pick(0, k, probability, overall[:, best], "the gain is not sure enough")
    return Pick(k, k, probability, overall[:, best], "")


def pick_schedule(scores: Scores, static: int, min_probability: float, max_num_seqs: int) -> list[list[int]]:
    """Draft length by batch size, `[[lo, hi, k], ...]`, inclusive, from 1 to `max_num_seqs`.

    See `lengths_by_load`.
    """
    return schedule_ranges(scores.loads, lengths_by_load(scores, static, min_probability), max_num_seqs)


def lengths_by_load(scores: Scores, static: int, min_probability: float) -> list[int]:
    """The draft length for each load.

    Each load keeps the `static` length unless another (or none) has a median gain larger by `SCHEDULE_MARGIN`; a
    length is used only where it is better than drafting nothing with `min_probability`, and never above a `static`
    length that is recommended. What drafting nothing costs is the gain of length 0 in the scores.
    """
    return [_length_at(scores, j, static, min_probability) for j in range(len(scores.loads))]


def schedule_ranges(loads: Sequence[int], chosen: Sequence[int], max_num_seqs: int) -> list[list[int]]:
    """Draft lengths chosen for some loads (ascending) as `[[lo, hi, k], ...]` from 1 to `max_num_seqs`.

    Ranges meet halfway (geometrically) between neighbouring loads, equal neighbours are merged.
    """
    rows: list[list[int]] = []
    low = 1
    for j, k in enumerate(chosen):
        if low > max_num_seqs:
            break
        last = j == len(chosen) - 1
        high = max_num_seqs if last else round((loads[j] * loads[j + 1]) ** 0.5)
        high = max(min(high, max_num_seqs), low)
        if rows and rows[-1][2] == k:
            rows[-1][1] = high
        else:
            rows.append([low, high, k])
        low = high + 1
    return rows


def _length_at(scores: Scores, j: int, static: int, min_probability: float) -> int:
    """The draft length for one load (see `lengths_by_load`)."""
    undrafted = scores.gain[:, scores.lengths.index(0), j]
    usable = {0: float(median(undrafted))}
    for i, k in enumerate(scores.lengths):
        draws = scores.gain[:, i, j]
        within = 0 < k <= (static or k)
        if within and scores.allowed[i, j] and share_above(draws / undrafted, 1.0) >= min_probability:
            usable[k] = float(median(draws))
    best = max(usable, key=lambda k: (usable[k], -k))
    if static in usable and usable[best] < usable[static] * (1.0 + SCHEDULE_MARGIN):
        return static
    return best


@dataclass(frozen=True, slots=True)
class RestartValue:
    """What the restart costs and when it has paid for itself; None values come with a reason."""

    outage_s: float | None
    expected_outage_s: float | None  # with the way back weighted by the chance of needing it
    payback_s: dict[str, float | None]
    payback_reason: str | None


_NO_PAYBACK: dict[str, float | None] = {"p05": None, "p50": None, "p95": None}


def restart_value(deployment: Deployment, gain: Array, baseline_tokens_per_s: float) -> RestartValue:
    """Restart economics for draws of the throughput gain S over the traffic, `(num_draws,)` (docs/model.md, eq. P1).

    With n replicas restarted in turn for D seconds each, traffic T and capacity X of the baseline (T = X where no
    traffic is stated), n D max(0, T / X - (n - 1) / n) seconds of capacity are missed (one replica: D). Traffic at
    or above X gets them back as tokens, at a rate of min(S, T / X) - 1; below X the gain is latency, and the users'
    waiting comes back at a rate of 1 - 1 / S. Nothing is paid back before the last replica is up again.
    """
    restart = deployment.restart
    if restart.outage_min is None:
        return RestartValue(None, None, dict(_NO_PAYBACK), "restart.outage_min is not given")
    down, n = restart.outage_min * MINUTE, restart.replicas
    back = (restart.rollback_min if restart.rollback_min is not None else restart.outage_min) * MINUTE
    success = share_above(gain, 1.0)
    outage = 0.0 if n > 1 else down
    load = relative_traffic(deployment, baseline_tokens_per_s)
    short = _missed_share(n, load)
    expected = (down + (1.0 - success) * back) * short
    rate = payback_rate(gain, load)
    with np.errstate(divide="ignore"):
        paid = np.maximum(down * short / np.maximum(rate, 1e-12), n * down)
    draws = np.where(rate > 0.0, paid, np.inf)
    figures = quantiles(draws)
    reason = None
    if figures["p50"] is None:
        reason = "no gain is expected, so the outage is never paid back"
    elif figures["p95"] is None:
        reason = f"never paid back where it turns out slower (probability {probability(1.0 - success)})"
    elif load < 1.0:
        reason = _spare_capacity(deployment, baseline_tokens_per_s)
    return RestartValue(outage, expected, {name: figures[name] for name in _NO_PAYBACK}, reason)


def relative_traffic(deployment: Deployment, baseline_tokens_per_s: float) -> float:
    """The stated traffic over what the baseline serves; infinite (as much as anything serves) where none is stated."""
    traffic = deployment.restart.traffic_tokens_per_s
    return np.inf if traffic is None or baseline_tokens_per_s <= 0 else traffic / baseline_tokens_per_s


def payback_rate(gain: Array, load: float) -> Array:
    """Seconds of the baseline's service that one second with this throughput gain gives back (see `restart_value`)."""
    return np.asarray(np.minimum(gain, load) - 1.0 if load >= 1.0 else 1.0 - 1.0 / np.maximum(gain, 1e-12))


def missed_per_restart_s(deployment: Deployment, baseline_tokens_per_s: float) -> float | None:
    """Seconds of the baseline's capacity that one restart misses (docs/model.md, eq. P1); None if not stated."""
    restart = deployment.restart
    if restart.outage_min is None:
        return None
    load = relative_traffic(deployment, baseline_tokens_per_s)
    return restart.outage_min * MINUTE * _missed_share(restart.replicas, load)


def _missed_share(replicas: int, load: float) -> float:
    """Capacity missed in a restart of all replicas in turn, in outages of one."""
    return 1.0 if replicas == 1 else replicas * max(0.0, min(load, 1.0) - (replicas - 1) / replicas)


def _spare_capacity(deployment: Deployment, baseline_tokens_per_s: float) -> str:
    traffic = deployment.restart.traffic_tokens_per_s or 0.0
    return (
        f"the stated traffic of {traffic:.0f} tok/s is below the {baseline_tokens_per_s:.0f} tok/s that the baseline"
        " serves, so the gain is latency: users' waiting is counted, not tokens"
    )
