"""The step loop of the serving engine: the file to read first.

One SimPy process. It waits while there is nothing to do, and otherwise takes a step: the scheduler says who runs, the
table of `step_times` how long it takes, the acceptance source which drafts survive; when the time is over, tokens have
come out, blocks change hands, and requests that are done leave.

Decode steps are taken in blocks. As long as nobody arrives, finishes or is preempted, and the draft length stays, steps
follow each other without a decision: they are computed together and cost one event. A block ends with the first step in
which a request finishes, and with the step during which the next event of the calendar happens (`Environment.peek`), so
the result is the same as step by step (docs/invariants.md, 9).
"""

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import simpy
from numpy.typing import NDArray

from simulator.serving.acceptance_sampling import AcceptanceSource, Outcome
from simulator.serving.metrics import ArmMetrics
from simulator.serving.policies import Policy
from simulator.serving.request import NEVER, Request
from simulator.serving.scheduler import Chunk, Scheduler
from simulator.serving.step_times import StepTimes

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

MAX_BLOCK_STEPS = 512
_MAX_BLOCK_CELLS = 16_384  # steps x rows that are computed at once: bounds what a block throws away when it is cut
_SPARE_STEPS = 3  # computed beyond the expected end of a block


class Observer(Protocol):
    """Who is told what happens, e.g. a trace writer or a record file."""

    def steps(self, starts_s: Array, ends_s: Array, facts: dict[str, int]) -> None:
        """Consecutive steps and what they had in common."""
        ...

    def request_done(self, request: Request) -> None:
        """A request has left: finished, or rejected."""
        ...


@dataclass(slots=True)
class _Block:
    """Consecutive decode steps of the whole batch, worked out and not yet booked."""

    outcome: Outcome
    total: Ints  # (steps, rows) tokens emitted from the start of the block, not cut at the limit
    seconds: Array
    ends_s: Array

    def first(self, steps: int) -> "_Block":
        """The block cut to its first steps."""
        return _Block(self.outcome, self.total[:steps], self.seconds[:steps], self.ends_s[:steps])


