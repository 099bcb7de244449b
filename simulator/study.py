"""One deployment, ready to be asked: system, acceptance, priors narrowed by the measured facts, draws.

`Study.grid` is the only way from here to figures: the same draws serve every cell, so cells can be compared.
"""

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hwmodel.errors import InputError
from hwmodel.parameters import Parameters
from hwmodel.records import dataclass
from simulator.acceptance import AcceptanceDraws, acceptance_draws
from simulator.closed_form import (
    Cell,
    Grid,
    Load,
    PrefillCost,
    acceptance_arrays,
    arm,
    baseline_step,
    capacity,
    evaluate,
    logged_kv_cache_tokens,
    prefill_cost,
)
from simulator.deployment import Deployment
from simulator.deployment.tables import Measured
from simulator.parameters import standard_draws
from simulator.posterior import Observation, Posterior, condition
from simulator.system import System, build_system

Array = NDArray[np.float64]

DEFAULT_DRAWS = 2000
_KEPT_BYTES = 32 * 10**6  # below glibc's own bound of 32 MiB
_TIME_NOISE = 0.01  # a mean over some hundred requests on a warm server; relative_noise says otherwise
_ROUTING = frozenset({"popularity_sigma", "stickiness", "routing_memory"})
_SHARE_NOISE = 0.03  # of the logit: a profiler's share, about 0.7 points at one half


@dataclass(frozen=True)
class Study:
    """A deployment with its uncertainty; `z` are conditioned parameter coordinates `(num_draws, num_parameters)`."""

    system: System
    acceptance: AcceptanceDraws
    posterior: Posterior
    z: Array
    model_error_z: Array  # (num_draws, 1) standard normal: one error a draw, shared by all cells
    notes: tuple[str, ...] = ()

    @property
    def deployment(self) -> Deployment:
        """The deployment in question."""
        return self.system.deployment

    @cached_property
    def parameters(self) -> Parameters:
        """The drawn parameters."""
        return self.system.priors.parameters(self.z)

    @cached_property
    def point_parameters(self) -> Parameters:
        """The parameters at the posterior median."""
        return self.system.priors.parameters(self.posterior.mode[None, :])

    @cached_property
    def kv_cache_tokens(self) -> float | None:
        """The KV cache size that the baseline's engine logged, if told."""
        return logged_kv_cache_tokens(self.system) if self.deployment.measured_on is self.deployment else None

    def grid(self, cells: Sequence[Cell], *, point: bool) -> Grid:
        """Both arms over the cells: at the posterior median (`point`) or for every draw."""
        survival, probability = acceptance_arrays(self.acceptance, point=point)
        parameters = self.point_parameters if point else self.parameters
        return evaluate(self.system, parameters, cells, survival, probability, self.kv_cache_tokens)

    def speedup_draws(self, cells: Sequence[Cell]) -> Array:
        """Speedup of every cell with model error, `(num_draws, num_cells)`; exactly 1 where nothing is drafted."""
        return self.with_model_error(self.grid(cells, point=False))

    @cached_property
    def model_error_factor(self) -> Array:
        """What the model itself may be off by, `(num_draws, 1)`: one factor a draw, shared by all cells."""
        return np.asarray(np.exp(self.parameters.model_error * self.model_error_z))

    def with_model_error(self, grid: Grid) -> Array:
        """`speedup_draws` of a grid of draws that was evaluated already."""
        drafting = np.array([cell.num_speculative_tokens > 0 for cell in grid.cells])
        return np.asarray(np.where(drafting, grid.speedup * self.model_error_factor, 1.0))


