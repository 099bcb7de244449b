"""Why: which parts of a step make or eat the gain, in plain words with numbers, and what would settle it."""

import numpy as np

from hwmodel.drafters import MODEL_FREE_METHODS, NGRAM_METHODS
from hwmodel.moe import Routing, expected_distinct, uniform_distinct
from hwmodel.percent import percent
from hwmodel.step import STEP_PARTS
from hwmodel.units import MS
from simulator.closed_form import Cell, Grid, capacity, speculative_step
from simulator.results import JsonObject
from simulator.study import Study

PART_WORDS = {
    "attention": "attention weights",
    "kv_cache": "KV cache reading",
    "experts": "routed experts",
    "shared_dense": "dense and shared weights",
    "allreduce": "AllReduce",
    "lm_head": "LM head",
    "sampling": "sampling and logits",
    "overhead": "kernel floors and host",
    "speculation_overhead": "software cost of speculation",
    "verify_path": "verify path (prefill branch)",
    "drafter": "drafter",
}
_MENTIONED_SHARE = 0.02  # of the step; smaller parts stay in parts_s
_SURPRISE = 2.0  # prior standard deviations, or noise units of a measured fact


def milliseconds(seconds: float) -> str:
    """A time in ms with three figures."""
    value = seconds / MS
    return f"{value:.0f} ms" if value >= 100 else f"{value:.1f} ms" if value >= 10 else f"{value:.2f} ms"


def parts_at(parts: dict[str, np.ndarray], column: int) -> dict[str, float]:
    """The parts of one cell at the first (only) draw."""
    return {name: float(parts[name][0, column]) for name in STEP_PARTS}


