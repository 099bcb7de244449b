"""The prior of what the model misses: tau together, smooth over octaves, one constant for drafted steps."""

import numpy as np
import pytest

from calibration.discrepancy import OFFSET, residual_coordinates, unit_factor
from hwmodel.residual import NUM_LOG_FACTORS, NUM_ROW_KNOTS, ROW_KNOTS
from simulator.profile import CONSTANT_SHARE


def covariance(tau: float) -> np.ndarray:
    """Prior covariance of the coordinates."""
    factor = residual_coordinates(tau).factor
    return np.asarray(factor @ factor.T)


def test_rows_and_requests_together_have_the_model_error_at_every_load() -> None:
    found = covariance(0.07)
    for j in range(11):  # knots of both
        assert found[j, j] + found[NUM_ROW_KNOTS + j, NUM_ROW_KNOTS + j] == pytest.approx(0.07**2)


def test_the_constant_of_drafted_steps_is_its_share_and_stands_alone() -> None:
    found = covariance(0.05)
    assert found[-1, -1] == pytest.approx((CONSTANT_SHARE * 0.05) ** 2)
    assert np.all(found[-1, :-1] == 0.0)
    assert residual_coordinates(0.05).names[-1] == OFFSET


def test_rows_an_octave_apart_are_somewhat_alike_and_eight_octaves_apart_are_not() -> None:
    found = covariance(1.0)[:NUM_ROW_KNOTS, :NUM_ROW_KNOTS]
    correlation = found / found[0, 0]
    # by hand: (9 exp(-(ln 2 / 0.8)^2 / 2) + 12.25 exp(-(ln 2 / 0.3)^2 / 2)) / 21.25
    assert correlation[0, 1] == pytest.approx(0.331, abs=0.001)
    assert correlation[0, 8] < 0.01
    assert np.all(np.diff(correlation[0, :8]) < 0)
    assert len(correlation) == len(ROW_KNOTS)


def test_rows_and_requests_are_independent() -> None:
    assert np.all(covariance(1.0)[:NUM_ROW_KNOTS, NUM_ROW_KNOTS:] == 0.0)
    assert unit_factor().shape == (NUM_LOG_FACTORS, NUM_LOG_FACTORS)
