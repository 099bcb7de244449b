"""All options of one deployment, ordered by value, with the recommendation and the cheapest next experiment."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from hwmodel.errors import InputError
from hwmodel.percent import percent, probability
from simulator.acceptance_replay import read_replay
from simulator.answers import checked_concurrency, prediction_identity, recorded_inputs
from simulator.deployment import Deployment
from simulator.deployment.keys import short
from simulator.deployment.speculation import LOOKUP_METHODS
from simulator.deployment.tables import Objective
from simulator.options import budgets, drafters, engine, lengths, machine, training
from simulator.options.moves import drafters_today
from simulator.options.next_measurement import most_valuable
from simulator.options.record import Experiment, JsonObject, NextBest, Option
from simulator.options.situation import Situation

DEFAULT_DRAWS = 1000
_BEYOND_A_RESTART = {"hardware", "training", "money", "tuning"}
_NOT_THE_SAME = {"unknown", "lossy"}
_NOTHING_FITS = "Nothing that a restart reaches makes it fit and surely faster"
_GAIN_OF = {"throughput": "", "tpot": " the speed of a user's stream", "goodput": " the goodput"}
_WORTH = 1.01  # a median gain below it is nothing that a measurement would confirm


class Recommendation(NamedTuple):
    """What to do first: the best option that a restart alone reaches, if it is sure enough; and the best of all."""

    text: str
    option: str | None
    method: str
    num_speculative_tokens: int
    changes: tuple[str, ...]
    beyond: str | None  # the best option that takes more than a restart, where it is better

    def to_dict(self) -> JsonObject:
        """The recommendation as JSON."""
        return {**self._asdict(), "changes": list(self.changes)}


class Comparison(NamedTuple):
    """The options of a deployment, best first."""

    inputs: JsonObject
    options: tuple[Option, ...]
    recommendation: Recommendation
    next_experiment: Experiment | None
    most_valuable_experiment: Experiment | None
    today: JsonObject
    assumptions: tuple[str, ...]
    notes: tuple[str, ...]
    prediction_id: str

    def to_dict(self) -> JsonObject:
        """The JSON object of `draftcast options --json`."""
        return {
            "inputs": self.inputs,
            "options": [option.to_dict() for option in self.options],
            "recommendation": self.recommendation.to_dict(),
            "next_experiment": None if self.next_experiment is None else self.next_experiment._asdict(),
            "most_valuable_experiment": (
                None if self.most_valuable_experiment is None else self.most_valuable_experiment._asdict()
            ),
            "today": self.today,
            "assumptions": list(self.assumptions),
            "notes": list(self.notes),
            "prediction_id": self.prediction_id,
        }


def compare_options(
    deployment: Deployment,
    *,
    concurrency: Sequence[int] | None = None,
    replays: Sequence[str] = (),
    prices: Mapping[str, float] | None = None,
    num_draws: int = DEFAULT_DRAWS,
    seed: int = 0,
) -> Comparison:
    """All ways to faster decoding for the deployment, each against today's baseline without speculation.

    `replays` are files that `draftcast replay -o` wrote: measured acceptance of text lookup. `prices` are per GPU and
    hour, by card name.
    """
    asked = deployment.workload.concurrency if concurrency is None else concurrency
    loads = tuple(sorted({checked_concurrency(load) for load in asked}))
    if not loads:
        raise InputError("concurrency: got an empty list, allowed 1 to 100000")
    situation = Situation(deployment, loads, num_draws, seed, replays=_replays(deployment, replays))
    candidates = list(drafters.candidates(situation))
    drafting = drafters.usable_options(situation, candidates)
    today = drafters_today([changes for changes, _ in candidates], drafting)
    found: Iterable[Option] = (
        *drafting.values(),
        *_on_top(situation, list(drafting.values())),
        *engine.options(situation, today),
        *machine.options(situation, today),
        *training.options(situation, _prices(deployment, prices or {})),
    )
    options = tuple(sorted(found, key=lambda option: -option.value))
    settings = {"concurrency": list(loads), "replays": list(replays), "num_draws": num_draws, "seed": seed}
    study, fits = situation.today.study, situation.today.capacity.limited_by != "does_not_fit"
    inputs = {**recorded_inputs(study, settings), "deployment": deployment.to_dict()}
    return Comparison(
        inputs=inputs,
        options=options,
        recommendation=_with_fit(situation, _recommended(options, deployment.objective, fits)),
        next_experiment=cheapest(options),
        most_valuable_experiment=most_valuable(situation, list(drafting.values())),
        today=_today(situation),
        assumptions=tuple(dict.fromkeys(text for option in options for text in option.assumptions)),
        notes=situation.own_notes(study.notes, study.system.notes),
        prediction_id=prediction_identity(inputs),
    )


def _with_fit(situation: Situation, said: Recommendation) -> Recommendation:
    """The recommendation, after what is wrong with the deployment as it stands."""
    reason = situation.today.capacity.reason
    if situation.today.capacity.limited_by != "does_not_fit":
        return said
    return said._replace(text=f"It does not fit as it stands: {reason}; gains are over what it would do. {said.text}")


def _on_top(situation: Situation, drafting: Sequence[Option]) -> tuple[Option, ...]:
    """What can be done on top of the best drafter: its length decided at run time, and a budget of experts."""
    if not drafting or situation.deployment.objective.maximise == "goodput":
        return ()  # both are known by throughput, which does not tell what keeps the limits
    best = max(drafting, key=lambda option: option.value)
    return (*lengths.options(situation, best), *budgets.options(situation, best))


def _replays(deployment: Deployment, paths: Sequence[str]) -> dict[str, str]:
    """Replay files by the method that they replayed; a file that does not say is of the deployment's own method."""
    found: dict[str, str] = {}
    for path in paths:
        replayed = read_replay(path, None).replayed
        method = (replayed.method if replayed else None) or deployment.speculation.method
        if method not in LOOKUP_METHODS:
            raise InputError(
                f"--acceptance: '{short(path)}' is of {short(method)}, allowed: a replay of {', '.join(LOOKUP_METHODS)}"
            )
        found[method] = path
    return found


