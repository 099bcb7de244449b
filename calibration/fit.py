"""The fit: maximum a posteriori of named coordinates given observations, with a Laplace covariance.

Generic: the model is a function from rows of coordinates to rows of predictions, evaluated for many rows at once. So
another module can fit its own forward function (`fit_map`). Equations: docs/calibration.md, eq. C1.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from calibration.bootstrap import refits
from calibration.coordinates import Coordinates
from calibration.fit_result import FitResult
from hwmodel.errors import InputError
from simulator.posterior import Observation

Array = NDArray[np.float64]
Predict = Callable[[Array], Array]  # (rows, num_coordinates) -> (rows, num_observations)

_DIFFERENCE = 1e-3  # step of the numeric Jacobian in prior standard deviations (docs/model.md, spec section 7)
_AT_BOUND = 1e-2  # prior standard deviations from a bound that count as on it
_SAME_MINIMUM = 0.1  # of the objective: starts that end closer found the same
_MAX_EVALUATIONS = 60


@dataclass(frozen=True, slots=True)
class FitOptions:
    """How to fit: starts beside the first one, refits for the spread (more where a bound is hit), and their seed.

    `start` is where the first search begins, by default the prior mean: the mode of a fit to nearly the same.
    """

    num_starts: int = 3
    num_refits: int = 60
    num_refits_at_bound: int = 200
    seed: int = 0
    start: Array | None = None


def fit_map(
    predict: Predict,
    observations: Sequence[Observation],
    coordinates: Coordinates,
    options: FitOptions | None = None,
) -> FitResult:
    """The mode and covariance of `coordinates` given `observations`, whose noise is normal on their scale.

    Minimises sum(((y - f(x)) / s)^2) + (prior)^2 within the bounds from several starts; where chi2 / n is above 1, once
    more with s scaled by its root. The covariance is that of the linear model at the mode, corrected by refits to data
    and priors drawn anew for curvature and bounds. Without observations the prior is returned.
    """
    settings = options or FitOptions()
    problem = _Problem(predict, tuple(observations), coordinates)
    ends = [problem.minimum(start) for start in _starts(coordinates, settings)]
    best = min(ends, key=lambda end: end[1])
    others = tuple(sorted({round(cost, 3) for _, cost in ends if cost > best[1] + _SAME_MINIMUM}))
    result = problem.result(*problem.rescaled(*best), others)
    wanted = settings.num_refits_at_bound if result.at_bound.any() else settings.num_refits
    if not observations or not settings.num_refits:
        return result
    drawn = refits(problem.linearise, result, wanted, np.random.default_rng(settings.seed))
    return replace(result, covariance=drawn.covariance(result), num_refits=len(drawn.modes))


def _starts(coordinates: Coordinates, options: FitOptions) -> list[Array]:
    """The first start, then prior draws, all inside the bounds."""
    rng = np.random.default_rng(options.seed)
    draws = rng.standard_normal((options.num_starts, coordinates.size)) @ coordinates.factor.T
    edge = 0.05 * coordinates.spread
    low, high = coordinates.low + edge, coordinates.high - edge
    first = coordinates.mean if options.start is None else options.start
    return [np.clip(start, low, high) for start in [first, *(coordinates.mean + draw for draw in draws)]]


class _Problem:
    """One fit's function and data."""

    def __init__(self, predict: Predict, observations: tuple[Observation, ...], coordinates: Coordinates) -> None:
        self.predict, self.observations, self.coordinates = predict, observations, coordinates
        self.target = np.array([o.value for o in observations])
        self.noise = np.array([o.noise for o in observations])
        self.scale = 1.0  # of the noise
        if not np.all(np.isfinite(self.target)) or not np.all(self.noise > 0):
            raise InputError("fit: got an observation that is no finite number with a noise above 0")

    def linearise(self, points: Array) -> tuple[Array, Array]:
        """Predictions `(rows, m)` at `points` `(rows, n)` and their Jacobians `(rows, m, n)`, in one evaluation."""
        rows, size = points.shape
        if not self.observations:
            return np.zeros((rows, 0)), np.zeros((rows, 0, size))
        steps = _DIFFERENCE * self.coordinates.spread
        # Towards the inside where a bound is near: beyond it nothing changes.
        signs = np.where(points + steps > self.coordinates.high, -1.0, 1.0)
        moved = points[:, None, :] + signs[:, :, None] * np.diag(steps)
        values = self.predict(np.concatenate([points[:, None, :], moved], axis=1).reshape(-1, size))
        values = values.reshape(rows, size + 1, -1)
        slopes = (values[:, 1:] - values[:, :1]) / (signs * steps)[:, :, None]
        return values[:, 0], np.swapaxes(slopes, 1, 2)

    def minimum(self, start: Array) -> tuple[Array, float]:
        """Where a search from `start` ends, and the objective there."""
        known: dict[bytes, tuple[Array, Array]] = {}
        inverse, noise = np.linalg.inv(self.coordinates.factor), self.scale * self.noise

        def at(y: Array) -> tuple[Array, Array]:
            key = y.tobytes()
            if key not in known:
                known.clear()
                values, jacobian = self.linearise(y[None, :])
                known[key] = values[0], jacobian[0]
            return known[key]

        def rows(y: Array) -> Array:
            return np.concatenate([(at(y)[0] - self.target) / noise, self.coordinates.prior_rows(y)])

        def slopes(y: Array) -> Array:
            return np.concatenate([at(y)[1] / noise[:, None], inverse])

        found = least_squares(
            rows,
            start,
            slopes,
            bounds=(self.coordinates.low, self.coordinates.high),
            method="trf",
            x_scale=self.coordinates.spread,
            max_nfev=_MAX_EVALUATIONS,
            xtol=1e-6,
            ftol=1e-7,
            gtol=1e-6,
        )
        return np.asarray(found.x), 2.0 * float(found.cost)

    def rescaled(self, mode: Array, objective: float) -> tuple[Array, float]:
        """The mode once more where the data scatter more than their noise; the objective stays that of the noise."""
        if self.observations:
            residuals = (self.target - self.linearise(mode[None, :])[0][0]) / self.noise
            self.scale = float(np.sqrt(max(1.0, np.mean(residuals**2))))
        return (self.minimum(mode)[0] if self.scale > 1.0 else mode), objective

    def result(self, mode: Array, objective: float, others: tuple[float, ...]) -> FitResult:
        """Everything about the mode."""
        values, jacobians = self.linearise(mode[None, :])
        predicted, jacobian = values[0], jacobians[0]
        factor = self.coordinates.factor
        scaled = jacobian / (self.scale * self.noise[:, None]) @ factor
        inside = np.linalg.inv(np.eye(len(mode)) + scaled.T @ scaled)
        covariance = np.asarray(factor @ inside @ factor.T)
        close = _AT_BOUND * self.coordinates.spread
        at_bound = (mode - self.coordinates.low < close) | (self.coordinates.high - mode < close)
        return FitResult(
            coordinates=self.coordinates,
            observations=self.observations,
            mode=mode,
            covariance=covariance,
            linear_covariance=covariance,
            predicted=predicted,
            jacobian=jacobian,
            residuals=(self.target - predicted) / self.noise,
            at_bound=at_bound,
            noise_scale=self.scale,
            objective=objective,
            other_minima=others,
        )
