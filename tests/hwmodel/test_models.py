"""Model shapes: shipped cards against published sizes, the reference model by hand, and reading by path."""

import json
from pathlib import Path
from typing import Any

import pytest

from hwmodel.errors import InputError, UnknownNameError
from hwmodel.model_report import model_report
from hwmodel.models import load_model, model_names, published, shape_from_config
from hwmodel.specs import Layer, ModelShape

BILLION = 1e9
DENSE = {
    "model_type": "llama",
    "dtype": "bfloat16",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 100,
    "max_position_embeddings": 2048,
}


def dense(**changes: Any) -> ModelShape:
    return shape_from_config({**DENSE, **changes}, "small")


def moe_layer(shape: ModelShape) -> Layer:
    return next(layer for layer in shape.layers if layer.moe)


@pytest.mark.parametrize("name", model_names())
def test_totals_and_active_parameters_agree_with_what_was_published(name: str) -> None:
    shape, facts = load_model(name), published(name)
    parameters = model_report(shape)["parameters"]
    # Publishers round, and count the vision tower and the input embedding or not.
    assert parameters["total"] / BILLION == pytest.approx(facts["total_billion"], rel=0.03)
    with_embedding = parameters["active"] + shape.embedding_parameters
    assert int(parameters["active"] / BILLION) <= facts["active_billion"] <= 1.03 * with_embedding / BILLION
    assert "source" in facts
    assert shape.source


@pytest.mark.parametrize(
    ("name", "total_billion", "active_billion"),
    [
        ("gpt-oss-120b-mxfp4", 116.83, 5.13),
        ("gpt-oss-20b-mxfp4", 20.91, 3.61),
        ("deepseek-v3-fp8", 671.0, 36.6),
        ("qwen3-235b-a22b-bf16", 235.1, 21.6),
        ("deepseek-v4-flash-fp8", 284.3, 13.3),
        ("mixtral-8x7b-bf16", 46.7, 12.75),
    ],
)
def test_exactly_published_sizes_are_met_to_the_last_digit(
    name: str, total_billion: float, active_billion: float
) -> None:
    parameters = model_report(load_model(name))["parameters"]
    assert parameters["total"] / BILLION == pytest.approx(total_billion, abs=0.06)
    assert parameters["active"] / BILLION == pytest.approx(active_billion, abs=0.06)


def test_kimi_k2_5_int4_weighs_594_gb_and_caches_70_3_kb_a_token() -> None:
    report = model_report(load_model("kimi-k2.5-int4"))
    assert report["weight_bytes"]["total"] == pytest.approx(594e9, rel=0.01)
    assert report["kv_bytes_per_token"] == (512 + 64) * 2 * 61
    assert report["weight_bytes"]["by_component"]["routed_experts"] == pytest.approx(570.8e9, rel=1e-3)


def test_kimi_layer_on_one_of_eight_ranks_is_as_in_the_model_document() -> None:
    shape = load_model("kimi-k2.5-int4")
    layer = moe_layer(shape)
    assert layer.moe is not None
    assert [x.count for x in shape.layers] == [1, 60]
    # q_a (7168 x 1536) and kv_a (7168 x 576) whole on every rank, two norms with them.
    assert layer.attention.replicated_bytes == 2 * (7168 * (1536 + 576) + 1536 + 512)
    per_rank = layer.attention.sharded_bytes / 8 + layer.attention.replicated_bytes
    assert per_rank == pytest.approx(51.8e6, rel=2e-3)
    assert layer.moe.expert_bytes / 8 == pytest.approx(3.097e6, rel=1e-3)
    assert layer.moe.shared_bytes / 8 == pytest.approx(11.0e6, rel=2e-3)
    assert layer.moe.weight_format == "int4"
    assert shape.lm_head_read_bytes / 8 == pytest.approx(294e6, rel=2e-3)
    assert (layer.attention.kind, layer.attention.num_kv_heads) == ("mla", 1)


def test_a_dense_layer_by_hand() -> None:
    shape = dense()
    (layer,) = shape.layers
    # head_dim 16: q 64x64, k and v 32x64 each, o 64x64.
    assert layer.attention.parameters == 64 * 64 + 32 * 64 + 32 * 64 + 64 * 64
    assert layer.attention.sharded_bytes == 2 * layer.attention.parameters
    assert layer.attention.replicated_bytes == 0
    assert layer.attention.cache_elements_per_token == 2 * 2 * 16
    assert layer.dense is not None
    assert layer.dense.parameters == 3 * 64 * 128
    assert (layer.count, layer.norm_parameters) == (2, 128)
    assert shape.lm_head_parameters == 6400


def test_a_tied_head_is_stored_once_and_read_all_the_same() -> None:
    shape = dense(tie_word_embeddings=True)
    assert (shape.lm_head_parameters, shape.lm_head_bytes) == (0, 0)
    assert shape.lm_head_read_bytes == 100 * 64 * 2


