"""Rows of published measurements: one baseline and one speculative figure of a server at one load.

The columns are those of docs/accuracy.md, "Columns"; cells are read by their leading number (`~1K` is 1000).
"""

import csv
import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from calibration.published.cells import (
    DECIMAL_COMMA,
    fault_of,
    leading_number,
    length_of,
    may_hold_a_decimal_comma,
    survival_rates,
)
from calibration.published.metrics import decode_step_s, oriented_ratio
from hwmodel.errors import InputError
from hwmodel.files import read_bounded
from hwmodel.units import MS
from simulator.deployment.keys import short

GROUP_COLUMNS = (
    "set_id",
    "engine_version",
    "model",
    "quantization",
    "gpu",
    "gpu_count",
    "tp",
    "ep",
    "dp",
    "dcp",
    "method",
    "draft",
    "sglang_topk",
    "dataset",
    "temperature",
)
_NEEDED = ("set_id", "model", "method", "k", "concurrency")
_OTHERS = (
    "engine",
    "date",
    "arch",
    "interconnect",
    "per_position_rates",
    "mean_accepted_len",
    "input_len",
    "output_len",
    "context_len",
    "metric",
    "baseline",
    "spec",
    "baseline_step_ms",
    "speedup",
    "skip_reason",
    "role",
)
_ABOVE_ZERO = ("gpu_count", "tp", "dp", "dcp", "baseline", "spec", "baseline_step_ms", "speedup")
_QUANTITIES = (
    *("k", "concurrency", "mean_accepted_len", "input_len", "output_len", "context_len", "sglang_topk"),
    *_ABOVE_ZERO,
)
_SMALL = ("speedup", "mean_accepted_len", "baseline_step_ms")
_MAX_BYTES = 50_000_000
_MAX_ROWS = 50_000
_MAX_CELL_CHARS = 20_000
SHOWN_PATH = 200
_MAX_RATIO = 1000.0  # a speedup outside 1/1000 to 1000 is a slip of unit
_MAX_DRAFT_TOKENS = 256  # more is a count of something else
_MAX_REQUESTS = 1e6
_SAME, _DIFFERENT = 0.02, 0.05  # of ln(speedup): rounding, and what is beyond it
_FOR_EACH_RANK = ("per rank", "/rank", "per dp", "per replica", "per instance")


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """One measurement, texts as written and numbers read. `text` holds every column that is not read into a field."""

    line: int
    text: Mapping[str, str]
    num_speculative_tokens: int | None
    concurrency: float | None  # as written
    requests: float | None  # at once on all ranks: `128 per rank` of 4 ranks is 512
    context_tokens: float | None
    input_tokens: float | None
    output_tokens: float | None
    speedup: float | None
    baseline_step_s: float | None
    mean_accepted_length: float | None  # tokens a drafted step, bonus included
    survival: tuple[float, ...]  # unconditional acceptance by position, where the source gives it
    fault: str | None = None  # a cell that cannot be what its column says

    @property
    def group(self) -> tuple[str, ...]:
        """What must agree for rows to describe one server with one drafter."""
        return tuple(self.text[name] for name in GROUP_COLUMNS)


def read_published(path: str) -> list[PublishedRow]:
    """The rows of a CSV file; InputError in one line where it is none of ours."""
    return rows_of(csv_records(path, "published rows"), path)


def csv_records(path: str, what: str) -> "csv.DictReader[str]":
    """The records of a CSV file of bounded size; `what` is what errors call such files."""
    shown = short(path, SHOWN_PATH)
    data = read_bounded(
        path,
        _MAX_BYTES,
        unreadable=f"{what}: '{shown}' cannot be read: {{reason}}, allowed: a CSV file",
        too_large=f"{what}: '{shown}' is over {_MAX_BYTES} bytes, allowed: a table of measurements",
    )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{what}: '{shown}' is not text, allowed: a UTF-8 CSV file") from None
    return csv.DictReader(io.StringIO(text, newline=""))


def checked(records: Iterable[Mapping[str, Any]], needed: Sequence[str], name: str) -> Iterator[Mapping[str, Any]]:
    """The records as they come; InputError where one lacks a needed column, where it is no CSV, or where none comes."""
    shown, found = short(name, SHOWN_PATH), False
    try:
        for record in records:
            missing = [column for column in needed if column not in record]
            if missing:
                hint = _separator_hint([name for name in record if name is not None])
                raise InputError(f"'{shown}' lacks the column {missing[0]}, needed: {', '.join(needed)}{hint}")
            found = True
            yield record
    except csv.Error as problem:
        raise InputError(f"'{shown}' is not CSV ({problem}), allowed: a header line and rows") from None
    if not found:
        raise InputError(f"no rows in '{shown}', allowed: a header line and at least one row")


def _separator_hint(columns: Sequence[Any]) -> str:
    """Where a header is one cell with other separators in it: that they are to be commas."""
    if len(columns) == 1:
        for mark, name in ((";", "semicolons"), ("\t", "tabs"), ("|", "bars")):
            if mark in str(columns[0]):
                return f"; its cells are apart by {name}, allowed: commas, and a point in numbers"
    return ""


