"""What suffix decoding would have drafted at every decode position, and how much of it is right.

Two trees are searched: one of the request's own prompt and output, and one of the previous outputs and this one. For
every length m of which the last m tokens are found in a tree, the path of first children is followed, at most
m * max_spec_factor tokens and while the product of the children's shares stays at min_token_prob or above. The path
with the largest sum of these products is drafted; the longer match wins a tie, then the own tree. Single precision, as
there. Source: arctic-inference 0.1.1, suffix_decoding/cache.py; vLLM 0.11.2 to 0.33, v1/spec_decode/suffix_decoding.py.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.replay.ngram import Lengths
from calibration.replay.recording import Batch, Ints, Recording, batches
from calibration.replay.suffix_index import Sequences, SuffixIndex

Floats = NDArray[np.float32]
_ROUNDING = 1e-6  # added before the length limit is cut to a whole number, as there


@dataclass(frozen=True, slots=True)
class SuffixSettings:
    """vLLM's options of suffix decoding, with its defaults."""

    max_tree_depth: int = 24
    max_spec_factor: float = 1.0
    min_token_prob: float = 0.1
    max_cached_requests: int = 10_000  # 0: no tree of previous outputs
    max_model_len: int | None = None


@dataclass(frozen=True, slots=True)
class SuffixDrafts:
    """Drafts at the decode positions by k, (k_max, num_positions): `at(k)` is row k - 1."""

    proposed: Lengths
    right: Lengths  # tokens equal to the recorded ones, a recorded token left over

    def at(self, k: int) -> tuple[Lengths, Lengths]:
        """Tokens drafted and right with at most `k` drafted."""
        return self.proposed[k - 1], self.right[k - 1]


class _Best:
    """The best path found so far at every decode position, for every k."""

    def __init__(self, k_max: int, num_positions: int) -> None:
        self.score = np.zeros((k_max, num_positions), np.float32)
        self.proposed, self.right = (np.zeros((k_max, num_positions), np.int8) for _ in range(2))

    def offer(self, positions: Ints, paths: "_Paths") -> None:
        """Takes the paths whose score is as large or larger, cut to each k."""
        for row in range(len(self.score)):
            score = paths.scores[min(row, len(paths.scores) - 1)]
            better = np.flatnonzero(score >= self.score[row, positions])
            where = positions[better]
            self.score[row, where] = score[better]
            self.proposed[row, where] = np.minimum(paths.length[better], row + 1)
            self.right[row, where] = np.minimum(paths.right[better], row + 1)


@dataclass(frozen=True, slots=True)
class _Paths:
    """One path at each of some positions, (m,): tokens, how many are right, and the scores by k, (k_max, m)."""

    length: Ints
    right: Ints
    scores: Floats


@dataclass(frozen=True, slots=True)
class _Moments:
    """Some decode positions as one tree sees them, (m,)."""

    newest: Ints  # index of the newest token in the tree's sequences
    sequence: Ints
    context: Ints  # tokens known
    limit: Ints  # tokens that may be drafted
    remaining: Ints

    def at(self, chosen: Ints) -> "_Moments":
        """Some of them."""
        fields = (self.newest, self.sequence, self.context, self.limit, self.remaining)
        return _Moments(*(field[chosen] for field in fields))


def suffix_drafts(
    recordings: Sequence[Recording], settings: SuffixSettings, k_max: int
) -> Iterator[tuple[Batch, SuffixDrafts]]:
    """The drafts of up to `k_max` tokens at every decode position, batch by batch; needs all recordings at once."""
    shared = _shared(recordings, settings)
    first = 0
    for batch in batches(recordings):
        limit = np.full(len(batch.token), k_max, np.int64)
        if settings.max_model_len is not None:
            limit = np.clip(settings.max_model_len - batch.context - 1, 0, k_max)
        own = SuffixIndex(_own_sequences(batch), settings.max_tree_depth)
        moments = _Moments(batch.token, batch.request, batch.context, limit, batch.remaining)
        best = _searched(own, moments, settings, k_max)
        if shared is not None:
            index, starts = shared
            newest = starts[first + batch.request] + batch.context - 1 - _prompt_lengths(batch)[batch.request]
            others = _Moments(newest, first + batch.request, batch.context, limit, batch.remaining)
            _replace(best, _searched(index, others, settings, k_max))
        first += len(batch.recordings)
        yield batch, SuffixDrafts(best.proposed, best.right)


def _prompt_lengths(batch: Batch) -> Ints:
    return np.array([len(item.prompt) for item in batch.recordings], np.int64)


