"""Closed-loop serving in closed form: step time, TPOT, throughput of both arms over a grid and over parameter draws.

C users each send a request, wait for its last token, and send the next. Agrees with the discrete-event simulation.
Equations in docs/model.md, section "Serving".
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwmodel.drafters import draft_time_s
from hwmodel.engine.graphs import graph_limit_tokens, padded_tokens
from hwmodel.engine.records import EngineMode
from hwmodel.memory import DraftMemory, MemoryBudget, MemoryPlan, max_running_requests, plan_memory
from hwmodel.parameters import Parameters
from hwmodel.records import dataclass
from hwmodel.step import STEP_PARTS, Batch, StepCost, StepMode, decode_batch, engine_parts
from hwmodel.units import GB, MS
from simulator.acceptance import AcceptanceDraws
from simulator.system import System

Array = NDArray[np.float64]

_KV_ESTIMATE_MARGIN = 1.15  # the reserve is an estimate: a refusal is stated only where it is clear
_RARE = 0.001  # share of steps that is not worth a graph of its own
DCP_DRAFT_PASS_S = 0.8 * MS  # decode-context parallelism adds this to a draft pass (docs/model.md, fit results)


@dataclass(frozen=True, slots=True)
class Cell:
    """One point of the grid."""

    num_speculative_tokens: int
    concurrency: int


@dataclass(frozen=True, slots=True)
class Capacity:
    """How many requests run at once for one draft length, and why not more."""

    memory: MemoryPlan
    max_running: int
    limited_by: str  # "max_num_seqs", "kv_cache", "max_num_batched_tokens", "does_not_fit"
    reason: str = ""  # why it does not fit

    def running(self, concurrency: int) -> tuple[int, str]:
        """Requests that run when `concurrency` are offered, and the limit in force (`concurrency` when none).

        What does not fit is computed as if it did, so that the figures can still be compared.
        """
        if concurrency <= self.max_running or self.limited_by == "does_not_fit":
            return concurrency, "does_not_fit" if self.limited_by == "does_not_fit" else "concurrency"
        return self.max_running, self.limited_by


@dataclass(frozen=True, slots=True)
class ArmResult:
    """One arm (baseline or speculation) over the grid; arrays `(num_draws, num_cells)`, seconds and tokens/s."""

    step_s: Array
    tpot_s: Array
    ttft_s: Array
    throughput_tokens_per_s: Array
    tokens_per_step: Array
    parts_s: dict[str, Array]
    running: Array  # (num_cells,)
    limited_by: tuple[str, ...]


def capacity(system: System, num_speculative_tokens: int, kv_cache_tokens: float | None = None) -> Capacity:
    """Memory and concurrency limit at one draft length; `kv_cache_tokens` is what the baseline's engine logged."""
    mode = system.mode(num_speculative_tokens)
    drafting = num_speculative_tokens > 0
    plan = memory_plan(system, drafting, kv_cache_tokens)
    reason = _refusal(system, plan)
    if reason:
        return Capacity(plan, 0, "does_not_fit", reason)
    per_request = system.deployment.workload.context_tokens + (mode.lookahead_slots if drafting else 0)
    held, limit = max_running_requests(plan.kv_cache_tokens, per_request, mode.max_num_seqs)
    if held == 0:
        text = f"the KV cache holds {plan.kv_cache_tokens:.0f} tokens, one request needs {per_request:.0f}"
        return Capacity(plan, 0, "does_not_fit", text)
    in_budget = mode.max_num_batched_tokens // (num_speculative_tokens + 1)
    if in_budget < held:
        held, limit = max(in_budget, 1), "max_num_batched_tokens"
    return Capacity(plan, held * system.parallel.data, limit)


def _refusal(system: System, plan: MemoryPlan) -> str:
    """Why the engine would not start; empty if it would. vLLM refuses a cache smaller than one longest request."""
    if not plan.fits:
        held = (plan.weight_bytes + plan.draft_bytes + max(plan.reserve_bytes, 0.0)) / GB
        return (
            f"{held:.1f} GB of weights and reserve a GPU, {plan.budget_bytes / GB:.1f} GB allowed by"
            " gpu_memory_utilization"
        )
    engine = system.deployment.engine
    longest = engine.max_model_len
    if (
        longest
        and engine.name == "vllm"
        and longest * plan.kv_bytes_per_token > plan.kv_cache_bytes * _KV_ESTIMATE_MARGIN
    ):
        return (
            f"the KV cache holds about {plan.kv_cache_tokens:,.0f} tokens, less than max_model_len {longest:,}:"
            " vLLM refuses to start; lower --max-model-len"
        )
    return ""


