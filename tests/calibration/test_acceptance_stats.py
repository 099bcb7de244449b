"""Acceptance statistics: by hand, against theory, and by repeated simulated trials."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.acceptance_stats import (
    at_temperature,
    beta_binomial_log_likelihood,
    clustered_trials,
    conditional_posterior,
    conditional_shares,
    extrapolated,
    fit_heterogeneity,
    log_likelihood,
    prior_heterogeneity,
    worth_trials,
)
from hwmodel.errors import InputError

KAPPA, MU = 12.0, 0.64


def requests(rng: np.random.Generator, number: int, trials: int, kappa: float = KAPPA) -> tuple[np.ndarray, np.ndarray]:
    """Accepted and tried drafts of requests that differ."""
    shares = rng.beta(MU * kappa, (1 - MU) * kappa, number)
    tried = np.full(number, float(trials))
    return rng.binomial(trials, shares).astype(float), tried


def test_the_likelihood_of_nested_counts_by_hand() -> None:
    # 10 drafts, 6 with the first position right, 3 with both.
    expected = 6 * math.log(0.6) + 4 * math.log(0.4) + 3 * math.log(0.5) + 3 * math.log(0.5)
    assert log_likelihood(np.array([0.6, 0.5]), 10.0, np.array([6.0, 3.0])) == pytest.approx(expected)


@given(st.integers(1, 500), st.lists(st.floats(0, 1), min_size=1, max_size=6), st.integers(0, 2**32 - 1))
def test_the_likelihood_is_largest_at_the_counted_shares(drafts: int, shares: list[float], seed: int) -> None:
    accepted, left = [], float(drafts)
    for share in shares:
        left = float(round(left * share))
        accepted.append(left)
    counts = np.array(accepted)
    best = conditional_shares(float(drafts), counts)
    other = np.clip(best + 0.1 * np.random.default_rng(seed).standard_normal(len(best)), 1e-3, 1 - 1e-3)
    assert log_likelihood(best, float(drafts), counts) >= log_likelihood(other, float(drafts), counts) - 1e-9


def test_a_zero_count_does_not_say_never() -> None:
    a, b = conditional_posterior(40.0, np.array([10.0, 0.0]))
    assert (a / (a + b)).tolist() == pytest.approx([10.5 / 41, 0.5 / 11])
    assert conditional_shares(10.0, np.array([0.0, 0.0])).tolist() == [0.0, 0.5]


def test_nested_counts_are_not_independent_binomials() -> None:
    """The variance of S_2 over S_1 follows the sequential form; independent binomials on all drafts are wrong."""
    rng = np.random.default_rng(0)
    first = rng.binomial(400, 0.6, 20_000)
    second = rng.binomial(first, 0.7)
    ratio = second / first
    assert ratio.std() == pytest.approx(math.sqrt(0.7 * 0.3 / (400 * 0.6)), rel=0.03)
    independent = math.sqrt(0.42 * 0.58 / 400 / 0.6**2 + 0.6 * 0.4 / 400 * (0.42 / 0.36) ** 2)
    assert independent > 1.4 * ratio.std()


def test_the_beta_binomial_adds_up_to_one() -> None:
    coefficients = [math.comb(6, x) for x in range(7)]
    values = [
        coefficient * math.exp(beta_binomial_log_likelihood(np.array([float(x)]), np.array([6.0]), 0.3, 2.0))
        for x, coefficient in enumerate(coefficients)
    ]
    assert sum(values) == pytest.approx(1.0)


@pytest.mark.parametrize("kappa", [3.0, 12.0, 60.0])
def test_kappa_is_found_again(kappa: float) -> None:
    found = fit_heterogeneity(*requests(np.random.default_rng(int(kappa)), 400, 80, kappa))
    assert found is not None
    assert found.kappa == pytest.approx(kappa, rel=0.25)
    assert found.mu == pytest.approx(MU, abs=0.03)


def test_the_uncertainty_of_kappa_is_what_repeated_trials_show() -> None:
    rng = np.random.default_rng(5)
    found = [fit_heterogeneity(*requests(rng, 60, 80)) for _ in range(60)]
    logs = np.array([math.log(each.kappa) for each in found if each is not None])
    stated = np.mean([each.log_sd for each in found if each is not None])
    assert logs.std() == pytest.approx(stated, rel=0.4)


def test_few_requests_leave_kappa_at_its_prior() -> None:
    found = fit_heterogeneity(np.array([50.0]), np.array([80.0]))
    assert found is not None
    assert found.kappa == pytest.approx(12.0, rel=0.3)
    assert fit_heterogeneity(np.zeros(3), np.zeros(3)) is None


def test_the_design_effect_of_the_specification() -> None:
    # 60 requests x 80 drafts at kappa 12: a naive standard error of .0070 is .0186 in truth.
    assert prior_heterogeneity(MU, 60).design_effect(80) == pytest.approx(7.1, abs=0.03)
    rng = np.random.default_rng(6)
    pooled_shares = [requests(rng, 60, 80)[0].sum() / 4800 for _ in range(4000)]
    assert np.std(pooled_shares) == pytest.approx(0.0186, rel=0.04)


def test_clustered_trials_are_what_the_pooled_share_varies_like() -> None:
    rng = np.random.default_rng(7)
    worth = np.mean([clustered_trials(*requests(rng, 60, 80)) for _ in range(200)])
    assert worth == pytest.approx(4800 / 7.1, rel=0.1)


def test_where_counts_cannot_tell_the_prior_does() -> None:
    one_request = clustered_trials(np.array([40.0]), np.array([80.0]))
    all_accepted = clustered_trials(np.full(5, 80.0), np.full(5, 80.0))
    assert one_request == pytest.approx(80 / (1 + 79 / 13))
    assert all_accepted == pytest.approx(5 * one_request)
    assert clustered_trials(np.zeros(2), np.zeros(2)) == 0.0


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=30))
def test_counts_are_never_worth_more_than_they_are(pairs: list[tuple[int, int]]) -> None:
    successes = np.array([float(min(pair)) for pair in pairs])
    trials = np.array([float(max(pair)) for pair in pairs])
    assert 0.0 <= worth_trials(successes, trials) <= trials.sum() + 1e-9


@pytest.mark.parametrize("number", [8, 60])
def test_intervals_from_worth_trials_cover_near_nominal(number: int) -> None:
    rng = np.random.default_rng(number)
    covered, repeats = 0, 300
    for _ in range(repeats):
        successes, trials = requests(rng, number, 80)
        share, worth = successes.sum() / trials.sum(), worth_trials(successes, trials)
        covered += abs(share - MU) <= 1.96 * math.sqrt(share * (1 - share) / worth)
    assert 0.88 <= covered / repeats <= 0.99


def test_extrapolation_holds_the_last_conditional_and_gets_wider() -> None:
    draws = np.tile([0.7, 0.6, 0.6], (4000, 1))
    survival = extrapolated(draws, 6, np.random.default_rng(0))
    assert survival.shape == (4000, 6)
    assert np.median(survival[:, 5]) == pytest.approx(0.7 * 0.6**5, rel=0.02)
    conditional = survival[:, 3:] / survival[:, 2:-1]
    spread = np.log(conditional).std(axis=0)
    assert spread == pytest.approx(0.03 * np.sqrt([1, 2, 3]), rel=0.05)
    assert survival[:, :3] == pytest.approx(np.cumprod(draws, axis=1))


def test_a_parallel_drafter_is_not_extrapolated_beyond_its_block() -> None:
    draws = np.tile([0.7, 0.6], (10, 1))
    with pytest.raises(InputError, match=r"dflash drafts one block: got 17 positions, allowed: to 16"):
        extrapolated(draws, 17, np.random.default_rng(0), "dflash")
    with pytest.raises(InputError, match="allowed: to 8"):
        extrapolated(draws, 9, np.random.default_rng(0), "p_eagle", known=8)
    assert extrapolated(draws, 8, np.random.default_rng(0), "p_eagle", known=8).shape == (10, 8)


def test_another_temperature_discounts_and_widens() -> None:
    draws = np.full((4000, 2), 0.6)
    warm = at_temperature(draws, 0.0, 1.0, np.random.default_rng(0))
    assert np.median(warm) == pytest.approx(0.54, rel=0.02)
    assert np.log(warm[:, 0]).std() == pytest.approx(-math.log(0.9), rel=0.05)
    assert at_temperature(draws, 0.7, 0.7, np.random.default_rng(0)) == pytest.approx(draws)
    assert at_temperature(np.full((50, 1), 0.99), 1.0, 0.0, np.random.default_rng(0)).max() <= 1.0
