"""One rank's share of a model: a two-layer toy by hand, Kimi-K2.5 as published, and sharding properties."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toys import GQA, MOE, TOY

from hwmodel.models import load_model
from hwmodel.parameters import fitted_values
from hwmodel.rank import Parallelism, RankWork, rank_work
from hwmodel.specs import DenseMlp, Layer, ModelShape

BF16_BYTES = 2.0


def with_attention(**changes: object) -> ModelShape:
    layers = tuple(replace(layer, attention=replace(layer.attention, **changes)) for layer in TOY.layers)
    return replace(TOY, layers=layers)


# By hand


def test_one_gpu_does_all_the_work() -> None:
    work = rank_work(TOY, Parallelism(), BF16_BYTES)
    assert (work.attention_bytes, work.attention_parameters) == (120_000, 60_000)
    assert (work.dense_bytes, work.dense_parameters) == (10_000 + 2_000 + 1_600, 5_000 + 1_000 + 800)
    assert (work.head_bytes, work.head_parameters, work.embedding_bytes) == (200_000, 100_000, 200_000)
    assert work.weight_bytes == 120_000 + 13_600 + 400_000 + 8 * 6_000
    assert (work.num_layers, work.num_attention_calls, work.num_collectives) == (2, 2, 0)


def test_two_ranks_halve_everything_but_the_router() -> None:
    work = rank_work(TOY, Parallelism(tensor=2), BF16_BYTES)
    assert work.dense_bytes == 10_000 / 2 + 2_000 / 2 + 1_600
    assert work.weight_bytes == 60_000 + 7_600 + 200_000 + 8 * 3_000
    assert work.moe[0].expert_bytes == 3_000
    assert work.moe[0].num_ranks == 1


def test_replicated_attention_weights_stay_whole_on_every_rank() -> None:
    shape = with_attention(sharded_bytes=40_000.0, replicated_bytes=20_000.0)
    work = rank_work(shape, Parallelism(tensor=4), BF16_BYTES)
    assert work.attention_bytes == 2 * (10_000 + 20_000)
    # A third of the parameters is multiplied whole, two thirds by a quarter.
    assert work.attention_parameters == pytest.approx(2 * 30_000 * (1 / 3 + 2 / 3 / 4))


def test_collectives_are_two_a_layer_and_one_for_the_embedding() -> None:
    assert rank_work(TOY, Parallelism(tensor=2), BF16_BYTES).num_collectives == 2 * 2 + 1


def test_decode_context_parallelism_splits_the_cache_and_exchanges_queries_and_outputs_of_all_heads() -> None:
    plain = rank_work(TOY, Parallelism(tensor=2), BF16_BYTES)
    split = rank_work(TOY, Parallelism(tensor=2, decode_context=2), BF16_BYTES)
    assert split.num_collectives == plain.num_collectives
    assert split.kv_bytes_per_token() == plain.kv_bytes_per_token() / 2
    attention = [layer.attention for layer in TOY.layers for _ in range(layer.count)]
    exchanged = sum(a.num_heads * (a.qk_head_dim + a.v_head_dim) * BF16_BYTES for a in attention)
    assert (plain.context_exchange_bytes, split.context_exchange_bytes) == (0.0, exchanged)


def test_mla_exchanges_and_attends_to_the_latent_in_decode() -> None:
    kimi = load_model("kimi-k2.5-int4")
    work = rank_work(kimi, Parallelism(tensor=8, decode_context=8), BF16_BYTES)
    latent = 512 + 64
    assert work.context_exchange_bytes == 61 * 64 * 2 * latent * BF16_BYTES
    flop = sum(cache.num_layers * cache.decode_flop_per_pair for cache in work.cache)
    assert flop == 61 * 2 * (64 / 8) * 2 * latent


def test_expert_parallel_ranks_hold_whole_experts() -> None:
    work = rank_work(TOY, Parallelism(tensor=2, data=2, expert_parallel=True), BF16_BYTES)
    assert (work.moe[0].expert_bytes, work.moe[0].num_ranks) == (6_000, 4)
    assert work.weight_bytes == 60_000 + 7_600 + 200_000 + 2 * 6_000  # two of the eight experts


def test_there_are_never_more_expert_ranks_than_experts() -> None:
    work = rank_work(TOY, Parallelism(tensor=16, expert_parallel=True), BF16_BYTES)
    assert work.moe[0].num_ranks == 8


def test_data_parallel_replicas_share_the_experts_and_nothing_else() -> None:
    one, four = (rank_work(TOY, Parallelism(data=n), BF16_BYTES) for n in (1, 4))
    assert four.moe[0].expert_bytes == one.moe[0].expert_bytes / 4
    assert (four.attention_bytes, four.dense_bytes) == (one.attention_bytes, one.dense_bytes)


def test_a_cache_token_is_keys_and_values_of_every_layer() -> None:
    work = rank_work(TOY, Parallelism(), BF16_BYTES)
    assert work.kv_bytes_per_token() == 2 * 100 * 2
    assert work.cache_bytes(50) == 50 * 400


def test_the_cache_splits_over_at_most_as_many_ranks_as_key_value_heads() -> None:
    per_token = [rank_work(TOY, Parallelism(tensor=n), BF16_BYTES).kv_bytes_per_token() for n in (1, 2, 4, 8)]
    assert per_token == [400, 200, 200, 200]


def test_a_window_bounds_the_cache_of_a_sequence() -> None:
    work = rank_work(with_attention(window_tokens=128), Parallelism(), BF16_BYTES)
    assert work.cache_bytes(100) == 100 * 400
    assert work.cache_bytes(10_000) == 128 * 400


def test_a_compressed_cache_holds_one_entry_for_several_tokens() -> None:
    work = rank_work(with_attention(compress_ratio=4), Parallelism(), BF16_BYTES)
    assert work.cache_bytes(1_000) == 1_000 * 400 / 4


def test_recurrent_state_is_held_once_a_sequence() -> None:
    linear = with_attention(kind="linear", cache_elements_per_token=0, state_bytes_per_sequence=5_000.0)
    work = rank_work(linear, Parallelism(), BF16_BYTES)
    assert work.cache_bytes(1) == work.cache_bytes(1e6) == 2 * 5_000


def test_an_indexer_keeps_one_byte_an_element_beyond_any_window() -> None:
    work = rank_work(with_attention(window_tokens=128, indexer_elements_per_token=64), Parallelism(), BF16_BYTES)
    assert work.cache_bytes(1_000) == 128 * 400 + 1_000 * 2 * 64


def test_a_tied_embedding_is_held_once() -> None:
    tied = replace(TOY, lm_head_parameters=0, lm_head_bytes=0.0)
    work = rank_work(tied, Parallelism(), BF16_BYTES)
    assert (work.head_bytes, work.embedding_bytes) == (200_000, 0)


def test_kernels_are_counted_by_kind_of_layer() -> None:
    kernels = fitted_values()["kernels"]
    expected = 2 * kernels["gqa"] + kernels["dense"] + kernels["moe"] + kernels["shared_experts"] + kernels["step"]
    assert rank_work(TOY, Parallelism(), BF16_BYTES).num_kernels == expected


def test_a_deployment_has_as_many_gpus_as_its_groups_multiplied() -> None:
    assert Parallelism(tensor=8, pipeline=2, data=3).num_gpus == 48


# Kimi-K2.5 INT4 on eight ranks: docs/model.md, section "Step time", geometry


@pytest.fixture(scope="module")
def kimi() -> RankWork:
    return rank_work(load_model("kimi-k2.5-int4"), Parallelism(tensor=8), BF16_BYTES)


def test_kimi_s_expert_takes_three_megabytes_a_rank(kimi: RankWork) -> None:
    (moe,) = kimi.moe
    assert (moe.num_layers, moe.num_experts, moe.num_experts_per_tok) == (60, 384, 8)
    assert moe.expert_bytes == pytest.approx(3.097e6, rel=1e-3)  # 3 x 7168 x 256 x 0.5625
    assert moe.expert_bytes * moe.num_layers == pytest.approx(185.8e6, rel=1e-3)


def test_kimi_s_routed_experts_are_571_gigabytes_of_about_600(kimi: RankWork) -> None:
    routed = kimi.moe[0].expert_bytes * 60 * 384 * 8
    assert routed == pytest.approx(570.8e9, rel=1e-3)
    # 594 GB by geometry; every rank holds its own copy of 30 MB a layer (q_a, kv_a) and of the routers.
    copies = 7 * (61 * 30.28e6 + 60 * 5.5e6)
    assert kimi.weight_bytes * 8 - copies == pytest.approx(594e9, rel=0.005)


def test_kimi_reads_4_54_gigabytes_beside_its_experts(kimi: RankWork) -> None:
    assert kimi.attention_bytes / 61 == pytest.approx(51.8e6, rel=1e-3)
    assert kimi.head_bytes == pytest.approx(294e6, rel=2e-3)
    assert kimi.attention_bytes + kimi.dense_bytes + kimi.head_bytes == pytest.approx(4.54e9, rel=1e-3)


def test_kimi_s_latent_cache_is_whole_on_every_rank(kimi: RankWork) -> None:
    assert kimi.kv_bytes_per_token() == 576 * 2 * 61  # 70.3 kB


def test_kimi_s_step_has_123_collectives_and_about_1700_kernels(kimi: RankWork) -> None:
    assert kimi.num_collectives == 123
    assert kimi.num_kernels == pytest.approx(1700, rel=0.05)


# Properties


@st.composite
def shapes(draw: st.DrawFn) -> ModelShape:
    num_bytes, counts = st.floats(0.0, 1e9), st.integers(1, 64)
    attention = replace(
        GQA,
        sharded_bytes=draw(num_bytes),
        replicated_bytes=draw(num_bytes),
        num_kv_heads=draw(st.sampled_from([1, 2, 4, 8, 16])),
        window_tokens=draw(st.one_of(st.none(), st.integers(1, 100_000))),
        compress_ratio=draw(st.sampled_from([1, 4])),
        state_bytes_per_sequence=draw(num_bytes),
    )
    experts, expert_bytes, shared_bytes = draw(st.integers(2, 512)), draw(num_bytes), draw(num_bytes)
    moe = replace(MOE, num_experts=experts, expert_bytes=expert_bytes, shared_bytes=shared_bytes)
    dense = Layer(draw(counts), attention, dense=DenseMlp(5_000, draw(num_bytes)))
    return replace(TOY, layers=(dense, Layer(draw(counts), attention, moe=moe)))


@given(shapes(), st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4]), st.booleans())
def test_sharding_over_more_ranks_never_increases_what_a_rank_holds_or_reads(
    shape: ModelShape, tensor: int, data: int, expert_parallel: bool
) -> None:
    few = rank_work(shape, Parallelism(tensor=tensor, data=data, expert_parallel=expert_parallel), BF16_BYTES)
    more = rank_work(shape, Parallelism(tensor=2 * tensor, data=data, expert_parallel=expert_parallel), BF16_BYTES)
    for name in ("weight_bytes", "attention_bytes", "attention_parameters", "dense_bytes", "head_bytes"):
        assert getattr(more, name) <= getattr(few, name) * (1 + 1e-12)
    assert more.cache_bytes(5_000) <= few.cache_bytes(5_000) * (1 + 1e-12)
    assert more.num_collectives >= few.num_collectives


@given(shapes(), st.integers(1, 200_000))
def test_a_longer_context_never_takes_less_cache(shape: ModelShape, context_tokens: int) -> None:
    work = rank_work(shape, Parallelism(tensor=2), BF16_BYTES)
    assert work.cache_bytes(context_tokens + 1) >= work.cache_bytes(context_tokens)
    state = work.cache_bytes(0)
    assert work.cache_bytes(context_tokens) <= state + context_tokens * work.kv_bytes_per_token() * (1 + 1e-9)
