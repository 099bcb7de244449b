"""What is known of a deployment before it is asked: its system, acceptance, and the posterior of its parameters.

From the `[[measured]]` facts alone here; with a profile in `simulator.calibrated`.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwmodel.parameters import Parameters
from hwmodel.percent import percent
from simulator.closed_form import logged_kv_cache_tokens
from simulator.deployment import Deployment
from simulator.deployment.speculation import Speculation
from simulator.facts import facts_predictor, observations_of, refuse_share_without_allreduce, usable_facts
from simulator.posterior import Posterior, condition, conflict_error
from simulator.system import System, build_system

if TYPE_CHECKING:
    from hwmodel.residual import StepResidual

Array = NDArray[np.float64]

ROUTING = frozenset({"popularity_sigma", "stickiness", "routing_memory"})


class Knowledge(NamedTuple):
    """What draws are made from; `posterior` is over the parameters' coordinates, then over log factors if any."""

    system: System
    speculation: Speculation  # with the acceptance that counts
    posterior: Posterior
    agree: Callable[[Array], Array] | None  # what draws are moved to agree with, see `Posterior.draws`
    kv_cache_tokens: float | None
    notes: tuple[str, ...] = ()
    conflict_error: float = 0.0  # what the facts show the model to be off by beyond its usual error, see eq. B2

    def split(self, coordinates: Array) -> "tuple[Array, StepResidual | None]":
        """Rows of coordinates as those of the parameters, and the log factors behind them."""
        size = len(self.system.priors.priors)
        if coordinates.shape[1] == size:
            return coordinates, None
        from hwmodel.residual import StepResidual  # only where there is a profile: start-up time

        return coordinates[:, :size], StepResidual.of(coordinates[:, size:])

    def of_parameters(self) -> Posterior:
        """The posterior of the parameters alone: the leading block of a lower triangular factor is their factor."""
        size = len(self.system.priors.priors)
        mode, factor = self.posterior.mode[:size], self.posterior.factor[:size, :size]
        return replace(self.posterior, mode=mode, factor=factor)

    def parameters(self, coordinates: Array) -> Parameters:
        """The parameters at these coordinates, log factors included."""
        z, residual = self.split(coordinates)
        return replace(self.system.priors.parameters(z), residual=residual)


def knowledge_of(deployment: Deployment) -> Knowledge:
    """What the deployment file says, its facts included."""
    system = build_system(deployment)
    posterior, carried = posterior_of(system)
    error = conflict_of_facts(system)
    return Knowledge(
        system,
        deployment.speculation,
        posterior,
        None if carried else baseline_predictor(system),
        logged_kv_cache_tokens(system) if deployment.measured_on is deployment else None,
        carried + _conflict_note(error),
        error,
    )


def _conflict_note(error: float) -> tuple[str, ...]:
    if not error:
        return ()
    return (
        "the measured facts are further from the model than its parameters can be expected to reach: the speedup's"
        f" interval holds a model error of {percent(error)} more. Check the facts and their units, then attention"
        " backend, interconnect and graphs of the deployment file",
    )


def conflict_of_facts(system: System) -> float:
    """What the facts show the model to be off by beyond what its priors allow; 0 mostly, and for another machine."""
    origin = system.deployment.measured_on
    if origin is not system.deployment:
        measured = build_system(origin)
        same = (measured.gpu, origin.engine.name, measured.shape.name)
        return (
            conflict_of_facts(measured)
            if same == (system.gpu, system.deployment.engine.name, system.shape.name)
            else 0.0
        )
    observations = [o for fact in usable_facts(system) for o in observations_of(fact)]
    if not observations:
        return 0.0
    usual = float(system.priors.parameters(np.zeros((1, len(system.priors.priors)))).model_error.item())
    return conflict_error(baseline_predictor(system), observations, len(system.priors.priors), usual)


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
        belongs = same_model if ours.name in ROUTING else same_machine
        keep.append(belongs and (ours.center, ours.spread, ours.kind) == (theirs.center, theirs.spread, theirs.kind))
    note = "the [[measured]] facts describe the deployment before the overrides; they count for unchanged parameters"
    if not same_machine:
        note = "the [[measured]] facts belong to another machine or engine and are left out"
    return posterior.carried(np.array(keep)), (note,)


def condition_on_measured(system: System) -> Posterior:
    """The posterior of the parameters given the deployment's `[[measured]]` facts."""
    facts = usable_facts(system)
    refuse_share_without_allreduce(system)
    observations = [o for fact in facts for o in observations_of(fact)]
    return condition(baseline_predictor(system), observations, len(system.priors.priors))


def baseline_predictor(system: System) -> Callable[[Array], Array]:
    """The function from parameter coordinates `(n, num_parameters)` to the measured observables of the baseline."""
    predict = facts_predictor(system, usable_facts(system))
    return lambda z: predict(system.priors.parameters(z))
