"""A deployment resolved: layout, interconnect, curve, cache, drafter and priors, by hand and with their refusals."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hwmodel.errors import InputError
from hwmodel.models import load_model
from hwmodel.step import allreduce_time_s
from simulator.deployment import load_deployment
from simulator.system import System, attention_kind, build_system, kv_element_bytes, max_decode_context

DATA = Path(__file__).parent.parent / "data"
BOX: dict[str, Any] = {
    "model": {"config": "qwen3-30b-a3b-bf16"},
    "hardware": {"gpu": "rtx-pro-6000-blackwell-server", "interconnect": "pcie-switch"},
    "engine": {"version": "0.16.0", "tensor_parallel_size": 8},
}
ON_ONE: dict[str, Any] = {"model": {"config": "qwen3-8b-bf16"}, "hardware": {"gpu": "h100-sxm"}}


def resolve(tables: dict[str, Any], *overrides: str) -> System:
    """The system of tables with overrides."""
    return build_system(load_deployment(tables, overrides))


def refusal(tables: dict[str, Any], *overrides: str) -> str:
    """The one line with which a deployment is refused."""
    with pytest.raises(InputError) as raised:
        resolve(tables, *overrides)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def allreduce_s(system: System, num_bytes: float) -> float:
    """One AllReduce without skew at the medians."""
    medians = system.priors.parameters(system.priors.medians())
    return float(np.ravel(allreduce_time_s(system.machine, np.array([num_bytes]), medians))[0])


def test_heads_that_do_not_divide_are_refused_with_the_sizes_that_do() -> None:
    # Qwen3-30B-A3B has 32 query heads.
    line = refusal(BOX, "engine.tensor_parallel_size=6")
    assert line == (
        "engine.tensor_parallel_size: got 6, but qwen3-30b-a3b-bf16 has 32 attention heads; allowed: 1, 2, 4, 8, 16, 32"
    )


def test_more_stages_than_layers_are_refused() -> None:
    # Qwen3-8B has 36 layers.
    line = refusal(ON_ONE, "engine.pipeline_parallel_size=40")
    assert line == "engine.pipeline_parallel_size: got 40, allowed 1 to 36 (layers)"


def test_expert_parallelism_is_refused_for_a_dense_model() -> None:
    assert "qwen3-8b-bf16 has no experts; allowed: false" in refusal(ON_ONE, "engine.expert_parallel=true")


def test_expert_parallelism_puts_whole_experts_on_the_ranks() -> None:
    split, whole = resolve(BOX).work.moe[0], resolve(BOX, "engine.expert_parallel=true").work.moe[0]
    assert (split.num_ranks, whole.num_ranks) == (1, 8)
    assert whole.expert_bytes == pytest.approx(8 * split.expert_bytes)


def test_draft_model_without_a_draft_is_refused() -> None:
    line = refusal(ON_ONE, "speculation.method=draft_model")
    assert line == (
        "speculation.draft_model: got nothing, but method draft_model needs a card name or config path: "
        "--set speculation.draft_model=NAME"
    )


def test_unknown_cards_are_refused_in_one_line() -> None:
    assert "qwen3-8b-bf16" in refusal(ON_ONE, "model.config=qwen3-8b-bf61")
    assert "h100-sxm" in refusal(ON_ONE, "hardware.gpu=h100-smx")


def test_unknown_parameter_is_refused() -> None:
    assert "did you mean 'host_step_ms'" in refusal({**ON_ONE, "parameters": {"host_step": 1.0}})


def test_one_gpu_has_no_interconnect_and_no_collectives_whatever_is_stated() -> None:
    system = resolve(ON_ONE, "hardware.interconnect=nvswitch")
    assert system.machine.interconnect == "none"
    assert system.work.num_collectives == 0


def test_stated_interconnect_is_taken_without_a_note() -> None:
    system = resolve(BOX)
    assert system.machine.interconnect == "pcie-switch"
    assert not any("interconnect" in note for note in system.notes)


def test_missing_interconnect_is_the_usual_one_of_the_card_and_a_note_says_so() -> None:
    system = resolve(ON_ONE, "engine.tensor_parallel_size=4")
    assert system.machine.interconnect == "nvswitch"
    assert any("hardware.interconnect is not given; nvswitch assumed" in note for note in system.notes)


def test_interconnect_is_read_from_a_topology_file() -> None:
    path = DATA / "topo" / "topo_rtxpro6000_8x_asus_esc8000a_pex890xx.txt"
    system = resolve({**BOX, "hardware": {"gpu": "rtx-pro-6000-blackwell-server", "topology": str(path)}})
    assert system.machine.interconnect.startswith("pcie-")
    assert any(path.name in note and system.machine.interconnect in note for note in system.notes)


def test_nccl_tests_become_the_curve_and_narrow_its_scales() -> None:
    path = DATA / "nccl" / "nccl_allreduce_rtxpro6000_server_8gpu_pcie5.txt"
    system = resolve(BOX, f"hardware.nccl_tests={path}")
    assert system.machine.allreduce.kind == "user"
    assert system.priors["allreduce_latency_scale"].spread == 0.03
    assert system.priors["allreduce_size_scale"].spread == 0.05
    assert resolve(BOX).priors["allreduce_latency_scale"].spread == 0.5


def test_nccl_tests_of_another_number_of_ranks_are_refused() -> None:
    path = DATA / "nccl" / "nccl_allreduce_rtxpro6000_server_4gpu_pcie5.txt"
    assert "8" in refusal(BOX, f"hardware.nccl_tests={path}")


@pytest.mark.parametrize("algorithm", ["nccl", "one-shot"])
@pytest.mark.parametrize("stated_us", [12.0, 30.0, 57.0])
def test_stated_allreduce_latency_is_that_of_hidden_size_times_two_bytes(algorithm: str, stated_us: float) -> None:
    system = resolve(BOX, f"hardware.allreduce_latency_us={stated_us}", f"hardware.allreduce_algorithm={algorithm}")
    assert allreduce_s(system, system.shape.hidden_size * 2) == pytest.approx(stated_us * 1e-6, rel=0.05)
    assert system.priors["allreduce_latency_scale"].spread == 0.05


@pytest.mark.parametrize("stated", [15.0, 40.0])
def test_stated_bus_bandwidth_is_that_of_large_messages(stated: float) -> None:
    system = resolve(BOX, f"hardware.allreduce_busbw_gb_per_s={stated}")
    # busbw = bytes / time * 2 (n - 1) / n, the convention of nccl-tests.
    busbw_bytes_per_s = 64e6 / allreduce_s(system, 64e6) * 2 * 7 / 8
    assert busbw_bytes_per_s == pytest.approx(stated * 1e9, rel=0.03)


def test_stated_host_overhead_is_certain() -> None:
    prior = resolve(ON_ONE, "hardware.host_overhead_ms=1.5").priors["host_step_ms"]
    assert prior.values(np.array([-2.0, 0.0, 2.0])) == pytest.approx([1.5e-3] * 3)
    assert prior.kind in ("lognormal", "normal")


def test_stated_attention_backend_makes_the_verify_path_certain() -> None:
    kimi = {**BOX, "model": {"config": "kimi-k2.5-int4"}}
    deduced = resolve(kimi).priors["verify_path_applies"]
    stated = resolve(kimi, "engine.attention_backend=TRITON_MLA").priors["verify_path_applies"]
    assert 0.0 < deduced.center < 1.0
    assert stated.center == 1.0


def test_parameters_table_has_the_last_word() -> None:
    tables = {**ON_ONE, "parameters": {"host_step_ms": 0.25}}
    prior = resolve(tables, "hardware.host_overhead_ms=1.5").priors["host_step_ms"]
    assert prior.values(np.array([0.0]))[0] == pytest.approx(0.25e-3)


@pytest.mark.parametrize(
    ("card", "kind"),
    [
        ("kimi-k2.5-int4", "mla"),
        ("qwen3-8b-bf16", "gqa"),
        ("qwen3-next-80b-a3b-bf16", "hybrid"),
        ("deepseek-v3.2-fp8", "sparse"),
    ],
)
def test_attention_kinds_of_known_models(card: str, kind: str) -> None:
    assert attention_kind(load_model(card)) == kind


@pytest.mark.parametrize(
    ("dtype", "size"),
    [(None, 2.0), ("auto", 2.0), ("bfloat16", 2.0), ("fp8", 1.0), ("FP8_e4m3", 1.0), ("float32", 4.0)],
)
def test_cache_element_sizes(dtype: str | None, size: float) -> None:
    assert kv_element_bytes(dtype, load_model("qwen3-8b-bf16")) == size


def test_cache_type_scales_the_cache_of_the_target() -> None:
    bf16, fp8 = resolve(BOX), resolve(BOX, "engine.kv_cache_dtype=fp8")
    assert fp8.work.kv_bytes_per_token() == pytest.approx(bf16.work.kv_bytes_per_token() / 2)


def test_kimi_needs_70_kilobytes_of_cache_a_token_on_every_rank() -> None:
    # (512 + 64) elements x 61 layers x 2 bytes, latent, so replicated: docs/model.md.
    system = resolve({**BOX, "model": {"config": "kimi-k2.5-int4"}})
    assert system.work.kv_bytes_per_token() == pytest.approx(576 * 61 * 2)


@pytest.mark.parametrize(
    ("engine", "share"),
    [({"name": "vllm", "version": "0.20.2"}, 0.90), ({"name": "vllm"}, 0.92), ({"name": "sglang"}, 0.88)],
)
def test_memory_share_defaults_to_the_engines_own(engine: dict[str, str], share: float) -> None:
    tables = {**ON_ONE, "engine": engine}
    assert resolve(tables).gpu_memory_utilization == share
    assert resolve(tables, "engine.gpu_memory_utilization=0.5").gpu_memory_utilization == 0.5


@pytest.mark.parametrize("method", ["none", "ngram", "suffix"])
def test_methods_without_a_model_hold_nothing(method: str) -> None:
    drafter = resolve(ON_ONE, f"speculation.method={method}").drafter
    assert (drafter.work, drafter.weight_bytes, drafter.kv_bytes_per_token) == (None, 0.0, 0.0)


def test_drafter_defaults_to_the_layout_of_the_target() -> None:
    drafter = resolve(BOX, "speculation.method=eagle3").drafter
    assert drafter.machine is not None
    assert drafter.machine.parallel.tensor == 8


def test_drafter_on_one_rank_pays_no_collectives_and_holds_the_whole_head() -> None:
    shared = resolve(BOX, "speculation.method=eagle3").drafter
    alone = resolve(BOX, "speculation.method=eagle3", "speculation.draft_tensor_parallel_size=1").drafter
    assert alone.machine is not None
    assert alone.work is not None
    assert alone.machine.parallel.tensor == 1
    assert alone.work.num_collectives == 0
    assert alone.weight_bytes > 3 * shared.weight_bytes


def test_mlp_speculator_runs_on_one_rank_because_the_engine_forces_it() -> None:
    drafter = resolve(BOX, "speculation.method=mlp_speculator").drafter
    assert drafter.machine is not None
    assert drafter.machine.parallel.tensor == 1


def test_given_draft_model_is_the_drafter() -> None:
    tables = {**ON_ONE, "speculation": {"method": "draft_model", "draft_model": "qwen3-0.6b-bf16"}}
    drafter = resolve(tables).drafter
    assert drafter.description == "draft model qwen3-0.6b-bf16"
    assert 1e9 < drafter.weight_bytes < 1.6e9  # 0.6 billion parameters in BF16, tied head


def test_engine_modes_are_by_draft_length_and_made_once() -> None:
    system = resolve(BOX, "speculation.method=ngram")
    assert system.mode(0) is system.mode(0)
    assert system.mode(0).async_scheduling
    assert not system.mode(5).async_scheduling  # n-gram turns it off in 0.16
    assert system.mode(0).lookahead_slots == 0


def test_replicas_and_stages_share_the_offered_load() -> None:
    tables = {**BOX, "engine": {"tensor_parallel_size": 2, "pipeline_parallel_size": 2, "data_parallel_size": 2}}
    assert resolve(tables).batch_divisor == 4
    assert resolve(BOX).batch_divisor == 1


def test_context_is_the_prompt_and_half_of_the_output() -> None:
    tables = {**ON_ONE, "workload": {"input_tokens": 1000, "output_tokens": 400}}
    assert resolve(tables).context_tokens == 1200.0


def test_a_context_is_shared_by_at_most_the_ranks_that_hold_the_same_heads() -> None:
    # Qwen3-30B-A3B has 4 key-value heads: TP 8 holds each twice. An MLA latent is held by every rank.
    shape = load_model("qwen3-30b-a3b-bf16")
    assert [max_decode_context(shape, tensor) for tensor in (1, 4, 8, 16)] == [1, 1, 2, 4]
    assert max_decode_context(load_model("kimi-k2.5-int4"), 8) == 8
    resolve(BOX, "engine.decode_context_parallel_size=2")
    assert refusal(BOX, "engine.decode_context_parallel_size=4") == (
        "engine.decode_context_parallel_size: got 4, but qwen3-30b-a3b-bf16 has 4 key-value heads: TP 8 allows 1 to 2"
    )
