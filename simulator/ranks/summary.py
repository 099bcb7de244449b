"""From simulated steps to the answer: means per rank and link, the AllReduce apart, growth with load, and why."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hwmodel.rank import MoeWork
from hwmodel.step import STEP_PARTS, layer_load
from simulator.answers import recorded_inputs
from simulator.ranks import why
from simulator.ranks.cell import StepCell, left_out, number, step_cell
from simulator.ranks.expert_loads import LayerLoad
from simulator.ranks.links import Link
from simulator.ranks.plan import ACTIVATION_BYTES, Reduce
from simulator.ranks.rank_process import RankAccount
from simulator.ranks.reduce_plan import Planned
from simulator.ranks.report import AllReduceReport, ExpertReport, LinkReport, RankReport, RankStep
from simulator.study import Study

if TYPE_CHECKING:
    from simulator.ranks.step import Simulation, StepQuestion

JsonObject = dict[str, Any]
_GROWTH_CONCURRENCY = (1, 4, 16, 64)


@dataclass(frozen=True)
class StepResult:
    """One simulated step."""

    step_s: float
    accounts: dict[int, RankAccount]
    loads: list[LayerLoad]
    links: list[Link]


def summarise(
    study: Study, simulation: "Simulation", asked: "StepQuestion", results: Sequence[StepResult], notes: Sequence[str]
) -> RankStep:
    """The mean over the steps, with everything that explains it."""
    cell = simulation.cell
    step_s = _mean([result.step_s for result in results])
    parts = {name: _mean([_part(result, name) for result in results]) for name in STEP_PARTS}
    allreduce = _allreduce(simulation, results, step_s)
    experts = _experts(study, simulation, results)
    growth = _growth(study, simulation, allreduce.skew_s)
    settings = {
        "num_speculative_tokens": cell.num_speculative_tokens,
        "concurrency": cell.concurrency,
        "sequences": cell.sequences,
        "drafted_sequences": cell.drafted if cell.num_speculative_tokens else 0,
        "rows": cell.rows,
        "topology": asked.topology,
        "algorithm": asked.algorithm,
        "protocol": asked.protocol,
        "jitter": asked.jitter,
        "steps": asked.steps,
        "seed": asked.seed,
    }
    return RankStep(
        inputs=recorded_inputs(study, settings),
        step_s=step_s,
        steps_s=tuple(result.step_s for result in results),
        parts_s=parts,
        closed_form=_closed_form(cell, asked.jitter, step_s),
        distinct_experts_per_layer=experts,
        ranks=tuple(_rank(rank, simulation, results) for rank in results[0].accounts),
        links=_links(results, step_s),
        allreduce=allreduce,
        growth=tuple(growth),
        box=_box(simulation),
        why=tuple(why.sentences(simulation, allreduce, growth, asked.jitter)),
        notes=tuple(
            dict.fromkeys(
                [
                    *notes,
                    *study.notes,
                    *study.system.notes,
                    *simulation.notes,
                    *_cell_notes(cell),
                    *left_out(study, cell),
                ]
            )
        ),
    )


def _mean(values: Sequence[float]) -> float:
    return float(sum(values) / len(values))


def _part(result: StepResult, name: str) -> float:
    return _mean([account.parts_s.get(name, 0.0) for account in result.accounts.values()])


def _closed_form(cell: StepCell, jitter: bool, step_s: float) -> JsonObject:
    """What `hwmodel` expects of the same step; without jitter nobody waits, so its skew is left out."""
    parts = dict(cell.parts_s)
    if not jitter:
        skew = number(cell.p.allreduce_skew_s)
        parts["allreduce"] -= _num_waits(cell) * skew
        parts["drafter"] -= _num_draft_waits(cell) * skew
    total = sum(parts.values())
    return {"step_s": total, "parts_s": parts, "simulated_over_expected": step_s / total}


def _num_waits(cell: StepCell) -> int:
    work, parallel = cell.system.work, cell.system.parallel
    reduces = work.num_collectives if parallel.tensor > 1 else 0
    exchanges = 2 * sum(m.num_layers for m in work.moe) if parallel.data > 1 else 0
    return reduces + exchanges


def _num_draft_waits(cell: StepCell) -> int:
    drafter = cell.system.drafter
    if not cell.num_speculative_tokens or drafter.work is None or drafter.machine is None:
        return 0
    passes = cell.num_speculative_tokens if drafter.sequential else 1
    reduces = drafter.work.num_collectives if drafter.machine.parallel.tensor > 1 else 0
    exchanges = 2 * sum(m.num_layers for m in drafter.work.moe) if drafter.machine.parallel.data > 1 else 0
    return passes * (reduces + exchanges)


def _rank(rank: int, simulation: "Simulation", results: Sequence[StepResult]) -> RankReport:
    accounts = [result.accounts[rank] for result in results]
    own = simulation.cell.system.work.moe
    layers = [load for result in results for load in _target_loads(simulation, result)]
    return RankReport(
        rank=rank,
        gpu=rank,
        compute_s=_mean([a.compute_s for a in accounts]),
        allreduce_s=_mean([a.parts_s.get("allreduce", 0.0) for a in accounts]),
        network_s=_mean([a.network_s for a in accounts]),
        wait_s=_mean([a.wait_s for a in accounts]),
        experts_s=_mean([a.parts_s.get("experts", 0.0) for a in accounts]),
        drafter_s=_mean([a.parts_s.get("drafter", 0.0) for a in accounts]),
        draft_communication_s=_mean([a.draft_communication_s for a in accounts]),
        distinct_experts_per_layer=_mean([load.distinct_by_rank[rank] for load in layers]) if own else None,
        times_last=_mean([float(a.times_last) for a in accounts]),
    )


def _links(results: Sequence[StepResult], step_s: float) -> tuple[LinkReport, ...]:
    rows = []
    for same in zip(*(result.links for result in results), strict=True):
        busy = _mean([link.busy_s for link in same])
        rows.append(
            LinkReport(
                name=same[0].spec.name,
                kind=same[0].spec.kind,
                num_messages=_mean([float(link.num_messages) for link in same]),
                num_bytes=_mean([link.num_bytes for link in same]),
                busy_s=busy,
                busy_share=busy / step_s,
                queued_s=_mean([link.queued_s for link in same]),
            )
        )
    return tuple(rows)


def _target_loads(simulation: "Simulation", result: StepResult) -> list[LayerLoad]:
    count = sum(m.num_layers for m in simulation.cell.system.work.moe)
    return result.loads[:count]


def _experts(study: Study, simulation: "Simulation", results: Sequence[StepResult]) -> ExpertReport | None:
    cell = simulation.cell
    loads = [load for result in results for load in _target_loads(simulation, result)]
    if not loads:
        return None
    work = max(cell.system.work.moe, key=lambda m: m.num_layers)
    spread = [load.distinct_by_rank for load in loads]
    uneven = [max(by_rank) / max(sum(by_rank) / len(by_rank), 1e-9) for by_rank in spread]
    return ExpertReport(
        sampled=_mean([float(load.distinct) for load in loads]),
        sampled_min=min(load.distinct for load in loads),
        sampled_max=max(load.distinct for load in loads),
        expected=_expected_distinct(cell, work),
        padded_rows=_mean([float(load.padded_rows) for load in loads]),
        busiest_rank_over_mean=_mean(uneven) if work.num_ranks > 1 else None,
        num_experts=work.num_experts,
        top_k=work.num_experts_per_tok,
        tokens=sum(cell.run_tokens),
    )


def _expected_distinct(cell: StepCell, work: MoeWork) -> float:
    """What the formula says for the same runs: drafted and single-row requests apart where both are there."""
    return number(layer_load(work, cell.batch, cell.p, cell.system.parallel.data).distinct)


def _allreduce(simulation: "Simulation", results: Sequence[StepResult], step_s: float) -> AllReduceReport:
    items = [item for item in simulation.plan.items if isinstance(item, Reduce) and not item.drafting]
    planner = simulation.planner
    if planner is None or not items:
        return AllReduceReport(0, 0.0, "none", 0.0, 0.0, 0.0, 0.0, 0.0, None, None, ())
    machine, size = simulation.cell.system.machine, items[0].num_bytes
    planned = planner.plan(machine, size)
    accounts = [account for result in results for account in result.accounts.values()]
    network = _mean([account.network_s for account in accounts]) / len(items)
    skew = _mean([account.wait_s for account in accounts]) / len(items)
    return AllReduceReport(
        count=len(items),
        bytes=size,
        algorithm=planned.choice.label,
        mean_s=network + skew,
        nccl_tests_s=planned.network_s,
        network_s=network,
        skew_s=skew,
        share=(network + skew) * len(items) / step_s,
        published_links_s=planned.published_s,
        calibration=planned.slowdown,
        alternatives=tuple(_alternative(other) for other in planner.alternatives(machine, size)),
    )


def _alternative(planned: Planned) -> JsonObject:
    return {
        "algorithm": planned.choice.label,
        "network_s": planned.network_s,
        "published_links_s": planned.published_s,
    }


def _growth(study: Study, simulation: "Simulation", skew_s: float) -> list[JsonObject]:
    """AllReduce against everything else as the step gets more rows: the share that grows, on this box."""
    planner, cell = simulation.planner, simulation.cell
    if planner is None:
        return []
    loads = sorted({*_GROWTH_CONCURRENCY, cell.concurrency})
    lengths = sorted({0, cell.num_speculative_tokens})
    rows = []
    for k in lengths:
        for load in loads:
            at = step_cell(study, k, load)
            work, machine = at.system.work, at.system.machine
            size = at.rows * work.hidden_size * ACTIVATION_BYTES
            each = planner.plan(machine, size).network_s + skew_s
            reduced = each * work.num_collectives
            rest = sum(seconds for name, seconds in at.parts_s.items() if name != "allreduce")
            rows.append(
                {
                    "concurrency": load,
                    "num_speculative_tokens": k,
                    "rows": at.rows,
                    "bytes": size,
                    "allreduce_s": each,
                    "step_s": rest + reduced,
                    "allreduce_share": reduced / (rest + reduced),
                }
            )
    return rows


def _box(simulation: "Simulation") -> JsonObject:
    planner = simulation.planner
    if planner is None:
        return {"interconnect": "none", "description": "no AllReduce", "num_links": 0}
    box = planner.box
    return {"interconnect": box.interconnect, "description": box.description, "num_links": len(box.links)}


def _cell_notes(cell: StepCell) -> list[str]:
    mode = cell.system.mode(cell.num_speculative_tokens)
    notes = []
    if cell.num_speculative_tokens and mode.variable_draft_length:
        notes.append(
            f"drafts come and go with {cell.system.method}: this is a step in which {cell.drafted} of {cell.sequences}"
            " requests have one"
        )
    if cell.system.parallel.pipeline > 1:
        notes.append("pipeline stages are walked one after the other by one group of ranks")
    return notes
