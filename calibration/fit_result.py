"""What a fit found: mode, covariance, residuals, and what follows from them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.coordinates import Coordinates
from simulator.posterior import Observation

Array = NDArray[np.float64]


@dataclass(frozen=True)
class FitResult:
    """The posterior of the coordinates around its mode.

    `residuals` are (observed - predicted) / noise, `jacobian` `(num_observations, n)` that of the predictions.
    """

    coordinates: Coordinates
    observations: tuple[Observation, ...]
    mode: Array
    covariance: Array
    linear_covariance: Array  # of the linear model at the mode: what predictions near the data vary by
    predicted: Array
    jacobian: Array
    residuals: Array
    at_bound: NDArray[np.bool_]
    noise_scale: float  # the noise was found this many times larger than stated (1 at least)
    objective: float  # chi squared of the data and of the prior
    other_minima: tuple[float, ...] = ()  # objectives of starts that ended elsewhere, above the best
    num_refits: int = 0  # behind the covariance; 0: the linear model's

    @property
    def noise(self) -> Array:
        """Noise of the observations as stated."""
        return np.array([o.noise for o in self.observations])

    @property
    def target(self) -> Array:
        """Observed values."""
        return np.array([o.value for o in self.observations])

    @property
    def spread(self) -> Array:
        """Posterior standard deviations, `(n,)`."""
        return np.asarray(np.sqrt(np.diag(self.covariance)))

    @property
    def correlation(self) -> Array:
        """Posterior correlations, `(n, n)`."""
        return np.asarray(self.covariance / np.outer(self.spread, self.spread))

    @property
    def factor(self) -> Array:
        """Lower triangular factor of the covariance."""
        return np.asarray(np.linalg.cholesky(self.covariance))

    @property
    def log_evidence(self) -> float:
        """Log of the probability of the data under this model, by Laplace; compares models on the same data."""
        scaled = self.jacobian / self.noise[:, None] @ self.coordinates.factor
        _, log_det = np.linalg.slogdet(np.eye(self.coordinates.size) + scaled.T @ scaled)
        return float(-0.5 * (self.objective + log_det) - np.sum(np.log(self.noise)))

    def index(self, name: str) -> int:
        """Place of a coordinate."""
        return self.coordinates.names.index(name)
