"""The decoding requests as columns, in order of admission: what the step loop needs, one row a request.

Columns instead of objects, because a step touches every row: with numpy it costs the same at 1 and at 64 requests.
"""

from itertools import count

import numpy as np
from numpy.typing import NDArray

from simulator.serving.request import Request

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

_START_CAPACITY = 64
_CONTEXT, _LEFT, _STEPS, _DRAFTS, _DRAFT_TOKENS, _BLOCKS, _LEVEL, _STRETCH, _KEY = range(9)
_COLUMNS = 9
_versions = count(1)


class RunningBatch:
    """Rows of decoding requests. The columns are views, valid until a row is added or removed."""

    context: Ints  # prompt and generated tokens; the last one is not in the cache yet
    left: Ints  # tokens still to be generated
    steps: Ints  # decode steps taken
    blocks: Ints  # KV blocks held
    levels: Ints  # place in the population of acceptances
    stretch: Ints  # step at which the present stretch of acceptance began
    keys: Words  # key of the request's random numbers
    last_token_s: NDArray[np.float64]
    version: int  # another whenever rows change, and in every batch: what was derived from rows is kept by it
    context_sum: int
    least_left: int

    def __init__(self) -> None:
        """An empty batch."""
        self.requests: list[Request] = []
        self._ints: Ints = np.zeros((_COLUMNS, _START_CAPACITY), dtype=np.int64)
        self._times = np.zeros(_START_CAPACITY)
        self.context_sum = self.least_left = 0
        self._changed()

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.requests)

    def _changed(self) -> None:
        size = len(self.requests)
        ints = self._ints[:, :size]
        self.context, self.left, self.steps, self._drafts, self._draft_tokens = ints[:_BLOCKS]
        self.blocks, self.levels, self.stretch, keys = ints[_BLOCKS:]
        self.keys = keys.view(np.uint64)
        self.last_token_s = self._times[:size]
        self.version = next(_versions)

    def emit(self, emitted: Ints, num_emitted: int) -> int:
        """Tokens of each row, and of all; returns how many of them are beyond what was asked for."""
        self.context += emitted
        self.left -= emitted
        self.context_sum += num_emitted
        self.least_left = int(np.minimum.reduce(self.left))
        return -int(np.minimum(self.left, 0).sum()) if self.least_left < 0 else 0

    def count(self, steps: "int | Ints", drafts: "int | Ints", draft_tokens: "int | Ints") -> None:
        """Decode steps, drafts and drafted tokens, one number for all rows or one a row."""
        self.steps += steps
        if isinstance(drafts, int) and not drafts:
            return
        self._drafts += drafts
        self._draft_tokens += draft_tokens

    def append(self, request: Request) -> None:
        """A request whose prefill is done joins."""
        row = len(self.requests)
        if row == self._ints.shape[1]:
            self._ints = np.concatenate([self._ints, np.zeros_like(self._ints)], axis=1)
            self._times = np.concatenate([self._times, np.zeros_like(self._times)])
        self.requests.append(request)
        self._ints[:, row] = (
            request.known_tokens,
            request.output_tokens - request.generated,
            request.steps,
            request.drafts,
            request.draft_tokens,
            request.blocks,
            request.level,
            request.stretch,
            request.key,
        )
        self._times[row] = request.last_token_s
        self.context_sum += request.known_tokens
        left = request.output_tokens - request.generated
        self.least_left = min(self.least_left, left) if row else left
        self._changed()

    def remove(self, gone: NDArray[np.bool_]) -> list[Request]:
        """The requests of the marked rows, their counts written back; the other rows keep their order.

        Tokens beyond what was asked for become `wasted`.
        """
        leaving = []
        for row in reversed(gone.nonzero()[0].tolist()):
            leaving.append(self._written_back(row))
            self.context_sum -= int(self._ints[_CONTEXT, row])
            size = len(self.requests)
            self._ints[:, row : size - 1] = self._ints[:, row + 1 : size]
            self._times[row : size - 1] = self._times[row + 1 : size]
            del self.requests[row]
        self._changed()
        self.least_left = int(np.minimum.reduce(self.left)) if self.requests else 0
        return leaving[::-1]

    def _written_back(self, row: int) -> Request:
        request, column = self.requests[row], self._ints[:, row].tolist()
        request.generated = request.output_tokens - max(column[_LEFT], 0)
        request.wasted = max(-column[_LEFT], 0)
        request.steps, request.drafts = column[_STEPS], column[_DRAFTS]
        request.draft_tokens, request.blocks = column[_DRAFT_TOKENS], column[_BLOCKS]
        request.stretch = column[_STRETCH]
        request.last_token_s = float(self._times[row])
        return request
