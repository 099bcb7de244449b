"""What proposing costs: passes, weights and host time by hand on a toy, and published figures of Kimi's drafters."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import toys
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import GPU, GQA, NS_PER_BYTE, ROOT_CURVE

from hwmodel.collectives import zero_curve
from hwmodel.drafters import (
    MODEL_FREE_METHODS,
    PARALLEL_METHODS,
    Drafter,
    DraftOptions,
    build_drafter,
    draft_machine,
    draft_time_s,
    drafter_table,
    host_time_s,
)
from hwmodel.models import load_model
from hwmodel.parameters import PARAMETER_NAMES, Parameters
from hwmodel.rank import Parallelism, rank_work
from hwmodel.specs import DenseMlp, Layer, ModelShape
from hwmodel.step import Batch, Machine, decode_batch
from hwmodel.units import MS, US

MOE = replace(toys.MOE, shared_parameters=0, shared_bytes=0.0)
TOY = replace(toys.TOY, layers=(toys.TOY.layers[0], replace(toys.TOY.layers[1], moe=MOE)))

# A head for the toy: 2 x 100 wide inputs to q, k, v (100 + 2 x 50 outputs), an output projection, the dense block.
BODY_BYTES = 2 * (200 * 200 + 100 * 100 + 5_000)
SMALL_HEAD_BYTES = 32_000 * 100 * 2
FULL_HEAD_BYTES = 1_000 * 100 * 2
FEATURE_BYTES = 100 * 100 * 2  # one H x H block of the mixing matrix


def machine(tensor: int = 1) -> Machine:
    curve = ROOT_CURVE if tensor > 1 else zero_curve()
    return Machine(GPU, Parallelism(tensor=tensor), curve, "pcie-root", "FLASH_ATTN", "bf16")


def parameters(**changes: Any) -> Parameters:
    """Only bytes take time; each test turns on what it is about."""
    ideal: dict[str, Any] = dict.fromkeys(PARAMETER_NAMES, 0.0) | {
        "bandwidth_efficiency": 1.0,
        "dense_compute_efficiency": 1e12,
        "expert_compute_efficiency": 1e12,
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
    return Parameters(**(ideal | changes))


def head(method: str, tensor: int = 1, target: ModelShape = TOY, **options: Any) -> Drafter:
    return build_drafter(method, target, machine(tensor), 2.0, DraftOptions(**options))


def batch(k: int, requests: float = 1.0, context: float = 0.0, drafted: float | None = None) -> Batch:
    count, drafting = np.array([requests]), np.array([requests if drafted is None else drafted])
    return decode_batch(count, drafting, np.array([k + 1.0]), context, count + k * drafting)


def time_s(drafter: Drafter, k: int, **load: float) -> float:
    return float(np.ravel(draft_time_s(drafter, batch(k, **load), parameters()))[0])


# Without a model


@pytest.mark.parametrize("method", [*sorted(MODEL_FREE_METHODS), "none"])
def test_methods_without_a_model_hold_nothing(method: str) -> None:
    drafter = head(method)
    assert (drafter.work, drafter.weight_bytes, drafter.kv_bytes_per_token, drafter.sequential) == (None, 0, 0, False)


def test_ngram_search_scans_each_request_s_context_on_the_host() -> None:
    # Four requests, 10 us each and a nanosecond a token of context.
    assert time_s(head("ngram"), 5, requests=4.0, context=20_000.0) == pytest.approx(4 * 30 * US)


def test_ngram_on_the_gpu_costs_the_same_for_any_load() -> None:
    few, many = (time_s(head("ngram_gpu"), 5, requests=n, context=c) for n, c in ((1.0, 0.0), (64.0, 1e5)))
    assert few == many == pytest.approx(drafter_table()["host"]["ngram_gpu_us"] * US)


def test_suffix_trees_cost_tens_of_microseconds_a_request() -> None:
    assert float(host_time_s("suffix", batch(3, requests=8.0))[0]) == pytest.approx(8 * 40 * US)


# Heads by hand


def test_an_eagle3_pass_reads_one_layer_its_own_small_head_and_three_mixed_features() -> None:
    drafter = head("eagle3")
    assert time_s(drafter, 1) == pytest.approx((BODY_BYTES + SMALL_HEAD_BYTES + 3 * FEATURE_BYTES) * NS_PER_BYTE)
    assert drafter.weight_bytes == BODY_BYTES + SMALL_HEAD_BYTES + 3 * FEATURE_BYTES


def test_eagle3_mixes_the_target_s_features_in_its_first_pass_only() -> None:
    # Spec section 4: fc 3H -> H replicated, first pass only; later passes continue from the head's own state.
    added = time_s(head("eagle3"), 3) - time_s(head("eagle3"), 2)
    assert added == pytest.approx((BODY_BYTES + SMALL_HEAD_BYTES) * NS_PER_BYTE)


def test_every_eagle_pass_mixes_token_and_feature_and_uses_the_target_s_head() -> None:
    drafter = head("eagle")
    one_pass = BODY_BYTES + 2 * FEATURE_BYTES + FULL_HEAD_BYTES
    assert time_s(drafter, 3) == pytest.approx(3 * one_pass * NS_PER_BYTE)
    assert drafter.weight_bytes == one_pass - FULL_HEAD_BYTES  # the target holds its head already


def test_mtp_runs_the_checkpoint_s_own_layer_with_the_full_vocabulary() -> None:
    own = replace(TOY, mtp_layers=(Layer(1, GQA, dense=DenseMlp(9_000, 18_000.0)),))
    one_pass = 60_000 + 18_000 + 2 * FEATURE_BYTES + FULL_HEAD_BYTES
    assert time_s(head("mtp", target=own), 2) == pytest.approx(2 * one_pass * NS_PER_BYTE)
    assert "own MTP layer" in head("mtp", target=own).description


def test_mtp_without_such_a_layer_is_grafted_like_the_last_layer_and_says_so() -> None:
    drafter = head("mtp")
    assert drafter.work is not None
    assert drafter.work.moe[0].num_experts == 8
    assert "assumed" in drafter.description
    assert drafter.weight_bytes == 60_000 + 1_600 + 8 * 6_000 + 2 * FEATURE_BYTES


def test_a_stated_draft_vocabulary_replaces_the_usual_one() -> None:
    drafter = head("eagle3", draft_vocab_size=500)
    assert time_s(drafter, 1) == pytest.approx((BODY_BYTES + 500 * 200 + 3 * FEATURE_BYTES) * NS_PER_BYTE)
    assert "500" in drafter.description


def test_medusa_has_a_block_and_a_head_for_every_position() -> None:
    three = head("medusa", max_draft_tokens=3)
    assert three.weight_bytes == 3 * (FEATURE_BYTES + FULL_HEAD_BYTES)
    assert not three.sequential


@pytest.mark.parametrize("method", sorted(PARALLEL_METHODS - {"medusa"}))
def test_parallel_drafters_propose_any_number_of_tokens_in_one_pass(method: str) -> None:
    drafter = head(method)
    assert time_s(drafter, 7) == pytest.approx(time_s(drafter, 1))
    assert not drafter.sequential


def test_a_draft_model_is_read_whole_in_every_pass() -> None:
    small = replace(TOY, name="small", layers=(Layer(3, GQA, dense=DenseMlp(5_000, 10_000.0)),), num_hidden_layers=3)
    drafter = head("draft_model", draft=small)
    assert time_s(drafter, 4) == pytest.approx(4 * (3 * 70_000 + FULL_HEAD_BYTES) * NS_PER_BYTE)
    assert drafter.weight_bytes == rank_work(small, Parallelism(), 2.0).weight_bytes
    assert drafter.kv_bytes_per_token == 3 * 200


def test_a_draft_model_with_tied_embeddings_holds_them_once() -> None:
    tied = replace(TOY, lm_head_parameters=0, lm_head_bytes=0.0)
    assert head("draft_model", draft=tied).weight_bytes == rank_work(tied, Parallelism(), 2.0).weight_bytes


def test_a_draft_model_needs_a_shape() -> None:
    with pytest.raises(ValueError, match="draft_model"):
        head("draft_model")


# Passes and collectives


def test_every_pass_pays_the_engine_s_cost() -> None:
    p = parameters(draft_pass_s=0.8 * MS)
    eagle, parallel = head("eagle3"), head("p_eagle")
    for drafter, k, passes in ((eagle, 1, 1), (eagle, 4, 4), (parallel, 4, 1)):
        extra = draft_time_s(drafter, batch(k), p) - draft_time_s(drafter, batch(k), parameters())
        assert float(extra[0]) == pytest.approx(passes * 0.8 * MS)


def test_decode_context_parallelism_adds_to_every_pass() -> None:
    plain = draft_time_s(head("eagle3"), batch(3), parameters())
    extra = draft_time_s(head("eagle3"), batch(3), parameters(), decode_context_extra_s=0.8 * MS)
    assert float((extra - plain)[0]) == pytest.approx(3 * 0.8 * MS)


def test_a_pass_of_a_one_layer_head_has_three_collectives_and_a_gather() -> None:
    # One draft token of 12.5 requests: 25 rows of 200 B are 5 kB, 70.7 us on the curve, three times;
    # 12.5 x 1000 x 2 B of logits are 25 kB, 158.1 us, half of it for a gather.
    drafter = head("eagle", tensor=2)
    assert drafter.work is not None
    assert drafter.work.num_collectives == 3
    reads = (BODY_BYTES / 2 + 2 * FEATURE_BYTES + FULL_HEAD_BYTES / 2) * NS_PER_BYTE
    network = time_s(drafter, 1, requests=12.5) - reads
    assert network == pytest.approx((3 * 5_000**0.5 + 0.5 * 25_000**0.5) * US)


def test_a_drafter_on_one_rank_reads_more_and_reduces_nothing() -> None:
    alone = draft_machine(machine(2), 1, zero_curve())
    drafter = build_drafter("eagle", TOY, machine(2), 2.0, DraftOptions(draft_machine=alone))
    assert drafter.machine == alone
    one_pass = BODY_BYTES + 2 * FEATURE_BYTES + FULL_HEAD_BYTES
    assert time_s(drafter, 1, requests=12.5) == pytest.approx(one_pass * NS_PER_BYTE)


def test_the_first_pass_catches_up_with_all_rows_and_later_ones_add_one_row_a_request() -> None:
    # Compute alone: 2 FLOP a parameter and row, layer, mixing and head; 3 requests, k = 4: 15 rows, then 3 + 3 + 3.
    compute = parameters(bandwidth_efficiency=1e12, dense_compute_efficiency=1.0)
    flop_s = 2e-12 * (BODY_BYTES + 2 * FEATURE_BYTES + FULL_HEAD_BYTES) / 2
    taken = draft_time_s(head("eagle"), batch(4, requests=3.0), compute)
    assert float(taken[0]) == pytest.approx((15 + 9) * flop_s, rel=1e-6)


def test_only_drafting_requests_are_drafted_for() -> None:
    real = parameters(dense_compute_efficiency=1.0)
    some, two = batch(3, requests=8.0, context=1_000.0, drafted=2.0), batch(3, requests=2.0, context=1_000.0)
    for tensor in (1, 2):
        drafter = head("eagle3", tensor)
        assert draft_time_s(drafter, some, real) == pytest.approx(draft_time_s(drafter, two, real))


# Kimi-K2.5 on eight ranks: docs/model.md, section "Draft cost"


@pytest.fixture(scope="module")
def kimi() -> ModelShape:
    return load_model("kimi-k2.5-int4")


def test_kimi_s_eagle3_head(kimi: ModelShape) -> None:
    drafter = head("eagle3", tensor=8, target=kimi)
    work, first = drafter.work, drafter.first_work
    assert work is not None
    assert first is not None
    mixing = first.dense_parameters - work.dense_parameters
    body = work.attention_parameters + work.dense_parameters
    assert body * 8 == pytest.approx(0.76e9, rel=0.01)
    assert 2 * mixing == pytest.approx(308e6, rel=0.005)
    assert work.head_bytes == pytest.approx(57e6, rel=0.01)
    assert work.num_collectives + 1 == 4  # the logits gather
    # A later pass takes about 0.17 ms at 1.40 TB/s.
    assert (body * 2 + work.head_bytes) / 1.40e12 == pytest.approx(0.17 * MS, rel=0.05)


def test_kimi_s_grafted_mtp_layer(kimi: ModelShape) -> None:
    work = head("mtp", tensor=8, target=kimi).work
    assert work is not None
    assert work.attention_bytes == pytest.approx(52e6, rel=0.01)
    assert work.head_bytes == pytest.approx(294e6, rel=0.01)
    # Mixing of token and feature 206 MB, shared expert 11 MB, router 5.5 MB.
    assert work.dense_bytes == pytest.approx(206e6 + 11e6 + 5.5e6, rel=0.01)
    assert work.moe[0].expert_bytes == pytest.approx(3.1e6, rel=0.01)


def test_a_draft_model_of_28_layers_has_57_collectives_a_pass(kimi: ModelShape) -> None:
    small = load_model("qwen3-0.6b-bf16")
    work = head("draft_model", tensor=8, target=kimi, draft=small).work
    assert small.num_hidden_layers == 28
    assert work is not None
    assert work.num_collectives == 57


def test_kimi_s_dspark_drafter_weighs_what_its_card_says(kimi: ModelShape) -> None:
    # Card of Kimi-K2.6 DSpark: 3 layers, 32k vocabulary, 6.3 GB in BF16.
    assert head("dspark", target=kimi).weight_bytes == pytest.approx(6.3e9, rel=0.2)


# Tables and properties

MODEL_METHODS = sorted(set(drafter_table()) - {"host"})


def test_every_usual_drafter_has_its_facts_and_their_source() -> None:
    assert PARALLEL_METHODS.issubset(MODEL_METHODS)
    for method in [*MODEL_METHODS, "host"]:
        assert drafter_table()[method]["source"]


@pytest.mark.parametrize("method", [*MODEL_METHODS, "ngram", "ngram_gpu", "suffix", "none"])
def test_no_draft_tokens_cost_nothing(method: str) -> None:
    p = parameters(draft_pass_s=1.0)
    assert np.ravel(draft_time_s(head(method), batch(0), p)).tolist() == [0.0]


@given(
    st.sampled_from([*MODEL_METHODS, "draft_model", "ngram", "ngram_gpu", "suffix"]),
    st.integers(1, 8),
    st.integers(1, 128),
    st.integers(0, 100_000),
    st.sampled_from([1, 2]),
)
@settings(max_examples=150)
def test_more_drafts_requests_or_context_never_cost_less(
    method: str, k: int, requests: int, context: int, tensor: int
) -> None:
    p = parameters(draft_pass_s=0.1 * MS, verify_kv_share=0.33, allreduce_skew_s=1 * US, kernel_floor_s=1 * US)
    drafter = head(method, tensor, draft=TOY if method == "draft_model" else None, max_draft_tokens=8)

    def cost(k: int, requests: int, context: int) -> float:
        return float(np.ravel(draft_time_s(drafter, batch(k, float(requests), float(context)), p))[0])

    least = cost(k, requests, context)
    assert np.isfinite(least)
    assert least > 0
    for grown in (cost(k + 1, requests, context), cost(k, requests + 1, context), cost(k, requests, context + 100)):
        assert grown >= least * (1 - 1e-9)
