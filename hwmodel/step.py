"""The cost of one forward pass and of one engine step, as named parts that add up.

The only caller of the operator formulas. Every argument is a number or an array that broadcasts to
`(num_draws, num_cells)`: a cell is a batch composition, a draw a set of parameters.
"""

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwmodel.collectives import AllReduceCurve, allgather_time_s, alltoall_time_s
from hwmodel.moe import ExpertLoad, Runs, expert_load
from hwmodel.parameters import Parameters, fitted_values, prior_table
from hwmodel.rank import MoeWork, Parallelism, RankWork
from hwmodel.records import dataclass
from hwmodel.roofline import operator_time_s, smooth_maximum
from hwmodel.specs import Gpu
from hwmodel.units import MS, US

Array = NDArray[np.float64]

STEP_PARTS = (
    "attention",
    "kv_cache",
    "experts",
    "shared_dense",
    "allreduce",
    "lm_head",
    "sampling",
    "overhead",
    "speculation_overhead",
    "verify_path",
    "drafter",
)
_SPLIT_KV_EXPONENT = 2.0
_HOST_OVERLAP_EXPONENT = 4.0  # launches and kernels overlap: the slower one decides
_SAMPLING_BASE_S = 120 * US  # V = 164k, B <= 64: 0.1-0.3 ms (docs/model.md, kernels)
_LOGITS_PASSES = 6  # reads and writes of the float32 logits: softmax, masks, sampling, rejection
_LOGITS_BYTES = 4
_ACTIVATION_BYTES = 2  # BF16
_ACTIVATION_PASSES = 20  # reads and writes of a row's hidden state in one layer, fused kernels counted as one
_PIPELINE_HOP_S = 10 * US  # one send and receive between stages
_MARLIN_TILE_ROWS = {"int4": 8, "int8": 8}
_DEFAULT_TILE_ROWS = 16


@dataclass(frozen=True, slots=True)
class Machine:
    """Where a pass runs: the GPU, the layout, the AllReduce curve and the engine's fitted constants."""

    gpu: Gpu
    parallel: Parallelism
    allreduce: AllReduceCurve
    interconnect: str
    attention_backend: str
    dense_format: str  # "bf16", "fp8", ...: the arithmetic of the dense layers

    @property
    def gemm_exponent(self) -> float:
        """How memory and compute time combine on this architecture (see `roofline.smooth_maximum`)."""
        return float(fitted_values()["gpu"].get(self.gpu.sm_arch, {}).get("gemm_exponent", 2.0))

    def flop_per_s(self, weight_format: str) -> float:
        """Dense peak of the units that multiply weights of this format."""
        if weight_format == "fp8" and self.gpu.fp8_flop_per_s:
            return self.gpu.fp8_flop_per_s
        if weight_format == "nvfp4" and self.gpu.fp4_flop_per_s:
            return self.gpu.fp4_flop_per_s
        return self.gpu.bf16_flop_per_s


@dataclass(frozen=True)
class Batch:
    """What one step processes, per data-parallel rank.

    `sequences` decode requests, of which `drafted` carry `query_tokens` rows and the rest one row; `rows` is what runs
    after padding to a captured graph; `prefill_tokens` belong to one request's chunk with `prefill_context_tokens`
    before it. Shapes broadcast to `(num_draws, num_cells)`; `query_tokens` is `(num_cells,)`.
    """

    sequences: Any
    drafted: Any
    query_tokens: Array
    context_tokens: Any
    rows: Any
    prefill_tokens: Array
    prefill_context_tokens: Array
    expert_budget: float = float("inf")  # experts per layer that are read at most (MoE-Spec, arXiv 2602.16052)
    draft_depth: Array | None = None  # where it is not query_tokens - 1: trees verify more rows than they are deep

    @property
    def drafts(self) -> Array:
        """Draft tokens of a drafted request in sequence: the depth of the draft."""
        return self.query_tokens - 1.0 if self.draft_depth is None else self.draft_depth

    @cached_property
    def decode_tokens(self) -> Any:
        """Token rows of the decode requests."""
        return self.sequences + self.drafted * (self.query_tokens - 1.0)

    @cached_property
    def tokens(self) -> Any:
        """Token rows that carry work."""
        return self.decode_tokens + self.prefill_tokens


