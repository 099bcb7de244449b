"""Model names and quantizations: a card where there is one, a stand-in of the right kind and size where not."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration.published.models import mixture_of_experts, model_card, model_stem, sizes, storage
from hwmodel.models import model_names, published


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("NVFP4 (somebody)", ("nvfp4", 0.5625)),
        ("MXFP4 experts", ("mxfp4", 0.53125)),
        ("AWQ INT4", ("int4", 0.5625)),
        ("GPTQ 4-bit", ("int4", 0.5625)),
        ("W4A16", ("int4", 0.5625)),
        ("4bit (bitsandbytes)", ("int4", 0.5625)),
        ("W8A8 INT8", ("int8", 1.0)),
        ("FP8 (block)", ("fp8", 1.0)),
        ("BF16", ("bf16", 2.0)),
        ("fp16", ("bf16", 2.0)),
        ("BF16, fp8 KV", ("bf16", 2.0)),
        ("BF16 + KV cache fp8", ("bf16", 2.0)),
        ("INT4, FP8 KV cache", ("int4", 0.5625)),
    ],
)
def test_a_quantization_is_that_of_the_weights(cell: str, expected: tuple[str, float]) -> None:
    assert storage(cell) == expected


@pytest.mark.parametrize(("cell", "bits"), [("GGUF Q4_K_M", 4.6), ("Q8_0", 8.6), ("GGUF IQ2XXS", 2.6), ("GGUF", 4.6)])
def test_formats_of_llama_cpp_count_by_their_bits(cell: str, bits: float) -> None:
    found = storage(cell)
    assert found is not None
    assert found[0] == "int4"
    assert found[1] == pytest.approx(bits / 8.0)


@pytest.mark.parametrize("cell", ["", "fp8 KV", "native", "unquantized"])
def test_a_cell_that_names_no_weight_format_gives_none(cell: str) -> None:
    assert storage(cell) is None


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("org/Name-7B-Instruct-2507", "name-7b"),
        ("Name 7B (thinking)", "name-7b"),
        ("Name-7B-chat-base", "name-7b"),
        ("Italic-3B-it", "italic-3b"),
        ("Name_7B", "name-7b"),
    ],
)
def test_a_stem_leaves_owner_variant_and_date_out(name: str, stem: str) -> None:
    assert model_stem(name) == stem


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Foo-70B", (70.0, None)),
        ("Foo-235B-A22B", (235.0, 22.0)),
        ("Foo 2.4T-A80B", (2400.0, 80.0)),
        ("Foo-0.6B", (0.6, None)),
        ("Foo (1.5T)", (1500.0, None)),
        ("Foo-R1", (None, None)),
    ],
)
def test_sizes_are_read_from_the_name(name: str, expected: tuple[float | None, float | None]) -> None:
    assert sizes(name) == expected


@pytest.mark.parametrize(
    ("name", "card"),
    [
        ("Qwen/Qwen3-32B", "qwen3-32b-bf16"),
        ("Qwen3 235B-A22B Thinking 2507", "qwen3-235b-a22b-bf16"),
        ("Qwen-3-8B", "qwen3-8b-bf16"),
        ("Llama3.1-8B", "llama-3.1-8b-bf16"),
        ("gpt-oss 120B", "gpt-oss-120b-mxfp4"),
        ("Kimi-K2-Thinking", "kimi-k2-thinking-int4"),
        ("Kimi-K2-Instruct-0905", "kimi-k2-fp8"),
        ("deepseek-ai/DeepSeek-V3-0324", "deepseek-v3-fp8"),
        ("DeepSeek-V3/R1", "deepseek-v3-fp8"),
        ("Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b-bf16"),
        ("Llama-4-Maverick-17B-128E-Instruct", "llama-4-maverick-fp8"),
        ("Qwen3-14B-AWQ", "qwen3-14b-bf16"),
    ],
)
def test_a_name_finds_its_own_card_however_it_is_written(name: str, card: str) -> None:
    found = model_card(name, None)
    assert (found.card, found.exact) == (card, True)
    assert (found.total, found.active) == (1.0, 1.0)


def test_the_card_of_the_wanted_format_is_taken_where_there_is_one() -> None:
    assert model_card("GLM-5.1", "nvfp4").card == "glm-5.1-nvfp4"
    assert model_card("GLM-5.1", "fp8").card == "glm-5.1-fp8"
    assert model_card("Qwen3.5-397B-A17B", "int4").card == "qwen3.5-397b-a17b-awq"
    assert model_card("GLM-5.1", "int8").card == "glm-5.1-bf16"


@pytest.mark.parametrize("name", model_names())
def test_every_card_is_found_by_its_own_name(name: str) -> None:
    stem, form = name.rsplit("-", 1)
    assert model_card(stem, "int4" if form == "awq" else form).card == name


@pytest.mark.parametrize(
    ("name", "arch", "moe"),
    [
        ("Mistral-7B", "", False),
        ("Gemma-3-27B", "dense", False),
        ("Falcon-40B", "", False),
        ("Llama-3.1-405B", "", False),
        ("Command-R-104B", "dense", False),
        ("Hunyuan-80B-A13B", "", True),
        ("Nemotron-3-120B-A12B", "MoE (hybrid)", True),
        ("Grok-314B", "MoE (8 experts top-2)", True),
        ("Phi-3.5-MoE", "", True),
        ("Bar", "dense", False),
        ("Bar", "MoE", True),
    ],
)
def test_a_stand_in_is_of_the_same_kind(name: str, arch: str, moe: bool) -> None:
    found = model_card(name, None, arch)
    facts = published(found.card)
    assert not found.exact
    assert (facts["total_billion"] != facts["active_billion"]) == moe


@pytest.mark.parametrize("name", ["Mistral-7B", "Yi-34B", "Bloom-176B", "Hunyuan-80B-A13B", "Qwen9-2.4T-A80B"])
def test_a_stand_in_says_how_much_larger_the_model_is(name: str) -> None:
    found, (total, active) = model_card(name, None), sizes(name)
    facts = published(found.card)
    assert facts["total_billion"] * found.total == pytest.approx(total)
    assert active is None or facts["active_billion"] * found.active == pytest.approx(active)


def test_a_distilled_model_is_not_its_teacher() -> None:
    found = model_card("DeepSeek-R1-Distill-Llama-70B", None)
    facts = published(found.card)
    assert not found.exact
    assert facts["total_billion"] == facts["active_billion"] == pytest.approx(70.0, rel=0.05)


def test_kin_is_the_same_family_at_about_the_same_size() -> None:
    assert model_card("Qwen3.9-27B", None, "dense").kin
    assert not model_card("Gemma-3-27B", None, "dense").kin
    assert not model_card("Kimi-K9-5T", None, "MoE").kin


def test_kind_is_read_from_the_source_before_the_name() -> None:
    assert mixture_of_experts("Foo-30B-A3B", "dense") is False
    assert mixture_of_experts("Foo-8x7B", "") is True
    assert mixture_of_experts("Foo-17B-16E", "") is True
    assert mixture_of_experts("Foo", "") is None


@given(st.text(max_size=40), st.text(max_size=20))
@settings(max_examples=60)
def test_any_name_finds_some_card_at_a_finite_size(name: str, arch: str) -> None:
    found = model_card(name, None, arch)
    assert found.card in model_names()
    assert math.isfinite(found.total)
    assert found.total > 0.0
    assert found.active > 0.0
