"""What is counted of a replay, for one k: by request, by context length, and in runs of steps."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from calibration.replay.ngram import Lengths
from calibration.replay.recording import Batch, Ints
from calibration.replay.walk import accepting_steps, step_positions

# Context lengths at which a new bin begins; the last bin is open.
CONTEXT_EDGES = (0, 256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072)
BLOCKS = 20  # into which a replay of one request alone is cut, for an interval
# Columns of the counts by request; then come the drafts with position 1, 2, ... accepted.
STEPS, DRAFTS, DRAFT_TOKENS, SCHEDULED, SCHEDULED_TOKENS = range(5)
FIXED_COLUMNS = 5


@dataclass
class Tally:
    """Counts of one k, added up batch by batch."""

    k: int
    by_request: list[Ints] = field(default_factory=list)  # (num_requests, FIXED_COLUMNS + k) of each batch
    by_block: Ints | None = None  # the same of the blocks of the only request with steps
    context_tokens: int = 0  # of all steps together
    # Steps, drafts and accepted tokens, by context bin.
    by_context: Ints = field(default_factory=lambda: np.zeros((3, len(CONTEXT_EDGES)), np.int64))
    drafted_runs: Ints = field(default_factory=lambda: np.zeros(1, np.int64))  # how many runs of so many steps
    accepted_runs: Ints = field(default_factory=lambda: np.zeros(1, np.int64))  # of so many accepted tokens

    def add(self, batch: Batch, bins: Ints, lengths: tuple[Lengths, Lengths], room: Ints | None) -> None:
        """Counts one batch: `lengths` drafted and right at its decode positions, `room` what the scheduler accepts.

        `bins` holds the context bin of each decode position.
        """
        drafted, right = lengths
        scheduled = drafted if room is None else np.minimum(drafted, room)
        right = right if room is None else np.minimum(right, room)
        accepting = accepting_steps(right)
        steps = step_positions(right, accepting)
        columns = [steps, steps & (drafted > 0), np.where(steps, drafted, 0)]
        columns += columns[1:] if room is None else [steps & (scheduled > 0), np.where(steps, scheduled, 0)]
        sizes = batch.num_positions
        self.by_request.append(self._sums(columns, right, accepting, sizes))
        alone = np.count_nonzero(sizes) == 1
        self.by_block = self._sums(columns, right, accepting, _block_sizes(len(steps))) if alone else None
        self._add_contexts(bins, columns, right, accepting)
        places = np.flatnonzero(steps)
        self.context_tokens += int(batch.context[places].sum())
        request = batch.request[places]
        self.drafted_runs = _merged(self.drafted_runs, _run_totals(columns[DRAFTS][places], request))
        self.accepted_runs = _merged(self.accepted_runs, _run_totals(right[places], request))

    def _sums(self, columns: list[NDArray[np.generic]], right: Lengths, accepting: Ints, sizes: Ints) -> Ints:
        """Counts of consecutive groups of `sizes` decode positions, (num_groups, FIXED_COLUMNS + k)."""
        table = np.zeros((len(sizes), FIXED_COLUMNS + self.k), np.int64)
        filled = np.flatnonzero(sizes)
        begins = (np.cumsum(sizes) - sizes)[filled]
        if len(filled):
            for index, column in enumerate(columns):
                table[filled, index] = np.add.reduceat(column, begins, dtype=np.int64)
        group = filled[np.searchsorted(begins, accepting, side="right") - 1] if len(accepting) else accepting
        cells = np.bincount(group * self.k + right[accepting] - 1, minlength=len(sizes) * self.k)
        exactly = cells.reshape(len(sizes), self.k)
        table[:, FIXED_COLUMNS:] = exactly[:, ::-1].cumsum(axis=1)[:, ::-1]
        return table

    def _add_contexts(self, bins: Ints, columns: list[NDArray[np.generic]], right: Lengths, accepting: Ints) -> None:
        size = len(CONTEXT_EDGES)
        for row, column in enumerate((columns[STEPS], columns[DRAFTS])):
            self.by_context[row] += np.bincount(bins[column], minlength=size)
        accepted = np.bincount(bins[accepting], weights=right[accepting], minlength=size)
        self.by_context[2] += accepted.astype(np.int64)

    @property
    def requests(self) -> Ints:
        """Counts by request, (num_requests, FIXED_COLUMNS + k)."""
        nothing = np.zeros((0, FIXED_COLUMNS + self.k), np.int64)
        return np.concatenate([nothing, *self.by_request])


def context_bins(batch: Batch) -> Ints:
    """The bin of `CONTEXT_EDGES` that each decode position falls into, (num_positions,)."""
    return np.searchsorted(np.array(CONTEXT_EDGES), batch.context, side="right") - 1


def _block_sizes(num_positions: int) -> Ints:
    """Sizes of nearly equal blocks, none empty."""
    blocks = min(BLOCKS, num_positions)
    edges = np.arange(blocks + 1) * num_positions // max(blocks, 1)
    return np.diff(edges)


def _run_totals(values: NDArray[np.generic], request: Ints) -> Ints:
    """How many runs of consecutive non-zero values in one request add up to 0, 1, 2, ...; runs of nothing left out."""
    places = np.flatnonzero(values)
    if not len(places):
        return np.zeros(1, np.int64)
    opens = np.concatenate(([True], (np.diff(places) > 1) | (np.diff(request[places]) > 0)))
    return np.bincount(np.add.reduceat(values[places], np.flatnonzero(opens), dtype=np.int64))


def _merged(one: Ints, other: Ints) -> Ints:
    """The sum of two histograms of different lengths."""
    size = max(len(one), len(other))
    return np.pad(one, (0, size - len(one))) + np.pad(other, (0, size - len(other)))
