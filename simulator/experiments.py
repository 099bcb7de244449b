"""What to measure next: every possible measurement with its expected regret saved, its minutes, and its outage."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hwmodel.errors import InputError
from hwmodel.percent import percent
from hwmodel.records import dataclass
from hwmodel.units import MINUTE
from simulator.answers import collected_notes, does_not_fit, prediction_identity, recorded_inputs
from simulator.comparison import Comparison, compare_lengths
from simulator.decision import missed_per_restart_s
from simulator.defaults import DEFAULT_DRAWS, HORIZON_DAYS
from simulator.deployment import Deployment, with_method
from simulator.information import Decision, Worth
from simulator.measurements import Measurement, measurements
from simulator.results import JsonObject
from simulator.summary import finite, median

Array = NDArray[np.float64]

_DAY_MIN = 24 * 60.0
_MOST_METHODS = 6
_ONE_PERCENT = 0.01
_ERRORS = 2.0  # standard errors by which a worth must stand out
_FAIR_SHARE = 0.2  # of the regret that the best measurement takes off
_OFF = ("none", 0)


@dataclass(frozen=True)
class Experiment:
    """A measurement, its worth, and the restarts that it and the choice after it take on average."""

    measurement: Measurement
    worth: Worth
    regret_before: float
    expected_restarts: float
    net_value_min: float | None

    @property
    def regret_after(self) -> float:
        """Expected regret of the choice made with its result."""
        return max(self.regret_before - self.worth.evsi, 0.0)

    @property
    def sentence(self) -> str:
        """The experiment in one line."""
        m = self.measurement
        outage = "no outage" if m.restarts == 0 else f"{m.restarts} restart{'s' if m.restarts > 1 else ''}"
        return (
            f"{m.name}: {m.minutes:.0f} min, {outage}, lowers expected regret from {small_share(self.regret_before)} to"
            f" {small_share(self.regret_after)}"
        )


@dataclass(frozen=True)
class Experiments:
    """All experiments, the best first, with the decision that they are for."""

    inputs: JsonObject
    choices: tuple[tuple[str, int], ...]  # (method, k); ("none", 0) is to leave speculation off
    decision: Decision
    experiments: tuple[Experiment, ...]
    horizon_days: float
    missed_per_restart_s: float | None
    notes: tuple[str, ...]
    unfit: str = ""  # said first where the deployment does not fit as it runs today

    @property
    def choice(self) -> tuple[str, int]:
        """What to choose knowing nothing more."""
        return self.choices[self.decision.choice]

    def to_dict(self) -> JsonObject:
        """The JSON object of `draftcast experiments --json`."""
        means = self.decision.utilities.mean(axis=0)
        medians = median(self.decision.utilities)
        stated = self.missed_per_restart_s is not None
        return {
            "inputs": self.inputs,
            "choice_now": {"method": self.choice[0], "num_speculative_tokens": self.choice[1]},
            "choices": [
                {
                    "method": method,
                    "num_speculative_tokens": k,
                    "expected_gain": float(means[i]),
                    "median_gain": float(medians[i]),
                }
                for i, (method, k) in enumerate(self.choices)
            ],
            "evpi": self.decision.evpi,
            "evpi_standard_error": self.decision.evpi_standard_error,
            "horizon_days": self.horizon_days,
            "missed_per_restart_s": self.missed_per_restart_s,
            "net_value_reason": None if stated else "restart.outage_min is not given",
            "experiments": [_experiment_json(self, experiment) for experiment in self.experiments],
            "recommendation": self.unfit + recommendation(self),
            "notes": list(self.notes),
            "prediction_id": prediction_identity(self.inputs),
        }


def _experiment_json(found: Experiments, experiment: Experiment) -> JsonObject:
    m = experiment.measurement
    missed = found.missed_per_restart_s
    return {
        "name": m.name,
        "text": m.text,
        "command": m.command,
        "duration_s": m.minutes * MINUTE,
        "restarts": m.restarts,
        "outage_s": None if missed is None and m.restarts else m.restarts * (missed or 0.0),
        "evsi": experiment.worth.evsi,
        "evsi_standard_error": experiment.worth.standard_error,
        "regret_before": experiment.regret_before,
        "regret_after": experiment.regret_after,
        "probability_changes_choice": experiment.worth.changes(found.decision.choice),
        "expected_restarts": experiment.expected_restarts,
        "net_value_s": None if experiment.net_value_min is None else finite(experiment.net_value_min * MINUTE),
        "sentence": experiment.sentence,
    }


def experiments(  # noqa: PLR0913 - the public question in its own words
    deployment: Deployment,
    *,
    methods: Sequence[str] = (),
    num_speculative_tokens: Sequence[int] | None = None,
    concurrency: Sequence[int] | None = None,
    horizon_days: float = HORIZON_DAYS,
    num_draws: int = DEFAULT_DRAWS,
    seed: int = 0,
) -> Experiments:
    """What each possible measurement is worth for the choice of draft length, and of method where several are given."""
    variants, notes = _variants(deployment, methods)
    found = experiments_between(
        deployment,
        variants,
        num_speculative_tokens=num_speculative_tokens,
        concurrency=concurrency,
        horizon_days=horizon_days,
        num_draws=num_draws,
        seed=seed,
    )
    return replace(found, notes=tuple(dict.fromkeys((*notes, *found.notes))))


def experiments_between(  # noqa: PLR0913 - the public question in its own words
    deployment: Deployment,
    variants: Sequence[Deployment],
    *,
    num_speculative_tokens: Sequence[int] | None = None,
    concurrency: Sequence[int] | None = None,
    horizon_days: float = HORIZON_DAYS,
    num_draws: int = DEFAULT_DRAWS,
    seed: int = 0,
) -> Experiments:
    """The same among `variants` of one baseline, each with its drafter; `deployment` states the restart."""
    if not 0.0 < horizon_days <= 3650.0:
        raise InputError(f"horizon_days: got {horizon_days:g}, allowed above 0 to 3650")
    asked = [compare_lengths(d, num_speculative_tokens, concurrency, num_draws=num_draws, seed=seed) for d in variants]
    choices, utilities = _utilities(asked)
    decision = Decision(utilities)
    tested = [_tested(comparison) for comparison in asked]
    base = asked[0].baseline.throughput_tokens_per_s
    served = float(median(base) @ asked[0].scores.weights)
    missed_s = missed_per_restart_s(deployment, served)
    horizon_min = horizon_days * _DAY_MIN
    found = [_experiment(m, decision, choices, (horizon_min, missed_s, seed)) for m in measurements(asked, tested)]
    found.sort(
        key=lambda e: (
            -(e.worth.evsi * horizon_min if e.net_value_min is None else e.net_value_min),
            e.measurement.name,
        )
    )
    settings: JsonObject = {
        "methods": [c.study.system.method for c in asked],
        "num_speculative_tokens": list(asked[0].lengths),
        "concurrency": list(asked[0].loads),
        "horizon_days": horizon_days,
        "num_draws": num_draws,
        "seed": seed,
    }
    study = asked[0].study
    return Experiments(
        inputs=recorded_inputs(study, settings),
        choices=choices,
        decision=decision,
        experiments=tuple(found),
        horizon_days=horizon_days,
        missed_per_restart_s=missed_s,
        notes=collected_notes(study, tested[0], ()),
        unfit=does_not_fit(study),
    )


def _variants(deployment: Deployment, methods: Sequence[str]) -> tuple[list[Deployment], tuple[str, ...]]:
    """The deployment with each method, its own first, and notes on what was left out for the others."""
    own = deployment.speculation.method
    named = list(dict.fromkeys(([own] if own != "none" else []) + list(methods)))
    if not named:
        raise InputError("speculation.method: got none, but there is a choice only for a method, e.g. --methods eagle3")
    if len(named) > _MOST_METHODS:
        raise InputError(f"methods: got {len(named)}, allowed at most {_MOST_METHODS}")
    variants: list[Deployment] = []
    notes: list[str] = []
    for method in named:
        changed, more = (deployment, ()) if method == own else with_method(deployment, method)
        variants.append(changed)
        notes += more
    return variants, tuple(notes)


def _utilities(asked: Sequence[Comparison]) -> tuple[tuple[tuple[str, int], ...], Array]:
    """The choices and their gains over the traffic by draw: off once, then every allowed length of each method."""
    choices: list[tuple[str, int]] = [_OFF]
    columns = [np.ones(asked[0].shape[0])]
    for comparison in asked:
        overall = comparison.scores.overall
        for i, k in enumerate(comparison.lengths):
            if k and comparison.scores.allowed[i].all():
                choices.append((comparison.study.system.method, k))
                columns.append(overall[:, i])
    return tuple(choices), np.stack(columns, axis=1)


def _tested(comparison: Comparison) -> int:
    """The draft length that a test run would use: the best of those that draft."""
    means = comparison.scores.overall.mean(axis=0)
    drafting = [i for i, k in enumerate(comparison.lengths) if k]
    usable = [i for i in drafting if comparison.scores.allowed[i].all()] or drafting
    return comparison.lengths[max(usable, key=lambda i: (float(means[i]), -i))]


def _experiment(
    measurement: Measurement,
    decision: Decision,
    choices: Sequence[tuple[str, int]],
    settings: tuple[float, float | None, int],
) -> Experiment:
    """The experiment's worth; `settings` are the horizon in minutes, seconds missed in a restart, and the seed."""
    horizon_min, missed_s, seed = settings
    worth = decision.worth(measurement.signal, seed)
    state = measurement.leaves or _OFF
    stays = choices.index(state) if state in choices else -1
    expected = measurement.restarts + worth.changes(stays)
    now = 1.0 if decision.choice else 0.0  # deciding at once
    net = None
    if missed_s is not None:
        net = worth.evsi * horizon_min - (expected - now) * missed_s / MINUTE
    return Experiment(measurement, worth, decision.evpi, expected, net)


