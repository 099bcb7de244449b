"""The model error: what was put in is found; one load tells it by how far parameters must go; worse never narrows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration.coordinates import normal_coordinates
from calibration.fit import FitOptions, FitResult, fit_map
from calibration.model_error import Judged, ModelError, doubted, model_error
from simulator.posterior import Observation

QUICK = FitOptions(num_starts=0, num_refits=0)
USUAL = ModelError.prior(0.05, 0.4)
NOISE = 0.02


def fitted(values: np.ndarray, spread: float, noise: np.ndarray) -> FitResult:
    """One level of standard deviation `spread`, and an independent residual at each load."""
    size = len(values)
    matrix = np.concatenate([np.ones((size, 1)), np.eye(size)], axis=1)
    facts = [Observation(f"fact {i}", float(v), float(n)) for i, (v, n) in enumerate(zip(values, noise, strict=True))]
    factor = np.diag([spread, *np.full(size, USUAL.effective)])
    coordinates = normal_coordinates(tuple(f"x{i}" for i in range(size + 1)), factor)
    return fit_map(lambda z: z @ matrix.T, facts, coordinates, QUICK)


def found_in(values: np.ndarray, spread: float = 0.3, set_aside: dict[int, float] | None = None) -> ModelError:
    """The model error of these logs of measured over expected times, at loads 1, 2, 4, ..."""
    stated = np.full(len(values), NOISE)
    noise = stated.copy()
    for i, wide in (set_aside or {}).items():
        noise[i] = wide
    fit = fitted(values, spread, noise)
    judged = Judged(np.exp2(np.arange(float(len(values)))), noise, stated)
    return model_error(fit, judged, slice(1, len(values) + 1), lambda tau: tau**2 * np.eye(len(values)), USUAL)


@pytest.mark.parametrize("true_tau", [0.02, 0.05, 0.12])
def test_the_model_error_is_found_from_many_loads(true_tau: float) -> None:
    rng = np.random.default_rng(1)
    found = found_in(0.3 + np.hypot(true_tau, NOISE) * rng.standard_normal(40))
    assert np.log(found.value / true_tau) == pytest.approx(0.0, abs=3.0 * found.log_sd)
    assert found.log_sd < 0.45
    assert found.num_groups == 40


def test_an_outlier_that_was_set_aside_does_not_set_the_model_error() -> None:
    rng = np.random.default_rng(3)
    values = 0.03 * rng.standard_normal(20)
    clean = found_in(values).value
    values[7] += 0.5
    assert clean < found_in(values, set_aside={7: 0.5}).value < 2.0 * clean


@pytest.mark.parametrize("number", [1, 2, 3])
def test_few_loads_that_the_model_explains_leave_the_usual_error(number: int) -> None:
    found = found_in(np.full(number, 0.1))
    assert 0.5 * USUAL.effective < found.effective < 1.02 * USUAL.effective


@pytest.mark.parametrize(
    ("values", "spread"),
    [
        ([1.5], 0.3),  # one load, five standard deviations from what the parameters can be
        ([0.0, 1.0], 1.0),  # two that contradict each other
        ([-0.5, 0.8, -0.4], 1.0),
        ([-0.5, 0.8, -0.4, 0.5, -0.6], 1.0),
    ],
)
def test_few_loads_that_the_model_cannot_explain_raise_it(values: list[float], spread: float) -> None:
    assert found_in(np.array(values), spread).effective > 4.0 * USUAL.effective


def test_loads_that_agree_on_what_the_parameters_cannot_be_raise_it_against_loads_that_agree_with_them() -> None:
    assert found_in(np.full(5, 1.5)).value > 1.5 * found_in(np.zeros(5)).value


@given(st.lists(st.floats(-0.6, 0.6), min_size=1, max_size=7), st.floats(1.0, 4.0))
@settings(max_examples=60, deadline=None)
def test_larger_errors_of_the_same_shape_never_lower_the_model_error(errors: list[float], times: float) -> None:
    values = np.array(errors)
    assert found_in(times * values).effective >= found_in(values).effective * (1.0 - 1e-6)


def test_the_order_of_the_measurements_does_not_matter() -> None:
    values, loads = np.array([0.0, 0.3, -0.2]), np.array([1.0, 4.0, 16.0])
    stated = np.full(3, NOISE)
    taus = []
    for order in ([0, 1, 2], [2, 0, 1]):
        fit = fitted(values[order], 0.3, stated)
        judged = Judged(loads[order], stated, stated)
        taus.append(model_error(fit, judged, slice(1, 4), lambda tau: tau**2 * np.eye(3), USUAL).value)
    assert taus[0] == pytest.approx(taus[1], rel=1e-6)


def test_a_model_error_that_is_stated_stays() -> None:
    stated = ModelError.prior(0.03, 0.0)
    fit = fitted(np.array([0.3, -0.3]), 0.3, np.full(2, NOISE))
    judged = Judged(np.array([1.0, 2.0]), np.full(2, NOISE), np.full(2, NOISE))
    assert model_error(fit, judged, slice(1, 3), lambda tau: tau**2 * np.eye(2), stated) is stated
    assert stated.effective == 0.03


def test_the_effective_error_has_the_90_percent_interval_of_errors_of_uncertain_size() -> None:
    rng = np.random.default_rng(0)
    tau = 0.05 * np.exp(0.4 * rng.standard_t(4, 400_000))
    errors = tau[tau <= 1.0] * rng.standard_normal(np.sum(tau <= 1.0))
    assert USUAL.effective == pytest.approx(float(np.quantile(errors, 0.95)) / 1.645, rel=0.02)


def test_loads_that_contradict_each_other_are_doubted_by_half_of_the_variance_beyond_the_usual() -> None:
    facts = (Observation("a", 0.0, 0.03),)
    assert doubted(facts, USUAL, USUAL) == facts
    raised = ModelError(0.3, 0.2, 3, effective=0.4, between=0.3)
    wide = np.sqrt(0.03**2 + 0.5 * (0.3**2 - USUAL.effective**2))  # by hand
    assert doubted(facts, raised, USUAL)[0].noise == pytest.approx(float(wide))


@pytest.mark.parametrize("number", [1, 2, 3])
def test_measurements_that_only_the_priors_are_against_stand_though_the_model_error_is_raised(number: int) -> None:
    found = found_in(np.full(number, 2.0), 0.2)
    assert found.effective > 1.5 * USUAL.effective
    facts = (Observation("a", 0.0, 0.03),)
    assert doubted(facts, found, USUAL) == facts


def test_measurements_that_contradict_each_other_do_not_stand() -> None:
    found = found_in(np.array([0.0, 1.0]), 0.5)
    assert doubted((Observation("a", 0.0, 0.03),), found, USUAL)[0].noise > 0.2
