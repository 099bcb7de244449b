"""Recorded requests from a file: arrival times and lengths as JSONL or CSV, read line by line and checked.

Column names: this project's (`arrival_s`, `input_tokens`, `output_tokens`), those of the Mooncake traces (JSONL:
`timestamp` in ms, `input_length`, `output_length`) and of BurstGPT (CSV: `Timestamp` in s, `Request tokens`,
`Response tokens`).
"""

import csv
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from hwmodel.errors import InputError
from hwmodel.units import MS
from simulator.deployment.keys import short
from simulator.deployment.tables import MAX_TOKENS
from simulator.serving.request import MAX_TIME_S, RequestSpec

Ints = NDArray[np.int64]

_MAX_LINE_CHARACTERS = 1_000_000  # a Mooncake line with the block hashes of the longest prompt has some 10,000
_MAX_COLUMNS = 200
_MAX_LENGTH_ROWS = 1_000_000  # lengths are kept in memory


@dataclass(frozen=True, slots=True)
class _Layout:
    """Names of the columns and the unit of the time."""

    title: str
    arrival: str
    prompt: str
    output: str
    time_unit_s: float


_LAYOUTS = (
    _Layout("draftcast", "arrival_s", "input_tokens", "output_tokens", 1.0),
    _Layout("Mooncake", "timestamp", "input_length", "output_length", MS),
    _Layout("BurstGPT", "Timestamp", "Request tokens", "Response tokens", 1.0),
)


def read_trace(path: str) -> Iterator[RequestSpec]:
    """The requests of a trace in order; times count from the first one. `InputError` names the line that is wrong."""
    first: float | None = None
    previous = -math.inf
    number = 0
    for where, row, layout in _rows(path, with_times=True):
        time = _number(row[layout.arrival], layout.arrival, where, low=0.0) * layout.time_unit_s
        if time < previous:
            raise InputError(f"{where}: {layout.arrival} goes back from {previous:g} s to {time:g} s, allowed: sorted")
        previous = time
        first = time if first is None else first
        if time - first > MAX_TIME_S:
            late = f"{time - first:g} s after the first"
            raise InputError(f"{where}: {layout.arrival} is {late}, allowed: up to {MAX_TIME_S:g} s")
        prompt, output = _pair(row, layout, where)
        yield RequestSpec(number, time - first, prompt, output)
        number += 1
    if number == 0:
        raise InputError(f"{short(path)}: no request, allowed: at least one")


def read_lengths(path: str) -> tuple[Ints, Ints]:
    """Prompt and output lengths of a file's rows, each `(num_rows,)`; times may be absent."""
    pairs = []
    for where, row, layout in _rows(path, with_times=False):
        pairs.append(_pair(row, layout, where))
        if len(pairs) > _MAX_LENGTH_ROWS:
            raise InputError(f"{short(path)}: more than {_MAX_LENGTH_ROWS} rows, allowed: a sample of them")
    if not pairs:
        raise InputError(f"{short(path)}: no row, allowed: at least one")
    table = np.array(pairs, dtype=np.int64)
    return table[:, 0], table[:, 1]


def _pair(row: Mapping[str, Any], layout: _Layout, where: str) -> tuple[int, int]:
    prompt = _number(row[layout.prompt], layout.prompt, where, low=0.0, high=MAX_TOKENS)
    output = _number(row[layout.output], layout.output, where, low=0.0, high=MAX_TOKENS)
    return max(int(prompt), 1), max(int(output), 1)  # BurstGPT lists failures with 0 tokens: they cost a step


def _rows(path: str, *, with_times: bool) -> Iterator[tuple[str, Mapping[str, Any], _Layout]]:
    """Place, row and layout of every line."""
    try:
        file = Path(path).open(encoding="utf-8", newline="")  # noqa: SIM115 - closed below, where it is read
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot read {short(path)}: {reason}; allowed: a JSONL or CSV file") from error
    with file:
        try:
            yield from _lines(file, short(path), with_times)
        except UnicodeDecodeError as error:
            raise InputError(f"{short(path)} is not UTF-8 text (byte {error.start}); allowed: JSONL or CSV") from error


def _lines(file: IO[str], name: str, with_times: bool) -> Iterator[tuple[str, Mapping[str, Any], _Layout]]:
    lines = ((f"{name} line {i}", line) for i, line in enumerate(_bounded(file, name), 1) if line.strip())
    head = next(lines, None)
    if head is None:
        return
    if head[1].lstrip("\ufeff").lstrip().startswith("{"):
        for where, line in _chained(head, lines):
            row = _json_object(line, where)
            yield where, row, _layout(row, where, with_times)
        return
    columns = _cells(head[1].lstrip("\ufeff"), head[0])
    if len(columns) > _MAX_COLUMNS:
        raise InputError(f"{head[0]}: {len(columns)} columns, allowed: up to {_MAX_COLUMNS}")
    layout = _layout(dict.fromkeys(columns), head[0], with_times)
    for where, line in lines:
        cells = _cells(line, where)
        if len(cells) != len(columns):
            raise InputError(f"{where}: {len(cells)} cells, allowed: {len(columns)}, as the head has columns")
        yield where, dict(zip(columns, cells, strict=True)), layout


def _chained(head: tuple[str, str], lines: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    yield head
    yield from lines


def _bounded(file: IO[str], name: str) -> Iterator[str]:
    while line := file.readline(_MAX_LINE_CHARACTERS + 1):
        if len(line) > _MAX_LINE_CHARACTERS:
            raise InputError(
                f"{name}: a line longer than {_MAX_LINE_CHARACTERS} characters, allowed: JSONL or CSV rows"
            )
        yield line


def _cells(line: str, where: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([line]))]
    except (csv.Error, StopIteration) as error:
        raise InputError(f"{where}: no CSV row, allowed: comma-separated cells") from error


def _json_object(line: str, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line.lstrip("\ufeff"))
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        raise InputError(f"{where}: not a JSON object, allowed: one object a line")
    return row


def _layout(row: Mapping[str, Any], where: str, with_times: bool) -> _Layout:
    for layout in _LAYOUTS:
        names = (layout.prompt, layout.output) + ((layout.arrival,) if with_times else ())
        if all(name in row for name in names):
            return layout
    known = "; ".join(f"{x.arrival}, {x.prompt}, {x.output} ({x.title})" for x in _LAYOUTS)
    got = short(", ".join(list(row)[:10]), 100)
    raise InputError(f"{where}: columns {got or 'none'}, allowed: {known}")


def _number(value: Any, name: str, where: str, *, low: float, high: float = math.inf) -> float:
    try:
        number = float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not (math.isfinite(number) and low <= number <= high):
        limits = f"{low:g} to {high:g}" if math.isfinite(high) else f"at least {low:g}"
        raise InputError(f"{where}: {name} is {short(str(value), 40)}, allowed: {limits}")
    return number
