"""What is replayed: one prompt with its output, and a batch of them laid out behind one another."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

BATCH_TOKENS = 1 << 18  # sorts of this size stay in the processor's cache; a longer request is a batch of its own


@dataclass(frozen=True, slots=True)
class Recording:
    """Token ids of one prompt and of what the model answered.

    `has_prompt` is False where the prompt is not known; `temperature` is None where the source does not tell;
    `max_tokens` is the request's own limit; `undraftable` says which parameter keeps old engines from drafting.
    """

    prompt: Ints
    output: Ints
    has_prompt: bool = True
    temperature: float | None = None
    max_tokens: int | None = None
    undraftable: str | None = None

    @property
    def num_tokens(self) -> int:
        """Prompt and output together."""
        return len(self.prompt) + len(self.output)


@dataclass(frozen=True)
class Batch:
    """Recordings laid out behind one another, and the decode positions in them.

    A decode position is a token after which a decode step may begin: every output token but the last one. Arrays with
    one entry per decode position are `(num_positions,)`, those per request `(num_requests,)`.
    """

    recordings: tuple[Recording, ...]

    @cached_property
    def tokens(self) -> Ints:
        """All token ids, request by request, prompt before output."""
        parts = [part for item in self.recordings for part in (item.prompt, item.output)]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    @cached_property
    def lengths(self) -> Ints:
        """Tokens of each request."""
        return np.array([item.num_tokens for item in self.recordings], np.int64)

    @cached_property
    def starts(self) -> Ints:
        """Index of each request's first token."""
        return np.cumsum(self.lengths) - self.lengths

    @cached_property
    def num_positions(self) -> Ints:
        """Decode positions of each request: output tokens - 1."""
        return np.array([max(len(item.output) - 1, 0) for item in self.recordings], np.int64)

    @cached_property
    def first_positions(self) -> Ints:
        """Index of each request's first decode position among all of them."""
        return np.cumsum(self.num_positions) - self.num_positions

    @cached_property
    def request(self) -> Ints:
        """The request of each decode position."""
        return np.repeat(np.arange(len(self.recordings)), self.num_positions)

    @cached_property
    def token(self) -> Ints:
        """Index in `tokens` of the newest token at each decode position."""
        first = self.starts + np.array([len(item.prompt) for item in self.recordings], np.int64)
        return np.arange(len(self.request)) + (first - self.first_positions)[self.request]

    @cached_property
    def context(self) -> Ints:
        """Tokens known at each decode position, the newest one included."""
        return self.token + 1 - self.starts[self.request]

    @cached_property
    def remaining(self) -> Ints:
        """Recorded tokens after each decode position; at least 1."""
        ends = self.starts + self.lengths
        return ends[self.request] - 1 - self.token

    @cached_property
    def offset(self) -> Ints:
        """Place of every token in its own request, `(num_tokens,)`."""
        return np.arange(len(self.tokens)) - np.repeat(self.starts, self.lengths)


def batches(recordings: Iterable[Recording], size: int = BATCH_TOKENS) -> Iterator[Batch]:
    """The recordings in batches of about `size` tokens, in their order; a longer request stands alone."""
    waiting: list[Recording] = []
    tokens = 0
    for item in recordings:
        if waiting and tokens + item.num_tokens > size:
            yield Batch(tuple(waiting))
            waiting, tokens = [], 0
        waiting.append(item)
        tokens += item.num_tokens
    if waiting:
        yield Batch(tuple(waiting))


def recording(prompt: Sequence[int] | None, output: Sequence[int], temperature: float | None = None) -> Recording:
    """A recording of plain lists; `prompt` None where it is not known."""
    return Recording(
        np.array(prompt or (), np.int64), np.array(output, np.int64), prompt is not None, temperature=temperature
    )
