"""What vLLM's n-gram search would have drafted at every decode position, and how much of it is right.

Four searches exist (docs/replay.md). With L tokens known, all look for an earlier occurrence of the last n tokens, n at
most `longest` and at least `shortest`, the longest n that has one, and draft what followed it:

- `kmp`: the occurrence must end before the last n tokens begin; the earliest one.
- `lps`: it may overlap them; the earliest one. Drafts are cut at max_model_len, as those of `kmp`.
- `gpu_v1`: as `lps`, without that cut.
- `mrv2`: the latest one; always k tokens, filled with the last token, also when nothing is found.

Source: vLLM 0.8.5 to 0.33, v1/spec_decode/ngram_proposer.py, ngram_proposer_gpu.py; v1/worker/gpu/spec_decode.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.replay.grams import Runs, runs_by_length
from calibration.replay.recording import Batch, Ints

Lengths = NDArray[np.int8]  # of drafts: at most 64 tokens


@dataclass(frozen=True, slots=True)
class Lookup:
    """How the n-gram search is set."""

    variant: str  # kmp, lps, gpu_v1, mrv2
    shortest: int
    longest: int
    max_model_len: int | None = None


@dataclass(frozen=True, slots=True)
class Drafts:
    """Longest drafts at the decode positions, (num_positions,): shorter k cut both numbers to k."""

    proposed: Lengths  # tokens drafted at k_max; 0 without a draft
    right: Lengths  # of these, tokens equal to the recorded ones, a recorded token left over

    def at(self, k: int) -> tuple[Lengths, Lengths]:
        """Tokens drafted and right with at most `k` drafted."""
        limit = np.int8(k)
        return np.minimum(self.proposed, limit), np.minimum(self.right, limit)


def ngram_drafts(batch: Batch, lookup: Lookup, k_max: int) -> Drafts:
    """The drafts of up to `k_max` tokens at every decode position of the batch."""
    sources = _sources(batch, lookup)[batch.token]
    positions = np.arange(len(sources)) if lookup.variant == "mrv2" else np.flatnonzero(sources >= 0)
    newest, sources = batch.token[positions], sources[positions]
    sources = np.where(sources < 0, newest, sources)
    limits = _limits(batch.context[positions], newest - sources, lookup, k_max)
    proposed, right = (np.zeros(len(batch.token), np.int8) for _ in range(2))
    proposed[positions] = limits
    rest = np.minimum(limits, batch.remaining[positions] - 1)
    right[positions] = _equal_tokens(batch.tokens, sources, newest, rest)
    return Drafts(proposed, right)


def _sources(batch: Batch, lookup: Lookup) -> Ints:
    """Index of the last token of the occurrence that each token's search finds, (num_tokens,); -1 without one."""
    found = np.full(len(batch.tokens), -1, np.int64)
    for n, runs in runs_by_length(batch.tokens, batch.offset, lookup.shortest, lookup.longest):
        earlier = _occurrence(runs, lookup.variant)
        distance = n if lookup.variant == "kmp" else 1
        usable = (earlier >= 0) & (earlier <= runs.positions - distance)
        found[runs.positions[usable]] = earlier[usable]  # a longer match replaces a shorter one
    return found


def _occurrence(runs: Runs, variant: str) -> Ints:
    return runs.previous() if variant == "mrv2" else runs.first()


def _limits(context: Ints, distance: Ints, lookup: Lookup, k_max: int) -> Ints:
    """Tokens drafted at each position where something is drafted."""
    limits = np.full(len(context), k_max, np.int64)
    if lookup.variant != "mrv2":  # the others end with the known tokens
        limits = np.minimum(limits, distance)
    if lookup.max_model_len is not None:
        room = np.maximum(lookup.max_model_len - context, 0)
        limits = np.minimum(limits, room) if lookup.variant in ("kmp", "lps") else np.where(room, limits, 0)
    return limits


def _equal_tokens(tokens: Ints, sources: Ints, newest: Ints, limits: Ints) -> Ints:
    """How many tokens after `sources` equal those after `newest`, up to `limits`, (m,).

    Behind the newest token the source has nothing: there the newest token stands for it.
    """
    equal = np.zeros(len(newest), np.int64)
    alive = np.arange(len(newest))
    for step in range(1, int(limits.max(initial=0)) + 1):
        alive = alive[limits[alive] >= step]
        ours = np.minimum(sources[alive] + step, newest[alive])
        alive = alive[tokens[ours] == tokens[newest[alive] + step]]
        equal[alive] = step
    return equal
