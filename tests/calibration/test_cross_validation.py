"""Leaving groups out by algebra gives what refitting without them gives; the model error is what was put in."""

import numpy as np
import pytest

from calibration.coordinates import normal_coordinates
from calibration.cross_validation import LeftOut, ModelError, leave_out, model_error
from calibration.fit import FitOptions, FitResult, fit_map
from simulator.posterior import Observation

QUICK = FitOptions(num_starts=0, num_refits=0)


def fitted(matrix: np.ndarray, values: np.ndarray, noise: float, factor: np.ndarray) -> FitResult:
    """The fit of a linear model."""
    facts = [Observation(f"fact {i}", float(value), noise) for i, value in enumerate(values)]
    names = tuple(f"x{i}" for i in range(len(factor)))
    return fit_map(lambda z: z @ matrix.T, facts, normal_coordinates(names, factor), QUICK)


def test_a_group_left_out_is_predicted_as_by_a_fit_without_it() -> None:
    rng = np.random.default_rng(4)
    matrix, values = rng.normal(size=(6, 3)), rng.normal(size=6)
    groups = ["a", "a", "b", "b", "c", "c"]
    found = leave_out(fitted(matrix, values, 2.0, np.eye(3)), groups)
    for group in "abc":
        rest = [i for i, name in enumerate(groups) if name != group]
        others = fitted(matrix[rest], values[rest], 2.0, np.eye(3))
        for i in (i for i, name in enumerate(groups) if name == group):
            assert found[i].predicted == pytest.approx(float(matrix[i] @ others.mode), abs=1e-4)
            spread = np.sqrt(matrix[i] @ others.covariance @ matrix[i] + 4.0)
            assert found[i].spread == pytest.approx(float(spread), rel=1e-4)
            assert (found[i].group, found[i].label) == (group, f"fact {i}")


def test_one_group_alone_cannot_be_left_out() -> None:
    assert leave_out(fitted(np.eye(2), np.zeros(2), 1.0, np.eye(2)), ["a", "a"]) == ()


def test_inside_means_the_90_percent_interval() -> None:
    assert LeftOut("x", "a", 1.6, 0.0, 1.0).inside
    assert not LeftOut("x", "a", 1.7, 0.0, 1.0).inside
    assert LeftOut("x", "a", 3.0, 1.0, 0.5).standardised == pytest.approx(4.0)


def spread_of(true_tau: float, seed: int, num_groups: int = 40) -> ModelError:
    """tau as estimated from groups that scatter by `true_tau` around a constant, prior 0.05 and 0.4."""
    rng = np.random.default_rng(seed)
    values = 0.3 + true_tau * rng.standard_normal(num_groups) + 0.01 * rng.standard_normal(num_groups)
    matrix = np.concatenate([np.ones((num_groups, 1)), np.eye(num_groups)], axis=1)
    factor = np.diag([1.0, *np.full(num_groups, 0.05)])
    fit = fitted(matrix, values, 0.01, factor)
    groups = [str(i) for i in range(num_groups)]
    return model_error(fit, groups, slice(1, num_groups + 1), np.eye(num_groups), ModelError(0.05, 0.4))


@pytest.mark.parametrize("true_tau", [0.02, 0.05, 0.12])
def test_the_model_error_is_found_from_many_groups(true_tau: float) -> None:
    found = spread_of(true_tau, seed=1)
    assert np.log(found.value / true_tau) == pytest.approx(0.0, abs=3.0 * found.log_sd)
    assert found.log_sd < 0.25
    assert found.num_groups == 40


def test_one_outlier_does_not_set_the_model_error() -> None:
    rng = np.random.default_rng(3)
    values = 0.02 * rng.standard_normal(20)
    matrix = np.concatenate([np.ones((20, 1)), np.eye(20)], axis=1)
    factor = np.diag([1.0, *np.full(20, 0.05)])
    groups = [str(i) for i in range(20)]

    def tau(of: np.ndarray) -> float:
        fit = fitted(matrix, of, 0.01, factor)
        return model_error(fit, groups, slice(1, 21), np.eye(20), ModelError(0.05, 0.4)).value

    clean = tau(values)
    values[7] += 0.5
    assert tau(values) < 2.0 * clean


def test_with_two_groups_the_prior_stays() -> None:
    prior = ModelError(0.05, 0.4)
    fit = fitted(np.eye(2), np.array([0.3, -0.3]), 0.01, np.eye(2))
    assert model_error(fit, ["a", "b"], slice(0, 2), np.eye(2), prior) is prior


def test_a_model_error_that_is_stated_stays() -> None:
    stated = ModelError(0.03, 0.0)
    fit = fitted(np.eye(4), np.array([0.3, -0.3, 0.2, -0.1]), 0.01, np.eye(4))
    assert model_error(fit, list("abcd"), slice(0, 4), np.eye(4), stated) is stated


def test_variances_are_computed_with_the_mean_square_of_an_uncertain_tau() -> None:
    draws = 0.05 * np.exp(0.3 * np.random.default_rng(0).standard_normal(200_000))
    assert ModelError(0.05, 0.3, 8).root_mean_square == pytest.approx(float(np.sqrt(np.mean(draws**2))), rel=0.01)
    assert ModelError(0.05, 0.4).root_mean_square == 0.05
