"""One forward pass and one engine step: each part by hand on a two-layer toy, then what must hold for any input."""

import functools
import operator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import GPU, NS_PER_BYTE, PS_PER_FLOP, ROOT_CURVE, TOY

from hwmodel.collectives import alltoall_time_s, zero_curve
from hwmodel.moe import expected_distinct
from hwmodel.parameters import PARAMETER_NAMES, Parameters, fitted_values, prior_table, si_name
from hwmodel.rank import Parallelism, RankWork, rank_work
from hwmodel.roofline import operator_time_s, smooth_maximum
from hwmodel.specs import Gpu, ModelShape
from hwmodel.step import (
    STEP_PARTS,
    Batch,
    Machine,
    StepCost,
    StepMode,
    context_exchange_time_s,
    decode_batch,
    engine_parts,
    forward_parts,
    verify_path_time_s,
)
from hwmodel.units import MS, US

# Perfect efficiency, nothing on top; each test turns on what it is about.
IDEAL: dict[str, Any] = dict.fromkeys(PARAMETER_NAMES, 0.0) | {
    "bandwidth_efficiency": 1.0,
    "dense_compute_efficiency": 1.0,
    "expert_compute_efficiency": 1.0,
    "popularity_sigma": 0.9,
    "stickiness": 0.2,
    "routing_memory": 6.5,
    "allreduce_latency_scale": 1.0,
    "allreduce_size_scale": 1.0,
    "kv_read_scale": 1.0,
    "kv_latency_scale": 0.0,
    "attention_flop_scale": 0.0,
    "context_exchange_scale": 1.0,
    "expert_issue_s": 0.0,
    "activation_scale": 0.0,
}
FULL_GRAPH = StepMode(
    graph="full",
    graph_limit_tokens=512.0,
    baseline_graph="full",
    synchronous_baseline=False,
    speculation=False,
    loses_async=False,
    rows_as_prefill=False,
)


def parameters(**changes: Any) -> Parameters:
    return Parameters(**(IDEAL | changes))


def machine(tensor: int = 1, gpu: Gpu = GPU, **changes: Any) -> Machine:
    facts = {
        "parallel": Parallelism(tensor=tensor),
        "allreduce": ROOT_CURVE if tensor > 1 else zero_curve(),
        "interconnect": "pcie-root",
        "attention_backend": "FLASH_ATTN",
        "dense_format": "bf16",
    }
    return Machine(gpu=gpu, **(facts | changes))


def with_layers(attention: dict[str, Any] | None = None, moe: dict[str, Any] | None = None) -> ModelShape:
    """The toy with changed attention in both layers, or changed experts."""
    layers = tuple(
        replace(x, attention=replace(x.attention, **(attention or {})), moe=x.moe and replace(x.moe, **(moe or {})))
        for x in TOY.layers
    )
    return replace(TOY, layers=layers)


def decode(sequences: float, query: float = 1.0, context: float = 0.0, drafted: float | None = None) -> Batch:
    """One cell; rows are not padded."""
    count, drafting = np.array([sequences]), np.array([sequences if drafted is None else drafted])
    return decode_batch(count, drafting, np.array([query]), context, count + drafting * (query - 1.0))


def prefill(tokens: float, before: float = 0.0, sequences: float = 0.0, context: float = 0.0) -> Batch:
    count = np.array([sequences])
    return Batch(count, count, np.ones(1), context, count + tokens, np.array([tokens]), np.array([before]))


def part(
    name: str,
    batch: Batch,
    *,
    shape: ModelShape = TOY,
    on: Machine | None = None,
    mode: StepMode = FULL_GRAPH,
    **changes: Any,
) -> float:
    """Seconds of one part of one engine step."""
    where = on or machine()
    work = rank_work(shape, where.parallel, 2.0)
    return float(np.ravel(engine_parts(work, where, batch, parameters(**changes), mode)[name])[0])


# Roofline


def test_exponents_interpolate_between_sum_and_maximum() -> None:
    assert smooth_maximum(3.0, 4.0, 1.0) == 7.0
    assert smooth_maximum(3.0, 4.0, 2.0) == pytest.approx(5.0)
    assert smooth_maximum(3.0, 4.0, 4.0) == pytest.approx(smooth_maximum(3.0, 4.0, 4.000001), rel=1e-6)
    assert smooth_maximum(3.0, 4.0, 50.0) == pytest.approx(4.0, rel=1e-6)


