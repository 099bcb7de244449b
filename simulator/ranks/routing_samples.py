"""Which experts the tokens of one step are sent to, drawn slot by slot: distinct experts, tiles and ranks come out.

The same three ingredients as `hwmodel.moe` (popularity, a request's own favourites, stickiness), but as a mechanism on
the slots of a token; that the two agree is a result, not a premise (verification/rank_step.py).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hwmodel.special import normal_quantile

Array = NDArray[np.float64]
Indices = NDArray[np.int_]
_BISECTIONS = 60  # more than a double has digits
_NEVER = 1e-12  # smallest chance of an expert: a weight of zero could leave fewer than top_k to draw


@dataclass(frozen=True, slots=True)
class RoutingPoint:
    """One value of each routing parameter (hwmodel.moe.Routing has the draws)."""

    popularity_sigma: float
    stickiness: float
    routing_memory: float


@dataclass(frozen=True, slots=True)
class LayerSample:
    """What one layer was asked for: tokens per expert `(num_experts,)`."""

    counts: Indices

    def of_rank(self, rank: int, num_ranks: int) -> Indices:
        """Tokens of the experts that one of `num_ranks` ranks holds: a contiguous block, as engines place them."""
        if num_ranks == 1:
            return self.counts
        bounds = np.linspace(0, len(self.counts), num_ranks + 1).round().astype(int)
        return self.counts[bounds[rank] : bounds[rank + 1]]

    @property
    def distinct(self) -> int:
        """Experts that got any token."""
        return distinct(self.counts)


def distinct(counts: Indices) -> int:
    """Experts with at least one token."""
    return int(np.count_nonzero(counts))


def padded_rows(counts: Indices, tile_rows: int) -> int:
    """Rows that the grouped GEMM computes: every expert's tokens in whole tiles."""
    return int(np.sum(-(-counts // tile_rows)) * tile_rows)


def popularity(num_experts: int, top_k: int, sigma: float, rng: np.random.Generator) -> Array:
    """Chance of each expert to be among a token's top-k, `(num_experts,)`, summing to `top_k`, in random order."""
    if top_k >= num_experts:
        return np.ones(num_experts)
    z = normal_quantile((np.arange(num_experts) + 0.5) / num_experts)
    rate = np.exp(sigma * z)
    low, high = 0.0, 1.0
    while np.sum(-np.expm1(-high * rate)) < top_k:
        high *= 2.0
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if np.sum(-np.expm1(-middle * rate)) < top_k else (low, middle)
    return np.asarray(rng.permutation(-np.expm1(-high * rate)))


def sample_layer(
    num_experts: int, top_k: int, run_tokens: Sequence[int], routing: RoutingPoint, rng: np.random.Generator
) -> LayerSample:
    """The experts of one layer for requests with `run_tokens` consecutive tokens each."""
    counts = np.zeros(num_experts, dtype=int)
    for token in routed_tokens(num_experts, top_k, run_tokens, routing, rng):
        counts += np.bincount(token.chosen.ravel(), minlength=num_experts)
    return LayerSample(counts)


@dataclass(frozen=True, slots=True)
class RoutedTokens:
    """The tokens at one place of all requests that reach it, `active` of them.

    `chosen` are their experts `(active, top_k)`, `times` when each expert finished their race `(active, num_experts)`:
    the sooner, the higher the router scores it.
    """

    chosen: Indices
    times: Array


def routed_tokens(
    num_experts: int, top_k: int, run_tokens: Sequence[int], routing: RoutingPoint, rng: np.random.Generator
) -> Iterator[RoutedTokens]:
    """The tokens of one layer in order, the first of every request, then the second of those that have one, ...

    Every request tilts the popularity to its own taste (Beta); each slot of a token keeps the expert of the slot before
    it with the same chance, and the other slots are drawn without repetition from what is left.
    """
    q = popularity(num_experts, top_k, routing.popularity_sigma, rng)
    runs = np.sort(np.asarray(run_tokens, dtype=int))[::-1]
    num_requests, longest = len(runs), int(runs[0]) if len(runs) else 0
    weights = _request_weights(q, routing.routing_memory, num_requests, rng)
    keep = keep_probability(q, routing)
    chosen, times = np.zeros((num_requests, top_k), dtype=int), np.zeros((num_requests, num_experts))
    for token in range(longest):
        active = int(np.count_nonzero(runs > token))
        kept = np.zeros((active, top_k), dtype=bool)
        if token:
            kept = rng.random((active, top_k)) < keep
        chosen, times = _draw(weights[:active], RoutedTokens(chosen[:active], times[:active]), kept, rng)
        yield RoutedTokens(chosen, times)


def keep_probability(q: Array, routing: RoutingPoint) -> float:
    """Chance of a slot to keep its expert, such that two tokens in a row share as many as `stickiness` means.

    With c = E[sum q_r^2] / K, a chain of indicators shares rho + (1 - rho) c; slots share r + (1 - r)^2 c / (1 - r c),
    since what they draw anew is drawn from the experts that were not kept (docs/ranks.md).
    """
    rho, memory = routing.stickiness, routing.routing_memory
    chance = float(np.sum(q * q + q * (1.0 - q) / (memory + 1.0)) / np.sum(q))
    wanted = rho + (1.0 - rho) * chance
    low, high = 0.0, 1.0
    if chance >= wanted:
        return 0.0
    for _ in range(_BISECTIONS):
        keep = 0.5 * (low + high)
        shared = keep + (1.0 - keep) ** 2 * chance / (1.0 - keep * chance)
        low, high = (keep, high) if shared < wanted else (low, keep)
    return high


def _request_weights(q: Array, memory: float, num_requests: int, rng: np.random.Generator) -> Array:
    """Drawing weights of each request's experts, `(num_requests, num_experts)`.

    An exponential race with rates w picks an expert within its first unit of time with the chance 1 - exp(-w): the
    inverse turns chances into weights.
    """
    own = rng.beta(np.maximum(memory * q, _NEVER), np.maximum(memory * (1.0 - q), _NEVER), size=(num_requests, len(q)))
    return np.asarray(-np.log1p(-np.clip(own, _NEVER, 1.0 - 1e-9)))


def _draw(
    weights: Array, before: RoutedTokens, kept: NDArray[np.bool_], rng: np.random.Generator
) -> tuple[Indices, Array]:
    """Experts of one token of each request, `(num_requests, top_k)`, and all finishing times.

    Kept slots have the expert of the token `before` with the time that it had, the others are won in a race.
    """
    top_k = before.chosen.shape[1]
    times = rng.standard_exponential(weights.shape) / weights
    rows = np.arange(len(weights))[:, None]
    order = times
    if kept.any():
        order = times.copy()
        order[rows, before.chosen] = np.where(kept, -1.0, times[rows, before.chosen])  # whoever is kept has won already
        times[rows, before.chosen] = np.where(kept, before.times[rows, before.chosen], times[rows, before.chosen])
    if top_k >= weights.shape[1]:
        return np.broadcast_to(np.arange(top_k), before.chosen.shape).copy(), times
    return np.argpartition(order, top_k - 1, axis=1)[:, :top_k], times