@dataclass(frozen=True, slots=True)
class StepCost:
    """Seconds of one step by named part; arrays of one shape. `total_s` is their sum, nothing else is added."""

    parts_s: dict[str, Array]

    @property
    def total_s(self) -> Array:
        """Seconds of the whole step."""
        return np.asarray(sum(self.parts_s.values()))


def decode_batch(sequences: Any, drafted: Any, query_tokens: Any, context_tokens: Any, rows: Any) -> Batch:
    """A step without prefill; `query_tokens` has one entry a cell."""
    tokens = np.asarray(query_tokens, dtype=float)
    none = np.zeros_like(tokens)
    return Batch(sequences, drafted, tokens, context_tokens, rows, none, none)


def forward_parts(work: RankWork, machine: Machine, batch: Batch, p: Parameters) -> dict[str, Any]:
    """Seconds of one forward pass by part: weights, cache, experts, collectives, head and kernel floors."""
    bandwidth = p.bandwidth_efficiency * machine.gpu.memory_bandwidth_bytes_per_s
    dense_rate = p.dense_compute_efficiency * machine.flop_per_s(machine.dense_format)
    exponent = machine.gemm_exponent
    rows = batch.rows

    def dense(num_bytes: float, parameters: float, count: Any) -> Any:
        return operator_time_s(num_bytes, bandwidth, 2.0 * parameters * count, dense_rate, exponent)

    return {
        "attention": dense(work.attention_bytes, work.attention_parameters, rows),
        "kv_cache": cache_time_s(work, machine, batch, p),
        "experts": experts_time_s(work, machine, batch, p),
        "shared_dense": dense(work.dense_bytes, work.dense_parameters, rows),
        "allreduce": collective_time_s(work, machine, batch, p),
        "lm_head": dense(work.head_bytes, work.head_parameters, batch.tokens - batch.prefill_tokens),
        "overhead": floors_s(work, machine, batch, p) + activation_time_s(work, machine, batch, p),
    }


def cache_time_s(work: RankWork, machine: Machine, batch: Batch, p: Parameters) -> Any:
    """Seconds to attend to the cache: bytes of every sequence, more for extra query tokens, FLOP of prefill.

    Formula: sqrt(a^2 + b^2 + c^2) with a = scale * sum_seq bytes * (1 + eta * extra query tokens) / bandwidth;
    b = latency scale * bytes of one sequence / bandwidth, since few sequences do not fill the GPU; c = flop scale *
    FLOP / rate (docs/model.md, eq. K1).
    """
    bandwidth = p.bandwidth_efficiency * machine.gpu.memory_bandwidth_bytes_per_s
    rate = p.dense_compute_efficiency * machine.gpu.bf16_flop_per_s
    extra = 1.0 + p.verify_kv_share * (batch.query_tokens - 1.0) * batch.drafted / np.maximum(batch.sequences, 1e-9)
    seen = batch.prefill_context_tokens + 0.5 * batch.prefill_tokens
    read: Any = 0.0
    scanned: Any = 0.0
    pairs: Any = 0.0
    attended: Any = 0.0
    state = 0.0
    for c in work.cache:
        limit, per_token = min(c.window_tokens, c.selected_tokens), c.bytes_per_token / c.compress_ratio
        kept = c.num_layers * np.minimum(batch.context_tokens, limit)
        read = read + kept * per_token
        attended = attended + kept * c.decode_flop_per_pair / c.compress_ratio
        scanned = scanned + c.num_layers * batch.context_tokens * c.indexer_bytes_per_token
        pairs = pairs + c.num_layers * c.flop_per_pair * np.minimum(seen, limit) / c.compress_ratio
        state += c.num_layers * c.state_bytes_per_sequence
    one_s = (read + scanned) / bandwidth
    together_s = batch.sequences * one_s * extra * p.kv_read_scale
    decode = smooth_maximum(together_s, one_s * p.kv_latency_scale * (batch.sequences > 0), _SPLIT_KV_EXPONENT)
    decode = smooth_maximum(decode, batch.decode_tokens * attended * p.attention_flop_scale / rate, _SPLIT_KV_EXPONENT)
    return decode + batch.sequences * 2.0 * state / bandwidth + batch.prefill_tokens * pairs / rate


