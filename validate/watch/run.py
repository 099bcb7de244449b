"""The loop of a watch: one look at /metrics every interval, and one record of what it says, whatever happens."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from hwmodel.errors import DraftcastError, InputError
from simulator.deployment import Deployment
from validate.client.connection import Connection
from validate.client.faults import Fault, FaultError
from validate.client.scrapes import Counted, Counters, window_between
from validate.client.server_facts import ServerFacts, read_facts
from validate.client.target import Target
from validate.watch.advice import Asked, UnknownError, advice_for, compared_lengths
from validate.watch.record import Record, verdict
from validate.watch.steady import Rule, Steady
from validate.watch.traffic import Quiet, Traffic, traffic_of

DEFAULT_INTERVAL_S = 30.0
_LATE = 2.5  # intervals between two scrapes: beyond it the load in between is not known
_GRACE_S = 10.0  # but that much more than an interval is always allowed: a machine may be busy
_ANSWERS_BUT = ("not there", "holds")  # /metrics that will not become readable by waiting


@dataclass(frozen=True, slots=True)
class WatchPlan:
    """What to watch, with what to compare it, and when to speak; `load` gives the deployment, anew after a restart."""

    target: Target
    load: Callable[[], Deployment]
    interval_s: float = DEFAULT_INTERVAL_S
    rule: Rule = field(default_factory=Rule)
    asked: Asked = field(default_factory=Asked)
    served_model: str | None = None


@dataclass(slots=True)
class Summary:
    """What a watch has seen."""

    intervals: int = 0
    by_status: dict[str, int] = field(default_factory=dict)
    announcements: list[str] = field(default_factory=list)

    def add(self, record: Record) -> None:
        """Counts one record."""
        self.intervals += 1
        self.by_status[record.status] = self.by_status.get(record.status, 0) + 1
        if record.changed:
            self.announcements.append(f"{record.time}: {record.reason}")


class Watch:
    """A watch under way."""

    def __init__(self, plan: WatchPlan) -> None:
        """Nothing is asked yet."""
        self.plan = plan
        self.facts: ServerFacts | None = None
        self.deployment: Deployment | None = None
        self.steady = Steady(plan.rule)
        self.summary = Summary()
        self._connection = Connection(plan.target)
        self._counters = Counters(self._connection)
        self._before: Counted | None = None

    def start(self) -> str | None:
        """The first look; why nothing can be read yet, or None. What waiting cannot mend is raised."""
        taken = self._counters.take()
        if taken.scrape is None:
            self._refuse_hopeless(taken.reason or "")
            return taken.reason
        try:
            self._begin(taken)
        except FaultError as error:
            if error.fault.kind == "fatal":
                raise
            return str(error)
        return None

    def run(self, count: int | None, emit: Callable[[Record], None]) -> None:
        """A record each interval, `count` of them or for ever."""
        start_s = time.monotonic()
        turn = 0
        while count is None or self.summary.intervals < count:
            now_s = time.monotonic()
            turn = max(turn + 1, int((now_s - start_s) / self.plan.interval_s) + 1)  # after a suspend, no haste
            time.sleep(max(0.0, start_s + turn * self.plan.interval_s - now_s))
            record = self.look()
            self.summary.add(record)
            emit(record)

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()

    def look(self) -> Record:
        """One look, compared with the one before."""
        taken = self._counters.take()
        if taken.scrape is None:
            reason = taken.reason or "no scrape"
            return self._record("unreachable" if "cannot be read" in reason else "lost", reason)
        before, self._before = self._before, taken
        if before is None:
            return self._restarted(taken, "first look: the next one gives an interval")
        window, why = window_between(before, taken, self.facts.model if self.facts is not None else None)
        if window is None:
            why = why or "no window"
            return self._restarted(taken, why) if "restarted" in why else self._record("lost", why)
        elapsed_s = window.elapsed_s or 0.0
        if elapsed_s > max(_LATE * self.plan.interval_s, self.plan.interval_s + _GRACE_S):
            return self._record("lost", f"{elapsed_s:.0f} s since the last look: the load in between is not known")
        found = traffic_of(window)
        if isinstance(found, Quiet):
            return self._record(found.status, found.reason, elapsed_s=elapsed_s)
        return self._compared(found, elapsed_s)

    def _compared(self, traffic: Traffic, elapsed_s: float) -> Record:
        assert self.deployment is not None
        try:
            advice = advice_for(self.deployment, traffic, self.plan.asked)
        except DraftcastError as error:
            told = traffic.num_speculative_tokens
            if told is not None and told != self.steady.deployed:
                self.steady.reset(told)
            status = "unknown" if isinstance(error, UnknownError) else "unreadable"
            return self._record(status, str(error), elapsed_s=elapsed_s, traffic=traffic)
        changed = self.steady.take(advice)
        return Record(
            time=_now(),
            status="ok",
            reason=verdict(advice, self.steady, traffic, changed=changed),
            deployed=advice.deployed,
            best=self.steady.announced,
            changed=changed,
            interval_s=elapsed_s,
            traffic=traffic,
            advice=advice,
            notes=(*advice.notes, *traffic.notes),
        )

    def _record(
        self, status: str, reason: str, *, elapsed_s: float | None = None, traffic: Traffic | None = None
    ) -> Record:
        best = self.steady.announced
        return Record(_now(), status, reason, self.steady.deployed, best, interval_s=elapsed_s, traffic=traffic)

    def _restarted(self, taken: Counted, reason: str) -> Record:
        """Another process, or the first that answers: what it is, and what is deployed now, is asked again."""
        earlier = self.facts
        try:
            self._begin(taken)
        except DraftcastError as error:
            if self.deployment is None:
                if not isinstance(error, FaultError):
                    raise  # what the command line lacks does not come by waiting
                self._before = None  # asked again at the next look
            return self._record("restarted", f"{reason}; what it serves is not known: {error}")
        differences = [] if earlier is None or self.facts is None else self.facts.differences(earlier.to_dict())
        told = f"; {', '.join(differences)}" if differences else ""
        return self._record("restarted", reason + told)

    def _begin(self, taken: Counted) -> None:
        """Facts of the server that answers, the deployment, and an announcement of what it runs."""
        facts = read_facts(self._connection, taken, self.plan.served_model)
        self.deployment = self.plan.load()
        compared_lengths(self.deployment, 0, self.plan.asked.lengths)
        self.facts, self._before = facts, taken
        self.steady.reset(facts.num_speculative_tokens)

    def _refuse_hopeless(self, reason: str) -> None:
        """Raises where the server answers and waiting would not help, or no request will ever work."""
        models = self._connection.get("/v1/models")
        if models.fault is not None and models.fault.kind == "fatal" and models.status != 404:
            raise FaultError(models.fault)
        if models.fault is None and any(words in reason for words in _ANSWERS_BUT):
            raise InputError(f"{reason}; allowed: a server whose /metrics can be read")
        if models.status == 404:
            raise FaultError(Fault("fatal", f"{self.plan.target.url} answers, but neither /metrics nor /v1/models"))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
