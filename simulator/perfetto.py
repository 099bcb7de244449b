"""Traces that ui.perfetto.dev and chrome://tracing open: the Trace Event Format, written as the run goes.

Format: "Trace Event Format", Chromium project; times in microseconds. A process is a group of rows, a thread a row.
"""

import json
from collections.abc import Mapping
from typing import IO, Any

from hwmodel.units import US

_NS_DIGITS = 3  # of a microsecond: finer than any modelled duration


class TraceWriter:
    """Writes events to an open text file; `close` ends the list, the file stays open."""

    def __init__(self, file: IO[str]) -> None:
        """An empty trace."""
        self._file = file
        self._first = True
        self.num_events = 0
        file.write('{"displayTimeUnit": "ms", "traceEvents": [')

    def process(self, process: int, name: str) -> None:
        """Names a group of rows; groups are sorted by their number."""
        self._write({"ph": "M", "name": "process_name", "pid": process, "args": {"name": name}})
        self._write({"ph": "M", "name": "process_sort_index", "pid": process, "args": {"sort_index": process}})

    def thread(self, process: int, thread: int, name: str) -> None:
        """Names a row; rows are sorted by their number."""
        place = {"pid": process, "tid": thread}
        self._write({"ph": "M", "name": "thread_name", **place, "args": {"name": name}})
        self._write({"ph": "M", "name": "thread_sort_index", **place, "args": {"sort_index": thread}})

    def slice(self, row: tuple[int, int], name: str, start_s: float, end_s: float, facts: Mapping[str, Any]) -> None:
        """A bar in the row (process, thread)."""
        times = {"ts": _us(start_s), "dur": _us(end_s - start_s)}
        self._write({"ph": "X", "name": name, "pid": row[0], "tid": row[1], **times, "args": dict(facts)})

    def span(self, process: int, number: int, name: str, times_s: tuple[float, float]) -> None:
        """A bar of its own row among those of the same `number`: phases of one request."""
        common = {"cat": "request", "name": name, "id": number, "pid": process, "tid": 0}
        self._write({"ph": "b", **common, "ts": _us(times_s[0])})
        self._write({"ph": "e", **common, "ts": _us(times_s[1])})

    def counter(self, process: int, name: str, time_s: float, values: Mapping[str, float]) -> None:
        """Values of a counter track from `time_s` on."""
        self._write({"ph": "C", "name": name, "pid": process, "tid": 0, "ts": _us(time_s), "args": dict(values)})

    def close(self) -> None:
        """The end of the list."""
        self._file.write("]}\n")

    def _write(self, event: Mapping[str, Any]) -> None:
        self._file.write(("\n" if self._first else ",\n") + json.dumps(event, allow_nan=False))
        self._first = False
        self.num_events += 1


def _us(time_s: float) -> float:
    return round(time_s / US, _NS_DIGITS)