def experts_time_s(work: RankWork, machine: Machine, batch: Batch, p: Parameters) -> Any:
    """Seconds of all layers' routed experts: bytes of distinct ones against GEMM rows (docs/model.md, eq. E5)."""
    total: Any = 0.0
    for moe in work.moe:
        load = layer_load(moe, batch, p, machine.parallel.data)
        share = 1.0 if moe.num_ranks == 1 else load.busiest_rank / np.maximum(load.distinct, 1e-9)
        read = np.minimum(load.busiest_rank, batch.expert_budget)
        total = total + moe.num_layers * layer_experts_time_s(moe, machine, p, read, load.padded_rows * share)
    return total


def layer_experts_time_s(moe: MoeWork, machine: Machine, p: Parameters, experts_read: Any, padded_rows: Any) -> Any:
    """Seconds of one layer's routed experts on a rank that reads `experts_read` of them for `padded_rows` GEMM rows."""
    bandwidth = p.bandwidth_efficiency * machine.gpu.memory_bandwidth_bytes_per_s
    rate = p.expert_compute_efficiency * machine.flop_per_s(moe.weight_format)
    flop = 2.0 * padded_rows * moe.expert_parameters
    read = operator_time_s(experts_read * moe.expert_bytes, bandwidth, flop, rate, machine.gemm_exponent)
    return read + experts_read * p.expert_issue_s


def tile_rows(moe: MoeWork) -> int:
    """Rows of one tile of the grouped GEMM for these experts' weight format."""
    return _MARLIN_TILE_ROWS.get(moe.weight_format, _DEFAULT_TILE_ROWS)


def layer_load(moe: MoeWork, batch: Batch, p: Parameters, data_parallel: int) -> ExpertLoad:
    """Expert load of one MoE layer for every cell; all data-parallel ranks' tokens meet at the experts."""
    routing = p.independent_routing if moe.hash_routed else p.routing
    cells = len(batch.query_tokens)
    drafted, sequences = (_columns(x, cells) for x in (batch.drafted, batch.sequences))
    runs = []
    for i in range(cells):
        lengths, counts = [float(batch.query_tokens[i])], [drafted[i] * data_parallel]
        if np.any(sequences[i] != drafted[i]):
            lengths.append(1.0)
            counts.append((sequences[i] - drafted[i]) * data_parallel)
        if batch.prefill_tokens[i] > 0:
            lengths.append(float(batch.prefill_tokens[i]))
            counts.append(np.array([float(data_parallel)]))
        runs.append(Runs(tuple(lengths), tuple(counts)))
    n, k = moe.num_experts, moe.num_experts_per_tok
    return expert_load(n, k, runs, routing, num_ranks=moe.num_ranks, tile_rows=tile_rows(moe))


def _columns(values: Any, cells: int) -> list[Array]:
    """One array a cell: `(num_draws,)` where draws differ, else `(1,)`."""
    array = np.atleast_2d(np.asarray(values, dtype=float))
    array = np.broadcast_to(array, (array.shape[0], cells))
    constant = np.all(array == array[:1], axis=0)
    return [array[:1, i] if constant[i] else array[:, i] for i in range(cells)]


def collective_time_s(work: RankWork, machine: Machine, batch: Batch, p: Parameters) -> Any:
    """Seconds of AllReduce (network, skew), expert exchange and pipeline hops of a pass (docs/model.md, eq. A1)."""
    size = batch.rows * (work.hidden_size * _ACTIVATION_BYTES)
    parallel = machine.parallel
    total: Any = 0.0
    if parallel.tensor > 1 and work.num_collectives:
        total = work.num_collectives * (allreduce_time_s(machine, size, p) + p.allreduce_skew_s)
    total = total + context_exchange_time_s(work, machine, batch, p)
    if parallel.data > 1 and work.moe:
        total = total + _expert_exchange_s(work, machine, size, p)
    if parallel.pipeline > 1:
        hop = _PIPELINE_HOP_S + size / machine.gpu.pcie_bytes_per_s
        total = total + (parallel.pipeline - 1) * hop
    return total + 0.0 * size


