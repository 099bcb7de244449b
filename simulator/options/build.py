"""From an outcome to an option: figures, restart, payback, and what came out of it in words."""

import shlex
from collections.abc import Sequence
from typing import NamedTuple

from hwmodel.units import MINUTE
from simulator.decision import RestartValue
from simulator.options.record import Experiment, Interval, LoadGain, Need, NextBest, Option, Risk
from simulator.options.situation import Outcome, Situation
from simulator.summary import quantile_rows, quantiles, share_above

EXACT = Risk("none", "the target verifies every token: the same distribution of outputs, ties in rounding aside")
SAME_ENGINE = Risk("low", "other kernels round differently: outputs agree in distribution, not token by token")
_INTERVAL = ("p05", "p50", "p95")


class Words(NamedTuple):
    """What an outcome does not say by itself."""

    name: str
    kind: str
    risk: Risk
    next_experiment: Experiment
    needs: tuple[Need, ...] = ()
    assumptions: tuple[str, ...] = ()
    preparation_s: float | None = 0.0  # before the restart; None: not known
    notes: tuple[str, ...] = ()


def option_of(outcome: Outcome, k: int, words: Words, best_after: NextBest | None = None) -> Option:
    """The option that `outcome` is at draft length `k` (0: without drafts)."""
    situation, value = outcome.situation, outcome.restart_value(k)
    gain, speedup = outcome.traffic_gain(k), outcome.traffic_speedup(k)
    payback, reason = payback_of(value, words.needs)
    ready = outcome_time_s(situation, words.preparation_s)
    return Option(
        name=words.name,
        kind=words.kind,
        method=outcome.study.system.method if k else "none",
        num_speculative_tokens=k,
        changes=with_length(outcome.changes, k),
        by_load=load_gains(outcome, k),
        speedup=ends(quantiles(speedup)),
        gain=ends(quantiles(gain)),
        probability_faster=share_above(gain, 1.0),
        needs=(restart_need(situation), *words.needs),
        time_to_benefit_s=ready,
        payback_s=payback,
        payback_reason=reason,
        risk=words.risk,
        assumptions=words.assumptions,
        next_experiment=words.next_experiment,
        best_after=best_after,
        notes=words.notes,
    )


def payback_of(value: RestartValue, needs: Sequence[Need]) -> tuple[Interval, str | None]:
    """When the restart is paid back; not stated where hardware has to be paid as well."""
    if any(need.kind == "hardware" for need in needs):
        return dict.fromkeys(_INTERVAL, None), "new hardware is not paid back by time: what it costs is not known here"
    return ends(value.payback_s), value.payback_reason


def with_length(changes: Sequence[str], k: int) -> tuple[str, ...]:
    """The overrides with the draft length that the figures are for."""
    return (*changes, f"speculation.num_speculative_tokens={k}") if k else tuple(changes)


def ends(figures: Interval) -> Interval:
    """Median and ends of the 90 % interval of a set of quantiles."""
    return {name: figures[name] for name in _INTERVAL}


def load_gains(outcome: Outcome, k: int) -> tuple[LoadGain, ...]:
    """The gain at each load."""
    columns = [outcome.column(k, load) for load in outcome.scores.loads]
    arm = outcome.point.speculative
    rows = quantile_rows(outcome.speedup[:, columns])
    return tuple(
        LoadGain(
            concurrency=load,
            num_speculative_tokens=k,
            speedup=ends(figures),
            probability_faster=share_above(outcome.speedup[:, column], 1.0),
            tpot_s=float(arm.tpot_s[0, column]),
            throughput_tokens_per_s=float(arm.throughput_tokens_per_s[0, column]),
            limited_by=arm.limited_by[column],
        )
        for load, column, figures in zip(outcome.scores.loads, columns, rows, strict=True)
    )


def restart_need(situation: Situation) -> Need:
    """The restart that every change of a launch takes."""
    restart, down = situation.deployment.restart, restart_outage_s(situation)
    if restart.outage_min is None:
        return Need("restart", "a restart (restart.outage_min is not given)", {"outage_s": down})
    if restart.replicas > 1:
        return Need("restart", f"a rolling restart of {restart.replicas} replicas", {"outage_s": down})
    return Need("restart", f"a restart of {restart.outage_min:g} min", {"outage_s": down})


def restart_outage_s(situation: Situation) -> float | None:
    """Seconds without any service in a restart: none where replicas take turns; None where it is not stated."""
    restart = situation.deployment.restart
    if restart.outage_min is None:
        return None
    return 0.0 if restart.replicas > 1 else restart.outage_min * MINUTE


def restart_experiment(situation: Situation, text: str, command: str | None = None) -> Experiment:
    """An experiment that takes one restart."""
    return Experiment(text, restart_outage_s(situation), command, restarts=1)


def outcome_time_s(situation: Situation, preparation_s: float | None) -> float | None:
    """Seconds from now until the gain begins: preparation and the restart of every replica; None where not known."""
    restart = situation.deployment.restart
    if preparation_s is None or restart.outage_min is None:
        return None
    return preparation_s + restart.outage_min * MINUTE * restart.replicas


def drafter_name(outcome: Outcome) -> str:
    """The head or draft model of an outcome by name; the method where there is neither."""
    spec = outcome.study.deployment.speculation
    published = spec.acceptance.published if spec.acceptance else None
    return published or spec.draft_model or spec.method


def weights_needs(outcome: Outcome) -> tuple[Need, ...]:
    """The weights that an outcome's drafter takes from somewhere: a published head, a draft model."""
    name, method = drafter_name(outcome), outcome.study.system.method
    if name == method or method == "mtp":
        return ()
    return (Need("weights", f"the weights of {name}", {"weights_bytes": None}),)


def one_restart(situation: Situation, outcome: Outcome, k: int) -> Experiment:
    """The experiment that settles a drafter: one restart with it at the lowest load, with the counters read."""
    settings = " ".join(f"--set {shlex.quote(change)}" for change in with_length(outcome.changes, k))
    text = "one restart with it, and `draftcast measure` at the loads in question"
    return restart_experiment(situation, text, f"draftcast predict DEPLOYMENT {settings}")
