import dataclasses

import pytest

from hwmodel.engine.mode import EngineMode, EngineRequest, engine_mode, graph_limit_tokens
from hwmodel.errors import InputError, UnknownNameError
from hwmodel.units import GIB

BASE = EngineRequest(
    name="vllm",
    version="0.16.0",
    sm_arch="12.0",
    attention_kind="mla",
    method="ngram",
    num_speculative_tokens=5,
    is_moe=True,
    model_quantized=True,
    data_parallel_size=1,
    tensor_parallel_size=8,
    gpu_memory_bytes=95.6 * GIB,
)


def mode_of(**changes: object) -> EngineMode:
    return engine_mode(dataclasses.replace(BASE, **changes))  # type: ignore[arg-type]


def dense(**changes: object) -> EngineMode:
    """A dense unquantised grouped-query model on an H100."""
    plain = {"sm_arch": "9.0", "attention_kind": "gqa", "is_moe": False, "model_quantized": False}
    return mode_of(**(plain | changes))


def notes(mode: EngineMode) -> str:
    return "\n".join(mode.notes)


def test_reference_case_loses_async_scheduling_and_verifies_through_prefill() -> None:
    mode = mode_of()
    assert (mode.version, mode.model_runner, mode.attention_backend) == ((0, 16, 0), "v1", "TRITON_MLA")
    assert (mode.uniform_decode_graph, mode.mixed_decode_graph) == ("piecewise", "piecewise")
    assert mode.multi_token_rows_as_prefill
    assert mode.variable_draft_length
    assert not mode.async_scheduling
    assert mode.ngram_variant == "lps"
    assert mode.lookahead_slots == 0
    assert (mode.max_num_seqs, mode.max_num_batched_tokens, mode.block_size) == (1024, 8192, 16)
    assert graph_limit_tokens(mode) == 512
    assert "prefill branch" in notes(mode)
    assert "async scheduling off" in notes(mode)


def test_reference_baseline_keeps_async_scheduling() -> None:
    for changes in ({"method": "none"}, {"num_speculative_tokens": 0}):
        mode = mode_of(**changes)
        assert mode.async_scheduling
        assert not mode.multi_token_rows_as_prefill
        assert mode.ngram_variant is None
        assert (mode.uniform_decode_graph, mode.lookahead_slots) == ("piecewise", 0)


# --- model runner ---


@pytest.mark.parametrize(
    ("version", "changes", "runner"),
    [
        ("0.8.5", {}, "v0"),
        ("0.8.5", {"method": "none"}, "v1"),
        ("0.7.3", {"method": "none"}, "v0"),
        ("0.9.2", {}, "v1"),
        ("0.9.2", {"method": "draft_model"}, "v0"),
        ("0.16.0", {"method": "draft_model"}, "v1"),
        ("0.28.0", {"method": "eagle3"}, "v1"),
        ("0.29.0", {"method": "eagle3"}, "v2"),
        ("0.31.0", {"method": "ngram"}, "v1"),
        ("0.32.0", {"method": "ngram"}, "v2"),
        ("0.31.0", {"method": "ngram_gpu"}, "v1"),
        ("0.32.0", {"method": "ngram_gpu"}, "v2"),
        ("0.30.0", {"method": "draft_model"}, "v1"),
        ("0.31.0", {"method": "draft_model"}, "v2"),
        ("0.32.0", {"method": "medusa"}, "v1"),
        ("0.10.0", {"method": "mtp"}, "v1"),
        ("0.10.0", {"method": "mlp_speculator"}, "v1"),
        ("0.33.0", {"method": "suffix"}, "v1"),
        ("0.33.0", {"method": "p_eagle"}, "v1"),
        ("0.33.0", {"method": "draft_model", "parallel_drafting": True}, "v1"),
        ("0.33.0", {"method": "mtp"}, "v2"),
    ],
)
def test_model_runner_by_version_and_method(version: str, changes: dict[str, object], runner: str) -> None:
    assert mode_of(version=version, **changes).model_runner == runner


