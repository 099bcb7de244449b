"""Which tool wrote a file: told by its content, never by its name."""

import csv
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from calibration.readers import aiperf, bench_serve, guidellm, run_file, sglang_bench, sweeps
from calibration.readers.collectives import is_nccl_tests
from calibration.readers.log_lines import inner_text
from calibration.readers.prometheus_text import is_metrics
from calibration.readers.tpot_csv import is_table
from calibration.readers.trace_events import is_trace
from calibration.readers.values import load_json, load_lines, mapping, shown
from calibration.readers.vllm_log import is_log
from hwmodel.errors import InputError
from simulator.deployment.keys import short
from simulator.nccl_json import is_nccl_json

BENCH = "vllm bench serve result"
SGLANG = "SGLang bench_serving result"
GUIDELLM = "GuideLLM report"
AIPERF = "AIPerf export"
AIPERF_REQUESTS = "AIPerf request records"
METRICS = "Prometheus text of a server"
LOG = "vLLM server log"
TRACE = "torch profiler trace"
NCCL = "nccl-tests output"
TABLE = "table of measured loads"
RUN_FILE = "draftcast run file"
_KNOWN = (
    "vllm bench serve and bench sweep results, SGLang bench_serving, GuideLLM benchmarks.json, AIPerf "
    "profile_export_aiperf.json, /metrics text of vLLM or SGLang, vLLM logs, torch profiler traces, nccl-tests "
    "output, tables with concurrency and tpot_ms, run files of draftcast measure"
)
_MAX_KEYS = 6
_HINT_CHARS = 20_000
_HEADER_CHARS = 1_000_000
_HINTS = (
    (
        "Serving Benchmark Result",
        "the printed table of a benchmark; give the file that --save-result (vLLM) or --output-file (SGLang) writes",
    ),
    ("Metric,avg,min,max", "the table of AIPerf or GenAI-Perf; give the JSON export beside it"),
    ("<html", "a web page"),
    ("<graph", "an NCCL graph file"),
    ("Traceback (most recent call last)", "a Python error"),
    ("set_id,", "the published measurements; draftcast backtest reads them"),
)


class UnknownFormatError(InputError):
    """A file that none of the known tools wrote."""


def format_of_text(content: str, path: str) -> str:
    """The format of a text that is no JSON; an `UnknownFormatError` that says what it looks like for any other."""
    if is_metrics(content):
        return METRICS
    if is_results_table(content):
        return BENCH
    if is_table(content[:_HEADER_CHARS]):
        return TABLE
    if is_nccl_tests(content[:_HEADER_CHARS]):
        return NCCL
    if is_log(content):
        return LOG
    raise unknown(path, _looks_like(content))


def format_of_record(record: Any) -> str | None:
    """The format of one JSON value; None for an unknown one."""
    kinds: tuple[tuple[str, Callable[[Any], bool]], ...] = (
        (BENCH, bench_serve.is_result),
        (BENCH, bench_serve.is_pooling),
        (BENCH, sweeps.is_failure),
        (SGLANG, sglang_bench.is_result),
        (RUN_FILE, run_file.is_run_file),
        (GUIDELLM, guidellm.is_report),
        (AIPERF, aiperf.is_export),
        (AIPERF_REQUESTS, aiperf.is_request_record),
        (NCCL, is_nccl_json),
    )
    return next((name for name, fits in kinds if fits(record)), None)


def is_json(content: str) -> bool:
    """Whether a text begins as JSON."""
    return content.lstrip("\ufeff \t\r\n")[:1] in ("{", "[")


def is_trace_head(head: str) -> bool:
    """Whether the beginning of a file is that of a Chrome trace."""
    return is_trace(head)


def is_json_log(content: str) -> bool:
    """Whether a text of JSON records carries a server's log lines (Docker, journald, collectors)."""
    line = content.lstrip("\ufeff \t\r\n").partition("\n")[0]
    try:
        return inner_text(json.loads(line)) is not None and is_log(content)
    except (ValueError, RecursionError):
        return False


def records_of(content: str, path: str) -> Iterator[tuple[str | None, Any]]:
    """(place, value) of every record: the file's value, the members of its list, one per line, or one after the other
    (`cat *.json`)."""
    value = _whole(content, path)
    if value is _LINES:
        for line, record in load_lines(content.lstrip("\ufeff"), path):
            yield f"line {line}", record
    elif isinstance(value, _Sequence):
        yield from ((f"record {index}", record) for index, record in enumerate(value.records, start=1))
    elif isinstance(value, list):
        for index, record in enumerate(value):
            yield f"[{index}]", record
    else:
        yield None, value


_LINES = object()
_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\r\n]*")


@dataclass(frozen=True, slots=True)
class _Sequence:
    """JSON objects one after the other, not one a line."""

    records: list[Any]


def _whole(content: str, path: str) -> Any:
    text = content.lstrip("\ufeff")
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        if _first_line_is_whole(text):
            return _LINES
        if error.msg == "Extra data" and (found := _one_after_the_other(text)):
            return _Sequence(found)
        return load_json(text, path)
    except (RecursionError, ValueError):
        return load_json(text, path)


def _one_after_the_other(text: str) -> list[Any]:
    """The objects of a text that is nothing but objects; none where it is anything else."""
    records, place = [], 0
    while (place := _end_of(_SPACE, text, place)) < len(text):
        try:
            record, place = _DECODER.raw_decode(text, place)
        except (ValueError, RecursionError):
            return []
        if not isinstance(record, dict):
            return []
        records.append(record)
    return records


def _end_of(pattern: re.Pattern[str], text: str, place: int) -> int:
    found = pattern.match(text, place)
    return found.end() if found else place


def _first_line_is_whole(text: str) -> bool:
    line = text.lstrip().partition("\n")[0]
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def is_results_table(content: str) -> bool:
    """Whether a text is a sweep's summary.csv: results of `vllm bench serve` as rows."""
    header = content.lstrip("\ufeff").partition("\n")[0]
    return "mean_tpot_ms" in header and "request_throughput" in header and "," in header


def rows_of(content: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place, record) of every row of a summary.csv; empty cells left out."""
    lines = content.lstrip("\ufeff").splitlines()
    try:
        for index, row in enumerate(csv.DictReader(lines), start=2):
            yield f"line {index}", {key: value for key, value in row.items() if key and value not in ("", None)}
    except csv.Error:
        return


def unknown(path: str, looks_like: str) -> UnknownFormatError:
    """The error for a file that is of no known format."""
    return UnknownFormatError(f"{shown(path)}: looks like {looks_like}; known formats: {_KNOWN}")


def shape_of(record: Any) -> str:
    """What an unknown JSON value looks like, in words."""
    if isinstance(record, list):
        return "a JSON list inside a list"
    found = mapping(record)
    if not isinstance(record, dict):
        return f"a JSON {type(record).__name__}"
    if "benchmark" in found and "metric" in found:
        return "PyTorch's benchmark format; the result file beside it (without .pytorch) is the one that can be read"
    if isinstance(found.get("results"), list):
        return "a JSON object with results (a replay goes into the deployment's acceptance.replay)"
    keys = ", ".join(short(str(key), 30) for key in list(found)[:_MAX_KEYS])
    return f"a JSON object with the keys {keys}" if keys else "an empty JSON object"


def _looks_like(content: str) -> str:
    for mark, words in _HINTS:
        if mark in content[:_HINT_CHARS]:
            return words
    line = next((line for line in content.splitlines() if line.strip()), "")
    return f"text that begins '{short(line)}'"
