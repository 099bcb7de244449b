"""A step as the list of things that every rank does in turn: blocks of compute, AllReduces, gathers, exchanges.

How long a block takes is what `hwmodel` says of the whole pass, divided over its layers.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hwmodel.drafters import Drafter
from hwmodel.parameters import Parameters, fitted_values
from hwmodel.rank import MoeWork, RankWork, rank_work
from hwmodel.step import Batch, Machine, allreduce_time_s, context_exchange_time_s, decode_batch, forward_parts
from simulator.ranks.cell import StepCell, number, without_skew
from simulator.system import kv_element_bytes

ACTIVATION_BYTES = 2  # BF16, as hwmodel.step counts the message of an AllReduce
_PARTS_OF_A_LAYER = ("attention", "kv_cache", "shared_dense", "overhead")


@dataclass(frozen=True, slots=True)
class Block:
    """Work without communication: seconds by part. `experts` is the MoE layer whose sampled time comes on top."""

    label: str
    seconds: tuple[tuple[str, float], ...]
    noisy: bool = True
    experts: int | None = None
    drafting: bool = False


@dataclass(frozen=True, slots=True)
class Reduce:
    """One AllReduce of the tensor-parallel group (its first `num_ranks` ranks)."""

    label: str
    num_bytes: float
    num_ranks: int
    drafting: bool = False


@dataclass(frozen=True, slots=True)
class Meet:
    """All ranks wait for each other, then spend `seconds` together: logits gather, expert exchange, end of the step."""

    label: str
    part: str
    seconds: float
    whole_box: bool = False  # all data-parallel ranks meet, not just the tensor-parallel group
    drafting: bool = False


Item = Block | Reduce | Meet


@dataclass(frozen=True, slots=True)
class MoeLayer:
    """One MoE layer of the step: whose experts, on which machine, and the runs of tokens that it routes."""

    work: MoeWork
    machine: Machine
    run_tokens: tuple[int, ...]
    expert_budget: float


@dataclass(frozen=True)
class Plan:
    """What every rank does, in order, and the MoE layers whose loads are still to be drawn."""

    items: tuple[Item, ...]
    moe_layers: tuple[MoeLayer, ...]


@dataclass(frozen=True, slots=True)
class _LayerShare:
    """One layer: its share of each part of the pass, and its experts if it has any."""

    share: dict[str, float]
    moe: MoeWork | None


@dataclass(frozen=True, slots=True)
class _Pass:
    """One forward pass to be laid out."""

    name: str
    work: RankWork
    machine: Machine
    batch: Batch
    parts_s: dict[str, float]
    layers: Sequence[_LayerShare]
    run_tokens: tuple[int, ...]
    drafting: bool


def mean_block_s(plan: Plan) -> float:
    """Mean seconds between two AllReduces of the target's pass, experts not counted."""
    blocks = [item for item in plan.items if isinstance(item, Block) and item.noisy and not item.drafting]
    reduces = sum(isinstance(item, Reduce) and not item.drafting for item in plan.items)
    return sum(value for block in blocks for _, value in block.seconds) / max(reduces, 1)


def plan_step(cell: StepCell) -> Plan:
    """The whole step: host, target pass, logits and sampling, then the drafter's passes."""
    system, p = cell.system, without_skew(cell.p)
    forward = {name: number(x) for name, x in forward_parts(system.work, system.machine, cell.batch, p).items()}
    target = _Pass(
        name="",
        work=system.work,
        machine=system.machine,
        batch=cell.batch,
        parts_s=forward | {"verify_path": cell.parts_s["verify_path"]},
        layers=_target_layers(cell, p, forward["overhead"]),
        run_tokens=tuple(cell.run_tokens),
        drafting=False,
    )
    moe_layers: list[MoeLayer] = []
    host = cell.parts_s["overhead"] - forward["overhead"]
    before = (("overhead", host), ("speculation_overhead", cell.parts_s["speculation_overhead"]))
    items: list[Item] = [Block("host", before, noisy=False)]
    items += _pass_items(target, p, moe_layers)
    items.append(Meet("logits gather and sampling", "sampling", cell.parts_s["sampling"]))
    items += _draft_items(cell, p, moe_layers)
    items.append(Meet("end of step", "overhead", 0.0, whole_box=True))
    return Plan(tuple(items), tuple(moe_layers))


