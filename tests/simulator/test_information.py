"""Value of information: limits that any estimate must keep, cases with a known answer, and repeatability."""

from itertools import pairwise
from math import erf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from simulator.information import Decision, Signal, components
from simulator.parameters import standard_draws

Array = NDArray[np.float64]
DRAWS = 2000


def draws(columns: int, seed: int = 0) -> Array:
    """Standard normals in mirrored pairs, as a study's."""
    return standard_draws(DRAWS, columns, np.random.default_rng(seed))


def two_choices(theta: Array, mean: float = 0.0) -> Decision:
    """Do nothing for 0, or take `mean` + theta."""
    return Decision(np.stack([np.zeros(len(theta)), mean + theta], axis=1))


def seen(theta: Array, noise: float) -> Signal:
    """A measurement of theta itself."""
    return Signal(theta[:, None], np.array([noise]))


def loss(mean: float, spread: float) -> float:
    """E max(0, N(mean, spread)) - max(0, mean): the value of knowing the mean of a normal (unit normal loss)."""
    z = mean / spread
    density, below = np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi), 0.5 * (1 + erf(z / 2**0.5))
    return float(mean * below + spread * density - max(mean, 0.0))


@pytest.mark.parametrize("noise", [0.1, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("mean", [0.0, -0.5, 0.3])
def test_a_normal_measurement_is_worth_the_loss_of_its_preposterior_mean(noise: float, mean: float) -> None:
    """Raiffa and Schlaifer: the posterior mean is normal with standard deviation 1 / sqrt(1 + noise^2)."""
    worth = two_choices(draws(1)[:, 0], mean).worth(seen(draws(1)[:, 0], noise), seed=1)
    exact = loss(mean, 1.0 / (1.0 + noise**2) ** 0.5)
    assert worth.evsi == pytest.approx(exact, abs=4 * worth.standard_error + 0.01)


def test_a_measurement_of_something_else_is_worth_nothing() -> None:
    theta = draws(2)
    worth = two_choices(theta[:, 0], -0.2).worth(seen(theta[:, 1], 0.1), seed=0)
    assert worth.evsi <= 3 * worth.standard_error + 1e-9


def test_a_measurement_without_an_outcome_or_drowned_in_noise_is_worth_exactly_nothing() -> None:
    theta = draws(1)[:, 0]
    nothing = Signal(np.zeros((DRAWS, 0)), np.zeros(0))
    constant = Signal(np.ones((DRAWS, 3)), np.full(3, 0.1))
    for signal in (nothing, constant, seen(theta, 1e6)):
        assert two_choices(theta).worth(signal, seed=0).evsi == 0.0


def test_certainty_is_worth_the_whole_regret() -> None:
    theta = draws(1)[:, 0]
    decision = two_choices(theta, 0.1)
    worth = decision.worth(seen(theta, 1e-3), seed=0)
    assert worth.evsi == pytest.approx(decision.evpi, rel=0.03)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 1000), st.integers(1, 4), st.floats(0.05, 3.0), st.floats(-1.0, 1.0))
def test_every_worth_lies_between_nothing_and_the_regret(seed: int, outcomes: int, noise: float, mean: float) -> None:
    theta = draws(5, seed)
    utilities = np.stack([np.zeros(DRAWS), mean + theta[:, 0], mean + theta[:, 1] * theta[:, 2]], axis=1)
    decision = Decision(utilities)
    worth = decision.worth(Signal(theta[:, :outcomes], np.full(outcomes, noise)), seed)
    assert 0.0 <= worth.evsi <= decision.evpi + 1e-12
    assert 0.0 <= worth.changes(decision.choice) <= 1.0


@pytest.mark.parametrize("mean", [0.0, -0.7])
def test_a_more_precise_measurement_is_never_worth_less(mean: float) -> None:
    theta = draws(1)[:, 0]
    decision = two_choices(theta, mean)
    found = [decision.worth(seen(theta, noise), seed=2) for noise in (3.0, 1.5, 0.7, 0.3, 0.1)]
    for rough, fine in pairwise(found):
        assert fine.evsi >= rough.evsi - 2 * (rough.standard_error + fine.standard_error)
    assert found[-1].evsi > found[0].evsi


def test_two_measurements_together_are_worth_no_less_than_either() -> None:
    theta = draws(2)
    decision = two_choices(theta.sum(axis=1))
    both = decision.worth(Signal(theta, np.full(2, 0.3)), seed=0)
    for column in range(2):
        assert both.evsi >= decision.worth(seen(theta[:, column], 0.3), seed=0).evsi


def test_a_choice_that_is_always_best_leaves_nothing_to_learn() -> None:
    decision = Decision(np.stack([np.zeros(DRAWS), np.exp(draws(1)[:, 0])], axis=1))
    assert decision.evpi == 0.0
    assert decision.worth(seen(draws(1)[:, 0], 0.1), seed=0).evsi == 0.0


def test_equal_seeds_give_equal_worth_and_others_agree_within_the_error() -> None:
    theta = draws(1)[:, 0]
    decision, signal = two_choices(theta), seen(theta, 0.5)
    first, again, other = (decision.worth(signal, seed) for seed in (0, 0, 9))
    assert first.evsi == again.evsi
    assert abs(first.evsi - other.evsi) < 4 * first.standard_error


def test_components_keep_what_stands_out_of_the_noise_and_no_more() -> None:
    theta = draws(2)
    many = Signal(theta[:, :1] * np.ones(12), np.full(12, 1.0))  # twelve readings of one thing
    scores = components(many)
    assert scores.shape == (DRAWS, 1)
    assert scores.std() == pytest.approx(12**0.5, rel=0.03)  # as one reading with a twelfth of the variance
