"""The two special functions against the standard library."""

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodel.special import log_gamma, normal_quantile

positive = st.floats(min_value=1e-9, max_value=1e3)


@given(positive)
def test_log_gamma_agrees_with_the_standard_library_to_ten_digits_after_the_point(x: float) -> None:
    assert log_gamma(np.array([x]))[0] == pytest.approx(math.lgamma(x), abs=1e-10)


@given(st.floats(min_value=1e3, max_value=1e7))
def test_log_gamma_of_large_arguments_is_exact_to_rounding(x: float) -> None:
    # The value itself is in the millions here, so that the last of sixteen digits is 1e-9.
    assert log_gamma(np.array([x]))[0] == pytest.approx(math.lgamma(x), rel=1e-14)


@given(positive)
def test_log_gamma_grows_by_log_x_from_x_to_x_plus_one(x: float) -> None:
    pair = log_gamma(np.array([x, x + 1.0]))
    assert pair[1] - pair[0] == pytest.approx(math.log(x), abs=2e-10)


def test_log_gamma_of_whole_numbers_is_the_log_of_a_factorial() -> None:
    values = log_gamma(np.array([1.0, 2.0, 3.0, 4.0, 11.0]))
    assert np.exp(values) == pytest.approx([1.0, 1.0, 2.0, 6.0, 3628800.0], rel=1e-9)


def test_log_gamma_keeps_the_shape_of_its_argument() -> None:
    assert log_gamma(np.ones((3, 2))).shape == (3, 2)


def test_normal_quantile_of_known_probabilities() -> None:
    quantiles = normal_quantile(np.array([[0.5, 0.975], [0.025, 0.8413447460685429]]))
    assert quantiles == pytest.approx(np.array([[0.0, 1.959964], [-1.959964, 1.0]]), abs=1e-6)


@given(st.floats(min_value=1e-12, max_value=1 - 1e-12))
def test_normal_quantile_is_the_inverse_of_the_distribution_function(probability: float) -> None:
    z = float(normal_quantile(np.array([probability]))[0])
    assert NormalDist().cdf(z) == pytest.approx(probability, rel=1e-6, abs=1e-12)
