"""Scrapes of /metrics, in whatever files and order they come, made into windows of one server process.

Two scrapes of one process and model are a pair, whichever file came first: counters only grow. Another start time is
another process (a restart, or another server); a counter that falls between them was reset. Neither gives differences.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from calibration.readers.prometheus_text import Labels, Scrape
from calibration.records import Refused

_COUNTERS = ("_total", "_count", "_sum")
_SAME_START_S = 0.5  # the start time is printed in full; workers of one process tree share it
_MODEL = "model_name"
_START = "process_start_time_seconds"
_MOST_SOURCES = 3


@dataclass(frozen=True, slots=True)
class Window:
    """Differences between two scrapes of one process and model; `first` is None from the server's start on."""

    first: Scrape | None
    last: Scrape
    model: str
    engine: str  # "vllm", "sglang"

    @property
    def source(self) -> str:
        """Both files."""
        return self.last.source if self.first is None else f"{self.first.source} -> {self.last.source}"

    @property
    def elapsed_s(self) -> float | None:
        """Time between the scrapes, where their samples carry one."""
        if self.first is None or self.first.time_s is None or self.last.time_s is None:
            return None
        return self.last.time_s - self.first.time_s

    def delta(self, name: str) -> float | None:
        """Growth of a counter (or histogram sum or count), all engines together; None where it is not there."""
        last = self.last.value(name)
        if last is None:
            return None
        return last - ((self.first.value(name) if self.first is not None else None) or 0.0)

    def by_label(self, name: str, label: str) -> dict[str, float]:
        """Growth of a counter by the value of one of its labels, the other labels added up."""
        found: dict[str, float] = {}
        before = self.first.labelled(name) if self.first is not None else {}
        for labels, value in self.last.labelled(name).items():
            key = dict(labels).get(label)
            if key is not None:
                found[key] = found.get(key, 0.0) + value - before.get(labels, 0.0)
        return found

    def gauges(self, name: str) -> tuple[float, ...]:
        """A gauge at both ends, engines added up; fewer where it is missing."""
        ends = [self.last] if self.first is None else [self.first, self.last]
        return tuple(value for scrape in ends if (value := scrape.value(name)) is not None)


@dataclass(slots=True)
class _Process:
    """Scrapes of one process and model."""

    engine: str
    model: str
    start_time_s: float | None
    scrapes: list[Scrape] = field(default_factory=list)


def windows_of(scrapes: Sequence[Scrape]) -> tuple[list[Window], list[Refused]]:
    """(windows between consecutive scrapes of each process, or since its start where there is one scrape only; and
    the pairs that give none, with the reason)."""
    windows, refused = list[Window](), list[Refused]()
    processes = _processes(scrapes)
    for process in processes:
        alone = len(process.scrapes) == 1
        others = [item for item in processes if item is not process and _unpaired(item, process)]
        if alone and others:
            refused.append(_other_process(process, others[0]))
        elif alone:
            windows.append(Window(None, process.scrapes[0], process.model, process.engine))
        else:
            found, why = _pairs(process)
            windows += found
            refused += why
    return windows, _once(refused)


def _unpaired(other: _Process, process: _Process) -> bool:
    """Whether `other` may be the missing half of a pair: one scrape of the same model by another process."""
    return len(other.scrapes) == 1 and (other.engine, other.model) == (process.engine, process.model)


def _processes(scrapes: Sequence[Scrape]) -> list[_Process]:
    found: list[_Process] = []
    for scrape in scrapes:
        for engine, model, part in _models(scrape):
            start = scrape.start_time_s
            process = next((item for item in found if _same(item, engine, model, start)), None)
            if process is None:
                process = _Process(engine, model, start)
                found.append(process)
            process.start_time_s = start if process.start_time_s is None else process.start_time_s
            process.scrapes.append(part)
    return found


def _same(process: _Process, engine: str, model: str, start_time_s: float | None) -> bool:
    if (process.engine, process.model) != (engine, model):
        return False
    if process.start_time_s is None or start_time_s is None:
        return True  # multi-process mode, or lines of the engine alone: its counters tell
    return abs(process.start_time_s - start_time_s) < _SAME_START_S


