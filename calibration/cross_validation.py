"""Leaving measurements out: what the others say of each concurrency.

Computed in the linear model at the mode, where leaving out is algebra instead of refits (docs/calibration.md, eq. C3).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from calibration.fit_result import FitResult

Array = NDArray[np.float64]

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
class _Held:
    """A group of observations, what the others predict of its errors, and their covariance."""

    rows: list[int]
    errors: Array
    covariance: Array


def leave_out(fit: FitResult, groups: Sequence[str]) -> tuple[LeftOut, ...]:
    """Every observation predicted from the groups that it does not belong to; empty with fewer than two groups."""
    if len(set(groups)) < 2:
        return ()
    return surprises(fit, groups, fit.coordinates.factor, fit.noise_scale * fit.noise)


def surprises(fit: FitResult, groups: Sequence[str], factor: Array, noise: Array) -> tuple[LeftOut, ...]:
    """The same for a `factor` of the prior covariance and `noise`; a group alone is predicted from the priors."""
    found: dict[int, LeftOut] = {}
    for held in _each_held(fit, groups, factor, noise):
        for i, error, variance in zip(held.rows, held.errors, np.diag(held.covariance), strict=True):
            o = fit.observations[i]
            found[i] = LeftOut(o.label, groups[i], o.value, o.value - float(error), float(np.sqrt(variance)))
    return tuple(found[i] for i in sorted(found))


def _each_held(fit: FitResult, groups: Sequence[str], factor: Array, noise: Array) -> Iterator[_Held]:
    """Each group left out in turn: under the prior, target - f(m) - J (prior mean - m) ~ N(0, J F F' J' + S)."""
    names = list(dict.fromkeys(groups))
    shifted = fit.target - fit.predicted - fit.jacobian @ (fit.coordinates.mean - fit.mode)
    reach = fit.jacobian @ factor
    total = reach @ reach.T + np.diag(noise**2)
    label = np.array([names.index(group) for group in groups])
    for j in range(len(names)):
        rows, others = np.flatnonzero(label == j), np.flatnonzero(label != j)
        gain = np.linalg.solve(total[np.ix_(others, others)], total[np.ix_(others, rows)]).T
        errors = shifted[rows] - gain @ shifted[others]
        covariance = total[np.ix_(rows, rows)] - gain @ total[np.ix_(others, rows)]
        yield _Held(rows.tolist(), errors, covariance)
