"""How many tokens to draft next: each policy is a small function or a few lines of state.

Sources: docs/serving.md; vLLM `num_speculative_tokens_per_batch_size`, SGLang `--speculative-adaptive`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
StepSeconds = Callable[[int, int, int], float]  # (sequences, rows with a draft, drafted tokens) -> seconds

FOREVER = 1_000_000_000
# SGLang: by batch size, the draft lengths between which it moves (EAGLE, top-k 1).
SGLANG_CANDIDATES: Mapping[int, tuple[int, ...]] = {1: (1, 3, 5, 7), 8: (0, 1, 3), 32: (0, 1), 64: (0,)}
_SGLANG_EMA, _SGLANG_EVERY, _SGLANG_WARM_UP = 0.2, 5, 10
_SGLANG_RISE, _SGLANG_HYSTERESIS = -0.5, -0.25
# Variance of the average over that of one batch's mean, batches independent: a / (2 - a).
SGLANG_AVERAGE_VARIANCE = _SGLANG_EMA / (2.0 - _SGLANG_EMA)
_PREFIXES = 16  # sizes of an uneven draft that the optimal controller tries beside all even ones


class Policy(Protocol):
    """What the engine asks for draft lengths."""

    largest: int  # the longest draft that it may ask for: what the engine is configured for

    def lengths(self, survival: Callable[[], Array], sequences: int, seconds: StepSeconds) -> "tuple[int | Ints, int]":
        """Drafted tokens (one number, or one a row) and for how many steps this holds.

        `survival` gives S_1..S_k of every row `(rows, k)`, known only to an oracle; `seconds` a step's duration.
        """
        ...

    def observe(self, accepted: int, rows: int, steps: int) -> None:
        """What came of it: accepted drafts of `steps` steps of `rows` rows."""
        ...


@dataclass(slots=True)
class StaticLength:
    """Always the same."""

    largest: int

    def lengths(self, survival: Callable[[], Array], sequences: int, seconds: StepSeconds) -> "tuple[int | Ints, int]":
        """The configured number, for good."""
        return self.largest, FOREVER

    def observe(self, accepted: int, rows: int, steps: int) -> None:
        """Nothing is learnt."""


class ScheduledLength:
    """vLLM's schedule: by the number of requests in the step."""

    def __init__(self, schedule: Sequence[tuple[int, int, int]]) -> None:
        """Ranges `[lo, hi, k]`, inclusive, sorted; gaps and the tail carry the last length forward."""
        self._schedule = tuple(schedule)
        self.largest = max(k for _, _, k in self._schedule)

    def lengths(self, survival: Callable[[], Array], sequences: int, seconds: StepSeconds) -> "tuple[int | Ints, int]":
        """The length of the batch's range, until the batch changes."""
        return scheduled_length(self._schedule, sequences), FOREVER

    def observe(self, accepted: int, rows: int, steps: int) -> None:
        """Nothing is learnt."""


def scheduled_length(schedule: Sequence[tuple[int, int, int]], batch: int) -> int:
    """The draft length at a batch size."""
    return next((k for low, _, k in reversed(schedule) if low <= batch), schedule[0][2])


@dataclass(slots=True)
class SglangAdaptive:
    """SGLang's controller: an average of accepted tokens, moved one candidate up or down every few batches."""

    largest: int = max(k for ks in SGLANG_CANDIDATES.values() for k in ks)
    length: int = 3
    average: float | None = None
    batches: int = 0

    def lengths(self, survival: Callable[[], Array], sequences: int, seconds: StepSeconds) -> "tuple[int | Ints, int]":
        """The present candidate for this batch size, until the next update is due."""
        candidates = sglang_candidates(sequences)
        self.length = max((k for k in candidates if k <= self.length), default=candidates[0])
        self.length = self._moved(candidates)
        return self.length, max(_SGLANG_EVERY - self.batches % _SGLANG_EVERY, 1)

    def _moved(self, candidates: tuple[int, ...]) -> int:
        if self.average is None or self.batches < _SGLANG_WARM_UP or self.batches % _SGLANG_EVERY:
            return self.length
        return sglang_next_length(self.average, self.length, candidates)

    def observe(self, accepted: int, rows: int, steps: int) -> None:
        """Batches in a row enter the average together, with the weight that they would have one by one."""
        mean = accepted / (rows * steps)
        kept = (1.0 - _SGLANG_EMA) ** steps
        self.average = mean if self.average is None else kept * self.average + (1.0 - kept) * mean
        self.batches += steps


def sglang_candidates(sequences: int) -> tuple[int, ...]:
    """The draft lengths that SGLang tries at a batch size."""
    return SGLANG_CANDIDATES[max(size for size in SGLANG_CANDIDATES if size <= max(sequences, 1))]


def sglang_next_length(average: float, length: int, candidates: tuple[int, ...]) -> int:
    """One candidate up where nearly all drafts are accepted, one down where the next smaller one would have done.

    Up: average > length - 0.5. Down: average <= previous - 0.5 - 0.25.
    """
    place = candidates.index(length)
    if average > sglang_rises_above(length) and place + 1 < len(candidates):
        return candidates[place + 1]
    if place and average <= sglang_drops_to(candidates[place - 1]):
        return candidates[place - 1]
    return length


def sglang_rises_above(length: int) -> float:
    """The average above which the next longer candidate is tried."""
    return length + _SGLANG_RISE


def sglang_drops_to(shorter: int) -> float:
    """The average down to which the next `shorter` candidate would have done."""
    return shorter + _SGLANG_RISE + _SGLANG_HYSTERESIS


class OptimalLengths:
    """The goodput-optimal controller that knows every request's acceptance: an upper bound, not a product.

    A bound for its largest length: that is what the graphs are captured for.
    """

    def __init__(self, largest: int) -> None:
        """Drafts up to `largest` tokens."""
        self.largest = largest
        self._known: tuple[bytes, int | Ints] | None = None

    def lengths(self, survival: Callable[[], Array], sequences: int, seconds: StepSeconds) -> "tuple[int | Ints, int]":
        """The lengths that maximise expected tokens per second of the next step; worked out anew for a new batch."""
        table = survival()
        key = table.tobytes()
        if self._known is None or self._known[0] != key:
            self._known = (key, best_lengths(table, seconds))
        return self._known[1], FOREVER

    def observe(self, accepted: int, rows: int, steps: int) -> None:
        """It knows already."""


def best_lengths(survival: Array, seconds: StepSeconds) -> int | Ints:
    """Draft lengths that maximise (rows + expected accepted tokens) / step seconds for S_1..S_k `(rows, k)`.

    Even drafts of 0..k tokens, and uneven ones that take the slots in order of survival. The best of all is taken:
    step time is concave and stepped in the number of tokens, so a marginal rule would stop too early.
    """
    rows, longest = survival.shape
    even: list[tuple[float, int | Ints]] = []
    for k in range(longest + 1):
        gain = rows + float(survival[:, :k].sum())
        even.append((gain / seconds(rows, rows if k else 0, k * rows), k))
    order = np.argsort(-survival, axis=None, kind="stable")
    owners = order // longest
    gains = np.cumsum(survival.ravel()[order])
    uneven: list[tuple[float, int | Ints]] = []
    for size in np.unique(np.linspace(1, len(order) - 1, _PREFIXES).astype(int)).tolist() if rows > 1 else ():
        lengths = np.bincount(owners[:size], minlength=rows)
        rate = (rows + float(gains[size - 1])) / seconds(rows, int(np.count_nonzero(lengths)), int(size))
        uneven.append((rate, lengths))
    return max([*even, *uneven], key=lambda item: item[0])[1]
