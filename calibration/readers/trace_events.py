"""The events of a Chrome trace (torch profiler's `*.pt.trace.json[.gz]`), streamed: a trace may be gigabytes.

Format: JSON object with `traceEvents`, or the bare array; "X" events have `ts` and `dur` in microseconds and a category
`cat`. An array that ends early is still used up to there, as Chrome's own format allows: profilers are often killed.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from calibration.readers.files import MAX_TRACE_BYTES, open_content
from calibration.readers.values import at, count, mapping, number, shown
from hwmodel.errors import InputError
from hwmodel.units import US

_BLOCK = 1 << 22
_MAX_EVENT_CHARS = 1 << 24  # one event with all its arguments is some hundred characters
_MAX_KERNELS = 20_000_000
_DECODER = json.JSONDecoder()
_EVENTS = re.compile(r'"traceEvents"\s*:\s*\[')
_EVENT = re.compile(r'"ph"\s*:\s*"[A-Za-z]"')
_RANK = re.compile(r'"rank"\s*:\s*(\d+)')
_WORLD = re.compile(r'"world_size"\s*:\s*(\d+)')
_GPU_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
_SKIP = " \t\r\n,"


@dataclass(frozen=True, slots=True)
class Interval:
    """A piece of GPU work, or an annotation; seconds of the profiler's clock."""

    name: str
    start_s: float
    end_s: float
    device: int = 0
    correlation: int | None = None


@dataclass(slots=True)
class Trace:
    """GPU work and step annotations of one file, one rank."""

    path: str
    rank: int | None = None
    world_size: int | None = None
    kernels: list[Interval] = field(default_factory=list)
    gpu_marks: list[Interval] = field(default_factory=list)  # annotations projected onto the GPU's own time
    cpu_marks: list[Interval] = field(default_factory=list)
    launches: dict[int, float] = field(default_factory=dict)  # correlation -> time of the launch
    cut_short: bool = False
    stated_requests: float | None = None  # by the user, for a trace that does not tell


def is_trace(head: str) -> bool:
    """Whether a text begins as a Chrome trace."""
    start = head.lstrip("\ufeff \t\r\n")[:1]
    if start == "{":
        return _EVENTS.search(head) is not None or ('"deviceProperties"' in head and '"schemaVersion"' in head)
    return start == "[" and _EVENT.search(head[:100_000]) is not None


def read_trace(path: str) -> Trace:
    """GPU work, launches and annotations of the trace at `path`."""
    trace = Trace(path)
    with open_content(path) as file:
        for event in _events(file, trace):
            _add(trace, event)
    if not trace.kernels:
        raise InputError(
            f"{shown(path)}: a trace without GPU kernels (profiled without CUDA activities?); "
            "allowed: a torch profiler trace of a GPU worker"
        )
    return trace


def _add(trace: Trace, event: Any) -> None:
    found = mapping(event)
    if found.get("ph") != "X":
        return
    category = str(found.get("cat", "")).lower()
    if category in _GPU_WORK or category in ("gpu_user_annotation", "user_annotation"):
        interval = _interval(found)
        if interval is None:
            return
        if category in _GPU_WORK:
            _add_kernel(trace, interval)
        else:
            (trace.gpu_marks if category.startswith("gpu") else trace.cpu_marks).append(interval)
    elif category in ("cuda_runtime", "cuda_driver", "hip_runtime"):
        correlation, start = count(at(found, "args", "correlation")), _time(found.get("ts"))
        if correlation is not None and start is not None and len(trace.launches) < _MAX_KERNELS:
            trace.launches[correlation] = start


def _add_kernel(trace: Trace, interval: Interval) -> None:
    if len(trace.kernels) >= _MAX_KERNELS:
        raise InputError(f"{shown(trace.path)}: more than {_MAX_KERNELS} kernels; allowed: a profile of some seconds")
    trace.kernels.append(interval)


