"""Shapes for what has no card: bytes and parameters by hand on the toy model."""

import pytest
from toys import GQA, MOE, TOY

from calibration.published.stand_ins import resized, stored_as, unknown_gpu
from hwmodel.specs import ModelShape


def _parameters(shape: ModelShape) -> float:
    total = 0.0
    for layer in shape.layers:
        total += layer.count * layer.attention.parameters
        total += layer.count * (layer.dense.parameters if layer.dense else 0)
        if layer.moe:
            total += layer.count * (layer.moe.num_experts * layer.moe.expert_parameters + layer.moe.shared_parameters)
    return total


def test_another_format_changes_bytes_and_no_parameters() -> None:
    half = stored_as(TOY, "fp8", 1.0)
    assert _parameters(half) == _parameters(TOY)
    assert half.quantization == "fp8"
    dense, moe = half.layers[0].dense, half.layers[1].moe
    assert dense is not None
    assert moe is not None
    assert dense.weight_bytes == 5_000.0
    assert (moe.expert_bytes, moe.shared_bytes, moe.weight_format) == (3_000.0, 1_000.0, "fp8")
    assert half.layers[0].attention.sharded_bytes == GQA.parameters * 1.0
    assert half.lm_head_bytes == TOY.lm_head_bytes


def test_four_bit_checkpoints_of_experts_keep_the_attention_of_their_layers() -> None:
    small = stored_as(TOY, "nvfp4", 0.5625)
    moe = small.layers[1].moe
    assert moe is not None
    assert moe.expert_bytes == pytest.approx(MOE.expert_parameters * 0.5625)
    assert small.layers[1].attention == TOY.layers[1].attention
    assert small.layers[0].attention.sharded_bytes == pytest.approx(GQA.parameters * 0.5625)


def test_a_larger_model_has_larger_experts_and_larger_other_layers() -> None:
    large = resized(TOY, total=3.0, active=2.0)
    moe = large.layers[1].moe
    assert moe is not None
    assert (moe.expert_parameters, moe.expert_bytes) == (9_000, 18_000.0)
    assert (moe.shared_parameters, moe.shared_bytes) == (2_000, 4_000.0)
    assert large.layers[0].attention.parameters == 60_000
    assert large.layers[0].attention.sharded_bytes == 120_000.0
    assert moe.num_experts == MOE.num_experts
    assert large.hidden_size == TOY.hidden_size


def test_a_model_of_the_same_size_stays_as_it_is() -> None:
    assert resized(TOY, 1.0, 1.0) == TOY


def test_an_unknown_gpu_holds_any_model_and_keeps_its_name() -> None:
    gpu = unknown_gpu("Somebody's Accelerator")
    assert gpu.title == "Somebody's Accelerator"
    assert gpu.memory_bytes > 1e12
    assert unknown_gpu("").title == "unknown GPU"


@pytest.mark.parametrize(
    ("links", "fast"), [("NVLink", True), ("xGMI", True), ("PCIe 5 (no NVLink)", False), ("", False)]
)
def test_an_unknown_gpu_has_the_links_that_the_source_tells(links: str, fast: bool) -> None:
    gpu = unknown_gpu("Somebody's Accelerator", links)
    assert (gpu.interconnect == "nvswitch") == fast
    assert (gpu.nvlink_bytes_per_s > 0) == fast
