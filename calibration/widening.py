"""Why an answer got wider: what measurements did to the spread of the speedup, part by part.

Measurements usually narrow it. They widen it where they show a larger model error, count acceptance less certainly than
it was stated, or move parameters to where the speedup depends more on what nobody measured.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.plan import Fitted, Plan
from hwmodel.percent import percent
from simulator.closed_form import Cell
from simulator.profile import SCATTER_SHARE
from simulator.study import Study

Array = NDArray[np.float64]
LogSpeedup = Callable[[Array], Array]  # rows of coordinates -> ln(speedup) of the cells

_DIFFERENCE = 1e-3
_WIDER = 1.05  # times the width from which on it is worth a word: draws tell it to 3 %
_LARGEST = 2  # parameters that are named


@dataclass(frozen=True, slots=True)
class Spread:
    """Variance of ln(speedup) by origin, mean over the cells; by coordinate as far as each one tells it alone."""

    parameters: float
    residual: float
    acceptance: float
    scatter: float
    by_parameter: Array


@dataclass(frozen=True, slots=True)
class Belief:
    """Where the coordinates are believed to be, and the model error: `scatter` is that of a speedup alone."""

    mode: Array
    covariance: Array
    scatter: float
    acceptance: float  # variance of ln(speedup)


def spread_of(belief: Belief, log_speedup: LogSpeedup, num_parameters: int) -> Spread:
    """What the spread of the answer is made of, in the linear model at the mode."""
    width = np.sqrt(np.diag(belief.covariance))
    steps = _DIFFERENCE * np.maximum(width, _DIFFERENCE)
    values = log_speedup(np.concatenate([belief.mode[None, :], belief.mode + np.diag(steps)]))
    slopes = ((values[1:] - values[0]) / steps[:, None]).T
    own, rest = slice(0, num_parameters), slice(num_parameters, None)
    alone = np.mean(slopes**2, axis=0) * width**2
    parameters = np.einsum("ci,ij,cj->c", slopes[:, own], belief.covariance[own, own], slopes[:, own])
    both = np.einsum("ci,ij,cj->c", slopes, belief.covariance, slopes)
    return Spread(
        parameters=float(np.mean(parameters)),
        residual=float(np.mean(both - parameters)),
        acceptance=belief.acceptance,
        scatter=belief.scatter**2,
        by_parameter=alone[own] if rest.start else alone,
    )


def belief_before(plan: Plan, num_coordinates: int, acceptance: float) -> Belief:
    """What was believed before these measurements: the priors, or an earlier profile."""
    prior = plan.system.priors["model_error"].center
    mode, covariance = np.zeros(num_coordinates), np.zeros((num_coordinates, num_coordinates))
    size = len(plan.system.priors.priors)
    covariance[:size, :size] = np.eye(size)
    if plan.earlier is not None:
        old = plan.earlier.posterior
        mode[: len(old.mode)] = old.mode
        covariance[: len(old.mode), : len(old.mode)] = old.factor @ old.factor.T
        if plan.earlier.same and plan.earlier_error is not None:
            prior = SCATTER_SHARE * plan.earlier_error
    covariance += 1e-12 * np.eye(num_coordinates)
    return Belief(mode, covariance, prior, acceptance)


def half_width(study: Study, cells: Sequence[Cell]) -> float:
    """Half of the 90 % interval of ln(speedup), root mean square over the cells."""
    low, high = np.quantile(np.log(study.speedup_draws(cells)), [0.05, 0.95], axis=0)
    return float(np.sqrt(np.mean((0.5 * (high - low)) ** 2)))


def got_wider(before: float, after: float) -> bool:
    """Whether a half-width grew by more than the chance of the draws."""
    return after > _WIDER * before


def reason(plan: Plan, fitted: Fitted, before: Spread, after: Spread) -> str:
    """Why the answer got wider: the origin whose variance grew most, in words."""
    grown = {
        "model": after.residual + after.scatter - before.residual - before.scatter,
        "acceptance": after.acceptance - before.acceptance,
        "parameters": after.parameters - before.parameters,
    }
    most = max(grown, key=lambda name: grown[name])
    if most == "model":
        return _model(plan, fitted)
    if most == "acceptance":
        return "acceptance as it was counted is less certain than as it was stated"
    return _moved(plan, fitted, before, after)


def sentence(why: str, before: float, after: float) -> str:
    """The reason with the widths of the 90 % interval."""
    return (
        f"with these measurements the 90 % interval of the speedup is +- {_percent(after)} wide instead of +-"
        f" {_percent(before)} (mean over the loads): {why}"
    )


def _model(plan: Plan, fitted: Fitted) -> str:
    usual = plan.earlier_error if plan.earlier_error is not None else plan.prior_tau.value
    if fitted.tau.value > usual:
        return f"they show a model error of {percent(fitted.tau.value)} where {percent(usual)} was assumed"
    return (
        "the model error now also counts between the rows that were measured and those that verification runs; a wider"
        " sweep narrows it"
    )


def _moved(plan: Plan, fitted: Fitted, before: Spread, after: Spread) -> str:
    """Where parameters moved to, and which ones the answer depends on more there."""
    change = after.by_parameter - before.by_parameter
    names = [prior.name for prior in plan.system.priors.priors]
    more = [names[i] for i in np.argsort(-change)[:_LARGEST] if change[i] > 0]
    mode = fitted.fit.mode[: len(names)]
    moved = [f"{names[i]} ({mode[i]:+.1f})" for i in np.argsort(-np.abs(mode))[:_LARGEST]]
    return (
        f"they move {' and '.join(moved)}, in prior standard deviations, to where the speedup depends more on"
        f" {' and '.join(more) or 'several others'}, which they do not tell"
    )


def _percent(value: float) -> str:
    """Half of a width of logs as percent: 19 %."""
    return percent(float(np.sinh(value)))