def memory_plan(system: System, drafting: bool, kv_cache_tokens: float | None = None) -> MemoryPlan:
    """Memory of one rank; the reserve is set so that a logged KV cache size is met."""
    deployment = system.deployment
    parallel = system.parallel
    shape = system.shape
    vision = shape.vision_bytes  # encoders are replicated by default
    reserve = float(system.priors["memory_reserve_gb"].center) * GB
    extra = vision
    if deployment.model.weights_gb is not None:
        stated = deployment.model.weights_gb * GB / (parallel.tensor * parallel.pipeline)
        extra = stated - system.work.weight_bytes / parallel.pipeline

    draft = DraftMemory(system.drafter.weight_bytes, system.drafter.kv_bytes_per_token)

    def plan(reserve_bytes: float, with_draft: bool) -> MemoryPlan:
        budget = MemoryBudget(system.gpu.memory_bytes, system.gpu_memory_utilization, reserve_bytes, extra)
        context = deployment.workload.context_tokens
        return plan_memory(system.work, parallel, budget, context, draft if with_draft else None)

    if kv_cache_tokens is not None:
        unreserved = plan(0.0, False)
        reserve = unreserved.kv_cache_bytes - kv_cache_tokens * unreserved.kv_bytes_per_token
    return plan(reserve, drafting)


def logged_kv_cache_tokens(system: System) -> float | None:
    """The KV cache size among the measured facts, if any."""
    logged = [m.kv_cache_tokens for m in system.deployment.measured if m.kv_cache_tokens]
    return float(logged[-1]) if logged else None


@dataclass(frozen=True, slots=True)
class PrefillCost:
    """What one request's prompt costs the step loop."""

    added_s: Array  # beyond the decode steps that run meanwhile, (num_draws, num_cells)
    steps: Array  # engine steps that carry a chunk of it, (num_cells,)

    def columns(self, index: NDArray[np.int_]) -> "PrefillCost":
        """The costs of some cells, in this order."""
        return PrefillCost(_picked(self.added_s, index), self.steps[index])


def _undrafted_step_mode(mode: EngineMode, graph: str) -> StepMode:
    """The step of an engine that does not speculate, in decode or with a prompt beside it: only the graph differs."""
    return StepMode(
        graph=graph,
        graph_limit_tokens=float(graph_limit_tokens(mode)),
        baseline_graph=graph,
        synchronous_baseline=not mode.async_scheduling,
        speculation=False,
        loses_async=False,
        rows_as_prefill=False,
    )


def baseline_step(
    system: System, p: Parameters, sequences: Array, context_tokens: Any, *, detail: bool = True
) -> StepCost:
    """The step without speculation for `sequences` requests per replica; parts `(num_draws, num_cells)`.

    Without `detail` there is one part, the whole step: what thousands of draws need, at half the time.
    """
    mode = system.mode(0)
    rows = _padded(mode, sequences, True, 1)
    batch = decode_batch(sequences, sequences, np.ones_like(sequences), context_tokens, rows)
    step = _undrafted_step_mode(mode, mode.uniform_decode_graph)
    return _finished(engine_parts(system.work, system.machine, batch, p, step), batch, p, detail)