def test_a_float32_model_takes_four_bytes_a_parameter() -> None:
    shape = dense(dtype="float32")
    assert shape.quantization == "fp32"
    assert shape.embedding_bytes == 4 * 6400


def test_the_laboratory_model_has_327_million_parameters_58_active() -> None:
    config = {
        "model_type": "qwen3_moe",
        "torch_dtype": "float32",
        "hidden_size": 1024,
        "num_hidden_layers": 6,
        "num_experts": 64,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 256,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "head_dim": 64,
        "vocab_size": 4096,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": False,
    }
    parameters = model_report(shape_from_config(config, "lab"))["parameters"]
    assert parameters["total"] == pytest.approx(327e6, rel=0.03)
    assert parameters["active"] == pytest.approx(58e6, rel=0.05)


@pytest.mark.parametrize("spelling", ["n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts"])
@pytest.mark.parametrize("top_k", ["num_experts_per_tok", "experts_per_token", "moe_topk"])
def test_all_spellings_of_the_expert_keys_are_read(spelling: str, top_k: str) -> None:
    moe = moe_layer(dense(**{spelling: 8, top_k: 2, "moe_intermediate_size": 32})).moe
    assert moe is not None
    assert (moe.num_experts, moe.num_experts_per_tok, moe.expert_parameters) == (8, 2, 3 * 64 * 32)


@pytest.mark.parametrize(
    ("keys", "kinds"),
    [
        ({"first_k_dense_replace": 2}, "DDMMMM"),
        ({"interleave_moe_layer_step": 2}, "DMDMDM"),
        ({"decoder_sparse_step": 3}, "DDMDDM"),
        ({"mlp_only_layers": [0, 4]}, "DMMMDM"),
        ({"moe_layer_freq": 2}, "MDMDMD"),
        ({"moe_layer_freq": [0, 1, 1, 0, 1, 1]}, "DMMDMM"),
        ({"moe_layers": [5]}, "DDDDDM"),
        ({"mlp_layer_types": ["dense", "sparse", "sparse", "sparse", "sparse", "dense"]}, "DMMMMD"),
        ({"num_experts": 0}, "DDDDDD"),
    ],
)
def test_layers_with_experts_are_where_the_configuration_puts_them(keys: dict[str, Any], kinds: str) -> None:
    experts = {"num_hidden_layers": 6, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    shape = dense(**{**experts, **keys})
    sizes = {bool(layer.moe): layer.count for layer in shape.layers}
    assert sizes.get(True, 0) == kinds.count("M")
    assert sizes.get(False, 0) == kinds.count("D")
    assert bool(shape.layers[0].moe) == (kinds[0] == "M")


def test_gpt_oss_alternates_a_window_of_128_with_full_attention() -> None:
    shape = load_model("gpt-oss-120b-mxfp4")
    assert [(x.count, x.attention.window_tokens) for x in shape.layers] == [(18, 128), (18, None)]


def test_qwen3_5_has_three_linear_layers_for_each_full_one() -> None:
    linear, full = load_model("qwen3.5-397b-a17b-bf16").layers
    assert (linear.count, linear.attention.kind, linear.attention.cache_elements_per_token) == (45, "linear", 0)
    assert (full.count, full.attention.kind, full.attention.cache_elements_per_token) == (15, "gqa", 2 * 2 * 256)
    # 64 value heads of 128 x 128 in FP32, and 3 inputs of the convolution over 2 x 2048 + 8192 channels in BF16.
    assert linear.attention.state_bytes_per_sequence == 64 * 128 * 128 * 4 + 3 * 12_288 * 2


def test_deepseek_v4_reads_ratios_windows_and_hash_layers_from_its_keys() -> None:
    shape = load_model("deepseek-v4-flash-fp8")
    by_kind = {(x.attention.compress_ratio, x.moe is not None and x.moe.hash_routed): x for x in shape.layers}
    assert {kind: layer.count for kind, layer in by_kind.items()} == {
        (1, True): 2,
        (4, True): 1,
        (128, False): 20,
        (4, False): 20,
    }
    assert by_kind[1, True].attention.window_tokens == 128
    picked = by_kind[4, False].attention
    assert (picked.selected_tokens, picked.indexer_elements_per_token) == (512 * 4, 128 // 4)
    assert by_kind[128, False].attention.selected_tokens is None
    assert moe_layer(shape).moe.weight_format == "mxfp4"  # type: ignore[union-attr]
    assert shape.mtp_layers[0].attention.window_tokens == 128
    assert any("hyper-connection" in text for text in shape.assumptions)


def test_glm_5_2_has_an_indexer_in_every_fourth_layer_only() -> None:
    layers = load_model("glm-5.2-nvfp4").layers
    own = sum(x.count for x in layers if x.attention.indexer_elements_per_token)
    assert own == 3 + 18  # layers 0, 1, 2 and then 6, 10, ... 74
    assert all(x.attention.selected_tokens == 2048 for x in layers)


def test_llama_4_reads_chunked_attention_as_a_window_and_says_so() -> None:
    shape = load_model("llama-4-scout-bf16")
    assert [(x.count, x.attention.window_tokens) for x in shape.layers] == [(36, 8192), (12, None)]
    assert any("chunk" in text for text in shape.assumptions)


def test_mtp_is_one_more_layer_of_the_models_own_kind_outside_the_total() -> None:
    shape = load_model("deepseek-v3-fp8")
    (layer,) = shape.mtp_layers
    assert layer.moe is not None
    assert layer.moe.num_experts == 256
    assert shape.mtp_extra_parameters == 2 * 7168 * 7168 + 3 * 7168
    report = model_report(shape)
    # DeepSeek-V3's README: the MTP module has 11.5 billion parameters of its own.
    assert report["parameters"]["by_component"]["mtp"] == pytest.approx(11.5e9, rel=0.02)
    assert any("MTP" in text for text in report["assumptions"])


def test_an_unknown_architecture_is_read_by_its_keys_with_the_assumption_stated() -> None:
    shape = dense(model_type="brand_new")
    assert shape.layers == dense().layers
    assert any("'brand_new' read by its keys alone" in text for text in shape.assumptions)
    assert dense().assumptions == ()


@pytest.mark.parametrize("nest", ["text_config", "llm_config", "language_config"])
def test_a_nested_language_model_is_found(nest: str) -> None:
    outer = {"model_type": "wrapper", "tie_word_embeddings": True, nest: DENSE}
    shape = shape_from_config(outer, "nested")
    assert shape.layers == dense().layers
    assert shape.lm_head_parameters == 0


def test_the_vision_tower_is_listed_and_an_unreadable_one_is_an_assumption() -> None:
    tower = {"depth": 2, "hidden_size": 8, "intermediate_size": 16, "patch_size": 2}
    block = 4 * 8 * 8 + 2 * 8 * 16 + 4 * 8 + 16 + 8 + 4 * 8
    ends = 8 * 3 * 2 * 2 + 2 * (8 * 8 + 8)
    assert dense(vision_config=tower).vision_parameters == 2 * block + ends
    blind = dense(vision_config={"model_type": "new"})
    assert blind.vision_parameters == 0
    assert any("vision tower counts as 0" in text for text in blind.assumptions)


def test_a_config_file_a_directory_and_an_own_card_give_the_same_shape(tmp_path: Path) -> None:
    directory = tmp_path / "My-Model"
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(DENSE))
    card = tmp_path / "card.toml"
    lines = [f"{key} = {json.dumps(value)}" for key, value in DENSE.items()]
    card.write_text('source = "own"\n[config]\n' + "\n".join(lines))
    from_file, from_directory = load_model(str(directory / "config.json")), load_model(str(directory))
    assert from_file == from_directory
    assert from_file.name == "My-Model"
    assert load_model(str(card)).layers == from_file.layers == dense().layers


def test_the_older_quantization_file_beside_the_config_is_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(DENSE))
    older = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(older))
    assert load_model(str(tmp_path)).quantization == "fp8"