def test_an_operator_takes_the_root_sum_of_its_memory_and_compute_time() -> None:
    assert operator_time_s(3e9, 1e9, 4e12, 1e12, 2.0) == pytest.approx(5.0)


# Parts by hand


def test_attention_weights_are_read_once_and_multiplied_with_every_row() -> None:
    expected = 120_000 * NS_PER_BYTE + 2 * 60_000 * 12 * PS_PER_FLOP
    assert part("attention", decode(4, query=3)) == pytest.approx(expected)


def test_half_the_bandwidth_doubles_the_reading_only() -> None:
    expected = 2 * 120_000 * NS_PER_BYTE + 2 * 60_000 * 4 * PS_PER_FLOP
    assert part("attention", decode(4), bandwidth_efficiency=0.5) == pytest.approx(expected)


def test_eight_bit_layers_use_the_eight_bit_units_where_there_are_any() -> None:
    fp8 = machine(dense_format="fp8")
    assert part("attention", decode(4), on=fp8) == pytest.approx((120 + 0.24) * US)
    assert machine().flop_per_s("nvfp4") == machine().flop_per_s("int4") == 1e12
    assert machine(gpu=replace(GPU, fp4_flop_per_s=4e12)).flop_per_s("nvfp4") == 4e12


def test_dense_layers_are_the_dense_block_the_shared_expert_and_the_router() -> None:
    expected = 13_600 * NS_PER_BYTE + 2 * 6_800 * 4 * PS_PER_FLOP
    assert part("shared_dense", decode(4)) == pytest.approx(expected)


def test_the_head_sees_decode_rows_only() -> None:
    expected = 200_000 * NS_PER_BYTE + 2 * 100_000 * 3 * PS_PER_FLOP
    assert part("lm_head", prefill(500, sequences=3)) == pytest.approx(expected)


def test_every_sequence_reads_its_cache() -> None:
    assert part("kv_cache", decode(4, context=1_000)) == pytest.approx(4 * 1_000 * 400 * NS_PER_BYTE)
    assert part("kv_cache", decode(4, context=1_000), kv_read_scale=1.5) == pytest.approx(2.4 * MS)


def test_one_sequence_alone_is_read_at_its_own_pace() -> None:
    # 0.4 ms a sequence: alone the latency of twice that stands beside it, with four it stands beside 1.6 ms.
    alone = part("kv_cache", decode(1, context=1_000), kv_latency_scale=2.0)
    assert alone == pytest.approx(np.hypot(0.4, 0.8) * MS)
    four = part("kv_cache", decode(4, context=1_000), kv_latency_scale=2.0)
    assert four == pytest.approx(np.hypot(1.6, 0.8) * MS)


def test_decode_attention_computes_with_every_query_row_against_the_context() -> None:
    work = rank_work(TOY, Parallelism(), 2.0)
    flop = 1_000 * sum(c.num_layers * c.decode_flop_per_pair for c in work.cache)
    batch = decode(4, query=4, context=1_000, drafted=2)  # ten rows
    read_s, compute_s = 1.6 * MS, 10 * flop * PS_PER_FLOP * 3.0
    found = part("kv_cache", batch, attention_flop_scale=3.0)
    assert found == pytest.approx(np.hypot(read_s, compute_s))


def test_each_distinct_expert_takes_a_moment_of_its_own() -> None:
    without, with_issue = (part("experts", decode(4), expert_issue_s=each) for each in (0.0, 1 * US))
    moe = next(layer for layer in TOY.layers if layer.moe)
    assert moe.moe is not None
    read = expected_distinct(moe.moe.num_experts, moe.moe.num_experts_per_tok, 4, 4, parameters().routing)
    assert with_issue - without == pytest.approx(moe.count * read * US)


def test_elementwise_kernels_pass_over_every_row_of_every_layer() -> None:
    row_bytes = 20 * 2 * TOY.hidden_size * sum(layer.count for layer in TOY.layers)
    found = part("overhead", decode(4), activation_scale=1.5) - part("overhead", decode(4))
    assert found == pytest.approx(1.5 * 4 * row_bytes * NS_PER_BYTE)