def worthwhile(found: Experiments) -> list[Experiment]:
    """The experiments that are expected to earn their cost, in the order in which to make them.

    What needs no restart and takes off a fair share of the regret comes first: it may save the restart.
    """
    surely = [e for e in found.experiments if e.worth.evsi > _ERRORS * e.worth.standard_error]
    if found.missed_per_restart_s is not None:
        surely = [e for e in surely if (e.net_value_min or 0.0) > 0.0]
    most = max((e.worth.evsi for e in surely), default=0.0)
    first = [e for e in surely if not e.measurement.restarts and e.worth.evsi >= _FAIR_SHARE * most]
    return [*first, *(e for e in surely if e not in first)]


def recommendation(found: Experiments) -> str:
    """What to measure next, or that deciding now is as good."""
    method, k = found.choice
    now = "leave speculation off" if not k else f"{method} with k={k}"
    regret = found.decision.evpi
    start = f"Deciding now ({now}) is expected to forgo {small_share(regret)} of the baseline's throughput."
    steps = worthwhile(found)
    if not steps:
        return f"{start} No measurement here is expected to earn its cost: decide now."
    text = f"{start} Next: {steps[0].measurement.text}. {_capital(steps[0].sentence)}."
    best = max(steps, key=lambda e: e.worth.evsi)
    if best is not steps[0]:
        text += f" If that leaves it open: {best.sentence}."
    return text


def small_share(value: float) -> str:
    """A small share: one decimal, two below one percent.

    >>> small_share(0.0213), small_share(0.0042)
    ('2.1 %', '0.42 %')
    """
    return percent(value, 1 if value >= _ONE_PERCENT else 2)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
