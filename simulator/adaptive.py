"""What a static draft length, a schedule and adaptive controllers are worth on one deployment's traffic."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from hwmodel.engine.flags import schedule_refusal
from hwmodel.engine.records import EngineMode
from hwmodel.engine.versions import Version, format_version
from hwmodel.percent import percent
from hwmodel.records import dataclass
from simulator.answers import INTERVAL, collected_notes, does_not_fit, prediction_identity, recorded_inputs
from simulator.choose import launch_flag
from simulator.comparison import LONGEST, Comparison, compare_lengths
from simulator.context_split import ContextSplit, split_by_context
from simulator.controllers import (
    ADAPTIVE,
    BOUND,
    SCHEDULE,
    STATIC,
    Control,
    longest_of_sglang,
    off,
    optimal,
    sglang_adaptive,
    static,
    vllm_schedule,
)
from simulator.decision import SCHEDULE_MARGIN
from simulator.defaults import DEFAULT_DRAWS
from simulator.deployment import Deployment, with_method
from simulator.results import JsonObject
from simulator.study import Study
from simulator.summary import median, quantiles, share_above

Array = NDArray[np.float64]

_SCHEDULE_FIRST: Version = (0, 24, 0)
_SGLANG_FIRST: Version = (0, 5, 23)  # --speculative-adaptive: in 0.5.23, not in 0.5.5 (server_args.py)
_SGLANG_KNOWN_WITHOUT: Version = (0, 5, 5)
_SGLANG_METHODS = ("eagle", "eagle3", "mtp")  # --speculative-algorithm EAGLE, EAGLE3, NEXTN
_TITLES = {
    "off": "no speculation",
    "static": "static",
    "vllm-schedule": "vLLM, by batch size",
    "sglang-adaptive": "SGLang adaptive",
    "optimal": "upper bound",
}


@dataclass(frozen=True)
class Judged:
    """A control beside the best static length: whether this engine has it, why not, and the launch text."""

    control: Control
    available: bool
    reason: str | None
    flag: str
    flag_needs: str | None


@dataclass(frozen=True)
class Adaptive:
    """The ways to decide the draft length, compared; the first is no speculation, the second the best static."""

    inputs: JsonObject
    comparison: Comparison
    judged: tuple[Judged, ...]
    left_out: tuple[tuple[str, str], ...]  # (name, why it was not computed)
    split: ContextSplit
    notes: tuple[str, ...]

    @property
    def best_static(self) -> int:
        """The best static length over the traffic; 0: none is expected to be faster."""
        return self.comparison.best_static

    def to_dict(self) -> JsonObject:
        """The JSON object of `draftcast adaptive --json`."""
        reference = static(self.comparison, self.best_static)
        return {
            "inputs": self.inputs,
            "best_static": self.best_static,
            "controllers": [_control_json(self.comparison, judged, reference) for judged in self.judged],
            "left_out": [{"name": name, "reason": why} for name, why in self.left_out],
            "contexts": _split_json(self.split),
            "recommendation": does_not_fit(self.comparison.study) + recommendation(self),
            "notes": list(self.notes),
            "prediction_id": prediction_identity(self.inputs),
        }


def adaptive(  # noqa: PLR0913 - the public question in its own words
    deployment: Deployment,
    *,
    num_speculative_tokens: Sequence[int] | None = None,
    concurrency: Sequence[int] | None = None,
    contexts: Sequence[int] | None = None,
    method: str | None = None,
    num_draws: int = DEFAULT_DRAWS,
    seed: int = 0,
) -> Adaptive:
    """Every way to decide the draft length on this traffic, over the same draws; draft lengths default to 0-8."""
    deployment, notes = with_method(deployment, method) if method else (deployment, ())
    comparison = compare_lengths(deployment, num_speculative_tokens, concurrency, num_draws=num_draws, seed=seed)
    study = comparison.study
    judged, left_out = judged_controls(comparison)
    split = split_by_context(comparison, contexts, deployment.objective.min_probability_faster)
    settings: JsonObject = {
        "num_speculative_tokens": list(comparison.lengths),
        "concurrency": list(comparison.loads),
        "contexts": None if contexts is None else list(contexts),
        "num_draws": num_draws,
        "seed": seed,
    }
    k = comparison.best_static or LONGEST
    own = [
        "SGLang's controller: the steady state of one load; draftcast simulate runs it step by step"
        " (speculation.policy), with loads that change"
    ]
    if deployment.objective.maximise == "goodput":
        own.append("ways to decide are compared by throughput, without the objective's limits; see draftcast simulate")
    found = [*own, *collected_notes(study, min(k, max(comparison.lengths)), notes)]
    shown = tuple(note for note in found if not note.startswith("speculation.policy"))
    return Adaptive(recorded_inputs(study, settings), comparison, judged, left_out, split, shown)


def judged_controls(comparison: Comparison) -> tuple[tuple[Judged, ...], tuple[tuple[str, str], ...]]:
    """Every way to decide, off and the best static length first, and (name, reason) of what was left out."""
    bound = Judged(optimal(comparison), False, "an upper bound: no engine knows what it would have to know", "", None)
    judged = [_plain(off(comparison)), _static(comparison), _schedule(comparison)]
    why = _not_sglang(comparison)
    if why:
        return (*judged, bound), ((ADAPTIVE, why),)
    return (*judged, _sglang(comparison), bound), ()


def _plain(control: Control) -> Judged:
    return Judged(control, True, None, "", None)


def _static(comparison: Comparison) -> Judged:
    """The best static length; if none is expected to be faster, the best of those that draft."""
    k = comparison.best_static or _best_enabled(comparison)
    flag, notes = launch_flag(comparison.study, k, None)
    return Judged(static(comparison, k), bool(flag), None if flag else "; ".join(notes), flag, None)


def _best_enabled(comparison: Comparison) -> int:
    medians = median(comparison.scores.overall)
    drafting = [i for i, k in enumerate(comparison.lengths) if k]
    usable = [i for i in drafting if comparison.scores.allowed[i].all()] or drafting
    return comparison.lengths[max(usable, key=lambda i: (round(float(medians[i]), 6), -comparison.lengths[i]))]


def _schedule(comparison: Comparison) -> Judged:
    """vLLM's schedule; where this version lacks it, as it would be with one that has it."""
    study = comparison.study
    control = vllm_schedule(comparison)
    rows = [list(row) for row in control.schedule]
    longest = max((k for _, _, k in rows), default=0)
    refusal = _schedule_refusal(study, longest)
    if len({k for _, _, k in rows}) == 1:
        same = f"at every load {'no draft' if not longest else f'k={longest}'} is best: a schedule adds nothing"
        return Judged(control, False, same if refusal is None else f"{same}; {refusal}", "", None)
    if refusal is None:
        flag, _ = launch_flag(study, longest, rows)
        return Judged(control, bool(flag), None, flag, None)
    newer = _newer(study)
    if newer is None or _schedule_refusal(newer, longest):
        return Judged(control, False, refusal, "", None)
    flag, _ = launch_flag(newer, longest, rows)
    return Judged(control, False, refusal, flag, "vLLM 0.24 or later, which may differ in more than the schedule")


