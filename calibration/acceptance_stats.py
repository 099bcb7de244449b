"""Statistics of acceptance counts: likelihood, how requests differ and what that costs, further k and temperatures.

Positions are nested: position i is accepted only after position i - 1, so the counts are sequential binomials
acc_i ~ Bin(acc_{i-1}, c_i) with acc_0 the drafts, never independent binomials on the drafts. Requests differ: the share
of one request is Beta(mu kappa, (1 - mu) kappa), which makes the pooled counts worth fewer trials than they seem.
Predictions draw from `simulator.acceptance`; `calibration.readers.acceptance` exposes misread counters; here counts are
judged. Equations: docs/replay.md.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hwmodel.errors import InputError
from hwmodel.special import log_gamma
from simulator.acceptance import PARALLEL_BLOCK_TOKENS, PARALLEL_METHODS
from simulator.acceptance_priors import priors
from simulator.acceptance_shapes import Array, effective_trials, extended, unconditional

JEFFREYS = 0.5  # pseudo-count of either outcome; keeps a zero count from saying "never"
MANY_REQUESTS = 20  # from here the spread over requests is known better than its prior
_GOLDEN = (math.sqrt(5) - 1) / 2
_KAPPA_RANGE = (-3.0, 12.0)  # ln kappa: from requests that all accept or all reject to equal ones
_SEARCH_STEPS = 25  # golden section: the range shrinks to 1e-5 of itself
_CURVATURE_STEP = 0.1  # of ln kappa, for the second derivative


@dataclass(frozen=True, slots=True)
class Heterogeneity:
    """How requests differ: Beta concentration `kappa` around the mean `mu`; `log_sd` is the uncertainty of ln kappa."""

    mu: float
    kappa: float
    log_sd: float
    num_requests: int

    def design_effect(self, trials_per_request: float) -> float:
        """How many times too narrow a variance is that takes every trial as independent: 1 + (m - 1) / (kappa + 1)."""
        return 1.0 + max(trials_per_request - 1.0, 0.0) / (self.kappa + 1.0)


def log_likelihood(conditional: Array, drafts: float, accepted: Array) -> float:
    """Log-likelihood of c_1..c_k given the counts, up to a constant: sequential binomials.

    Formula: sum_i acc_i ln c_i + (acc_{i-1} - acc_i) ln(1 - c_i), 0 ln 0 = 0.
    """
    before = np.concatenate(([drafts], accepted[:-1]))
    failed = before - accepted
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(accepted > 0, accepted * np.log(conditional), 0.0)
        terms = terms + np.where(failed > 0, failed * np.log1p(-conditional), 0.0)
    return float(terms.sum())


def conditional_posterior(drafts: float, accepted: Array) -> tuple[Array, Array]:
    """Beta parameters (a, b) of each c_i under Jeffreys' prior, both (k,), trials taken as independent.

    >>> conditional_posterior(10.0, np.array([4.0, 0.0]))
    (array([4.5, 0.5]), array([6.5, 4.5]))
    """
    before = np.concatenate(([drafts], accepted[:-1]))
    return accepted + JEFFREYS, before - accepted + JEFFREYS


def conditional_shares(drafts: float, accepted: Array) -> Array:
    """c_1..c_k, (k,): counted where anything was counted, Jeffreys' mean 1/2 where nothing was."""
    before = np.concatenate(([drafts], accepted[:-1]))
    return np.where(before > 0, accepted / np.maximum(before, 1.0), JEFFREYS)


def beta_binomial_log_likelihood(
    successes: Array, trials: Array, mu: float, kappa: float, weights: Array | float = 1.0
) -> float:
    """Log-likelihood of per-request counts, both (num_requests,), binomial coefficients left out.

    `weights` says how many requests have these counts.
    """
    a, b = mu * kappa, (1.0 - mu) * kappa
    each = _log_beta(successes + a, trials - successes + b) - _log_beta(np.array([a]), np.array([b]))
    return float((weights * each).sum())


def _log_beta(a: Array, b: Array) -> Array:
    return log_gamma(a) + log_gamma(b) - log_gamma(a + b)


def fit_heterogeneity(successes: Array, trials: Array) -> Heterogeneity | None:
    """Kappa and mu of per-request counts, both (num_requests,): maximum of likelihood times the prior of kappa.

    Requests without trials say nothing. The prior is the one that predictions use where nothing was measured
    (`simulator/data/acceptance_priors.toml`). None where nothing was tried at all.
    """
    tried = trials > 0
    successes, trials = successes[tried], trials[tried]
    if not len(trials):
        return None
    number = len(trials)
    (successes, trials), requests = np.unique(np.stack((successes, trials)), axis=1, return_counts=True)
    weights = requests.astype(np.float64)

    def objective(log_kappa: float) -> float:
        kappa = math.exp(log_kappa)
        mu = _weighted_mean(successes, trials, kappa, weights)
        return beta_binomial_log_likelihood(successes, trials, mu, kappa, weights) + _log_prior(log_kappa)

    best = _maximum(objective, *_KAPPA_RANGE)
    step = _CURVATURE_STEP
    curvature = (objective(best + step) - 2 * objective(best) + objective(best - step)) / step**2
    log_sd = min(1.0 / math.sqrt(max(-curvature, 1e-6)), 2.0 * priors()["spread"]["kappa_log_sd"])
    kappa = math.exp(best)
    return Heterogeneity(_weighted_mean(successes, trials, kappa, weights), kappa, log_sd, number)