def context_exchange_time_s(work: RankWork, machine: Machine, batch: Batch, p: Parameters) -> Any:
    """Seconds of a pass in which the ranks of decode-context parallelism gather queries and scatter partial outputs.

    Each is half an AllReduce of its bytes (see `collectives.allgather_time_s`); docs/model.md, eq. A3.
    """
    if not work.context_exchange_bytes:
        return 0.0
    one_way = p.context_exchange_scale * batch.rows * work.context_exchange_bytes / (2.0 * work.num_layers)
    return work.num_layers * (allreduce_time_s(machine, one_way, p) + 2.0 * p.allreduce_skew_s)


def allreduce_time_s(machine: Machine, num_bytes: Any, p: Parameters) -> Any:
    """Seconds of one AllReduce without skew: the curve, its latency and its growth scaled apart."""
    latency = machine.allreduce.latency_s
    growth = machine.allreduce.time_s(num_bytes) - latency
    return p.allreduce_latency_scale * latency + p.allreduce_size_scale * growth


def _expert_exchange_s(work: RankWork, machine: Machine, size: Any, p: Parameters) -> Any:
    """Dispatch and combine of every MoE layer between the data-parallel ranks."""
    layers = sum(m.num_layers for m in work.moe)
    ranks = machine.parallel.tensor * machine.parallel.data
    top_k = max(m.num_experts_per_tok for m in work.moe)
    per_rank = size / machine.parallel.tensor * min(top_k, ranks)
    one_way = alltoall_time_s(machine.gpu, ranks, machine.interconnect, per_rank)
    return 2.0 * layers * (p.allreduce_latency_scale * one_way + p.allreduce_skew_s)


def floors_s(work: RankWork, machine: Machine, batch: Batch, p: Parameters) -> Any:
    """Seconds that kernels take beyond bytes and FLOP: the floor of each, and attention's latency and ramp."""
    ramps = fitted_values()["attention_ramp"]
    ramp = ramps.get(machine.attention_backend, ramps["default"])
    climbed = np.minimum(batch.context_tokens / ramp["full_at_tokens"], 1.0)
    scale = p.attention_latency_s / (fitted_latency_s())
    attention = p.attention_latency_s + scale * ramp["latency_us"] * US * climbed
    return p.kernel_floor_s * work.num_kernels + work.num_attention_calls * attention


def activation_time_s(work: RankWork, machine: Machine, batch: Batch, p: Parameters) -> Any:
    """Seconds that norms, rotary embedding, residuals and other elementwise kernels take for the token rows.

    Formula: scale * rows * layers * hidden_size * 2 bytes * passes / bandwidth (docs/model.md, eq. F2).
    """
    bandwidth = p.bandwidth_efficiency * machine.gpu.memory_bandwidth_bytes_per_s
    row_bytes = work.num_layers * work.hidden_size * _ACTIVATION_BYTES * _ACTIVATION_PASSES
    return p.activation_scale * batch.rows * row_bytes / bandwidth


def fitted_latency_s() -> float:
    """The median attention latency that the ramp was fitted with."""
    return float(prior_table()["attention_latency_us"]["median"]) * US


@dataclass(frozen=True, slots=True)
class StepMode:
    """How the engine runs a step: which terms of software cost apply."""

    graph: str  # "full", "piecewise", "none": while the rows fit in a captured graph
    graph_limit_tokens: Any  # rows beyond it run without a graph; one number, or one a cell
    baseline_graph: str  # what the same step would replay if nothing were drafted
    synchronous_baseline: bool  # the engine runs without async scheduling even when it does not speculate
    speculation: bool
    loses_async: bool  # turning the method on turns async scheduling off
    rows_as_prefill: bool  # drafted rows are verified by the prefill branch of the attention backend


