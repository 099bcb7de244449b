"""The report of `model --json`: parts that add up, for any configuration that can be read."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodel.errors import InputError
from hwmodel.model_report import model_report, rank_weight_bytes
from hwmodel.models import load_model, model_names, shape_from_config

OUTSIDE = ("mtp", "vision")
QUANTIZATIONS: list[dict[str, Any]] = [
    {},
    {"quant_method": "fp8", "weight_block_size": [128, 128]},
    {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head", "*self_attn*"]},
    {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True},
    {"quant_method": "mxfp4"},
]


@st.composite
def generic_configs(draw: st.DrawFn) -> dict[str, Any]:
    kv_heads = draw(st.sampled_from([1, 2, 4]))
    experts = draw(st.integers(0, 16))
    config: dict[str, Any] = {
        "model_type": draw(st.sampled_from(["llama", "qwen3_moe", "deepseek_v3", "unheard_of"])),
        "hidden_size": 64 * draw(st.integers(1, 8)),
        "num_hidden_layers": draw(st.integers(1, 12)),
        "num_attention_heads": kv_heads * draw(st.sampled_from([1, 4])),
        "num_key_value_heads": kv_heads,
        "head_dim": draw(st.sampled_from([32, 64])),
        "intermediate_size": 32 * draw(st.integers(1, 8)),
        "vocab_size": draw(st.integers(1, 5000)),
        "tie_word_embeddings": draw(st.booleans()),
        "quantization_config": draw(st.sampled_from(QUANTIZATIONS)),
        "num_nextn_predict_layers": draw(st.integers(0, 2)),
    }
    if experts:
        config |= {
            "num_experts": experts,
            "num_experts_per_tok": draw(st.integers(1, experts)),
            "moe_intermediate_size": 32 * draw(st.integers(1, 4)),
            "n_shared_experts": draw(st.integers(0, 2)),
            "first_k_dense_replace": draw(st.integers(0, 3)),
        }
    if draw(st.booleans()):
        config |= {
            "kv_lora_rank": 32,
            "q_lora_rank": 48,
            "qk_nope_head_dim": 16,
            "qk_rope_head_dim": 8,
            "v_head_dim": 16,
        }
    return config


@given(generic_configs())
@settings(max_examples=60, deadline=None)
def test_parts_add_up_and_active_is_at_most_total_plus_a_tied_head(config: dict[str, Any]) -> None:
    shape = shape_from_config(config, "generic")
    report = model_report(shape)
    for table in (report["parameters"], report["weight_bytes"]):
        parts = sum(value for name, value in table["by_component"].items() if name not in OUTSIDE)
        assert table["total"] == pytest.approx(parts)
    tied = 0 if shape.lm_head_parameters else shape.embedding_parameters
    assert 0 < report["parameters"]["active"] <= report["parameters"]["total"] + tied
    assert sum(layer.count for layer in shape.layers) == config["num_hidden_layers"]


@given(generic_configs())
@settings(max_examples=40, deadline=None)
def test_one_more_layer_never_means_fewer_bytes(config: dict[str, Any]) -> None:
    before = model_report(shape_from_config(config, "before"))
    longer = {**config, "num_hidden_layers": config["num_hidden_layers"] + 1}
    after = model_report(shape_from_config(longer, "after"))
    assert after["weight_bytes"]["total"] > before["weight_bytes"]["total"]
    assert after["kv_bytes_per_token"] > before["kv_bytes_per_token"]


@given(generic_configs(), st.sampled_from([2, 4, 8]))
@settings(max_examples=40, deadline=None)
def test_a_rank_holds_at_least_its_share_and_less_than_everything(config: dict[str, Any], ranks: int) -> None:
    shape = shape_from_config(config, "generic")
    total = rank_weight_bytes(shape, 1)
    assert total == pytest.approx(model_report(shape)["weight_bytes"]["total"])
    assert total / ranks <= rank_weight_bytes(shape, ranks) < total


def test_kimi_on_eight_ranks_holds_the_4_54_gb_that_every_step_reads_and_an_eighth_of_the_experts() -> None:
    shape = load_model("kimi-k2.5-int4")
    experts = model_report(shape)["weight_bytes"]["by_component"]["routed_experts"]
    embedding = shape.embedding_bytes / 8
    assert rank_weight_bytes(shape, 8) - experts / 8 - embedding == pytest.approx(4.54e9, rel=0.005)


def test_the_report_has_the_keys_of_the_contract_and_is_json() -> None:
    report = model_report(load_model("glm-5.1-nvfp4"))
    assert {"parameters", "weight_bytes", "kv_bytes_per_token", "assumptions"} <= report.keys()
    components = {
        "attention",
        "routed_experts",
        "shared_experts",
        "router",
        "dense_mlp",
        "embedding",
        "lm_head",
        "norms",
    }
    assert components | {"mtp"} == report["weight_bytes"]["by_component"].keys()
    assert json.loads(json.dumps(report, allow_nan=False)) == report


def test_windowed_layers_leave_the_cache_once_the_window_is_full() -> None:
    report = model_report(load_model("gpt-oss-20b-mxfp4"))
    assert report["kv_bytes_per_token"] == 24 * 2 * 8 * 64 * 2
    assert report["kv_bytes_per_token_beyond_windows"] == report["kv_bytes_per_token"] / 2


@pytest.mark.parametrize("name", model_names())
def test_every_shipped_card_fits_the_report(name: str) -> None:
    report = model_report(load_model(name), tensor_parallel_size=8)
    assert report["weight_bytes"]["total"] > report["per_rank"]["weight_bytes"] > report["weight_bytes"]["total"] / 8


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-10, 10**9),
    st.floats(),
    st.text(max_size=8),
    st.lists(st.integers(), max_size=3),
)
KEYS = st.sampled_from(
    [
        *(
            "hidden_size",
            "num_hidden_layers",
            "num_attention_heads",
            "num_key_value_heads",
            "head_dim",
            "intermediate_size",
        ),
        *("vocab_size", "model_type", "dtype", "kv_lora_rank", "q_lora_rank", "qk_rope_head_dim"),
        *("qk_nope_head_dim", "v_head_dim", "num_experts", "layer_types", "num_experts_per_tok", "moe_layer_freq"),
        *(
            "compress_ratios",
            "quantization_config",
            "text_config",
            "vision_config",
            "index_topk",
            "num_nextn_predict_layers",
        ),
        *("sliding_window", "indexer_types", "first_k_dense_replace", "tie_word_embeddings"),
    ]
)


@given(
    generic_configs(), st.dictionaries(KEYS, st.one_of(SCALARS, st.dictionaries(KEYS, SCALARS, max_size=2)), max_size=4)
)
@settings(max_examples=150, deadline=None)
def test_any_value_under_any_key_is_read_or_refused_in_one_line(config: dict[str, Any], odd: dict[str, Any]) -> None:
    if isinstance(odd.get("num_hidden_layers"), int):
        odd["num_hidden_layers"] %= 50  # thousands of layers are allowed, but slow
    message = "model odd: "
    try:
        model_report(shape_from_config({**config, **odd}, "odd"))
    except InputError as error:
        message = str(error)
    assert "\n" not in message
    assert message.startswith("model odd: ")
