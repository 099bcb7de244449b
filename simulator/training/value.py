"""What a head is worth: its gain over the traffic, the best head that can be downloaded instead, and the payback."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwmodel.errors import InputError
from hwmodel.percent import probability
from hwmodel.units import HOUR, MINUTE
from simulator.closed_form import capacity
from simulator.decision import payback_rate, relative_traffic
from simulator.deployment import Deployment
from simulator.deployment.speculation import LOOKUP_METHODS
from simulator.options.drafters import as_chain
from simulator.options.situation import Outcome, Situation, refusals
from simulator.published_drafters import drafters_for
from simulator.summary import quantiles, share_above
from simulator.training.head import METHOD
from simulator.training.sites import Site, interval

Array = NDArray[np.float64]

_MAX_ALTERNATIVES = 4


class Gain(NamedTuple):
    """A head in service: best draft length and draws of the throughput gain over the traffic, `(num_draws,)`."""

    name: str
    num_speculative_tokens: int
    speedup: Array
    changes: tuple[str, ...]
    source: str
    in_use: bool = False  # the head that the deployment drafts with already
    built_in: bool = False  # MTP layers that the checkpoint brings: nothing to download

    def to_dict(self) -> dict[str, Any]:
        """The gain as JSON."""
        return {
            "name": self.name,
            "num_speculative_tokens": self.num_speculative_tokens,
            "speedup": interval(self.speedup),
            "probability_faster": share_above(self.speedup, 1.0),
            "changes": list(self.changes),
            "source": self.source,
        }


def gain_of(name: str, outcome: Outcome) -> Gain:
    """The gain of an outcome at its best draft length."""
    k = outcome.pick.best_enabled
    return Gain(name, k, outcome.traffic_speedup(k), outcome.changes, outcome.study.acceptance.source)


def head_changes(deployment: Deployment, published: str, method: str = METHOD) -> tuple[str, ...]:
    """Overrides of a head with the acceptance of that name, as a chain."""
    return f"speculation.method={method}", f"speculation.acceptance.published={published}", *as_chain(deployment)


def new_head_name(samples: float) -> str:
    """The acceptance of a head trained on so many samples: three digits, since the next ones are of the draws.

    >>> new_head_name(500_002.1)
    'new-head-500000'
    """
    return f"new-head-{max(round(float(f'{samples:.3g}')), 1)}"


def trained_gain(situation: Situation, samples: float) -> Gain:
    """The gain of a head trained on so many samples; InputError where this deployment cannot run one."""
    outcome = situation.outcome(head_changes(situation.deployment, new_head_name(samples)))
    if not outcome.scores.allowed[1:].any():
        raise InputError(refusal_of(outcome))
    return gain_of("trained head", outcome)


def refusal_of(outcome: Outcome) -> str:
    """Why no draft length of an outcome can run, in one line."""
    k = outcome.scores.lengths[-1]
    held = capacity(outcome.study.system, k, outcome.study.kv_cache_tokens)
    return "; ".join(refusals(outcome.study, k)) or held.reason or "the engine would not start with it"


def downloadable(situation: Situation) -> list[Gain]:
    """The gains of heads that need no training, best first: the one in the file, and published ones that fit."""
    shape = situation.today.study.system.shape
    found = [*_own_head(situation)]
    layers_told = any(gain.in_use and gain.name.startswith("mtp") for gain in found)  # by the file itself
    found += [] if layers_told else _own_layers(situation)
    for drafter, relation in drafters_for(shape):
        if drafter.weights and drafter.method != "mtp":
            outcome = situation.possible(head_changes(situation.deployment, drafter.name, drafter.method))
            if isinstance(outcome, Outcome) and outcome.scores.allowed[1:].any():
                name = drafter.name if relation == "own" else f"{drafter.name} (trained for {drafter.target})"
                found.append(gain_of(name, outcome))
    return sorted(found, key=lambda gain: -float(np.median(gain.speedup)))[:_MAX_ALTERNATIVES]


def _own_layers(situation: Situation) -> Iterator[Gain]:
    """The MTP layers of the checkpoint, with published figures where there are any, else with the prior."""
    shape = situation.today.study.system.shape
    if not shape.mtp_layers:
        return
    known = [each.name for each, relation in drafters_for(shape, ("mtp",)) if relation == "own" and each.is_built_in]
    chain = as_chain(situation.deployment)
    changes = head_changes(situation.deployment, known[0], "mtp") if known else ("speculation.method=mtp", *chain)
    outcome = situation.possible(changes)
    if isinstance(outcome, Outcome) and outcome.scores.allowed[1:].any():
        yield gain_of(known[0] if known else "own MTP layers", outcome)._replace(built_in=True)


def _own_head(situation: Situation) -> Iterator[Gain]:
    """The head that the deployment drafts with already, where the file says how much of its drafts is accepted."""
    spec = situation.deployment.speculation
    published = spec.acceptance is not None and spec.acceptance.published is not None
    if spec.acceptance is None or published or spec.method in (*LOOKUP_METHODS, "none", "draft_model"):
        return
    outcome = situation.possible((f"speculation.method={spec.method}",))
    if isinstance(outcome, Outcome) and outcome.scores.allowed[1:].any():
        yield gain_of(f"{spec.method}, as in the file", outcome)._replace(in_use=True)


class Payback(NamedTuple):
    """When a cost has been paid back; seconds of service, or None with the reason."""

    seconds: dict[str, float | None] | None
    reason: str | None


def service_payback(situation: Situation, gain: Array, down_s: Array, weights: Array) -> Payback:
    """Service time after which the gain has returned `down_s` of lost service (docs/options.md, eq. T6)."""
    load = relative_traffic(situation.deployment, situation.today.throughput(weights))
    return _paid(down_s, payback_rate(gain, load))


def money_payback(gain: Array, cost: Array, serving_price_per_s: float) -> Payback:
    """Service time after which the saved GPU-hours, a share 1 - 1 / S of those in service, are worth `cost`."""
    return _paid(cost / serving_price_per_s, 1.0 - 1.0 / np.maximum(gain, 1e-12))


def rent_payback(situation: Situation, gain: Array, site: Site, prices: Mapping[str, float]) -> Payback:
    """Service time after which the rent of `site` is earned; no time without the price of both machines."""
    serving, price = prices.get(situation.deployment.hardware.gpu), prices.get(site.node.gpu)
    if not serving or price is None:
        return Payback(None, "needs the price of both the rented and the serving GPUs")
    return money_payback(gain, site.gpu_hours * price, serving * situation.deployment.num_gpus_used / HOUR)


def _paid(owed_s: Array, rate: Array) -> Payback:
    draws = np.where(rate > 0.0, owed_s / np.maximum(rate, 1e-12), np.inf)
    figures = quantiles(draws)
    never = float(np.mean(rate <= 0.0))
    reason = None
    if figures["p50"] is None:
        reason = "no gain is expected, so it is never paid back"
    elif figures["p95"] is None:
        reason = f"never paid back where it turns out slower (probability {probability(never)})"
    return Payback({name: figures[name] for name in ("p05", "p50", "p95")}, reason)


def outage_s(situation: Situation) -> float:
    """Outage of the restart that switches a head on; 0 where the deployment does not state it."""
    return (situation.deployment.restart.outage_min or 0.0) * MINUTE


def saved_gpu_hours_per_day(situation: Situation, gain: Array) -> Array:
    """GPU-hours that a day of the same traffic needs less, `(num_draws,)`: N (1 - 1 / S) 24 h."""
    return np.asarray(situation.deployment.num_gpus_used * (1.0 - 1.0 / np.maximum(gain, 1e-12)) * (24 * HOUR) / HOUR)
