"""How much longer a block takes on one rank than on another: clocks, stragglers, and chance.

Only the size is known: the parameter `allreduce_skew_us` is the mean wait for the last rank inside an AllReduce. The
shape is an assumption with named constants (data/fits/links.toml); it is scaled so that the mean wait comes out.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hwmodel.link_constants import link_table

Array = NDArray[np.float64]
_CALIBRATION_SEED = 0  # the scale is a property of the shape, not of the run


@dataclass(frozen=True, slots=True)
class Jitter:
    """Seconds that each block takes more (or less) on each rank, `(num_ranks, num_blocks)`; the mean tends to 0."""

    extra_s: Array

    def stretched(self, rank: int, block: int, duration_s: float) -> float:
        """The duration of a block on a rank: a share of it is left at least."""
        floor: float = link_table()["jitter"]["smallest_share"]
        return max(duration_s + float(self.extra_s[rank, block]), floor * duration_s)


def no_jitter(num_ranks: int, num_blocks: int) -> Jitter:
    """Every rank takes exactly its time."""
    return Jitter(np.zeros((num_ranks, num_blocks)))


def sample_jitter(num_ranks: int, num_blocks: int, group: int, skew_s: float, rng: np.random.Generator) -> Jitter:
    """Jitter under which `group` ranks wait `skew_s` for the last of them on average."""
    if group < 2 or skew_s <= 0:
        return no_jitter(num_ranks, num_blocks)
    return Jitter(skew_s / _mean_wait(group) * _shape(num_ranks, num_blocks, rng))


def _shape(num_ranks: int, num_blocks: int, rng: np.random.Generator) -> Array:
    """Unscaled jitter: a part that stays with the rank, an exponential part, rare stragglers; each with zero mean."""
    return _mixture(rng.standard_exponential((num_ranks, 1)), rng, (num_ranks, num_blocks))


def _mixture(stays: Array, rng: np.random.Generator, size: tuple[int, int]) -> Array:
    shape = link_table()["jitter"]
    share, rare, excess = shape["persistent_share"], shape["straggler_probability"], shape["straggler_size"]
    fresh = rng.standard_exponential(size) - 1.0
    stragglers = excess * ((rng.random(size) < rare) - rare)
    return np.asarray(share * (stays - 1.0) + (1.0 - share) * fresh + stragglers)


def _mean_wait(group: int) -> float:
    """Mean over ranks and blocks of (last - own) for unscaled jitter: every sample another run, one column a rank."""
    rng = np.random.default_rng(_CALIBRATION_SEED)
    size = (int(link_table()["jitter"]["calibration_samples"]), group)
    samples = _mixture(rng.standard_exponential(size), rng, size)
    return float(np.mean(samples.max(axis=1) - samples.mean(axis=1)))
