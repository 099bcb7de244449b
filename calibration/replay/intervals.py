"""Intervals of ratios over requests: the cluster bootstrap, honest about few requests."""

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from calibration.replay.grams import Flags
from calibration.replay.recording import Ints

Floats = NDArray[np.float64]
LEVEL = 0.95
DRAWS = 1000
MAX_CLUSTERS = 500  # more requests are dealt into so many groups: as good, and bounded
_MANY = 30  # from here Student's factor is below 1.05 and left out
_PERCENT = 100


@dataclass(frozen=True, slots=True)
class Resampling:
    """How often each cluster (a request, a group of requests, or a block of the only one) is drawn in each resample."""

    cluster: Ints  # of each row of counts; -1: the row is not used
    weights: Floats  # (DRAWS, num_clusters)
    are_requests: bool

    @property
    def number(self) -> int:
        """Clusters."""
        return int(self.weights.shape[1])

    def sums(self, counts: Ints) -> Floats:
        """Column sums of every resample, (DRAWS, num_columns), of counts by row."""
        used = self.cluster >= 0
        by_cluster = np.zeros((self.number, counts.shape[1]))
        np.add.at(by_cluster, self.cluster[used], counts[used])
        return np.asarray(self.weights @ by_cluster)


def resampling(has_steps: Flags, rng: np.random.Generator, *, are_requests: bool = True) -> Resampling:
    """Resamples of the rows that have steps, in random groups where they are very many."""
    rows = np.flatnonzero(has_steps)
    cluster = np.full(len(has_steps), -1, np.int64)
    number = min(len(rows), MAX_CLUSTERS)
    cluster[rows] = np.arange(len(rows)) if number == len(rows) else rng.permutation(len(rows)) % number
    weights = np.zeros((DRAWS, number))
    if number:
        weights[:] = rng.multinomial(number, np.full(number, 1.0 / number), size=DRAWS)
    return Resampling(cluster, weights, are_requests)


def interval(draws: Floats, point: float, num_clusters: int, least_error: float) -> tuple[float, float]:
    """The central 95 % of `draws` of a ratio around its `point`, at least as wide as `least_error` would make it.

    Few clusters resampled look too much alike: deviations are widened by sqrt(R / (R - 1)) and by Student's quantile
    over the normal one, which is what makes the interval cover with a handful of requests. Equal requests would give
    no width at all: `least_error` is the standard error if their steps were independent.
    """
    least = NormalDist().inv_cdf((1 + LEVEL) / 2) * least_error
    below = above = 0.0
    if num_clusters > 1 and len(draws):
        tail = _PERCENT * (1 - LEVEL) / 2
        low, high = np.percentile(draws, [tail, _PERCENT - tail])
        factor = math.sqrt(num_clusters / (num_clusters - 1)) * student_factor(num_clusters)
        below, above = factor * (point - float(low)), factor * (float(high) - point)
    return point - max(below, least), point + max(above, least)


def independent_error(total: float, squares: float, trials: int) -> float:
    """Standard error of a mean of independent trials from their sum and sum of squares.

    With half a trial more that counted one, so that "never" in a few trials is not taken for certain.
    """
    mean, square = (total + 0.5) / (trials + 1), (squares + 0.5) / (trials + 1)
    return math.sqrt(max(square - mean**2, 0.0) / trials)


def student_factor(num_clusters: int) -> float:
    """Student's 97.5 % quantile over the normal one; 1 for many clusters, and that of two for one."""
    if num_clusters > _MANY:
        return 1.0
    from scipy.special import ndtri, stdtrit  # only for a handful of requests: it takes a tenth of a second to load

    upper = (1 + LEVEL) / 2
    return float(stdtrit(max(num_clusters - 1, 1), upper) / ndtri(upper))
