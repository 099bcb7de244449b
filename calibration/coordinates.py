"""Named coordinates with a joint normal prior and bounds: what a fit moves.

A model parameter enters by its prior coordinate (`simulator.parameters`: standard normal, 0 the prior median); what has
no table entry (a residual, an unknown acceptance) by its own value and a normal prior.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from simulator.parameters import Prior, PriorSet

Array = NDArray[np.float64]

_FARTHEST = 8.0  # prior standard deviations: no data should carry a parameter further


@dataclass(frozen=True)
class Coordinates:
    """`names`, prior mean `(n,)`, lower triangular `factor` of the prior covariance, bounds `low` and `high` `(n,)`."""

    names: tuple[str, ...]
    mean: Array
    factor: Array
    low: Array
    high: Array

    @property
    def size(self) -> int:
        """How many."""
        return len(self.names)

    @property
    def spread(self) -> Array:
        """Prior standard deviation of each, `(n,)`."""
        return np.asarray(np.sqrt(np.sum(self.factor**2, axis=1)))

    def prior_rows(self, y: Array) -> Array:
        """The prior's residuals at `y`: standard normal under it."""
        return np.asarray(np.linalg.solve(self.factor, y - self.mean))

    def __add__(self, other: "Coordinates") -> "Coordinates":
        """Both, independent of each other."""
        n, m = self.size, other.size
        factor = np.zeros((n + m, n + m))
        factor[:n, :n], factor[n:, n:] = self.factor, other.factor
        return Coordinates(
            self.names + other.names,
            np.concatenate([self.mean, other.mean]),
            factor,
            np.concatenate([self.low, other.low]),
            np.concatenate([self.high, other.high]),
        )

    def updated(self, mean: Array, factor: Array) -> "Coordinates":
        """The same coordinates with another prior, such as an earlier posterior."""
        return replace(self, mean=mean, factor=factor)


def coordinates_of(priors: PriorSet) -> Coordinates:
    """The prior coordinates of a set of parameters, with the bounds that cut their values."""
    bounds = np.array([_bounds(prior) for prior in priors.priors]).reshape(-1, 2)
    size = len(priors.priors)
    names = tuple(prior.name for prior in priors.priors)
    return Coordinates(names, np.zeros(size), np.eye(size), bounds[:, 0], bounds[:, 1])


def normal_coordinates(names: tuple[str, ...], covariance_factor: Array) -> Coordinates:
    """Coordinates around 0 with this factor of their covariance, without bounds."""
    size = len(names)
    wide = np.full(size, np.inf)
    return Coordinates(names, np.zeros(size), covariance_factor, -wide, wide)


def _bounds(prior: Prior) -> tuple[float, float]:
    """The coordinates at which `Prior.values` starts to cut."""
    if prior.kind == "switch" or prior.spread == 0.0:
        return -_FARTHEST, _FARTHEST
    if prior.kind == "lognormal":
        with np.errstate(divide="ignore"):
            low, high = (np.log(np.array([prior.low, prior.high]) / prior.center) / prior.spread).tolist()
    else:
        low, high = ((np.array([prior.low, prior.high]) - prior.center) / prior.spread).tolist()
    return max(low, -_FARTHEST), min(high, _FARTHEST)
