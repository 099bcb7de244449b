"""What is simulated: a deployment's study turned into its two arms, at the posterior median or at one draw."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hwmodel.parameters import PARAMETER_NAMES, Parameters
from simulator.acceptance_priors import priors
from simulator.answers import draft_length
from simulator.closed_form import Cell, capacity
from simulator.deployment import Deployment
from simulator.serving.acceptance_sampling import AcceptanceSource, NoDrafts, RecordedAcceptance, SampledAcceptance
from simulator.serving.arms import Arm, Load
from simulator.serving.metrics import Slo
from simulator.serving.policies import OptimalLengths, Policy, ScheduledLength, SglangAdaptive, StaticLength
from simulator.serving.population import population
from simulator.serving.step_costs import StepCosts
from simulator.serving.step_times import StepTimes
from simulator.study import Study


@dataclass(frozen=True)
class Task:
    """A study, a policy and a load. `seeds` are of the drafts and of who is how good."""

    study: Study
    policy: Callable[[], Policy]
    load: Load
    slo: Slo
    recorded: RecordedAcceptance | None
    seeds: tuple[int, int]

    @property
    def length(self) -> int:
        """The configured draft length; 0: there is nothing but the baseline."""
        return self.policy().largest

    def arms(self, draw: int | None = None) -> dict[str, Arm]:
        """Both arms (one where nothing is drafted) at the posterior median, or at one parameter draw."""
        parameters = self.study.point_parameters if draw is None else one_draw(self.study.parameters, draw)

        def times(length: int) -> StepTimes:
            return StepTimes(StepCosts(self.study.system, parameters, length))

        arms = {"baseline": Arm("baseline", self.study, times(0), lambda: StaticLength(0), NoDrafts())}
        if self.length:
            source, share = self._acceptance(draw)
            arms["speculative"] = Arm("speculative", self.study, times(self.length), self.policy, source, share)
        return arms

    def _acceptance(self, draw: int | None) -> tuple[AcceptanceSource, float]:
        """Where acceptance comes from, and the share of steps that carry a draft."""
        if self.recorded is not None:
            return self.recorded, self.recorded.draft_share
        found, deployment = self.study.acceptance.for_length(self.length), self.study.deployment
        survival, share = found.median_survival[0], found.median_draft_probability
        if draw is not None:
            survival, share = found.survival[draw], float(found.draft_probability[draw, 0])
        stated = deployment.speculation.acceptance
        kappa = (stated.heterogeneity if stated else None) or float(priors()["spread"]["kappa_median"])
        persistence = deployment.workload.acceptance_time_correlation
        offset = float(np.random.default_rng(self.seeds[1]).random())
        people = population(survival[: self.length], share, kappa, stretches=persistence > 0.0, offset=offset)
        return SampledAcceptance(people, share, persistence, self.seeds[0]), share

    def capacity_tokens_per_s(self, length: int) -> float:
        """The most output tokens a second that the deployment can serve at a draft length, in closed form."""
        top = max(capacity(self.study.system, length, self.study.kv_cache_tokens).max_running, 1)
        grid = self.study.grid([Cell(length, top)], point=True)
        return float((grid.speculative if length else grid.baseline).throughput_tokens_per_s[0, 0])


def one_draw(parameters: Parameters, draw: int) -> Parameters:
    """The parameters of one draw, arrays `(1, 1)`."""
    values = {name: getattr(parameters, name)[draw : draw + 1] for name in PARAMETER_NAMES}
    return Parameters(**values, residual=parameters.residual and parameters.residual.draw(draw))


def choose_policy(
    deployment: Deployment, asked: int | None, users: int | None
) -> tuple[Callable[[], Policy], tuple[str, ...]]:
    """What makes fresh policies, and notes: a length that is asked for, else what the file says."""
    speculation = deployment.speculation
    name = speculation.effective_policy
    if asked is None and speculation.method != "none":
        if name == "schedule" and speculation.schedule:
            schedule = speculation.schedule
            return lambda: ScheduledLength(schedule), ()
        if name == "sglang-adaptive":
            return SglangAdaptive, ()
    length, notes = draft_length(deployment, asked, users)
    if name == "optimal" and length:
        return lambda: OptimalLengths(length), notes
    return lambda: StaticLength(length), notes
