"""What is fitted and how: the description that fits best, the model error, what is set aside, then the fit itself."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibration import oddities
from calibration.acceptance_book import AcceptanceBook
from calibration.coordinates import Coordinates, coordinates_of, normal_coordinates
from calibration.cross_validation import LeftOut, leave_out
from calibration.discrepancy import residual_coordinates, residual_covariance
from calibration.fit import FitOptions, fit_map
from calibration.fit_result import FitResult
from calibration.forward import Forward, nuisance_name
from calibration.model_error import Judged, ModelError, doubted, model_error
from calibration.questions import Question, Setting
from calibration.structure import CLEAR, Choice, Switch, allreduce_choices, best_choice, decide_switches
from hwmodel.allreduce_curve import AllReduceCurve
from hwmodel.residual import NUM_LOG_FACTORS
from simulator.calibrated import CarriedOver
from simulator.posterior import Observation
from simulator.system import System

Array = NDArray[np.float64]

_ROUNDS = 2  # of fit and model error: the second changes tau by a few percent
_MORE_THAN_USUAL = 1.5  # times the prior's model error: from here what the usual one decided is asked again
_MOST_OUTLIERS = 0.25  # of all measurements: more of them are a model that is wrong


@dataclass(frozen=True)
class Plan:
    """What is fitted, and with which description."""

    system: System
    questions: tuple[Question, ...]
    book: AcceptanceBook
    curve: AllReduceCurve | None
    earlier: CarriedOver | None
    settings: tuple[tuple[str, object], ...] = ()
    switches: tuple[Switch, ...] = ()
    earlier_error: float | None = None  # tau of the profile that this fit continues

    @property
    def observations(self) -> tuple[Observation, ...]:
        """The questions' answers as measured."""
        return tuple(q.observation() for q in self.questions)

    @property
    def prior_tau(self) -> ModelError:
        """The model error before anything is left out."""
        prior = self.system.priors["model_error"]
        spread = prior.spread if prior.kind == "lognormal" else 0.0
        return ModelError.prior(max(prior.center, 1e-4), spread)

    def coordinates(self, tau: float) -> Coordinates:
        """Parameters, residuals, uncounted acceptances."""
        base, residuals = coordinates_of(self.system.priors), residual_coordinates(tau, self.prior_tau.effective)
        if self.earlier and not self.earlier.same:  # else its measurements are among the questions
            base = base.updated(self.earlier.posterior.mode, self.earlier.posterior.factor)
        return base + residuals + self._nuisances()

    def residual_covariance(self, tau: float) -> Array:
        """Prior covariance of the residual coordinates at a model error."""
        return residual_covariance(tau, self.prior_tau.effective)

    def _nuisances(self) -> Coordinates:
        settings = dict.fromkeys(q.setting for q in self.questions if q.tokens_per_step is None)
        found = normal_coordinates((), np.zeros((0, 0)))
        for setting in settings:
            found = found + self._nuisance(setting)
        return found

    def _nuisance(self, setting: Setting) -> Coordinates:
        mean, spread = self.book.log_tokens_per_step(setting.method, setting.num_speculative_tokens)
        one = normal_coordinates((nuisance_name(setting),), np.array([[spread]]))
        return replace(one, mean=np.array([mean]), low=np.array([0.0]))

    def forward(self, coordinates: Coordinates, fixed: tuple[tuple[int, float], ...] = ()) -> Forward:
        """The model of these questions."""
        held = (*(switch.fixed for switch in self.switches), *fixed)
        return Forward(self.system, self.questions, coordinates, self.curve, held)

    @property
    def residuals(self) -> slice:
        """Where the residual coordinates stand."""
        first = len(self.system.priors.priors)
        return slice(first, first + NUM_LOG_FACTORS)

    def quick(self, fixed: tuple[tuple[int, float], ...] = (), start: Array | None = None) -> FitResult:
        """One search at the prior model error."""
        coordinates = self.coordinates(self.prior_tau.value)
        return fit_map(self.forward(coordinates, fixed).predict, self.observations, coordinates, _quick(start))


def _quick(start: Array | None) -> FitOptions:
    """One search and no refits."""
    return FitOptions(num_starts=0, num_refits=0, start=start)


def settled_plan(plan: Plan, *, own: bool = False) -> tuple[Plan, tuple[str, ...]]:
    """The plan with the description that fits best, and what was changed; with `own` the AllReduce stays as stated."""
    if not plan.questions:
        return plan, ()
    findings: tuple[str, ...] = ()
    others = allreduce_choices(plan.system, plan.questions) if plan.earlier is None and not own else []
    if others:
        stated = plan.quick()
        tried = [
            Choice(settings, system, replace(plan, system=system).quick(start=stated.mode).log_evidence)
            for settings, system in others
        ]
        best, text = best_choice(Choice({}, plan.system, stated.log_evidence), tried)
        plan = replace(plan, system=best.system, settings=tuple(best.settings.items()))
        findings += (text,) if text else ()
    coordinates = plan.coordinates(plan.prior_tau.value)
    switches = decide_switches(
        plan.system,
        lambda fixed: plan.forward(coordinates, fixed).predict,
        lambda fixed: plan.quick(fixed).log_evidence,
        coordinates.mean,
    )
    return replace(plan, switches=tuple(switches)), findings


