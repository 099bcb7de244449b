"""The life of one cell: scrape, start the users, warm up, scrape, measure, scrape, let them finish, scrape.

The two outer scrapes enclose everything that the users did and nothing else: sums are compared over them. The two inner
ones enclose the time in which all users were busy: times are taken from it.
"""

import queue
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from calibration.readers.values import mean
from validate.client.answers import Answer
from validate.client.faults import Fault
from validate.client.scrapes import Counted, Counters, window_between
from validate.measure.cell import Measured
from validate.measure.checks import Check, checks_of, whole_of
from validate.measure.client_side import Steady, client_side
from validate.measure.gauges import Gauges, GaugeSampler
from validate.measure.server_side import ServerSide, server_side
from validate.measure.settings import Limits
from validate.measure.statistics import precision_of
from validate.measure.users import Outcome, Users, Work

_POLL_S = 0.2
_SETTLE_POLL_S = 0.05
_MOST_BROKEN = 4  # in a row, and at least as many as there are users
_MOST_SKIPPED = 10
_PATIENCE_S = 60.0  # of "later" alone
_CLOCK_JUMP_S = 1.0


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a cell is; seconds left are an estimate."""

    concurrency: int
    phase: str  # "warming up", "measuring", "finishing"
    requests: int
    half_width: float | None  # relative, of the 95 % interval of TPOT
    left_s: float | None


Report = Callable[[Progress], None]


@dataclass(slots=True)
class Budget:
    """What is left for the whole run."""

    until_s: float  # monotonic
    tokens: float

    def spent(self) -> str | None:
        """Which of the two is used up."""
        if time.monotonic() >= self.until_s:
            return "the time of the run is over (--max-minutes)"
        return "the tokens of the run are used up (--max-tokens)" if self.tokens <= 0 else None


@dataclass(slots=True)
class _Faults:
    """Faults since the last answer, and what they mean for the cell."""

    broken: int = 0
    skipped: int = 0
    later_since_s: float | None = None

    def take(self, item: Outcome, users: int) -> str | None:
        """Why the cell must end; None where it may go on."""
        fault = item.fault
        if fault is None:
            self.broken, self.skipped, self.later_since_s = 0, 0, None
            return None
        if fault.kind == "fatal":
            return fault.message
        if fault.kind == "later":
            self.later_since_s = self.later_since_s or item.ended_s
            late = item.ended_s - self.later_since_s > _PATIENCE_S
            return f"for {_PATIENCE_S:g} s nothing but: {fault.message}" if late else None
        self.broken += fault.kind == "broken"
        self.skipped += fault.kind == "skip"
        return self._too_many(fault, users)

    def _too_many(self, fault: Fault, users: int) -> str | None:
        if self.broken >= max(_MOST_BROKEN, users) or self.skipped >= max(_MOST_SKIPPED, users):
            return f"{self.broken + self.skipped} requests failed one after the other: {fault.message}"
        return None


def _time_of(answer: Answer) -> float:
    """What the precision of a cell is judged by: TPOT; where tokens are not counted, the whole time of the answer."""
    tpot_s = answer.tpot_s
    return answer.e2e_s if tpot_s is None else tpot_s


@dataclass(slots=True)
class CellRun:
    """One cell; `measured` may be asked for at any time, also after an interruption."""

    work: Work
    users: int
    counters: Counters
    limits: Limits
    budget: Budget
    k: int | None
    warmup_s: float
    report: Report = field(default=lambda progress: None)
    outcomes: list[Outcome] = field(default_factory=list)
    ended_by: str = "interrupted"
    failure: str | None = None
    finished: bool = False
    _loop: Users | None = None
    _faults: _Faults = field(default_factory=_Faults)
    _scrapes: dict[str, Counted] = field(default_factory=dict)
    _sampler: GaugeSampler | None = None
    _start_s: float = 0.0
    _begin_s: float = 0.0
    _end_s: float = 0.0
    _clocks: tuple[float, float] = (0.0, 0.0)  # wall minus monotonic, processor time
    _client_busy: float | None = None
    _jump_s: float = 0.0

    def run(self) -> None:
        """Runs the cell; whatever ends it early, no request is left under way."""
        self._start_s = time.monotonic()
        self._scrapes["before"] = self.counters.take()
        self._loop = Users(self.work, self.users)
        try:
            self._loop.start()
            self._warm_up()
            self._measure()
            self._finish()
        except BaseException:
            self._end_s = self._end_s or time.monotonic()
            if self._sampler is not None:
                self._sampler.stop()
            self._loop.abort()
            self._drain()
            raise

    def measured(self) -> Measured:
        """What is known by now."""
        begin_s = self._begin_s or self._start_s
        window = Steady(begin_s, self._end_s or time.monotonic())
        client = client_side(self.outcomes, self.users, window)
        busy, _ = self._side("begin", "end")
        whole, reason = self._side("before", "after")
        frozen = self._frozen(whole)
        checks: list[Check] = []
        if whole is not None and frozen is None:
            sums = whole_of(self.outcomes)
            life = client_side(self.outcomes, self.users, Steady(self._start_s, time.monotonic()))
            checks = checks_of(sums, whole.totals, (client, busy) if sums.unfinished else (life, whole))
        return Measured(
            client,
            self.outcomes,
            self.k,
            busy,
            whole,
            reason or frozen,
            tuple(checks),
            self._all_gauges() if frozen is None else Gauges(),
            self.ended_by,
            self.failure,
            self.finished,
            self._client_busy,
            self._clock_notes(),
        )

    def _side(self, first: str, last: str) -> tuple[ServerSide | None, str | None]:
        before, after = self._scrapes.get(first), self._scrapes.get(last)
        if before is None or after is None:
            return None, "the cell was not finished"
        window, reason = window_between(before, after, self.work.dialect.model)
        return (server_side(window), None) if window is not None else (None, reason)

    def _frozen(self, whole: ServerSide | None) -> str | None:
        if whole is None or not any(item.answer and item.answer.chunk_times_s for item in self.outcomes):
            return None
        grown = (whole.totals.generated_tokens, whole.totals.first_tokens, whole.totals.steps)
        if any(grown):
            return None
        return "the counters of /metrics do not move while tokens come: frozen, or of another server"

    def _all_gauges(self) -> Gauges:
        return self._sampler.gauges() if self._sampler is not None else Gauges()

    def _clock_notes(self) -> tuple[str, ...]:
        if abs(self._jump_s) <= _CLOCK_JUMP_S:
            return ()
        return (
            f"the clock of this machine was set by {self._jump_s:+.1f} s meanwhile: times here do not depend on it",
        )

    def _warm_up(self) -> None:
        """Until every user's first request has ended, for `warmup_s` at least."""
        firsts: set[int] = set()
        until_s = self._start_s + self.warmup_s
        while len(firsts) < self.users or time.monotonic() < until_s:
            for item in self._pump("warming up", None):
                if item.is_first and (item.fault is None or item.fault.kind != "later"):
                    firsts.add(item.user)
            if self._must_end(self._start_s + self.warmup_s + self.limits.cell_s):
                break
        self._scrape("begin")
        self._begin_s = self._scrapes["begin"].time_s

    def _measure(self) -> None:
        """Until the interval is narrow enough, or a limit is reached."""
        until_s = self._begin_s + self.limits.cell_s
        tpots: list[float] = []
        self._sampler = GaugeSampler(self.work.target, self.limits.gauge_s)
        self._sampler.start()
        while self.failure is None:
            for item in self._pump("measuring", self._half_width(tpots)):
                if item.answer is not None and item.ended_s > self._begin_s:
                    tpots.append(_time_of(item.answer))
            if self._is_precise(tpots) or self._must_end(until_s):
                break
        self._scrape("end")
        self._end_s = self._scrapes["end"].time_s
        self._sampler.stop()

    def _finish(self) -> None:
        """Lets the users end what they have under way, then takes the last scrape when the counters stand still."""
        assert self._loop is not None
        self._loop.finish()
        until_s = time.monotonic() + self.limits.request_s
        if self.failure is not None:
            self._loop.abort()
        while self._loop.num_active and time.monotonic() < until_s:
            self._pump("finishing", None)
        self._loop.abort()
        self._drain()
        self._scrapes["after"] = self._settled()
        self.finished = self.failure is None

    def _settled(self) -> Counted:
        """A scrape that the server's own accounting has caught up with: no request runs, and nothing grows."""
        taken = self.counters.take()
        until_s = time.monotonic() + self.limits.settle_s
        while taken.scrape is not None and time.monotonic() < until_s:
            time.sleep(_SETTLE_POLL_S)
            again = self.counters.take()
            if not again.running and again.generated == taken.generated:
                return again
            taken = again
        return taken

    def _pump(self, phase: str, half_width: float | None) -> list[Outcome]:
        """What has ended since the last call; waits a little for it."""
        assert self._loop is not None
        found: list[Outcome] = []
        wait_s = _POLL_S
        while True:
            try:
                item = self._loop.done.get(timeout=wait_s) if wait_s else self._loop.done.get_nowait()
            except queue.Empty:
                break
            found.append(item)
            wait_s = 0.0
        for item in found:
            self._take(item)
        self.report(Progress(self.users, phase, len(self.outcomes), half_width, self._left_s(phase, half_width)))
        return found

    def _drain(self) -> None:
        assert self._loop is not None
        while True:
            try:
                self._take(self._loop.done.get_nowait())
            except queue.Empty:
                return

    def _take(self, item: Outcome) -> None:
        self.outcomes.append(item)
        if item.answer is not None:
            self.budget.tokens -= item.answer.output_tokens or len(item.answer.chunk_times_s)
        stop = self._faults.take(item, self.users)
        if stop is not None and self.failure is None and item.fault is not None and item.fault.kind != "stopped":
            self.failure, self.ended_by = stop, "fault"

    def _must_end(self, until_s: float) -> bool:
        """Whether a limit or a fault ends the cell; which one stands in `ended_by`."""
        if self.failure is not None:
            return True
        spent = self.budget.spent()
        answered = sum(item.answer is not None for item in self.outcomes)
        if spent is not None:
            self.ended_by = spent
        elif time.monotonic() >= until_s:
            self.ended_by = "the time of a cell (--cell-seconds)"
        elif answered >= self.limits.max_requests:
            self.ended_by = "the requests of a cell (--max-requests)"
        else:
            return False
        return True

    def _half_width(self, tpots: list[float]) -> float | None:
        half = precision_of(tpots, self.users)[1]
        return None if half is None else half / mean(tpots)

    def _is_precise(self, tpots: list[float]) -> bool:
        half = self._half_width(tpots)
        enough = len(tpots) >= self.limits.min_requests
        if not enough or half is None or half > self.limits.precision:
            return False
        self.ended_by = "precision"
        return True

    def _scrape(self, name: str) -> None:
        """A scrape, and the clocks beside it."""
        self._scrapes[name] = self.counters.take()
        now = (time.time() - time.monotonic(), time.process_time())
        if name == "begin":
            self._clocks = now
        else:
            self._jump_s = now[0] - self._clocks[0]
            length_s = self._scrapes[name].time_s - self._begin_s
            self._client_busy = (now[1] - self._clocks[1]) / length_s if length_s > 0 else None

    def _left_s(self, phase: str, half_width: float | None) -> float | None:
        """About how long this cell still takes: intervals shrink with the square root of time."""
        now_s = time.monotonic()
        if phase != "measuring":
            return None
        gone_s, most_s = now_s - self._begin_s, self._begin_s + self.limits.cell_s - now_s
        if half_width is None:
            return most_s
        return min(most_s, max(0.0, gone_s * ((half_width / self.limits.precision) ** 2 - 1)))
