"""The residual field: what one sweep says of steps with as many rows, at other loads and contexts.

Theory of Gaussian processes: values are met where they were measured, the mean returns to zero far away, and the
variance grows from the noise at a measured point to that of the prior.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration.residual import ResidualField, StepPoints

Array = np.ndarray
LOADS = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0])


def points(rows: list[float], sequences: list[float], context: float = 1000.0) -> StepPoints:
    """Points of one context."""
    return StepPoints(np.array(rows), np.array(sequences), np.full(len(rows), context))


def baseline(context: float = 1000.0, noise: float = 0.005) -> ResidualField:
    """A baseline sweep over the loads: as many rows as sequences."""
    return ResidualField.of(StepPoints(LOADS, LOADS, np.full(len(LOADS), context)), np.full(len(LOADS), noise))


BUMP = np.array([0.0, 0.0, 0.0, 0.0, 0.06, 0.0, 0.0])  # at 16 rows, as of an algorithm switch


def test_a_smooth_residual_is_met_where_it_was_measured() -> None:
    smooth = 0.03 * np.sin(np.log(LOADS))
    field = baseline()
    assert field.weights(field.measured) @ smooth == pytest.approx(smooth, abs=0.004)


@pytest.mark.parametrize("context", [0.0, 1000.0, 16_000.0, 131_072.0])
def test_a_bump_at_16_rows_comes_back_at_16_rows_in_every_context(context: float) -> None:
    field = baseline()
    inside = (field.weights(points([16.0], [4.0], context)) @ BUMP)[0]
    assert inside == pytest.approx(0.045, abs=0.02)
    beside = field.weights(points([4.0, 64.0], [1.0, 16.0], context)) @ BUMP
    assert np.all(np.abs(beside) < 0.5 * inside)


def test_a_step_of_16_sequences_and_many_rows_does_not_see_the_bump_of_16_rows() -> None:
    field = baseline()
    assert (
        abs((field.weights(points([128.0], [16.0])) @ BUMP)[0]) < 0.4 * (field.weights(points([16.0], [4.0])) @ BUMP)[0]
    )


def test_far_beyond_the_sweep_nothing_is_carried_over() -> None:
    field = baseline()
    far = field.weights(points([1e6], [1e6])) @ np.full(len(LOADS), 0.05)
    assert far == pytest.approx(0.0, abs=1e-3)


def test_a_common_offset_is_carried_over_within_the_sweep() -> None:
    field = baseline()
    inside = field.weights(points([12.0, 24.0], [4.0, 8.0])) @ np.full(len(LOADS), 0.05)
    assert inside == pytest.approx([0.05, 0.05], abs=0.015)


def test_uncertainty_grows_from_the_noise_to_that_of_the_prior() -> None:
    field = baseline()
    at, near, beyond, far = field.sd(points([16.0, 23.0, 128.0, 1e6], [16.0, 23.0, 128.0, 1e6]))
    assert at < 0.006
    assert at < near < beyond < far
    assert far == pytest.approx(np.sqrt(0.03**2 + 0.035**2 + 0.02**2), rel=1e-3)


def test_rows_without_their_sequences_are_less_certain_than_the_measured_cell() -> None:
    field = baseline()
    same, mixed = field.sd(points([16.0, 16.0], [16.0, 1.0]))
    assert mixed > same


def test_a_second_measurement_of_the_same_cell_is_no_trouble() -> None:
    twice = StepPoints(np.array([8.0, 8.0]), np.array([8.0, 8.0]), np.array([0.0, 0.0]))
    field = ResidualField.of(twice, np.array([0.03, 0.03]))
    mean = (field.weights(points([8.0], [8.0], 0.0)) @ np.array([0.02, 0.04]))[0]
    # shrunk towards zero by noise^2 / 2 over the prior's variance
    prior = 0.03**2 + 0.035**2 + 0.02**2
    assert mean == pytest.approx(0.03 * prior / (prior + 0.03**2 / 2.0), rel=1e-6)


def test_noise_makes_a_point_count_less() -> None:
    good, poor = (baseline(noise=noise).weights(points([16.0], [16.0])) @ BUMP for noise in (0.001, 0.1))
    assert 0.0 < poor[0] < 0.5 * good[0]


@given(
    st.lists(st.floats(1.0, 1e5), min_size=1, max_size=8),
    st.lists(st.floats(0.0, 1e6), min_size=8, max_size=8),
    st.floats(1.0, 1e7),
    st.floats(0.0, 1e7),
)
@settings(max_examples=60)
def test_the_field_is_finite_and_never_more_uncertain_than_its_prior(
    loads: list[float], contexts: list[float], rows: float, context: float
) -> None:
    sequences = np.array(loads)
    measured = StepPoints(sequences, sequences, np.array(contexts[: len(loads)]))
    field = ResidualField.of(measured, np.full(len(loads), 0.03))
    somewhere = points([rows], [rows], context)
    assert np.all(np.isfinite(field.weights(somewhere)))
    assert 0.0 <= field.sd(somewhere)[0] <= np.sqrt(0.03**2 + 0.035**2 + 0.02**2) + 1e-12