def test_an_unknown_name_suggests_the_closest_and_says_where_all_are() -> None:
    with pytest.raises(UnknownNameError) as caught:
        load_model("moonshotai/Kimi-K2.5")
    message = str(caught.value)
    assert "did you mean 'kimi-k2.5-int4'" in message
    assert "mixtral-8x7b-bf16" not in message
    assert "`draftcast list models` has all " in message
    assert "\n" not in message


def test_card_names_are_found_in_any_case() -> None:
    assert load_model("Qwen3-8B-BF16") == load_model("qwen3-8b-bf16")


def test_files_that_are_no_models_are_one_line(tmp_path: Path) -> None:
    contents = {
        "list.json": b"[1, 2]",
        "empty.json": b"",
        "broken.json": b'{"hidden_size": ',
        "deep.json": b"[" * 100_000,
        "binary.json": b"\xff\xfe\x00\x01",
        "long.json": b'{"hidden_size": ' + b"9" * 10_000 + b"}",
        "text.toml": b"no toml",
        "cardless.toml": b'source = "x"',
        "unknown.toml": b"[config]\n[weights]\n",
        "long.toml": b"[config]\nhidden_size = 0x" + b"f" * 20_000,
        "huge.json": b" " * 20_000_001,
    }
    for name, content in contents.items():
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(InputError) as caught:
            load_model(str(path))
        assert "\n" not in str(caught.value), name
        assert str(caught.value).count("model ") <= 2, name
    (tmp_path / "empty_directory").mkdir()
    for odd in (tmp_path / "empty_directory", tmp_path / "missing.json", "", "x" * 5000, "a\0b", "a\nb", "/dev/null"):
        with pytest.raises(InputError) as caught:
            load_model(str(odd))
        assert "\n" not in str(caught.value)
