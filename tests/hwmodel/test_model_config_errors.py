"""Configurations that cannot be read: one line that names the model, the key, what was got and what is allowed."""

from typing import Any

import pytest

from hwmodel.errors import InputError
from hwmodel.models import shape_from_config

GOOD: dict[str, Any] = {
    "model_type": "llama",
    "dtype": "bfloat16",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 100,
    "max_position_embeddings": 2048,
}
MOE = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
MLA = {"kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16}


def refusal(config: Any) -> str:
    with pytest.raises(InputError) as caught:
        shape_from_config(config, "mine")
    message = str(caught.value)
    assert message.startswith("model mine: ")
    assert "\n" not in message
    assert len(message) < 400
    return message


@pytest.mark.parametrize("config", [[1], None, "text", 3])
def test_a_configuration_that_is_no_table_is_refused(config: Any) -> None:
    assert "allowed: a table of keys" in refusal(config)


def test_an_empty_configuration_names_the_first_missing_key() -> None:
    assert "no key 'hidden_size' (or n_embd, d_model); needed" in refusal({})


@pytest.mark.parametrize(
    "key", ["hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size"]
)
def test_each_needed_key_is_named_when_it_is_missing_or_null(key: str) -> None:
    assert f"no key '{key}'" in refusal({k: v for k, v in GOOD.items() if k != key})
    assert f"no key '{key}'" in refusal({**GOOD, key: None})


@pytest.mark.parametrize(
    "key", ["hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size"]
)
@pytest.mark.parametrize("value", ["64", -1, 0, 1.5, float("nan"), float("inf"), True, [64], {"a": 1}, 10**30])
def test_a_size_of_a_wrong_kind_is_refused_by_name(key: str, value: Any) -> None:
    message = refusal({**GOOD, key: value})
    assert f"{key} is " in message
    assert "allowed: a whole number from 1 to" in message


def test_a_whole_number_written_as_a_float_is_read() -> None:
    assert shape_from_config({**GOOD, "hidden_size": 64.0}, "mine").hidden_size == 64


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"num_attention_heads": 5}, "64 does not divide by 5"),
        ({"num_key_value_heads": 3}, "num_attention_heads over num_key_value_heads: 4 does not divide by 3"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings is 'yes'; allowed: true, false"),
        ({"text_config": [1]}, "text_config is [1]; allowed: a table"),
        ({"quantization_config": "fp8"}, "quantization_config is 'fp8'; allowed: a table"),
        ({"model_type": 7}, "model_type is 7; allowed: a text"),
        ({"layer_types": ["full_attention"]}, "layer_types has 1 entries; needed: one for each of the 2 layers"),
        ({"layer_types": ["full_attention", "mamba"]}, "layer_types names 'mamba'; allowed: attention"),
        ({"layer_types": ["sliding_attention"] * 2}, "no key 'sliding_window'; needed"),
        ({"layer_types": ["linear_attention"] * 2}, "no key 'linear_num_key_heads'"),
        ({"layer_types": "full"}, "layer_types is 'full'; allowed: a list of texts"),
        ({"num_experts": 8}, "no key 'num_experts_per_tok'"),
        ({**MOE, "num_experts_per_tok": 9}, "9 experts per token of 8; allowed: up to 8"),
        ({**MOE, "num_experts": "many"}, "num_experts is 'many'"),
        ({**MOE, "num_experts": 10**9}, "num_experts is 1000000000; allowed: a whole number from 0"),
        ({**MOE, "moe_layer_freq": [1]}, "moe_layer_freq has 1 entries"),
        ({**MOE, "moe_layer_freq": 0}, "moe_layer_freq is 0"),
        ({**MOE, "mlp_only_layers": 3}, "mlp_only_layers is 3; allowed: a list"),
        ({**MLA, "v_head_dim": None}, "no key 'v_head_dim'"),
        ({**MLA, "index_topk": 64}, "no key 'index_head_dim'"),
        ({"compress_ratios": [4]}, "compress_ratios has 1 entries"),
        ({"compress_ratios": [4, 128]}, "no key 'head_dim'"),
        ({"num_hidden_layers": 10**6}, "num_hidden_layers is 1000000; allowed: a whole number from 1 to 2000"),
        ({"vision_config": 3}, "vision_config is 3; allowed: a table"),
    ],
)
def test_inconsistent_configurations_are_refused_with_the_reason(changes: dict[str, Any], says: str) -> None:
    assert says in refusal({**GOOD, **changes})


def test_a_long_value_is_cut_and_a_line_break_in_a_key_does_not_reach_the_message() -> None:
    assert "..." in refusal({**GOOD, "hidden_size": "x" * 10_000})
    refusal({**GOOD, "model_type": "mixtral", "layer_types": ["a\nb", "c"]})
    table = {"quant_method": "compressed-tensors", "config_groups": {"a\nb": 3}}
    refusal({**GOOD, "quantization_config": table})


def test_a_text_with_line_breaks_stays_one_line_in_the_assumptions() -> None:
    assert all("\n" not in text for text in shape_from_config({**GOOD, "model_type": "new\nmodel"}, "mine").assumptions)
