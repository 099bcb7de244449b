"""The lines of a vLLM server's log that say something, whatever stands before them (journal, docker, pod, colours).

Formats: vLLM 0.8 to 0.33 v1/metrics/loggers.py, v1/spec_decode/metrics.py, v1/engine/core.py, and the V0 engine's
metrics; Docker's json-file and journalctl's JSON carry the same lines as values.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from calibration.readers.values import mapping, number, text

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_NUMBER = r"([0-9]+(?:\.[0-9]+)?|nan)"
MARKS = (  # literals: a log of a day is searched for them before any line is taken apart
    "SpecDecoding metrics:",
    "Speculative metrics:",
    "Avg generation throughput:",
    "Iteration(",
    "GPU KV cache size:",
    "Maximum concurrency for ",
    "non-default args:",
    "LLM engine (v",
    "vLLM API server version",
)
_LOAD = re.compile(
    r"(?:Engine (?P<engine>\d+)|(?P<all>\d+ Engines Aggregated))?[:\s]*"
    r"Avg prompt throughput:\s*(?P<prompt>\d+(?:\.\d+)?) tokens/s, "
    r"Avg generation throughput:\s*(?P<tokens>\d+(?:\.\d+)?) tokens/s, Running:\s*(?P<running>\d+) reqs"
    r"(?:, Swapped:\s*\d+ reqs)?, (?:Waiting|Pending):\s*(?P<waiting>\d+) reqs"
)
_ITERATION = re.compile(
    r"(?<!Draft)\bIteration\(\d+\): (\d+) context requests, (\d+) context tokens, (\d+) generation requests, "
    r"(\d+) generation tokens, iteration elapsed time: (\d+(?:\.\d+)?) ms(?! \(dummy\))"
)
_KV_SIZE = re.compile(r"GPU KV cache size:\s*(\d[\d,]*) tokens")
_KV_RATIO = re.compile(r"Maximum concurrency for (\d[\d,]*) tokens per request:\s*(\d+(?:\.\d+)?)x")
_CORE = re.compile(r"EngineCore_DP(\d+)")
_VERSION = re.compile(r"(?:LLM engine \(v|vLLM API server version )([0-9][\w.+]*)")
_SPEC_CONFIG = re.compile(r"speculative_config=(None|SpeculativeConfig\((?P<inside>[^)]*)\))")
_ARGUMENTS = "non-default args: "
_MAX_ARGUMENTS = 100_000  # characters of a Python dict; a longer one is not parsed
_RATE_DIGIT, _LENGTH_DIGIT = 0.0005, 0.006  # half of the last printed digit of a rate, of a mean length
_STARTS = ("vLLM API server version", "LLM engine (v", _ARGUMENTS.strip())


@dataclass(frozen=True, slots=True)
class Drafted:
    """One "SpecDecoding metrics" line: counts of its interval, with the drafts that its rounded figures leave."""

    drafts: float
    accepted: float
    drafted: float
    accepted_per_position: tuple[float, ...]
    accepted_tokens_per_s: float | None
    bonus_included: bool


@dataclass(frozen=True, slots=True)
class Load:
    """One throughput line: means of about ten seconds, and gauges at its end."""

    engine: str
    prompt_tokens_per_s: float
    tokens_per_s: float
    running: int
    waiting: int


@dataclass(frozen=True, slots=True)
class Iteration:
    """One engine step: scheduled tokens and the time that the engine waited for its result."""

    context_tokens: int
    requests: int
    tokens: int
    elapsed_ms: float


@dataclass(frozen=True, slots=True)
class Startup:
    """What a start-up line tells of the server; `num_speculative_tokens` 0 where it says that there are none."""

    version: str | None = None
    model: str | None = None
    method: str | None = None
    num_speculative_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Capacity:
    """Tokens that the KV cache of one engine holds."""

    engine: str
    tokens: float


@dataclass(frozen=True, slots=True)
class Unusable:
    """A line that was understood and must not be used."""

    reason: str


Fact = Drafted | Load | Iteration | Startup | Capacity | Unusable


def plain(line: str) -> str:
    """`line` without colours."""
    return _ANSI.sub("", line).rstrip()


def inner_text(record: Any) -> str | None:
    """The log line that a JSON log record carries (docker, journald, most collectors); None without one."""
    found = mapping(record)
    for name in ("log", "MESSAGE", "message", "msg"):
        if isinstance(found.get(name), str):
            return str(found[name])
    return None


def facts_of(line: str) -> Iterator[Fact]:
    """What one line says."""
    if "Iteration(" in line:
        yield from _iteration(line)
    elif "Avg generation throughput:" in line:
        yield from _load(line)
    elif "SpecDecoding metrics:" in line:
        yield _drafted(line.partition("SpecDecoding metrics:")[2])
    elif "Speculative metrics:" in line:
        yield Unusable("acceptance: vLLM's V0 engine counts no drafts and no positions")
    elif any(mark in line for mark in _STARTS):
        yield _startup(line)
    else:
        yield from _capacity(line)


def _iteration(line: str) -> Iterator[Fact]:
    if found := _ITERATION.search(line):
        yield Iteration(int(found[2]), int(found[3]), int(found[4]), float(found[5]))


def _load(line: str) -> Iterator[Fact]:
    if found := _LOAD.search(line):
        engine = "all" if found["all"] else found["engine"] or "0"
        yield Load(engine, float(found["prompt"]), float(found["tokens"]), int(found["running"]), int(found["waiting"]))


def _capacity(line: str) -> Iterator[Fact]:
    core = _CORE.search(line)
    engine = core[1] if core else "0"
    if found := _KV_SIZE.search(line):
        yield Capacity(engine, float(found[1].replace(",", "")))
    elif found := _KV_RATIO.search(line):
        yield Capacity(engine + " about", float(found[1].replace(",", "")) * float(found[2]))


def _drafted(line: str) -> Fact:
    """Counts of a line. Its mean length leaves the bonus token out in 0.8; the per-position rates tell which it is."""
    accepted, drafted = _field(line, "Accepted"), _field(line, "Drafted")
    rates = _rates(line)
    length = _field(line, "Mean acceptance length")
    if accepted is None or drafted is None or not rates:
        return Unusable("a SpecDecoding line without accepted and drafted tokens or without positions")
    if not drafted:
        return Unusable("a SpecDecoding line of an interval without drafts")
    drafts = _num_drafts(accepted, drafted, rates)
    positions = tuple(rate * drafts for rate in rates)
    rounding = _RATE_DIGIT * len(rates) + _LENGTH_DIGIT
    with_bonus = length is not None and abs(length - 1 - sum(rates)) <= rounding
    without = length is not None and abs(length - sum(rates)) <= rounding
    if length is not None and not with_bonus and not without:
        return Unusable(
            f"acceptance: mean length {length:g} is neither the sum of the positions ({sum(rates):.3f}) nor 1 + it"
        )
    return Drafted(
        drafts, accepted, drafted, positions, _field(line, "Accepted throughput"), with_bonus or length is None
    )


def _field(line: str, name: str) -> float | None:
    found = re.search(rf"(?:^|[\s,]){name}:\s*{_NUMBER}", line)
    return number(found[1]) if found else None


def _rates(line: str) -> tuple[float, ...]:
    found = re.search(r"Per-position acceptance rate:\s*(\d[\d.]*(?:,\s*\d[\d.]*)*)", line)
    values = [number(part) for part in found[1].split(",")] if found else []
    return tuple(value for value in values if value is not None and value <= 1)


def _num_drafts(accepted: float, drafted: float, rates: tuple[float, ...]) -> float:
    """Drafts of the interval, which are not printed: tokens / k where that fits the positions, else accepted / sum S_i.

    Every draft has k tokens with a model as drafter; text lookup drafts fewer, and only the positions tell.
    """
    whole = drafted / len(rates)
    total = sum(rates)
    if not total or abs(accepted / whole - total) <= _RATE_DIGIT * len(rates) + 1 / whole:
        return whole
    return accepted / total


def _startup(line: str) -> Startup:
    version = _VERSION.search(line)
    known = Startup(version=version[1] if version else None)
    if _ARGUMENTS in line:
        return _from_arguments(line.partition(_ARGUMENTS)[2].strip(), known)
    config = _SPEC_CONFIG.search(line)
    if config is None:
        return known
    inside = config["inside"]
    if inside is None:
        return Startup(version=known.version, num_speculative_tokens=0)
    method, k = re.search(r"method='(\w+)'", inside), re.search(r"num_spec(?:ulative)?_tokens=(\d+)", inside)
    return Startup(known.version, None, method[1] if method else None, int(k[1]) if k else None)


def _from_arguments(arguments: str, known: Startup) -> Startup:
    """The printed dict of arguments, as a literal; keys that are not wanted (secrets among them) are not kept."""
    given: Mapping[str, Any] = {}
    if len(arguments) <= _MAX_ARGUMENTS:
        try:
            given = mapping(ast.literal_eval(arguments))
        except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
            given = {}
    config = mapping(given.get("speculative_config"))
    if not given:
        k = re.search(r"'num_speculative_tokens': (\d+)", arguments)
        method = re.search(r"'speculative_config': \{[^}]*'method': '(\w+)'", arguments)
        return Startup(known.version, None, method[1] if method else None, int(k[1]) if k else None)
    tokens = number(config.get("num_speculative_tokens"))
    return Startup(
        known.version,
        text(given.get("model")),
        text(config.get("method")),
        int(tokens) if tokens is not None else None,
    )
