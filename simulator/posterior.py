"""Narrowing the priors by what was measured on the running baseline: a linearised (Gauss-Newton) update.

Light and quick, numpy only; `calibrate` does the full fit of many files. Both agree within the stated uncertainty.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hwmodel.records import dataclass

Array = NDArray[np.float64]

_ITERATIONS = 10
_DIFFERENCE = 1e-3  # step of the numeric Jacobian in prior standard deviations
_MAX_STEP = 1.5  # per iteration, in prior standard deviations: the model is not linear further away
_RIDGE = 0.01  # two facts about one thing make the system singular
_CORRECTIONS = 2  # of each draw: leaves about 1 % of a noise width in the reference case
_DAMPING = 0.75  # full steps overshoot in turn along directions that the facts barely see
_HALVINGS = 40
_END = 3.09  # standard normal quantile at 99.9 %
_CONVERGED = 0.02  # prior standard deviations: far below any posterior width


@dataclass(frozen=True, slots=True)
class Observation:
    """One measured fact on a scale where its noise is about normal: the log of a time or rate, the logit of a share."""

    label: str
    value: float
    noise: float


@dataclass(frozen=True, slots=True)
class Posterior:
    """Normal approximation in prior coordinates, and how well the mode fits the facts.

    `mode` is `(num_parameters,)`, `factor` lower triangular with covariance factor @ factor.T, `jacobian`
    `(num_observations, num_parameters)` that of the predictions at the mode, `at_mode` those predictions.
    """

    mode: Array
    factor: Array
    residuals: Array  # (observed - predicted) / noise at the mode
    labels: tuple[str, ...]
    at_mode: Array
    jacobian: Array
    noise: Array
    kept: float | Array = 1.0  # share of the linear spread of each prediction that draws keep: more than fits the facts

    def draws(self, standard: Array, predict: Callable[[Array], Array] | None = None) -> Array:
        """Posterior coordinates from standard-normal ones, `(num_draws, num_parameters)`.

        With `predict`, each draw is moved (least change in posterior widths) until what it predicts of the facts is
        what the linear model said: parameters enter as exponentials, so a plain normal draw would overshoot the facts.
        """
        return self.moved(self.mode + standard @ self.factor.T, predict)

    def moved(self, z: Array, predict: Callable[[Array], Array] | None) -> Array:
        """Coordinates `(num_draws, num_parameters)` moved to agree with the facts; see `draws`."""
        if predict is None or not len(self.noise):
            return z
        wanted = self.at_mode + self.kept * ((z - self.mode) @ self.jacobian.T)
        spread = self.jacobian @ self.factor @ self.factor.T
        gain = np.linalg.solve(spread @ self.jacobian.T + np.diag(_RIDGE * self.noise**2), spread)
        for _ in range(_CORRECTIONS):
            z = z + np.clip((wanted - predict(z)) @ gain, -_MAX_STEP, _MAX_STEP)
        return z

    def carried(self, keep: NDArray[np.bool_]) -> "Posterior":
        """What remains when only some coordinates mean the same elsewhere: the others return to their priors."""
        covariance = self.factor @ self.factor.T
        apart = np.where(np.outer(keep, keep), covariance, np.eye(len(keep)))
        factor = np.linalg.cholesky(apart)
        return replace(self, mode=np.where(keep, self.mode, 0.0), factor=factor)


def condition(predict: Callable[[Array], Array], observations: list[Observation], num_parameters: int) -> Posterior:
    """Posterior of the coordinates given observations.

    `predict` maps coordinates `(n, num_parameters)` to predictions `(n, num_observations)`. The mode minimises
    sum((y - f(z))^2 / noise^2) + |z|^2 (docs/model.md, eq. B1); the covariance is (J' R^-1 J + 1)^-1 there.
    """
    labels = tuple(o.label for o in observations)
    if not observations:
        none = np.zeros(0)
        mode, jacobian = np.zeros(num_parameters), np.zeros((0, num_parameters))
        return Posterior(mode, np.eye(num_parameters), none, labels, none, jacobian, none)
    target = np.array([o.value for o in observations])
    noise = np.array([o.noise for o in observations])
    mode = np.zeros(num_parameters)
    at_mode, jacobian = linearise(predict, mode)
    for _ in range(_ITERATIONS):
        scaled = jacobian / noise[:, None]
        wanted = _solve(scaled, (target - at_mode) / noise + scaled @ mode)
        step = wanted - mode
        step *= min(_DAMPING, _MAX_STEP / max(float(np.max(np.abs(step))), 1e-12))
        mode = mode + step
        at_mode, jacobian = linearise(predict, mode)
        if np.max(np.abs(step)) < _CONVERGED:
            break
    scaled = jacobian / noise[:, None]
    covariance = np.linalg.inv(scaled.T @ scaled + np.eye(num_parameters))
    factor = np.linalg.cholesky(covariance)
    return Posterior(mode, factor, (target - at_mode) / noise, labels, at_mode, jacobian, noise)


def conflict_error(
    predict: Callable[[Array], Array], observations: list[Observation], num_parameters: int, usual: float
) -> float:
    """The least error of the model, beside its `usual` one, with which the priors allow the observations; 0 mostly.

    The tau with (y - f(0))' (J J' + R + usual^2 + tau^2)^-1 (y - f(0)) = chi^2 at 99.9 % (docs/model.md, eq. B2).
    """
    at_prior, jacobian = linearise(predict, np.zeros(num_parameters))
    errors = np.array([o.value for o in observations]) - at_prior
    covariance = jacobian @ jacobian.T + np.diag([o.noise**2 + usual**2 for o in observations])
    variances, axes = np.linalg.eigh(covariance)
    squared = (axes.T @ errors) ** 2
    most = _allowed(len(errors))
    low, high = 0.0, float(squared.sum() / most)  # of tau^2: at `high` the sum is below
    if float(np.sum(squared / variances)) <= most:
        return 0.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if float(np.sum(squared / (variances + middle))) > most else (low, middle)
    return float(np.sqrt(high))


def _allowed(count: int) -> float:
    """The 99.9 % point of chi^2 with `count` degrees of freedom (Wilson and Hilferty, within 3 %)."""
    part = 2.0 / (9.0 * count)
    return float(count * (1.0 - part + _END * part**0.5) ** 3)


def conditioned(prior: Posterior, predict: Callable[[Array], Array], observations: list[Observation]) -> Posterior:
    """`prior` narrowed by further observations of coordinates `(n, num_parameters)`; it holds what both say."""
    inside = condition(lambda u: predict(prior.mode + u @ prior.factor.T), observations, len(prior.mode))
    mode, factor = prior.mode + prior.factor @ inside.mode, prior.factor @ inside.factor
    jacobian = np.asarray(np.linalg.solve(prior.factor.T, inside.jacobian.T).T)
    return replace(inside, mode=mode, factor=factor, jacobian=jacobian)


def _solve(scaled: Array, right: Array) -> Array:
    """The minimiser of |right - scaled z|^2 + |z|^2."""
    return np.asarray(np.linalg.solve(scaled.T @ scaled + np.eye(scaled.shape[1]), scaled.T @ right))


def linearise(predict: Callable[[Array], Array], mode: Array) -> tuple[Array, Array]:
    """Prediction at the mode and its Jacobian `(num_observations, num_parameters)` by forward differences."""
    values = predict(np.concatenate([mode[None, :], mode + _DIFFERENCE * np.eye(len(mode))]))
    return values[0], ((values[1:] - values[0]) / _DIFFERENCE).T
