"""Narrowing the priors by what was measured on the running baseline: a linearised (Gauss-Newton) update.

Light and quick, numpy only; `calibrate` does the full fit of many files. Both agree within the stated uncertainty.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_ITERATIONS = 10
_DIFFERENCE = 1e-3  # step of the numeric Jacobian in prior standard deviations
_MAX_STEP = 1.5  # per iteration, in prior standard deviations: the model is not linear further away
_DAMPING = 0.75  # full steps overshoot in turn along directions that the facts barely see
_CONVERGED = 0.02  # prior standard deviations: far below any posterior width


@dataclass(frozen=True, slots=True)
class Observation:
    """One measured fact on a scale where its noise is about normal: the log of a time or rate, the logit of a share."""

    label: str
    value: float
    noise: float


@dataclass(frozen=True, slots=True)
class Posterior:
    """Normal approximation in prior coordinates: mode `(num_parameters,)`, Cholesky factor, and how well it fits."""

    mode: Array
    factor: Array  # lower triangular: covariance = factor @ factor.T
    residuals: Array  # (observed - predicted) / noise at the mode
    labels: tuple[str, ...]

    def draws(self, standard: Array) -> Array:
        """Posterior coordinates from standard-normal ones, `(num_draws, num_parameters)`."""
        return self.mode + standard @ self.factor.T

    def carried(self, keep: NDArray[np.bool_]) -> "Posterior":
        """What remains when only some coordinates mean the same elsewhere: the others return to their priors."""
        covariance = self.factor @ self.factor.T
        apart = np.where(np.outer(keep, keep), covariance, np.eye(len(keep)))
        return Posterior(np.where(keep, self.mode, 0.0), np.linalg.cholesky(apart), self.residuals, self.labels)


def condition(predict: Callable[[Array], Array], observations: list[Observation], num_parameters: int) -> Posterior:
    """Posterior of the coordinates given observations.

    `predict` maps coordinates `(n, num_parameters)` to predictions `(n, num_observations)`. The mode minimises
    sum((y - f(z))^2 / noise^2) + |z|^2 (docs/model.md, eq. B1); the covariance is (J' R^-1 J + 1)^-1 there.
    """
    labels = tuple(o.label for o in observations)
    if not observations:
        return Posterior(np.zeros(num_parameters), np.eye(num_parameters), np.zeros(0), labels)
    target = np.array([o.value for o in observations])
    noise = np.array([o.noise for o in observations])
    mode = np.zeros(num_parameters)
    at_mode, jacobian = _linearise(predict, mode)
    for _ in range(_ITERATIONS):
        scaled = jacobian / noise[:, None]
        wanted = _solve(scaled, (target - at_mode) / noise + scaled @ mode)
        step = wanted - mode
        step *= min(_DAMPING, _MAX_STEP / max(float(np.max(np.abs(step))), 1e-12))
        mode = mode + step
        at_mode, jacobian = _linearise(predict, mode)
        if np.max(np.abs(step)) < _CONVERGED:
            break
    scaled = jacobian / noise[:, None]
    covariance = np.linalg.inv(scaled.T @ scaled + np.eye(num_parameters))
    return Posterior(mode, np.linalg.cholesky(covariance), (target - at_mode) / noise, labels)


def _solve(scaled: Array, right: Array) -> Array:
    """The minimiser of |right - scaled z|^2 + |z|^2."""
    return np.asarray(np.linalg.solve(scaled.T @ scaled + np.eye(scaled.shape[1]), scaled.T @ right))


def _linearise(predict: Callable[[Array], Array], mode: Array) -> tuple[Array, Array]:
    """Prediction at the mode and its Jacobian `(num_observations, num_parameters)` by forward differences."""
    values = predict(np.concatenate([mode[None, :], mode + _DIFFERENCE * np.eye(len(mode))]))
    return values[0], ((values[1:] - values[0]) / _DIFFERENCE).T