def prior_heterogeneity(mu: float, num_requests: int) -> Heterogeneity:
    """What is assumed where only totals over requests exist."""
    spread = priors()["spread"]
    return Heterogeneity(mu, spread["kappa_median"], spread["kappa_log_sd"], num_requests)


def _log_prior(log_kappa: float) -> float:
    spread = priors()["spread"]
    deviation: float = (log_kappa - math.log(spread["kappa_median"])) / spread["kappa_log_sd"]
    return -0.5 * deviation**2


def _weighted_mean(successes: Array, trials: Array, kappa: float, weights: Array) -> float:
    """Mean share over requests, each weighted by what its count is worth at `kappa`; never quite 0 or 1."""
    worth = weights / (1.0 + (trials - 1.0) / (kappa + 1.0))
    return float(((worth * successes).sum() + JEFFREYS) / ((worth * trials).sum() + 2 * JEFFREYS))


def _maximum(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a function with one peak is largest between `low` and `high` (golden section)."""
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = function(left), function(right)
    for _ in range(_SEARCH_STEPS):
        if at_left > at_right:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = function(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = function(right)
    return (low + high) / 2


def clustered_trials(successes: Array, trials: Array) -> float:
    """Independent trials that per-request counts, both (num_requests,), are worth for their pooled share.

    From the variance of a ratio over requests, sum (x_r - p n_r)^2 R / (R - 1) / (sum n_r)^2; never more trials than
    there are. Where the counts cannot tell (one request, or a share of 0 or 1) the prior of kappa does.
    """
    total = float(trials.sum())
    if not total:
        return 0.0
    tried = trials > 0
    successes, trials = successes[tried], trials[tried]
    share, number = float(successes.sum()) / total, len(trials)
    spread = float(((successes - share * trials) ** 2).sum())
    if number < 2 or not spread:
        kappa = np.array([[priors()["spread"]["kappa_median"]]])
        return float(effective_trials(np.array([total]), number, kappa)[0, 0])
    variance = spread * number / (number - 1) / total**2
    return min(total, share * (1.0 - share) / variance)


def worth_trials(successes: Array, trials: Array) -> float:
    """Independent trials that per-request counts, both (num_requests,), are worth, with few requests as with many.

    From `MANY_REQUESTS` on as the counts say; below that, where a variance over requests is itself a guess, as the
    beta-binomial fit with its prior says.
    """
    number = int((trials > 0).sum())
    fitted = fit_heterogeneity(successes, trials) if 0 < number < MANY_REQUESTS else None
    if fitted is None:
        return clustered_trials(successes, trials)
    return float(effective_trials(np.array([trials.sum()]), number, np.array([[fitted.kappa]]))[0, 0])


def extrapolated(
    conditional: Array, num_positions: int, rng: np.random.Generator, method: str = "eagle3", *, known: int = 0
) -> Array:
    """S_1..S_n, (num_draws, num_positions), of draws of c_1..c_k, (num_draws, k): the last c held, less sure each time.

    Every further position multiplies c by exp(N(0, 0.03)), twice that for drafters that propose a block in one pass.
    Beyond their block (`known`, else the largest published one) nothing is known: InputError.
    """
    spread = priors()["spread"]
    parallel = method in PARALLEL_METHODS
    block = max(known or PARALLEL_BLOCK_TOKENS, conditional.shape[1])
    if parallel and num_positions > block:
        raise InputError(f"{method} drafts one block: got {num_positions} positions, allowed: to {block}")
    wider = spread["parallel_extrapolation_factor"] if parallel else 1.0
    extra = max(num_positions - conditional.shape[1], 0)
    steps = spread["extrapolation_log_sd"] * wider * rng.standard_normal((len(conditional), extra))
    return unconditional(extended(conditional, num_positions, steps))


def at_temperature(conditional: Array, measured: float, asked: float, rng: np.random.Generator) -> Array:
    """Draws of c, same shape, carried from one sampling temperature to another, with wider intervals.

    Assumption, never measured here: c falls by a factor of 0.9 from temperature 0 to 1, geometrically between, with a
    log-sd as large as the discount itself. Greedy drafts only (drafts are accepted with the target's own probability).
    """
    change = asked - measured
    discount = math.log(priors()["spread"]["temperature_factor"])
    normals = rng.standard_normal((len(conditional), 1))
    return np.minimum(1.0, conditional * np.exp(change * discount + abs(change * discount) * normals))
