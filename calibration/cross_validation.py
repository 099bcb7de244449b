"""Leaving measurements out: what the others say of each concurrency, and the model error that this shows.

Computed in the linear model at the mode, where leaving out is algebra instead of refits (docs/calibration.md, eq. C3).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from calibration.fit_result import FitResult

Array = NDArray[np.float64]

# Student's t, scaled so that its likelihood finds the right width for normal errors: one outlier must not set tau.
_FREEDOM, _NORMAL_SCALE = 4.0, 0.831
_GRID = np.exp(np.linspace(np.log(0.004), np.log(0.5), 97))
_FEWEST_GROUPS = 3
_INSIDE = NormalDist().inv_cdf(0.95)  # 90 % interval


@dataclass(frozen=True, slots=True)
class LeftOut:
    """One observation predicted from all groups but its own: log (or logit) values, standard deviation with noise."""

    label: str
    group: str
    observed: float
    predicted: float
    spread: float

    @property
    def standardised(self) -> float:
        """Error in standard deviations."""
        return (self.observed - self.predicted) / self.spread

    @property
    def inside(self) -> bool:
        """Whether the 90 % interval holds the observation."""
        return abs(self.standardised) <= _INSIDE


@dataclass(frozen=True, slots=True)
class ModelError:
    """tau: median, standard deviation of its log, and how many groups it was estimated from (0: the prior)."""

    value: float
    log_sd: float
    num_groups: int = 0

    @property
    def root_mean_square(self) -> float:
        """What variances are computed with: tau is uncertain itself."""
        return self.value * float(np.exp(self.log_sd**2)) if self.num_groups else self.value


@dataclass(frozen=True, slots=True)
class _Held:
    """A group of observations, what the others predict of its errors, and their covariance."""

    rows: list[int]
    errors: Array
    covariance: Array

    def log_density(self) -> float:
        """Log density of the errors: Student's t in whitened directions."""
        factor = np.linalg.cholesky(self.covariance)
        white = np.linalg.solve(factor, self.errors) / _NORMAL_SCALE
        tails = -0.5 * (_FREEDOM + 1.0) * np.log1p(white**2 / _FREEDOM)
        return float(np.sum(tails) - np.sum(np.log(np.diag(factor))))


def leave_out(fit: FitResult, groups: Sequence[str]) -> tuple[LeftOut, ...]:
    """Every observation predicted from the groups that it does not belong to; empty with fewer than two groups."""
    found: dict[int, LeftOut] = {}
    for held in _each_held(fit, groups, fit.coordinates.factor):
        for i, error, variance in zip(held.rows, held.errors, np.diag(held.covariance), strict=True):
            o = fit.observations[i]
            found[i] = LeftOut(o.label, groups[i], o.value, o.value - float(error), float(np.sqrt(variance)))
    return tuple(found[i] for i in sorted(found))


def model_error(
    fit: FitResult, groups: Sequence[str], residuals: slice, unit_factor: Array, prior: ModelError
) -> ModelError:
    """tau from how well groups are predicted that were left out, with its log-normal prior.

    `residuals` are the coordinates whose prior covariance is tau^2 times that of `unit_factor`. With fewer than three
    groups the prior stays.
    """
    names = list(dict.fromkeys(groups))
    if len(names) < _FEWEST_GROUPS or prior.log_sd == 0.0:
        return prior
    factor = fit.coordinates.factor.copy()
    log_density = np.empty(len(_GRID))
    for i, tau in enumerate(_GRID):
        factor[residuals, residuals] = tau * unit_factor
        density = sum(held.log_density() for held in _each_held(fit, groups, factor))
        log_density[i] = density - 0.5 * (np.log(tau / prior.value) / prior.log_sd) ** 2
    weights = np.exp(log_density - log_density.max())
    weights /= weights.sum()
    mean = float(weights @ np.log(_GRID))
    spread = float(np.sqrt(weights @ (np.log(_GRID) - mean) ** 2))
    return ModelError(float(np.exp(mean)), spread, len(names))


def _each_held(fit: FitResult, groups: Sequence[str], factor: Array) -> Iterator[_Held]:
    """Each group left out in turn: under the prior, target - f(m) - J (prior mean - m) ~ N(0, J F F' J' + S)."""
    names = list(dict.fromkeys(groups))
    if len(names) < 2:
        return
    shifted = fit.target - fit.predicted - fit.jacobian @ (fit.coordinates.mean - fit.mode)
    reach = fit.jacobian @ factor
    total = reach @ reach.T + np.diag((fit.noise_scale * fit.noise) ** 2)
    label = np.array([names.index(group) for group in groups])
    for j in range(len(names)):
        rows, others = np.flatnonzero(label == j), np.flatnonzero(label != j)
        gain = np.linalg.solve(total[np.ix_(others, others)], total[np.ix_(others, rows)]).T
        errors = shifted[rows] - gain @ shifted[others]
        covariance = total[np.ix_(rows, rows)] - gain @ total[np.ix_(others, rows)]
        yield _Held(rows.tolist(), errors, covariance)
