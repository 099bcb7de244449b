"""Decode steps that follow each other without a decision, worked out together.

As long as nobody arrives, finishes or is preempted, and the draft length stays, the next steps depend on nothing but
the draws of acceptance. A block ends with the first step in which a request finishes, and with the step during which
the next event of the calendar happens.
"""

import math
from dataclasses import dataclass

import numpy as np
import simpy
from numpy.typing import NDArray

from simulator.serving.acceptance_sampling import AcceptanceSource, Outcome, longest
from simulator.serving.metrics import ArmMetrics
from simulator.serving.policies import Policy
from simulator.serving.scheduler import Scheduler
from simulator.serving.step_times import Key, StepTimes

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

MAX_BLOCK_STEPS = 512
_MAX_BLOCK_CELLS = 16_384  # steps x rows that are computed at once: bounds what a block throws away when it is cut
_UNTIMED = np.zeros(1)
_SPARE_STEPS = 3  # computed beyond the expected end of a block


@dataclass(slots=True)
class Block:
    """Consecutive decode steps of the batch, worked out and not yet booked; durations may follow."""

    outcome: Outcome
    total: Ints  # (steps, rows) tokens emitted from the start of the block, not cut at the limit
    sums: Ints  # (steps,) of all rows
    seconds: Array  # (steps,)
    ends_s: Array
    active: NDArray[np.bool_] | None = None  # rows that take part; None: all

    def first(self, steps: int) -> "Block":
        """The block cut to its first steps."""
        return Block(
            self.outcome, self.total[:steps], self.sums[:steps], self.seconds[:steps], self.ends_s[:steps], self.active
        )

    @property
    def num_active(self) -> int:
        """Rows that take part."""
        return self.total.shape[1] if self.active is None else int(np.count_nonzero(self.active))

    @property
    def key(self) -> Key:
        """The composition of the first step."""
        rows = self.total.shape[1]
        drafted, tokens = self.outcome.rows_with_draft(rows), self.outcome.tokens(rows)
        if isinstance(drafted, int) and isinstance(tokens, int):
            return self.num_active, drafted, tokens
        return self.num_active, int(np.asarray(drafted)[0]), int(np.asarray(tokens)[0])


@dataclass(slots=True)
class DecodePlanner:
    """Plans decode steps of the scheduler's batch: how many tokens to draft, what happens, how long it takes."""

    env: simpy.Environment
    scheduler: Scheduler
    times: StepTimes
    acceptance: AcceptanceSource
    policy: Policy
    metrics: ArmMetrics
    draft_share: float = 1.0  # of steps in which a draft is found: for the optimal policy's expectation
    max_block_steps: int = MAX_BLOCK_STEPS
    tokens_per_step: float = 1.0  # of late, per row

    def plan(self) -> Block | None:
        """The next decode steps in which nothing has to be decided; None when even the first needs a decision."""
        batch = self.scheduler.batch
        lengths, holds = self.lengths()
        most = longest(lengths)
        steps = min(self._room(most), self._worth_computing(holds))
        if steps < 1:
            return None
        rows = len(batch)
        outcome = self.acceptance.outcomes(batch, steps, lengths)
        total = np.add.accumulate(outcome.accepted + 1, axis=0, dtype=np.int64)
        sums = np.add.reduce(total, axis=1)
        done = np.logical_or.reduce(total >= batch.left, axis=1)
        first = int(done.argmax())
        if done[first]:
            steps = first + 1
        context = np.empty(steps)
        context[0] = batch.context_sum
        np.add(sums[: steps - 1], batch.context_sum, out=context[1:])
        drafted, tokens = outcome.rows_with_draft(rows), outcome.tokens(rows)
        seconds = self.times.decode_s(rows, _first(drafted, steps), _first(tokens, steps), context / rows)
        ends = self.env.now + np.add.accumulate(seconds)
        steps = min(steps, 1 + int(ends.searchsorted(self.env.peek())))
        steps = self._with_blocks(total, steps, most)
        if steps == 0:
            return None
        return Block(outcome, total[:steps], sums[:steps], seconds[:steps], ends[:steps])

    def plan_one(self) -> Block:
        """The decode rows of one step, not timed: drafts cut and rows left out by the budget, rows preempted."""
        batch = self.scheduler.batch
        if not len(batch):
            none = np.zeros((1, 0), dtype=np.int64)
            return Block(Outcome(none, 0), none, none.sum(axis=1), _UNTIMED, _UNTIMED)
        lengths, _ = self.lengths()
        outcome = self.acceptance.outcomes(batch, 1, lengths)
        most = longest(lengths)
        if self._room(most) and self._with_blocks(outcome.accepted, 1, most):
            total = np.add(outcome.accepted, 1, dtype=np.int64)
            return Block(outcome, total, np.add.reduce(total, axis=1), _UNTIMED, _UNTIMED)
        return self._tight(outcome)

    def _tight(self, outcome: Outcome) -> Block:
        """One step in which budget, window or KV blocks do not suffice for everything."""
        scheduler = self.scheduler
        batch, limits = scheduler.batch, scheduler.limits
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
            outcome, active = outcome.rows(left), active[left]
        outcome.accepted = outcome.accepted * active
        total = np.add(outcome.accepted, active, dtype=np.int64)
        return Block(outcome, total, total.sum(axis=1), _UNTIMED, _UNTIMED, active)

    def _room(self, most: int) -> int:
        """Steps that all rows can take with drafts of this length within token budget and context window."""
        limits, batch = self.scheduler.limits, self.scheduler.batch
        if len(batch) * (most + 1) > limits.max_num_batched_tokens:
            return 0
        if limits.max_model_len is None or self.scheduler.longest_request + most < limits.max_model_len:
            return MAX_BLOCK_STEPS  # nobody gets near the end of the window
        return max((limits.max_model_len - 1 - most - int(batch.context.max())) // (most + 1), 0)

    def lengths(self) -> "tuple[int | Ints, int]":
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
        expected = int(batch.least_left / self.tokens_per_step) + _SPARE_STEPS
        totals, until_event = self.metrics.totals, self.env.peek() - self.env.now
        if until_event < math.inf and totals.decode_steps:
            expected = min(expected, int(2.0 * until_event * totals.decode_steps / totals.step_time_s) + _SPARE_STEPS)
        return max(min(expected, holds, self.max_block_steps, _MAX_BLOCK_CELLS // len(batch)), 1)

    def _with_blocks(self, total: Ints, steps: int, longest: int) -> int:
        """Take the KV blocks for as many of these steps as there are blocks for; 0 when not even for one."""
        scheduler = self.scheduler
        batch = scheduler.batch
        while steps:
            before = batch.context if steps == 1 else batch.context + total[steps - 2]
            extra = np.maximum(scheduler.slots_blocks(before + longest) - batch.blocks, 0)
            wanted = int(np.add.reduce(extra))
            if wanted <= scheduler.pool.free:
                scheduler.pool.take(wanted)
                batch.blocks[:] += extra
                return steps
            steps //= 2
        return 0


def _first(values: Ints | int, steps: int) -> Ints | int:
    """The values of the first steps."""
    return values if isinstance(values, int) else values[:steps]
