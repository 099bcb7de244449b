"""What a budget of experts keeps of the routers' gates: which experts, how much gate mass, whose best expert is lost.

MoE-Spec, arXiv 2602.16052: per layer, the gates of all verified tokens are added up by expert and the `budget` best
experts are kept; a token whose expert is not among them goes without it (truncation) or takes its next best kept one
(substitution). Equations: docs/model.md, eq. G1 and G2.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.ranks.routing_samples import RoutedTokens, RoutingPoint, routed_tokens
from simulator.results import JsonObject

Array = NDArray[np.float64]
Indices = NDArray[np.int_]

GATE_SHARPNESS = 0.7  # exponent on the finishing times: 0 makes all top-k gates equal (docs/model.md, eq. G1)
_WORST = 0.05
NUM_LAYERS = 48  # sampled: standard error of a mean gate mass below half a point


@dataclass(frozen=True, slots=True)
class Gates:
    """The gates of all tokens of one layer: `chosen` experts `(tokens, top_k)`, their shares, and all experts' scores.

    `shares` `(tokens, top_k)` sum to 1 for each token; `scores` `(tokens, num_experts)` are in the same unit.
    """

    chosen: Indices
    shares: Array
    scores: Array

    @property
    def total(self) -> Array:
        """Gate mass by expert over the tokens, `(num_experts,)`: what the budget ranks by."""
        return np.asarray(
            np.bincount(self.chosen.ravel(), self.shares.ravel(), minlength=self.scores.shape[1]), dtype=float
        )

    @property
    def distinct(self) -> int:
        """Experts that any token chose."""
        return len(np.unique(self.chosen))


def sample_gates(
    num_experts: int,
    top_k: int,
    run_tokens: Sequence[int],
    routing: RoutingPoint,
    rng: np.random.Generator,
    sharpness: float = GATE_SHARPNESS,
) -> Gates:
    """The gates of one layer for requests with `run_tokens` consecutive tokens each (docs/model.md, eq. G1)."""
    parts = [_gates(token, sharpness) for token in routed_tokens(num_experts, top_k, run_tokens, routing, rng)]
    chosen, shares, scores = zip(*parts, strict=True)
    return Gates(np.concatenate(chosen), np.concatenate(shares), np.concatenate(scores))


def _gates(token: RoutedTokens, sharpness: float) -> tuple[Indices, Array, Array]:
    rows = np.arange(len(token.chosen))[:, None]
    logs = -sharpness * np.log(token.times)
    scores = np.exp(logs - logs[rows, token.chosen].max(axis=1, keepdims=True))
    scores /= scores[rows, token.chosen].sum(axis=1, keepdims=True)
    return token.chosen, scores[rows, token.chosen], scores


@dataclass(frozen=True, slots=True)
class BudgetEffect:
    """What one budget does to the tokens of a step, means over tokens and layers.

    `experts_read` of the `distinct_experts` are left. `truncated_mass` is the share of a token's gates that is kept,
    `substituted_mass` what the kept experts that stand in have beside it. `top_expert_dropped` is the share of tokens;
    5 % of the tokens keep less than `truncated_mass_p05`.
    """

    budget: int
    distinct_experts: float
    experts_read: float
    truncated_mass: float
    substituted_mass: float
    top_expert_dropped: float
    truncated_mass_p05: float

    def to_dict(self) -> JsonObject:
        """The effect as JSON."""
        return {
            "budget": self.budget,
            "distinct_experts": self.distinct_experts,
            "experts_read": self.experts_read,
            "gate_mass_truncated": self.truncated_mass,
            "gate_mass_substituted": self.substituted_mass,
            "top_expert_dropped": self.top_expert_dropped,
            "gate_mass_truncated_p05": self.truncated_mass_p05,
        }


def budget_effect(gates: Gates, budget: int) -> BudgetEffect:
    """What keeping the `budget` experts with the most gate mass does in one layer (docs/model.md, eq. G2)."""
    total = gates.total
    order = np.argsort(-total, kind="stable")
    kept = np.zeros(len(total), dtype=bool)
    kept[order[:budget]] = True
    kept &= total > 0.0
    inside = kept[gates.chosen]
    mass = np.where(inside, gates.shares, 0.0).sum(axis=1)
    best = gates.chosen[np.arange(len(gates.chosen)), gates.shares.argmax(axis=1)]
    return BudgetEffect(
        budget=budget,
        distinct_experts=float(gates.distinct),
        experts_read=float(kept.sum()),
        truncated_mass=float(mass.mean()),
        substituted_mass=float(_substituted(gates, kept, mass).mean()),
        top_expert_dropped=float(np.mean(~kept[best])),
        truncated_mass_p05=float(np.quantile(mass, _WORST)),
    )


def _substituted(gates: Gates, kept: NDArray[np.bool_], mass: Array) -> Array:
    """Gate mass of each token with its best kept experts in place of the dropped ones, at most 1."""
    top_k = gates.chosen.shape[1]
    scores = gates.scores[:, kept]
    if scores.shape[1] > top_k:
        scores = -np.partition(-scores, top_k - 1, axis=1)[:, :top_k]
    # A copied slot may hold an expert that others outscore: the tokens' own choice is never worth less than it is.
    return np.asarray(np.minimum(np.maximum(scores.sum(axis=1), mass), 1.0))


def mean_effects(  # noqa: PLR0913 - the layer, what runs through it, how it routes, and what is kept
    num_experts: int,
    top_k: int,
    run_tokens: Sequence[int],
    routings: Sequence[RoutingPoint],
    budgets: Sequence[int],
    *,
    seed: int = 0,
    sharpness: float = GATE_SHARPNESS,
) -> list[BudgetEffect]:
    """The effect of each budget, averaged over one layer for each of `routings`."""
    effects: list[list[BudgetEffect]] = [[] for _ in budgets]
    for routing, rng in zip(routings, np.random.default_rng(seed).spawn(len(routings)), strict=True):
        gates = sample_gates(num_experts, top_k, run_tokens, routing, rng, sharpness)
        for found, budget in zip(effects, budgets, strict=True):
            found.append(budget_effect(gates, budget))
    return [_mean(found) for found in effects]


def _mean(effects: Sequence[BudgetEffect]) -> BudgetEffect:
    def mean(name: str) -> float:
        return float(np.mean([getattr(effect, name) for effect in effects]))

    return BudgetEffect(
        budget=effects[0].budget,
        distinct_experts=mean("distinct_experts"),
        experts_read=mean("experts_read"),
        truncated_mass=mean("truncated_mass"),
        substituted_mass=mean("substituted_mass"),
        top_expert_dropped=mean("top_expert_dropped"),
        truncated_mass_p05=mean("truncated_mass_p05"),
    )


def kept_by_budgets(
    layer: tuple[int, int],
    tokens: int,
    requests: int,
    routing: RoutingPoint,
    budgets: Sequence[int],
    sharpness: float,
) -> list[JsonObject]:
    """What budgets keep in a `layer` of (experts, top-k) for tokens spread evenly over requests, as JSON."""
    each, longer = divmod(tokens, requests)
    runs = [each + 1] * longer + [each] * (requests - longer)
    effects = mean_effects(*layer, [run for run in runs if run], [routing] * NUM_LAYERS, budgets, sharpness=sharpness)
    return [effect.to_dict() for effect in effects]