def _own_sequences(batch: Batch) -> Sequences:
    """Every request a sequence of its own, prompt included."""
    sequence = np.repeat(np.arange(len(batch.recordings)), batch.lengths)
    return Sequences(batch.tokens, batch.offset, batch.offset + 1, sequence, is_shared=False)


def _shared(recordings: Sequence[Recording], settings: SuffixSettings) -> tuple[SuffixIndex, Ints] | None:
    """The tree of all outputs, each behind the end of its prompt, and the index of each output's first token."""
    if not settings.max_cached_requests:
        return None
    depth = settings.max_tree_depth
    tails = [item.prompt[max(len(item.prompt) - depth, 0) :] for item in recordings]
    lengths = np.array([len(tail) + len(item.output) for tail, item in zip(tails, recordings, strict=True)], np.int64)
    starts = np.cumsum(lengths) - lengths
    parts = [part for tail, item in zip(tails, recordings, strict=True) for part in (tail, item.output)]
    tokens = np.concatenate([np.zeros(0, np.int64), *parts])
    outputs = starts + np.array([len(tail) for tail in tails], np.int64)
    place = np.arange(len(tokens))
    sequence = np.repeat(np.arange(len(recordings)), lengths)
    window = settings.max_cached_requests
    sequences = Sequences(
        tokens,
        place - starts[sequence],
        place - outputs[sequence] + 1,
        sequence,
        is_shared=True,
        window=window if 0 < window < len(recordings) else 0,
    )
    return SuffixIndex(sequences, depth), outputs


def _replace(best: _Best, other: _Best) -> None:
    """Takes the other tree's path where its score is larger."""
    better = other.score > best.score
    for ours, theirs in ((best.score, other.score), (best.proposed, other.proposed), (best.right, other.right)):
        ours[better] = theirs[better]


def _searched(index: SuffixIndex, moments: _Moments, settings: SuffixSettings, k_max: int) -> _Best:
    """The best path of one tree at every position, over all lengths of the match.

    Where a longer match has as many occurrences as the one before and that one could already draft k_max tokens, its
    path is the same, or cut by the tree's depth, and changes nothing: most long copies end here. Not so once sequences
    have left the tree, since ties among children remember them.
    """
    best = _Best(k_max, len(moments.newest))
    alive, before = np.arange(len(moments.newest)), np.zeros(len(moments.newest), np.int64)
    saturated = False
    for length in range(1, settings.max_tree_depth):
        # A match of all that is known does not count, there as here.
        alive = alive[index.is_stored(moments.newest[alive], length) & (moments.context[alive] > length)]
        if not len(alive):
            break
        longest = int(np.float32(length) * np.float32(settings.max_spec_factor) + _ROUNDING)
        count = index.counts(moments.newest[alive], length, moments.sequence[alive])
        changed = alive[count != before[alive]] if saturated and not index.evicts else alive
        before[alive] = count
        if longest > 0 and len(changed):
            paths = _paths(index, moments.at(changed), length, min(longest, k_max), settings.min_token_prob)
            best.offer(changed, paths)
        saturated = longest >= k_max
    return best


def _paths(index: SuffixIndex, moments: _Moments, length: int, longest: int, min_token_prob: float) -> _Paths:
    """The paths of first children below the last `length` tokens, at most `longest` tokens long."""
    tokens = index.sequences.tokens
    size = len(moments.newest)
    drafted, right = np.zeros(size, np.int64), np.zeros(size, np.int64)
    score, scores = np.zeros(size, np.float32), []
    alive, node = np.arange(size), moments.newest
    chance: Floats = np.ones(size, np.float32)
    for step in range(1, longest + 1):
        ongoing = moments.at(alive)
        count = index.counts(node, length, ongoing.sequence)
        event = np.where(node == ongoing.newest, index.before(node, length), node)
        last = index.first_child(event, length, ongoing.sequence)
        good = (last >= 0) & (event >= 0) & (ongoing.limit >= step)
        alive, node, count, chance = alive[good], last[good] + 1, count[good], chance[good]
        length += 1
        seen = index.counts(node, length, moments.sequence[alive])
        share: Floats = np.divide(seen, count, dtype=np.float32)
        products: Floats = chance * share
        good = products >= np.float32(min_token_prob)
        alive, node, chance = alive[good], node[good], products[good]
        drafted[alive] = step
        score[alive] += chance
        is_right = (right[alive] == step - 1) & (moments.remaining[alive] > step)
        is_right &= tokens[node] == tokens[np.minimum(moments.newest[alive] + step, len(tokens) - 1)]
        right[alive[is_right]] = step
        scores.append(score.copy())
        if length >= index.depth or not len(alive):
            break
    return _Paths(drafted, right, np.array(scores))