def test_ranks_that_share_the_context_exchange_queries_and_outputs_once_a_layer() -> None:
    layout = Parallelism(tensor=2, decode_context=2)
    work = rank_work(TOY, layout, 2.0)
    there = machine(parallel=layout, allreduce=ROOT_CURVE)
    p = parameters(context_exchange_scale=0.5, allreduce_skew_s=1 * US)
    found = context_exchange_time_s(work, there, decode(4), p)
    one_way = 0.5 * 4 * work.context_exchange_bytes / (2 * work.num_layers)
    assert found == pytest.approx(work.num_layers * (ROOT_CURVE.time_s(one_way) + 2 * US))
    assert context_exchange_time_s(rank_work(TOY, Parallelism(tensor=2), 2.0), there, decode(4), p) == 0.0


def test_extra_query_tokens_read_a_share_of_the_cache_again() -> None:
    # Four sequences, two of them drafting three tokens: 1 + 0.5 * 3 * 2 / 4 times 1.6 ms.
    batch = decode(4, query=4, context=1_000, drafted=2)
    assert part("kv_cache", batch, verify_kv_share=0.5) == pytest.approx(1.75 * 1.6 * MS)


def test_windows_and_sparse_attention_bound_what_is_read() -> None:
    window, sparse = with_layers({"window_tokens": 250}), with_layers({"selected_tokens": 500})
    assert part("kv_cache", decode(4, context=1_000), shape=window) == pytest.approx(0.4 * MS)
    assert part("kv_cache", decode(4, context=1_000), shape=sparse) == pytest.approx(0.8 * MS)


def test_a_sparse_indexer_scans_the_whole_context() -> None:
    shape = with_layers({"selected_tokens": 500, "indexer_elements_per_token": 100})
    expected = 4 * (500 * 400 + 1_000 * 2 * 100) * NS_PER_BYTE
    assert part("kv_cache", decode(4, context=1_000), shape=shape) == pytest.approx(expected)


def test_recurrent_state_is_read_and_written_whatever_the_context() -> None:
    shape = with_layers({"kind": "linear", "cache_elements_per_token": 0, "state_bytes_per_sequence": 1_000.0})
    for context in (1, 100_000):
        assert part("kv_cache", decode(4, context=context), shape=shape) == pytest.approx(4 * 2 * 2 * US)


def test_a_prompt_attends_to_what_came_before_and_half_of_itself() -> None:
    # 100 tokens x (200 + 50) seen x 2 layers x 2 x 4 heads x (25 + 25) FLOP = 20 MFLOP.
    assert part("kv_cache", prefill(100, before=200)) == pytest.approx(20 * US)


def test_one_token_reads_its_top_k_experts() -> None:
    # Two experts of 6000 bytes; each computes a whole tile of 16 rows, 2 x 32 x 3000 FLOP.
    assert part("experts", decode(1)) == pytest.approx(12 * US + 0.192 * US)


def test_int4_experts_compute_tiles_of_eight_rows() -> None:
    int4 = with_layers(moe={"weight_format": "int4"})
    assert part("experts", decode(1), shape=int4) == pytest.approx(12 * US + 0.096 * US)


def test_draft_tokens_of_one_request_share_experts_more_than_requests_do() -> None:
    alone = part("experts", decode(1, query=4), expert_compute_efficiency=1e9)
    assert alone == pytest.approx(expected_distinct(8, 2, 4, 1, parameters().routing) * 6 * US)
    apart = part("experts", decode(4), expert_compute_efficiency=1e9)
    assert apart == pytest.approx(expected_distinct(8, 2, 4, 4, parameters().routing) * 6 * US)
    assert alone < apart


def test_drafted_and_undrafted_requests_and_a_prompt_meet_at_the_experts() -> None:
    everything = Batch(np.array([8.0]), np.array([4.0]), np.array([4.0]), 0.0, 120.0, np.array([100.0]), np.zeros(1))
    time_s = part("experts", everything, expert_compute_efficiency=1e9)
    assert part("experts", decode(8, query=4, drafted=4), expert_compute_efficiency=1e9) < time_s <= 8 * 6 * US


def test_experts_picked_by_token_id_do_not_repeat() -> None:
    hashed = with_layers(moe={"hash_routed": True})
    time_s = part("experts", decode(1, query=4), shape=hashed, expert_compute_efficiency=1e9)
    assert time_s == pytest.approx(expected_distinct(8, 2, 4, 4, parameters().routing) * 6 * US, rel=1e-4)


def test_expert_parallel_ranks_wait_for_the_busiest() -> None:
    sharded = machine(4)
    whole = machine(4, parallel=Parallelism(tensor=4, expert_parallel=True))
    assert part("experts", decode(1), on=whole) > 1.5 * part("experts", decode(1), on=sharded)