@dataclass(frozen=True, slots=True)
class _Drafting:
    """The cells of one speculative evaluation: draft lengths and requests per replica, each `(num_cells,)`."""

    system: System
    lengths: NDArray[np.int_]
    sequences: Array
    context_tokens: Any  # mean context of a decode step: one number, or (num_cells,)
    detail: bool

    def some(self, index: NDArray[np.int_] | list[int]) -> "_Drafting":
        """Only these cells."""
        context = self.context_tokens[index] if np.ndim(self.context_tokens) else self.context_tokens
        return replace(self, lengths=self.lengths[index], sequences=self.sequences[index], context_tokens=context)

    @property
    def mode(self) -> EngineMode:
        """Facts that all the lengths share (see `_signature`)."""
        return self.system.mode(int(self.lengths[0]))

    def rows(self, tokens: Array, uniform: bool) -> Array:
        """Rows after padding, each cell by the captured sizes of its own draft length."""
        padded = np.empty(np.broadcast_shapes(np.shape(tokens), self.sequences.shape))
        tokens = np.broadcast_to(tokens, padded.shape)
        for k in sorted(set(self.lengths.tolist())):
            at = self.lengths == k
            padded[..., at] = _padded(self.system.mode(int(k)), tokens[..., at], uniform, int(k) + 1)
        return padded

    def step_mode(self, uniform: bool) -> StepMode:
        """Which software costs apply."""
        baseline, mode = self.system.mode(0), self.mode
        return StepMode(
            graph=mode.uniform_decode_graph if uniform else mode.mixed_decode_graph,
            graph_limit_tokens=np.array([float(graph_limit_tokens(self.system.mode(int(k)))) for k in self.lengths]),
            baseline_graph=baseline.uniform_decode_graph,
            synchronous_baseline=not baseline.async_scheduling,
            speculation=True,
            loses_async=baseline.async_scheduling and not mode.async_scheduling,
            rows_as_prefill=mode.multi_token_rows_as_prefill,
        )


def _signature(mode: EngineMode) -> tuple[Any, ...]:
    """What must agree for draft lengths to be evaluated together."""
    return (
        mode.uniform_decode_graph,
        mode.mixed_decode_graph,
        mode.async_scheduling,
        mode.multi_token_rows_as_prefill,
        mode.variable_draft_length,
    )


def speculative_step(
    system: System,
    p: Parameters,
    lengths: NDArray[np.int_],
    sequences: Array,
    draft_probability: Any,
    context_tokens: Any = None,
) -> StepCost:
    """The mean step with speculation for cells of draft length, requests per replica and mean context.

    `draft_probability` is `(num_draws, 1)` or `(num_draws, num_cells)`; `context_tokens` one number (default: the
    workload's) or `(num_cells,)`. Parts have shape `(num_draws, num_cells)`; for more than one draw there is one, the
    whole step.
    """
    context = system.context_tokens if context_tokens is None else context_tokens
    detail = np.size(p.kernel_floor_s) == 1
    drafting = _Drafting(system, lengths, sequences, context, detail)
    groups: dict[tuple[Any, ...], list[int]] = {}
    for i, k in enumerate(lengths):
        groups.setdefault(_signature(system.mode(int(k))), []).append(i)
    if len(groups) == 1:
        return _group_step(drafting, p, draft_probability)
    costs = {}
    for index in groups.values():
        share = draft_probability[:, index] if np.shape(draft_probability)[-1:] == lengths.shape else draft_probability
        costs[tuple(index)] = _group_step(drafting.some(index), p, share)
    order = np.argsort([i for index in groups.values() for i in index])
    parts = [cost.parts_s for cost in costs.values()]
    return StepCost({name: np.concatenate([each[name] for each in parts], axis=1)[:, order] for name in parts[0]})


def _group_step(drafting: _Drafting, p: Parameters, draft_probability: Any) -> StepCost:
    """Where drafts come and go (n-gram, suffix), the mixture of "nobody drafts", "everybody does" and "some do, in the
    conditional mean": exact for one request, the mean field for many (docs/model.md, eq. S2)."""
    sequences = drafting.sequences
    if not drafting.mode.variable_draft_length:
        return _drafted_step(drafting, p, sequences, uniform=True)
    nobody = _power(1.0 - draft_probability, sequences)
    everybody, at = _everybody(drafting, draft_probability)
    some = np.maximum(1.0 - nobody - everybody, 0.0)
    drafted = sequences * (draft_probability - everybody) / np.maximum(some, 1e-12)
    drafted = np.minimum(np.maximum(drafted, np.minimum(sequences, 1.0)), sequences)
    idle, busy = _idle_step(drafting, p), _drafted_step(drafting, p, drafted, uniform=False)
    parts = {name: some * busy.parts_s[name] + nobody * idle.parts_s[name] for name in busy.parts_s}
    if at.size:
        cells = drafting.some(at)
        whole = _drafted_step(cells, p, cells.sequences, uniform=True)
        for name, part in parts.items():
            part[:, at] += everybody[:, at] * whole.parts_s[name]
    return StepCost(parts)


