"""The arithmetic of acceptance, by hand and as properties."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.acceptance_shapes import (
    MatchShape,
    conditional_of,
    constant_conditional,
    decaying_conditional,
    effective_trials,
    extended,
    scaled_match,
    share_draws,
    shares_by_length,
    unconditional,
)

SHAPE = MatchShape(w=0.30, high=0.94, low=0.41)
shares = st.floats(0, 1)


def test_published_vector_gives_its_conditionals() -> None:
    assert conditional_of(np.array([0.633, 0.404, 0.264])) == pytest.approx([0.633, 0.638, 0.653], abs=5e-4)


def test_nothing_survives_after_a_position_that_never_does() -> None:
    assert conditional_of(np.array([0.5, 0.0, 0.0])).tolist() == [0.5, 0.0, 0.0]


@given(st.lists(shares, min_size=1, max_size=16))
def test_conditional_and_unconditional_are_inverse(conditional: list[float]) -> None:
    survival = unconditional(np.array(conditional))
    assert unconditional(conditional_of(survival)) == pytest.approx(survival)


def test_constant_conditional_of_a_half_is_found() -> None:
    # .5 + .25 + .125
    found = constant_conditional(np.array([0.875]), 3, np.ones(1))
    assert found == pytest.approx([0.5])


@given(st.integers(1, 16), shares, st.floats(0.8, 1.2))
def test_the_solved_vector_sums_to_what_was_accepted(at_k: int, rate: float, decay: float) -> None:
    accepted, slope = np.array([rate * at_k]), np.array([decay])
    first = constant_conditional(accepted, at_k, slope)
    survival = unconditional(decaying_conditional(first, slope, at_k))
    assert survival.sum() == pytest.approx(accepted[0], abs=1e-6)
    assert (np.diff(survival) <= 1e-12).all()
    assert survival.max() <= 1


def test_match_mixture_is_the_published_one_when_nothing_is_scaled() -> None:
    accepted = SHAPE.survival(5).sum()
    assert accepted == pytest.approx(1.7315, abs=1e-3)
    by_position = scaled_match(np.array([accepted]), 5, SHAPE, 5)[0]
    assert by_position == pytest.approx([0.573, 0.386, 0.303, 0.256, 0.232], abs=0.02)


def test_match_mixture_that_would_pass_one_is_capped_and_still_sums() -> None:
    survival = scaled_match(np.array([4.0]), 5, SHAPE, 5)[0]
    assert survival[0] == 1.0
    assert survival.sum() == pytest.approx(4.0)


@given(st.integers(1, 16), shares, st.integers(1, 20))
def test_scaled_mixture_sums_to_what_was_accepted(at_k: int, rate: float, num_positions: int) -> None:
    survival = scaled_match(np.array([rate * at_k]), at_k, SHAPE, max(num_positions, at_k))[0]
    assert survival[:at_k].sum() == pytest.approx(rate * at_k, abs=1e-9)
    assert (np.diff(survival) <= 1e-12).all()
    assert survival.min() >= 0
    assert survival.max() <= 1


@given(st.integers(1, 8), shares, shares)
def test_more_accepted_never_lowers_a_position(at_k: int, one: float, other: float) -> None:
    low, high = scaled_match(np.sort([one, other]) * at_k, at_k, SHAPE, 8)
    assert (high >= low - 1e-12).all()


def test_design_effect_of_sixty_requests_of_eighty_drafts() -> None:
    worth = effective_trials(np.array([60.0 * 80.0]), 60.0, np.array([[12.0]]))
    assert 60 * 80 / worth[0, 0] == pytest.approx(7.1, abs=0.05)


def test_standard_error_is_the_one_of_the_simulated_requests() -> None:
    # model specification: 60 requests x 80 drafts at kappa 12: naive .0070, true .0186
    rng = np.random.default_rng(1)
    worth = effective_trials(np.array([4800.0]), 60.0, np.full((4000, 1), 12.0))
    draws = share_draws(rng, np.array([0.62]), worth, rng.standard_normal((4000, 1)))
    assert draws.std() == pytest.approx(0.0186, rel=0.05)


def test_few_trials_per_request_are_independent() -> None:
    assert effective_trials(np.array([10.0]), 60.0, np.array([[12.0]])).tolist() == [[10.0]]


def test_draws_follow_their_ranks() -> None:
    ranks = np.array([[0.3], [-1.0], [2.0], [0.1]])
    draws = share_draws(np.random.default_rng(0), np.array([0.5]), np.full((4, 1), 10.0), ranks)
    assert np.argsort(draws[:, 0]).tolist() == np.argsort(ranks[:, 0]).tolist()


def test_equal_seeds_shift_the_draws_and_do_not_shuffle_them() -> None:
    def draws(share: float) -> np.ndarray:
        rng = np.random.default_rng(5)
        ranks = rng.standard_normal((500, 1))
        return share_draws(rng, np.array([share]), np.full((500, 1), 100.0), ranks)[:, 0]

    assert np.corrcoef(draws(0.6), draws(0.65))[0, 1] > 0.99


def test_further_positions_hold_the_last_value_and_stop_at_one() -> None:
    held = extended(np.array([[0.6, 0.5]]), 4, np.zeros((1, 2)))
    assert held.tolist() == [[0.6, 0.5, 0.5, 0.5]]
    risen = extended(np.array([[0.6, 0.5]]), 4, np.array([[0.1, 5.0]]))
    assert risen[0].tolist() == pytest.approx([0.6, 0.5, 0.5 * np.exp(0.1), 1.0])
    assert extended(np.array([[0.6, 0.5]]), 1, np.zeros((1, 0))).tolist() == [[0.6]]


def test_longer_drafts_are_fewer_as_was_measured_on_a_real_server():
    """vLLM 0.32.0, the same load at k = 5 and, after a restart, at k = 8: drafts on 59.2 % and 49.9 % of the steps."""
    survival = np.full((1, 8), 0.9350)
    found = shares_by_length(survival, np.array([[0.5920]]), 5)
    assert found[0, 4] == pytest.approx(0.5920)
    assert found[0, 7] == pytest.approx(0.4988, abs=0.01)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.floats(0, 1), st.data())
def test_tokens_of_drafted_steps_over_steps_without_a_draft_stay(conditional, share, data):
    survival = np.cumprod(np.array([conditional]), axis=1)
    deployed = data.draw(st.integers(1, len(conditional)))
    found = shares_by_length(survival, np.array([[share]]), deployed)
    per_draft = 1.0 + np.cumsum(survival, axis=1)
    assert found[0, deployed - 1] == pytest.approx(share)
    assert found * (1 - share) * per_draft == pytest.approx((1 - found) * share * per_draft[0, deployed - 1])
    assert np.all(np.diff(found) <= 1e-12)