def test_data_parallel_tokens_meet_at_the_experts_and_are_exchanged_twice_a_layer() -> None:
    on = machine(parallel=Parallelism(data=2, expert_parallel=True))
    one_way = float(alltoall_time_s(GPU, 2, "pcie-root", 4 * 200.0 * 2))
    assert part("allreduce", decode(4), on=on, allreduce_skew_s=3 * US) == pytest.approx(2 * (one_way + 3 * US))
    both = expected_distinct(8, 2, 2, 2, parameters().routing)
    split = machine(parallel=Parallelism(data=2))
    assert part("experts", decode(1), on=split, expert_compute_efficiency=1e9) == pytest.approx(both * 3 * US)


def test_every_collective_moves_one_hidden_row_a_token() -> None:
    # 50 rows x 200 bytes: 100 us on the curve; 2 x 2 + 1 collectives.
    assert part("allreduce", decode(50), on=machine(2)) == pytest.approx(5 * 100 * US)
    assert part("allreduce", decode(50), on=machine(2), allreduce_skew_s=7 * US) == pytest.approx(5 * 107 * US)


def test_latency_and_growth_of_the_curve_scale_apart() -> None:
    scaled = part("allreduce", decode(50), on=machine(2), allreduce_latency_scale=2.0, allreduce_size_scale=0.5)
    assert scaled == pytest.approx(5 * (2 * 10 + 0.5 * 90) * US)


def test_one_gpu_reduces_nothing() -> None:
    assert part("allreduce", decode(50), allreduce_skew_s=7 * US) == 0.0


def test_each_further_pipeline_stage_costs_a_hop() -> None:
    stages = machine(parallel=Parallelism(pipeline=3))
    assert part("allreduce", decode(50), on=stages) == pytest.approx(2 * (10 * US + 10_000 * NS_PER_BYTE))


def test_kernels_have_a_floor_and_attention_a_latency_that_climbs_with_the_context() -> None:
    kernels = rank_work(TOY, Parallelism(), 2.0).num_kernels
    assert part("overhead", decode(1), kernel_floor_s=2 * US) == pytest.approx(kernels * 2 * US)
    # Default backend: 6 us more at 2048 tokens and beyond, for the fitted latency of 12 us; two layers.
    for context, latency_us in ((0, 12), (1_024, 15), (2_048, 18), (50_000, 18)):
        time_s = part("overhead", decode(1, context=context), attention_latency_s=12 * US)
        assert time_s == pytest.approx(2 * latency_us * US)


def test_the_climb_scales_with_a_faster_attention_kernel() -> None:
    time_s = part("overhead", decode(1, context=2_048), attention_latency_s=6 * US)
    assert time_s == pytest.approx(2 * 9 * US)


def test_host_time_grows_with_sequences_and_rows() -> None:
    host = {"host_step_s": 1e-3, "sequence_overhead_s": 1e-5, "token_overhead_s": 1e-6}
    assert part("overhead", decode(4, query=3), **host) == pytest.approx(1e-3 + 4e-5 + 12e-6)


def test_sampling_is_a_base_the_logits_and_their_gathering() -> None:
    logits = 4 * 1_000 * 4 * 6 * NS_PER_BYTE
    assert part("sampling", decode(4), sampling_scale=2.0) == pytest.approx(2 * (120 * US + logits))
    # 5 rows x 1000 x 2 bytes: 100 us on the curve, a gather is half an AllReduce.
    assert part("sampling", decode(5), on=machine(2)) == pytest.approx(50 * US)


# What speculation adds


def test_speculation_pays_for_lost_async_scheduling_or_for_its_own_step() -> None:
    costs = {"synchronous_step_s": 1.5 * MS, "speculation_step_s": 0.3 * MS}
    speculating = replace(FULL_GRAPH, speculation=True)
    assert part("speculation_overhead", decode(1), **costs) == 0.0
    assert part("speculation_overhead", decode(1), mode=speculating, **costs) == pytest.approx(0.3 * MS)
    lost = replace(speculating, loses_async=True)
    assert part("speculation_overhead", decode(1), mode=lost, **costs) == pytest.approx(1.5 * MS)