def _everybody(drafting: _Drafting, draft_probability: Any) -> tuple[Array, NDArray[np.int_]]:
    """Share of steps in which every row has a draft of k tokens, so that a full graph is replayed, and its cells.

    0 where it is rare, and for suffix decoding, whose drafts are as long as the match.
    """
    share = _power(draft_probability, drafting.sequences)
    often = (share.max(axis=0) > _RARE) & (drafting.system.method != "suffix")
    return np.where(often, share, 0.0), np.flatnonzero(often)


def _power(share: Array, sequences: Array) -> Array:
    """`share ** sequences`, `(num_draws, num_cells)`; one share for all cells is raised once for each load."""
    if np.shape(share)[-1] != 1:
        return np.asarray(share**sequences)
    loads, cells = np.unique(sequences, return_inverse=True)
    return _picked(share**loads, cells)


def _drafted_step(drafting: _Drafting, p: Parameters, drafted: Any, *, uniform: bool) -> StepCost:
    system, query = drafting.system, drafting.system.verified_rows(drafting.lengths)
    tokens = drafting.sequences + drafted * (query - 1.0)
    rows = drafting.rows(tokens, uniform)
    batch = decode_batch(drafting.sequences, drafted, query, drafting.context_tokens, rows)
    budget = float(system.deployment.speculation.expert_budget or np.inf)
    batch = replace(batch, expert_budget=budget, draft_depth=drafting.lengths.astype(float))
    parts = engine_parts(system.work, system.machine, batch, p, drafting.step_mode(uniform))
    extra = DCP_DRAFT_PASS_S if system.parallel.decode_context > 1 else 0.0
    parts["drafter"] = draft_time_s(system.drafter, batch, p, decode_context_extra_s=extra)
    return _finished(parts, batch, p, drafting.detail)


def _idle_step(drafting: _Drafting, p: Parameters) -> StepCost:
    """A step of a speculating engine in which no request has a draft: one row each, computed once per load."""
    system = drafting.system
    contexts = np.broadcast_to(drafting.context_tokens, drafting.sequences.shape).tolist()
    cells = zip(drafting.sequences.tolist(), drafting.lengths.tolist(), contexts, strict=True)
    keys = [(x, system.mode(k).capture_sizes, context) for x, k, context in cells]
    place: dict[tuple[float, tuple[int, ...], float], int] = {}
    for i, key in enumerate(keys):
        place.setdefault(key, i)
    order = {key: j for j, key in enumerate(place)}
    index = [order[key] for key in keys]
    once = drafting.some(list(place.values()))
    loads, context = once.sequences, once.context_tokens
    batch = decode_batch(loads, loads, np.ones_like(loads), context, once.rows(loads, False))
    mode = replace(once.step_mode(False), rows_as_prefill=False)
    parts = engine_parts(system.work, system.machine, batch, p, mode)
    search = decode_batch(loads, loads, np.full_like(loads, 2.0), context, batch.rows)
    parts["drafter"] = draft_time_s(system.drafter, search, p)
    cost = _finished(parts, batch, p, drafting.detail)
    return StepCost({name: _picked(part, index) for name, part in cost.parts_s.items()})


def _padded(mode: EngineMode, tokens: Array, uniform: bool, query_len: int) -> Array:
    """Rows that run, as floats; a mean token count between two integers takes the graph of the larger."""
    rows = padded_tokens(mode, np.ceil(tokens - 1e-9), uniform, query_len)
    return np.asarray(np.maximum(np.asarray(rows, dtype=float), tokens))


def _finished(parts: dict[str, Any], batch: Batch, p: Parameters, detail: bool) -> StepCost:
    """The parts with one shape, or their sum as the only part."""
    draws = max(
        np.size(p.kernel_floor_s),
        *(np.shape(parts[name])[0] if np.ndim(parts[name]) == 2 else 1 for name in STEP_PARTS),
    )
    shape = (draws, len(batch.query_tokens))
    if not detail:
        small_first = sorted((np.asarray(parts[name], dtype=float) for name in STEP_PARTS), key=np.size)
        return StepCost({"step": np.broadcast_to(sum(small_first[1:], start=small_first[0]), shape)})
    return StepCost({name: np.broadcast_to(np.asarray(parts[name], dtype=float), shape) for name in STEP_PARTS})