def build_study(deployment: Deployment, *, k_max: int, num_draws: int = DEFAULT_DRAWS, seed: int = 0) -> Study:
    """The study of a deployment for draft lengths up to `k_max`; the same seed gives the same figures."""
    _keep_freed_memory()
    system = build_system(deployment)
    streams = np.random.default_rng(seed).spawn(3)
    standard = standard_draws(num_draws, len(system.priors.priors), streams[0])
    acceptance = acceptance_draws(
        deployment.speculation,
        deployment.workload,
        k_max=max(k_max, 1),
        num_draws=num_draws,
        rng=streams[1],
        ngram_variant=system.mode(max(k_max, 1)).ngram_variant,
        context_tokens=system.context_tokens,
    )
    posterior, carried = posterior_of(system)
    errors = standard_draws(num_draws, 1, streams[2])
    return Study(
        system,
        acceptance,
        posterior,
        posterior.draws(standard, None if carried else baseline_predictor(system)),
        errors,
        carried,
    )


def _keep_freed_memory() -> None:
    """Makes the C library keep the memory of arrays that are done with, up to as much as this.

    Until it has seen so large an array freed, glibc returns every one to the operating system at once, and the next of
    the hundreds of a grid is mapped and cleared anew, page by page: a tenth of an answer's time.
    """
    np.empty(_KEPT_BYTES, dtype=np.uint8)


def posterior_of(system: System) -> tuple[Posterior, tuple[str, ...]]:
    """The posterior for a system from the facts of the deployment that they were measured on, and a note if another.

    A parameter whose prior is the same in both carries over; on another GPU or engine only the routing does, for
    another model everything but the routing.
    """
    origin = system.deployment.measured_on
    if origin is system.deployment:
        return condition_on_measured(system), ()
    measured = build_system(origin)
    posterior = condition_on_measured(measured)
    same_machine = measured.gpu == system.gpu and origin.engine.name == system.deployment.engine.name
    same_model = measured.shape.name == system.shape.name
    keep = []
    for ours, theirs in zip(system.priors.priors, measured.priors.priors, strict=True):
        belongs = same_model if ours.name in _ROUTING else same_machine
        keep.append(belongs and (ours.center, ours.spread, ours.kind) == (theirs.center, theirs.spread, theirs.kind))
    note = "the [[measured]] facts describe the deployment before the overrides; they count for unchanged parameters"
    if not same_machine:
        note = "the [[measured]] facts belong to another machine or engine and are left out"
    return posterior.carried(np.array(keep)), (note,)


def condition_on_measured(system: System) -> Posterior:
    """The posterior of the parameters given the deployment's `[[measured]]` facts."""
    if system.parallel.tensor == 1 and any(fact.allreduce_share for fact in _facts(system)):
        raise InputError(
            "measured.allreduce_share: got a share, but tensor_parallel_size 1 has no AllReduce; leave it out"
        )
    observations = [o for fact in _facts(system) for o in _observations(fact)]
    return condition(baseline_predictor(system), observations, len(system.priors.priors))


def baseline_predictor(system: System) -> Callable[[Array], Array]:
    """The function from parameter coordinates `(n, num_parameters)` to the measured observables of the baseline."""

    def predict(z: Array) -> Array:
        parameters = system.priors.parameters(z)
        return np.concatenate([_predicted(system, parameters, fact) for fact in _facts(system)], axis=1)

    return predict


def _facts(system: System) -> list[Measured]:
    return [m for m in system.deployment.measured if _observations(m)]


def _observations(fact: Measured) -> list[Observation]:
    noise = fact.relative_noise or _TIME_NOISE
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
        spread = fact.relative_noise / (1.0 - share) if fact.relative_noise else _SHARE_NOISE
        found.append(Observation(f"AllReduce share at {at}", np.log(share / (1.0 - share)), spread))
    return found


def _predicted(system: System, p: Parameters, fact: Measured) -> Array:
    """Predictions of one fact's observables, `(num_draws, num_observables)`, in the order of `_observations`."""
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
        allreduce = np.maximum(step.parts_s["allreduce"], 1e-12)
        columns.append(np.log(allreduce / np.maximum(step.total_s - allreduce, 1e-12)))
    return np.concatenate(columns, axis=1)