@dataclass
class Engine:
    """One engine (one data-parallel replica, one pipeline micro-batch) and everything in it."""

    env: simpy.Environment
    scheduler: Scheduler
    times: StepTimes
    acceptance: AcceptanceSource
    policy: Policy
    metrics: ArmMetrics
    observers: tuple[Observer, ...] = ()
    draft_share: float = 1.0  # of steps in which a draft is found: for the optimal policy's expectation
    max_block_steps: int = MAX_BLOCK_STEPS
    process: simpy.Process = field(init=False)
    _wake: simpy.Event | None = None
    _down: simpy.Event | None = None
    _block: _Block | None = None
    _tokens_per_step: float = 1.0

    def __post_init__(self) -> None:
        """Start the loop."""
        self.process = self.env.process(self._run())

    # --- what clients and accidents do to it

    def submit(self, request: Request) -> None:
        """A request arrives; it is rejected at once if it can never run."""
        self.metrics.totals.arrived += 1
        request.level = self.acceptance.level_of(request.number)
        request.rejected = self.scheduler.refusal(request)
        if request.rejected:
            self.metrics.rejected(request)
            self._leave(request)
            return
        self.requeue(request)

    def requeue(self, request: Request) -> None:
        """A request joins the end of the queue."""
        self.scheduler.waiting.append(request)
        if self._wake is not None:
            self._wake.succeed()
            self._wake = None

    def fail(self) -> list[Request]:
        """The engine stops: everything in it is lost; returns these requests, for their clients to send again."""
        self._down = self.env.event()
        if self._block is not None:
            over = int(np.searchsorted(self._block.ends_s, self.env.now, side="right"))
            self._book_block(self._block.first(over))
        if self._wake is None:  # in the middle of a step; a waiting engine has nothing to lose
            self.process.interrupt("outage")
        lost = self.scheduler.drop_all()
        self.metrics.totals.lost_tokens += sum(request.generated for request in lost)
        for request in lost:
            request.restart()
        return lost

    def restart(self) -> None:
        """The engine is back, empty."""
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
        if not (scheduler.prefilling or scheduler.can_admit(self.policy.largest)):
            block = self._plan_block()
            if block is not None:
                yield from self._take_block(block)
                return
        yield from self._take_single_step()

    def _plan_block(self) -> _Block | None:
        """The next decode steps in which nothing has to be decided; None when even the first needs a decision."""
        batch, limits = self.scheduler.batch, self.scheduler.limits
        rows = len(batch)
        lengths, holds = self._lengths()
        longest = int(np.max(lengths))
        if rows * (longest + 1) > limits.max_num_batched_tokens:
            return None
        steps = self._worth_computing(holds)
        if limits.max_model_len is not None:
            room = (limits.max_model_len - 1 - longest - int(batch.context.max())) // (longest + 1)
            if room < 1:
                return None
            steps = min(steps, room)
        outcome = self.acceptance.outcomes(batch, steps, lengths)
        total = np.add.accumulate(outcome.accepted + 1, axis=0)
        done = (total >= batch.left).any(axis=1)
        first = int(done.argmax())
        if done[first]:
            steps = first + 1
        context = np.empty(steps)
        context[0] = int(batch.context.sum())
        context[1:] = context[0] + total[: steps - 1].sum(axis=1)
        drafted, tokens = outcome.rows_with_draft(rows), outcome.tokens(rows)
        seconds = self.times.decode_s(rows, _first(drafted, steps), _first(tokens, steps), context / rows)
        ends = self.env.now + np.add.accumulate(seconds)
        steps = min(steps, 1 + int(np.searchsorted(ends, self.env.peek())))
        steps = self._with_blocks(total, steps, longest)
        if steps == 0:
            return None
        return _Block(outcome, total[:steps], seconds[:steps], ends[:steps])

    def _lengths(self) -> "tuple[int | Ints, int]":
        """The policy's draft lengths for the present batch, and for how many steps they hold."""
        batch = self.scheduler.batch
        sequences = self.scheduler.num_running

        def seconds(rows: int, drafted: int, tokens: int) -> float:
            found = round(drafted * self.draft_share) if self.draft_share < 1.0 else drafted
            found_tokens = tokens * found // drafted if drafted else 0
            context = np.array([batch.context.mean()])
            return float(self.times.decode_s(rows, found, found_tokens, context)[0])

        return self.policy.lengths(lambda: self.acceptance.survival(batch), sequences, seconds)

    def _worth_computing(self, holds: int) -> int:
        """Steps to compute: to about where the block will end, so that little is thrown away."""
        batch = self.scheduler.batch
        expected = int(batch.left.min() / self._tokens_per_step) + _SPARE_STEPS
        until_event = self.env.peek() - self.env.now
        if until_event < np.inf and self.metrics.totals.decode_steps:
            step_s = self.metrics.totals.step_time_s / self.metrics.totals.decode_steps
            expected = min(expected, int(2.0 * until_event / step_s) + _SPARE_STEPS)
        return max(min(expected, holds, self.max_block_steps, _MAX_BLOCK_CELLS // len(batch)), 1)

    def _with_blocks(self, total: Ints, steps: int, longest: int) -> int:
        """Take the KV blocks for as many of these steps as there are blocks for; 0 when not even for one."""
        scheduler = self.scheduler
        batch = scheduler.batch
        while steps:
            before = batch.context if steps == 1 else batch.context + total[steps - 2]
            extra = np.maximum(scheduler.slots_blocks(before + longest) - batch.blocks, 0)
            wanted = int(extra.sum())
            if wanted <= scheduler.pool.free:
                scheduler.pool.take(wanted)
                batch.blocks[:] += extra
                return steps
            steps //= 2
        return 0

    def _take_block(self, block: _Block) -> Generator[simpy.Event, Any, None]:
        self._block = block
        yield self.env.timeout(float(block.ends_s[-1]) - self.env.now)
        self._block = None
        self._book_block(block)

    def _book_block(self, block: _Block) -> None:
        """Tokens, counts and times of the steps of a block."""
        batch = self.scheduler.batch
        rows, steps = len(batch), len(block.seconds)
        if not steps:
            return
        emitted = block.total[-1]
        row_sums = block.total.sum(axis=1)
        tokens = np.diff(row_sums, prepend=0)
        tokens[-1] -= int(np.maximum(emitted - batch.left, 0).sum())
        gaps = block.ends_s[0] - batch.last_token_s
        self.metrics.itl.add(gaps)
        if steps > 1:
            self.metrics.itl.add(block.seconds[1:], rows)
        self._book_drafts(block.outcome, steps, rows)
        batch.context[:] += emitted
        batch.left[:] -= emitted
        batch.steps[:] += steps
        batch.last_token_s[:] = block.ends_s[-1]
        self.metrics.decoded(block.ends_s, block.seconds, tokens, rows)
        self._tokens_per_step = max(float(row_sums[-1]) / (rows * steps), 1.0)
        self._told(block.ends_s - block.seconds, block.ends_s, {"decode": rows, "prompt_tokens": 0})
        self._finish_rows()

    def _book_drafts(self, outcome: Outcome, steps: int, rows: int) -> None:
        """Count drafts of the first `steps` steps, by request and in all."""
        batch, totals = self.scheduler.batch, self.metrics.totals
        accepted = int(outcome.accepted[:steps].sum())
        totals.accepted_tokens += accepted
        if isinstance(outcome.drafted, int):
            drafts = steps if outcome.drafted else 0
            batch.drafts[:] += drafts
            batch.draft_tokens[:] += steps * outcome.drafted
            totals.drafts += drafts * rows
            totals.draft_tokens += steps * outcome.drafted * rows
        else:
            drafted = outcome.drafted[:steps]
            made = np.count_nonzero(drafted, axis=0)
            batch.drafts[:] += made
            batch.draft_tokens[:] += drafted.sum(axis=0)
            totals.drafts += int(made.sum())
            totals.draft_tokens += int(drafted.sum())
        if outcome.stretch is not None:
            batch.stretch[:] = outcome.stretch[steps - 1]
        self.policy.observe(accepted, rows, steps)

    # --- one step in which the scheduler has something to decide

    def _take_single_step(self) -> Generator[simpy.Event, Any, None]:
        scheduler, now = self.scheduler, self.env.now
        preempted = scheduler.num_preempted
        outcome, active = self._decode_rows()
        rows = int(np.count_nonzero(active))
        used = rows + int(np.asarray(outcome.drafted).sum())
        chunks = scheduler.chunks(
            scheduler.limits.max_num_batched_tokens - used, admit=scheduler.num_preempted == preempted
        )
        self.metrics.totals.preemptions += scheduler.num_preempted - preempted
        if not rows and not chunks:
            assert scheduler.num_preempted > preempted, "a step without work although somebody waits"
            return
        for chunk in chunks:
            if chunk.request.start_s == NEVER:
                chunk.request.start_s = now
        seconds = self._single_step_s(outcome, active, chunks)
        yield self.env.timeout(seconds)
        self._book_single_step(outcome, active, chunks, seconds)

    def _decode_rows(self) -> tuple[Outcome, NDArray[np.bool_]]:
        """The decoding rows of this step: their outcome `(1, rows)`, and which of them the token budget holds."""
        scheduler = self.scheduler
        batch, limits = scheduler.batch, scheduler.limits
        if not len(batch):
            none = np.zeros((1, 0), dtype=np.int64)
            return Outcome(none, none), np.zeros(0, dtype=bool)
        lengths, _ = self._lengths()
        outcome = self.acceptance.outcomes(batch, 1, lengths)
        drafted = np.broadcast_to(outcome.drafted, outcome.accepted.shape)[0]
        if limits.max_model_len is not None:
            drafted = np.minimum(drafted, np.maximum(limits.max_model_len - 1 - batch.context, 0))
        cost = 1 + drafted
        room = limits.max_num_batched_tokens - (np.add.accumulate(cost) - cost)
        active = room >= 1
        drafted = np.where(active, np.minimum(drafted, room - 1), 0)
        left = scheduler.fit_decode(drafted, active)
        outcome = outcome.cut(drafted)
        if left is not None:
            stretch = None if outcome.stretch is None else outcome.stretch[:, left]
            outcome = Outcome(outcome.accepted[:, left], np.asarray(outcome.drafted)[:, left], stretch)
            active = active[left]
        return outcome, active

    def _single_step_s(self, outcome: Outcome, active: NDArray[np.bool_], chunks: list[Chunk]) -> float:
        drafted = np.asarray(outcome.drafted)[0]
        rows = int(np.count_nonzero(active))
        key = rows, int(np.count_nonzero(drafted)), int(drafted.sum())
        context = float(self.scheduler.batch.context[active].mean()) if rows else 1.0
        if not chunks:
            return float(self.times.decode_s(*key, np.array([context]))[0])
        prompt = sum(chunk.tokens for chunk in chunks)
        seen = sum(chunk.tokens * (chunk.request.computed + 0.5 * chunk.tokens) for chunk in chunks) / prompt
        return self.times.mixed_s(key, context, prompt, seen, sum(chunk.finishes for chunk in chunks))

    def _book_single_step(
        self, outcome: Outcome, active: NDArray[np.bool_], chunks: list[Chunk], seconds: float
    ) -> None:
        batch, now, metrics = self.scheduler.batch, self.env.now, self.metrics
        rows = int(np.count_nonzero(active))
        prompt = sum(chunk.tokens for chunk in chunks)
        if rows:
            emitted = np.where(active, outcome.accepted[0] + 1, 0)
            metrics.itl.add((now - batch.last_token_s)[active])
            outcome.accepted = outcome.accepted * active
            self._book_drafts(outcome, 1, rows)
            tokens = int(np.minimum(emitted, batch.left).sum())
            batch.context[:] += emitted
            batch.left[:] -= emitted
            batch.steps[:] += active
            batch.last_token_s[active] = now
            metrics.decoded(np.array([now]), np.array([seconds]), np.array([tokens]), rows)
        metrics.totals.prompt_tokens += prompt
        facts = {"decode": rows, "prompt_tokens": prompt}
        self._told(np.array([now - seconds]), np.array([now]), facts)
        self._finish_rows()
        for chunk in chunks:
            if self.scheduler.computed(chunk):
                self._prompt_done(chunk.request)

    def _prompt_done(self, request: Request) -> None:
        """The last chunk of a prompt gives one token: the first, or after a preemption the next."""
        now, metrics = self.env.now, self.metrics
        if request.generated:
            metrics.itl.add(np.array([now - request.last_token_s]))
        else:
            request.first_token_s = now
        request.generated += 1
        request.from_prefill += 1
        request.last_token_s = now
        metrics.totals.first_tokens += 1
        metrics.emitted(np.array([now]), np.array([1]))
        if request.generated >= request.output_tokens:
            self._finish(request)
        else:
            self.scheduler.batch.append(request)

    # --- leaving

    def _finish_rows(self) -> None:
        """Rows that have all their tokens leave."""
        batch = self.scheduler.batch
        gone = batch.left <= 0
        if gone.any():
            for request in batch.remove(gone):
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
        rate = (emitted - metrics.series_tokens) / span
        metrics.series_tokens = emitted
        metrics.series.add(float(starts_s[0]), span, (scheduler.num_running, len(scheduler.waiting), usage, rate))
        for observer in self.observers:
            observer.steps(starts_s, ends_s, {**facts, "waiting": len(scheduler.waiting), "blocks": scheduler.pool.used})


def _first(values: Ints | int, steps: int) -> Ints | int:
    """The values of the first steps."""
    return values if isinstance(values, int) else values[:steps]
