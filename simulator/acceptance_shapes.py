"""The arithmetic of acceptance: conditional and unconditional vectors, scalars, small samples, further positions.

c_i is the share of accepted position i among drafts whose position i - 1 was accepted, S_i = c_1 * ... * c_i the
share among all drafts, and 1 + sum S_i the mean tokens per draft, the target's own token included.
"""

import numpy as np
from numpy.typing import NDArray

from hwmodel.records import dataclass

Array = NDArray[np.float64]
_BISECTIONS = 40  # halves an interval of width 1 to 1e-12
_JEFFREYS = 0.5  # pseudo-count of either outcome (Jeffreys prior of a binomial share)


@dataclass(frozen=True, slots=True)
class MatchShape:
    """The two-state match mixture w * high^i + (1 - w) * low^i: true copies and accidental matches."""

    w: float
    high: float
    low: float

    def survival(self, num_positions: int) -> Array:
        """S_1..S_n of the mixture, (num_positions,)."""
        position = np.arange(1, num_positions + 1)
        return self.w * self.high**position + (1 - self.w) * self.low**position


def conditional_of(survival: Array) -> Array:
    """c_1..c_k, (k,): S_i / S_{i-1}; 0 where nothing survived so far."""
    before = np.concatenate(([1.0], survival[:-1]))
    conditional: Array = np.divide(survival, before, out=np.zeros_like(survival), where=before > 0)
    return conditional


def constant_conditional(accepted: Array, at_k: int, decay: Array) -> Array:
    """c_1, (num_draws,): with c_i = min(1, c_1 * decay^(i-1)), S_1 + ... + S_k sums to `accepted` (0 to at_k).

    The sum grows with c_1, so bisection finds it; decay 1 is the constant conditional acceptance.
    """
    low, high = np.zeros_like(accepted), np.maximum(1.0, decay ** (1 - at_k))
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        small = _accepted(middle, at_k, decay) < accepted
        low, high = np.where(small, middle, low), np.where(small, high, middle)
    found: Array = (low + high) / 2
    return found


def _accepted(first: Array, at_k: int, decay: Array) -> Array:
    """S_1 + ... + S_k by Horner's rule: c_1 (1 + c_2 (1 + ...))."""
    total = np.zeros_like(first)
    for power in range(at_k - 1, -1, -1):
        total = np.minimum(1.0, first * decay**power) * (1.0 + total)
    return total


def decaying_conditional(first: Array, decay: Array, num_positions: int) -> Array:
    """c_i = min(1, first * decay^(i-1)), (num_draws, num_positions)."""
    conditional: Array = np.minimum(1.0, first[:, None] * decay[:, None] ** np.arange(num_positions))
    return conditional


def unconditional(conditional: Array) -> Array:
    """S_1..S_k of c_1..c_k along the last axis, same shape."""
    survival: Array = np.multiply.accumulate(conditional, axis=-1)
    return survival


def scaled_match(accepted: Array, at_k: int, shape: MatchShape, num_positions: int) -> Array:
    """S_i, (num_draws, num_positions): the mixture scaled so that S_1 + ... + S_k is `accepted` (0 to at_k).

    Where the scale would lift S_1..S_j above 1 they are 1 and the rest is scaled to fill; j is the smallest that works.
    """
    base = shape.survival(max(num_positions, at_k))
    head = base[:at_k]
    rest = head.sum() - np.concatenate(([0.0], np.cumsum(head)[:-1]))  # base_{j+1} + ... + base_k, by j
    scales = np.maximum(accepted[:, None] - np.arange(at_k), 0.0) / rest
    capped = (scales * head > 1.0).sum(axis=1)  # the scale grows too large for a leading run of positions
    scale = np.take_along_axis(scales, np.minimum(capped, at_k - 1)[:, None], axis=1)
    survival: Array = np.minimum(1.0, scale * base[:num_positions])
    survival[:, :at_k][capped >= at_k] = 1.0
    return survival


def shares_by_length(survival: Array, share: Array, known_at: int) -> Array:
    """Share of steps with a draft at every length, `(num_draws, k_max)`, from that at drafts of `known_at` tokens.

    Text is either such that a lookup finds a draft or not, whatever k is: the tokens of drafted steps and the steps
    without a draft stay, so odds(p_k) = odds(p_d) (1 + a_d) / (1 + a_k) with a_k accepted tokens of a draft of k
    (docs/model.md, eq. L1). `survival` is S_1..S_k, `share` `(num_draws, 1)`.
    """
    accepted = np.cumsum(survival, axis=1)
    drafted = share * (1.0 + accepted[:, [known_at - 1]]) / (1.0 + accepted)
    return np.asarray(drafted / (drafted + 1.0 - share))


def effective_trials(trials: Array, num_requests: float, kappa: Array) -> Array:
    """Independent trials that `trials` (k,) of clustered ones are worth, (num_draws, k), for kappa (num_draws, 1).

    Design effect 1 + (m - 1) / (kappa + 1) with m trials per request (beta-binomial): 60 requests x 80 drafts at
    kappa 12 give 7.1. However long the requests, R of them are worth at most R (kappa + 1) trials.
    """
    per_request = trials / num_requests
    return trials / (1.0 + np.maximum(per_request - 1.0, 0.0) / (kappa + 1.0))


def share_draws(rng: np.random.Generator, share: Array, worth: Array, ranks: Array) -> Array:
    """Beta draws of each share, (num_draws, k), `worth` trials each, in the order that the columns of `ranks` have.

    Drawing by rank keeps the marginals exact, lets positions move together, and makes equal seeds comparable: a
    changed input shifts every draw a little instead of shuffling them.
    """
    draws = np.sort(rng.beta(share * worth + _JEFFREYS, (1.0 - share) * worth + _JEFFREYS), axis=0)
    order = np.argsort(np.argsort(ranks, axis=0), axis=0)
    return np.take_along_axis(draws, order, axis=0)


def shared_normals(rng: np.random.Generator, num_draws: int, shared: Array) -> Array:
    """Standard normals, (num_draws, k), of which column i shares the part `shared[i]` (0 to 1) of its variance."""
    common, own = rng.standard_normal((num_draws, 1)), rng.standard_normal((num_draws, len(shared)))
    return np.sqrt(shared) * common + np.sqrt(1.0 - shared) * own


def extended(conditional: Array, num_positions: int, steps: Array) -> Array:
    """c_i, (num_draws, num_positions): `conditional` cut, or held at its last value times exp of summed `steps`.

    `steps` (num_draws, extra) are the log changes per further position; values are capped at 1.
    """
    missing = num_positions - conditional.shape[1]
    if missing <= 0:
        return conditional[:, :num_positions]
    further = conditional[:, -1:] * np.exp(np.cumsum(steps[:, :missing], axis=1))
    return np.concatenate((conditional, np.minimum(1.0, further)), axis=1)