def _models(scrape: Scrape) -> list[tuple[str, str, Scrape]]:
    """(engine, served model, the scrape's series of that model)."""
    parts: dict[tuple[str, str], Scrape] = {}
    for name, series in scrape.samples.items():
        engine = name.partition(":")[0] if ":" in name else ""
        for labels, value in series.items():
            if engine:
                key = (engine, dict(labels).get(_MODEL, ""))
                part = parts.setdefault(key, Scrape(scrape.source, time_s=scrape.time_s))
                part.samples.setdefault(name, {})[labels] = value
    _share_unlabelled(parts)
    start = scrape.labelled(_START)
    for part in parts.values():
        part.samples.update({_START: start} if start else {})
    return [(engine, model, part) for (engine, model), part in parts.items()]


def _share_unlabelled(parts: dict[tuple[str, str], Scrape]) -> None:
    """Series without a model (cache_config_info) belong to the only model of their engine."""
    for engine in {engine for engine, _ in parts}:
        named = [model for other, model in parts if other == engine and model]
        bare = parts.get((engine, ""))
        if bare is None or not named:
            continue
        del parts[(engine, "")]
        if len(named) == 1:
            for name, series in bare.samples.items():
                parts[(engine, named[0])].samples.setdefault(name, {}).update(series)


def _pairs(process: _Process) -> tuple[list[Window], list[Refused]]:
    ordered = sorted(process.scrapes, key=_progress)
    windows, refused = list[Window](), list[Refused]()
    for before, after in pairwise(ordered):
        reason = _no_difference(before, after)
        if reason:
            refused.append(Refused(f"{before.source} -> {after.source}", reason))
        else:
            windows.append(Window(before, after, process.model, process.engine))
    return windows, refused


def _progress(scrape: Scrape) -> tuple[float, float]:
    """Grows as the server works: its tokens, then every counter it has."""
    tokens = scrape.value(f"{_family(scrape)}:generation_tokens_total") or 0.0
    return tokens, sum(sum(series.values()) for name, series in scrape.samples.items() if name.endswith(_COUNTERS))


def _family(scrape: Scrape) -> str:
    return next((name.partition(":")[0] for name in scrape.samples if ":" in name), "")


def _no_difference(before: Scrape, after: Scrape) -> str | None:
    """Why the counters of two scrapes of a process cannot be subtracted."""
    missing = [name for name in before.samples if name.endswith(_COUNTERS) and name not in after.samples]
    for name, series in before.samples.items():
        if not name.endswith(_COUNTERS) or name in missing:
            continue
        fallen = _fallen(series, after.labelled(name))
        if fallen:
            return f"counter {name} {fallen}: the server was restarted or its counters reset between the two"
    if len(missing) > len(before.samples) / 2:
        return f"{len(missing)} counters of the first ({missing[0]}, ...) are not in the second: cut short?"
    return None


def _fallen(before: dict[Labels, float], after: dict[Labels, float]) -> str | None:
    for labels, value in before.items():
        if labels not in after and value > 0:
            return f"has lost the series {_shown(labels)}"
        if after.get(labels, value) < value:
            return f"falls from {value:.10g} to {after[labels]:.10g}"
    return None


def _shown(labels: Labels) -> str:
    return ", ".join(f"{name}={value}" for name, value in labels if name != _MODEL)[:80] or "without labels"


def _other_process(process: _Process, other: _Process) -> Refused:
    sources = [scrape.source for scrape in process.scrapes + other.scrapes][:_MOST_SOURCES]
    starts = [f"{item.start_time_s:.2f}" if item.start_time_s is not None else "unknown" for item in (process, other)]
    reason = (
        f"/metrics of two processes of {process.model or 'one model'} (started at {starts[0]} and {starts[1]}): the "
        "server was restarted between them, or they are two servers; two snapshots of one process are needed"
    )
    return Refused(" and ".join(sorted(sources)), reason)


def _once(refused: Sequence[Refused]) -> list[Refused]:
    """Without the same pair named from both sides."""
    return list({item.source: item for item in refused}.values())
