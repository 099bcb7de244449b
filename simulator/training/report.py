"""The answer of `train-cost`: hours here and rented, memory, money, what the head is worth, and what to do."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwmodel.errors import DraftcastError, InputError
from hwmodel.gpus import load_gpu
from simulator.answers import prediction_identity, recorded_inputs
from simulator.closed_form import capacity, memory_plan
from simulator.defaults import DEFAULT_DRAWS
from simulator.deployment import Deployment
from simulator.options.situation import Situation
from simulator.study import Study
from simulator.training import verdict
from simulator.training.facts import Recipe, recipe
from simulator.training.head import METHOD
from simulator.training.sites import NODE_GPUS, RENTED, Node, Site, interval, local_site, rented_sites
from simulator.training.stages import volume
from simulator.training.value import (
    Gain,
    Payback,
    downloadable,
    outage_s,
    rent_payback,
    saved_gpu_hours_per_day,
    service_payback,
    trained_gain,
)

Array = NDArray[np.float64]
JsonObject = dict[str, Any]

NO_PRICE = "no price is given (costs.gpu_hour_price, --price GPU=PRICE)"


class TrainCost(NamedTuple):
    """What training a head costs and is worth; the parts are JSON objects of the command contract."""

    inputs: JsonObject
    data: JsonObject
    head: JsonObject
    hours: JsonObject
    cost: JsonObject
    beside_service: JsonObject
    outage: JsonObject
    gain: JsonObject
    break_even: JsonObject
    verdict: str
    why: tuple[str, ...]
    assumptions: tuple[str, ...]
    notes: tuple[str, ...]
    prediction_id: str

    def to_dict(self) -> JsonObject:
        """The JSON object of `draftcast train-cost --json`."""
        listed = {name: list(getattr(self, name)) for name in ("why", "assumptions", "notes")}
        return {**self._asdict(), **listed}


def train_cost(
    deployment: Deployment,
    *,
    concurrency: tuple[int, ...] | None = None,
    rent: Mapping[str, Node] | None = None,
    prices: Mapping[str, float] | None = None,
    num_draws: int = DEFAULT_DRAWS,
    seed: int = 0,
) -> TrainCost:
    """What an EAGLE-3 head for the deployment costs to train, here and on rented nodes, and when it has paid.

    `rent` are machines by name, default 8 of the GPUs that are usually rented and the deployment's training GPUs;
    `prices` are per GPU and hour, by card name, in `costs.currency`.
    """
    loads = tuple(sorted(set(concurrency or deployment.workload.concurrency)))
    situation = Situation(deployment, loads, num_draws, seed)
    study, costs = situation.today.study, deployment.costs
    if situation.today.capacity.limited_by == "does_not_fit":
        raise InputError(f"the model does not fit: {situation.today.capacity.reason}")
    runs = recipe(costs, float(deployment.workload.output_tokens), num_draws, seed)
    here = local_site(study, runs)
    nodes = dict(rent) if rent else _usual_nodes(deployment)
    rented = dict(rented_sites(deployment, nodes, runs, seed))
    priced = _prices(deployment, prices or {})
    gain, refusal = _trained(situation, runs)
    others = downloadable(situation)
    money = _money(here, rented, priced, costs.currency)
    even = _break_even(situation, gain, here, rented, priced)
    beside = beside_service(study, here)
    settings = {"concurrency": list(loads), "rent": list(nodes), "num_draws": num_draws, "seed": seed}
    inputs = {**recorded_inputs(study, {**settings, "prices": priced}), "deployment": deployment.to_dict()}
    tokens = float(np.median(volume(study, runs).total_tokens))
    found = verdict.Findings(here, rented, gain, refusal, tuple(others), beside, tokens)
    return TrainCost(
        inputs=inputs,
        data=_data(study, runs, here),
        head=_head(here),
        hours={"local": here.to_dict(), "rented": {name: _hours(site) for name, site in rented.items()}},
        cost=money,
        beside_service=beside,
        outage=_outage(situation, here, beside),
        gain={
            "trained": None if gain is None else gain.to_dict(),
            "trained_reason": refusal,
            "download": [other.to_dict() for other in others],
        },
        break_even=even,
        verdict=verdict.sentence(found),
        why=tuple(verdict.reasons(found)),
        assumptions=verdict.assumptions(costs),
        notes=situation.own_notes(study.notes, study.system.notes),
        prediction_id=prediction_identity(inputs),
    )


def _usual_nodes(deployment: Deployment) -> dict[str, Node]:
    """One machine of every kind that is usually rented; the deployment's own training GPUs first."""
    costs = deployment.costs
    if costs.training_gpu and costs.training_gpu not in RENTED:
        load_gpu(costs.training_gpu)  # a card that does not exist is an error, not a machine without hours
    names = list(dict.fromkeys([*([costs.training_gpu] if costs.training_gpu else []), *RENTED]))
    first = costs.training_num_gpus or NODE_GPUS
    return {name: Node(name, first if name == costs.training_gpu else NODE_GPUS) for name in names}


def _prices(deployment: Deployment, prices: Mapping[str, float]) -> dict[str, float]:
    """Prices by card name; the deployment's own price is of its training GPU, else of the serving one."""
    costs = deployment.costs
    own = {} if costs.gpu_hour_price is None else {costs.training_gpu or deployment.hardware.gpu: costs.gpu_hour_price}
    return {**own, **prices}


