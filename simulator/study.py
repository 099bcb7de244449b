"""One deployment, ready to be asked: system, acceptance, priors narrowed by the measured facts, draws.

`Study.grid` is the only way from here to figures: the same draws serve every cell, so cells can be compared.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwmodel.parameters import Parameters
from hwmodel.records import dataclass
from simulator.acceptance import AcceptanceDraws, acceptance_draws
from simulator.closed_form import Cell, Grid, acceptance_arrays, evaluate
from simulator.defaults import DEFAULT_DRAWS
from simulator.deployment import Deployment
from simulator.deployment.speculation import Speculation
from simulator.deployment.tables import Workload
from simulator.knowledge import Knowledge, knowledge_of
from simulator.parameters import standard_draws
from simulator.posterior import Posterior
from simulator.system import System

if TYPE_CHECKING:
    from hwmodel.residual import StepResidual
    from simulator.anchor import DraftedFact

Array = NDArray[np.float64]

_KEPT_BYTES = 32 * 10**6  # below glibc's own bound of 32 MiB


@dataclass(frozen=True)
class Study:
    """A deployment with its uncertainty; `z` are conditioned parameter coordinates `(num_draws, num_parameters)`."""

    system: System
    acceptance: AcceptanceDraws
    posterior: Posterior
    z: Array
    model_error_z: Array  # (num_draws, 1) standard normal: one error a draw, shared by all cells
    notes: tuple[str, ...] = ()
    kv_cache_tokens: float | None = None  # the KV cache size that the baseline's engine logged, if told
    residual: "StepResidual | None" = None  # of every draw: what a profile's measurements add to the model
    point_residual: "StepResidual | None" = None
    conflict_error: float = 0.0  # relative, beside the model's own error: what measured facts show
    speculation: Speculation | None = None  # with the acceptance that counts, where it is not the deployment's
    seed: int = 0

    @property
    def deployment(self) -> Deployment:
        """The deployment in question."""
        return self.system.deployment

    @cached_property
    def parameters(self) -> Parameters:
        """The drawn parameters."""
        drawn = self._with(self.system.priors.parameters(self.z), self.residual)
        return replace(drawn, model_error=np.hypot(drawn.model_error, self.conflict_error))

    @cached_property
    def point_parameters(self) -> Parameters:
        """The parameters at the posterior median."""
        return self._with(self.system.priors.parameters(self.posterior.mode[None, :]), self.point_residual)

    @staticmethod
    def _with(parameters: Parameters, residual: "StepResidual | None") -> Parameters:
        return parameters if residual is None else replace(parameters, residual=residual)

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


def build_study(
    deployment: Deployment,
    *,
    k_max: int,
    num_draws: int = DEFAULT_DRAWS,
    seed: int = 0,
    drafted: "DraftedFact | None" = None,
) -> Study:
    """The study of a deployment for draft lengths up to `k_max`; the same seed gives the same figures.

    `drafted` is a time measured with speculation on, beside the file's facts about the baseline.
    """
    _keep_freed_memory()
    known = _knowledge(deployment)
    if drafted is not None:
        from simulator.anchor import anchored  # only where a server is watched: start-up time

        known = anchored(known, drafted)
    system, posterior = known.system, known.posterior
    streams = np.random.default_rng(seed).spawn(3)
    standard = standard_draws(num_draws, len(posterior.mode), streams[0])
    acceptance = _acceptance(known.speculation, system, max(k_max, 1), num_draws, streams[1])
    errors = standard_draws(num_draws, 1, streams[2])
    z, residual = known.split(posterior.draws(standard, known.agree))
    _, point_residual = known.split(posterior.mode[None, :])
    return Study(
        system,
        acceptance,
        known.of_parameters(),
        z,
        errors,
        known.notes,
        known.kv_cache_tokens,
        residual,
        point_residual,
        known.conflict_error,
        known.speculation,
        seed,
    )


def _acceptance(
    speculation: Speculation, system: System, k_max: int, num_draws: int, rng: np.random.Generator
) -> AcceptanceDraws:
    return acceptance_draws(
        speculation,
        system.deployment.workload,
        k_max=k_max,
        num_draws=num_draws,
        rng=rng,
        ngram_variant=system.mode(k_max).ngram_variant,
        context_tokens=system.context_tokens,
        target=system.shape,
    )


def with_workload(study: Study, workload: Workload) -> Study:
    """The study of the same machine under another workload: the same parameter draws, acceptance drawn for it."""
    system = replace(study.system, deployment=study.deployment.changed(workload=workload))
    num_draws, k_max = study.acceptance.survival.shape
    rng = np.random.default_rng(study.seed).spawn(3)[1]
    counted = study.speculation or study.deployment.speculation
    return replace(study, system=system, acceptance=_acceptance(counted, system, k_max, num_draws, rng))


def _keep_freed_memory() -> None:
    """Makes the C library keep the memory of arrays that are done with, up to as much as this.

    Until it has seen so large an array freed, glibc returns every one to the operating system at once, and the next of
    the hundreds of a grid is mapped and cleared anew, page by page: a tenth of an answer's time.
    """
    np.empty(_KEPT_BYTES, dtype=np.uint8)


class _Latest(NamedTuple):
    """What was found out about a deployment last: a page asks two questions about each one that it shows."""

    deployment: Deployment
    knowledge: Knowledge


_latest: list[_Latest] = []  # none or one


def _knowledge(deployment: Deployment) -> Knowledge:
    """What is known of a deployment, which is frozen: the very same one is not looked into twice in a row."""
    for latest in _latest:
        if latest.deployment is deployment:
            return latest.knowledge
    found = _Latest(deployment, _found_out(deployment))
    _latest[:] = [found]
    return found.knowledge


def _found_out(deployment: Deployment) -> Knowledge:
    if deployment.profile is None:
        return knowledge_of(deployment)
    from simulator.calibrated import calibrated_knowledge  # only where there is a profile: start-up time

    return calibrated_knowledge(deployment, deployment.profile)
