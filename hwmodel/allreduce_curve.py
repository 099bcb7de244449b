"""AllReduce time over message size as one record: measured points in, a non-decreasing curve out."""

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from hwmodel.records import dataclass

Floats = npt.NDArray[np.float64]
_DENSE_RATIO = 2.0  # neighbours at most an octave apart: the log-log line is then within 2 % of latency + bytes / rate


@dataclass(frozen=True, eq=False)
class AllReduceCurve:
    """Seconds of one AllReduce at increasing message sizes, each with the algorithm that ran.

    `kind` is "measured" (a published table of this card and class), "model" (derived, `source` says from what) or
    "user" (the operator's nccl-tests). `num_gpus` is 0 where unknown. Build one with `curve_from_points`.
    """

    sizes_bytes: Floats  # (n,), increasing
    times_s: Floats  # (n,), non-decreasing
    algorithms: tuple[str, ...]
    source: str
    kind: str
    num_gpus: int = 0

    def time_s(self, num_bytes: npt.ArrayLike) -> Floats:
        """Seconds for messages of `num_bytes`, in its shape.

        Log-log between the points; constant below the first, where only latency counts; above the last at the last
        point's bytes per second, the careful choice for a table that ends early.
        """
        size = np.asarray(num_bytes, dtype=np.float64)
        first, last, is_zero = self._bounds
        if is_zero:
            return np.zeros_like(size)
        log_size = np.log(np.minimum(np.maximum(size, first), last))
        inside = np.exp(np.interp(log_size, self._log_sizes, self._log_times))
        return np.asarray(inside * np.maximum(size / last, 1.0))

    @property
    def latency_s(self) -> float:
        """Seconds at the smallest size of the table."""
        return float(self.times_s[0])

    def algorithm_at(self, num_bytes: float) -> str:
        """Name of the algorithm that moves a message of `num_bytes`: that of the nearest point at or below it."""
        position = int(np.searchsorted(self.sizes_bytes, num_bytes, side="right")) - 1
        return self.algorithms[max(position, 0)]

    def bus_bandwidth_bytes_per_s(self, num_bytes: npt.ArrayLike) -> Floats:
        """nccl-tests' "busbw": 2 (n - 1) / n * bytes / time, what each link carries; 0 for the zero curve."""
        size, time = np.asarray(num_bytes, dtype=np.float64), self.time_s(num_bytes)
        factor = 2 * (self.num_gpus - 1) / self.num_gpus if self.num_gpus else 0.0
        return np.asarray(np.divide(factor * size, time, out=np.zeros_like(size), where=time > 0))

    @cached_property
    def _bounds(self) -> tuple[float, float, bool]:
        return float(self.sizes_bytes[0]), float(self.sizes_bytes[-1]), bool(self.times_s[-1] == 0.0)

    @cached_property
    def _log_sizes(self) -> Floats:
        return np.log(self.sizes_bytes)

    @cached_property
    def _log_times(self) -> Floats:
        return np.log(self.times_s)


@dataclass(frozen=True)
class Provenance:
    """Where a curve comes from and for how many GPUs it holds."""

    source: str
    kind: str
    num_gpus: int


def zero_curve(num_gpus: int = 1) -> AllReduceCurve:
    """The curve of a single GPU: no time at any size."""
    return AllReduceCurve(np.ones(1), np.zeros(1), ("none",), "one GPU: nothing to reduce", "model", num_gpus)


def curve_from_points(
    points: Mapping[int, float] | Mapping[float, float], algorithm: str, about: Provenance
) -> AllReduceCurve:
    """A curve through measured `points` (bytes -> seconds), made non-decreasing, with a point in every octave."""
    in_order = sorted(points.items())
    sizes = np.array([size for size, _ in in_order], dtype=np.float64)
    times = non_decreasing(np.array([time for _, time in in_order], dtype=np.float64))
    filled = _filled_octaves(sizes)
    return _curve(filled, np.interp(filled, sizes, times), [algorithm] * len(filled), about)