@pytest.mark.parametrize(
    ("version", "changes", "runner"),
    [
        ("0.22.0", {}, "v1"),
        ("0.23.0", {}, "v2"),
        ("0.23.0", {"model_quantized": True}, "v1"),
        ("0.24.0", {"is_moe": True}, "v1"),
        ("0.25.0", {"model_quantized": True}, "v2"),
        ("0.28.0", {"is_moe": True}, "v1"),
        ("0.26.0", {"attention_kind": "hybrid"}, "v2"),
        ("0.27.0", {"attention_kind": "hybrid"}, "v1"),
        ("0.29.0", {"is_moe": True}, "v2"),
    ],
)
def test_model_runner_of_the_baseline_by_architecture(version: str, changes: dict[str, object], runner: str) -> None:
    assert dense(version=version, method="none", **changes).model_runner == runner


@pytest.mark.parametrize(("version", "said"), [("0.21.0", False), ("0.22.0", True)])
def test_an_architecture_list_is_mentioned_once_runner_v2_exists(version: str, said: bool) -> None:
    assert ("Qwen3 alone" in notes(dense(version=version, method="none"))) is said


@pytest.mark.parametrize(("version", "said"), [("0.23.0", False), ("0.24.0", True)])
def test_listed_moe_architectures_are_mentioned_since_0_24(version: str, said: bool) -> None:
    assert ("a few listed" in notes(mode_of(version=version, method="none"))) is said


def test_forced_runner_is_taken_and_a_refusal_is_said() -> None:
    assert mode_of(version="0.33.0", method="mtp", model_runner="v1").model_runner == "v1"
    refused = mode_of(version="0.31.0", model_runner="v2")
    assert refused.model_runner == "v2"
    assert "refuses to start" in notes(refused)
    with pytest.raises(UnknownNameError, match="model runner: got 'mrv3', known: v0, v1, v2"):
        mode_of(model_runner="mrv3")


# --- n-gram variant ---


@pytest.mark.parametrize(
    ("version", "method", "variant"),
    [
        ("0.10.0", "ngram", "kmp"),
        ("0.10.1", "ngram", None),
        ("0.10.2", "ngram", "lps"),
        ("0.31.0", "ngram", "lps"),
        ("0.32.0", "ngram", "mrv2"),
        ("0.18.0", "ngram_gpu", "gpu_v1"),
        ("0.32.0", "ngram_gpu", "mrv2"),
        ("0.33.0", "suffix", None),
        ("0.8.5", "ngram", None),
    ],
)
def test_ngram_variant_by_version(version: str, method: str, variant: str | None) -> None:
    assert mode_of(version=version, method=method).ngram_variant == variant


def test_unknown_ngram_variant_is_said() -> None:
    assert "not established" in notes(mode_of(version="0.10.1"))


def test_ngram_on_the_v1_runner_of_a_new_version_keeps_the_old_search() -> None:
    assert mode_of(version="0.32.0", model_runner="v1").ngram_variant == "lps"


@pytest.mark.parametrize(
    ("version", "method", "variable"),
    [
        ("0.31.0", "ngram", True),
        ("0.32.0", "ngram", False),
        ("0.31.0", "ngram_gpu", True),
        ("0.33.0", "suffix", True),
        ("0.33.0", "eagle3", False),
        ("0.16.0", "mtp", False),
    ],
)
def test_draft_length_varies_for_matching_methods_on_the_v1_runner(version: str, method: str, variable: bool) -> None:
    assert mode_of(version=version, method=method).variable_draft_length is variable


# --- async scheduling ---