def distinct_experts(study: Study, cell: Cell) -> JsonObject | None:
    """Expected distinct experts per MoE layer of one step of both arms, by this routing model and the uniform one."""
    moe = study.system.work.moe
    if not moe:
        return None
    block = moe[-1]
    p = study.point_parameters
    sigma, rho, memory = (float(np.ravel(x)[0]) for x in (p.popularity_sigma, p.stickiness, p.routing_memory))
    running = capacity(study.system, cell.num_speculative_tokens, study.kv_cache_tokens).running(cell.concurrency)[0]
    requests = max(running // study.system.batch_divisor, 1) * study.system.parallel.data
    tokens = requests * (cell.num_speculative_tokens + 1)

    budget = study.deployment.speculation.expert_budget or block.num_experts

    def union(routing: Routing, at: float) -> float:
        return expected_distinct(block.num_experts, block.num_experts_per_tok, at, requests, routing)

    routing = Routing(sigma, rho, memory)
    return {
        "tokens": tokens,
        "baseline": union(routing, requests),
        "speculative": min(union(routing, tokens), budget),
        "uniform": uniform_distinct(block.num_experts, block.num_experts_per_tok, tokens),
        "num_experts": block.num_experts,
        "routing_model": f"popularity sigma {sigma:.2f}, stickiness {rho:.2f}, memory {memory:.1f} within a request",
    }


def explain_cell(study: Study, cell: Cell, grid: Grid, column: int) -> list[str]:
    """Sentences about one cell of a point grid."""
    base, spec = parts_at(grid.baseline.parts_s, column), parts_at(grid.speculative.parts_s, column)
    lines = [baseline_sentence(study, cell, base)]
    if cell.num_speculative_tokens == 0:
        return lines
    lines += [difference_sentence(study, cell, base, spec)]
    lines += optional_sentences(drafted_step_sentence(study, cell, grid, column), experts_sentence(study, cell))
    lines += [tokens_sentence(study, cell, grid, column, base, spec)]
    lines += optional_sentences(hardware_only_sentence(grid, column, spec))
    return lines


def optional_sentences(*lines: str | None) -> list[str]:
    """Those that have something to say."""
    return [line for line in lines if line]


def baseline_sentence(study: Study, cell: Cell, base: dict[str, float]) -> str:
    """Where the time of a baseline step goes."""
    total = sum(base.values())
    largest = sorted(base, key=lambda name: -base[name])[:4]
    parts = ", ".join(
        f"{PART_WORDS[name]} {milliseconds(base[name])} ({percent(base[name] / total)})" for name in largest
    )
    return f"Without speculation a step at concurrency {cell.concurrency} takes {milliseconds(total)}: {parts}."


def difference_sentence(study: Study, cell: Cell, base: dict[str, float], spec: dict[str, float]) -> str:
    """What speculation adds to the mean step, part by part."""
    change = {name: spec[name] - base[name] for name in STEP_PARTS}
    total = sum(spec.values())
    shown = [
        name for name in sorted(change, key=lambda n: -abs(change[n])) if abs(change[name]) >= _MENTIONED_SHARE * total
    ]
    always = ("speculation_overhead", "verify_path", "experts", "allreduce")
    shown += [name for name in always if name not in shown and change[name] > 0.0]
    parts = ", ".join(f"{PART_WORDS[name]} {change[name] / MS:+.2f} ms" for name in shown)
    mean = "The mean step" if study.system.method in MODEL_FREE_METHODS else "The step"
    return (
        f"{mean} with k={cell.num_speculative_tokens} takes {milliseconds(total)}"
        f" ({total / sum(base.values()):.2f}x the baseline's): {parts or 'nothing of note is added'}."
    )


def drafted_step_sentence(study: Study, cell: Cell, grid: Grid, column: int) -> str | None:
    """For methods whose drafts come and go: the step with a draft against the one without."""
    k = cell.num_speculative_tokens
    if not study.system.mode(k).variable_draft_length or grid.speculative.running[column] > 1:
        return None
    lengths, one = np.array([k]), np.array([1.0])
    with_draft = speculative_step(study.system, study.point_parameters, lengths, one, np.array([[1.0]]))
    without = speculative_step(study.system, study.point_parameters, lengths, one, np.array([[0.0]]))
    probability = study.acceptance.for_length(k).median_draft_probability
    path = float(with_draft.parts_s["verify_path"][0, 0])
    return (
        f"About {percent(probability)} of the steps carry a draft; such a step takes"
        f" {milliseconds(float(with_draft.total_s[0, 0]))} ({path / MS:.1f} of it verify path), one without"
        f" {milliseconds(float(without.total_s[0, 0]))}."
    )


def experts_sentence(study: Study, cell: Cell) -> str | None:
    """How many distinct experts the verified tokens read."""
    counts = distinct_experts(study, cell)
    if counts is None:
        return None
    return (
        f"Verifying {counts['tokens']} tokens reads {counts['speculative']:.1f} of {counts['num_experts']} experts"
        f" per MoE layer instead of {counts['baseline']:.1f} (routing model: {counts['routing_model']};"
        f" independent uniform tokens would read {counts['uniform']:.1f})."
    )


def tokens_sentence(
    study: Study, cell: Cell, grid: Grid, column: int, base: dict[str, float], spec: dict[str, float]
) -> str:
    """Tokens per step against break-even, and where the acceptance comes from."""
    per_step = float(grid.speculative.tokens_per_step[0, column])
    needed = sum(spec.values()) / sum(base.values())
    return (
        f"A request emits {per_step:.2f} tokens per step and breaks even at {needed:.2f}."
        f" Acceptance: {study.acceptance.for_length(cell.num_speculative_tokens).source}"
    )


def hardware_only_sentence(grid: Grid, column: int, spec: dict[str, float]) -> str | None:
    """What the speedup would be without software cost and verify path, where those matter."""
    soft = spec["speculation_overhead"] + spec["verify_path"]
    total = sum(spec.values())
    if soft < _MENTIONED_SHARE * total:
        return None
    now = float(grid.speedup[0, column])
    added = total - sum(parts_at(grid.baseline.parts_s, column).values())
    verdict = ", so this is software more than hardware" if soft > 0.5 * added else ""
    return (
        f"Software cost and verify path take {percent(soft / total)} of the step: without them the speedup would be"
        f" about {now * total / (total - soft):.2f} instead of {now:.2f}{verdict}."
    )


def settling_observations(study: Study, num_speculative_tokens: int) -> list[str]:
    """What to look at in the running baseline or after one restart that decides between the explanations."""
    if num_speculative_tokens == 0:
        return []
    method, lines = study.system.method, []
    mode, baseline = study.system.mode(num_speculative_tokens), study.system.mode(0)
    if method in NGRAM_METHODS and mode.variable_draft_length:
        lines.append(
            "To settle it: vllm:spec_decode_num_drafts / decode steps (inter_token_latency count) is the share of steps"
            " with a draft; above 0.5 the cost would be expert and AllReduce work, near 0.1 it cannot be."
        )
        lines.append(
            "To settle it: count accepted drafts in recorded outputs (acceptance of this file); it needs no restart and"
            " replaces the acceptance prior."
        )
    if baseline.async_scheduling and not mode.async_scheduling:
        lines.append(
            "To settle it: a baseline run with --no-async-scheduling isolates the per-step software cost (one restart,"
            " no drafts); or the latency of steps without a draft against the baseline's TPOT."
        )
    if mode.multi_token_rows_as_prefill:
        lines.append(
            "To settle it: the latency of drafted steps at two contexts; if it is flat in context, the verify path is"
            " not to blame."
        )
    if method not in MODEL_FREE_METHODS and study.acceptance.is_prior:
        lines.append(
            f"To settle it: one restart with {method} k=3 and a concurrency sweep: acceptance is only a prior so far."
        )
    if (
        study.system.parallel.tensor > 1
        and study.system.machine.allreduce.kind != "user"
        and not study.deployment.measured
    ):
        lines.append(
            "To narrow it: nccl-tests (all_reduce_perf) on this box, and one baseline TPOT under [[measured]]."
        )
    return lines


def conflict_notes(study: Study) -> list[str]:
    """Warnings where the measured facts and the priors do not go together."""
    notes = []
    for label, residual in zip(study.posterior.labels, study.posterior.residuals, strict=True):
        if abs(residual) > _SURPRISE:
            side = "more" if residual > 0 else "less"
            notes.append(
                f"the measured {label} is {abs(residual):.1f} noise widths {side} than the model can reach: check it"
            )
    moved = [
        f"{prior.name} ({z:+.1f})"
        for prior, z in zip(study.system.priors.priors, study.posterior.mode, strict=True)
        if abs(z) > _SURPRISE and prior.name != "model_error"
    ]
    if moved:
        notes.append(
            f"the measured facts move parameters far from their priors, in standard deviations: {', '.join(moved)}; the"
            " deployment may run otherwise than stated (attention backend, AllReduce class, graphs)"
        )
    return notes


def gain_end(study: Study, num_speculative_tokens: int) -> tuple[float | None, int, str]:
    """Where the median speedup falls to 1: the concurrency (None: not before the limit), the limit, and its name."""
    cap = capacity(study.system, num_speculative_tokens, study.kv_cache_tokens)
    base = capacity(study.system, 0, study.kv_cache_tokens)
    if base.max_running > cap.max_running:  # the baseline may hold more requests than speculation leaves room for
        cap = base
    limit = max(cap.max_running, 1)
    loads = sorted({*(2**i for i in range(limit.bit_length()) if 2**i <= limit), limit})
    grid = study.grid([Cell(num_speculative_tokens, c) for c in loads], point=True)
    speedup = grid.speedup[0]
    above = speedup > 1.0
    if not above.any():
        return 0.0, limit, cap.limited_by
    last = int(np.max(np.flatnonzero(above)))
    if last == len(loads) - 1:
        return None, limit, cap.limited_by
    x0, x1 = np.log(loads[last]), np.log(loads[last + 1])
    y0, y1 = np.log(speedup[last]), np.log(speedup[last + 1])
    return float(np.exp(x0 + (x1 - x0) * y0 / (y0 - y1))), limit, cap.limited_by


def gain_end_sentence(study: Study, num_speculative_tokens: int) -> str:
    """The load at which the gain ends, in words."""
    end, limit, name = gain_end(study, num_speculative_tokens)
    k = num_speculative_tokens
    if name == "does_not_fit":
        return f"With k={k} it does not fit in memory, so no load can be named at which the gain would end."
    words = {"kv_cache": "the KV cache holds"}.get(name, f"{name} allows")
    limits = f"{limit} requests, which {words}"
    held = capacity(study.system, k, study.kv_cache_tokens).max_running
    limits += f" without speculation ({held} with it)" if held < limit else ""
    if end is None:
        return f"With k={k} the gain does not end before the limit: {limits} (median)."
    if end == 0.0:
        return f"With k={k} there is no gain at any load up to the limit of {limits} (median)."
    return f"With k={k} the gain ends near concurrency {end:.0f} (median); the limit is {limits}."
