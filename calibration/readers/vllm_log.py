"""A vLLM server's log as evidence: load, acceptance, KV cache and single steps, one cell per batch that held still.

A log may hold several starts of the server; each has its own settings and its own cells. An interval of the throughput
line is used only where the running requests are the same at both ends, nothing waits and little is prefilled: then
TPOT = running / throughput. `Iteration(n)` lines are the best source of step time by scheduled tokens; their time is
what the engine waited for the result, so host work that overlaps (async scheduling) or comes after is not in it.
"""

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from calibration.readers.acceptance import Counted, counts_of
from calibration.readers.log_lines import (
    MARKS,
    Capacity,
    Drafted,
    Fact,
    Iteration,
    Load,
    Startup,
    Unusable,
    facts_of,
    inner_text,
    plain,
)
from calibration.readers.values import mean, median
from calibration.records import AcceptanceCounts, Evidence, MeasuredCell, Refused, StepSample
from hwmodel.units import MS
from simulator.deployment.speculation import MAX_DRAFT_TOKENS

_PREFILL_LIMIT = 0.2  # prompt tokens per generated token in an interval: a fifth costs about 3 % of the time
_INTERVAL_NOISE = 0.05  # of one ten-second interval: model specification, section 7
_NOISE_FLOOR = 0.03
_OUTLIER = 3.0  # times the median of equal steps: compilation, graph capture, garbage collection
_MAX_SAMPLES = 5_000  # distinct step sizes of one log; a fit needs a few hundred


@dataclass(slots=True)
class _Section:
    """One life of the server."""

    first_line: int
    startup: Startup = field(default_factory=Startup)
    kv_tokens: dict[str, float] = field(default_factory=dict)
    drafted: list[Drafted] = field(default_factory=list)
    rounds: list[dict[str, Load]] = field(default_factory=list)
    accepted_per_s: list[float | None] = field(default_factory=list)  # of each round, where a line told it
    iterations: dict[tuple[int, int, int], list[float]] = field(default_factory=dict)
    unusable: dict[str, int] = field(default_factory=dict)

    @property
    def has_run(self) -> bool:
        """Whether it has served, so that a start-up line begins another life."""
        return bool(self.drafted or self.rounds or self.iterations)


def is_log(content: str) -> bool:
    """Whether a text has lines of a vLLM server that say something."""
    return any(mark in content for mark in MARKS)


def read_log(content: str, path: str) -> Evidence:
    """Cells, steps and refusals of a log."""
    evidence = Evidence()
    for section in _sections(_lines(content)):
        evidence += _read_section(section, path)
    if not (evidence.cells or evidence.steps or evidence.refused):
        return evidence + Evidence(refused=(Refused(path, "start-up lines only: nothing was measured in this log"),))
    return evidence


def _lines(content: str) -> Iterator[tuple[int, str]]:
    """(number, text) of the lines that may say something, JSON records unwrapped."""
    place, index = 0, 1
    while place < len(content):
        end = content.find("\n", place)
        end = len(content) if end < 0 else end
        line = content[place:end]
        if any(mark in line for mark in MARKS):
            yield index, plain(_unwrapped(line))
        place, index = end + 1, index + 1


def _unwrapped(line: str) -> str:
    if not line.lstrip().startswith("{"):
        return line
    try:
        return inner_text(json.loads(line)) or line
    except (ValueError, RecursionError):
        return line


def _sections(lines: Iterable[tuple[int, str]]) -> list[_Section]:
    sections = [_Section(1)]
    for index, line in lines:
        for fact in facts_of(line):
            if isinstance(fact, Startup | Capacity) and sections[-1].has_run:
                sections.append(_Section(index))
            _add(sections[-1], fact)
    return sections


def _add(section: _Section, fact: Fact) -> None:
    if isinstance(fact, Startup):
        section.startup = _merged(section.startup, fact)
    elif isinstance(fact, Capacity):
        section.kv_tokens[fact.engine] = fact.tokens
    elif isinstance(fact, Load):
        _add_load(section, fact)
    elif isinstance(fact, Drafted):
        section.drafted.append(fact)
        if section.accepted_per_s:
            section.accepted_per_s[-1] = (section.accepted_per_s[-1] or 0.0) + (fact.accepted_tokens_per_s or math.nan)
    elif isinstance(fact, Iteration):
        key = (fact.context_tokens, fact.requests, fact.tokens)
        if key in section.iterations or len(section.iterations) < _MAX_SAMPLES:
            section.iterations.setdefault(key, []).append(fact.elapsed_ms * MS)
    elif isinstance(fact, Unusable):
        section.unusable[fact.reason] = section.unusable.get(fact.reason, 0) + 1


def _merged(before: Startup, after: Startup) -> Startup:
    return Startup(
        after.version or before.version,
        after.model or before.model,
        after.method or before.method,
        before.num_speculative_tokens if after.num_speculative_tokens is None else after.num_speculative_tokens,
    )


def _add_load(section: _Section, load: Load) -> None:
    """Lines of several engines that log together are one round; an engine that comes again begins the next."""
    if not section.rounds or load.engine in section.rounds[-1]:
        section.rounds.append({})
        section.accepted_per_s.append(None)
    section.rounds[-1][load.engine] = load


def _read_section(section: _Section, path: str) -> Evidence:
    source = path if section.first_line == 1 else f"{path} from line {section.first_line}"
    counts, refused, notes = _acceptance(section, source)
    cells, not_used = _cells(section, source, counts, notes)
    refused += [Refused(source, f"{reason} ({times} lines)") for reason, times in section.unusable.items()]
    kv_tokens = _kv_tokens(section)
    if not cells and (counts is not None or kv_tokens is not None):
        cells = [_cell(section, source, counts, notes)]
    steps = tuple(_steps(section, source))
    noted = (f"{source}: step times are what the engine waited for a result; overlapped host work is not in them",)
    return Evidence(tuple(cells), steps, refused=(*refused, *not_used), notes=noted if steps else ())