@pytest.mark.parametrize(
    ("version", "method", "asked", "on"),
    [
        ("0.13.0", "none", None, False),
        ("0.14.0", "none", None, True),
        ("0.13.0", "none", True, True),
        ("0.14.0", "none", False, False),
        ("0.13.0", "eagle3", None, False),
        ("0.13.0", "eagle3", True, True),
        ("0.10.2", "eagle3", True, False),
        ("0.14.1", "mtp", None, True),
        ("0.14.1", "eagle", None, True),
        ("0.15.1", "draft_model", True, False),
        ("0.16.0", "draft_model", None, False),
        ("0.16.0", "draft_model", True, True),
        ("0.28.0", "draft_model", None, False),
        ("0.29.0", "draft_model", None, True),
        ("0.18.0", "ngram_gpu", None, True),
        ("0.19.0", "dflash", None, False),
        ("0.20.0", "dflash", None, True),
        ("0.25.0", "dspark", None, True),
        ("0.16.0", "p_eagle", None, True),
        ("0.31.0", "ngram", None, False),
        ("0.31.0", "ngram", True, False),
        ("0.32.0", "ngram", None, True),
        ("0.33.0", "suffix", None, False),
        ("0.20.0", "medusa", None, False),
        ("0.8.5", "ngram", True, False),
        ("0.9.2", "none", True, False),
        ("0.10.0", "none", True, True),
        ("0.11.0", "eagle3", True, True),
    ],
)
def test_async_scheduling_by_version_and_method(version: str, method: str, asked: bool | None, on: bool) -> None:
    assert mode_of(version=version, method=method, async_scheduling=asked).async_scheduling is on


def test_asking_for_async_scheduling_with_ngram_refuses_to_start() -> None:
    assert "refuses to start: --async-scheduling with ngram" in notes(mode_of(async_scheduling=True))


# --- attention backend and graphs ---


@pytest.mark.parametrize(
    ("version", "sm_arch", "kind", "backend"),
    [
        ("0.16.0", "12.0", "mla", "TRITON_MLA"),
        ("0.33.0", "12.0", "mla", "TRITON_MLA"),
        ("0.16.0", "8.0", "mla", "TRITON_MLA"),
        ("0.8.5", "10.0", "mla", "TRITON_MLA"),
        ("0.9.2", "10.0", "mla", "CUTLASS_MLA"),
        ("0.8.5", "10.0", "gqa", "FLASH_ATTN"),
        ("0.9.2", "10.0", "gqa", "FLASHINFER"),
        ("0.11.0", "9.0", "mla", "FLASHMLA"),
        ("0.11.2", "9.0", "mla", "FLASH_ATTN_MLA"),
        ("0.14.1", "10.0", "mla", "CUTLASS_MLA"),
        ("0.16.0", "10.3", "mla", "FLASHINFER_MLA"),
        ("0.16.0", "9.0", "gqa", "FLASH_ATTN"),
        ("0.16.0", "12.0", "gqa", "FLASH_ATTN"),
        ("0.16.0", "10.0", "gqa", "FLASHINFER"),
        ("0.16.0", "gfx942", "mla", "TRITON_MLA"),
        ("0.16.0", "gfx942", "hybrid", "TRITON_ATTN"),
        ("0.16.0", "9.0", "sparse", "FLASHMLA_SPARSE"),
        ("0.23.0", "12.0", "sparse", "FLASHMLA_SPARSE"),
        ("0.24.0", "12.0", "sparse", "FLASHINFER_MLA_SPARSE_SM120"),
    ],
)
def test_default_attention_backend(version: str, sm_arch: str, kind: str, backend: str) -> None:
    assert mode_of(version=version, sm_arch=sm_arch, attention_kind=kind).attention_backend == backend


@pytest.mark.parametrize(
    ("version", "uniform", "as_prefill"),
    [
        ("0.16.0", "piecewise", True),
        ("0.21.0", "piecewise", True),
        ("0.22.0", "piecewise", True),  # full graphs are promised, but fail at capture: a note says so
        ("0.25.0", "piecewise", True),
        ("0.26.0", "piecewise", True),
        ("0.30.0", "piecewise", True),
        ("0.31.0", "full", False),
        ("0.33.0", "full", False),
    ],
)
def test_triton_mla_with_drafts_by_version(version: str, uniform: str, as_prefill: bool) -> None:
    mode = mode_of(version=version, method="eagle3", num_speculative_tokens=3)
    assert (mode.uniform_decode_graph, mode.multi_token_rows_as_prefill) == (uniform, as_prefill)
    assert ("fails an assertion at start" in notes(mode)) is (version in {"0.22.0", "0.25.0"})


@pytest.mark.parametrize(
    ("version", "uniform"), [("0.21.0", "piecewise"), ("0.22.0", "full"), ("0.26.0", "full"), ("0.33.0", "full")]
)
def test_triton_mla_baseline_has_full_graphs_since_0_22(version: str, uniform: str) -> None:
    assert mode_of(version=version, method="none").uniform_decode_graph == uniform


