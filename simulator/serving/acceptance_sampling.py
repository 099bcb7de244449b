"""Which drafts are accepted in the next steps of every running request: sampled, or read from recorded steps."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from simulator.serving.population import Population
from simulator.serving.random_streams import (
    HALF_RANGE,
    HalfWords,
    consecutive_words,
    halves,
    request_key,
    stream_salts,
    threshold,
    words,
)
from simulator.serving.request import Request
from simulator.serving.running_batch import RunningBatch

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Counts = NDArray[Any]  # of a step: one byte holds more than the longest draft
_STREAMS = 3  # acceptance, ends of stretches, what a new stretch is like


@dataclass(slots=True)
class Outcome:
    """The next steps of each row: `accepted` tokens `(steps, rows)`, and how many were drafted (0: no draft)."""

    accepted: Counts
    drafted: Ints | int  # (steps, rows), or one number for all
    stretch: Ints | None = None  # (steps, rows): beginning of the stretch that each step belongs to

    def cut(self, limit: Ints) -> "Outcome":
        """The same with at most `limit` drafted tokens, `(rows,)`: what the token budget or the window leaves."""
        return Outcome(np.minimum(self.accepted, limit), np.minimum(self.drafted, limit[None, :]), self.stretch)

    def rows(self, kept: NDArray[np.bool_]) -> "Outcome":
        """The same for the rows that are kept."""
        drafted = self.drafted if isinstance(self.drafted, int) else self.drafted[:, kept]
        return Outcome(self.accepted[:, kept], drafted, None if self.stretch is None else self.stretch[:, kept])

    def rows_with_draft(self, num_rows: int) -> Ints | int:
        """Rows that carry a draft, by step, or one number for all steps."""
        if isinstance(self.drafted, int):
            return num_rows if self.drafted else 0
        return np.asarray(np.count_nonzero(self.drafted, axis=1))

    def tokens(self, num_rows: int) -> Ints | int:
        """Drafted tokens of all rows, by step, or one number for all steps."""
        if isinstance(self.drafted, int):
            return self.drafted * num_rows
        return np.asarray(self.drafted.sum(axis=1))


class AcceptanceSource(Protocol):
    """What the engine asks for acceptance."""

    def enrol(self, request: Request) -> None:
        """Sets level and key of a new request."""
        ...

    def outcomes(self, batch: RunningBatch, num_steps: int, lengths: "int | Ints") -> Outcome:
        """What happens to drafts of `lengths` tokens (one number, or one a row) in the next steps."""
        ...

    def survival(self, batch: RunningBatch) -> Array:
        """S_1..S_k of every row, `(rows, k)`, per step: what only an oracle knows."""
        ...


class NoDrafts:
    """The baseline: every step gives one token."""

    def enrol(self, request: Request) -> None:
        """There is one level and no chance."""

    def outcomes(self, batch: RunningBatch, num_steps: int, lengths: "int | Ints") -> Outcome:
        """Nothing drafted, nothing accepted."""
        return Outcome(np.zeros((num_steps, len(batch)), dtype=np.int8), 0)

    def survival(self, batch: RunningBatch) -> Array:
        """Nothing to survive, `(rows, 0)`."""
        return np.zeros((len(batch), 0))


class SampledAcceptance:
    """Acceptance of a population: each request has its level, each draft one uniform number.

    Draft position i survives where the number is below S_i, so a longer draft accepts at least what a shorter one did.
    With `persistence` a request has stretches: each step begins a new one with probability 1 - persistence, and
    whether there is a draft, and how good it is, stays the same within a stretch.
    """

    def __init__(self, people: Population, draft_probability: float, persistence: float, seed: int) -> None:
        """`draft_probability` is the share of steps in which text lookup finds a draft."""
        self._people = people
        self._draft_probability = draft_probability
        self._always = draft_probability >= 1.0
        self._draft_below = threshold(draft_probability)
        self._persistence = persistence
        self._keep_below = threshold(persistence)
        self._limits = threshold(people.survival)  # (levels, stretches, k)
        self._by_position = np.ascontiguousarray(self._limits[:, 0].T)
        self._salts = stream_salts(seed, _STREAMS)
        self._version = -1
        self._thresholds: HalfWords = np.zeros((0, 0), dtype=np.uint32)

    def enrol(self, request: Request) -> None:
        """Its level in the population, and a key of its own."""
        request.level = self._people.level_of(request.number)
        request.key = request_key(int(self._salts[0]), request.number)

    def outcomes(self, batch: RunningBatch, num_steps: int, lengths: "int | Ints") -> Outcome:
        """Accepted and drafted tokens of the next steps, `(num_steps, rows)`."""
        place, position = halves(consecutive_words(batch.keys, batch.steps, num_steps))
        if self._persistence > 0.0:
            return self._in_stretches(batch, num_steps, position, lengths)
        if batch.version != self._version:
            self._version, self._thresholds = batch.version, self._by_position[:, batch.levels]
        survives = position < self._thresholds[: longest(lengths), None, :]  # (positions, steps, rows)
        accepted = np.add.reduce(survives, axis=0, dtype=np.int8)
        found = None if self._always else place < self._draft_below
        return _outcome(accepted, lengths, found)

    def survival(self, batch: RunningBatch) -> Array:
        """S_1..S_k of every row, `(rows, k)`, times the probability of a draft."""
        return np.asarray(self._people.survival[batch.levels].mean(axis=1) * self._draft_probability)

    def _in_stretches(self, batch: RunningBatch, num_steps: int, position: HalfWords, lengths: "int | Ints") -> Outcome:
        counters = batch.steps + np.arange(num_steps)[:, None]
        renewed = halves(words(batch.keys ^ self._salts[1], counters))[0] >= self._keep_below
        begun = np.maximum.accumulate(np.where(renewed, counters, batch.stretch), axis=0)
        place, kind = halves(words(batch.keys ^ self._salts[2], begun))
        num_stretches = self._limits.shape[1]
        stretch = (kind * (num_stretches / HALF_RANGE)).astype(np.int64)
        accepted = np.zeros(position.shape, dtype=np.int8)
        for i in range(longest(lengths)):
            accepted += position < self._limits[batch.levels, stretch, i]
        found = None if self._always else place < self._draft_below
        outcome = _outcome(accepted, lengths, found)
        outcome.stretch = begun
        return outcome


def longest(lengths: "int | Ints") -> int:
    """The longest of these drafts."""
    return lengths if isinstance(lengths, int) else int(lengths.max())


def _outcome(accepted: Counts, lengths: "int | Ints", found: NDArray[np.bool_] | None) -> Outcome:
    """The outcome for drafts of these lengths, where `found` says which steps have one (None: all)."""
    if not isinstance(lengths, int):
        accepted = np.minimum(accepted, lengths)
        lengths = np.broadcast_to(lengths, accepted.shape)
    if found is None:
        return Outcome(accepted, lengths)
    return Outcome(accepted * found, lengths * found)


class RecordedAcceptance:
    """Acceptance as recorded step by step: request i replays record i (modulo their number), again from its start.

    `drafted` and `accepted` hold all records one after another, `starts` where each begins, and one end more.
    """

    def __init__(self, drafted: Ints, accepted: Ints, starts: Ints) -> None:
        """Records of at least one step each."""
        self._drafted, self._accepted = drafted, accepted
        self._starts, self._sizes = starts[:-1], np.diff(starts)
        longest = int(drafted.max(initial=0))
        self._survival = np.array([np.mean(accepted >= i) for i in range(1, longest + 1)])

    @property
    def draft_share(self) -> float:
        """Share of the recorded steps that carry a draft."""
        return float(np.mean(self._drafted > 0))

    def enrol(self, request: Request) -> None:
        """The record that it replays is its level."""
        request.level = request.number % len(self._sizes)

    def outcomes(self, batch: RunningBatch, num_steps: int, lengths: "int | Ints") -> Outcome:
        """The recorded steps; drafts longer than `lengths` are cut."""
        record = batch.levels
        step = (batch.steps + np.arange(num_steps)[:, None]) % self._sizes[record]
        at = self._starts[record] + step
        drafted = np.minimum(self._drafted[at], lengths)
        return Outcome(np.minimum(self._accepted[at], drafted), drafted)

    def survival(self, batch: RunningBatch) -> Array:
        """S_1..S_k per step over all records, `(rows, k)`."""
        return np.asarray(np.tile(self._survival, (len(batch), 1)))