class Fitted(NamedTuple):
    """The fit, its model, and what was found on the way.

    `usual` is the fit with the usual model error: what it cannot explain is why `tau` is larger.
    """

    forward: Forward
    fit: FitResult
    tau: ModelError
    left_out: tuple[LeftOut, ...]
    usual: FitResult
    softened: dict[int, float]
    cliff: oddities.Cliff | None


def fitted_plan(plan: Plan, options: FitOptions) -> Fitted:
    """The fit after what is odd is set aside and the model error is estimated."""
    tau, groups = plan.prior_tau, [q.group for q in plan.questions]
    cliff, noises, mode = _oddities(plan, groups)
    past = cliff.past if cliff else ()
    observations = oddities.softened(plan.observations, noises, past)
    usual: FitResult | None = None
    for _ in range(_ROUNDS):
        fit = _fit(plan, tau, observations, _quick(mode))
        mode = fit.mode
        usual = usual or fit
        judged = _judged(plan, observations, past, oddities.repeat_scale(plan.questions, usual))
        tau = model_error(fit, judged, plan.residuals, plan.residual_covariance, plan.prior_tau)
    fit = _fit(plan, tau, observations, replace(options, start=mode))
    forward = plan.forward(fit.coordinates)
    left = leave_out(fit, groups)
    if cliff:
        mode, covariance = oddities.pinned(forward, fit, cliff)
        fit = replace(fit, mode=mode, covariance=covariance, predicted=forward.predict(mode[None, :])[0])
    factors = {i: noise / plan.questions[i].noise for i, noise in noises.items()}
    return Fitted(forward, fit, tau, left, usual or fit, factors, cliff)


def _fit(plan: Plan, tau: ModelError, observations: Sequence[Observation], options: FitOptions) -> FitResult:
    """The fit at a model error."""
    coordinates = plan.coordinates(tau.effective)
    doubtful = doubted(observations, tau, plan.prior_tau)
    return fit_map(plan.forward(coordinates).predict, doubtful, coordinates, options)


def still_described(plain: Plan, settled: Plan, tau: ModelError) -> bool:
    """Whether the AllReduce of `settled` is clearly the likelier one at the model error that its fit found, too.

    Measurements that contradict each other fit some AllReduce better than another by chance.
    """
    if settled.settings == plain.settings or tau.value <= _MORE_THAN_USUAL * settled.prior_tau.value:
        return True
    own, other = (
        _fit(plan, tau, plan.observations, _quick(None)).log_evidence
        for plan in (replace(plain, switches=settled.switches), settled)
    )
    return other - own >= CLEAR


def _judged(plan: Plan, observations: Sequence[Observation], past: Sequence[int], scale: float) -> Judged:
    """What the model error is judged by: everything but what lies past a cliff, noises `scale` times as large."""
    stated = oddities.softened(plan.observations, {}, past)
    return Judged(
        np.array([q.requests for q in plan.questions]),
        scale * np.array([o.noise for o in observations]),
        scale * np.array([o.noise for o in stated]),
    )


def _oddities(plan: Plan, groups: Sequence[str]) -> tuple[oddities.Cliff | None, dict[int, float], Array]:
    """A cliff of the sweep, the noise to allow measurements that all others contradict, and the mode without them."""
    coordinates = plan.coordinates(plan.prior_tau.value)
    forward, noises = plan.forward(coordinates), dict[int, float]()
    fit = fit_map(forward.predict, plan.observations, coordinates, _quick(None))
    cliff = oddities.find_cliff(forward, fit) if plan.questions else None
    past = cliff.past if cliff else ()
    if past:
        fit = fit_map(forward.predict, oddities.softened(plan.observations, {}, past), coordinates, _quick(fit.mode))
    for _ in range(int(_MOST_OUTLIERS * len(plan.questions))):
        suspects = oddities.outliers(leave_out(fit, groups), {*past, *noises})
        tried = []
        for i, error in suspects:
            without = oddities.softened(plan.observations, {**noises, i: error}, past)
            tried.append((fit_map(forward.predict, without, coordinates, _quick(fit.mode)), i, error))
        if not tried:
            break
        fit, place, noises_of = max(tried, key=lambda item: item[0].log_evidence)
        noises[place] = noises_of
    return cliff, noises, fit.mode
