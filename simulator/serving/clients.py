"""Who sends requests, and what goes wrong: SimPy processes around the engine."""

import math
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import simpy
from numpy.typing import NDArray

from hwmodel.errors import InputError
from simulator.deployment.keys import short
from simulator.serving.engine import Engine
from simulator.serving.request import Request, RequestSpec

Events = Generator[simpy.Event, Any, None]


def open_loop(engine: Engine, specs: Iterable[RequestSpec]) -> Events:
    """Sends each request at its time, whatever becomes of the others; ends when all have left."""
    env, metrics = engine.env, engine.metrics
    for spec in specs:
        if spec.arrival_s > env.now:
            yield env.timeout(spec.arrival_s - env.now)
        if spec.number == metrics.counting.first:
            metrics.open_s = env.now
        # The clock adds up waits: it can stand one rounding before the time itself, and nothing starts before it came.
        engine.submit(_request(spec, min(spec.arrival_s, env.now)))
    metrics.close_s = env.now
    yield engine.drained()


def closed_loop(engine: Engine, specs: Iterator[RequestSpec], users: int, ramp_s: float) -> Events:
    """`users` users who send the next request when the last one is answered; ends when the requests have run out.

    They start one after another over `ramp_s`: users of a fixed length who start together would stay in step for ever,
    which no real load does.
    """
    env = engine.env
    starts = [i * ramp_s / users for i in range(users)]
    crowd = [env.process(_user(engine, specs, start, last=i == users - 1)) for i, start in enumerate(starts)]
    yield env.all_of(crowd)


def _user(engine: Engine, specs: Iterator[RequestSpec], start_s: float, *, last: bool) -> Events:
    env, metrics = engine.env, engine.metrics
    if start_s > 0.0:
        yield env.timeout(start_s)
    if last and metrics.counting.until_closed:
        metrics.open_s = env.now
    for spec in specs:
        request = _request(spec, env.now)
        request.done = env.event()
        engine.submit(request)
        yield request.done
    metrics.close_s = min(metrics.close_s, env.now)


def _request(spec: RequestSpec, arrival_s: float) -> Request:
    return Request(spec.number, arrival_s, spec.input_tokens, spec.output_tokens)


def parse_outage(text: str) -> tuple[float, float]:
    """When the engine fails and for how long, seconds, from `at=600,duration=1800`."""
    parts = dict(part.partition("=")[::2] for part in text.replace(" ", "").split(","))
    try:
        values = float(parts.pop("at")), float(parts.pop("duration"))
    except (KeyError, ValueError):
        values = (math.nan, math.nan)
    if parts or not all(0.0 <= value < math.inf for value in values):
        raise InputError(f"outage: got {short(text)}, allowed: at=SECONDS,duration=SECONDS")
    return values


@dataclass(slots=True)
class Outage:
    """An engine failure and its restart: what was asked for, and what it cost."""

    at_s: float
    duration_s: float
    lost_requests: int = 0
    lost_tokens: int = 0
    arrived_meanwhile: int = 0
    queue_at_restart: int = 0
    recovery_s: float | None = None
    happened: bool = False
    _queue_before: int = 0
    _back_s: float | None = None

    def process(self, engine: Engine) -> Events:
        """Fails the engine and brings it back; whoever was in it sends the same request again."""
        env, totals = engine.env, engine.metrics.totals
        yield env.timeout(self.at_s)
        arrived, self._queue_before = totals.arrived, len(engine.scheduler.waiting)
        tokens = totals.lost_tokens
        lost = engine.fail()
        self.happened, self.lost_requests = True, len(lost)
        self.lost_tokens = totals.lost_tokens - tokens
        yield env.timeout(self.duration_s)
        self.arrived_meanwhile = totals.arrived - arrived
        engine.scheduler.waiting.extendleft(reversed(lost))  # in order of arrival: they came first
        self.queue_at_restart, self._back_s = len(engine.scheduler.waiting), env.now
        engine.restart()

    def steps(self, starts_s: NDArray[Any], ends_s: NDArray[Any], facts: dict[str, int]) -> None:
        """Watches for the first step after the restart with a queue no longer than before the failure."""
        if self._back_s is not None and self.recovery_s is None and facts["waiting"] <= self._queue_before:
            self.recovery_s = float(ends_s[-1]) - self._back_s

    def request_done(self, request: Request) -> None:
        """Of no interest here."""

    def to_dict(self) -> dict[str, Any]:
        """The outage as JSON; `recovery_s` is None where the queue never was as short again."""
        return {name: getattr(self, name) for name in self.__slots__ if not name.startswith("_")}
