"""Distributions and series that take the same memory however long a run is."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_LOWEST_S, _HIGHEST_S = 1e-7, 1e8  # shorter than any kernel, longer than three years
_RATIO = 1.001  # width of a bin: a percentile is exact within 0.05 %
_FLUSH_VALUES = 20_000
_SERIES_BINS = 256


class Histogram:
    """Durations counted in bins of 0.1 %; mean, minimum and maximum are exact."""

    def __init__(self) -> None:
        """Nothing counted yet."""
        self.count = 0
        self.total_s = 0.0
        self._low, self._high = np.inf, 0.0
        self._counts = np.zeros(int(np.log(_HIGHEST_S / _LOWEST_S) / np.log(_RATIO)) + 2, dtype=np.int64)
        self._pending: list[tuple[Array, int]] = []
        self._pending_values = 0
        self._singles: list[float] = []

    def add(self, values_s: Array, weight: int = 1) -> None:
        """Each of these durations, `weight` times."""
        self._pending.append((values_s, weight))
        self._pending_values += len(values_s)
        if self._pending_values > _FLUSH_VALUES:
            self._flush()

    def add_one(self, value_s: float) -> None:
        """One duration."""
        self._singles.append(value_s)
        if len(self._singles) > _FLUSH_VALUES:
            self._flush()

    def _flush(self) -> None:
        if self._singles:
            self._pending.append((np.array(self._singles), 1))
            self._singles = []
        if not self._pending:
            return
        values = np.concatenate([values for values, _ in self._pending])
        weights = np.repeat([w for _, w in self._pending], [len(values) for values, _ in self._pending])
        self._pending, self._pending_values = [], 0
        self.count += int(weights.sum())
        self.total_s += float((values * weights).sum())
        self._low, self._high = min(self._low, float(values.min())), max(self._high, float(values.max()))
        bins = np.log(np.clip(values, _LOWEST_S, _HIGHEST_S) / _LOWEST_S) / np.log(_RATIO)
        np.add.at(self._counts, bins.astype(np.int64), weights)

    @property
    def mean_s(self) -> float | None:
        """The mean; None without values."""
        self._flush()
        return self.total_s / self.count if self.count else None

    def percentile_s(self, percent: float) -> float | None:
        """The smallest duration that `percent` of the values do not exceed, within 0.05 %; None without values."""
        self._flush()
        if not self.count:
            return None
        rank = max(int(np.ceil(percent / 100.0 * self.count)), 1)
        index = int(np.searchsorted(np.cumsum(self._counts), rank))
        middle = _LOWEST_S * _RATIO ** (index + 0.5)
        return float(min(max(middle, self._low), self._high))


class TimeSeries:
    """Time averages in at most `_SERIES_BINS` bins: when the run outgrows them, neighbours are joined."""

    def __init__(self, names: tuple[str, ...], first_width_s: float = 1.0) -> None:
        """One row per name."""
        self.names = names
        self.width_s = first_width_s
        self._sums = np.zeros((len(names), _SERIES_BINS))
        self._covered = np.zeros(_SERIES_BINS)
        self._last = 0
        self._open_bin, self._open_s = 0, 0.0
        self._open = [0.0] * len(names)

    def add(self, start_s: float, duration_s: float, values: tuple[float, ...]) -> None:
        """These values held for `duration_s` from `start_s`; every bin that this reaches gets its share."""
        end_s = start_s + duration_s
        while end_s >= _SERIES_BINS * self.width_s:
            self._book_open()
            self._join()
            self._open_bin //= 2
        index = int(start_s / self.width_s)
        while (rest_s := end_s - (index + 1) * self.width_s) > 0.0:
            self._add_within(index, duration_s - rest_s, values)
            duration_s, index = rest_s, index + 1
        self._add_within(index, duration_s, values)

    def _add_within(self, index: int, duration_s: float, values: tuple[float, ...]) -> None:
        """These values held for `duration_s` of this bin."""
        if index != self._open_bin:
            self._book_open()
            self._open_bin = index
        self._open_s += duration_s
        self._open = [total + value * duration_s for total, value in zip(self._open, values, strict=True)]

    def _book_open(self) -> None:
        """The sums of the bin in progress join the others: plain numbers are faster than arrays until then."""
        self._covered[self._open_bin] += self._open_s
        self._sums[:, self._open_bin] += self._open
        self._last = max(self._last, self._open_bin)
        self._open, self._open_s = [0.0] * len(self.names), 0.0

    def _join(self) -> None:
        half = _SERIES_BINS // 2
        self._sums[:, :half] = self._sums[:, 0::2] + self._sums[:, 1::2]
        self._covered[:half] = self._covered[0::2] + self._covered[1::2]
        self._sums[:, half:], self._covered[half:] = 0.0, 0.0
        self.width_s, self._last = self.width_s * 2.0, self._last // 2

    def to_dict(self) -> dict[str, list[float]]:
        """`time_s` (the middle of each bin) and the mean of each name while the engine was at work; gaps are 0."""
        self._book_open()
        used = slice(0, self._last + 1)
        covered = np.maximum(self._covered[used], 1e-300)
        middle = (np.arange(self._last + 1) + 0.5) * self.width_s
        rows = {name: (self._sums[i, used] / covered).tolist() for i, name in enumerate(self.names)}
        return {"time_s": middle.tolist(), **rows}
