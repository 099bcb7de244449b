"""Storage formats: bytes with scales by hand, and which module of a checkpoint has which format."""

from typing import Any

import pytest

from hwmodel.errors import InputError
from hwmodel.hf.expressions import PatternError, compiled, worst_steps
from hwmodel.hf.fields import Fields
from hwmodel.hf.formats import BF16, INT4_G32, MXFP4, NVFP4, fp8_block, integer_format
from hwmodel.hf.patterns import matcher
from hwmodel.hf.quantization import Quantization, known_methods, read_quantization
from hwmodel.models import load_model

EXPERT = "model.layers.3.mlp.experts.0.up_proj"
SHARED = "model.layers.3.mlp.shared_experts.up_proj"
DENSE = "model.layers.0.mlp.gate_proj"
QUERY = "model.layers.3.self_attn.q_proj"
HEAD = "lm_head"
INT4_WEIGHTS = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True}


def quantization(table: dict[str, Any]) -> Quantization:
    return read_quantization(Fields({}, "test"), BF16, table)


def formats(table: dict[str, Any], *modules: str) -> list[str]:
    read = quantization(table)
    return [read.format_of(module).name for module in modules]


@pytest.mark.parametrize("size", [0, -2, 1.5, "128"])
@pytest.mark.parametrize("method", ["gptq", "awq"])
def test_a_group_of_no_inputs_is_refused(method: str, size: object) -> None:
    with pytest.raises(InputError, match="group_size is"):
        quantization({"quant_method": method, "bits": 4, "group_size": size})
    with pytest.raises(InputError, match="group_size is"):
        quantization({"quant_method": "gptq", "bits": 4, "dynamic": {"+:.*": {"bits": 8, "group_size": size}}})


def test_a_group_of_minus_one_is_one_scale_per_channel() -> None:
    read = quantization({"quant_method": "gptq", "bits": 4, "group_size": -1})
    assert read.format_of(DENSE).per_channel


def compressed(weights: dict[str, Any], *ignore: str, targets: list[str] | None = None) -> dict[str, Any]:
    group = {"targets": targets or ["Linear"], "weights": weights}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}, "ignore": list(ignore)}


@pytest.mark.parametrize(
    ("stored", "bytes_per_parameter"),
    [
        (BF16, 2),
        (INT4_G32, 0.5625),
        (NVFP4, 0.5625),
        (MXFP4, 0.53125),
        (fp8_block(128, 128), 1 + 4 / 128**2),
        (integer_format(4, 128, zero_points=True), 0.5 + (2 + 0.5) / 128),
        (integer_format(8, -1, zero_points=False), 1 + 2 / 7168),
    ],
)
def test_bytes_per_parameter_count_the_scales(stored: Any, bytes_per_parameter: float) -> None:
    assert stored.matrix_bytes(2048, 7168) / (2048 * 7168) == pytest.approx(bytes_per_parameter, rel=1e-12)


def test_a_group_or_block_that_is_not_full_still_has_its_scale() -> None:
    assert INT4_G32.matrix_bytes(1, 33) == 33 * 0.5 + 2 * 2
    assert fp8_block(128, 128).matrix_bytes(129, 1) == 129 + 2 * 4


def test_kimis_own_expressions_leave_only_the_routed_experts_quantized() -> None:
    table = compressed(
        INT4_WEIGHTS,
        "lm_head",
        "re:.*self_attn.*",
        "re:.*shared_experts.*",
        r"re:.*mlp\.(gate|up|gate_up|down)_proj.*",
    )
    assert formats(table, EXPERT, SHARED, DENSE, QUERY, HEAD) == ["int4", "bf16", "bf16", "bf16", "bf16"]


def test_fp8_blocks_reach_everything_linear_but_not_the_head_nor_what_is_named() -> None:
    table = {"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": ["gate", "kv_b_proj"]}
    assert formats(table, EXPERT, QUERY, HEAD, "model.layers.3.self_attn.kv_b_proj") == ["fp8", "fp8", "bf16", "bf16"]
    assert formats(table, DENSE, "model.layers.3.mlp.gate") == ["fp8", "bf16"]


def test_modelopt_globs_name_layers_and_blocks_also_below_language_model() -> None:
    table = {
        "quant_method": "modelopt",
        "quant_algo": "NVFP4",
        "ignore": [
            "language_model.lm_head",
            "language_model.model.layers.0*",
            "model.language_model.layers.3.self_attn*",
        ],
    }
    assert formats(table, EXPERT, DENSE, QUERY, HEAD) == ["nvfp4", "bf16", "bf16", "bf16"]
    ten = "model.layers.10.mlp.experts.0.up_proj"
    assert formats({**table, "ignore": ["model.layers.1.*"]}, ten) == ["nvfp4"]
    assert formats({**table, "ignore": ["*.mlp.shared_experts.*"]}, SHARED, EXPERT) == ["bf16", "nvfp4"]


