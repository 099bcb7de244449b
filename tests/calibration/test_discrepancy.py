"""The prior of what the model misses: tau together, smooth over octaves, one constant for drafted steps.

What exceeds the usual model error is mostly the same at neighbouring loads.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.discrepancy import OFFSET, residual_coordinates, residual_covariance
from hwmodel.residual import NUM_LOG_FACTORS, NUM_ROW_KNOTS, ROW_KNOTS
from simulator.profile import CONSTANT_SHARE


def covariance(tau: float, usual: float | None = None) -> np.ndarray:
    """Prior covariance of the coordinates; all of tau is usual where nothing is said."""
    factor = residual_coordinates(tau, usual or tau).factor
    return np.asarray(factor @ factor.T)


def at_loads(tau: float, usual: float) -> np.ndarray:
    """Prior covariance of ln(step) between loads of 1, 2, 4, ... 1024 requests."""
    found, number = covariance(tau, usual), NUM_LOG_FACTORS - 1 - NUM_ROW_KNOTS
    rows, requests = found[:number, :number], found[NUM_ROW_KNOTS:-1, NUM_ROW_KNOTS:-1]
    return np.asarray(rows + requests)


@given(st.floats(0.01, 1.0), st.floats(0.01, 1.0))
def test_rows_and_requests_together_have_the_model_error_at_every_load(tau: float, usual: float) -> None:
    assert np.diag(at_loads(tau, usual)) == pytest.approx(tau**2)


def test_an_error_of_the_usual_size_is_local() -> None:
    usual = at_loads(0.06, 0.06)
    assert usual == pytest.approx(0.06**2 * at_loads(1.0, 1.0))
    assert at_loads(0.03, 0.06) == pytest.approx(0.03**2 * at_loads(1.0, 1.0))
    # by hand, two octaves: (9 exp(-(ln 4 / 0.8)^2 / 2) + 4 exp(-(ln 4)^2 / 2)) / 25.25
    assert usual[0, 2] / 0.06**2 == pytest.approx(0.140, abs=0.001)


def test_three_quarters_of_what_exceeds_the_usual_error_is_shared_with_neighbouring_loads() -> None:
    large = at_loads(10.0, 0.06) / 100.0
    local = at_loads(1.0, 1.0)
    apart = np.log(2.0) * np.arange(11)
    assert large[0] == pytest.approx(0.75 * np.exp(-0.5 * (apart / 2.5) ** 2) + 0.25 * local[0], abs=1e-3)
    assert large[0, 2] > 0.65  # 1 and 4 requests
    assert large[0, 10] < 0.05  # 1 and 1024: nothing is carried so far


@given(st.floats(0.02, 1.0), st.floats(0.02, 1.0))
def test_a_larger_error_is_never_less_alike_at_two_loads(tau: float, more: float) -> None:
    low, high = sorted((tau, more))
    assert np.all(at_loads(high, 0.06) / high**2 >= at_loads(low, 0.06) / low**2 - 1e-9)


def test_measured_only_at_one_request_an_error_fades_and_the_uncertainty_grows_with_the_distance() -> None:
    found = at_loads(0.13, 0.06)
    carried = found[:, 0] / found[0, 0]
    left = np.diag(found) - found[:, 0] ** 2 / found[0, 0]
    assert np.all(np.diff(carried) < 0)
    assert np.all(np.diff(left) > 0)
    assert 0.4 < carried[2] < 0.7
    assert left[-1] == pytest.approx(0.13**2, rel=0.01)


def test_the_constant_of_drafted_steps_is_its_share_and_stands_alone() -> None:
    found = covariance(0.05)
    assert found[-1, -1] == pytest.approx((CONSTANT_SHARE * 0.05) ** 2)
    assert np.all(found[-1, :-1] == 0.0)
    assert residual_coordinates(0.05, 0.05).names[-1] == OFFSET


def test_rows_an_octave_apart_are_somewhat_alike_and_eight_octaves_apart_are_not() -> None:
    found = covariance(1.0)[:NUM_ROW_KNOTS, :NUM_ROW_KNOTS]
    correlation = found / found[0, 0]
    # by hand: (9 exp(-(ln 2 / 0.8)^2 / 2) + 12.25 exp(-(ln 2 / 0.3)^2 / 2)) / 21.25
    assert correlation[0, 1] == pytest.approx(0.331, abs=0.001)
    assert correlation[0, 8] < 0.01
    assert np.all(np.diff(correlation[0, :8]) < 0)
    assert len(correlation) == len(ROW_KNOTS)


def test_rows_and_requests_are_independent() -> None:
    assert np.all(covariance(1.0, 0.05)[:NUM_ROW_KNOTS, NUM_ROW_KNOTS:] == 0.0)
    assert residual_covariance(1.0, 0.05).shape == (NUM_LOG_FACTORS, NUM_LOG_FACTORS)
