"""`draftcast watch` for a human reader: one row an interval, a sentence where something changes."""

from datetime import datetime

from draftcast.render.numbers import UNDEFINED, counted, factor, interval, milliseconds, probability, significant
from draftcast.render.page import Page
from hwmodel.percent import percent
from validate.client.server_facts import ServerFacts
from validate.watch.advice import Advice
from validate.watch.record import Record
from validate.watch.run import Summary
from validate.watch.steady import Rule

_HEAD = ("time", "load", "tok/step", "step ms", "k", "best", "other", "speedup", "90 %", "P")
_WIDTHS = (8, 5, 8, 7, 2, 4, 5, 7, 9, 6)
_QUIET = ("idle", "few")


class WatchTable:
    """The rows of a watch as they come; what is said once is not said again until it changes."""

    def __init__(self, page: Page) -> None:
        """Nothing is printed yet."""
        self._page = page
        self._said = ""
        self._notes: set[str] = set()

    def start(self, server: str, waiting: str | None, every_s: float, rule: Rule) -> None:
        """What is watched, and when a change is announced."""
        self._page.headline(f"Watching {server}.")
        self._page.text(
            f"A look every {every_s:g} s. Another draft length is announced when it is better with P of at least "
            f"{percent(rule.min_probability)}, by at least {percent(rule.min_gain)}, in"
            f" {counted(rule.persist, 'interval')} "
            "with traffic one after the other. Ctrl-C ends."
        )
        if waiting:
            self._page.text(f"Not yet: {waiting}. Waiting for it.")
        self._page.row("")
        self._page.row(_row(_HEAD))

    def add(self, record: Record) -> None:
        """One record: a row with figures, or a sentence where there are none and it is news."""
        if record.traffic is not None:
            self._page.row(_row(_cells(record)))
        if record.status != "ok":
            self._say(record, f"{_clock(record)}  {_status(record)}{record.reason}", record.reason)
        elif record.changed:
            self._page.headline(f"{_clock(record)}  {record.reason}.")
            self._said = ""
        else:
            self._back(record)
        for note in record.advice.notes if record.advice is not None else ():
            if note not in self._notes:
                self._notes.add(note)
                self._page.text(f"note: {note}")

    def _say(self, record: Record, text: str, reason: str) -> None:
        key = record.status if record.status in _QUIET else reason
        if key != self._said:
            self._page.text(text)
        self._said = key

    def _back(self, record: Record) -> None:
        if self._said and self._said not in _QUIET:
            self._page.text(f"{_clock(record)}  back: figures again.")
        self._said = ""

    def end(self, summary: Summary) -> None:
        """What was seen in all."""
        for line in summary_lines(summary):
            self._page.text(line)


def summary_lines(summary: Summary) -> list[str]:
    """The watch in one sentence, and every announcement."""
    parts = ", ".join(f"{number} {_MEANING[status]}" for status, number in summary.by_status.items())
    lines = [f"Watched {counted(summary.intervals, 'interval')}{': ' + parts if parts else ''}."]
    return lines + [f"Announced {line}." for line in summary.announcements or ()]


_MEANING = {
    "ok": "compared",
    "unknown": "without a comparison",
    "idle": "idle",
    "few": "with too little traffic",
    "frozen": "with frozen counters",
    "unreadable": "not readable",
    "lost": "lost",
    "restarted": "at a start of the server",
    "unreachable": "unreachable",
}


def server_line(url: str, facts: ServerFacts | None) -> str:
    """Which server, with what it runs."""
    if facts is None:
        return url
    engine = " ".join(word for word in (facts.engine, facts.engine_version) if word)
    k = facts.num_speculative_tokens
    drafts = "draft length not told" if k is None else counted(k, "draft token") if k else "no speculation"
    method = f" ({facts.method})" if facts.method not in (None, "none") else ""
    return f"{facts.model}{' on ' + engine if engine else ''} at {url}, {drafts}{method}"


def _status(record: Record) -> str:
    return "" if record.status in ("lost", "restarted", "unknown") else f"{record.status}: "


def _clock(record: Record) -> str:
    """The time of day here."""
    return datetime.fromisoformat(record.time).astimezone().strftime("%H:%M:%S")


def _cells(record: Record) -> tuple[str, ...]:
    traffic, advice, best = record.traffic, record.advice, record.best
    assert traffic is not None
    row = (
        _clock(record),
        significant(traffic.concurrency),
        UNDEFINED if traffic.tokens_per_step is None else f"{traffic.tokens_per_step:.2f}",
        milliseconds(traffic.step_s),
        UNDEFINED if record.deployed is None else str(record.deployed),
        UNDEFINED if best is None else str(best),
    )
    shown = None if advice is None or best is None else best if best != advice.deployed else _nearest(advice)
    if advice is None or shown is None:
        return (*row, *[UNDEFINED] * 4)
    figures = advice.figures(shown)
    return (*row, str(shown), factor(figures["p50"]), interval(figures), probability(advice.probability_better(shown)))


def _nearest(advice: Advice) -> int | None:
    """The best of the other lengths: how near the deployed one is to being beaten."""
    others = {k: advice.figures(k)["p50"] or 0.0 for k in advice.gains if k != advice.deployed}
    return max(others, key=lambda k: (others[k], -k), default=None)


def _row(cells: tuple[str, ...]) -> str:
    first, *rest = (f"{cell:>{width}}" for cell, width in zip(cells, _WIDTHS, strict=True))
    return "  ".join([first.strip().ljust(_WIDTHS[0]), *rest]).rstrip()
