import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodel.engine.mode import EngineMode, EngineRequest, engine_mode, graph_limit_tokens, padded_tokens
from hwmodel.units import GIB

BASE = EngineRequest(
    name="vllm",
    version="0.16.0",
    sm_arch="9.0",
    attention_kind="gqa",
    method="eagle3",
    num_speculative_tokens=5,
    is_moe=False,
    model_quantized=False,
    data_parallel_size=1,
    tensor_parallel_size=1,
    gpu_memory_bytes=79.6 * GIB,
)


def mode_of(**changes: object) -> EngineMode:
    return engine_mode(dataclasses.replace(BASE, **changes))  # type: ignore[arg-type]


def padded(mode: EngineMode, tokens: list[int], uniform: bool, query_len: int) -> list[int]:
    return [int(value) for value in padded_tokens(mode, np.array(tokens), uniform, query_len)]


def test_baseline_sizes_are_1_2_4_then_steps_of_8_and_16() -> None:
    sizes = mode_of(method="none").capture_sizes
    assert sizes[:6] == (1, 2, 4, 8, 16, 24)
    assert sizes[-3:] == (480, 496, 512)
    assert 264 not in sizes
    assert len(sizes) == 3 + 31 + 17


def test_sizes_with_full_graphs_are_multiples_of_a_whole_request() -> None:
    assert mode_of().capture_sizes[:6] == (6, 12, 18, 24, 36, 42)
    assert padded(mode_of(num_speculative_tokens=2), [12], True, 3) == [18]
    assert padded(mode_of(num_speculative_tokens=3), [12], True, 4) == [16]


def test_sizes_are_not_rounded_where_decode_graphs_are_piecewise() -> None:
    assert mode_of(cudagraph_mode="PIECEWISE").capture_sizes[:5] == (1, 2, 4, 8, 16)


@pytest.mark.parametrize(("version", "sizes"), [("0.11.0", (1, 2, 4)), ("0.11.2", (6, 12, 18))])
def test_rounding_to_whole_requests_came_with_0_11_2(version: str, sizes: tuple[int, ...]) -> None:
    assert mode_of(version=version).capture_sizes[:3] == sizes


def test_drafts_count_in_the_largest_size_since_0_13() -> None:
    assert graph_limit_tokens(mode_of(version="0.12.0", max_num_seqs=16, cudagraph_mode="PIECEWISE")) == 32
    assert graph_limit_tokens(mode_of(version="0.13.0", max_num_seqs=16, cudagraph_mode="PIECEWISE")) == 192


def test_steps_above_256_widen_from_8_to_16_with_0_13() -> None:
    assert 264 in mode_of(version="0.12.0", method="none").capture_sizes
    assert 264 not in mode_of(version="0.13.0", method="none").capture_sizes


@pytest.mark.parametrize(
    ("version", "sm_arch", "limit"),
    [("0.27.0", "10.0", 512), ("0.28.0", "10.0", 1024), ("0.28.0", "10.3", 1024), ("0.33.0", "9.0", 512)],
)
def test_largest_default_size(version: str, sm_arch: str, limit: int) -> None:
    assert graph_limit_tokens(mode_of(version=version, sm_arch=sm_arch, method="none")) == limit


def test_uniform_sizes_are_added_since_0_29() -> None:
    assert 6 * 40 in mode_of(version="0.33.0").capture_sizes
    assert 6 * 3 not in mode_of(version="0.33.0").capture_sizes
    # 37 requests of 6 tokens, the widest batch, is captured exactly although it lies on no stride
    assert 222 in mode_of(version="0.29.0", max_num_seqs=37).capture_sizes
    assert 222 not in mode_of(version="0.28.0", max_num_seqs=37, cudagraph_mode="PIECEWISE").capture_sizes
    assert 37 in mode_of(version="0.29.0", max_num_seqs=37, method="none").capture_sizes


def test_sizes_stop_at_the_token_budget() -> None:
    assert graph_limit_tokens(mode_of(method="none", max_num_batched_tokens=100)) == 96
    assert graph_limit_tokens(mode_of(version="0.33.0", method="none", max_num_batched_tokens=100)) == 100