def test_an_engine_that_never_runs_ahead_pays_with_and_without_speculation() -> None:
    always = replace(FULL_GRAPH, synchronous_baseline=True)
    for mode in (always, replace(always, speculation=True)):
        assert part("overhead", decode(1), mode=mode, synchronous_step_s=1.5 * MS) == pytest.approx(1.5 * MS)


@pytest.mark.parametrize(
    ("drafted", "context", "penalty_ms"),
    [(1, 0, 0.0), (1, 2_000, 9.0), (1, 6_000, 28.0), (5, 2_000, 47.0), (1, 50_000, 81.0)],
)
def test_rows_verified_as_prefill_lose_what_was_measured(drafted: int, context: float, penalty_ms: float) -> None:
    # Measured on 61 layers at 0, 2k, 10k and 30k tokens of one request: 0, 9, 47, 64 ms; the toy has two layers.
    mode = replace(FULL_GRAPH, speculation=True, rows_as_prefill=True)
    certain = {"verify_path_scale": 1.0, "verify_path_applies": 1.0}
    batch = decode(8, query=4, context=context, drafted=drafted)
    assert part("verify_path", batch, mode=mode, **certain) == pytest.approx(penalty_ms * MS * 2 / 61)
    assert part("verify_path", batch, mode=mode, verify_path_scale=1.0) == 0.0
    assert part("verify_path", batch, mode=replace(mode, rows_as_prefill=False), **certain) == 0.0


def test_the_verify_path_alone_explains_the_published_slow_down() -> None:
    # Spec section 3.2: 32.2 against 112.8 tok/s at 10k context, k = 3, acceptance length 2.2: about 49 ms a step.
    layers = fitted_values()["verify_path"]["num_layers"]
    kimi_like = replace(rank_work(TOY, Parallelism(), 2.0), num_attention_calls=layers)
    p = parameters(verify_path_scale=1.0, verify_path_applies=1.0)
    lost_s = float(verify_path_time_s(kimi_like, decode(1, query=4, context=10_000), p)[0])
    assert lost_s == pytest.approx(2.2 / 32.2 - 2.2 / 112.8, rel=0.05)


# CUDA graphs


def test_piecewise_graphs_lose_a_constant_a_layer() -> None:
    piecewise = replace(FULL_GRAPH, graph="piecewise", baseline_graph="piecewise")
    assert part("overhead", decode(1), mode=piecewise, piecewise_layer_s=30 * US) == pytest.approx(60 * US)


def test_without_a_graph_the_slower_of_launches_and_kernels_decides() -> None:
    eager = replace(FULL_GRAPH, graph="none", baseline_graph="none")
    kernels = rank_work(TOY, Parallelism(), 2.0).num_kernels
    gpu_s = sum(part(name, decode(1)) for name in ("attention", "kv_cache", "experts", "shared_dense", "lm_head"))
    slow_host, fast_host = 1000 * gpu_s / kernels, 0.001 * gpu_s / kernels
    slow = part("overhead", decode(1), mode=eager, eager_kernel_s=slow_host)
    assert slow == pytest.approx(999 * gpu_s, rel=1e-6)
    assert part("overhead", decode(1), mode=eager, eager_kernel_s=fast_host) == pytest.approx(0.0, abs=1e-9)


def test_rows_beyond_the_largest_graph_run_without_one() -> None:
    costs = {"eager_kernel_s": 1.0}
    limited = replace(FULL_GRAPH, graph_limit_tokens=8.0)
    eager = replace(FULL_GRAPH, graph="none", baseline_graph="none")
    assert part("overhead", decode(8), mode=limited, **costs) == 0.0
    beyond = part("overhead", decode(9), mode=limited, **costs)
    assert beyond == pytest.approx(part("overhead", decode(9), mode=eager, **costs))
    assert beyond > 1.0


def test_a_step_beyond_the_largest_piecewise_graph_never_gains_by_it() -> None:
    mode = replace(FULL_GRAPH, graph="piecewise", baseline_graph="piecewise", graph_limit_tokens=8.0)
    for rows in (8, 9):
        assert part("overhead", decode(rows), mode=mode, piecewise_layer_s=30 * US) == pytest.approx(60 * US)


def test_a_graph_lost_to_drafts_counts_as_the_cost_of_speculation() -> None:
    mode = replace(FULL_GRAPH, graph="piecewise", speculation=True)
    costs = {"piecewise_layer_s": 30 * US, "speculation_step_s": 100 * US}
    assert part("speculation_overhead", decode(1), mode=mode, **costs) == pytest.approx(160 * US)
    assert part("overhead", decode(1), mode=mode, **costs) == 0.0