@pytest.mark.parametrize(
    ("version", "sm_arch", "kind", "uniform", "as_prefill"),
    [
        ("0.10.2", "9.0", "mla", "piecewise", True),  # graphs were piecewise by default
        ("0.11.0", "9.0", "mla", "piecewise", True),
        ("0.11.2", "9.0", "mla", "full", False),
        ("0.14.1", "10.0", "mla", "piecewise", True),  # CUTLASS MLA: one token a row
        ("0.16.0", "10.0", "mla", "full", False),
        ("0.16.0", "9.0", "gqa", "full", False),
        ("0.16.0", "12.0", "gqa", "full", False),
        ("0.11.0", "10.0", "gqa", "piecewise", False),
        ("0.11.2", "10.0", "gqa", "full", False),
        ("0.16.0", "9.0", "hybrid", "full", False),
        ("0.16.0", "9.0", "sparse", "piecewise", False),
        ("0.22.0", "9.0", "sparse", "full", False),
    ],
)
def test_graph_and_row_path_of_drafted_steps(
    version: str, sm_arch: str, kind: str, uniform: str, as_prefill: bool
) -> None:
    mode = mode_of(version=version, sm_arch=sm_arch, attention_kind=kind, method="eagle3")
    assert (mode.uniform_decode_graph, mode.multi_token_rows_as_prefill) == (uniform, as_prefill)


@pytest.mark.parametrize(
    ("backend", "version", "uniform", "as_prefill"),
    [
        ("FLASHMLA", "0.11.0", "piecewise", True),
        ("FLASHMLA", "0.11.2", "full", False),
        ("FLASHINFER_MLA", "0.11.0", "piecewise", True),
        ("FLASHINFER_MLA", "0.11.2", "full", False),
        ("FLASHMLA_SPARSE", "0.16.0", "piecewise", False),
        ("FLASHMLA_SPARSE", "0.17.0", "full", False),
        ("ROCM_AITER_MLA_SPARSE", "0.28.0", "piecewise", False),
        ("ROCM_AITER_MLA_SPARSE", "0.29.0", "full", False),
        ("ROCM_AITER_FA", "0.21.0", "piecewise", False),
        ("ROCM_AITER_FA", "0.22.0", "full", False),
        ("FLEX_ATTENTION", "0.21.0", "piecewise", False),
        ("FLEX_ATTENTION", "0.22.0", "full", False),
    ],
)
def test_named_backends_change_with_versions(backend: str, version: str, uniform: str, as_prefill: bool) -> None:
    mode = mode_of(version=version, attention_backend=backend, method="mtp")
    assert (mode.uniform_decode_graph, mode.multi_token_rows_as_prefill) == (uniform, as_prefill)


def test_rocm_sparse_baseline_gets_full_graphs_with_0_22() -> None:
    kinds = [
        mode_of(version=version, attention_backend="ROCM_AITER_MLA_SPARSE", method="none").uniform_decode_graph
        for version in ("0.21.0", "0.22.0")
    ]
    assert kinds == ["piecewise", "full"]


def test_flashinfer_mla_captures_mixed_steps_whole_since_0_32() -> None:
    kinds = [
        mode_of(version=version, sm_arch="10.0", cudagraph_mode="FULL").mixed_decode_graph
        for version in ("0.31.0", "0.32.0")
    ]
    assert kinds == ["piecewise", "full"]


def test_rocm_aiter_mla_takes_uniform_rows_since_0_14() -> None:
    old, new = (mode_of(version=v, attention_backend="rocm_aiter_mla", method="mtp") for v in ("0.13.0", "0.14.1"))
    assert (old.uniform_decode_graph, old.multi_token_rows_as_prefill) == ("piecewise", True)
    assert (new.uniform_decode_graph, new.multi_token_rows_as_prefill) == ("full", False)


def test_flashinfer_off_sm100_keeps_full_graphs_for_the_baseline_only() -> None:
    assert dense(attention_backend="FLASHINFER", method="none").uniform_decode_graph == "full"
    assert dense(attention_backend="FLASHINFER", method="eagle3").uniform_decode_graph == "piecewise"