def test_given_sizes_are_kept_and_a_short_range_is_warned_about() -> None:
    mode = mode_of(num_speculative_tokens=2, max_num_seqs=64, cudagraph_capture_sizes=(64, 1, 8, 32, 8))
    assert mode.capture_sizes == (3, 9, 33)
    piecewise = mode_of(num_speculative_tokens=2, cudagraph_mode="PIECEWISE", cudagraph_capture_sizes=(64, 1, 8))
    assert piecewise.capture_sizes == (1, 8, 64)
    assert "captured graphs end at 33 tokens, 11 requests" in "\n".join(mode.notes)


def test_a_stated_largest_size_ends_the_default_sizes_and_adds_none_for_whole_batches() -> None:
    assert mode_of(method="none", max_cudagraph_capture_size=24).capture_sizes == (1, 2, 4, 8, 16, 24)
    beyond = mode_of(version="0.33.0", method="none", max_cudagraph_capture_size=1000, max_num_batched_tokens=8192)
    assert beyond.capture_sizes[-1] == 992  # the ceiling of 512 is of the default alone
    odd = mode_of(version="0.33.0", max_num_seqs=37, cudagraph_mode="PIECEWISE", max_cudagraph_capture_size=240)
    assert odd.capture_sizes[-1] == 240
    assert 222 not in odd.capture_sizes  # 37 requests of 6 tokens are added by default only


def test_stated_sizes_win_over_a_stated_largest_one() -> None:
    assert mode_of(method="none", cudagraph_capture_sizes=(1, 8), max_cudagraph_capture_size=8).capture_sizes == (1, 8)


def test_no_warning_where_every_decode_batch_fits() -> None:
    assert "captured graphs end" not in "\n".join(mode_of(max_num_seqs=32).notes)


def test_above_the_largest_size_nothing_is_padded() -> None:
    mode = mode_of(method="none")
    assert padded(mode, [0, 1, 3, 5, 511, 512, 513, 4000], True, 1) == [0, 1, 4, 8, 512, 512, 513, 4000]


def test_without_graphs_nothing_is_padded() -> None:
    assert padded(mode_of(enforce_eager=True), [3, 77], True, 6) == [3, 77]
    assert padded(mode_of(cudagraph_mode="FULL_DECODE_ONLY"), [77], False, 6) == [77]


def test_mixed_steps_of_runner_v2_use_the_unrounded_sizes() -> None:
    mode = mode_of(version="0.33.0", num_speculative_tokens=2)
    assert mode.model_runner == "v2"
    assert padded(mode, [4, 7], False, 3) == [4, 8]
    assert padded(mode, [6], True, 3) == [6]


@pytest.mark.parametrize(("version", "mixed"), [("0.24.0", 6), ("0.25.0", 4)])
def test_runner_v2_rounds_its_mixed_sizes_too_up_to_0_24(version: str, mixed: int) -> None:
    mode = mode_of(version=version, num_speculative_tokens=2)
    assert mode.model_runner == "v2"
    assert padded(mode, [4], False, 3) == [mixed]


@given(
    version=st.sampled_from(["0.9.2", "0.10.2", "0.11.2", "0.13.0", "0.16.0", "0.22.0", "0.25.0", "0.28.0", "0.33.0"]),
    k=st.integers(0, 8),
    max_num_seqs=st.integers(1, 1024),
    budget=st.integers(1, 8192),
    uniform=st.booleans(),
    engine=st.sampled_from(["vllm", "sglang"]),
)
def test_padding_never_shrinks_a_step_and_is_monotone(
    version: str, k: int, max_num_seqs: int, budget: int, uniform: bool, engine: str
) -> None:
    mode = mode_of(
        name=engine,
        version=version if engine == "vllm" else "0.5.23",
        num_speculative_tokens=k,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=budget,
    )
    query_len = k + 1
    tokens = np.arange(1, 700) * (query_len if uniform else 1)
    rows = padded_tokens(mode, tokens, uniform, query_len)
    assert (rows >= tokens).all()
    assert (np.diff(rows) >= 0).all()
    assert (rows[tokens > graph_limit_tokens(mode)] == tokens[tokens > graph_limit_tokens(mode)]).all()
    assert list(mode.capture_sizes) == sorted(set(mode.capture_sizes))
    if engine == "vllm":
        assert graph_limit_tokens(mode) <= budget


@given(k=st.integers(1, 8), requests=st.integers(1, 60))
def test_full_graphs_hold_whole_requests(k: int, requests: int) -> None:
    mode = mode_of(num_speculative_tokens=k)
    assert padded(mode, [requests * (k + 1)], True, k + 1)[0] % (k + 1) == 0