def prefill_cost(system: System, p: Parameters, sequences: Array, step_s: Array) -> PrefillCost:
    """What the prompt of one request adds to the steps, decode running beside it (docs/model.md, eq. S3)."""
    workload, mode = system.deployment.workload, system.mode(0)
    prompt = workload.input_tokens * (1.0 - workload.prefix_cache_hit_share)
    budget = np.maximum(mode.max_num_batched_tokens - sequences, 1.0)
    steps = np.maximum(np.ceil(prompt / budget), 1.0)
    chunk = np.maximum(prompt / steps, 1.0)
    before = workload.input_tokens - prompt + prompt * (steps - 1.0) / (2.0 * steps)
    others = np.maximum(sequences - 1.0, 0.0)
    batch = Batch(others, others, np.ones_like(sequences), system.context_tokens, others + chunk, chunk, before)
    step = _undrafted_step_mode(mode, mode.mixed_decode_graph)
    # The overhead of a token row was fitted to decode; prompt rows are not charged with it.
    mixed = sum(engine_parts(system.work, system.machine, batch, p, step).values()) - p.token_overhead_s * chunk
    return PrefillCost(steps * np.maximum(mixed - step_s, 0.0), steps)


def arm(system: System, step: StepCost, prefill: PrefillCost, tokens_per_step: Any, load: "Load") -> ArmResult:
    """TPOT, TTFT and throughput of one arm from its mean step (docs/model.md, eq. S1).

    A user's cycle is its prompt, its decode steps, and the prompts of the others that run beside it:
    W = added + steps * t + (L - 1) / A * t + (B - 1) * added;  X = B L / W;  TPOT = (W - TTFT) / (L - 1).
    """
    step_s = step.total_s
    output = float(system.deployment.workload.output_tokens)
    own = prefill.added_s + prefill.steps * step_s
    decode = (output - 1.0) / tokens_per_step * step_s
    beside = (np.maximum(load.running / system.batch_divisor, 1.0) - 1.0) * prefill.added_s
    cycle = own + decode + beside
    return ArmResult(
        step_s=step_s,
        tpot_s=(decode + beside) / (output - 1.0) if output > 1 else step_s / tokens_per_step,
        ttft_s=own + (load.offered / load.running - 1.0) * cycle,
        throughput_tokens_per_s=load.running * output / cycle,
        tokens_per_step=np.broadcast_to(tokens_per_step, step_s.shape),
        parts_s=step.parts_s,
        running=load.running,
        limited_by=load.limited_by,
    )


@dataclass(frozen=True, slots=True)
class Load:
    """Offered and running requests of each cell, and the limit in force."""

    offered: Array
    running: Array
    limited_by: tuple[str, ...]

    @classmethod
    def of(cls, offered: Sequence[int], caps: Sequence[Capacity]) -> "Load":
        """The load of cells with these capacities."""
        running, limits = zip(*(cap.running(c) for cap, c in zip(caps, offered, strict=True)), strict=True)
        return cls(np.array(offered, dtype=float), np.array(running, dtype=float), limits)

    def sequences(self, system: System) -> Array:
        """Requests per replica and micro-batch."""
        return np.maximum(self.running / system.batch_divisor, 1.0)


@dataclass(frozen=True, slots=True)
class Grid:
    """Both arms over the same cells and draws. `speedup` is throughput over throughput, model error not included."""

    cells: tuple[Cell, ...]
    baseline: ArmResult
    speculative: ArmResult

    @property
    def speedup(self) -> Array:
        """Throughput of the speculative arm over that of the baseline, `(num_draws, num_cells)`."""
        return self.speculative.throughput_tokens_per_s / self.baseline.throughput_tokens_per_s