def _pass_items(one: _Pass, p: Parameters, moe_layers: list[MoeLayer]) -> Iterable[Item]:
    """Embedding, layers, head. Communication that is no AllReduce of the layer stands where it belongs."""
    ranks = one.machine.parallel.tensor
    message = number(one.batch.rows) * one.work.hidden_size * ACTIVATION_BYTES
    reduces = ranks > 1 and one.work.num_collectives > 0

    def reduce(label: str) -> list[Item]:
        return [Reduce(one.name + label, message, ranks, one.drafting)] if reduces else []

    items: list[Item] = reduce("embedding")
    context_s = number(context_exchange_time_s(one.work, one.machine, one.batch, p)) / max(one.work.num_layers, 1)
    exchange_s = _other_communication_s(one, message, p)
    for number_, layer in enumerate(one.layers):
        label = f"{one.name}layer {number_}"
        attention = tuple((name, one.parts_s[name] * layer.share[name]) for name in ("attention", "kv_cache"))
        half = 0.5 * one.parts_s["overhead"] * layer.share["overhead"]
        path = one.parts_s.get("verify_path", 0.0) / len(one.layers)
        seconds = (*attention, ("overhead", half), ("verify_path", path))
        items.append(Block(f"{label} attention", seconds, drafting=one.drafting))
        if context_s:
            items.append(Meet(f"{label} context exchange", "allreduce", context_s, False, one.drafting))
        items += reduce(f"{label} attention")
        dense = (("shared_dense", one.parts_s["shared_dense"] * layer.share["shared_dense"]), ("overhead", half))
        experts = None
        if layer.moe is not None:
            experts = len(moe_layers)
            moe_layers.append(MoeLayer(layer.moe, one.machine, one.run_tokens, one.batch.expert_budget))
        if exchange_s and layer.moe is not None:
            items.append(Meet(f"{label} dispatch", "allreduce", 0.5 * exchange_s, True, one.drafting))
        items.append(Block(f"{label} feed-forward", dense, experts=experts, drafting=one.drafting))
        if exchange_s and layer.moe is not None:
            items.append(Meet(f"{label} combine", "allreduce", 0.5 * exchange_s, True, one.drafting))
        items += reduce(f"{label} feed-forward")
    if exchange_s and not any(layer.moe for layer in one.layers):
        items.append(Meet(f"{one.name}pipeline hops", "allreduce", exchange_s, False, one.drafting))
    rest = one.parts_s["overhead"] * (1.0 - sum(layer.share["overhead"] for layer in one.layers))
    items.append(
        Block(f"{one.name}head", (("lm_head", one.parts_s["lm_head"]), ("overhead", rest)), drafting=one.drafting)
    )
    return items


def _other_communication_s(one: _Pass, message: float, p: Parameters) -> float:
    """Seconds of expert exchange and pipeline hops of a pass, per MoE layer where it has any: the rest of its part."""
    reduced = number(context_exchange_time_s(one.work, one.machine, one.batch, p))
    if one.machine.parallel.tensor > 1 and one.work.num_collectives:
        reduced += one.work.num_collectives * number(allreduce_time_s(one.machine, message, p))
    rest = one.parts_s["allreduce"] - reduced
    layers = sum(layer.moe is not None for layer in one.layers) or 1
    return rest / layers if rest > 1e-6 * one.parts_s["allreduce"] else 0.0  # less is rounding