def test_the_older_modelopt_file_nests_its_keys() -> None:
    table = {"producer": {}, "quantization": {"quant_algo": "FP8", "exclude_modules": ["*self_attn*"]}}
    assert formats(table, EXPERT, QUERY) == ["fp8", "bf16"]


def test_modelopt_mixed_precision_goes_by_module() -> None:
    layers = {
        "model.layers.3.mlp.experts": {"quant_algo": "NVFP4", "group_size": 16},
        "model.layers.3.self_attn.q_proj": {"quant_algo": "FP8"},
    }
    table = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    assert formats(table, EXPERT, QUERY, SHARED) == ["nvfp4", "fp8", "bf16"]


def test_mxfp4_converts_the_experts_only() -> None:
    table = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}
    assert formats(table, EXPERT, QUERY, DENSE, HEAD) == ["mxfp4", "bf16", "bf16", "bf16"]


def test_awq_counts_zero_points_and_gptq_always_has_them() -> None:
    awq = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
    gptq = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}
    assert quantization(awq).format_of(QUERY) == quantization(gptq).format_of(QUERY)
    assert quantization(awq).format_of(QUERY).zero_bits == 4
    assert formats({**gptq, "lm_head": True}, HEAD) == ["int4"]


def test_gptq_dynamic_changes_bits_or_leaves_modules_alone() -> None:
    dynamic = {r"+:.*self_attn.*": {"bits": 8, "group_size": 64}, r"-:.*shared_experts.*": {}}
    table = {"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": dynamic}
    assert formats(table, EXPERT, QUERY, SHARED) == ["int4", "int8", "bf16"]


def test_auto_round_writes_16_bits_for_modules_it_leaves_alone() -> None:
    extra = {"model.layers.3.self_attn.q_proj": {"bits": 16}}
    table = {"quant_method": "auto-round", "bits": 4, "group_size": 128, "extra_config": extra}
    assert formats(table, QUERY, EXPERT) == ["bf16", "int4"]