def join_at(below: AllReduceCurve, above: AllReduceCurve, threshold_bytes: float, source: str) -> AllReduceCurve:
    """`below` for messages up to `threshold_bytes`, `above` for larger ones.

    A threshold past the point where the two cross leaves a step down right after it. It stays: it is what a
    threshold set too high costs.
    """
    next_bytes = threshold_bytes + 1
    low = np.append(below.sizes_bytes[below.sizes_bytes < threshold_bytes], threshold_bytes)
    high = np.insert(above.sizes_bytes[above.sizes_bytes > next_bytes], 0, next_bytes)
    times = np.concatenate([below.time_s(low), above.time_s(high)])
    names = [below.algorithm_at(size) for size in low] + [above.algorithm_at(size) for size in high]
    about = Provenance(source, _joint_kind(below, above), above.num_gpus)
    return _curve(np.concatenate([low, high]), times, names, about)


def _joint_kind(first: AllReduceCurve, second: AllReduceCurve) -> str:
    return "model" if "model" in (first.kind, second.kind) else first.kind


def crossover_bytes(custom: AllReduceCurve, nccl: AllReduceCurve) -> float:
    """Largest size up to which `custom` is at least as fast as `nccl`: 0 if never, infinity if always."""
    grid = np.union1d(custom.sizes_bytes, nccl.sizes_bytes)
    log_ratio = np.log(custom.time_s(grid) / nccl.time_s(grid))
    slower = np.flatnonzero(log_ratio > 0)
    if not slower.size:
        return float("inf")
    first = int(slower[0])
    if first == 0:
        return 0.0
    before, after = log_ratio[first - 1], log_ratio[first]
    return float(grid[first - 1] * (grid[first] / grid[first - 1]) ** (before / (before - after)))


def non_decreasing(times_s: Floats) -> Floats:
    """Nearest non-decreasing sequence to positive `times_s` (n,), in log time: falling stretches get their mean.

    More bytes must never cost less, or a larger batch looks cheaper than a smaller one; yet tables fall where NCCL
    changes protocol (RTX PRO 6000, 8 GPUs: 156 us at 512 KiB, 132 at 1 MiB) and where one cell is an outlier. A
    running maximum would put the whole error on the larger size and carry one outlier through the rest of the
    table; the pooled mean (pool-adjacent-violators, isotonic least squares) halves the first and dilutes the second.

    >>> non_decreasing(np.array([1.0, 4.0, 1.0, 8.0])).round(6).tolist()
    [1.0, 2.0, 2.0, 8.0]
    """
    means: list[float] = []
    counts: list[int] = []
    for value in np.log(times_s):
        means.append(float(value))
        counts.append(1)
        while len(means) > 1 and means[-2] > means[-1]:
            mean, count = means.pop(), counts.pop()
            means[-1] = (means[-1] * counts[-1] + mean * count) / (counts[-1] + count)
            counts[-1] += count
    return np.asarray(np.exp(np.repeat(means, counts)))


def _filled_octaves(sizes: Floats) -> Floats:
    """`sizes` with every doubling inside wide gaps, to be put on the straight line latency + bytes / rate.

    Published tables jump from 64 KiB to 32 MiB; a log-log line across that gap is twice too high in its middle.
    """
    filled = [float(sizes[0])]
    for size in sizes[1:]:
        while filled[-1] * _DENSE_RATIO < size:
            filled.append(filled[-1] * _DENSE_RATIO)
        filled.append(float(size))
    return np.array(filled)


def _curve(sizes: Floats, times: Floats, names: Sequence[str], about: Provenance) -> AllReduceCurve:
    for array in (sizes, times):
        array.flags.writeable = False  # curves are cached and shared
    return AllReduceCurve(sizes, times, tuple(names), about.source, about.kind, about.num_gpus)
