"""The n-gram replay against a slow reference written straight from the table of searches."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from calibration.replay import recording as recording_module
from calibration.replay.counts import FIXED_COLUMNS
from calibration.replay.ngram import Lookup
from calibration.replay.recording import Recording, recording
from calibration.replay.run import Settings, replay
from calibration.replay.versions import VARIANTS, EngineRules

Counts = tuple[int, int, int, list[int]]  # steps, drafts, draft tokens, accepted per position


def proposed(known: Sequence[int], lookup: Lookup, k: int) -> list[int]:
    """The draft after the known tokens, as the table of engines' searches says."""
    length, limit = len(known), lookup.max_model_len
    if limit is not None and length >= limit:
        return []
    allowed = k if limit is None or lookup.variant in ("gpu_v1", "mrv2") else min(k, limit - length)
    draft: list[int] = []
    for n in range(lookup.longest, lookup.shortest - 1, -1):
        suffix = list(known[length - n :])
        last_start = length - 2 * n if lookup.variant == "kmp" else length - n - 1
        starts = [s for s in range(last_start + 1) if list(known[s : s + n]) == suffix]
        if n <= length and starts:
            start = max(starts) if lookup.variant == "mrv2" else min(starts)
            draft = list(known[start + n : start + n + allowed])
            break
    if lookup.variant == "mrv2":
        draft += [known[-1]] * (k - len(draft))
    return draft


def reference(request: Recording, lookup: Lookup, k: int) -> Counts:
    """Walks one request step by step."""
    tokens = [*request.prompt.tolist(), *request.output.tolist()]
    known, steps, drafts, drafted = len(request.prompt) + 1, 0, 0, 0
    accepted_per_position = [0] * k
    while known < len(tokens):
        draft = proposed(tokens[:known], lookup, k)
        right = 0
        while right < min(len(draft), len(tokens) - known - 1) and draft[right] == tokens[known + right]:
            accepted_per_position[right] += 1
            right += 1
        steps, drafts, drafted = steps + 1, drafts + bool(draft), drafted + len(draft)
        known += right + 1
    return steps, drafts, drafted, accepted_per_position


def total(counts: Sequence[Counts], k: int) -> Counts:
    """The counts of several requests together."""
    return (
        sum(c[0] for c in counts),
        sum(c[1] for c in counts),
        sum(c[2] for c in counts),
        [sum(c[3][i] for c in counts) for i in range(k)],
    )


def counted(requests: Sequence[Recording], lookup: Lookup, lengths: tuple[int, ...]) -> dict[int, Counts]:
    """What the replay counts, by k."""
    tallies = replay(requests, Settings(lookup, lengths, EngineRules())).tallies
    found = {}
    for tally in tallies:
        sums = tally.requests.sum(axis=0).tolist()
        found[tally.k] = (sums[0], sums[1], sums[2], sums[FIXED_COLUMNS:])
    return found


@st.composite
def texts(draw: st.DrawFn, longest: int) -> list[int]:
    """Tokens of a small alphabet, with stretches copied from before."""
    size = draw(st.integers(1, 4))
    tokens = draw(st.lists(st.integers(0, size - 1), max_size=longest))
    for _ in range(draw(st.integers(0, 2))):
        if tokens:
            start = draw(st.integers(0, len(tokens) - 1))
            tokens += tokens[start : start + draw(st.integers(1, 12))]
    return tokens[:longest]


@st.composite
def lookups(draw: st.DrawFn) -> Lookup:
    shortest = draw(st.integers(1, 5))
    longest = draw(st.integers(shortest, 6))
    limit = draw(st.one_of(st.none(), st.integers(1, 60)))
    return Lookup(draw(st.sampled_from(VARIANTS)), shortest, longest, limit)


@given(
    st.lists(st.tuples(texts(20), texts(40)), min_size=1, max_size=4), lookups(), st.sets(st.integers(1, 8), min_size=1)
)
def test_the_replay_counts_what_the_slow_reference_counts(
    said: list[tuple[list[int], list[int]]], lookup: Lookup, lengths: set[int]
) -> None:
    requests = [recording(prompt, output) for prompt, output in said]
    found = counted(requests, lookup, tuple(sorted(lengths)))
    for k in lengths:
        assert found[k] == total([reference(request, lookup, k) for request in requests], k)