def _schedule_refusal(study: Study, longest: int) -> str | None:
    system = study.system
    mode = system.mode(longest)
    return schedule_refusal(mode.engine, mode.version, system.method, mode.model_runner, system.parallel.data)


def _newer(study: Study) -> Study | None:
    """The study as if the engine were the first vLLM with a schedule, for its launch text; None for another engine."""
    system = study.system
    if system.mode(0).engine != "vllm" or system.parallel.data > 1:
        return None

    @cache
    def mode(num_speculative_tokens: int) -> EngineMode:
        return replace(system.mode(num_speculative_tokens), version=_SCHEDULE_FIRST)

    return replace(study, system=replace(system, mode=mode))


def _not_sglang(comparison: Comparison) -> str | None:
    """Why SGLang's controller is not computed, None where it is."""
    spec = comparison.study.deployment.speculation
    if spec.method not in _SGLANG_METHODS:
        return f"SGLang adapts the length of EAGLE and EAGLE-3 drafts only, not of {spec.method}"
    if (spec.sglang_topk or 1) > 1:
        return "SGLang adapts the length of chains only (--speculative-eagle-topk 1)"
    missing = sorted({*range(longest_of_sglang() + 1)} - {*comparison.lengths})
    if missing:
        return f"needs draft lengths 0 to {longest_of_sglang()}; missing: {', '.join(map(str, missing))}"
    return None


