"""The model error: how far a deployment may be from the model, given how far its measurements are.

The posterior of tau, the standard deviation of what no parameter explains, on a grid: its prior times the probability
of the measurements, load by load, each predicted from those before it and the first from the priors alone. So one load
that only far-fetched parameters explain counts, as do loads that contradict each other (docs/calibration.md, eq. C3).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from calibration.fit_result import FitResult
from simulator.posterior import Observation

Array = NDArray[np.float64]

# Student's t, scaled so that its likelihood finds the right width for normal errors: one outlier must not set tau. With
# fewer loads nothing tells an outlier from a wrong model.
_FREEDOM, _NORMAL_SCALE, _FEWEST_FOR_OUTLIERS = 4.0, 0.831, 4
# Of the prior of ln tau, for deployments that run otherwise than stated: one in forty is off by three times as much.
_PRIOR_FREEDOM = 4.0
# Of the variance beyond the usual one by which loads contradict each other: one of them may be measured wrongly.
_MEASUREMENT_SHARE = 0.5
_GRID = np.exp(np.linspace(np.log(0.004), 0.0, 111))  # at 1 a time is known to a factor of 5 either way
_END = NormalDist().inv_cdf(0.95)  # of a 90 % interval


@dataclass(frozen=True, slots=True)
class ModelError:
    """tau: median, standard deviation of its log, and how many groups it was estimated from (0: the prior).

    `effective` is the tau whose normal errors have the same 90 % interval as errors whose tau is so uncertain;
    `between` is that of the loads given the first one: how far they contradict each other, whatever the priors say.
    """

    value: float
    log_sd: float
    num_groups: int = 0
    effective: float = 0.0
    between: float = 0.0

    @classmethod
    def prior(cls, median: float, log_sd: float) -> "ModelError":
        """The model error before anything is measured; a stated one has no spread."""
        if log_sd == 0.0:
            return cls(median, 0.0, 0, median, median)
        return _summary(_log_prior(median, log_sd), median, log_sd, 0)


@dataclass(frozen=True, slots=True)
class Judged:
    """The observations that tau is judged by: their loads and noises, `(num_observations,)`.

    `noise` is what the others are predicted with, larger than `stated` where an observation was set aside.
    """

    loads: Array
    noise: Array
    stated: Array

    @property
    def num_loads(self) -> int:
        """How many loads, a quarter of an octave apart at least."""
        return len(set(np.round(4.0 * np.log2(self.loads)).tolist()))

    @property
    def order(self) -> NDArray[np.intp]:
        """By load; what was set aside comes last."""
        return np.lexsort((self.loads, self.noise > self.stated))


def doubted(observations: Sequence[Observation], found: ModelError, usual: ModelError) -> tuple[Observation, ...]:
    """The observations with the noise that loads which contradict each other suggest they have.

    Where only the priors are against them, they stand: then the deployment is not as the parameters have it.
    """
    extra = _doubt(found.between, usual.effective)
    return tuple(replace(o, noise=float(np.hypot(o.noise, extra))) for o in observations)


def _doubt(tau: float, usual: float) -> float:
    """Standard deviation that is added to every measurement's."""
    return float(np.sqrt(_MEASUREMENT_SHARE * max(tau**2 - usual**2, 0.0)))


