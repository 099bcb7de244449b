"""A table of measured loads that a person or a script made: one row per concurrency, units in the column names.

Comma, semicolon or tab; a decimal comma where the separator is another; comments from `#`; a byte-order mark.
`concurrency` and a time, a throughput or a share are needed; a time without its unit is an error that says so.
"""

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from calibration.readers.decimals import Marks, marks_of
from calibration.readers.runs import PLAUSIBLE_TIME_S, mean_context, with_steps
from calibration.readers.values import count
from calibration.records import Evidence, MeasuredCell, Refused
from hwmodel.errors import InputError
from hwmodel.units import MS, US
from simulator.deployment.keys import short
from simulator.deployment.speculation import MAX_DRAFT_TOKENS

_TIME_UNITS = {"ms": MS, "s": 1.0, "us": US, "msec": MS, "sec": 1.0, "seconds": 1.0, "milliseconds": MS}
_TIMES = {"tpot": "tpot_s", "step": "step_s", "itl": "step_s", "ttft": "ttft_s"}
_TIME_WORDS = {"time_per_output_token": "tpot", "step_time": "step", "inter_token_latency": "itl", "mean_tpot": "tpot"}
_NAMES = {  # normalised header -> field
    "concurrency": "concurrency",
    "max_concurrency": "concurrency",
    "users": "concurrency",
    "batch": "concurrency",
    "batch_size": "concurrency",
    "num_concurrent_requests": "concurrency",
    "concurrent_requests": "concurrency",
    "concurrent_users": "concurrency",
    "num_users": "concurrency",
    "throughput_tokens_per_s": "throughput_tokens_per_s",
    "output_throughput_tokens_per_s": "throughput_tokens_per_s",
    "throughput_tok_s": "throughput_tokens_per_s",
    "tokens_per_s": "throughput_tokens_per_s",
    "tok_s": "throughput_tokens_per_s",
    "output_throughput": "throughput_tokens_per_s",
    "num_speculative_tokens": "num_speculative_tokens",
    "k": "num_speculative_tokens",
    "method": "method",
    "context_tokens": "context_tokens",
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "tokens_per_step": "tokens_per_step",
    "relative_noise": "relative_noise",
    "allreduce_share": "allreduce_share",
    "kv_cache_tokens": "kv_cache_tokens",
    "num_requests": "num_requests",
    "model": "model",
    "engine": "engine",
    "engine_version": "engine_version",
}
_TEXT = ("method", "model", "engine", "engine_version")
_SHARES = ("allreduce_share", "relative_noise")
_MEASURES = ("tpot_s", "step_s", "throughput_tokens_per_s", "allreduce_share")
_SEPARATORS = (";", "\t", ",")
_EMPTY = ("", "-", "na", "n/a", "nan", "none", "null")
_MAX_ROWS = 100_000
_MORE_THAN_ALL = 1.1  # tokens per second times TPOT is the number decoding: never above the users but by rounding


@dataclass(frozen=True, slots=True)
class _Column:
    """Where a field stands, and the factor to SI."""

    index: int
    field: str
    unit: float = 1.0
    header: str = ""


def is_table(head: str) -> bool:
    """Whether a text begins with a header that names a concurrency and a measure."""
    line = next((line for _, line in _content_lines(head)), "")
    names = {column.field for column in _columns(_split(line, _separator(line)))}
    bare = {_normal(cell) for cell in _split(line, _separator(line))}
    return "concurrency" in names and (bool(names & set(_MEASURES)) or bool(bare & {*_TIMES, "throughput"}))


def read_table(content: str, path: str) -> Evidence:
    """One cell per row; rows that contradict themselves are refused."""
    lines = list(_content_lines(content))
    if not lines:
        raise _error(path, "no header", "a first line such as concurrency,tpot_ms")
    separator = _separator(lines[0][1])
    header = _split(lines[0][1], separator)
    columns = _checked(header, path)
    evidence = Evidence(notes=_ignored(header, columns, path))
    if len(lines) == 1:
        raise _error(path, "a header without a row", "one row per concurrency")
    if len(lines) > _MAX_ROWS:
        raise _error(path, f"{len(lines)} rows", f"at most {_MAX_ROWS}")
    rows = [(index, _split(line, separator)) for index, line in lines[1:]]
    marks = marks_of([_bare(cell) for _, cells in rows for cell in cells], separator)
    for index, cells in rows:
        evidence += _read_row(cells, columns, marks, (f"{path} line {index}", len(header)))
    return evidence


def _content_lines(content: str) -> Iterator[tuple[int, str]]:
    for index, line in enumerate(content.lstrip("\ufeff").splitlines(), start=1):
        if line.strip(" \t;,") and not line.lstrip().startswith("#"):
            yield index, line


def _separator(header: str) -> str:
    return next((mark for mark in _SEPARATORS if mark in header), ",")


def _split(line: str, separator: str) -> list[str]:
    try:
        cells = next(csv.reader([line], delimiter=separator, skipinitialspace=True), [])
    except csv.Error:
        cells = line.split(separator)
    return [cell.partition(" #")[0].strip() for cell in cells]


def _normal(header: str) -> str:
    """A header as its words: "TPOT (ms)" -> tpot_ms, "tok/s" -> tok_s."""
    return re.sub(r"[^a-z0-9]+", "_", header.strip().lower()).strip("_")


def _columns(header: Sequence[str]) -> list[_Column]:
    found = []
    for index, cell in enumerate(header):
        name = _normal(cell)
        bare, _, unit = name.rpartition("_")
        bare = _TIME_WORDS.get(bare, bare)
        if bare in _TIMES and unit in _TIME_UNITS:
            found.append(_Column(index, _TIMES[bare], _TIME_UNITS[unit], cell))
        elif name in _NAMES:
            found.append(_Column(index, _NAMES[name], 1.0, cell))
    return found


