"""Windows of a server's counters sorted by load and added up: what hours of real traffic say about each load.

Counters add: the growth of many short windows of one load is the growth of one long window of it, and is read by the
same rules as two saved scrapes are.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from calibration.readers.metrics_pairs import Window
from calibration.readers.prometheus_text import Labels, Scrape
from validate.client.scrapes import RUNNING, gauge_of
from validate.measure.server_side import ServerSide, server_side
from validate.measure.statistics import standard_error

_COUNTERS = ("_total", "_count", "_sum")
_RATIO = 1.25  # between the loads of two neighbouring groups: a step's cost changes less than that
_EVEN = 1.5  # running requests at the ends of a window over its mean batch

Growth = dict[str, dict[Labels, float]]


@dataclass(slots=True)
class LoadGroup:
    """All windows of one load and draft length, added up."""

    k: int | None
    engine: str
    model: str
    growth: Growth = field(default_factory=dict)
    gauges: Growth = field(default_factory=dict)  # of the last window
    length_s: float = 0.0
    step_times_s: list[float] = field(default_factory=list)  # of each window
    windows: int = 0

    def add(self, window: Window, side: ServerSide) -> None:
        """Adds one window."""
        for name, series in window.last.samples.items():
            if name.endswith(_COUNTERS):
                self._grow(name, series, window.first)
            else:
                self.gauges[name] = dict(series)
        self.length_s += window.elapsed_s or 0.0
        self.windows += 1
        if side.cell is not None and side.cell.step_s is not None:
            self.step_times_s.append(side.cell.step_s)

    def _grow(self, name: str, series: Mapping[Labels, float], first: Scrape | None) -> None:
        before = first.labelled(name) if first is not None else {}
        sums = self.growth.setdefault(name, {})
        for labels, value in series.items():
            sums[labels] = sums.get(labels, 0.0) + value - before.get(labels, 0.0)

    def window(self) -> Window:
        """The sum as a window."""
        zero = {name: dict.fromkeys(series, 0.0) for name, series in self.growth.items()}
        first = Scrape("passive", zero | self.gauges, 0.0)
        last = Scrape("passive", self.growth | self.gauges, self.length_s)
        return Window(first, last, self.model, self.engine)

    def side(self) -> ServerSide:
        """The figures of the sum."""
        return server_side(self.window())

    @property
    def scatter(self) -> float | None:
        """Relative standard error of the step time, from its scatter between windows; None with one window."""
        error = standard_error(self.step_times_s)
        return None if error is None else error * len(self.step_times_s) / math.fsum(self.step_times_s)


@dataclass(slots=True)
class Traffic:
    """Windows taken so far, by draft length and load."""

    groups: dict[tuple[int | None, int], LoadGroup] = field(default_factory=dict)
    idle_s: float = 0.0
    uneven_s: float = 0.0  # the load changed within the window: it belongs to no group
    total: dict[int | None, LoadGroup] = field(default_factory=dict)  # of all windows with traffic

    def add(self, window: Window) -> None:
        """Sorts one window in."""
        side = server_side(window)
        length_s = window.elapsed_s or 0.0
        if not side.totals.generated_tokens:
            self.idle_s += length_s
            return
        k = side.cell.num_speculative_tokens if side.cell is not None else None
        self._group(self.total, k, window).add(window, side)
        load = side.cell.concurrency if side.cell is not None else None
        if load is None or _is_uneven(window, load):
            self.uneven_s += length_s
            return
        key = (k, round(math.log(max(load, 1.0)) / math.log(_RATIO)))
        if key not in self.groups:
            self.groups[key] = LoadGroup(k, window.engine, window.model)
        self.groups[key].add(window, side)

    @staticmethod
    def _group(groups: dict[int | None, LoadGroup], k: int | None, window: Window) -> LoadGroup:
        return groups.setdefault(k, LoadGroup(k, window.engine, window.model))


def _is_uneven(window: Window, load: float) -> bool:
    """Whether the requests that run at its two ends show that the load changed by more than a group holds."""
    ends = [gauge_of(scrape, *RUNNING) for scrape in (window.first, window.last) if scrape is not None]
    return any(value > _EVEN * load + 1 or value + 1 < load / _EVEN for value in ends if value is not None)
