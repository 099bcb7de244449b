"""Training a head: what it would gain, what it takes here and rented, and when it has paid."""

from collections.abc import Iterable, Mapping

import numpy as np

from hwmodel.errors import DraftcastError
from hwmodel.units import HOUR
from simulator.options.build import EXACT, Words, ends, option_of, restart_outage_s
from simulator.options.drafters import acceptance_sentence, memory_needs
from simulator.options.record import Experiment, Need, Option
from simulator.options.situation import Outcome, Situation
from simulator.training.facts import recipe
from simulator.training.sites import NODE_GPUS, RENTED, Node, Site, local_site, rented_site
from simulator.training.value import head_changes, new_head_name, outage_s, rent_payback, service_payback
from simulator.training.verdict import in_words

_HOURS = "training: hours as `draftcast train-cost` has them, which lists its own assumptions"
_UNKNOWN: dict[str, float | None] = {"p05": None, "p50": None, "p95": None}
DAY_S = 24 * HOUR  # "if it takes days locally, rent"
_SHARE = 0.1  # of the data, for a try: acceptance grows slowly with it


def options(situation: Situation, prices: Mapping[str, float]) -> Iterable[Option]:
    """A newly trained EAGLE-3 head, where this engine can run one; none where the model does not fit to train."""
    deployment = situation.deployment
    runs = recipe(deployment.costs, float(deployment.workload.output_tokens), situation.num_draws, situation.seed)
    changes = head_changes(deployment, new_head_name(float(np.median(runs.samples))))
    outcome = situation.possible(changes)
    if not isinstance(outcome, Outcome) or not outcome.scores.allowed[1:].any():
        return
    here = local_site(situation.today.study, runs)
    away = _fastest([_rented(situation, Node(gpu, NODE_GPUS)) for gpu in RENTED])
    local_s = float(np.median(here.total_s))
    rent = away is not None and local_s > DAY_S
    place = away if rent and away is not None else here
    k = outcome.pick.best_enabled
    needs = (*_needs(here, away), *memory_needs(outcome), _money(place, prices, deployment.costs.currency))
    words = Words(
        "train an EAGLE-3 head",
        "training",
        EXACT,
        _try_out(situation, here, rent),
        needs,
        (acceptance_sentence(outcome, "trained head", k), _HOURS),
        float(np.median(place.total_s)),
    )
    gain = outcome.traffic_speedup(k)
    if rent:
        paid = rent_payback(situation, gain, place, prices)
    else:
        paid = service_payback(situation, gain, here.total_s + outage_s(situation), outcome.scores.weights)
    yield option_of(outcome, k, words)._replace(payback_s=ends(paid.seconds or _UNKNOWN), payback_reason=paid.reason)


def _try_out(situation: Situation, here: Site, rent: bool) -> Experiment:
    """A head trained on a part of the data: for money on rented GPUs, else with the service down for so long."""
    text = "keep the answers that the service writes anyway, train on a tenth of them{}, and one restart with that head"
    where = " on rented GPUs" if rent else " here, the service down"
    restart_s = restart_outage_s(situation)
    down_s = restart_s if rent else float(np.median(here.total_s)) * _SHARE + (restart_s or 0.0)
    return Experiment(text.format(where), down_s, "draftcast train-cost DEPLOYMENT", takes_money=rent, restarts=1)


def _rented(situation: Situation, node: Node) -> Site | None:
    costs, output = situation.deployment.costs, float(situation.deployment.workload.output_tokens)
    runs = recipe(costs, output, situation.num_draws, situation.seed)
    try:
        return rented_site(situation.deployment, node, runs, situation.seed)
    except DraftcastError:
        return None


def _fastest(sites: Iterable[Site | None]) -> Site | None:
    usable = [site for site in sites if site is not None]
    return min(usable, key=lambda site: float(np.median(site.total_s)), default=None)


def _needs(here: Site, away: Site | None) -> Iterable[Need]:
    hours = float(np.median(here.total_s)) / HOUR
    count = here.node.num_gpus
    text = f"{in_words(hours)} on the {'GPU' if count == 1 else f'{count} GPUs'} here, the service down"
    amounts: dict[str, float | None] = {"local_h": hours, "local_gpu_hours": float(np.median(here.gpu_hours))}
    if away is not None:
        elsewhere = float(np.median(away.total_s)) / HOUR
        text += f", or {in_words(elsewhere)} on {away.node.num_gpus} rented {away.node.gpu}"
        amounts |= {"rented_h": elsewhere, "rented_gpu_hours": float(np.median(away.gpu_hours))}
    yield Need("training", text, amounts)


def _money(place: Site, prices: Mapping[str, float], currency: str) -> Need:
    price = prices.get(place.node.gpu)
    if price is None:
        return Need("money", f"the price of {place.node.gpu} is not given", {"cost": None})
    cost = float(np.median(place.gpu_hours)) * price
    return Need("money", f"{cost:,.0f} {currency} for {place.node.gpu}", {"cost": cost})
