"""The suffix trees of arctic-inference at every moment of the recording, as arrays instead of trees.

A node of such a tree is an n-gram (n up to the tree's depth), its count the number of occurrences so far, its children
the tokens that followed. Everything that a draft at one moment asks of a node is stored with the node's latest
occurrence before that moment: its count then, and the child that came first then. Only n-grams that occur more than
once are stored; an n-gram that occurs once has count 1 and at most one child.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from calibration.replay.grams import Flags, paired, sorted_by, token_ranks
from calibration.replay.recording import Ints
from calibration.replay.suffix_order import NONE, first_children, first_children_evicting


@dataclass(frozen=True, slots=True)
class Sequences:
    """Token sequences laid out behind one another, in the order in which they enter a tree, and what of them it holds.

    All arrays are (num_tokens,). `inside` counts a token and its predecessors in the tree; 0 or less before the part
    that the tree holds (looked up by drafts, never found by later ones).
    """

    tokens: Ints
    offset: Ints  # place in its own sequence
    inside: Ints
    sequence: Ints
    is_shared: bool  # one tree for all sequences, or one tree for each
    window: int = 0  # sequences that a shared tree holds at most, the newest included; 0: all

    @property
    def follows(self) -> Flags:
        """Whether the next token belongs to the same sequence, (num_tokens,)."""
        return np.append(self.sequence[1:] == self.sequence[:-1], False)


@dataclass(frozen=True, slots=True)
class Level:
    """The n-grams of one length that are stored: occurrences of the same one stand together, earliest first."""

    positions: Ints
    opens: Flags
    held: Flags  # whether the tree holds this occurrence

    @property
    def group(self) -> Ints:
        """The n-gram of each occurrence."""
        return np.cumsum(self.opens) - 1

    def counts(self) -> Ints:
        """Occurrences in the tree up to each one, itself included."""
        total = np.cumsum(self.held)
        return total - (total - self.held)[self.opens][self.group]

    def latest(self, which: Flags) -> Ints:
        """Index of the last occurrence with `which` up to each one, itself included; -1 without."""
        index = np.arange(len(which))
        found = np.maximum.accumulate(np.where(which, index, NONE))
        return np.where(found >= index[self.opens][self.group], found, NONE)

    def previous(self) -> Ints:
        """Position of the last occurrence in the tree before each one; -1 without."""
        before = np.where(self.opens, NONE, np.concatenate(([NONE], self.latest(self.held)[:-1])))
        return np.where(before >= 0, self.positions[before], NONE)


def levels(sequences: Sequences, depth: int) -> Iterator[Level]:
    """For n = 1 to `depth`: the n-grams that occur more than once, at least once in the tree; stops where none does."""
    ranks = token_ranks(sequences.tokens)
    positions, keys = np.arange(len(ranks)), ranks
    group = np.zeros(len(ranks), np.int64)
    for n in range(1, depth + 1):
        order, opens = sorted_by(keys, positions)
        if n == 1 and not sequences.is_shared:
            owner = sequences.sequence[order]
            opens = opens | (owner != np.concatenate(([NONE], owner[:-1])))
        level = _kept(Level(order, opens, sequences.inside[order] >= n))
        if not len(level.positions):
            return
        yield level
        group[level.positions] = level.group
        positions = np.sort(level.positions)
        positions = positions[sequences.offset[positions] >= n]
        keys = paired(group[positions], ranks[positions - n])


def _kept(level: Level) -> Level:
    """Without the n-grams that occur once, or never in the tree."""
    if not len(level.positions):
        return level
    begins = np.flatnonzero(level.opens)
    sizes = np.diff(np.append(begins, len(level.opens)))
    keep = np.repeat((sizes > 1) & (np.add.reduceat(level.held, begins, dtype=np.int64) > 0), sizes)
    return Level(level.positions[keep], level.opens[keep], level.held[keep])


class SuffixIndex:
    """A tree, or one for each sequence, at every moment.

    A node is named by its length and the position at which its latest occurrence ends; a moment by the sequence that is
    being decoded, since sequences leave a tree with a window only when a new one begins.
    """

    def __init__(self, sequences: Sequences, depth: int) -> None:
        """The n-grams of up to `depth` tokens."""
        self.sequences, self.depth = sequences, depth
        self._follows = sequences.follows
        found = list(levels(sequences, depth))
        self._stored = np.zeros(len(sequences.tokens), np.int64)
        for level in found:
            self._stored[level.positions] += 1
        self._base = np.cumsum(self._stored) - self._stored
        size = int(self._stored.sum())
        self._count, self._previous, self._first = (np.full(size, NONE, np.int32) for _ in range(3))
        self._evictions = _Evictions(sequences, size) if sequences.window else None
        for length, level in enumerate(found, 1):
            self._store(length, level)
        if self._evictions is not None:
            self._evictions.finish()

    def _store(self, length: int, level: Level) -> None:
        slots = self._base[level.positions] + (length - 1)
        self._count[slots] = level.counts()
        self._previous[slots] = level.previous()
        event = level.held & self._follows[level.positions]
        child = np.where(event, self.sequences.tokens[(level.positions + 1) % len(self._follows)], NONE)
        branching, two = _branching(level, event, child)
        first = level.positions.copy()  # right where only one token ever follows
        if self._evictions is not None:
            self._evictions.store(level, slots, child, np.flatnonzero(level.held & branching))
        else:
            first[two] = _first_of_two(level, two, child)
            branching[two] = False
            _order(level, np.flatnonzero(event & branching), child, first)
        latest = level.latest(event)
        self._first[slots] = np.where(latest >= 0, first[latest], NONE)

    @property
    def evicts(self) -> bool:
        """Whether sequences leave the tree."""
        return self._evictions is not None

    def is_stored(self, position: Ints, length: int) -> Flags:
        """Whether the n-gram of that length that ends at each position is stored."""
        return self._stored[position] >= length

    def counts(self, position: Ints, length: int, moment: Ints) -> Ints:
        """Occurrences of the node in the tree."""
        stored, slot = self._slots(position, length)
        count = np.where(stored, self._count[slot], 1)
        if self._evictions is not None:
            count = count - np.where(stored, self._evictions.gone(slot, moment), 0)
        return count

    def before(self, position: Ints, length: int) -> Ints:
        """The occurrence in the tree before the one that ends at each position; -1 without."""
        stored, slot = self._slots(position, length)
        return np.where(stored, self._previous[slot], NONE)

    def first_child(self, position: Ints, length: int, moment: Ints) -> Ints:
        """Where the node's first child followed last, as of the occurrence at each position; -1 without a child."""
        stored, slot = self._slots(position, length)
        found = np.where(stored, self._first[slot], np.where(self._follows[position], position, NONE))
        if self._evictions is None:
            return found
        return self._evictions.first(np.where(stored, slot, NONE), self._count, found, moment)

    def _slots(self, position: Ints, length: int) -> tuple[Flags, Ints]:
        stored = self._stored[position] >= length
        return stored, np.where(stored, self._base[position] + (length - 1), 0)


