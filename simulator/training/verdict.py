"""The answer in words: train here, rent, or download, with the numbers that say so."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from hwmodel.percent import percent, probability
from hwmodel.units import GB, HOUR
from simulator.deployment.tables import Costs
from simulator.summary import share_above
from simulator.training.facts import training_facts
from simulator.training.sites import Site
from simulator.training.value import Gain

_MUCH = 2.0  # times the published volume
_ENDS = 1.645  # standard deviations from the median to the ends of a 90 % interval
_DAYS_H = 24.0  # "if it takes days locally, rent": longer than a day
_WORTH_TRAINING = 1.02  # a trained head must beat a download by more than any measurement could confirm


class Findings(NamedTuple):
    """What the verdict is read from."""

    here: Site
    rented: Mapping[str, Site | str]
    trained: Gain | None
    refusal: str | None
    download: tuple[Gain, ...]
    beside: dict[str, Any]
    total_tokens: float = 0.0

    @property
    def local_h(self) -> float:
        """Median hours on the GPUs that serve."""
        return float(np.median(self.here.total_s)) / HOUR

    @property
    def fastest(self) -> tuple[str, Site] | None:
        """The rented machine that is done first."""
        usable = [(name, site) for name, site in self.rented.items() if not isinstance(site, str)]
        return min(usable, key=lambda pair: float(np.median(pair[1].total_s)), default=None)


def sentence(found: Findings) -> str:
    """Whether to train at all, and where, in one or two sentences."""
    if found.trained is None:
        return f"Do not train a head: {found.refusal}"
    best = found.download[0] if found.download else None
    if best is not None and _median(best) >= 1.0 and _median(best) * _WORTH_TRAINING >= _median(found.trained):
        first = f"{_first(best)}: {best.name}"
        return (
            f"{first} is expected at {_shown(best)}, a newly trained head at {_shown(found.trained)}. {_where(found)}"
        )
    if _median(found.trained) <= 1.0:
        return (
            f"Do not train a head for this traffic: it is expected at {_shown(found.trained)},"
            f" P(faster) {probability(share_above(found.trained.speedup, 1.0))}."
        )
    instead = f", {_other(best)} at {_shown(best)}" if best else "; no head of `draftcast list drafters` fits"
    return f"A trained head is expected at {_shown(found.trained)}{instead}. {_where(found)}"


def _first(best: Gain) -> str:
    if best.in_use:
        return "Keep the head that you have"
    return "Use the model's own layers first" if best.built_in else "Download first"


def _other(best: Gain) -> str:
    if best.in_use:
        return "the head that you have"
    return "the model's own layers" if best.built_in else "the best download"


def _where(found: Findings) -> str:
    """The rule "if it takes days locally, rent", with its numbers."""
    hours, gpus = found.local_h, found.here.node
    count = f"{gpus.num_gpus} {gpus.gpu}" if gpus.num_gpus > 1 else gpus.gpu
    here = f"Training takes {in_words(hours)} on the {count} here, the service down"
    if found.fastest is None:
        return f"{here}; no rented machine holds the model."
    name, site = found.fastest
    there = f"{in_words(float(np.median(site.total_s)) / HOUR)} on {site.node.num_gpus} rented {name}"
    if hours > _DAYS_H:
        return f"{here}: that is days, so rent ({there})."
    return f"{here}: less than a day, so it need not be rented ({there})."


def reasons(found: Findings) -> Iterator[str]:
    """What the verdict rests on, most important first."""
    total = float(np.median(found.here.total_s))
    shares = {name: float(np.median(each)) for name, each in found.here.seconds.items()}
    largest = max(shares, key=lambda name: shares[name])
    yield (
        f"Here {largest} takes most of it ({percent(shares[largest] / total)}): "
        + (
            "answers that were logged anyway need not be written again."
            if largest == "regeneration"
            else "it scales with the tokens of prompts and answers."
        )
    )
    yield from _long_texts(found)
    beside = found.beside
    if beside["fits"]:
        yield "The training fits beside the running service in memory; it would still take compute from it."
    else:
        yield (
            f"The training does not fit beside the service: it needs {beside['needed_bytes_per_gpu'] / GB:.0f} GB a GPU"
            f" and {beside['free_bytes_per_gpu'] / GB:.0f} GB are outside gpu_memory_utilization."
            f" {_smaller_cache(beside)}"
        )
    if found.trained is not None:
        yield f"Acceptance: {found.trained.source}."
    for name, site in found.rented.items():
        if isinstance(site, str):
            yield f"{name}: {site}."


def _smaller_cache(beside: Mapping[str, Any]) -> str:
    """What a KV cache that makes room for the training would still hold."""
    left, now = beside["concurrency_left"], beside["concurrency_now"]
    if left == now:
        return f"A smaller KV cache would still hold the {now} requests that run at once."
    return f"With a smaller KV cache {left} requests would run instead of {now}."


def _long_texts(found: Findings) -> Iterator[str]:
    """That no published run used so much text, where that is so."""
    most = max(run["total_tokens"] for run in training_facts()["run"])
    if found.total_tokens > _MUCH * most:
        yield (
            f"{found.total_tokens / GB:.0f} G tokens are {found.total_tokens / most:.0f} times what any published run"
            f" trained on ({most / GB:.0f} G): the workload's texts are long. Fewer or shorter ones may do; state"
            " costs.training_tokens, and the hours shrink with it."
        )


def assumptions(costs: Costs) -> tuple[str, ...]:
    """The priors that stand in for what the deployment does not say, and the recipe."""
    prior, recipe = training_facts()["prior"], training_facts()["recipe"]
    stated = {"samples": costs.training_tokens, "epochs": costs.epochs, "mfu": costs.mfu}
    words = {
        "samples": ("conversations to train on", "costs.training_tokens"),
        "epochs": ("passes over them", "costs.epochs"),
        "mfu": ("share of the BF16 peak reached in training", "costs.mfu"),
        "busy": ("share of the time in which the stages run as computed", None),
    }
    lines = [
        f"{text}: {prior[name]['median']:,}, give or take a factor of {np.exp(_ENDS * prior[name]['log_sd']):.1f}"
        + (f" ({key})" if key else "")
        for name, (text, key) in words.items()
        if stated.get(name) is None
    ]
    lines.append(
        f"{recipe['steps']} training-time steps, {recipe['stored_states']} hidden states stored a token, requests as"
        " long as the workload's; stages run one after the other on all GPUs"
    )
    return tuple(lines)


def _median(gain: Gain) -> float:
    return float(np.median(gain.speedup))


def _shown(gain: Gain) -> str:
    low, high = np.quantile(gain.speedup, [0.05, 0.95])
    return f"{_median(gain):.2f}x ({low:.2f}-{high:.2f}) with k={gain.num_speculative_tokens}"


def in_words(hours: float) -> str:
    """A duration of many hours, or of days.

    >>> in_words(0.4), in_words(31.2), in_words(808.0), in_words(3823.0)
    ('0.4 h', '31 h', '34 days', '159 days')
    """
    if hours > 2 * _DAYS_H:
        return f"{hours / 24:.1f} days" if hours < 10 * _DAYS_H else f"{hours / 24:.0f} days"
    return f"{hours:.0f} h" if hours >= 1 else f"{hours:.1g} h"
