"""When another length is announced: sure, large enough and lasting, and withdrawn when it is no gain any more."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from validate.watch.advice import Advice
from validate.watch.steady import Rule, Steady

RULE = Rule(min_probability=0.9, min_gain=0.03, persist=3)
SPREAD = np.linspace(-0.02, 0.02, 201)


def advice(gains, deployed=5, spread=SPREAD):
    """An interval in which the median gain over no speculation of every length is given; deviations are shared by none
    but the deployed one's."""
    return Advice(deployed, {k: np.full(len(spread), gain) * np.exp(spread if k != deployed else 0 * spread)
                             for k, gain in gains.items()}, "by hand")  # fmt: skip


DEPLOYED_BEST = {0: 1.0, 2: 1.2, 5: 1.5}
TWO_BEST = {0: 1.0, 2: 1.2, 5: 1.0}


def announced(*intervals, rule=RULE):
    steady = Steady(rule)
    return [(steady.take(item), steady.announced) for item in intervals]


def test_a_better_length_is_announced_in_the_third_interval_and_once():
    assert announced(*[advice(TWO_BEST)] * 5) == [(False, 5), (False, 5), (True, 2), (False, 2), (False, 2)]


def test_one_interval_without_it_starts_the_count_again():
    found = announced(*[advice(item) for item in (TWO_BEST, TWO_BEST, DEPLOYED_BEST, TWO_BEST, TWO_BEST, TWO_BEST)])
    assert [changed for changed, _ in found] == [False] * 5 + [True]


def test_alternating_traffic_announces_nothing():
    assert {best for _, best in announced(*[advice(TWO_BEST), advice(DEPLOYED_BEST)] * 20)} == {5}


def test_a_gain_below_the_least_one_is_not_announced_however_sure():
    assert {best for _, best in announced(*[advice({0: 1.0, 2: 1.025, 5: 1.0}, spread=SPREAD / 100)] * 9)} == {5}


def test_a_large_gain_that_is_not_sure_is_not_announced():
    assert {best for _, best in announced(*[advice({0: 1.0, 2: 1.1, 5: 1.0}, spread=50 * SPREAD)] * 9)} == {5}


def test_the_announced_length_is_the_best_over_the_intervals_together():
    first, second = {0: 1.0, 1: 1.30, 2: 1.10, 5: 1.0}, {0: 1.0, 1: 1.10, 2: 1.12, 5: 1.0}
    assert announced(advice(first), advice(second), advice(second))[-1] == (True, 1)


def test_it_is_withdrawn_after_as_many_intervals_without_gain():
    found = announced(*[advice(TWO_BEST)] * 3, *[advice({0: 1.0, 2: 1.0, 5: 1.01})] * 4)
    assert found[3:] == [(False, 2), (False, 2), (True, 5), (False, 5)]


def test_a_third_length_must_beat_the_announced_one_as_well():
    near = {0: 1.0, 1: 1.22, 2: 1.2, 5: 1.0}
    far = {0: 1.0, 1: 1.4, 2: 1.2, 5: 1.0}
    assert {best for _, best in announced(*[advice(TWO_BEST)] * 3, *[advice(near)] * 5)[2:]} == {2}
    assert announced(*[advice(TWO_BEST)] * 3, *[advice(far)] * 3)[-1] == (True, 1)


def test_another_deployed_length_forgets_what_was_announced():
    steady = Steady(RULE)
    for _ in range(3):
        steady.take(advice(TWO_BEST))
    steady.take(advice({0: 1.0, 2: 1.0, 3: 1.0}, deployed=3))
    assert (steady.deployed, steady.announced, steady.better_for) == (3, 3, 0)


def test_a_length_that_is_no_longer_compared_is_not_kept():
    steady = Steady(RULE)
    for _ in range(3):
        steady.take(advice(TWO_BEST))
    steady.take(advice({0: 1.0, 5: 1.1}))
    assert steady.announced == 5


@given(st.lists(st.lists(st.floats(0.5, 2.0), min_size=3, max_size=3), min_size=1, max_size=30), st.integers(1, 5))
def test_two_announcements_are_never_nearer_than_the_persistence(rows, persist):
    intervals = [advice(dict(zip((0, 2, 5), row, strict=True))) for row in rows]
    changes = [i for i, (changed, _) in enumerate(announced(*intervals, rule=Rule(0.9, 0.03, persist))) if changed]
    assert all(later - earlier >= persist for earlier, later in itertools.pairwise(changes))
    assert not changes or changes[0] >= persist - 1