def _ends(group: Ints) -> list[int]:
    """Where each run of equal numbers begins, and the end."""
    return np.flatnonzero(np.diff(group, append=NONE, prepend=NONE)).tolist()


def _order(level: Level, chosen: Ints, child: Ints, first: Ints) -> None:
    """Writes into `first`, at the chosen occurrences, where the node's first child followed last."""
    children, positions = child[chosen].tolist(), level.positions[chosen].tolist()
    found: list[int] = []
    for begin, end in pairwise(_ends(level.group[chosen])):
        found += first_children(children[begin:end], positions[begin:end])
    first[chosen] = found


def _branching(level: Level, event: Flags, child: Ints) -> tuple[Flags, Ints]:
    """Whether different tokens followed each occurrence's n-gram, and the followed occurrences of those with just two.

    Two different tokens: each is that of the node's first event, or that of the event where it first changed.
    """
    events = np.flatnonzero(event)
    group, token = level.group[events], child[events]
    opens = np.concatenate(([True], group[1:] != group[:-1]))[: len(group)]
    one = token[opens][np.cumsum(opens) - 1]
    differs = token != one
    changes = np.flatnonzero(differs)
    num_nodes = int(level.opens.sum())
    other = np.full(num_nodes, NONE, np.int64)
    other[group[changes][::-1]] = token[changes][::-1]  # the earliest one is written last
    branching = other != NONE
    several = np.zeros(num_nodes, np.bool_)
    several[group[changes][token[changes] != other[group[changes]]]] = True
    return branching[level.group], events[(branching & ~several)[group]]