def rows_of(records: "csv.DictReader[str] | Iterable[Mapping[str, Any]]", name: str) -> list[PublishedRow]:
    """Checked rows of parsed records; `name` is what errors call the source."""
    rows: list[PublishedRow] = []
    for number, record in enumerate(checked(records, _NEEDED, name), start=2):
        if len(rows) == _MAX_ROWS:
            raise InputError(f"'{short(name, SHOWN_PATH)}' has more rows, allowed: to {_MAX_ROWS:,}")
        rows.append(_row(getattr(records, "line_num", number), record))
    return _with_commas_told(rows)


def _with_commas_told(rows: list[PublishedRow]) -> list[PublishedRow]:
    """Where one row has a decimal comma, `13,612` of another is no 13612."""
    if not any(DECIMAL_COMMA in (row.fault or "") for row in rows):
        return rows
    return [row if row.fault else replace(row, fault=_comma(row.text)) for row in rows]


def _comma(text: Mapping[str, str]) -> str | None:
    """The first quantity whose comma may be a decimal one, in words."""
    found = next((name for name in _QUANTITIES if may_hold_a_decimal_comma(text[name])), None)
    return None if found is None else f"{found} may be {DECIMAL_COMMA}, as others of the file are; allowed: a point"


def _row(line: int, record: Mapping[str, Any]) -> PublishedRow:
    names = (*GROUP_COLUMNS, *_OTHERS, "k", "concurrency")
    text = {name: _cell(record.get(name)) for name in names}
    number = {name: leading_number(text[name]) for name in names}
    k = int(min(number["k"] or 0, _MAX_DRAFT_TOKENS + 1))
    survival = survival_rates(text["per_position_rates"])
    length = number["mean_accepted_len"] or length_of(survival, k)
    concurrency = number["concurrency"] or None
    requests = _requests(text["concurrency"], concurrency, number["dp"])
    return PublishedRow(
        line=line,
        text=text,
        num_speculative_tokens=k if 1 <= k <= _MAX_DRAFT_TOKENS else None,
        concurrency=concurrency if requests else None,
        requests=requests,
        context_tokens=number["context_len"],
        input_tokens=number["input_len"],
        output_tokens=number["output_len"],
        speedup=_speedup(text, number),
        baseline_step_s=_baseline_step_s(text["metric"], number, requests),
        mean_accepted_length=length if length and length >= 1.0 else None,
        survival=survival,
        fault=_fault(text, number),
    )


def _fault(text: Mapping[str, str], number: Mapping[str, float | None]) -> str | None:
    """The first cell that no server can have, in words."""
    for name in _QUANTITIES:
        fault = fault_of(text[name])
        if fault is None and name in _ABOVE_ZERO and number[name] == 0.0:
            fault = "zero"
        if fault is None and name in _SMALL and may_hold_a_decimal_comma(text[name]):
            fault = DECIMAL_COMMA  # of these, none has thousands
        if fault == DECIMAL_COMMA:
            return f"{name} is {fault}, allowed: a point"
        if fault is not None:
            return f"{name} is {fault}: '{short(text[name])}'"
    return None


def _cell(value: Any) -> str:
    return "" if value is None else str(value).strip()[:_MAX_CELL_CHARS]


def _requests(cell: str, concurrency: float | None, ranks: float | None) -> float | None:
    """Requests on all ranks: some sources count those of one data-parallel rank."""
    each = any(words in cell.lower() for words in _FOR_EACH_RANK)
    total = (concurrency or 0.0) * (max(ranks or 1.0, 1.0) if each else 1.0)
    return total if 0.0 < total <= _MAX_REQUESTS else None


def _speedup(text: Mapping[str, str], number: Mapping[str, float | None]) -> float | None:
    """The ratio as stated, else of the two figures; turned over where those show that less is better."""
    stated = None if "%" in text["speedup"] else number["speedup"]
    if number["baseline"] and number["spec"]:
        ratio = oriented_ratio(text["metric"], number["baseline"], number["spec"])
        stated = ratio if not stated or _turned_over(stated, ratio) else stated
    return stated if stated and 1.0 / _MAX_RATIO < stated < _MAX_RATIO else None


def _turned_over(stated: float, ratio: float) -> bool:
    """Whether the source divided the other way round, in a metric where less is better."""
    return abs(math.log(ratio)) > _DIFFERENT and abs(math.log(ratio * stated)) < _SAME


def _baseline_step_s(metric: str, number: Mapping[str, float | None], requests: float | None) -> float | None:
    """Seconds of a decode step of the baseline, as stated or as the metric tells."""
    if number["baseline_step_ms"]:
        return number["baseline_step_ms"] * MS
    if not number["baseline"]:
        return None
    return decode_step_s(metric, number["baseline"], requests, number["gpu_count"] or number["tp"])


def grouped(rows: Sequence[PublishedRow]) -> dict[tuple[str, ...], list[PublishedRow]]:
    """Rows by server and drafter, in order of first appearance."""
    groups: dict[tuple[str, ...], list[PublishedRow]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    return groups