def test_mixed_steps_are_piecewise_where_uniform_ones_are_full() -> None:
    mode = dense()
    assert (mode.uniform_decode_graph, mode.mixed_decode_graph) == ("full", "piecewise")
    assert "lose the full graph" in notes(mode)


def test_default_graph_mode_is_full_since_0_11() -> None:
    assert dense(version="0.10.2", method="none").uniform_decode_graph == "piecewise"
    assert dense(version="0.11.0", method="none").uniform_decode_graph == "full"


@pytest.mark.parametrize(
    ("mode", "changes", "kinds"),
    [
        ("NONE", {}, ("none", "none")),
        ("PIECEWISE", {}, ("piecewise", "piecewise")),
        ("FULL_DECODE_ONLY", {}, ("full", "none")),
        ("full", {}, ("full", "full")),  # FlashAttention 3 captures any batch
        ("FULL", {"sm_arch": "8.9"}, ("full", "piecewise")),  # FlashAttention 2 does not
    ],
)
def test_cudagraph_mode_is_taken_as_far_as_the_backend_can(
    mode: str, changes: dict[str, object], kinds: tuple[str, str]
) -> None:
    result = dense(cudagraph_mode=mode, **changes)
    assert (result.uniform_decode_graph, result.mixed_decode_graph) == kinds


def test_eager_and_cpu_have_no_graphs() -> None:
    for mode in (mode_of(enforce_eager=True), mode_of(sm_arch="cpu")):
        assert (mode.uniform_decode_graph, mode.mixed_decode_graph, mode.capture_sizes) == ("none", "none", ())
        assert graph_limit_tokens(mode) == 0


def test_unknown_backend_name_is_assumed_to_take_uniform_batches_and_said() -> None:
    mode = mode_of(attention_backend="MY_MLA")
    assert mode.uniform_decode_graph == "full"
    assert "MY_MLA is not known" in notes(mode)


# --- limits ---


@pytest.mark.parametrize(
    ("version", "sm_arch", "memory_gib", "seqs", "tokens"),
    [
        ("0.8.5", "9.0", 79.6, 256, 8192),
        ("0.9.2", "9.0", 79.6, 1024, 8192),
        ("0.16.0", "9.0", 79.6, 1024, 8192),
        ("0.16.0", "8.0", 79.3, 256, 2048),  # A100
        ("0.16.0", "8.9", 44.5, 256, 2048),
        ("0.16.0", "12.0", 69.9, 256, 2048),
        ("0.27.0", "10.0", 178.0, 1024, 8192),
        ("0.28.0", "10.0", 178.0, 1024, 16384),
        ("0.32.0", "12.1", 119.0, 1024, 8192),
        ("0.33.0", "12.1", 119.0, 256, 2048),  # GB10
    ],
)
def test_default_batch_limits(version: str, sm_arch: str, memory_gib: float, seqs: int, tokens: int) -> None:
    mode = mode_of(version=version, sm_arch=sm_arch, gpu_memory_bytes=memory_gib * GIB, method="none")
    assert (mode.max_num_seqs, mode.max_num_batched_tokens) == (seqs, tokens)


def test_cpu_limits_grow_with_the_ranks() -> None:
    mode = mode_of(version="0.32.0", sm_arch="cpu", tensor_parallel_size=2)
    assert (mode.max_num_seqs, mode.max_num_batched_tokens) == (256, 4096)


def test_explicit_limits_win() -> None:
    mode = mode_of(max_num_seqs=64, max_num_batched_tokens=4096)
    assert (mode.max_num_seqs, mode.max_num_batched_tokens) == (64, 4096)


@pytest.mark.parametrize(
    ("method", "slots"),
    [("eagle", 5), ("eagle3", 5), ("mtp", 5), ("draft_model", 5), ("p_eagle", 5), ("dflash", 6), ("ngram", 0)],
)
def test_lookahead_slots(method: str, slots: int) -> None:
    assert mode_of(version="0.33.0", method=method).lookahead_slots == slots


@pytest.mark.parametrize(("backend", "tokens"), [("FLASHMLA", 64), ("CUTLASS_MLA", 128), ("TRITON_MLA", 16)])
def test_block_size_follows_the_backend(backend: str, tokens: int) -> None:
    assert mode_of(attention_backend=backend).block_size == tokens