def model_error(
    fit: FitResult, judged: Judged, residuals: slice, covariance_at: Callable[[float], Array], prior: ModelError
) -> ModelError:
    """tau given the observations of `fit`.

    `residuals` are the coordinates whose prior covariance `covariance_at` gives for a tau. An observation that was set
    aside is judged by its stated noise, but nothing else by it.
    """
    if prior.log_sd == 0.0 or not len(judged.loads):
        return prior
    few = judged.num_loads < _FEWEST_FOR_OUTLIERS
    order = judged.order
    jacobian, noise, stated = fit.jacobian[order], judged.noise[order], judged.stated[order]
    errors = (fit.target - fit.predicted - fit.jacobian @ (fit.coordinates.mean - fit.mode))[order]
    parameters = np.delete(fit.coordinates.factor, np.arange(fit.coordinates.size)[residuals], axis=1)
    fixed, moved = _square(jacobian @ parameters), jacobian[:, residuals]
    usual = fixed[0, 0] + moved[0] @ covariance_at(prior.effective) @ moved[0] + noise[0] ** 2
    times = 1.0 if few else _conflict(errors[0] ** 2 / usual)
    log_density = np.empty((len(_GRID), len(errors)))
    for i, tau in enumerate(_GRID):
        doubt = _doubt(tau, prior.effective) if judged.num_loads > 1 else 0.0
        covariance = fixed + moved @ covariance_at(float(tau)) @ moved.T + np.diag(noise**2 + doubt**2)
        log_density[i] = _log_density(errors, covariance, noise**2 - stated**2, normal=few)
    log_prior = _log_prior(prior.value, prior.log_sd)
    found = _summary(log_prior + log_density.sum(1), prior.value, prior.log_sd, judged.num_loads)
    later = log_density[:, ~np.isclose(judged.loads[order], judged.loads[order][0])].sum(1)
    effective = min(times * found.effective, 1.0)
    between = min(_effective(_weights(log_prior + later)), effective)
    return replace(found, value=min(times * found.value, 1.0), effective=effective, between=between)


def _conflict(squared: float) -> float:
    """How many times as wide a prior must be, given a squared error in standard deviations: that of Student's t.

    Loads that agree with each other say that tau is small, and nothing of what it means that all of them are far from
    the priors: a model that is wrong there may be so for drafted steps in another way.
    """
    return float(np.sqrt(max((_PRIOR_FREEDOM + squared) / (_PRIOR_FREEDOM + 1.0), 1.0)))


def _square(factor: Array) -> Array:
    return np.asarray(factor @ factor.T)


def _log_density(errors: Array, covariance: Array, sharper: Array, *, normal: bool) -> Array:
    """Log density of each error given those before it, `(num_observations,)`: normal, or Student's t.

    Variances count as smaller by `sharper`. The larger the errors, the more a larger tau is favoured.
    """
    factor = np.linalg.cholesky(covariance)
    ahead = np.diag(factor)
    variance = np.maximum(ahead**2 - sharper, 1e-12)
    white = np.linalg.solve(factor, errors) * ahead / np.sqrt(variance)
    if normal:
        return np.asarray(-0.5 * white**2 - 0.5 * np.log(variance))
    tails = -0.5 * (_FREEDOM + 1.0) * np.log1p((white / _NORMAL_SCALE) ** 2 / _FREEDOM)
    return np.asarray(tails - 0.5 * np.log(variance))


def _log_prior(median: float, log_sd: float) -> Array:
    """Log density of ln tau on the grid: Student's t around the median."""
    z = np.log(_GRID / median) / log_sd
    return np.asarray(-0.5 * (_PRIOR_FREEDOM + 1.0) * np.log1p(z**2 / _PRIOR_FREEDOM))


def _summary(log_density: Array, median: float, log_sd: float, num_groups: int) -> ModelError:
    """What is kept of a density on the grid; the prior's own median and spread where nothing was measured."""
    weights = _weights(log_density)
    mean = float(weights @ np.log(_GRID))
    spread = float(np.sqrt(weights @ (np.log(_GRID) - mean) ** 2))
    effective = _effective(weights)
    if not num_groups:
        return ModelError(median, log_sd, 0, effective, effective)
    return ModelError(float(np.exp(mean)), spread, num_groups, effective)


def _weights(log_density: Array) -> Array:
    weights = np.exp(log_density - log_density.max())
    return np.asarray(weights / weights.sum())


def _effective(weights: Array) -> float:
    """The tau of the normal whose 90 % interval is that of the mixture, found by halving."""
    low, high = float(_GRID[0]), float(_GRID[-1])
    normal = NormalDist()
    for _ in range(40):
        middle = (low * high) ** 0.5
        inside = sum(
            w * normal.cdf(_END * middle / tau) for w, tau in zip(weights.tolist(), _GRID.tolist(), strict=True)
        )
        low, high = (middle, high) if inside < 0.95 else (low, middle)
    return high