# What must hold for any input


def prior_parameters() -> st.SearchStrategy[Parameters]:
    """Any value within the bounds of the priors."""
    ranges = {si_name(name): (row["low"], row["high"]) for name, row in prior_table().items()}
    values = {si: st.floats(low * factor, high * factor) for (si, factor), (low, high) in ranges.items()}
    return st.fixed_dictionaries(values).map(lambda drawn: Parameters(**drawn))


@st.composite
def any_shape(draw: st.DrawFn) -> ModelShape:
    attention = {
        "kind": draw(st.sampled_from(["gqa", "mla", "linear"])),
        "replicated_bytes": draw(st.floats(0.0, 1e6)),
        "num_kv_heads": draw(st.sampled_from([1, 2, 8])),
        "window_tokens": draw(st.sampled_from([None, 128, 4_096])),
        "selected_tokens": draw(st.sampled_from([None, 2_048])),
        "indexer_elements_per_token": draw(st.sampled_from([0, 64])),
        "compress_ratio": draw(st.sampled_from([1, 4])),
        "state_bytes_per_sequence": draw(st.floats(0.0, 1e6)),
    }
    num_experts, top_k = draw(st.sampled_from([(384, 8), (128, 8), (8, 2), (16, 1)]))
    moe = {
        "num_experts": num_experts,
        "num_experts_per_tok": top_k,
        "expert_bytes": draw(st.floats(1.0, 1e7)),
        "weight_format": draw(st.sampled_from(["bf16", "fp8", "int4", "nvfp4"])),
        "hash_routed": draw(st.booleans()),
    }
    return with_layers(attention, moe)


GROWING = ("sequences", "query", "context", "prefill", "drafted")
layouts = st.sampled_from(
    [
        Parallelism(),
        Parallelism(tensor=2),
        Parallelism(tensor=8, decode_context=8),
        Parallelism(tensor=4, expert_parallel=True),
        Parallelism(data=2, expert_parallel=True),
        Parallelism(tensor=2, pipeline=2),
    ]
)
modes = st.builds(
    StepMode,
    graph=st.sampled_from(["full", "piecewise"]),
    graph_limit_tokens=st.sampled_from([8.0, 512.0, 1e9]),
    baseline_graph=st.sampled_from(["full", "piecewise"]),
    synchronous_baseline=st.booleans(),
    speculation=st.just(True),
    loses_async=st.booleans(),
    rows_as_prefill=st.booleans(),
)


@st.composite
def any_load(draw: st.DrawFn) -> dict[str, float]:
    sequences = draw(st.integers(1, 256))
    return {
        "sequences": float(sequences),
        "drafted": float(draw(st.integers(0, sequences))),
        "query": float(draw(st.integers(1, 9))),
        "context": float(draw(st.integers(0, 200_000))),
        "prefill": float(draw(st.integers(0, 4_000))),
        "before": float(draw(st.integers(0, 50_000))),
    }


def batch_of(load: dict[str, float]) -> Batch:
    sequences, drafted, query = np.array([load["sequences"]]), np.array([load["drafted"]]), np.array([load["query"]])
    rows = sequences + drafted * (query - 1.0) + load["prefill"]
    prompt, before = np.array([load["prefill"]]), np.array([load["before"]])
    return Batch(sequences, drafted, query, load["context"], rows, prompt, before)


def setting(shape: ModelShape, layout: Parallelism) -> tuple[RankWork, Machine]:
    return rank_work(shape, layout, 2.0), machine(layout.tensor, gpu=replace(GPU, sm_arch="12.0"), parallel=layout)


def cost(work: RankWork, on: Machine, load: dict[str, float], p: Parameters, mode: StepMode) -> StepCost:
    parts = engine_parts(work, on, batch_of(load), p, mode)
    return StepCost({name: np.ravel(np.asarray(parts[name], dtype=float)) for name in STEP_PARTS})