def _kv_tokens(section: _Section) -> float | None:
    """Sum over engines; the rounded figure only where the exact one is missing."""
    exact = [tokens for engine, tokens in section.kv_tokens.items() if not engine.endswith("about")]
    values = exact or list(section.kv_tokens.values())
    return sum(values) if values else None


def _acceptance(section: _Section, source: str) -> tuple[AcceptanceCounts | None, list[Refused], tuple[str, ...]]:
    """Counts of all lines together."""
    lines = section.drafted
    lengths = {len(line.accepted_per_position) for line in lines}
    if not lines:
        return None, [], ()
    if len(lengths) > 1 or max(lengths) > MAX_DRAFT_TOKENS:
        return None, [Refused(source, f"acceptance: lines with {sorted(lengths)} positions in one run")], ()
    counts, reason, notes = counts_of(
        Counted(
            drafts=sum(line.drafts for line in lines),
            accepted_per_position=tuple(
                sum(column) for column in zip(*(line.accepted_per_position for line in lines), strict=True)
            ),
            accepted=sum(line.accepted for line in lines),
            draft_tokens=sum(line.drafted for line in lines),
        )
    )
    if any(not line.bonus_included for line in lines):
        notes += ("the log's mean acceptance length leaves the bonus token out (vLLM 0.8)",)
    return counts, [Refused(source, reason)] if reason else [], notes


def _cell(section: _Section, source: str, counts: AcceptanceCounts | None, notes: tuple[str, ...]) -> MeasuredCell:
    startup = section.startup
    k = startup.num_speculative_tokens
    if counts is not None and k != (positions := len(counts.accepted_per_position)):
        if k is not None:
            notes += (f"the start-up lines say k = {k}, the metrics lines have {positions} positions",)
        k = positions
    return MeasuredCell(
        source=source,
        num_speculative_tokens=k,
        method=startup.method,
        kv_cache_tokens=_kv_tokens(section),
        acceptance=counts,
        engine="vllm",
        engine_version=startup.version,
        model=startup.model,
        notes=notes,
    )


def _cells(
    section: _Section, source: str, counts: AcceptanceCounts | None, notes: tuple[str, ...]
) -> tuple[list[MeasuredCell], list[Refused]]:
    """One cell per number of running requests that held still; the counts stand in the first."""
    groups: dict[int, list[tuple[float, float | None]]] = {}
    left_out = 0
    for index, (before, after) in enumerate(zip(section.rounds, section.rounds[1:], strict=False)):
        if _still(before, after):
            running = sum(load.running for load in after.values())
            tokens_per_s = sum(load.tokens_per_s for load in after.values())
            groups.setdefault(running, []).append((tokens_per_s, section.accepted_per_s[index + 1]))
        else:
            left_out += 1
    base = replace(_cell(section, source, counts, notes), acceptance=None)
    cells = [_load_cell(base, running, found) for running, found in sorted(groups.items())]
    if cells and counts is not None:
        cells.append(_cell(section, source, counts, notes))
    reason = f"{left_out} throughput lines: running requests changed, some waited, or much was prefilled meanwhile"
    return cells, [Refused(source, reason)] if left_out else []


def _still(before: dict[str, Load], after: dict[str, Load]) -> bool:
    """Whether every engine ran the same number of requests at both ends, with nothing waiting and little prefill."""
    if before.keys() != after.keys() or not any(load.running for load in after.values()):
        return False
    return all(
        load.running == before[engine].running
        and not load.waiting
        and load.prompt_tokens_per_s <= _PREFILL_LIMIT * load.tokens_per_s
        and (load.tokens_per_s > 0) == (load.running > 0)
        for engine, load in after.items()
    )


def _load_cell(base: MeasuredCell, running: int, found: Sequence[tuple[float, float | None]]) -> MeasuredCell:
    """The cell of all intervals with `running` requests."""
    tokens_per_s = mean([tokens for tokens, _ in found])
    accepted = [rate for _, rate in found if rate is not None and math.isfinite(rate)]
    per_step = 1.0 if base.num_speculative_tokens == 0 else None
    if len(accepted) == len(found) and mean(accepted) < tokens_per_s:
        per_step = tokens_per_s / (tokens_per_s - mean(accepted))  # steps = tokens - accepted
    tpot_s = running / tokens_per_s
    return MeasuredCell(
        source=f"{base.source} ({running} running)",
        concurrency=float(running),
        num_speculative_tokens=base.num_speculative_tokens,
        method=base.method,
        tpot_s=tpot_s,
        step_s=tpot_s * per_step if per_step else None,
        throughput_tokens_per_s=tokens_per_s,
        tokens_per_step=per_step,
        relative_noise=max(_NOISE_FLOOR, _INTERVAL_NOISE / math.sqrt(len(found))),
        kv_cache_tokens=base.kv_cache_tokens,
        engine=base.engine,
        engine_version=base.engine_version,
        model=base.model,
        notes=(*base.notes, f"from {len(found)} throughput lines of the log"),
    )


def _steps(section: _Section, source: str) -> Iterator[StepSample]:
    """Equal iterations together, slow outliers left out."""
    for (context, requests, tokens), times in sorted(section.iterations.items()):
        limit = _OUTLIER * median(times)
        kept = [time for time in times if 0 < time <= limit]
        if kept and tokens + context > 0:
            yield StepSample(source, float(tokens + context), float(requests), float(context), mean(kept), len(kept))
