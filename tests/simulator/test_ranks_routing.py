"""Routing drawn slot by slot: counts, the coupon collector, agreement with the formula, ranks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodel.moe import Routing, Runs, expert_load, selection_probability, uniform_distinct
from simulator.ranks.routing_samples import (
    LayerSample,
    RoutingPoint,
    keep_probability,
    padded_rows,
    popularity,
    sample_layer,
)

UNIFORM = RoutingPoint(0.0, 0.0, 1e6)
PRIOR = RoutingPoint(0.9, 0.2, 6.5)


def _mean(num_experts, top_k, runs, routing, count, seed=0):
    rng = np.random.default_rng(seed)
    samples = np.array([sample_layer(num_experts, top_k, runs, routing, rng).distinct for _ in range(count)])
    return samples.mean(), samples.std() / np.sqrt(count)


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 40), st.integers(1, 40), st.lists(st.integers(1, 5), min_size=1, max_size=6), st.integers(0, 99))
def test_every_token_reaches_exactly_top_k_different_experts(num_experts, top_k, runs, seed):
    top_k = min(top_k, num_experts)
    sample = sample_layer(num_experts, top_k, runs, PRIOR, np.random.default_rng(seed))
    assert sample.counts.sum() == sum(runs) * top_k
    assert sample.counts.max() <= sum(runs)
    assert top_k <= sample.distinct <= min(num_experts, sum(runs) * top_k)


@pytest.mark.parametrize(("num_experts", "top_k", "tokens"), [(384, 8, 6), (64, 4, 8), (32, 8, 20)])
def test_uniform_independent_tokens_collect_coupons(num_experts, top_k, tokens):
    mean, error = _mean(num_experts, top_k, [1] * tokens, UNIFORM, 400)
    assert abs(mean - uniform_distinct(num_experts, top_k, tokens)) < 4 * error


@pytest.mark.parametrize(("requests", "tokens"), [(1, 6), (8, 4), (16, 1)])
def test_slots_agree_with_the_formula(requests, tokens):
    runs = [Runs((float(tokens),), (np.array([float(requests)]),))]
    expected = float(expert_load(384, 8, runs, Routing(0.9, 0.2, 6.5)).distinct[0, 0])
    mean, error = _mean(384, 8, [tokens] * requests, PRIOR, 300)
    assert abs(mean - expected) < 0.015 * expected + 3 * error


def test_a_sequence_touches_the_published_number_of_experts():
    for tokens, published in ((2, 10.1), (4, 16.8), (8, 27.4)):  # DeepSeek-V4.1-Flash, 384/6
        assert _mean(384, 6, [tokens], PRIOR, 200)[0] == pytest.approx(published, rel=0.04)


def test_popularity_sums_to_top_k_and_is_the_formulas():
    q = popularity(128, 8, 0.9, np.random.default_rng(0))
    assert q.sum() == pytest.approx(8.0)
    assert q.max() < 1
    assert np.sum(q**2) == pytest.approx(_mean_square(128, 8, 0.9), rel=0.05)  # 128 quantiles against a quadrature


def _mean_square(num_experts, top_k, sigma):
    """Sum of squares of the chances by the quadrature of `hwmodel.moe`, whose weights sum to `num_experts`."""
    from hwmodel.moe import _popularity_nodes

    q = selection_probability(num_experts, top_k, np.array([sigma]))[0]
    return float(np.sum(_popularity_nodes(num_experts)[1] * q**2))


def test_popular_experts_are_reached_more_often():
    rng = np.random.default_rng(5)
    flat = sample_layer(64, 4, [1] * 400, UNIFORM, rng).counts
    skewed = sample_layer(64, 4, [1] * 400, RoutingPoint(1.5, 0.0, 1e6), rng).counts
    assert skewed.std() > 2 * flat.std()


def test_without_stickiness_no_slot_is_kept_and_with_it_some_are():
    q = np.full(384, 8 / 384)
    assert keep_probability(q, RoutingPoint(0.0, 0.0, 6.5)) == pytest.approx(0.0, abs=0.05)
    assert keep_probability(q, RoutingPoint(0.0, 0.3, 1e6)) == pytest.approx(0.3, abs=0.02)
    assert keep_probability(q, RoutingPoint(0.0, 1.0, 6.5)) == pytest.approx(1.0)


def test_rows_are_padded_to_whole_tiles_per_expert():
    assert padded_rows(np.array([0, 1, 8, 9]), 8) == 8 + 8 + 16


def test_ranks_hold_every_expert_once_in_blocks():
    sample = LayerSample(np.arange(10))
    parts = [sample.of_rank(rank, 4) for rank in range(4)]
    assert np.concatenate(parts).tolist() == list(range(10))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_the_busiest_of_eight_ranks_reads_what_another_program_found():
    rng = np.random.default_rng(7)
    ratios = []
    for _ in range(300):
        sample = sample_layer(384, 8, [1] * 6, UNIFORM, rng)
        per_rank = [int(np.count_nonzero(sample.of_rank(rank, 8))) for rank in range(8)]
        ratios.append(max(per_rank) / (sum(per_rank) / 8))
    assert np.mean(ratios) == pytest.approx(1.59, rel=0.04)


def test_the_same_generator_gives_the_same_experts():
    one, two = (sample_layer(64, 4, [3, 1, 2], PRIOR, np.random.default_rng(3)).counts for _ in range(2))
    assert one.tolist() == two.tolist()
