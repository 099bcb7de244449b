"""Deciding the draft length at run time, as options: a schedule by batch size, or SGLang's controller."""

from collections.abc import Iterable

from hwmodel.errors import DraftcastError
from hwmodel.percent import percent
from simulator.adaptive import Judged, judged_controls
from simulator.comparison import Comparison, compare_lengths
from simulator.controllers import ADAPTIVE, BOUND, SCHEDULE, Control, static
from simulator.decision import SCHEDULE_MARGIN, restart_value
from simulator.deployment import apply_overrides
from simulator.options.build import ends
from simulator.options.record import LoadGain, Need, Option
from simulator.options.situation import Situation
from simulator.summary import median, quantiles, share_above

_LENGTH_KEY = "speculation.num_speculative_tokens="
_KINDS = {SCHEDULE: "length by batch size", ADAPTIVE: "SGLang adaptive length"}


def options(situation: Situation, drafter: Option) -> Iterable[Option]:
    """What changing the length of `drafter` at run time adds to its best static length, where it adds anything.

    Only for an option that changes nothing but speculation: the baseline is then today's.
    """
    if not drafter.num_speculative_tokens or not all(c.startswith("speculation.") for c in drafter.changes):
        return
    changes = [change for change in drafter.changes if not change.startswith(_LENGTH_KEY)]
    try:
        deployment = apply_overrides(situation.deployment, changes)
        comparison = compare_lengths(
            deployment, situation.lengths, situation.loads, num_draws=situation.num_draws, seed=situation.seed
        )
    except DraftcastError:
        return
    judged, _ = judged_controls(comparison)
    reference = static(comparison, comparison.best_static or drafter.num_speculative_tokens)
    bound = next(each.control for each in judged if each.control.name == BOUND)
    for each in judged:
        own = each.available or (each.control.name == SCHEDULE and each.flag_needs)  # in this engine, or a newer one
        own = own and each.control.name in (SCHEDULE, ADAPTIVE)
        if own and _lead(comparison, each.control, reference) >= 1.0 + SCHEDULE_MARGIN / 2:
            yield _option(situation, drafter, comparison, each, _lead(comparison, bound, reference))


def _lead(comparison: Comparison, ours: Control, theirs: Control) -> float:
    weights = comparison.scores.weights
    return float(median(ours.overall(weights) / theirs.overall(weights)))


def _option(situation: Situation, drafter: Option, comparison: Comparison, judged: Judged, room: float) -> Option:
    control, weights = judged.control, comparison.scores.weights
    speedup, tpot = control.overall(weights), control.overall_tpot(weights)
    gain = tpot if situation.deployment.objective.maximise == "tpot" else speedup
    value = restart_value(situation.deployment, speedup, situation.today.throughput(weights))
    longest = max([k for _, _, k in control.schedule], default=drafter.num_speculative_tokens)
    needs = drafter.needs
    if judged.flag_needs or not judged.available:
        needs = (*needs, Need("software", judged.flag_needs or judged.reason or "another engine", {}))
    return drafter._replace(
        name=f"{_KINDS[control.name]}: {drafter.name}",
        kind="draft length",
        num_speculative_tokens=longest,
        changes=_changes(drafter, control, longest),
        by_load=tuple(_load_gain(comparison, control, j) for j in range(len(comparison.loads))),
        speedup=ends(quantiles(speedup)),
        gain=ends(quantiles(gain)),
        probability_faster=share_above(gain, 1.0),
        needs=needs,
        payback_s=ends(value.payback_s),
        payback_reason=value.payback_reason,
        assumptions=(*drafter.assumptions, "draft length: the steady state of each load (docs/adaptive.md)"),
        notes=(
            *drafter.notes,
            *([judged.flag] if judged.flag else []),
            f"the most that any controller could add to one length is {percent(room - 1.0)}",
        ),
    )


def _changes(drafter: Option, control: Control, longest: int) -> tuple[str, ...]:
    kept = [change for change in drafter.changes if not change.startswith(_LENGTH_KEY)]
    if control.name == ADAPTIVE:
        return (*kept, f"{_LENGTH_KEY}{longest}", "speculation.policy=sglang-adaptive")
    ranges = ", ".join(f"[{low}, {high}, {k}]" for low, high, k in control.schedule)
    return (*kept, f"{_LENGTH_KEY}{longest}", f"speculation.schedule=[{ranges}]")


def _load_gain(comparison: Comparison, control: Control, j: int) -> LoadGain:
    """One load: speedup and times are medians of the draws; the length is 0 where the controller walks."""
    base = comparison.baseline
    gain = control.gain[:, j]
    return LoadGain(
        concurrency=comparison.loads[j],
        num_speculative_tokens=control.lengths[j] or 0,
        speedup=ends(quantiles(gain)),
        probability_faster=share_above(gain, 1.0),
        tpot_s=float(median(base.tpot_s[:, j] / control.tpot_gain[:, j])),
        throughput_tokens_per_s=float(median(base.throughput_tokens_per_s[:, j] * gain)),
        limited_by=base.limited_by[j],
    )