def evaluate(
    system: System,
    p: Parameters,
    cells: Sequence[Cell],
    survival: Array,
    draft_probability: Array,
    kv_cache_tokens: float | None = None,
) -> Grid:
    """Both arms at every cell.

    `survival` is `(num_draws, k_max)`: what the k-th draft token adds to the accepted tokens of a draft.
    `draft_probability` is `(num_draws, 1)`, or `(num_draws, k_max)` where it depends on the draft length.
    """
    caps = {k: capacity(system, k, kv_cache_tokens) for k in {0, *(cell.num_speculative_tokens for cell in cells)}}
    loads = sorted({cell.concurrency for cell in cells})
    base_load = Load.of(loads, [caps[0]] * len(loads))
    detail = np.size(p.kernel_floor_s) == 1
    step = baseline_step(system, p, base_load.sequences(system), system.context_tokens, detail=detail)
    prefill = prefill_cost(system, p, base_load.sequences(system), step.total_s)
    base = arm(system, step, prefill, 1.0, base_load)
    index = np.array([loads.index(cell.concurrency) for cell in cells])
    baseline = arm_columns(base, index)
    drafting = [i for i, cell in enumerate(cells) if cell.num_speculative_tokens]
    if not drafting:
        return Grid(tuple(cells), baseline, baseline)
    chosen = [cells[i] for i in drafting]
    lengths = np.array([cell.num_speculative_tokens for cell in chosen])
    load = Load.of([cell.concurrency for cell in chosen], [caps[int(k)] for k in lengths])
    share = draft_probability if draft_probability.shape[1] == 1 else _picked(draft_probability, lengths - 1)
    spec_step = speculative_step(system, p, lengths, load.sequences(system), share)
    emitted = 1.0 + share * _picked(np.cumsum(survival, axis=1), lengths - 1)
    spec = arm(system, spec_step, prefill.columns(index[drafting]), emitted, load)
    return Grid(tuple(cells), baseline, _merged(baseline, spec, drafting))


def _picked(values: Array, cells: Sequence[int] | NDArray[np.int_]) -> Array:
    """Columns of `values`, laid out as it is: what indexing makes is several times slower to compute with."""
    return np.take(values, cells, axis=1)


def arm_columns(result: ArmResult, index: NDArray[np.int_]) -> ArmResult:
    """The result with its columns picked by `index`; parts are carried for a single draw only (nothing reads more)."""
    single = result.step_s.shape[0] == 1
    return ArmResult(
        step_s=_picked(result.step_s, index),
        tpot_s=_picked(result.tpot_s, index),
        ttft_s=_picked(result.ttft_s, index),
        throughput_tokens_per_s=_picked(result.throughput_tokens_per_s, index),
        tokens_per_step=_picked(result.tokens_per_step, index),
        parts_s={name: _picked(part, index) for name, part in result.parts_s.items()} if single else {},
        running=result.running[index],
        limited_by=tuple(result.limited_by[i] for i in index),
    )


def _merged(baseline: ArmResult, spec: ArmResult, drafting: Sequence[int]) -> ArmResult:
    """The baseline's columns with those of the drafting cells replaced."""
    if len(drafting) == len(baseline.limited_by):
        return spec

    def merge(ours: Array, theirs: Array) -> Array:
        shape = (max(ours.shape[0], theirs.shape[0]), ours.shape[1])
        merged = np.array(np.broadcast_to(ours, shape))
        merged[:, drafting] = theirs
        return merged

    limits, running = list(baseline.limited_by), baseline.running.copy()
    for i, limit in zip(drafting, spec.limited_by, strict=True):
        limits[i] = limit
    running[drafting] = spec.running
    return ArmResult(
        step_s=merge(baseline.step_s, spec.step_s),
        tpot_s=merge(baseline.tpot_s, spec.tpot_s),
        ttft_s=merge(baseline.ttft_s, spec.ttft_s),
        throughput_tokens_per_s=merge(baseline.throughput_tokens_per_s, spec.throughput_tokens_per_s),
        tokens_per_step=merge(baseline.tokens_per_step, spec.tokens_per_step),
        parts_s={
            name: merge(part, spec.parts_s[name]) for name, part in baseline.parts_s.items() if name in spec.parts_s
        },
        running=running,
        limited_by=tuple(limits),
    )


def acceptance_arrays(acceptance: AcceptanceDraws, *, point: bool) -> tuple[Array, Array]:
    """Survival and draft probability as `evaluate` wants them: draws, or the medians as one draw."""
    if not acceptance.by_length:
        return _survival_and_share(acceptance, point)
    each = [_survival_and_share(own, point) for own in acceptance.by_length]
    accepted = np.stack([survival.sum(axis=1) for survival, _ in each], axis=1)
    return np.diff(accepted, axis=1, prepend=0.0), np.concatenate([share for _, share in each], axis=1)


def _survival_and_share(acceptance: AcceptanceDraws, point: bool) -> tuple[Array, Array]:
    if point:
        return acceptance.median_survival, np.array([[acceptance.median_draft_probability]])
    return acceptance.survival, acceptance.draft_probability
