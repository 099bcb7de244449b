"""The expert curve as the `experts` command shows it."""

from collections.abc import Sequence
from typing import Any

from hwmodel.moe import Routing, expected_distinct, uniform_distinct
from hwmodel.parameters import prior_table


def default_routing(
    popularity_sigma: float | None = None, stickiness: float | None = None, routing_memory: float | None = None
) -> Routing:
    """Routing with the priors' centres where nothing is given."""
    priors = prior_table()
    return Routing(
        priors["popularity_sigma"]["mean"] if popularity_sigma is None else popularity_sigma,
        priors["stickiness"]["mean"] if stickiness is None else stickiness,
        priors["routing_memory"]["median"] if routing_memory is None else routing_memory,
    )


def experts_curve(
    num_experts: int, top_k: int, tokens: Sequence[int], routing: Routing, requests: int = 1
) -> list[dict[str, Any]]:
    """Distinct experts per MoE layer for each token count spread over `requests` requests, and the uniform formula."""
    return [
        {
            "tokens": count,
            "distinct_experts": expected_distinct(num_experts, top_k, count, min(requests, count), routing),
            "distinct_experts_uniform": uniform_distinct(num_experts, top_k, count),
        }
        for count in tokens
    ]
