"""How requests differ in acceptance: levels of S_1..S_k that pool to the given per-draft vector.

Counters pool over drafts, and a request with poor acceptance needs more drafts for the same output. So the spread is
put on drafts (uniform over levels, mean S_i exactly), and requests are drawn in proportion to the tokens per step of
their level: the pooled vector of a run is then the given one (docs/serving.md).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

NUM_LEVELS = 64  # of requests; the mean within each is exact, so this only quantises the tails
NUM_STRETCHES = 16  # of good and bad stretches within a request
_GOLDEN_RATIO = 0.6180339887498949  # its multiples fill the unit interval evenly (Weyl sequence)
_MIDDLE = 0.5
_SHARPEST = 0.05  # concentration below which requests accept all or nothing anyway
_FLAT = 1e6  # concentration from which on requests do not differ


@dataclass(frozen=True, slots=True)
class Population:
    """`survival` is `(num_levels, num_stretches, k)`; `cumulative` `(num_levels,)` the shares of requests below."""

    survival: Array
    cumulative: Array
    offset: float

    def level_of(self, number: int) -> int:
        """The level of a request.

        By its number, spread evenly instead of at random: a run of some dozen requests then has nearly the mean of
        the population, which keeps the difference of two runs free of that noise.
        """
        place = (self.offset + number * _GOLDEN_RATIO) % 1.0
        return int(self.cumulative.searchsorted(place, side="right"))

    @property
    def mean_survival(self) -> Array:
        """The pooled S_1..S_k, `(k,)`."""
        return np.asarray(self.survival.mean(axis=(0, 1)))


def population(
    survival: Array, draft_probability: float, concentration: float, *, stretches: bool, offset: float = 0.0
) -> Population:
    """Levels around the pooled S_1..S_k `(k,)` with Beta concentration kappa (`concentration`).

    `stretches` adds a spread of the same concentration within each request, for acceptance that comes and goes.
    """
    levels = beta_levels(survival, concentration, NUM_LEVELS)[:, None, :]
    if stretches:
        levels = np.stack([beta_levels(row, concentration, NUM_STRETCHES) for row in levels[:, 0]])
    tokens_per_step = 1.0 + draft_probability * levels.mean(axis=1).sum(axis=1)
    return Population(levels, np.cumsum(tokens_per_step)[:-1] / tokens_per_step.sum(), offset)


def beta_levels(means: Array, concentration: float, num_levels: int) -> Array:
    """Means of equal slices of Beta(kappa S_i, kappa (1 - S_i)), `(num_levels, k)`; each column has mean S_i exactly.

    One quantile for all positions: a good request is good at each of them, and since Beta quantiles grow with their
    mean, S_1 >= S_2 >= ... holds at every level.
    """
    flat = np.broadcast_to(means, (num_levels, len(means)))
    spread = (means > 0.0) & (means < 1.0)
    if concentration >= _FLAT or not spread.any():
        return np.array(flat)
    levels = np.array(flat)
    wanted, kappa = means[spread], max(concentration, _SHARPEST)
    lower = _slice_means(np.minimum(wanted, 1.0 - wanted), kappa, num_levels)
    levels[:, spread] = np.where(wanted <= _MIDDLE, lower, 1.0 - lower[::-1])  # 1 - X is Beta with mean 1 - S
    return np.clip(levels, 0.0, 1.0)


def _slice_means(means: Array, kappa: float, num_slices: int) -> Array:
    """Means of equal slices of Beta(kappa m, kappa (1 - m)), `(num_slices, k)`, for means m up to one half.

    Formula: n m (J(q_{j+1}) - J(q_j)) with q_j the quantile j / n and J(x) = I(x; a + 1, b) the regularised incomplete
    beta function; near x = 1, J(x) = I(x; a, b) - x^a (1 - x)^b / (a B(a, b)) with 1 - x as a quantile of Beta(b, a),
    since the difference has lost its digits there.
    """
    from scipy.special import betainc, betaincinv, betaln, xlogy  # slow to import, and only simulations need it

    a, b = kappa * means, kappa * (1.0 - means)
    share = np.linspace(0.0, 1.0, num_slices + 1)[:, None]
    low, high = betaincinv(a, b, share), betaincinv(b, a, 1.0 - share)
    near_one = share - np.exp(xlogy(a, low) + xlogy(b, high) - betaln(a, b)) / a
    below = np.where(low < _MIDDLE, betainc(a + 1.0, b, low), near_one)
    return np.asarray(num_slices * means * np.diff(below, axis=0))
