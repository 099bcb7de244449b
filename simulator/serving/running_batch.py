"""The decoding requests as columns, in order of admission: what the step loop needs, one row a request.

Columns instead of objects, because a step touches every row: with numpy it costs the same at 1 and at 64 requests.
"""

import numpy as np
from numpy.typing import NDArray

from simulator.serving.request import Request

Ints = NDArray[np.int64]
_START_CAPACITY = 64
_CONTEXT, _LEFT, _STEPS, _DRAFTS, _DRAFT_TOKENS, _BLOCKS, _LEVEL, _STRETCH, _NUMBER = range(9)
_COLUMNS = 9


class RunningBatch:
    """Rows of decoding requests. A view of a column (`batch.left`) stays valid until a row is added or removed."""

    def __init__(self) -> None:
        """An empty batch."""
        self.requests: list[Request] = []
        self._ints: Ints = np.zeros((_COLUMNS, _START_CAPACITY), dtype=np.int64)
        self._times = np.zeros(_START_CAPACITY)
        self.version = 0  # changes whenever rows do, so that what was derived from them can be kept meanwhile

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.requests)

    def _column(self, index: int) -> Ints:
        return self._ints[index, : len(self.requests)]

    @property
    def context(self) -> Ints:
        """Prompt and generated tokens; the last one is not in the cache yet."""
        return self._column(_CONTEXT)

    @property
    def left(self) -> Ints:
        """Tokens still to be generated."""
        return self._column(_LEFT)

    @property
    def steps(self) -> Ints:
        """Decode steps taken."""
        return self._column(_STEPS)

    @property
    def drafts(self) -> Ints:
        """Steps that carried a draft."""
        return self._column(_DRAFTS)

    @property
    def draft_tokens(self) -> Ints:
        """Drafted tokens."""
        return self._column(_DRAFT_TOKENS)

    @property
    def blocks(self) -> Ints:
        """KV blocks held."""
        return self._column(_BLOCKS)

    @property
    def levels(self) -> Ints:
        """Place in the population of acceptances."""
        return self._column(_LEVEL)

    @property
    def stretch(self) -> Ints:
        """Step at which the present stretch of acceptance began."""
        return self._column(_STRETCH)

    @property
    def numbers(self) -> Ints:
        """Numbers of the requests."""
        return self._column(_NUMBER)

    @property
    def last_token_s(self) -> NDArray[np.float64]:
        """When the last token came."""
        return self._times[: len(self.requests)]

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
            request.number,
        )
        self._times[row] = request.last_token_s
        self.version += 1

    def remove(self, gone: NDArray[np.bool_]) -> list[Request]:
        """The requests of the marked rows, their counts written back; the other rows keep their order.

        Tokens beyond what was asked for become `wasted`.
        """
        size = len(self.requests)
        leaving = [self._written_back(int(row)) for row in np.flatnonzero(gone)]
        keep = ~gone
        left = size - len(leaving)
        self._ints[:, :left] = self._ints[:, :size][:, keep]
        self._times[:left] = self._times[:size][keep]
        self.requests = [r for r, out in zip(self.requests, gone.tolist(), strict=True) if not out]
        self.version += 1
        return leaving

    def _written_back(self, row: int) -> Request:
        request, column = self.requests[row], self._ints[:, row].tolist()
        request.generated = request.output_tokens - max(column[_LEFT], 0)
        request.wasted = max(-column[_LEFT], 0)
        request.steps, request.drafts = column[_STEPS], column[_DRAFTS]
        request.draft_tokens, request.blocks = column[_DRAFT_TOKENS], column[_BLOCKS]
        request.stretch = column[_STRETCH]
        request.last_token_s = float(self._times[row])
        return request