# --- input ---


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"name": "vlm"}, "did you mean 'vllm'"),
        ({"method": "eagle4"}, "did you mean 'eagle"),
        ({"attention_kind": "mqa"}, "attention kind: got 'mqa'"),
        ({"num_speculative_tokens": -1}, "num_speculative_tokens: got -1"),
        ({"max_num_seqs": 0}, "max_num_seqs: got 0"),
        ({"cudagraph_mode": "PIECEWIZE"}, "did you mean 'PIECEWISE'"),
        ({"cudagraph_capture_sizes": (0, 8)}, "cudagraph_capture_sizes: got 0"),
        ({"version": "new"}, "engine version: got 'new'"),
    ],
)
def test_bad_input_is_one_line(changes: dict[str, object], match: str) -> None:
    with pytest.raises(InputError, match=match) as error:
        mode_of(**changes)
    assert "\n" not in str(error.value)


# --- SGLang ---


def sglang(**changes: object) -> EngineMode:
    return mode_of(**({"name": "sglang", "version": "0.5.23", "method": "eagle3", "sm_arch": "9.0"} | changes))


def test_sglang_limits_running_requests_to_48_with_speculation() -> None:
    mode = sglang()
    assert (mode.model_runner, mode.max_num_seqs) == ("sglang", 48)
    assert "48" in notes(mode)
    assert sglang(max_num_seqs=200).max_num_seqs == 200
    assert sglang(method="none").max_num_seqs == 2048


def test_sglang_captures_whole_requests() -> None:
    mode = sglang(num_speculative_tokens=3)
    assert mode.capture_sizes[:4] == (4, 8, 12, 16)
    assert all(size % 4 == 0 for size in mode.capture_sizes)
    assert (mode.uniform_decode_graph, mode.mixed_decode_graph) == ("full", "none")


@pytest.mark.parametrize(
    ("version", "memory_gib", "tp", "requests"),
    [
        ("0.5.5", 31.0, 2, 24),
        ("0.5.23", 31.0, 2, 48),
        ("0.5.5", 31.0, 8, 80),
        ("0.5.23", 79.6, 2, 256),
        ("0.5.23", 79.6, 8, 512),
        ("0.5.23", 178.0, 1, 512),
    ],
)
def test_sglang_largest_captured_batch_by_memory(version: str, memory_gib: float, tp: int, requests: int) -> None:
    mode = sglang(version=version, method="none", gpu_memory_bytes=memory_gib * GIB, tensor_parallel_size=tp)
    assert graph_limit_tokens(mode) == requests


def test_sglang_tiers_of_the_newest_version_start_after_0_5_5() -> None:
    limits = [
        graph_limit_tokens(sglang(version=version, method="none", gpu_memory_bytes=31 * GIB, tensor_parallel_size=1))
        for version in ("0.5.5", "0.5.6")
    ]
    assert limits == [24, 48]


def test_sglang_captures_no_more_requests_than_run_after_0_5_5() -> None:
    assert graph_limit_tokens(sglang(version="0.5.5", num_speculative_tokens=3)) == 512 * 4
    assert graph_limit_tokens(sglang(version="0.5.6", num_speculative_tokens=3)) == 48 * 4


def test_sglang_loses_overlap_with_speculation_in_0_5_5_only() -> None:
    assert not sglang(version="0.5.5").async_scheduling
    assert sglang(version="0.5.5", method="none").async_scheduling
    assert sglang(version="0.5.23").async_scheduling


@pytest.mark.parametrize("method", ["none", "ngram", "draft_model"])
def test_a_cpu_build_runs_the_v1_runner_without_async_scheduling(method: str) -> None:
    mode = mode_of(sm_arch="cpu", version="0.32.0", method=method, model_runner=None)
    assert (mode.model_runner, mode.async_scheduling) == ("v1", False)
    assert "needs Triton" in notes(mode)
    assert mode.ngram_variant == ("lps" if method == "ngram" else None)
    assert mode_of(sm_arch="cpu", version="0.32.0", model_runner="v2").model_runner == "v2"