def _checked(header: Sequence[str], path: str) -> list[_Column]:
    columns = _columns(header)
    fields = [column.field for column in columns]
    for cell in header:
        name = _TIME_WORDS.get(_normal(cell), _normal(cell))
        if name in _TIMES:
            raise _error(path, f"column '{short(cell)}' without a unit", f"{name}_ms or {name}_s")
        if name == "throughput":
            raise _error(path, f"column '{short(cell)}' without a unit", "throughput_tokens_per_s")
    for field in fields:
        if fields.count(field) > 1:
            same = ", ".join(short(column.header) for column in columns if column.field == field)
            raise _error(path, f"columns {same} for one value", "one of them")
    if "concurrency" not in fields or not set(fields) & set(_MEASURES):
        raise _error(
            path,
            f"columns {short(', '.join(header))}",
            "concurrency with tpot_ms, tpot_s, step_ms, throughput_tokens_per_s or allreduce_share",
        )
    return columns


def _ignored(header: Sequence[str], columns: Sequence[_Column], path: str) -> tuple[str, ...]:
    used = {column.index for column in columns}
    names = [short(cell) for index, cell in enumerate(header) if index not in used and cell]
    return (f"{path}: columns not used: {short(', '.join(names), 200)}",) if names else ()


def _bare(cell: str) -> str:
    return cell.rstrip("% ").strip()


def _read_row(cells: list[str], columns: Sequence[_Column], marks: Marks, place: tuple[str, int]) -> Evidence:
    source, width = place
    if len(cells) > width:
        raise _error(source, f"{len(cells)} values for {width} columns", "a decimal comma needs ; or tab as separator")
    values: dict[str, float | str | None] = {}
    for column in columns:
        cell = cells[column.index] if column.index < len(cells) else ""
        values[column.field] = _value(cell, column, marks, source)
    concurrency = values.get("concurrency")
    if not isinstance(concurrency, float) or concurrency <= 0:
        raise _error(source, f"concurrency {concurrency if concurrency is not None else 'missing'}", "above 0")
    return _cell_of(values, source)


def _value(cell: str, column: _Column, marks: Marks, source: str) -> float | str | None:
    if cell.lower() in _EMPTY:
        return None
    if column.field in _TEXT:
        return short(cell)
    percent = cell.endswith("%")
    found = marks.value(_bare(cell))
    if found is None:
        unclear = ", without a mark between thousands" if "," in cell or "." in cell else ""
        raise _error(source, f"{short(column.header)} = '{short(cell)}'", f"a number from 0{unclear}")
    found = found / 100 if percent else found * column.unit
    if column.field in _SHARES and found > 1:
        raise _error(source, f"{short(column.header)} = {short(cell)}", "a share from 0 to 1, or with %")
    return found


def _cell_of(values: dict[str, float | str | None], source: str) -> Evidence:
    k = count(values.get("num_speculative_tokens"))
    if values.get("num_speculative_tokens") is not None and (k is None or k > MAX_DRAFT_TOKENS):
        raise _error(source, "num_speculative_tokens", f"a whole number from 0 to {MAX_DRAFT_TOKENS}")
    reason = _contradiction(values)
    if reason:
        return Evidence(refused=(Refused(source, reason),))
    numbers = {key: value for key, value in values.items() if isinstance(value, float)}
    texts = {key: value for key, value in values.items() if isinstance(value, str)}
    numbers.pop("num_speculative_tokens", None)
    step_s, per_step = numbers.pop("step_s", None), numbers.pop("tokens_per_step", None)
    cell = MeasuredCell(source, num_speculative_tokens=k, **numbers, **texts)  # type: ignore[arg-type]
    context = cell.context_tokens
    if context is None:
        context = mean_context(cell.input_tokens, cell.output_tokens)
    cell = replace(cell, context_tokens=context)
    if cell.tpot_s is None and step_s is not None:
        return Evidence((_from_step(cell, step_s, per_step),))
    found = with_steps(cell, step_s, per_step)
    if step_s is None or found.cells[0].step_s is None:
        return found
    return replace(found, cells=(replace(found.cells[0], step_s=step_s),))  # as it stands in the row


def _from_step(cell: MeasuredCell, step_s: float, per_step: float | None) -> MeasuredCell:
    """A row that tells the step and not TPOT: equal without speculation, else by the tokens of a step."""
    per_step = 1.0 if cell.num_speculative_tokens == 0 else per_step
    return replace(cell, step_s=step_s, tokens_per_step=per_step, tpot_s=step_s / per_step if per_step else None)


def _contradiction(values: dict[str, float | str | None]) -> str | None:
    """Why a row cannot be true."""
    low, high = PLAUSIBLE_TIME_S
    for name in ("tpot_s", "step_s"):
        time = values.get(name)
        if isinstance(time, float) and not low <= time <= high:
            return f"{name} = {time:.3g} s is none that a server has ({low:g} to {high:g} s): another unit?"
    if all(values.get(name) is None for name in _MEASURES):
        return "no time, throughput or share in this row"
    users, tpot_s, tokens_per_s = (values.get(name) for name in ("concurrency", "tpot_s", "throughput_tokens_per_s"))
    if isinstance(tpot_s, float) and isinstance(tokens_per_s, float) and isinstance(users, float):
        decoding = tokens_per_s * tpot_s  # Little's law
        if decoding > users * _MORE_THAN_ALL:
            return f"throughput times TPOT is {decoding:.3g}, more than the {users:g} that run: one of the two is wrong"
    return None


def _error(source: str, got: str, allowed: str) -> InputError:
    return InputError(f"{source}: got {got}; allowed: {allowed}")
