"""Jitter: its size is the parameter, its mean zero."""

import numpy as np
import pytest

from simulator.ranks.jitter import Jitter, no_jitter, sample_jitter


@pytest.mark.parametrize("group", [2, 4, 8])
def test_the_mean_wait_for_the_last_rank_is_the_parameter(group):
    waits = []
    for seed in range(40):  # a part stays with the rank for a whole run: many runs
        extra = sample_jitter(group, 200, group, 5e-6, np.random.default_rng(seed)).extra_s
        waits.append(np.mean(extra.max(axis=0) - extra.mean(axis=0)))
    assert np.mean(waits) == pytest.approx(5e-6, rel=0.07)


def test_no_rank_is_slower_in_the_long_run():
    means = [sample_jitter(4, 500, 4, 5e-6, np.random.default_rng(seed)).extra_s.mean() for seed in range(60)]
    assert abs(np.mean(means)) < 4 * np.std(means) / np.sqrt(len(means))


def test_some_of_it_stays_with_the_rank():
    extra = sample_jitter(8, 2000, 8, 5e-6, np.random.default_rng(1)).extra_s
    assert extra.mean(axis=1).std() > 5 * extra.std() / np.sqrt(2000)


def test_one_rank_or_no_skew_means_none():
    rng = np.random.default_rng(0)
    assert not sample_jitter(1, 5, 1, 5e-6, rng).extra_s.any()
    assert not sample_jitter(4, 5, 4, 0.0, rng).extra_s.any()
    assert no_jitter(2, 3).extra_s.shape == (2, 3)


def test_a_block_keeps_a_share_of_its_duration():
    jitter = Jitter(np.array([[-1.0, 0.5]]))
    assert jitter.stretched(0, 0, 1.0) == pytest.approx(0.1)
    assert jitter.stretched(0, 1, 1.0) == pytest.approx(1.5)
