"""Which n-grams are equal: exact ranks by sorting, no hashes, so that two different n-grams never meet."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.replay.recording import Ints

Flags = NDArray[np.bool_]
_WORD_BITS = 63  # of a non-negative int64


@dataclass(frozen=True, slots=True)
class Runs:
    """Positions sorted so that equal n-grams of one request stand together, earliest first."""

    positions: Ints  # (m,) index of each n-gram's last token
    opens: Flags  # (m,) whether another n-gram or another request begins here

    def first(self) -> Ints:
        """Earliest position of the same n-gram in the same request, (m,)."""
        earliest: Ints = self.positions[self.opens][np.cumsum(self.opens) - 1]
        return earliest

    def previous(self) -> Ints:
        """The position before in the same run, (m,); -1 for the first one."""
        return np.where(self.opens, -1, np.concatenate(([-1], self.positions[:-1])))

    def repeated(self) -> Flags:
        """Whether the run has more than one member, (m,)."""
        return ~self.opens | ~np.concatenate((self.opens[1:], [True]))


def sorted_by(keys: Ints, positions: Ints) -> tuple[Ints, Flags]:
    """Positions in the order of their keys, equal ones ascending, and where a new key begins; both (m,).

    `positions` must ascend. Where key and position fit into one word they are sorted as one number: four times faster.
    """
    if not len(keys):
        return positions, np.zeros(0, np.bool_)
    bits = int(positions[-1]).bit_length()
    if int(keys.max()).bit_length() + bits <= _WORD_BITS:
        packed = np.sort(keys << bits | positions)
        positions, keys = packed & ((1 << bits) - 1), packed >> bits
    else:
        order = np.argsort(keys, kind="stable")
        positions, keys = positions[order], keys[order]
    return positions, np.concatenate(([True], keys[1:] != keys[:-1]))


def ranked(keys: Ints, positions: Ints, size: int) -> Ints:
    """Dense rank of each position's key, (size,); 0 where no position is."""
    order, opens = sorted_by(keys, positions)
    ranks = np.zeros(size, np.int64)
    ranks[order] = np.cumsum(opens) - 1
    return ranks


def paired(high: Ints, low: Ints) -> Ints:
    """One number for each pair of ranks."""
    return high * (int(low.max(initial=0)) + 1) + low


def token_ranks(tokens: Ints) -> Ints:
    """Dense ranks of the token ids, same shape."""
    return ranked(tokens, np.arange(len(tokens)), len(tokens))


def runs_by_length(tokens: Ints, offset: Ints, shortest: int, longest: int) -> Iterator[tuple[int, Runs]]:
    """For n from `shortest` to `longest`: the runs of equal n-grams, as long as any n-gram repeats.

    `offset` is each token's place in its request; n-grams stay inside. From n on only n-grams whose (n-1)-grams at both
    ends repeat are looked at, since no others can; so runs beyond `shortest` may lack members that do not repeat.
    """
    ranks, positions = _ranks_of(tokens, offset, shortest)
    keys = ranks[positions]
    for n in range(shortest, longest + 1):
        order, opens = sorted_by(keys, positions)
        ranks[order] = np.cumsum(opens) - 1
        begins = order - offset[order]
        runs = Runs(order, opens | (begins != np.concatenate(([-1], begins[:-1]))))
        yield n, runs
        if n == longest:
            return
        repeats = np.zeros(len(tokens), np.bool_)
        repeats[order[runs.repeated()]] = True
        positions = np.flatnonzero(repeats & np.concatenate(([False], repeats[:-1])) & (offset >= n))
        if not len(positions):
            return
        keys = paired(ranks[positions - 1], ranks[positions])


def _ranks_of(tokens: Ints, offset: Ints, n: int) -> tuple[Ints, Ints]:
    """Ranks of the n-grams that end at each position (garbage where none does), and the positions where one does.

    By doubling: an n-gram is the pair of the two halves, which may overlap.
    """
    ranks, width = token_ranks(tokens), 1
    while width < n:
        shift = min(width, n - width)
        positions = np.flatnonzero(offset >= width + shift - 1)
        ranks = ranked(paired(ranks[positions - shift], ranks[positions]), positions, len(tokens))
        width += shift
    return ranks, np.flatnonzero(offset >= n - 1)
