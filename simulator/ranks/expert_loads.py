"""The MoE layers of one step with their sampled loads: what every rank reads, and how long that takes it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hwmodel.parameters import Parameters
from hwmodel.step import layer_experts_time_s, tile_rows
from simulator.ranks.cell import number
from simulator.ranks.plan import MoeLayer
from simulator.ranks.routing_samples import RoutingPoint, distinct, padded_rows, sample_layer

_NO_MEMORY = 1e6  # concentration at which a request has no taste of its own: hash-routed layers


@dataclass(frozen=True, slots=True)
class LayerLoad:
    """One MoE layer of one step: distinct experts in all and by rank, rows after padding, seconds by rank."""

    distinct: int
    distinct_by_rank: tuple[int, ...]
    padded_rows: int
    seconds_by_rank: tuple[float, ...]


def sample_loads(
    layers: Sequence[MoeLayer], num_ranks: int, p: Parameters, rng: np.random.Generator
) -> list[LayerLoad]:
    """The loads of all MoE layers of a step for `num_ranks` ranks."""
    routing = RoutingPoint(number(p.popularity_sigma), number(p.stickiness), number(p.routing_memory))
    hashed = RoutingPoint(routing.popularity_sigma, 0.0, _NO_MEMORY)
    return [_load(layer, num_ranks, p, hashed if layer.work.hash_routed else routing, rng) for layer in layers]


def _load(layer: MoeLayer, num_ranks: int, p: Parameters, routing: RoutingPoint, rng: np.random.Generator) -> LayerLoad:
    work = layer.work
    sample = sample_layer(work.num_experts, work.num_experts_per_tok, layer.run_tokens, routing, rng)
    tile = tile_rows(work)
    known: dict[int, tuple[int, float]] = {}
    for part in range(work.num_ranks):
        counts = sample.of_rank(part, work.num_ranks)
        read = distinct(counts)
        within_budget = min(read, layer.expert_budget)
        seconds = number(layer_experts_time_s(work, layer.machine, p, within_budget, padded_rows(counts, tile)))
        known[part] = (read, seconds)
    by_rank = [known[rank % work.num_ranks] for rank in range(num_ranks)]
    return LayerLoad(
        distinct=sample.distinct,
        distinct_by_rank=tuple(read for read, _ in by_rank),
        padded_rows=padded_rows(sample.counts, tile),
        seconds_by_rank=tuple(seconds for _, seconds in by_rank),
    )
