"""How requests differ in acceptance: levels of S_1..S_k that pool to the given per-draft vector.

Counters pool over drafts, and a request with poor acceptance needs more drafts for the same output. So the spread is
put on drafts (uniform over levels, mean S_i exactly), and requests are drawn in proportion to the tokens per step of
their level: the pooled vector of a run is then the given one (docs/model.md, acceptance, heterogeneity).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

NUM_LEVELS = 64  # of requests; the mean within each is exact, so this only quantises the tails
NUM_STRETCHES = 16  # of good and bad stretches within a request
_GOLDEN_RATIO = 0.6180339887498949  # its multiples fill the unit interval evenly (Weyl sequence)
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

    Formula: mean of slice j = n S_i (I(q_{j+1}; a + 1, b) - I(q_j; a + 1, b)) with q_j the quantile j / n and I the
    regularised incomplete beta function. One quantile for all positions: a good request is good at each of them, and
    since Beta quantiles grow with their mean, S_1 >= S_2 >= ... holds at every level.
    """
    flat = np.broadcast_to(means, (num_levels, len(means)))
    spread = (means > 0.0) & (means < 1.0)
    if concentration >= _FLAT or not spread.any():
        return np.array(flat)
    from scipy.special import betainc, betaincinv  # slow to import, and only simulations need it

    levels = np.array(flat)
    a, b = concentration * means[spread], concentration * (1.0 - means[spread])
    edges = betaincinv(a, b, np.linspace(0.0, 1.0, num_levels + 1)[:, None])
    levels[:, spread] = num_levels * means[spread] * np.diff(betainc(a + 1.0, b, edges), axis=0)
    return np.clip(levels, 0.0, 1.0)
