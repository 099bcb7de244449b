"""What a budget keeps of the gates: limits, order, by hand, and the published figures of MoE-Spec."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.ranks.gates import Gates, budget_effect, mean_effects, sample_gates
from simulator.ranks.routing_samples import RoutingPoint

PRIOR = RoutingPoint(0.9, 0.2, 6.5)
OLMOE = RoutingPoint(0.67, 0.2, 6.5)  # popularity as fitted to its published distinct counts


def by_hand() -> Gates:
    """Two tokens, four experts, top 2: expert 0 has 0.6 + 0.3, expert 1 0.4, expert 2 0.7; expert 3 nobody chose."""
    chosen = np.array([[0, 1], [2, 0]])
    shares = np.array([[0.6, 0.4], [0.7, 0.3]])
    scores = np.array([[0.6, 0.4, 0.2, 0.1], [0.3, 0.25, 0.7, 0.05]])
    return Gates(chosen, shares, scores)


def test_experts_are_ranked_by_the_gate_mass_of_all_tokens() -> None:
    assert by_hand().total == pytest.approx([0.9, 0.4, 0.7, 0.0])
    assert by_hand().distinct == 3


def test_two_of_three_experts_by_hand() -> None:
    effect = budget_effect(by_hand(), 2)  # keeps 0 and 2
    assert (effect.distinct_experts, effect.experts_read) == (3, 2)
    assert effect.truncated_mass == pytest.approx((0.6 + 1.0) / 2)
    assert effect.substituted_mass == pytest.approx((0.6 + 0.2 + 1.0) / 2)  # expert 2 stands in for expert 1
    assert effect.top_expert_dropped == 0.0


def test_one_expert_by_hand() -> None:
    effect = budget_effect(by_hand(), 1)  # keeps 0
    assert effect.truncated_mass == pytest.approx((0.6 + 0.3) / 2)
    assert effect.top_expert_dropped == 0.5


def test_a_budget_of_all_experts_changes_nothing() -> None:
    effect = budget_effect(by_hand(), 4)
    assert effect.experts_read == effect.distinct_experts
    assert (effect.truncated_mass, effect.substituted_mass, effect.top_expert_dropped) == (1.0, 1.0, 0.0)


@pytest.mark.parametrize("budget", [8, 9, 384])
def test_top_k_experts_are_enough_for_one_token(budget: int) -> None:
    (effect,) = mean_effects(384, 8, [1], [PRIOR] * 8, [budget])
    assert effect.experts_read == effect.distinct_experts == 8
    assert effect.truncated_mass == pytest.approx(1.0)
    assert effect.top_expert_dropped == 0.0


def test_one_expert_in_all_is_always_kept() -> None:
    (effect,) = mean_effects(1, 1, [3, 2], [PRIOR] * 2, [1])
    assert (effect.distinct_experts, effect.experts_read, effect.truncated_mass) == (1.0, 1.0, 1.0)


@settings(deadline=None, max_examples=40)
@given(
    st.integers(1, 24), st.integers(1, 24), st.lists(st.integers(1, 4), min_size=1, max_size=5),
    st.floats(0.0, 3.0), st.integers(0, 99),
)  # fmt: skip
def test_mass_and_experts_grow_with_the_budget_and_replacing_is_never_worse(
    num_experts: int, top_k: int, runs: list[int], sharpness: float, seed: int
) -> None:
    top_k = min(top_k, num_experts)
    gates = sample_gates(num_experts, top_k, runs, PRIOR, np.random.default_rng(seed), sharpness)
    assert gates.shares.sum(axis=1) == pytest.approx(np.ones(sum(runs)))
    effects = [budget_effect(gates, budget) for budget in range(1, num_experts + 1)]
    for low, high in pairwise(effects):
        assert low.truncated_mass <= high.truncated_mass + 1e-12
        assert low.experts_read <= high.experts_read
        assert low.top_expert_dropped >= high.top_expert_dropped
    for effect in effects:
        assert effect.truncated_mass - 1e-12 <= effect.substituted_mass <= 1.0
        assert effect.truncated_mass_p05 <= effect.truncated_mass + 1e-12 or effect.truncated_mass > 0.95
        assert effect.experts_read == min(effect.budget, effect.distinct_experts)
    assert effects[-1].truncated_mass == pytest.approx(1.0)


def test_gates_are_equal_without_sharpness_and_one_takes_all_with_much() -> None:
    flat = sample_gates(64, 8, [4], PRIOR, np.random.default_rng(0), 0.0)
    assert flat.shares == pytest.approx(np.full((4, 8), 1 / 8))
    sharp = sample_gates(64, 8, [4], PRIOR, np.random.default_rng(0), 10.0)
    assert sharp.shares.max(axis=1).min() > 0.7


def test_keeping_the_best_by_mass_keeps_more_than_any_other_choice() -> None:
    gates = sample_gates(32, 4, [6, 6], PRIOR, np.random.default_rng(5))
    best = budget_effect(gates, 8).truncated_mass
    rng = np.random.default_rng(1)
    for _ in range(50):
        other = rng.choice(32, size=8, replace=False)
        assert np.where(np.isin(gates.chosen, other), gates.shares, 0.0).sum(axis=1).mean() <= best + 1e-12


def test_a_tree_on_olmoe_touches_and_concentrates_as_published() -> None:
    """MoE-Spec, arXiv 2602.16052: a tree touches 54 of 64 experts; the top 32 hold 93 % of the routing probability."""
    (half,) = mean_effects(64, 8, [127], [OLMOE] * 24, [32])
    assert half.distinct_experts == pytest.approx(54, rel=0.05)
    assert half.truncated_mass == pytest.approx(0.93, abs=0.02)