def _first_of_two(level: Level, chosen: Ints, child: Ints) -> Ints:
    """Where the first child followed last, after each chosen occurrence of nodes with two children.

    The child seen more often comes first; of two seen equally often the one that has just caught up, but not one that
    has just appeared.
    """
    group, token = level.group[chosen], child[chosen]
    opens = np.concatenate(([True], group[1:] != group[:-1]))[: len(chosen)]
    run = np.cumsum(opens) - 1
    is_one = token == token[opens][run]
    lead = np.cumsum(np.where(is_one, 1, -1))
    lead -= (lead - np.where(is_one, 1, -1))[opens][run]
    index = np.arange(len(chosen))
    begin = index[opens][run]
    first_is_one = np.where(lead == 0, is_one | (index == begin + 1), lead > 0)
    last_one, last_other = (
        np.maximum(np.maximum.accumulate(np.where(which, index, NONE)), begin) for which in (is_one, ~is_one)
    )
    places: Ints = level.positions[chosen][np.where(first_is_one, last_one, last_other)]
    return places


class _Evictions:
    """What a window changes: how many occurrences of a node are gone, and the order of children after each of them.

    The events of a node are its occurrences and, when a sequence leaves, their evictions, in order of time. After i
    occurrences and j evictions the state is entry i + j - 1 of the node's events.
    """

    def __init__(self, sequences: Sequences, size: int) -> None:
        self._sequences = sequences
        self._node = np.zeros(size, np.int64)  # of each slot
        self._begins: list[Ints] = []  # by level: of each node, its first occurrence among all
        self._keys: list[Ints] = []  # by level: node and sequence of every occurrence, ascending
        self._num_nodes, self._num_occurrences = 0, 0
        self._events = np.full(size, NONE, np.int64)  # of each slot, where its node's events begin; -1: one child
        self._states: list[int] = []

    def finish(self) -> None:
        """Everything is stored: lists become arrays."""
        nothing = np.zeros(0, np.int64)
        self._key_of_all = np.concatenate([nothing, *self._keys])
        self._begin_of_all = np.concatenate([nothing, *self._begins])
        self._state_of_all = np.array(self._states, np.int64)
        self._keys, self._begins, self._states = [], [], []

    def store(self, level: Level, slots: Ints, child: Ints, chosen: Ints) -> None:
        """The occurrences of a level, and the order of children after each event of the `chosen` ones' nodes."""
        group = level.group
        node = group + self._num_nodes
        self._node[slots] = node
        sequence = self._sequences.sequence[level.positions]
        keys = self._key(node, sequence)[level.held]
        opens = np.searchsorted(keys, self._key(np.unique(node), np.zeros(1, np.int64)))
        self._keys.append(keys)
        self._begins.append(opens + self._num_occurrences)
        window = self._sequences.window
        gone = np.searchsorted(keys, self._key(node, sequence - window + 1)) - opens[group]
        self._num_nodes += len(opens)
        self._num_occurrences += len(keys)
        events = np.full(len(opens), NONE, np.int64)
        children, positions, before = (values[chosen].tolist() for values in (child, level.positions, gone))
        for begin, end in pairwise(_ends(group[chosen])):
            part = slice(begin, end)
            events[group[chosen[begin]]] = len(self._states)
            self._states += first_children_evicting(children[part], positions[part], before[part])
        self._events[slots] = events[group]

    def _key(self, node: Ints, sequence: Ints) -> Ints:
        """Ascends with the node, then with the sequence; sequences before the first one count as the first."""
        return node * (int(self._sequences.sequence[-1]) + 2) + np.maximum(sequence, 0)

    def gone(self, slot: Ints, moment: Ints) -> Ints:
        """Evicted occurrences of each slot's node while sequence `moment` is decoded."""
        node = self._node[slot]
        left = self._key(node, moment - self._sequences.window + 1)
        gone: Ints = np.searchsorted(self._key_of_all, left) - self._begin_of_all[node]
        return gone

    def first(self, slot: Ints, count: NDArray[np.int32], found: Ints, moment: Ints) -> Ints:
        """The first child's last place, `found` without evictions, after the evictions; `slot` -1 where not stored."""
        window = self._sequences.window
        present = (found >= 0) & (self._sequences.sequence[found] > moment - window)
        found = np.where(present, found, NONE)
        events = np.where(slot >= 0, self._events[slot], NONE)
        chosen = np.flatnonzero(events >= 0)
        number = count[slot[chosen]] + self.gone(slot[chosen], moment[chosen])
        found[chosen] = self._state_of_all[events[chosen] + number - 1]
        return found
