"""The fit: exact where the model is linear, NIST's certified values where it is not, bounds and what they do."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration.coordinates import Coordinates, coordinates_of, normal_coordinates
from calibration.fit import FitOptions, fit_map
from hwmodel.errors import InputError
from simulator.parameters import Prior, PriorSet
from simulator.posterior import Observation, condition

QUICK = FitOptions(num_starts=0, num_refits=0)
# NIST Statistical Reference Datasets, nonlinear regression, Misra1a (D. Misra, NIST, dental research: monomolecular
# adsorption): y = b1 (1 - exp(-b2 x)), with certified estimates, their standard deviations and that of the residuals.
MISRA_X = [77.6, 114.9, 141.1, 190.8, 239.9, 289.0, 332.8, 378.4, 434.8, 477.3, 536.8, 593.1, 689.1, 760.0]
MISRA_Y = [10.07, 14.73, 17.94, 23.93, 29.61, 35.18, 40.02, 44.82, 50.76, 55.05, 61.01, 66.40, 75.47, 81.78]
MISRA_B, MISRA_SD = (2.3894212918e02, 5.5015643181e-04), (2.7070075241e00, 7.2668688436e-06)
MISRA_RESIDUAL_SD = 1.0187876330e-01


def observed(values: np.ndarray, noise: float) -> list[Observation]:
    """Facts with these values and one noise."""
    return [Observation(f"fact {i}", float(value), noise) for i, value in enumerate(values)]


def standard(size: int) -> Coordinates:
    """Standard normal coordinates without bounds."""
    return normal_coordinates(tuple(f"x{i}" for i in range(size)), np.eye(size))


# NIST's two starting points, (500, 1e-4) and (250, 5e-4), as prior means so wide that they do not pull.
@pytest.mark.parametrize("start", [(500.0, 1e-4), (250.0, 5e-4)])
def test_nist_misra1a_gives_the_certified_estimates_and_standard_deviations(start: tuple[float, float]) -> None:
    x = np.array(MISRA_X)
    unit = np.array([100.0, 2e-4])
    found = fit_map(
        lambda z: unit[0] * z[:, :1] * (1.0 - np.exp(-unit[1] * z[:, 1:] * x)),
        observed(np.array(MISRA_Y), MISRA_RESIDUAL_SD),
        replace(standard(2), mean=np.array(start) / unit, factor=3.0 * np.eye(2), low=np.full(2, 1e-3)),
        QUICK,
    )
    assert unit * found.mode == pytest.approx(MISRA_B, rel=1e-3)
    assert unit * found.spread == pytest.approx(MISRA_SD, rel=0.05)


def test_linear_gaussian_model_gets_the_exact_conjugate_answer() -> None:
    rng = np.random.default_rng(5)
    matrix, offset, value = rng.normal(size=(4, 3)), rng.normal(size=4), rng.normal(size=4)
    found = fit_map(lambda z: z @ matrix.T + offset, observed(value, 2.0), standard(3), QUICK)
    assert found.noise_scale == 1.0
    precision = np.eye(3) + matrix.T @ matrix / 4.0
    mean = np.linalg.solve(precision, matrix.T @ (value - offset) / 4.0)
    assert found.mode == pytest.approx(mean, abs=1e-5)
    assert found.covariance == pytest.approx(np.linalg.inv(precision), rel=1e-6)
    assert found.predicted == pytest.approx(matrix @ mean + offset, abs=1e-5)
    assert found.objective == pytest.approx(np.sum(found.residuals**2) + mean @ mean, rel=1e-6)


def test_refits_leave_a_linear_model_as_it_is() -> None:
    rng = np.random.default_rng(6)
    matrix, value = rng.normal(size=(4, 3)), rng.normal(size=4)
    plain = fit_map(lambda z: z @ matrix.T, observed(value, 0.5), standard(3), QUICK)
    refitted = fit_map(lambda z: z @ matrix.T, observed(value, 0.5), standard(3))
    assert refitted.num_refits >= 60
    assert refitted.covariance == pytest.approx(plain.covariance, rel=5e-3, abs=1e-4)


@settings(max_examples=20, derandomize=True)
@given(seed=st.integers(0, 10_000))
def test_agrees_with_the_light_conditioning_on_the_same_facts(seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights = np.exp(rng.normal(size=(3, 4)))

    def model(z: np.ndarray) -> np.ndarray:
        return np.log(np.exp(0.3 * z) @ weights.T)

    facts = observed(model(rng.standard_normal((1, 4)))[0] + 0.02 * rng.normal(size=3), 0.05)
    light, full = condition(model, facts, 4), fit_map(model, facts, standard(4), QUICK)
    assert np.all(np.abs(full.mode - light.mode) < 0.2 * full.spread)
    assert full.spread == pytest.approx(full.noise_scale * np.sqrt(np.diag(light.factor @ light.factor.T)), rel=0.5)


def test_scatter_beyond_the_stated_noise_widens_the_interval() -> None:
    values = np.array([1.0, -1.0, 1.0, -1.0])
    found = fit_map(lambda z: np.repeat(z, 4, axis=1), observed(values, 0.1), standard(1), QUICK)
    assert found.noise_scale == pytest.approx(10.0, rel=0.01)
    assert found.spread[0] == pytest.approx(1.0 / np.sqrt(1.0 + 4.0), rel=0.01)


def test_scatter_below_the_stated_noise_changes_nothing() -> None:
    found = fit_map(lambda z: np.repeat(z, 4, axis=1), observed(np.zeros(4), 0.1), standard(1), QUICK)
    assert found.noise_scale == 1.0
    assert found.spread[0] == pytest.approx(1.0 / np.sqrt(1.0 + 400.0), rel=1e-6)


def test_without_observations_the_prior_is_returned() -> None:
    factor = np.array([[2.0, 0.0], [0.5, 0.3]])
    there = replace(standard(2), mean=np.array([1.0, -1.0]), factor=factor)
    found = fit_map(lambda z: np.zeros((len(z), 0)), [], there)
    assert found.mode == pytest.approx([1.0, -1.0])
    assert found.covariance == pytest.approx(factor @ factor.T)
    assert found.log_evidence == pytest.approx(0.0)


def test_mode_at_a_bound_is_flagged_and_its_spread_comes_from_refits() -> None:
    # The data ask for 2.4, the bound allows 1: nearly every refit ends there as well.
    box = replace(standard(2), high=np.array([1.0, np.inf]))
    found = fit_map(lambda z: z, observed(np.array([3.0, 0.0]), 0.5), box)
    assert found.mode[0] == pytest.approx(1.0, abs=1e-3)
    assert list(found.at_bound) == [True, False]
    assert found.num_refits == 200
    # Refits are min(x, 1) with x ~ N(m, s^2), the posterior without the bound; the spread is around 1.
    variance = 1.0 / (1.0 + 1.0 / (0.5 * found.noise_scale) ** 2)
    free = variance * 3.0 / (0.5 * found.noise_scale) ** 2 + np.sqrt(variance) * np.linspace(-6.0, 6.0, 4001)
    density = np.exp(-0.5 * np.linspace(-6.0, 6.0, 4001) ** 2)
    exact = np.sqrt(np.sum(density * np.minimum(free - 1.0, 0.0) ** 2) / np.sum(density))
    assert found.spread[0] == pytest.approx(exact, rel=0.15)
    assert found.spread[1] == pytest.approx(np.sqrt(variance), rel=0.02)


def test_a_bound_that_is_not_reached_changes_nothing() -> None:
    box = replace(standard(1), high=np.array([9.0]))
    found = fit_map(lambda z: z, observed(np.array([1.0]), 0.5), box)
    assert not found.at_bound.any()
    assert found.spread[0] == pytest.approx(1.0 / np.sqrt(5.0), rel=1e-3)


def test_refits_come_nearer_to_the_true_spread_of_a_curved_posterior_than_the_linear_model() -> None:
    # The log of a sum of two log-normal parts, measured low: exact moments from a grid.
    def total(z: np.ndarray) -> np.ndarray:
        return np.log(np.exp(0.5 * z[..., :1]) + np.exp(0.6 * z[..., 1:]))

    measured = float(total(np.array([-2.0, 0.0]))[0])
    facts = [Observation("sum", measured, 0.03)]
    refitted = fit_map(total, facts, standard(2), FitOptions(num_starts=0, num_refits=200))
    plain = fit_map(total, facts, standard(2), QUICK)
    grid = np.stack(np.meshgrid(np.linspace(-6, 5, 900), np.linspace(-6, 5, 900), indexing="ij"), axis=-1)
    density = np.exp(-0.5 * ((total(grid)[..., 0] - measured) / 0.03) ** 2 - 0.5 * np.sum(grid**2, axis=-1))
    for i in range(2):
        exact = np.sqrt(np.sum(density * (grid[..., i] - plain.mode[i]) ** 2) / np.sum(density))
        assert abs(refitted.spread[i] - exact) < 0.6 * abs(plain.spread[i] - exact)


def test_several_starts_find_the_better_of_two_minima() -> None:
    found = fit_map(
        lambda z: np.exp(-((z - 2.0) ** 2)),
        [Observation("peak", 1.0, 0.01)],
        replace(standard(1), mean=np.array([-3.0]), factor=np.array([[3.0]])),
        FitOptions(num_starts=6, num_refits=0),
    )
    assert found.mode[0] == pytest.approx(2.0, abs=0.3)
    assert found.other_minima


def test_evidence_prefers_the_model_that_made_the_data() -> None:
    rng = np.random.default_rng(2)
    x = np.linspace(0.0, 1.0, 9)
    data = observed(0.7 * x + 0.02 * rng.standard_normal(9), 0.02)
    line = fit_map(lambda z: z[:, :1] * x, data, standard(1), QUICK)
    square = fit_map(lambda z: z[:, :1] * x**2, data, standard(1), QUICK)
    assert line.log_evidence > square.log_evidence + 10.0


def test_evidence_prefers_the_simpler_model_where_both_fit() -> None:
    x = np.linspace(0.0, 1.0, 9)
    data = observed(0.5 * x, 0.1)
    line = fit_map(lambda z: z[:, :1] * x, data, standard(1), QUICK)
    parabola = fit_map(lambda z: z[:, :1] * x + z[:, 1:] * x**2, data, standard(2), QUICK)
    assert line.log_evidence > parabola.log_evidence


def test_evidence_of_a_linear_model_is_the_density_of_the_data() -> None:
    matrix, value = np.array([[1.0, 0.5], [0.3, -1.0]]), np.array([0.4, 0.2])
    found = fit_map(lambda z: z @ matrix.T, observed(value, 0.7), standard(2), QUICK)
    covariance = matrix @ matrix.T + 0.49 * np.eye(2)
    expected = -0.5 * (value @ np.linalg.solve(covariance, value) + np.linalg.slogdet(covariance)[1])
    assert found.log_evidence == pytest.approx(expected, abs=1e-4)


def test_values_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(InputError, match="finite number"):
        fit_map(lambda z: z, [Observation("x", float("nan"), 0.1)], standard(1))
    with pytest.raises(InputError, match="noise above 0"):
        fit_map(lambda z: z, [Observation("x", 1.0, 0.0)], standard(1))


def test_bounds_of_parameters_are_where_their_values_are_cut() -> None:
    priors = PriorSet(
        (
            Prior("efficiency", 0.8, 0.1, "lognormal", 0.2, 1.0, "test"),
            Prior("sigma", 0.9, 0.35, "normal", 0.2, 2.0, "test"),
            Prior("free_us", 2.0, 0.5, "lognormal", 0.0, 1e9, "test"),
            Prior("fixed", 3.0, 0.0, "lognormal", 0.0, 10.0, "test"),
        )
    )
    box = coordinates_of(priors)
    assert priors.priors[0].values(box.high[:1])[0] == pytest.approx(1.0)
    assert priors.priors[1].values(box.low[1:2])[0] == pytest.approx(0.2)
    assert box.high[2] == 8.0
    assert (box.low[3], box.high[3]) == (-8.0, 8.0)
    assert box.names == ("efficiency", "sigma", "free_us", "fixed")


def test_independent_coordinates_side_by_side_keep_their_priors() -> None:
    both = standard(2) + replace(normal_coordinates(("d",), np.array([[0.1]])), mean=np.array([0.5]))
    assert both.names == ("x0", "x1", "d")
    assert both.spread == pytest.approx([1.0, 1.0, 0.1])
    assert both.prior_rows(np.array([1.0, 0.0, 0.7])) == pytest.approx([1.0, 0.0, 2.0])