def _interval(event: Any) -> Interval | None:
    start, length = _time(event.get("ts")), _time(event.get("dur"))
    name = event.get("name")
    if start is None or length is None or not isinstance(name, str):
        return None
    args = mapping(event.get("args"))
    device = next((found for key in (args.get("device"), event.get("pid")) if (found := count(key)) is not None), 0)
    return Interval(name, start, start + length, device, count(args.get("correlation")))


def _time(value: Any) -> float | None:
    """Microseconds of a trace as seconds."""
    found = number(value)
    return None if found is None else found * US


def _events(file: BinaryIO, trace: Trace) -> Iterator[Any]:
    """The members of the event array, one after the other."""
    reader = _Reader(file, trace.path)
    if not reader.find_array():
        raise InputError(f"{shown(trace.path)}: no traceEvents; allowed: a Chrome trace of the torch profiler")
    _note_rank(trace, reader.before)
    while (event := reader.next_event()) is not None:
        yield event
    trace.cut_short = reader.cut_short
    _note_rank(trace, reader.rest())


def _note_rank(trace: Trace, text: str) -> None:
    """The rank, from `distributedInfo` before or after the events."""
    place = text.find('"distributedInfo"')
    if trace.rank is None and place >= 0:
        rank, world = _RANK.search(text, place), _WORLD.search(text, place)
        trace.rank = int(rank[1]) if rank else None
        trace.world_size = int(world[1]) if world else None


class _Reader:
    """A window on the text of a trace that moves forward event by event."""

    def __init__(self, file: BinaryIO, path: str) -> None:
        self._file = file
        self._path = path
        self._text = ""
        self._place = 0
        self._read = 0
        self._tail = b""
        self._ended = False
        self.before = ""
        self.cut_short = False

    def find_array(self) -> bool:
        """Moves behind the "[" of the events; False where there is none."""
        while True:
            found = _EVENTS.search(self._text)
            if found is None and self._text.lstrip("\ufeff" + _SKIP).startswith("["):
                self._place = self._text.index("[") + 1
                return True
            if found is not None:
                self.before, self._place = self._text[: found.start()], found.end()
                return True
            if len(self._text) > _MAX_EVENT_CHARS or not self._more():
                return False

    def next_event(self) -> Any:
        """The next event, None after the last; an end in the middle of one sets `cut_short`."""
        while True:
            place = self._skip()
            if place < len(self._text) and self._text[place] == "]":
                self._place = place + 1
                return None
            try:
                event, end = _DECODER.raw_decode(self._text, place)
            except (ValueError, RecursionError):
                if len(self._text) - place > _MAX_EVENT_CHARS:
                    raise InputError(f"{shown(self._path)}: broken event in a trace; allowed: valid JSON") from None
                if not self._more():
                    self.cut_short = True
                    return None
                continue
            self._place = end
            return event

    def rest(self) -> str:
        """What follows the events, as far as it is read or short."""
        while len(self._text) - self._place < _BLOCK and self._more():
            pass
        return self._text[self._place : self._place + _BLOCK]

    def _skip(self) -> int:
        while True:
            while self._place < len(self._text) and self._text[self._place] in _SKIP:
                self._place += 1
            if self._place < len(self._text) or not self._more():
                return self._place

    def _more(self) -> bool:
        """Reads another block and drops what is behind; False at the end."""
        if self._ended:
            return False
        block = self._file.read(_BLOCK)
        self._read += len(block)
        if self._read > MAX_TRACE_BYTES:
            raise InputError(f"{shown(self._path)}: a trace of more than {MAX_TRACE_BYTES} bytes; allowed: less")
        self._ended = not block
        data = self._tail + block
        cut = len(data) if self._ended else _whole_characters(data)
        self._tail = data[cut:]
        self._text = self._text[self._place :] + data[:cut].decode("utf-8", errors="replace")
        self._place = 0
        return bool(block)


def _whole_characters(data: bytes) -> int:
    """Length of `data` without a UTF-8 character that is cut at its end."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte < 0x80:
            return len(data)
        if byte >= 0xC0:
            width = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return len(data) if width <= back else len(data) - back
    return len(data)