@given(any_shape(), layouts, any_load(), prior_parameters(), modes)
@settings(max_examples=150)
def test_all_parts_are_there_finite_and_not_negative_and_add_up(
    shape: ModelShape, layout: Parallelism, load: dict[str, float], p: Parameters, mode: StepMode
) -> None:
    work, on = setting(shape, layout)
    assert set(engine_parts(work, on, batch_of(load), p, mode)) == set(STEP_PARTS)
    step = cost(work, on, load, p, mode)
    values = np.array([step.parts_s[name].item() for name in STEP_PARTS])
    assert np.all(np.isfinite(values))
    assert np.all(values >= 0)
    in_order = functools.reduce(operator.add, values.tolist())  # sum() compensates since Python 3.12
    assert step.total_s.item() == in_order


@given(any_shape(), layouts, any_load(), prior_parameters(), modes, st.sampled_from(GROWING))
@settings(max_examples=300)
def test_more_work_never_takes_less_time(
    shape: ModelShape, layout: Parallelism, load: dict[str, float], p: Parameters, mode: StepMode, what: str
) -> None:
    work, on = setting(shape, layout)
    grown = load | {what: load[what] + 1.0}
    grown["sequences"] = max(grown["sequences"], grown["drafted"])
    less, more = cost(work, on, load, p, mode), cost(work, on, grown, p, mode)
    assert more.total_s.item() >= less.total_s.item() * (1 - 1e-9)
    everything_captured = mode.graph_limit_tokens == 1e9
    for name in STEP_PARTS:
        # Without a graph, kernels that grow hide more of the launches: the total grows, that one part shrinks.
        if everything_captured or name not in ("overhead", "speculation_overhead"):
            assert more.parts_s[name].item() >= less.parts_s[name].item() * (1 - 1e-9), name


@given(any_shape(), layouts, any_load(), prior_parameters(), modes, st.floats(1.0, 20.0))
@settings(max_examples=80)
def test_a_slower_link_is_never_faster(
    shape: ModelShape, layout: Parallelism, load: dict[str, float], p: Parameters, mode: StepMode, factor: float
) -> None:
    work, on = setting(shape, layout)
    slow = replace(on, allreduce=replace(on.allreduce, times_s=on.allreduce.times_s * factor))
    assert cost(work, slow, load, p, mode).total_s.item() >= cost(work, on, load, p, mode).total_s.item() * (1 - 1e-9)


@given(any_shape(), layouts, any_load(), prior_parameters(), modes, st.floats(0.1, 1.0))
@settings(max_examples=80)
def test_less_bandwidth_or_arithmetic_is_never_faster(
    shape: ModelShape, layout: Parallelism, load: dict[str, float], p: Parameters, mode: StepMode, share: float
) -> None:
    work, on = setting(shape, layout)
    full = cost(work, on, load, p, mode).total_s.item()
    for name in ("bandwidth_efficiency", "dense_compute_efficiency", "expert_compute_efficiency"):
        slower = replace(p, **{name: getattr(p, name) * share})
        assert cost(work, on, load, slower, mode).total_s.item() >= full * (1 - 1e-9)


@given(any_shape(), any_load(), prior_parameters(), modes)
@settings(max_examples=50)
def test_what_the_baseline_would_replay_moves_cost_between_parts_and_leaves_the_total(
    shape: ModelShape, load: dict[str, float], p: Parameters, mode: StepMode
) -> None:
    work, on = setting(shape, Parallelism(tensor=2))
    usual = [replace(mode, baseline_graph=graph) for graph in ("full", "piecewise", "none")]
    totals = [cost(work, on, load, p, m).total_s.item() for m in usual]
    assert totals == pytest.approx([totals[0]] * 3, rel=1e-9)


def test_draws_and_cells_are_computed_together_as_one_by_one() -> None:
    work, on = setting(TOY, Parallelism(tensor=2))
    efficiency, latency = np.array([[0.6], [0.8], [1.0]]), np.array([[1 * US], [2 * US], [3 * US]])
    p = parameters(bandwidth_efficiency=efficiency, kernel_floor_s=latency)
    cells = decode_batch(np.array([1.0, 8.0]), np.array([1.0, 8.0]), np.array([1.0, 4.0]), 500.0, np.array([1.0, 32.0]))
    together = sum(forward_parts(work, on, cells, p).values())
    for draw in range(3):
        own = parameters(bandwidth_efficiency=efficiency[draw, 0], kernel_floor_s=latency[draw, 0])
        for cell, (sequences, query) in enumerate(((1.0, 1.0), (8.0, 4.0))):
            alone = sum(forward_parts(work, on, decode(sequences, query, context=500.0), own).values())
            assert together[draw, cell] == pytest.approx(np.ravel(alone)[0], rel=1e-12)
