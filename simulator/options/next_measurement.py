"""The measurement that is worth most for the choice among drafters: the common next experiment of the options."""

from collections.abc import Sequence

from hwmodel.errors import DraftcastError
from simulator.deployment import Deployment, apply_overrides
from simulator.experiments import Experiments, experiments_between, worthwhile
from simulator.options.record import Experiment, Option
from simulator.options.situation import Situation

_MOST_DRAFTERS = 3
_LENGTH_KEY = "speculation.num_speculative_tokens="


def most_valuable(situation: Situation, options: Sequence[Option]) -> Experiment | None:
    """What to measure before choosing among the best drafters of `options`; None where nothing earns its cost."""
    found = worth_of_measurements(situation, options)
    if found is None:
        return None
    steps = worthwhile(found)
    if not steps:
        return None
    m, missed = steps[0].measurement, found.missed_per_restart_s
    outage = 0.0 if not m.restarts else None if missed is None else m.restarts * missed
    return Experiment(f"{m.text} ({steps[0].sentence})", outage, m.command)


def worth_of_measurements(situation: Situation, options: Sequence[Option]) -> Experiments | None:
    """Every measurement's worth for the choice among the best drafters, one a method, and none; None without any."""
    variants = _variants(situation, options)
    if not variants:
        return None
    try:
        return experiments_between(
            situation.deployment,
            variants,
            num_speculative_tokens=situation.lengths,
            concurrency=situation.loads,
            num_draws=situation.num_draws,
            seed=situation.seed,
        )
    except DraftcastError:
        return None


def _variants(situation: Situation, options: Sequence[Option]) -> list[Deployment]:
    """The deployments with the best drafter of each method, as far as they leave the baseline alone."""
    variants: dict[str, Deployment] = {}
    for option in sorted(options, key=lambda option: -option.value):
        speculation_only = all(change.startswith("speculation.") for change in option.changes)
        if option.kind != "drafter" or not speculation_only or option.method in variants:
            continue
        changes = [change for change in option.changes if not change.startswith(_LENGTH_KEY)]
        variants[option.method] = apply_overrides(situation.deployment, changes)
    return list(variants.values())[:_MOST_DRAFTERS]
