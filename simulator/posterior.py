"""Narrowing the priors by what was measured on the running baseline: a linearised (Gauss-Newton) update.

Light and quick, numpy only; `calibrate` does the full fit of many files. Both agree within the stated uncertainty.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_ITERATIONS = 12
_DIFFERENCE = 1e-2  # step of the numeric Jacobian in prior standard deviations
_MAX_STEP = 1.5  # per iteration, in prior standard deviations: the model is not linear further away
_CONVERGED = 1e-4


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
    best, best_loss = mode, np.inf
    jacobian = np.zeros((len(target), num_parameters))
    for _ in range(_ITERATIONS):
        at_mode, jacobian = _linearise(predict, mode)
        residual = (target - at_mode) / noise
        loss = float(residual @ residual + mode @ mode)
        if loss < best_loss:
            best, best_loss = mode, loss
        scaled = jacobian / noise[:, None]
        wanted = _solve(scaled, residual + scaled @ mode)
        step = np.clip(wanted - mode, -_MAX_STEP, _MAX_STEP)
        mode = mode + step
        if np.max(np.abs(step)) < _CONVERGED:
            break
    mode = mode if _loss(predict, mode, target, noise) <= best_loss else best
    at_mode, jacobian = _linearise(predict, mode)
    scaled = jacobian / noise[:, None]
    covariance = np.linalg.inv(scaled.T @ scaled + np.eye(num_parameters))
    return Posterior(mode, np.linalg.cholesky(covariance), (target - at_mode) / noise, labels)


def _solve(scaled: Array, right: Array) -> Array:
    """The minimiser of |right - scaled z|^2 + |z|^2."""
    return np.asarray(np.linalg.solve(scaled.T @ scaled + np.eye(scaled.shape[1]), scaled.T @ right))


def _loss(predict: Callable[[Array], Array], mode: Array, target: Array, noise: Array) -> float:
    residual = (target - predict(mode[None, :])[0]) / noise
    return float(residual @ residual + mode @ mode)


def _linearise(predict: Callable[[Array], Array], mode: Array) -> tuple[Array, Array]:
    """Prediction at the mode and its Jacobian `(num_observations, num_parameters)` by central differences."""
    steps = _DIFFERENCE * np.eye(len(mode))
    values = predict(np.concatenate([mode[None, :], mode + steps, mode - steps]))
    n = len(mode)
    return values[0], ((values[1 : n + 1] - values[n + 1 :]) / (2 * _DIFFERENCE)).T
