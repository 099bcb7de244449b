"""The step loop of the serving engine: the file to read first.

One SimPy process. It waits while there is nothing to do, and otherwise takes a step: the scheduler says who runs, the
table of `step_times` how long it takes, the acceptance source which drafts survive; when the time is over, tokens have
come out, blocks change hands, and requests that are done leave.

Decode steps are taken in blocks (`decode_blocks.py`): as long as there is nothing to decide they are worked out
together and cost one event. The result is the same as step by step (docs/invariants.md, 9).
"""

from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import simpy
from numpy.typing import NDArray

from simulator.serving.decode_blocks import Block, DecodePlanner
from simulator.serving.metrics import ArmMetrics
from simulator.serving.request import NEVER, Request
from simulator.serving.scheduler import Chunk, Scheduler
from simulator.serving.step_times import Key

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


class Observer(Protocol):
    """Who is told what happens, e.g. a trace writer or a record file."""

    def steps(self, starts_s: Array, ends_s: Array, facts: dict[str, int]) -> None:
        """Consecutive steps and what they had in common."""
        ...

    def request_done(self, request: Request) -> None:
        """A request has left: finished, or rejected."""
        ...


@dataclass
class Engine:
    """One engine (one data-parallel replica, one pipeline micro-batch) and everything in it."""

    env: simpy.Environment
    scheduler: Scheduler
    planner: DecodePlanner
    metrics: ArmMetrics
    observers: tuple[Observer, ...] = ()
    process: simpy.Process = field(init=False)
    _wake: simpy.Event | None = None
    _down: simpy.Event | None = None
    _block: Block | None = None
    _drained: simpy.Event | None = None

    def __post_init__(self) -> None:
        """Start the loop."""
        self.process = self.env.process(self._run())

    # --- what clients and accidents do to it

    def submit(self, request: Request) -> None:
        """A request arrives; it is rejected at once if it can never run."""
        self.metrics.totals.arrived += 1
        self.planner.acceptance.enrol(request)
        request.rejected = self.scheduler.refusal(request)
        if request.rejected:
            self.metrics.rejected(request)
            self._leave(request)
            return
        self._queue(request)

    def _queue(self, request: Request) -> None:
        self.scheduler.waiting.append(request)
        if self._wake is not None:
            self._wake.succeed()
            self._wake = None

    def fail(self) -> list[Request]:
        """The engine stops: everything in it is lost; returns these requests, for their clients to send again."""
        self._down = self.env.event()
        if self._block is not None:
            over = int(np.searchsorted(self._block.ends_s, self.env.now, side="right"))
            self._book_block(self._block.first(over), 0)
        if self._wake is None:  # in the middle of a step; a waiting engine has nothing to lose
            self.process.interrupt("outage")
        lost = self.scheduler.drop_all()
        self.metrics.totals.lost_tokens += sum(request.generated for request in lost)
        for request in lost:
            request.restart()
        return lost

    def drained(self) -> simpy.Event:
        """Happens when every request that arrived has left."""
        event = self._drained = self.env.event()
        self._check_drained()
        return event

    def _check_drained(self) -> None:
        totals = self.metrics.totals
        if self._drained is not None and totals.finished + totals.rejected == totals.arrived:
            self._drained.succeed()
            self._drained = None

    def restart(self) -> None:
        """The engine is back; requests may wait already."""
        down, self._down = self._down, None
        if down is not None:
            down.succeed()

    # --- the loop

    def _run(self) -> Generator[simpy.Event, Any, None]:
        while True:
            try:
                if self._down is not None:
                    yield self._down
                elif not self.scheduler.has_work:
                    self._wake = self.env.event()
                    yield self._wake
                else:
                    yield from self._step()
            except simpy.Interrupt:
                self._block = None  # an outage: `fail` has booked what was done

    def _step(self) -> Generator[simpy.Event, Any, None]:
        """One step with prompt rows or preemption, or a block of decode steps without either."""
        while self.env.peek() <= self.env.now:
            yield self.env.timeout(0)  # whoever arrives at this very moment is in the step
        scheduler = self.scheduler
        if not (scheduler.prefilling or scheduler.can_admit(self.planner.policy.largest)):
            block = self.planner.plan()
            if block is not None:
                yield from self._take_block(block)
                return
        yield from self._take_single_step()

    def _take_block(self, block: Block) -> Generator[simpy.Event, Any, None]:
        self._block = block
        yield self.env.timeout(float(block.ends_s[-1]) - self.env.now)
        self._block = None
        self._book_block(block, 0)

    def _take_single_step(self) -> Generator[simpy.Event, Any, None]:
        """One step in which the scheduler has something to decide."""
        scheduler, now = self.scheduler, self.env.now
        preempted = scheduler.num_preempted
        block = self.planner.plan_one()
        rows, _, tokens = key = block.key
        budget = scheduler.limits.max_num_batched_tokens - rows - tokens
        chunks = scheduler.chunks(budget, admit=scheduler.num_preempted == preempted)
        self.metrics.totals.preemptions += scheduler.num_preempted - preempted
        if not rows and not chunks:
            assert scheduler.num_preempted > preempted, "a step without work although somebody waits"
            return
        for chunk in chunks:
            if chunk.request.start_s == NEVER:
                chunk.request.start_s = now
        seconds = self._seconds(key, block.active, chunks)
        block.seconds, block.ends_s = np.array([seconds]), np.array([now + seconds])
        yield self.env.timeout(seconds)
        self._book_block(block, sum(chunk.tokens for chunk in chunks))
        for chunk in chunks:
            if scheduler.computed(chunk):
                self._prompt_done(chunk.request)

    def _seconds(self, key: Key, active: NDArray[np.bool_] | None, chunks: list[Chunk]) -> float:
        """Duration of a single step."""
        batch = self.scheduler.batch
        total = batch.context_sum if active is None else int(batch.context[active].sum())
        context = total / key[0] if key[0] else 1.0
        if not chunks:
            return float(self.planner.times.decode_s(*key, np.array([context]))[0])
        prompt = sum(chunk.tokens for chunk in chunks)
        seen = sum(chunk.tokens * (chunk.request.computed + 0.5 * chunk.tokens) for chunk in chunks) / prompt
        return self.planner.times.mixed_s(key, context, prompt, seen, sum(chunk.finishes for chunk in chunks))

    def _book_block(self, block: Block, prompt_tokens: int) -> None:
        """Tokens, counts and times of the steps of a block that are over."""
        steps, rows = len(block.seconds), block.num_active
        if not steps:
            return
        if rows:
            self._book_rows(block, steps, rows)
        self.metrics.totals.prompt_tokens += prompt_tokens
        self._told(block.ends_s - block.seconds, block.ends_s, {"decode": rows, "prompt_tokens": prompt_tokens})
        if rows:
            self._finish_rows()

    def _book_rows(self, block: Block, steps: int, rows: int) -> None:
        batch, metrics, ends = self.scheduler.batch, self.metrics, block.ends_s
        gaps = ends[0] - batch.last_token_s
        metrics.itl.add(gaps if block.active is None else gaps[block.active])
        if steps > 1:
            metrics.itl.add(block.seconds[1:], rows)
        num_emitted = int(block.sums[-1])
        drafts, draft_tokens = self._count_drafts(block, steps, num_emitted - steps * rows)
        batch.count(steps if block.active is None else block.active * steps, drafts, draft_tokens)
        beyond = batch.emit(block.total[-1], num_emitted)
        if block.active is None:
            batch.last_token_s[:] = ends[-1]
        else:
            batch.last_token_s[block.active] = ends[-1]
        metrics.decoded(block.seconds, rows, num_emitted - beyond)
        metrics.emitted_until(ends, block.sums, beyond)
        self.planner.tokens_per_step = max(num_emitted / (rows * steps), 1.0)

    def _count_drafts(self, block: Block, steps: int, accepted: int) -> "tuple[int | Ints, int | Ints]":
        """Drafts and drafted tokens of the steps, for all rows alike or by row; counted in all, the policy told."""
        outcome, totals, rows = block.outcome, self.metrics.totals, block.num_active
        totals.accepted_tokens += accepted
        if outcome.stretch is not None:
            self.scheduler.batch.stretch[:] = outcome.stretch[steps - 1]
        self.planner.policy.observe(accepted, rows, steps)
        if isinstance(outcome.drafted, int):
            drafts = steps if outcome.drafted else 0
            totals.drafts += drafts * rows
            totals.draft_tokens += steps * outcome.drafted * rows
            return drafts, steps * outcome.drafted
        drafted = outcome.drafted[:steps]
        made = np.count_nonzero(drafted, axis=0)
        totals.drafts += int(made.sum())
        totals.draft_tokens += int(drafted.sum())
        return made, drafted.sum(axis=0)

    def _prompt_done(self, request: Request) -> None:
        """The last chunk of a prompt gives one token: the first, or after a preemption the next."""
        now, metrics = self.env.now, self.metrics
        if request.generated:
            metrics.itl.add_one(now - request.last_token_s)
        else:
            request.first_token_s = now
        request.generated += 1
        request.from_prefill += 1
        request.last_token_s = now
        metrics.totals.first_tokens += 1
        metrics.emitted_at(now, 1)
        if request.generated >= request.output_tokens:
            self._finish(request)
        else:
            self.scheduler.batch.append(request)

    def _finish_rows(self) -> None:
        """Rows that have all their tokens leave."""
        batch = self.scheduler.batch
        if batch.least_left <= 0:
            for request in batch.remove(batch.left <= 0):
                self.metrics.totals.wasted_tokens += request.wasted
                self._finish(request)

    def _finish(self, request: Request) -> None:
        request.finish_s = self.env.now
        self.scheduler.release(request)
        self.metrics.finished(request, self.env.now)
        self._leave(request)

    def _leave(self, request: Request) -> None:
        for observer in self.observers:
            observer.request_done(request)
        if request.done is not None:
            request.done.succeed()
        self._check_drained()

    def _told(self, starts_s: Array, ends_s: Array, facts: dict[str, int]) -> None:
        """Book the steps in the series, and tell the observers."""
        scheduler, metrics = self.scheduler, self.metrics
        span = float(ends_s[-1] - starts_s[0])
        usage = scheduler.pool.usage
        totals = metrics.totals
        totals.steps += len(ends_s)
        totals.busy_s += span
        metrics.kv_usage_s += usage * span
        metrics.kv_usage_max = max(metrics.kv_usage_max, usage)
        emitted = totals.decode_tokens + totals.first_tokens
        rate = (emitted - metrics.series_tokens) / span if span > 0.0 else 0.0
        metrics.series_tokens = emitted
        before, mean = _waiting(scheduler.waiting, float(starts_s[0]), span)
        metrics.series.add(float(starts_s[0]), span, (scheduler.num_running, mean, usage, rate))
        facts = {**facts, "waiting": before, "blocks": scheduler.pool.used}
        for observer in self.observers:
            observer.steps(starts_s, ends_s, facts)


def _waiting(queue: Iterable[Request], start_s: float, span_s: float) -> tuple[int, float]:
    """How many waited when a block of steps began, and their mean number during it: some arrived meanwhile."""
    before, waited_s = 0, 0.0
    for request in queue:
        late_s = max(request.arrival_s - start_s, 0.0)
        before += late_s == 0.0
        waited_s += max(span_s - late_s, 0.0)
    return before, waited_s / span_s if span_s > 0.0 else float(before)