def _prices(deployment: Deployment, prices: Mapping[str, float]) -> dict[str, float]:
    costs = deployment.costs
    own = {} if costs.gpu_hour_price is None else {costs.training_gpu or deployment.hardware.gpu: costs.gpu_hour_price}
    return {**own, **prices}


def _today(situation: Situation) -> JsonObject:
    point, cap = situation.today.point.baseline, situation.today.capacity
    return {
        "loads": [
            {
                "concurrency": load,
                "throughput_tokens_per_s": float(point.throughput_tokens_per_s[0, i]),
                "tpot_s": float(point.tpot_s[0, i]),
                "limited_by": point.limited_by[i],
            }
            for i, load in enumerate(situation.loads)
        ],
        "fits": cap.limited_by != "does_not_fit",
        "does_not_fit_reason": cap.reason or None,
    }


def takes_more_than_a_restart(option: Option) -> bool:
    """Whether an option needs hardware, training, money or tuning, or changes what the users get."""
    return option.risk.level in _NOT_THE_SAME or any(need.kind in _BEYOND_A_RESTART for need in option.needs)


def _recommended(options: Sequence[Option], objective: Objective, fits: bool) -> Recommendation:
    return recommend(options, objective.min_probability_faster, fits=fits, of=_GAIN_OF[objective.maximise])


def recommend(options: Sequence[Option], min_probability: float, *, fits: bool = True, of: str = "") -> Recommendation:
    """The best option that a restart reaches and that is sure enough, in a sentence.

    `fits`: today's runs at all; `of` is what the gains are of, where that is not throughput.
    """
    reach = [option for option in options if not takes_more_than_a_restart(option)]
    sure = [pair for option in reach if (pair := _sure(option, min_probability))]
    first = max(sure, key=lambda pair: pair[1].gain["p50"] or 0.0, default=None)
    beyond = next((option for option in options if takes_more_than_a_restart(option) and _worth(option)), None)
    if beyond is not None and first is not None and beyond.value <= (first[1].gain["p50"] or 0.0) * _WORTH:
        beyond = None
    tail = f" Beyond a restart: {_named(beyond, beyond.best, of)}." if beyond is not None else ""
    if beyond is not None and beyond.risk.level in _NOT_THE_SAME:
        tail = f"{tail[:-1]}; its output differs."
    name = beyond.name if beyond else None
    if first is None:
        text = _nothing(reach, min_probability, of) if fits else _NOTHING_FITS
        return Recommendation(f"{text}.{tail}", None, "none", 0, (), name)
    option, best = first
    odds = f"P(faster) {probability(best.probability_faster)}"
    text = f"Best step that a restart reaches: {_named(option, best, of)}, {odds}.{tail}"
    return Recommendation(text, option.name, best.method, best.num_speculative_tokens, best.changes, name)


def _sure(option: Option, min_probability: float) -> tuple[Option, Option | NextBest] | None:
    """The option with the figures that are sure enough and worth it: with the best drafter, else alone; None."""
    for figures in (option.best, option):
        if (figures.gain["p50"] or 0.0) > _WORTH and figures.probability_faster >= min_probability:
            return option, figures
    return None


def _nothing(reach: Sequence[Option], min_probability: float, of: str) -> str:
    """The sentence where nothing that a restart reaches is sure enough, with what comes nearest."""
    text = "Keep it as it is: no option that a restart reaches is faster"
    nearest = next((option for option in reach if _worth(option)), None)
    if nearest is None:
        return text
    named, odds = _named(nearest, nearest.best, of), probability(nearest.best.probability_faster)
    return f"{text} with {percent(min_probability)}; the nearest is {named}, P(faster) {odds}"


def _worth(option: Option) -> bool:
    return option.value > _WORTH


def _named(option: Option, figures: Option | NextBest, of: str) -> str:
    """An option with the drafter and the draft length of `figures`, and their gain `of` the objective."""
    what = f"{option.name} with {figures.drafter}" if isinstance(figures, NextBest) else option.name
    length = f", k={figures.num_speculative_tokens}" if figures.num_speculative_tokens else ""
    gain = figures.gain
    return f"{what}{length}: {gain['p50'] or 0:.2f}x{of} ({gain['p05'] or 0:.2f}-{gain['p95'] or 0:.2f})"


def cheapest(options: Sequence[Option]) -> Experiment | None:
    """The experiment that takes least, money and then outage, of those about options that may still be the best.

    Those are the options whose interval reaches above the lower end of the best one's that a restart reaches.
    """
    reach = [option for option in options if not takes_more_than_a_restart(option)]
    bar = max([1.0, *(option.best.gain["p05"] or 0.0 for option in reach)])
    open_ones = [option for option in options if (option.best.gain["p95"] or 0.0) > bar and _worth(option)]
    ordered = sorted(open_ones, key=lambda option: _price(option.next_experiment))
    return ordered[0].next_experiment if ordered else None


def _price(experiment: Experiment) -> tuple[bool, bool, float, int]:
    return experiment.takes_money, experiment.outage_s is None, experiment.outage_s or 0.0, experiment.restarts
