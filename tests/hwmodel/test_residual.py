"""The factor that measurements put on a step: exact at the knots, a line in ln T between them, held outside."""

import numpy as np
import pytest

from hwmodel.residual import KNOT_TOKENS, NUM_KNOTS, StepResidual


def residual(values: dict[int, float], drafted: float = 0.0) -> StepResidual:
    """One draw with these log factors at the named knots."""
    at_knots = np.zeros((1, NUM_KNOTS))
    for tokens, value in values.items():
        at_knots[0, list(KNOT_TOKENS).index(tokens)] = value
    return StepResidual(at_knots, np.full((1, 1), drafted))


def test_knots_are_powers_of_two_from_one_row_to_a_full_token_budget() -> None:
    assert KNOT_TOKENS[0] == 1.0
    assert KNOT_TOKENS[-1] == 8192.0
    assert np.all(KNOT_TOKENS[1:] == 2.0 * KNOT_TOKENS[:-1])


def test_factor_is_read_off_at_a_knot_and_halved_in_ln_t_between_two() -> None:
    found = residual({8: 0.2}).factor(np.array([8.0, np.sqrt(8.0 * 16.0), 16.0, 1.0]))
    assert found[0] == pytest.approx(np.exp([0.2, 0.1, 0.0, 0.0]))


def test_factor_is_held_beyond_the_last_knot_and_below_one_row() -> None:
    found = residual({1: -0.1, 8192: 0.3}).factor(np.array([0.5, 1.0, 8192.0, 1e6]))
    assert found[0] == pytest.approx(np.exp([-0.1, -0.1, 0.3, 0.3]))


def test_rows_that_differ_by_draw_meet_their_own_draws() -> None:
    at_knots = np.zeros((2, NUM_KNOTS))
    at_knots[1] = 0.5
    found = StepResidual(at_knots, np.zeros((2, 1))).factor(np.array([[1.0, 4.0], [3.0, 9.0]]))
    assert found == pytest.approx(np.exp([[0.0, 0.0], [0.5, 0.5]]))


def test_one_draw_against_rows_of_several_draws() -> None:
    found = residual({2: 0.4}).factor(np.array([[2.0], [1.0]]))
    assert found == pytest.approx(np.exp([[0.4], [0.0]]))


def test_a_number_of_rows_gives_one_factor() -> None:
    assert residual({4: 0.1}, 0.2).factor(4.0) == pytest.approx(np.exp([[0.1]]))
    assert residual({}, 0.2).drafted_factor() == pytest.approx(np.exp([[0.2]]))


def test_one_draw_of_several_is_that_draw() -> None:
    at_knots = np.arange(2.0 * NUM_KNOTS).reshape(2, -1)
    one = StepResidual(at_knots, np.array([[0.1], [0.2]])).draw(1)
    assert one.at_knots == pytest.approx(at_knots[1:])
    assert one.drafted == pytest.approx(np.array([[0.2]]))
