"""The factors that measurements put on a step: exact at the knots, a line in the log between them, held outside."""

import numpy as np
import pytest

from hwmodel.residual import NUM_LOG_FACTORS, NUM_REQUEST_KNOTS, NUM_ROW_KNOTS, REQUEST_KNOTS, ROW_KNOTS, StepResidual


def residual(rows: dict[int, float], requests: dict[int, float] | None = None, drafted: float = 0.0) -> StepResidual:
    """One draw with these log factors at the named knots."""
    by_rows, by_requests = np.zeros((1, NUM_ROW_KNOTS)), np.zeros((1, NUM_REQUEST_KNOTS))
    for count, value in rows.items():
        by_rows[0, list(ROW_KNOTS).index(count)] = value
    for count, value in (requests or {}).items():
        by_requests[0, list(REQUEST_KNOTS).index(count)] = value
    return StepResidual(by_rows, by_requests, np.full((1, 1), drafted))


def test_knots_are_powers_of_two_from_one_to_the_largest_default_batch() -> None:
    for knots, last in ((ROW_KNOTS, 8192.0), (REQUEST_KNOTS, 1024.0)):
        assert (knots[0], knots[-1]) == (1.0, last)
        assert np.all(knots[1:] == 2.0 * knots[:-1])


def test_factor_is_read_off_at_a_knot_and_halved_in_the_log_between_two() -> None:
    rows = np.array([8.0, np.sqrt(8.0 * 16.0), 16.0, 1.0])
    assert residual({8: 0.2}).factor(rows, np.ones(4))[0] == pytest.approx(np.exp([0.2, 0.1, 0.0, 0.0]))


def test_factors_of_rows_and_of_requests_multiply() -> None:
    found = residual({16: 0.2}, {4: -0.05}).factor(np.array([16.0, 16.0]), np.array([4.0, 16.0]))
    assert found[0] == pytest.approx(np.exp([0.15, 0.2]))


def test_factor_is_held_beyond_the_last_knot_and_below_one_row() -> None:
    found = residual({1: -0.1, 8192: 0.3}).factor(np.array([0.5, 1.0, 8192.0, 1e6]), np.full(4, 2.0))
    assert found[0] == pytest.approx(np.exp([-0.1, -0.1, 0.3, 0.3]))


def test_rows_that_differ_by_draw_meet_their_own_draws() -> None:
    two = StepResidual(np.array([[0.0], [0.5]]) * np.ones((1, NUM_ROW_KNOTS)), np.zeros((2, 11)), np.zeros((2, 1)))
    assert two.factor(np.array([[1.0, 4.0], [3.0, 9.0]]), 1.0) == pytest.approx(np.exp([[0.0, 0.0], [0.5, 0.5]]))


def test_one_draw_against_rows_of_several_draws() -> None:
    assert residual({2: 0.4}).factor(np.array([[2.0], [1.0]]), 1.0) == pytest.approx(np.exp([[0.4], [0.0]]))


def test_numbers_give_one_factor() -> None:
    assert residual({4: 0.1}, drafted=0.2).factor(4.0, 2.0) == pytest.approx(np.exp([[0.1]]))
    assert residual({}, drafted=0.2).drafted_factor() == pytest.approx(np.exp([[0.2]]))


def test_log_factors_stand_in_the_order_rows_requests_drafted() -> None:
    found = StepResidual.of(np.arange(2.0 * NUM_LOG_FACTORS).reshape(2, -1))
    assert found.by_rows[0] == pytest.approx(np.arange(NUM_ROW_KNOTS))
    assert found.by_requests[0, 0] == NUM_ROW_KNOTS
    assert found.drafted[0, 0] == NUM_LOG_FACTORS - 1
    one = found.draw(1)
    assert [part.shape[0] for part in one] == [1, 1, 1]
    assert one.by_rows[0, 0] == NUM_LOG_FACTORS