def _sglang(comparison: Comparison) -> Judged:
    control, study = sglang_adaptive(comparison), comparison.study
    mode = study.system.mode(0)
    if mode.engine != "sglang":
        reason = "vLLM has no such controller; the costs are this engine's, only the decisions are SGLang's"
        return Judged(control, False, reason, "", None)
    longest = longest_of_sglang()
    flag, _ = launch_flag(study, longest, None)
    text = f"{flag} --speculative-adaptive"
    label = f"SGLang {format_version(mode.version)}"
    if mode.version <= _SGLANG_KNOWN_WITHOUT:
        return Judged(control, False, f"{label} has no --speculative-adaptive", text, "SGLang 0.5.23 or later")
    if mode.version < _SGLANG_FIRST:
        doubt = f"{label}: --speculative-adaptive is known from 0.5.23, this version was not looked at"
        return Judged(control, True, doubt, text, None)
    return Judged(control, True, None, text, None)


def _control_json(comparison: Comparison, judged: Judged, reference: Control) -> JsonObject:
    control, weights = judged.control, comparison.scores.weights
    overall, against = control.overall(weights), control.overall(weights) / reference.overall(weights)
    named = control.name == STATIC
    return {
        "name": control.name,
        "title": _TITLES[control.name] + (f", k={control.lengths[0]}" if named else ""),
        "num_speculative_tokens": control.lengths[0] if named else None,
        "schedule": [list(row) for row in control.schedule] or None,
        "available": judged.available,
        "reason": judged.reason,
        "flag": judged.flag,
        "flag_needs": judged.flag_needs,
        "speedup": _interval(overall),
        "probability_faster": share_above(overall, 1.0) if control.name != "off" else 0.0,
        "tpot_gain": _interval(control.overall_tpot(weights)),
        "versus_static": _interval(against),
        "probability_better_than_static": share_above(against, 1.0),
        "by_load": _by_load(comparison, control),
    }


def _by_load(comparison: Comparison, control: Control) -> list[JsonObject]:
    base = comparison.baseline
    tpot, rate = median(base.tpot_s / control.tpot_gain), median(base.throughput_tokens_per_s * control.gain)
    return [
        {
            "concurrency": load,
            "num_speculative_tokens": control.lengths[j],
            "speedup": _interval(control.gain[:, j]),
            "tpot_s": float(tpot[j]),
            "throughput_tokens_per_s": float(rate[j]),
        }
        for j, load in enumerate(comparison.loads)
    ]


def _split_json(split: ContextSplit) -> JsonObject:
    return {
        "basis": split.basis,
        "points": [
            {
                "context_tokens": p.context_tokens,
                "num_speculative_tokens": p.num_speculative_tokens,
                "speedup": _interval(p.gain),
                "versus_static": _interval(p.over_static),
                "probability_better_than_static": p.probability_better,
            }
            for p in split.points
        ],
        "split_recommended": split.recommended,
        "text": split.text,
    }


def _interval(draws: Array) -> dict[str, float | None]:
    found = quantiles(draws)
    return {name: found[name] for name in INTERVAL}


def recommendation(found: Adaptive) -> str:
    """Which way to decide, in a sentence or two."""
    comparison = found.comparison
    objective = comparison.study.deployment.objective
    need, method = objective.min_probability_faster, comparison.study.system.method
    best = found.best_static

    def overall(control: Control) -> Array:
        weights = comparison.scores.weights
        return control.overall_tpot(weights) if objective.maximise == "tpot" else control.overall(weights)

    reference = overall(static(comparison, best))
    bound = next(j.control for j in found.judged if j.control.name == BOUND)
    room = float(median(overall(bound) / reference)) - 1.0
    plain = f"k={best} for all loads" if best else "no speculation"
    changing = [j.control for j in found.judged if j.available and j.control.name in (SCHEDULE, ADAPTIVE)]
    leads = {control.name: float(median(overall(control) / reference)) for control in changing}
    better = [c for c in changing if _worth_it(overall(c), reference, leads[c.name], need)]
    tail = f"The most that any controller could add is {percent(room)} (median)."
    if better:
        name = max(better, key=lambda control: leads[control.name]).name
        return f"{_TITLES[name]}: {leads[name]:.2f}x of {plain} with {method}. {tail}"
    if best and share_above(reference, 1.0) >= need:
        return f"{plain} with {method}: nothing that this engine can do at run time is surely better. {tail}"
    return f"Leave {method} off: no way to decide the length is surely faster. {tail}"


def _worth_it(ours: Array, reference: Array, lead: float, need: float) -> bool:
    """Better than the best static length and than the baseline, by more than noise and surely enough."""
    return (
        lead >= 1.0 + SCHEDULE_MARGIN and share_above(ours / reference, 1.0) >= need and share_above(ours, 1.0) >= need
    )