def _trained(situation: Situation, runs: Recipe) -> tuple[Gain | None, str | None]:
    try:
        return trained_gain(situation, float(np.median(runs.samples))), None
    except DraftcastError as error:
        return None, str(error)


def _data(study: Study, runs: Recipe, here: Site) -> JsonObject:
    data = volume(study, runs)
    traffic = study.deployment.restart.traffic_tokens_per_s
    return {
        "samples": interval(runs.samples),
        "output_tokens": interval(data.output_tokens),
        "total_tokens": interval(data.total_tokens),
        "epochs": interval(runs.epochs),
        "storage_bytes": interval(data.total_tokens * here.head.state_bytes_per_token),
        "collect_from_traffic_s": None if traffic is None else interval(data.output_tokens / traffic),
        "collect_from_traffic_reason": "restart.traffic_tokens_per_s is not given" if traffic is None else None,
    }


def _head(here: Site) -> JsonObject:
    head = here.head
    return {
        "method": METHOD,
        "parameters": head.parameters,
        "weights_bytes": head.weight_bytes,
        "flop_per_token": head.flop_per_token,
        "memory_bytes_per_gpu": head.memory_bytes_per_gpu(here.node.num_gpus),
    }


def _hours(site: Site | str) -> JsonObject:
    return {"total_h": None, "reason": site} if isinstance(site, str) else site.to_dict()


def _money(here: Site, rented: Mapping[str, Site | str], prices: Mapping[str, float], currency: str) -> JsonObject:
    """Cost by site; null where no price is given, with the reason."""
    local = _cost(here, prices)
    elsewhere = {name: None if isinstance(site, str) else _cost(site, prices) for name, site in rented.items()}
    sites = [here, *(site for site in rented.values() if not isinstance(site, str))]
    missing = sorted({site.node.gpu for site in sites} - set(prices))
    reason = f"{NO_PRICE} for {', '.join(missing)}" if missing else None
    return {"currency": currency, "local": local, "rented": elsewhere, "reason": reason}


def _cost(site: Site, prices: Mapping[str, float]) -> dict[str, float | None] | None:
    price = prices.get(site.node.gpu)
    return None if price is None else interval(site.gpu_hours * price)


def beside_service(study: Study, here: Site) -> JsonObject:
    """Whether training fits beside the running service, and what room for cached tokens that would leave."""
    system, plan = study.system, memory_plan(study.system, False, study.kv_cache_tokens)
    needed = here.head.memory_bytes_per_gpu(here.node.num_gpus)
    free = system.gpu.memory_bytes * (1.0 - system.gpu_memory_utilization)
    given_up = max(needed - free, 0.0)
    cache = max(plan.kv_cache_bytes - given_up, 0.0)
    left = cache / plan.kv_bytes_per_token if plan.kv_bytes_per_token > 0 else 0.0
    per_request, now = system.context_tokens, capacity(system, 0, study.kv_cache_tokens).max_running
    return {
        "needed_bytes_per_gpu": needed,
        "free_bytes_per_gpu": free,
        "fits": given_up == 0.0,
        "kv_cache_tokens_left": left * system.parallel.data,
        "concurrency_left": min(int(left // max(per_request, 1.0)) * system.parallel.data, now),
        "concurrency_now": now,
    }


def _outage(situation: Situation, here: Site, beside: JsonObject) -> JsonObject:
    """What is down for how long: everything locally, or the restart alone where the training is elsewhere."""
    stages = here.seconds
    target = stages["regeneration"] + stages["extraction"]
    weights = situation.outcome(("speculation.method=none",)).scores.weights
    traffic, served = situation.deployment.restart.traffic_tokens_per_s, situation.today.throughput(weights)
    spare = None if traffic is None else max(1.0 - traffic / served, 0.0)
    return {
        "local_s": interval(here.total_s + outage_s(situation)),
        "training_stage_only_s": interval(stages["training"] + outage_s(situation)),
        "rented_s": outage_s(situation),
        "beside_service": beside["fits"],
        "in_spare_capacity_s": interval(target / spare) if spare else None,
        "in_spare_capacity_reason": _spare_reason(traffic, spare),
    }


def _spare_reason(traffic: float | None, spare: float | None) -> str | None:
    if traffic is None:
        return "restart.traffic_tokens_per_s is not given"
    return None if spare else "the traffic leaves no spare capacity"


def _break_even(
    situation: Situation,
    gain: Gain | None,
    here: Site,
    rented: Mapping[str, Site | str],
    prices: Mapping[str, float],
) -> JsonObject:
    """When the gain has paid: lost service for local training, money for rented; null with the reason."""
    if gain is None:
        return {"local": None, "rented": {}, "gpu_hours_saved_per_day": None, "reason": "no gain can be computed"}
    weights = situation.outcome(("speculation.method=none",)).scores.weights
    local = service_payback(situation, gain.speedup, here.total_s + outage_s(situation), weights)
    elsewhere = {
        name: _payback(
            Payback(None, site) if isinstance(site, str) else rent_payback(situation, gain.speedup, site, prices)
        )
        for name, site in rented.items()
    }
    return {
        "local": _payback(local),
        "rented": elsewhere,
        "gpu_hours_saved_per_day": interval(saved_gpu_hours_per_day(situation, gain.speedup)),
        "reason": None,
    }


def _payback(payback: Payback) -> JsonObject:
    return {"payback_s": payback.seconds, "reason": payback.reason}