@pytest.mark.parametrize(
    ("weights", "name", "bytes_per_parameter"),
    [
        (INT4_WEIGHTS, "int4", 0.5625),
        ({"num_bits": 8, "type": "int", "strategy": "channel"}, "int8", 1 + 2 / 1024),
        ({"num_bits": 8, "type": "float", "strategy": "tensor"}, "fp8", 1),
        ({"num_bits": 8, "type": "float", "strategy": "channel"}, "fp8", 1 + 4 / 1024),
        ({"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128]}, "fp8", 1 + 4 / 128**2),
        ({"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}, "nvfp4", 0.5625),
        ({"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32}, "mxfp4", 0.53125),
    ],
)
def test_compressed_tensors_weights_name_every_format(
    weights: dict[str, Any], name: str, bytes_per_parameter: float
) -> None:
    stored = quantization(compressed(weights)).format_of(EXPERT)
    assert stored.name == name
    assert stored.matrix_bytes(1024, 1024) / 1024**2 == pytest.approx(bytes_per_parameter)


def test_compressed_tensors_targets_name_modules_or_classes() -> None:
    assert formats(compressed(INT4_WEIGHTS, targets=["re:.*experts.*"]), EXPERT, QUERY) == ["int4", "bf16"]
    assert formats(compressed(INT4_WEIGHTS, targets=["FusedMoE"]), EXPERT, QUERY) == ["int4", "bf16"]
    fields = Fields({}, "test")
    read = read_quantization(fields, BF16, compressed(INT4_WEIGHTS, targets=["Conv1d"]))
    assert read.format_of(QUERY) == BF16
    assert any("Conv1d" in text for text in fields.assumptions)


def test_a_quantized_cache_alone_leaves_the_weights_as_they_are() -> None:
    table = {"quant_method": "compressed-tensors", "config_groups": {}, "kv_cache_scheme": {"num_bits": 8}}
    assert formats(table, EXPERT, QUERY) == ["bf16", "bf16"]


def test_bitsandbytes_scales_cost_half_a_bit_or_an_eighth_when_quantized_twice() -> None:
    plain = quantization({"quant_method": "bitsandbytes", "load_in_4bit": True})
    twice = quantization({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True})
    eight = quantization({"quant_method": "bitsandbytes", "load_in_8bit": True, "load_in_4bit": False})
    assert plain.format_of(QUERY).matrix_bytes(64, 64) == 64 * 64 * 4.5 / 8
    assert twice.format_of(QUERY).matrix_bytes(64, 64) == 64 * 64 * (4 + 8.125 / 64) / 8
    assert eight.format_of(QUERY).name == "int8"
    assert plain.format_of(HEAD) == BF16


def test_quark_mxfp4_is_read() -> None:
    table = {
        "quant_method": "quark",
        "global_quant_config": {"weight": {"dtype": "fp4", "group_size": 32, "qscheme": "per_group"}},
        "exclude": ["lm_head", "re:.*self_attn.*"],
    }
    assert formats(table, EXPERT, QUERY) == ["mxfp4", "bf16"]


def test_the_routers_of_every_card_stay_unquantized() -> None:
    for name in ("kimi-k2-fp8", "qwen3-235b-a22b-fp8", "minimax-m2.5-fp8"):
        moe = load_model(name).layers[-1].moe
        assert moe is not None
        assert moe.router_bytes == 2 * moe.router_parameters


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"bits": 4}, "no quant_method; allowed: auto-round"),
        ({"quant_method": "magic"}, "'magic'; allowed: auto-round"),
        ({"quant_method": 4}, "quant_method is 4; allowed: a text"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP9"}, "quant_algo is 'NVFP9'; allowed: FP8"),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, "without quantized_layers"),
        ({"quant_method": "fp8", "weight_block_size": [128]}, "weight_block_size is [128]; allowed: two"),
        ({"quant_method": "fp8", "weight_block_size": [0, 128]}, "weight_block_size is [0, 128]"),
        ({"quant_method": "fp8", "modules_to_not_convert": [1]}, "modules_to_not_convert is [1]; allowed: a list"),
        ({"quant_method": "awq", "bits": "four"}, "bits is 'four'"),
        ({"quant_method": "awq", "bits": -4}, "bits is -4"),
        ({"quant_method": "gptq", "dynamic": {"+:x": 3}}, "a per-module entry is 3"),
        ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp3"}}}, "dtype is 'fp3'"),
        (compressed({"type": "int"}), "no key 'num_bits'"),
        (compressed({"num_bits": 6, "type": "float"}), "float weights of num_bits 6; allowed: 4, 8"),
        (compressed(INT4_WEIGHTS, "re:(a+)+$"), "could take too long"),
        (compressed(INT4_WEIGHTS, "re:["), "is no regular expression"),
    ],
)
def test_a_quantization_that_cannot_be_read_is_one_line(table: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError) as caught:
        quantization(table)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_known_method_is_in_the_error_that_lists_them() -> None:
    with pytest.raises(InputError) as caught:
        quantization({"quant_method": "x"})
    assert all(method in str(caught.value) for method in known_methods())


@pytest.mark.parametrize(
    "expression",
    [
        r"(a+)+$",
        r"(a|a)*b",
        r"(.|.)" * 30,
        ".?" * 30 + "x",
        ".*" * 9 + "x",
        r"((x{2}){3}){4}",
        "[" * 6_000,
        "(a?){30}b",
    ],
)
def test_expressions_that_could_run_for_ages_are_refused(expression: str) -> None:
    with pytest.raises(PatternError):
        compiled(expression)


@pytest.mark.parametrize(
    "expression",
    [
        r".*mlp\.(gate|up|gate_up|down)_proj.*",
        r"^(?!.*experts).*",
        r".*layers\.(0|1|2|60)\.mlp\..*",
        r"(?:model\.)?lm_head",
    ],
)
def test_expressions_as_checkpoints_have_them_are_allowed(expression: str) -> None:
    assert compiled(expression).pattern == expression


def test_the_bound_on_steps_counts_loops_and_branches() -> None:
    assert worst_steps("abc") == 1
    assert worst_steps(r"a\+b[*+]c") == 1
    assert worst_steps("(a|b|c)") == 3
    assert worst_steps(".*") == 61
    assert worst_steps("(ab)*") == float("inf")


def test_plain_names_match_whole_parts_of_a_path_few_or_many() -> None:
    few, many = ["gate", "mlp.down_proj"], ["gate", "mlp.down_proj", *(f"filler{i}" for i in range(50))]
    for names in (few, many):
        test = matcher(names)
        assert test("model.layers.0.mlp.gate")
        assert test("model.layers.0.mlp.down_proj")
        assert not test("model.layers.0.mlp.gate_proj")
        assert not test("model.layers.0.down_proj")
