"""Rows of published measurements: one baseline and one speculative figure of a server at one load.

The columns are those of docs/accuracy.md, "Columns"; cells are read by their leading number (`~1K` is 1000).
"""

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hwmodel.errors import InputError
from hwmodel.files import open_regular
from hwmodel.units import MS

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
_MAX_BYTES = 50_000_000
_MAX_CELL_CHARS = 20_000
_LEADING_NUMBER = re.compile(r"\s*[~<>=≈≤≥±]*\s*(\d{1,12}(?:\.\d{0,9})?)\s*([kK](?![a-zA-Z]))?")
_THOUSAND = 1000.0
_TIMES = ("tpot", "itl", "latency", "step", " ms", "time")
_MAX_RATIO = 1000.0  # a speedup outside 1/1000 to 1000 is a slip of unit


def leading_number(text: str) -> float | None:
    """The number that a cell starts with, `None` without one.

    >>> leading_number("~1K"), leading_number("128 per rank"), leading_number("QPS=1")
    (1000.0, 128.0, None)
    """
    match = _LEADING_NUMBER.match(text)
    return float(match[1]) * (_THOUSAND if match[2] else 1.0) if match else None


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """One measurement, texts as written and numbers read. `text` holds every column that is not read into a field."""

    line: int
    text: Mapping[str, str]
    num_speculative_tokens: int | None
    concurrency: float | None
    context_tokens: float | None
    input_tokens: float | None
    output_tokens: float | None
    speedup: float | None
    baseline_step_s: float | None
    mean_accepted_length: float | None  # tokens a drafted step, bonus included
    survival: tuple[float, ...]  # unconditional acceptance by position, where the source gives it

    @property
    def group(self) -> tuple[str, ...]:
        """What must agree for rows to describe one server with one drafter."""
        return tuple(self.text[name] for name in GROUP_COLUMNS)


def read_published(path: str) -> list[PublishedRow]:
    """The rows of a CSV file; InputError in one line where it is none of ours."""
    try:
        with open_regular(path) as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as problem:
        raise InputError(f"published rows: '{path}' cannot be read: {problem.strerror}") from None
    if len(data) > _MAX_BYTES:
        raise InputError(f"published rows: '{path}' is over {_MAX_BYTES} bytes, allowed: a table of measurements")
    try:
        lines = data.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise InputError(f"published rows: '{path}' is not text, allowed: a UTF-8 CSV file") from None
    return rows_of(csv.DictReader(lines), path)


def rows_of(records: "csv.DictReader[str] | Iterable[Mapping[str, Any]]", name: str) -> list[PublishedRow]:
    """Checked rows of parsed records; `name` is what errors call the source."""
    rows = []
    try:
        for number, record in enumerate(records, start=2):
            missing = [column for column in _NEEDED if column not in record]
            if missing:
                raise InputError(
                    f"published rows: '{name}' lacks the column {missing[0]}, needed: {', '.join(_NEEDED)}"
                )
            rows.append(_row(number, record))
    except csv.Error as problem:
        raise InputError(f"published rows: '{name}' is not CSV ({problem})") from None
    if not rows:
        raise InputError(f"published rows: no rows in '{name}', allowed: a header line and at least one row")
    return rows


def _row(line: int, record: Mapping[str, Any]) -> PublishedRow:
    names = (*GROUP_COLUMNS, *_OTHERS, "k", "concurrency")
    text = {name: _cell(record.get(name)) for name in names}
    number = {name: leading_number(text[name]) for name in names}
    k = number["k"]
    survival = _survival(text["per_position_rates"])
    length = number["mean_accepted_len"]
    if length is None and survival:
        length = 1.0 + sum(survival)
    concurrency = number["concurrency"] or None
    return PublishedRow(
        line=line,
        text=text,
        num_speculative_tokens=int(k) if k and k >= 1 else None,
        concurrency=concurrency,
        context_tokens=number["context_len"],
        input_tokens=number["input_len"],
        output_tokens=number["output_len"],
        speedup=_speedup(text["metric"], number),
        baseline_step_s=_baseline_step_s(text["metric"], number, concurrency),
        mean_accepted_length=length if length and length >= 1.0 else None,
        survival=survival,
    )


def _cell(value: Any) -> str:
    return "" if value is None else str(value).strip()[:_MAX_CELL_CHARS]


def _survival(cell: str) -> tuple[float, ...]:
    parts = [leading_number(part) for part in cell.split("/")] if cell else []
    rates = [part for part in parts if part is not None and part <= 1.0]
    return tuple(rates) if parts and len(rates) == len(parts) else ()


def is_a_time(metric: str) -> bool:
    """Whether less is better in this metric."""
    return any(word in f" {metric.lower()}" for word in _TIMES)


def _speedup(metric: str, number: Mapping[str, float | None]) -> float | None:
    stated, base, spec = number["speedup"], number["baseline"], number["spec"]
    if stated is None and base and spec:
        stated = base / spec if is_a_time(metric) else spec / base
    return stated if stated and 1.0 / _MAX_RATIO < stated < _MAX_RATIO else None


def _baseline_step_s(metric: str, number: Mapping[str, float | None], concurrency: float | None) -> float | None:
    """Seconds of a decode step of the baseline, where the metric tells: one token a request and step."""
    if number["baseline_step_ms"]:
        return number["baseline_step_ms"] * MS
    base, name = number["baseline"], metric.lower()
    if not base or "ratio" in name or "req" in name or "total" in name:
        return None
    if is_a_time(metric):
        return base * MS if "ms" in name else None
    if "/user" in name:
        return 1.0 / base
    return concurrency / base if concurrency and "tok" in name else None


def grouped(rows: Sequence[PublishedRow]) -> dict[tuple[str, ...], list[PublishedRow]]:
    """Rows by server and drafter, in order of first appearance."""
    groups: dict[tuple[str, ...], list[PublishedRow]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    return groups