@given(st.lists(st.tuples(texts(10), texts(30)), min_size=1, max_size=5), lookups(), st.integers(1, 6))
def test_steps_and_accepted_tokens_are_the_output_tokens_after_the_first_one(
    said: list[tuple[list[int], list[int]]], lookup: Lookup, k: int
) -> None:
    tally = replay([recording(*item) for item in said], Settings(lookup, (k,), EngineRules())).tallies[0]
    decode_tokens = [len(output) - 1 for _, output in said if len(output) > 1]
    rows = tally.requests
    assert (rows[:, 0] + rows[:, FIXED_COLUMNS:].sum(axis=1))[rows[:, 0] > 0].tolist() == decode_tokens


@given(st.lists(st.tuples(texts(10), texts(30)), min_size=2, max_size=6), lookups(), st.integers(1, 50))
@example([([0, 1], [0, 1, 0]), ([], [1, 0, 1, 0, 0])], Lookup("lps", 1, 2), 1)
def test_batches_do_not_change_the_counts(said: list[tuple[list[int], list[int]]], lookup: Lookup, size: int) -> None:
    requests = [recording(*item) for item in said]
    whole = counted(requests, lookup, (3,))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recording_module.batches, "__defaults__", (size,))
        assert counted(requests, lookup, (3,)) == whole


def counts_of(prompt: list[int], output: list[int], lookup: Lookup, k: int) -> Counts:
    return counted([recording(prompt, output)], lookup, (k,))[k]


def test_a_copied_sentence_is_drafted_and_accepted_by_hand() -> None:
    # Known: 1 2 3 9 1 and 2. (1, 2) occurred at the start: 3 9 1 is drafted and right, the step itself adds 2.
    # (1, 2) again: 3 9 1 is drafted, but 3 is the last recorded token, which the step emits by itself.
    assert counts_of([1, 2, 3, 9, 1], [2, 3, 9, 1, 2, 3], Lookup("lps", 2, 2), 3) == (2, 2, 6, [1, 1, 1])


def test_kmp_does_not_let_the_occurrence_overlap_the_suffix() -> None:
    # 5 5 5: the suffix (5, 5) occurs at 0, overlapping itself; the draft is the one token behind it.
    assert counts_of([5, 5], [5, 5, 5], Lookup("lps", 2, 2), 2) == (1, 1, 1, [1, 0])
    assert counts_of([5, 5], [5, 5, 5], Lookup("kmp", 2, 2), 2) == (2, 1, 2, [0, 0])


def test_the_earliest_occurrence_is_taken_except_by_mrv2() -> None:
    # (1, 2) is followed by 7 first and by 8 later.
    prompt = [1, 2, 7, 1, 2, 8, 1]
    assert counts_of(prompt, [2, 7, 0], Lookup("lps", 2, 2), 1)[3] == [1]
    assert counts_of(prompt, [2, 7, 0], Lookup("mrv2", 2, 2), 1)[3] == [0]
    assert counts_of(prompt, [2, 8, 0], Lookup("mrv2", 2, 2), 1)[3] == [1]


def test_mrv2_pads_with_the_last_token_also_without_a_match() -> None:
    assert counts_of([], [3, 3, 3, 3], Lookup("mrv2", 5, 5), 2) == (1, 1, 2, [1, 1])
    assert counts_of([], [3, 3, 3, 3], Lookup("gpu_v1", 5, 5), 2) == (3, 0, 0, [0, 0])


def test_max_model_len_cuts_the_drafts_of_kmp_and_lps_only() -> None:
    prompt, output = [1, 2, 3, 4, 1], [2, 3, 4, 1]  # six tokens known at the first step
    assert counts_of(prompt, output, Lookup("lps", 2, 2, 8), 4)[2] == 2 + 0
    assert counts_of(prompt, output, Lookup("gpu_v1", 2, 2, 8), 4)[2] == 4


def test_an_output_of_one_token_has_no_decode_step() -> None:
    assert (
        replay([recording([1], [2])], Settings(Lookup("lps", 1, 1), (1,), EngineRules())).tallies[0].requests.shape[0]
        == 0
    )


def test_huge_token_ids_are_told_apart() -> None:
    big = 2**31 - 1
    assert counts_of([big, big - 1, 0, big], [big - 1, 0, 5], Lookup("lps", 2, 2), 1)[3] == [1]


def test_positions_too_large_for_one_word_are_sorted_all_the_same() -> None:
    from calibration.replay.grams import sorted_by

    keys, positions = np.array([2**61, 1, 2**61, 1]), np.array([3, 5, 8, 9])
    order, opens = sorted_by(keys, positions)
    assert order.tolist() == [5, 9, 3, 8]
    assert opens.tolist() == [True, False, True, False]
