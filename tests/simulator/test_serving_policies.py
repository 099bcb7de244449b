"""Draft-length policies: schedule, SGLang's adaptive one, and the optimal controller."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.serving.policies import (
    FOREVER,
    OptimalLengths,
    ScheduledLength,
    SglangAdaptive,
    StaticLength,
    best_lengths,
    sglang_candidates,
    sglang_next_length,
)


def linear(rows: int, drafted: int, tokens: int) -> float:
    """A step of 10 ms and 1 ms for every drafted token."""
    return 0.010 + 0.001 * tokens


def nothing_known() -> np.ndarray:
    raise AssertionError("this policy must not ask for the acceptance of requests")


def test_a_static_length_never_changes() -> None:
    assert StaticLength(3).lengths(nothing_known, 64, linear) == (3, FOREVER)


@pytest.mark.parametrize(("batch", "length"), [(1, 3), (4, 3), (5, 3), (8, 1), (16, 1), (17, 1), (500, 1)])
def test_a_schedule_carries_lengths_into_gaps_and_beyond_its_end(batch: int, length: int) -> None:
    schedule = ScheduledLength([(1, 4, 3), (8, 16, 1)])
    assert schedule.lengths(nothing_known, batch, linear)[0] == length
    assert schedule.largest == 3


def test_sglang_has_fewer_candidates_at_larger_batches() -> None:
    assert [sglang_candidates(n) for n in (1, 7, 8, 31, 32, 63, 64, 999)] == [
        (1, 3, 5, 7), (1, 3, 5, 7), (0, 1, 3), (0, 1, 3), (0, 1), (0, 1), (0,), (0,),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("average", "length", "expected"),
    [(2.6, 3, 5), (2.4, 3, 3), (0.25, 3, 1), (0.26, 3, 3), (6.9, 7, 7), (0.0, 1, 1), (2.2, 5, 3), (2.3, 5, 5)],
)
def test_sglang_moves_one_candidate_at_a_time(average: float, length: int, expected: int) -> None:
    assert sglang_next_length(average, length, (1, 3, 5, 7)) == expected


def test_sglang_warms_up_then_moves_every_fifth_batch() -> None:
    policy = SglangAdaptive()
    lengths = []
    for _ in range(25):
        length, holds = policy.lengths(nothing_known, 1, linear)
        assert isinstance(length, int)
        assert holds <= 5
        lengths.append(length)
        policy.observe(length, 1, 1)  # all accepted
    assert lengths == [3] * 10 + [5] * 5 + [5] * 5 + [7] * 5


def test_sglang_gives_up_drafts_that_are_never_accepted() -> None:
    policy = SglangAdaptive()
    for _ in range(40):
        policy.lengths(nothing_known, 1, linear)
        policy.observe(0, 1, 1)
    assert policy.lengths(nothing_known, 1, linear)[0] == 1


def test_sglang_weighs_batches_in_a_row_as_one_by_one() -> None:
    together, apart = SglangAdaptive(average=1.0), SglangAdaptive(average=1.0)
    together.observe(2 * 4 * 5, 4, 5)
    for _ in range(5):
        apart.observe(2 * 4, 4, 1)
    assert together.average == pytest.approx(apart.average)


def test_the_best_length_for_one_request_weighs_gain_against_time() -> None:
    # Rates: 1/10, 1.8/11, 2.44/12, 2.952/13, 3.3616/14 per ms: the longest. With 5 ms a token: none.
    survival = 0.8 ** np.arange(1, 5)[None, :]
    assert best_lengths(survival, linear) == 4
    assert best_lengths(survival, lambda r, d, t: 0.010 + 0.009 * t) == 0


def test_all_lengths_are_tried_not_only_up_to_the_first_that_does_not_pay() -> None:
    # The first token costs 10 ms (a larger graph), the others nothing: one alone loses, four win.
    survival = np.array([[0.9, 0.8, 0.7, 0.6]])
    step = {0: 0.010, 1: 0.020, 2: 0.020, 3: 0.020, 4: 0.020}
    assert 1.9 / 0.020 < 1 / 0.010 < 4.0 / 0.020
    assert best_lengths(survival, lambda r, d, t: step[t]) == 4


def test_good_requests_draft_more_than_bad_ones() -> None:
    survival = np.array([[0.95, 0.9, 0.86], [0.05, 0.0, 0.0]])
    lengths = best_lengths(survival, lambda r, d, t: 0.010 + 0.002 * t)
    assert isinstance(lengths, np.ndarray)
    assert lengths.tolist() == [3, 0]


@given(
    st.lists(st.lists(st.floats(0.0, 1.0), min_size=3, max_size=3), min_size=1, max_size=6),
    st.floats(0.0, 0.02),
)
def test_no_even_length_beats_the_optimal_lengths(conditional: list[list[float]], cost_s: float) -> None:
    survival = np.cumprod(np.array(conditional), axis=1)
    rows = len(survival)

    def seconds(_: int, drafted: int, tokens: int) -> float:
        return 0.010 + cost_s * np.sqrt(tokens)

    found = best_lengths(survival, seconds)
    lengths = np.broadcast_to(found, rows)
    gain = rows + sum(float(survival[i, :n].sum()) for i, n in enumerate(lengths))
    rate = gain / seconds(rows, 0, int(lengths.sum()))
    for k in range(4):
        assert rate >= (rows + survival[:, :k].sum()) / seconds(rows, 0, k * rows) * (1 - 1e-12)


def test_the_optimal_controller_thinks_once_per_batch() -> None:
    asked = []

    def counted(rows: int, drafted: int, tokens: int) -> float:
        asked.append(tokens)
        return linear(rows, drafted, tokens)

    policy, survival = OptimalLengths(2), np.array([[0.5, 0.2]])
    first = policy.lengths(lambda: survival, 1, counted)
    count = len(asked)
    assert policy.lengths(lambda: survival, 1, counted) == first
    assert len(asked) == count
