"""The server's own word on its load while a cell is measured, at moments that have nothing to do with its requests."""

import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from calibration.readers.values import mean
from validate.client.connection import Connection
from validate.client.scrapes import Counted, Counters
from validate.client.target import Target


@dataclass(frozen=True, slots=True)
class Gauges:
    """The server's own word on its load, at several moments of the busy window."""

    running: tuple[float, ...] = ()
    waiting: tuple[float, ...] = ()
    kv_usage: tuple[float, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Means and extremes, for JSON."""
        return {
            "running_mean": mean(self.running) if self.running else None,
            "running_max": max(self.running, default=None),
            "waiting_max": max(self.waiting, default=None),
            "kv_usage_max": max(self.kv_usage, default=None),
            "samples": len(self.running),
        }


class GaugeSampler:
    """Scrapes in a thread of its own: asked for after an answer, the gauge would always be one lower."""

    def __init__(self, target: Target, interval_s: float) -> None:
        """Nothing is asked yet."""
        self._connection = Connection(target)
        self._waits_s = random_waits_s(interval_s, random.Random())
        self._taken: list[Counted] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="gauges", daemon=True)

    def start(self) -> None:
        """Begins to sample, within an interval from now."""
        self._thread.start()

    def stop(self) -> None:
        """Takes no more samples."""
        self._stop.set()

    def gauges(self) -> Gauges:
        """The samples taken so far."""
        taken = [item for item in list(self._taken) if item.scrape is not None]
        series = ([value for item in taken if (value := getattr(item, name)) is not None] for name in _NAMES)
        running, waiting, usage = (tuple(values) for values in series)
        return Gauges(running, waiting, usage)

    def _sample(self) -> None:
        counters = Counters(self._connection)
        while not self._stop.wait(next(self._waits_s)):
            taken = counters.take(tries=1)
            if not self._stop.is_set():
                self._taken.append(taken)
        self._connection.close()


def random_waits_s(interval_s: float, draw: random.Random) -> Iterator[float]:
    """Waits that lead to one moment in each interval, anywhere in it.

    Requests of equal length, evenly staggered, end at equal distances; a sampler with a beat of its own could meet
    every one of those moments, at which the gauge is one lower.
    """
    left_s = 0.0  # of the interval of the moment before
    while True:
        into_s = draw.random() * interval_s
        yield left_s + into_s
        left_s = interval_s - into_s


_NAMES = ("running", "waiting", "kv_usage")