def engine_parts(work: RankWork, machine: Machine, batch: Batch, p: Parameters, mode: StepMode) -> dict[str, Any]:
    """Seconds of one engine step on the target model by part, the drafter's left to `drafters.draft_time_s`."""
    parts = forward_parts(work, machine, batch, p)
    gpu_s = sum(parts.values())
    sequences = batch.sequences
    host = p.host_step_s + p.sequence_overhead_s * sequences + p.token_overhead_s * batch.tokens
    loss = graph_loss_s(work, gpu_s, p, batch.rows, mode)
    usual = (
        loss
        if mode.graph == mode.baseline_graph
        else np.minimum(loss, graph_loss_s(work, gpu_s, p, batch.rows, replace(mode, graph=mode.baseline_graph)))
    )
    parts["overhead"] = parts["overhead"] + host + usual
    parts["sampling"] = sampling_time_s(work, machine, batch, p)
    if mode.synchronous_baseline:
        parts["overhead"] = parts["overhead"] + p.synchronous_step_s
    if p.residual is not None:
        parts = _scaled(parts, p.residual.factor(batch.tokens, sequences))
    parts["speculation_overhead"] = 0.0
    parts["verify_path"] = 0.0
    if mode.speculation:
        software = p.synchronous_step_s if mode.loses_async else p.speculation_step_s
        parts["speculation_overhead"] = software + (loss - usual)
        if mode.rows_as_prefill:
            parts["verify_path"] = verify_path_time_s(work, batch, p)
        if p.residual is not None:
            parts = _scaled(parts, p.residual.drafted_factor())
    parts["drafter"] = 0.0
    return parts


def _scaled(parts: dict[str, Any], factor: Array) -> dict[str, Any]:
    return {name: part * factor for name, part in parts.items()}


def graph_loss_s(work: RankWork, gpu_s: Any, p: Parameters, rows: Any, mode: StepMode) -> Any:
    """Seconds lost to launches that no full CUDA graph hides, the cliff above the largest graph included.

    Piecewise: a constant a layer. Without a graph the host launches every kernel; launches and kernels overlap, so the
    slower of the two decides (docs/model.md, eq. M1).
    """
    captured = 0.0 if mode.graph == "full" else p.piecewise_layer_s * work.num_attention_calls
    if mode.graph != "none" and np.all(np.asarray(rows) <= mode.graph_limit_tokens):
        return captured
    launch = p.eager_kernel_s * work.num_kernels
    eager = smooth_maximum(gpu_s, launch, _HOST_OVERLAP_EXPONENT) - gpu_s
    if mode.graph == "none":
        return eager
    return np.where(np.asarray(rows) <= mode.graph_limit_tokens, captured, np.maximum(eager, captured))


def sampling_time_s(work: RankWork, machine: Machine, batch: Batch, p: Parameters) -> Any:
    """Seconds to gather logits over the ranks, sample, and reject: a base, logits traffic, one collective."""
    rows = batch.tokens - batch.prefill_tokens
    bandwidth = p.bandwidth_efficiency * machine.gpu.memory_bandwidth_bytes_per_s
    traffic = rows * (work.vocab_size * _LOGITS_BYTES * _LOGITS_PASSES) / bandwidth
    gather: Any = 0.0
    if machine.parallel.tensor > 1:
        size = rows * (work.vocab_size * _ACTIVATION_BYTES)
        gather = allgather_time_s(machine.allreduce, size, machine.parallel.tensor)
    return p.sampling_scale * (_SAMPLING_BASE_S + traffic) + gather


def verify_path_time_s(work: RankWork, batch: Batch, p: Parameters) -> Any:
    """Seconds that drafted rows lose in the prefill branch of the attention backend (docs/model.md, eq. V1).

    The branch up-projects the cached context of all drafted rows in one call, so the measured curve (one request) is
    read at their summed context.
    """
    table = fitted_values()["verify_path"]
    context = np.asarray(batch.context_tokens * batch.drafted, dtype=float)
    tokens, penalty = np.array(table["context_tokens"], float), np.array(table["penalty_ms"], float) * MS
    slope = (penalty[-1] - penalty[-2]) / (tokens[-1] - tokens[-2])
    time_s = np.interp(context, tokens, penalty) + slope * np.maximum(context - tokens[-1], 0.0)
    return p.verify_path_applies * p.verify_path_scale * time_s * (work.num_attention_calls / table["num_layers"])
