"""The `[[measured]]` facts of a deployment as observations, and what the model says of the same quantities."""

import hashlib
import json
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from hwmodel.errors import InputError
from hwmodel.parameters import Parameters
from hwmodel.units import KIB, MB
from simulator.closed_form import Load, PrefillCost, arm, baseline_step, capacity, logged_kv_cache_tokens, prefill_cost
from simulator.deployment.tables import Measured
from simulator.posterior import Observation
from simulator.system import System

Array = NDArray[np.float64]

TIME_NOISE = 0.01  # a mean over some hundred requests on a warm server; relative_noise says otherwise
RUN_REQUESTS = 200  # of a run that is still to be made
RUN_NOISE = 0.02  # of a mean over so many
CURVE_NOISE = 0.03  # of a point of nccl-tests
CURVE_SIZES_BYTES = np.geomspace(4 * KIB, 16 * MB, 13)  # of an nccl-tests run
SHARE_NOISE = 0.03  # of the logit: a profiler's share, about 0.7 points at one half


def usable_facts(system: System) -> list[Measured]:
    """The facts that say something about times."""
    return [fact for fact in system.deployment.measured if observations_of(fact)]


def refuse_share_without_allreduce(system: System) -> None:
    """`InputError` where a share of AllReduce is stated for a single rank."""
    if system.parallel.tensor == 1 and any(fact.allreduce_share for fact in system.deployment.measured):
        raise InputError(
            "measured.allreduce_share: got a share, but tensor_parallel_size 1 has no AllReduce; leave it out"
        )


def fact_sha256(fact: Measured) -> str:
    """What identifies a fact: the hash of what it states."""
    text = json.dumps(fact.to_dict(), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def share_noise(share: float, relative_noise: float | None) -> float:
    """Noise of the logit of a share."""
    return relative_noise / (1.0 - share) if relative_noise else SHARE_NOISE


def observations_of(fact: Measured) -> list[Observation]:
    """The fact on the scales of the fit: logs of times and rates, the logit of a share."""
    noise = fact.relative_noise or TIME_NOISE
    at = f"concurrency {fact.concurrency}"
    found = []
    if fact.tpot_ms:
        found.append(Observation(f"TPOT at {at}", np.log(fact.tpot_ms * 1e-3), noise))
    if fact.step_ms:
        found.append(Observation(f"step at {at}", np.log(fact.step_ms * 1e-3), noise))
    if fact.throughput_tokens_per_s:
        found.append(Observation(f"throughput at {at}", np.log(fact.throughput_tokens_per_s), noise))
    if fact.allreduce_share:
        share = fact.allreduce_share
        spread = share_noise(share, fact.relative_noise)
        found.append(Observation(f"AllReduce share at {at}", np.log(share / (1.0 - share)), spread))
    return found


def facts_predictor(system: System, facts: list[Measured]) -> Callable[[Parameters], Array]:
    """The function from parameters of n draws to the observables of the facts, `(n, num_observables)`."""

    def predict(parameters: Parameters) -> Array:
        return np.concatenate([predicted_fact(system, parameters, fact) for fact in facts], axis=1)

    return predict


def predicted_fact(system: System, p: Parameters, fact: Measured) -> Array:
    """Predictions of one fact's observables, `(num_draws, num_observables)`, in the order of `observations_of`."""
    load = Load.of([fact.concurrency], [capacity(system, 0, logged_kv_cache_tokens(system))])
    sequences = load.sequences(system)
    step = baseline_step(system, p, sequences, float(fact.context_tokens or system.context_tokens))
    alone = fact.concurrency == 1 and not fact.throughput_tokens_per_s  # nobody else's prompt, and its own is not in it
    prefill = PrefillCost(np.zeros((1, 1)), np.zeros(1)) if alone else prefill_cost(system, p, sequences, step.total_s)
    result = arm(system, step, prefill, 1.0, load)
    columns = []
    if fact.tpot_ms:
        columns.append(np.log(result.tpot_s))
    if fact.step_ms:
        columns.append(np.log(step.total_s))
    if fact.throughput_tokens_per_s:
        columns.append(np.log(result.throughput_tokens_per_s))
    if fact.allreduce_share:
        columns.append(allreduce_logit(step.parts_s["allreduce"], step.total_s))
    return np.concatenate(columns, axis=1)


def allreduce_logit(allreduce_s: Array, step_s: Array) -> Array:
    """Log of AllReduce's time over everything else's."""
    inside = np.maximum(allreduce_s, 1e-12)
    return np.asarray(np.log(inside / np.maximum(step_s - inside, 1e-12)))
