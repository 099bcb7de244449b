"""What a watch knows as Prometheus text: format 0.0.4, for Grafana.

A series is there while its figure is known: what the last interval could not tell is left out, not repeated.
Source: Prometheus documentation, "Exposition formats".
"""

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from validate.client.server_facts import ServerFacts
from validate.watch.record import STATUSES, Record

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PREFIX = "draftcast_watch_"
_QUANTILES = {"p05": "0.05", "p50": "0.5", "p95": "0.95"}

Sample = tuple[Mapping[str, str], float]


@dataclass(frozen=True, slots=True)
class Family:
    """One metric with its samples; no lines where it has none."""

    name: str
    kind: str  # "gauge", "counter"
    help: str
    samples: tuple[Sample, ...]

    def lines(self) -> Iterable[str]:
        """HELP, TYPE, and a line for each sample."""
        if not self.samples:
            return
        name = PREFIX + self.name
        yield f"# HELP {name} {_escaped(self.help, quote=False)}"
        yield f"# TYPE {name} {self.kind}"
        for labels, value in self.samples:
            text = ",".join(f'{key}="{_escaped(word, quote=True)}"' for key, word in labels.items())
            yield f"{name}{{{text}}} {_number(value)}" if text else f"{name} {_number(value)}"


@dataclass(slots=True)
class Figures:
    """The state behind the text; `time_s` are seconds since 1970."""

    url: str
    interval_s: float
    looks: int = 0
    errors: int = 0
    last_good_s: float | None = None
    by_status: dict[str, int] = field(default_factory=dict)
    changes: int = 0
    record: Record | None = None
    facts: ServerFacts | None = None
    _good_s: float = field(default_factory=time.monotonic)  # a clock that is set does not make the server unwell
    _text: str = ""

    def published(self) -> str:
        """The answer as of the last record: what another thread may read at any time."""
        return self._text or self.text()

    @property
    def since_good_s(self) -> float:
        """Time since the last look that could be used, or since the start."""
        return time.monotonic() - self._good_s

    def take(self, record: Record, facts: ServerFacts | None, time_s: float) -> None:
        """Takes one interval's record."""
        self.looks += 1
        self.by_status[record.status] = self.by_status.get(record.status, 0) + 1
        self.record, self.facts = record, facts
        self.changes += record.changed
        if record.is_failed:
            self.errors += 1
        else:
            self.last_good_s, self._good_s = time_s, time.monotonic()
        self._text = self.text()

    def text(self) -> str:
        """The whole answer."""
        families = (*self._of_watch(), *self._of_verdict(), *self._of_traffic())
        return "\n".join(line for family in families for line in family.lines()) + "\n"

    def _of_watch(self) -> Iterable[Family]:
        facts = self.facts
        told = {
            "url": self.url,
            "model": facts.model if facts else None,
            "engine": facts.engine if facts else None,
            "version": facts.engine_version if facts else None,
        }
        labels = {name: value for name, value in told.items() if value}
        up = None if self.record is None else float(not self.record.is_failed)
        yield Family("info", "gauge", "The server that is watched.", ((labels, 1.0),))
        yield _gauge("up", "Whether the last look at the server's /metrics could be used.", up)
        yield _gauge("interval_seconds", "Time between two looks.", self.interval_s)
        yield _gauge("last_scrape_timestamp_seconds", "When a look could last be used.", self.last_good_s)
        yield Family("scrapes_total", "counter", "Looks at the server's /metrics.", (({}, float(self.looks)),))
        yield Family("scrape_errors_total", "counter", "Looks that could not be used.", (({}, float(self.errors)),))
        by_status = tuple(({"status": name}, float(self.by_status.get(name, 0))) for name in STATUSES)
        yield Family("intervals_total", "counter", "Intervals by what they were found to be.", by_status)
        yield Family("changes_total", "counter", "Announcements of another best length.", (({}, float(self.changes)),))

    def _of_verdict(self) -> Iterable[Family]:
        record = self.record
        if record is None:
            return
        advice, best = record.advice, record.best
        yield _gauge("deployed_num_speculative_tokens", "Draft tokens per step that run now.", record.deployed)
        yield _gauge("best_num_speculative_tokens", "Draft tokens per step that are announced as best.", best)
        if advice is None or best is None:
            return
        figures = advice.figures(best)
        samples = tuple(({"quantile": _QUANTILES[name]}, value) for name, value in figures.items() if value is not None)
        yield Family("speedup", "gauge", "Throughput of the announced length over the deployed one.", samples)
        better = advice.probability_better(best)
        yield _gauge("probability_better", "That the announced length is faster than the deployed one.", better)
        yield _gauge("interval_best_num_speculative_tokens", "Best of this interval alone.", advice.best)
        rows = advice.rows()
        labels = [{"num_speculative_tokens": str(row["num_speculative_tokens"])} for row in rows]
        medians = tuple((label, row["speedup"]["p50"]) for label, row in zip(labels, rows, strict=True))
        odds = tuple((label, row["probability_better"]) for label, row in zip(labels, rows, strict=True))
        yield Family("length_speedup", "gauge", "Median throughput of every length over the deployed one.", medians)
        yield Family("length_probability_better", "gauge", "That a length is faster than the deployed one.", odds)

    def _of_traffic(self) -> Iterable[Family]:
        traffic = self.record.traffic if self.record is not None else None
        if traffic is None:
            return
        yield _gauge("concurrency", "Requests in a decode step, mean over the steps.", traffic.concurrency)
        yield _gauge("running_requests", "Requests in decode, mean over the time.", traffic.running_mean)
        yield _gauge("waiting_requests", "Requests in the server's queue.", traffic.waiting)
        yield _gauge("tokens_per_step", "Tokens of a request in a step.", traffic.tokens_per_step)
        yield _gauge("step_seconds", "Mean engine step.", traffic.step_s)
        yield _gauge("tpot_seconds", "Mean time per output token.", traffic.tpot_s)
        yield _gauge("tokens_per_second", "Generated tokens.", traffic.throughput_tokens_per_s)
        yield _gauge("draft_probability", "Share of decode steps with a draft.", traffic.draft_probability)
        positions = tuple(({"position": str(i)}, share) for i, share in enumerate(traffic.per_position or ()))
        yield Family("acceptance", "gauge", "Share of drafts with this position accepted.", positions)


def _gauge(name: str, help_text: str, value: float | None) -> Family:
    return Family(name, "gauge", help_text, () if value is None else (({}, float(value)),))


def _escaped(text: str, *, quote: bool) -> str:
    """Backslash and line feed escaped, in labels the quote as well.

    >>> _escaped('a"b', quote=True), _escaped('a"b', quote=False)
    ('a\\\\"b', 'a"b')
    """
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quote else text


def _number(value: float) -> str:
    """A sample's value: whole numbers without a fraction."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(value)