def _target_layers(cell: StepCell, p: Parameters, overhead_s: float) -> list[_LayerShare]:
    """The layers of the target in order (equal kinds stand together), each with its share of the parts of a pass."""
    system = cell.system
    shape, machine = system.shape, system.machine
    kv_bytes = kv_element_bytes(system.deployment.engine.kv_cache_dtype, shape)
    of_no_layer = fitted_values()["kernels"]["step"]
    rows: list[tuple[dict[str, float], MoeWork | None]] = []
    for layer in shape.layers:
        one = rank_work(replace(shape, layers=(replace(layer, count=1),)), machine.parallel, kv_bytes)
        bare = replace(one, num_kernels=one.num_kernels - of_no_layer, moe=())
        parts = {name: number(x) for name, x in forward_parts(bare, machine, cell.batch, p).items()}
        rows += [(parts, one.moe[0] if one.moe else None)] * layer.count
    return _shares(rows, overhead_s)


def _shares(rows: Sequence[tuple[dict[str, float], MoeWork | None]], overhead_s: float) -> list[_LayerShare]:
    """Each layer's share of the sums; of the pass's overhead the floors of some kernels belong to no layer."""
    totals = {name: sum(parts[name] for parts, _ in rows) for name in _PARTS_OF_A_LAYER}
    totals["overhead"] = overhead_s
    return [
        _LayerShare({name: parts[name] / totals[name] if totals[name] else 0.0 for name in totals}, moe)
        for parts, moe in rows
    ]


def _equal_layers(work: RankWork) -> list[_LayerShare]:
    """The layers of a drafter, all alike but for their experts."""
    count = max(work.num_layers, 1)
    kinds = [moe for moe in work.moe for _ in range(moe.num_layers)]
    padded: list[MoeWork | None] = [*kinds, *[None] * (count - len(kinds))]
    share = dict.fromkeys(_PARTS_OF_A_LAYER, 1.0 / count)
    return [_LayerShare(share, moe) for moe in padded[:count]]


def _draft_items(cell: StepCell, p: Parameters, moe_layers: list[MoeLayer]) -> Iterable[Item]:
    """The drafter: host search, or its passes as steps of the same kind, adding up to what `hwmodel` says."""
    total = cell.parts_s["drafter"]
    drafter = cell.system.drafter
    if not total:
        return []
    if drafter.work is None or drafter.machine is None:
        return [Block("draft search", (("drafter", total),), noisy=False, drafting=True)]
    total -= _drafter_skew_s(cell, drafter)
    passes = [
        _draft_pass(cell, drafter, p, turn) for turn in range(cell.num_speculative_tokens if drafter.sequential else 1)
    ]
    rest = total - sum(sum(one.parts_s.values()) for one in passes)
    items: list[Item] = []
    for one in passes:
        items.append(Block(f"{one.name}host", (("drafter", max(rest, 0.0) / len(passes)),), noisy=False, drafting=True))
        items += _pass_items(one, p, moe_layers)
        items.append(Meet(f"{one.name}logits", "drafter", 0.0, drafting=True))
    return items


def _draft_pass(cell: StepCell, drafter: Drafter, p: Parameters, turn: int) -> _Pass:
    """Pass `turn`: the first over the rows of the last step, the later ones over one row a request."""
    assert drafter.work is not None
    assert drafter.machine is not None
    query = cell.query_tokens if turn == 0 else 1
    work = drafter.first_work or drafter.work if turn == 0 else drafter.work
    drafted = float(cell.drafted)
    batch = decode_batch(drafted, drafted, np.array([float(query)]), cell.system.context_tokens, drafted * query)
    parts: dict[str, Any] = forward_parts(work, drafter.machine, batch, p)
    return _Pass(
        name=f"draft {turn + 1} ",
        work=work,
        machine=drafter.machine,
        batch=batch,
        parts_s={name: number(x) for name, x in parts.items()},
        layers=_equal_layers(work),
        run_tokens=(query,) * (cell.drafted * drafter.machine.parallel.data),
        drafting=True,
    )


def _drafter_skew_s(cell: StepCell, drafter: Drafter) -> float:
    """What `hwmodel` charges the drafter for waiting inside AllReduce: here that comes out of the simulation."""
    assert drafter.work is not None
    assert drafter.machine is not None
    if drafter.machine.parallel.tensor == 1:
        return 0.0
    passes = cell.num_speculative_tokens if drafter.sequential else 1
    return passes * drafter.work.num_collectives * number(cell.p.allreduce_skew_s)
