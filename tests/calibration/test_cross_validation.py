"""Leaving groups out by algebra gives what refitting without them gives."""

import numpy as np
import pytest

from calibration.coordinates import normal_coordinates
from calibration.cross_validation import LeftOut, leave_out, surprises
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


def test_a_group_alone_is_predicted_from_the_priors() -> None:
    fit = fitted(np.array([[2.0]]), np.array([3.0]), 1.0, np.eye(1))
    (found,) = surprises(fit, ["a"], fit.coordinates.factor, fit.noise)
    assert found.predicted == pytest.approx(0.0, abs=1e-6)
    assert found.spread == pytest.approx(np.sqrt(4.0 + 1.0))  # by hand: slope 2 of a standard normal, noise 1


def test_inside_means_the_90_percent_interval() -> None:
    assert LeftOut("x", "a", 1.6, 0.0, 1.0).inside
    assert not LeftOut("x", "a", 1.7, 0.0, 1.0).inside
    assert LeftOut("x", "a", 3.0, 1.0, 0.5).standardised == pytest.approx(4.0)
