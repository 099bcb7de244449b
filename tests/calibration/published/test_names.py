"""Names of GPUs, methods, engines and versions, most of them in no shipped table."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.published.names import engine_name, engine_version, gpu_card, method_name, names_a_gpu
from hwmodel.gpus import gpu_names


@pytest.mark.parametrize(
    ("cell", "card"),
    [
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("H100 SXM5 80GB", "h100-sxm"),
        ("8xH100", "h100-sxm"),
        ("8 x H100-SXM", "h100-sxm"),
        ("H100x8", "h100-sxm"),
        ("H100 PCIe", "h100-pcie"),
        ("H100 NVL 94GB", "h100-nvl"),
        ("8x H100 (80GB) NVLink", "h100-sxm"),
        ("NVIDIA H800", "h100-sxm"),
        ("2xH200-141GB", "h200"),
        ("HGX B200 (8 GPUs)", "b200"),
        ("GB200 NVL72", "gb200"),
        ("B300 SXM6", "b300"),
        ("A100-SXM4-80GB", "a100-sxm-80gb"),
        ("A100 80GB PCIe", "a100-pcie-80gb"),
        ("A100", "a100-sxm-80gb"),
        ("L40S 48GB", "l40s"),
        ("GeForce RTX 4090", "rtx-4090"),
        ("RTX4090 24G", "rtx-4090"),
        ("2x RTX 3090 Ti", "rtx-3090"),
        ("RTX 5090D", "rtx-5090"),
        ("RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000-blackwell-server"),
        ("RTX Pro 6000", "rtx-pro-6000-blackwell-server"),
        ("RTX PRO 6000 Workstation Edition", "rtx-pro-6000-blackwell-workstation"),
        ("rtx pro 6000 Max-Q", "rtx-pro-6000-blackwell-max-q"),
        ("RTX PRO 6000 MaxQ 96GB", "rtx-pro-6000-blackwell-max-q"),
        ("AMD Instinct MI300X OAM", "mi300x"),
        ("MI355X", "mi355x"),
        ("H20-3e", "h20"),
    ],
)
def test_a_gpu_is_found_by_its_words(cell: str, card: str) -> None:
    assert gpu_card(cell) == card


@pytest.mark.parametrize(
    "cell",
    [
        "",
        "unknown",
        "GH200",
        "L40",
        "L4",
        "V100",
        "RTX 6000 Ada",
        "RTX A6000",
        "RTX 5060 Ti",
        "MI325X",
        "TPU v6e",
        "M4",
    ],
)
def test_a_gpu_without_a_card_is_not_taken_for_another(cell: str) -> None:
    assert gpu_card(cell) is None


@pytest.mark.parametrize("name", gpu_names())
def test_every_card_is_found_by_its_own_name(name: str) -> None:
    assert gpu_card(name) == name


def test_a_gpu_is_named_whether_or_not_it_has_a_card() -> None:
    assert names_a_gpu("Radeon 8060S")
    assert names_a_gpu("H100")
    assert not names_a_gpu("")
    assert not names_a_gpu("not stated")


@pytest.mark.parametrize(
    ("cell", "method"),
    [
        ("EAGLE-3", "eagle3"),
        ("eagle3 (chain, topk 1)", "eagle3"),
        ("EAGLE 3.1", "eagle3"),
        ("EAGLE_3", "eagle3"),
        ("EAGLE", "eagle"),
        ("EAGLE-2", "eagle"),
        ("EAGLE draft head", "eagle"),
        ("P-EAGLE", "p_eagle"),
        ("MTP-3", "mtp"),
        ("DeepSeek NextN", "mtp"),
        ("N-gram", "ngram"),
        ("prompt lookup decoding", "ngram"),
        ("suffix decoding", "suffix"),
        ("Draft Model (Qwen3-0.6B)", "draft_model"),
        ("Medusa-2", "medusa"),
        ("MLP speculator", "mlp_speculator"),
        ("DFlash block diffusion", "dflash"),
        ("DSpark", "dspark"),
    ],
)
def test_a_method_is_found_by_its_word(cell: str, method: str) -> None:
    assert method_name(cell) == method


@pytest.mark.parametrize("cell", ["", "none", "Jacobi decoding", "LayerSkip"])
def test_a_word_that_is_no_method_here_is_none(cell: str) -> None:
    assert method_name(cell) is None


@pytest.mark.parametrize(
    ("engine", "version", "date", "release"),
    [
        ("vLLM", "0.21.1", "", "0.21.1"),
        ("vLLM", "v0.21.1rc2.dev5", "", "0.21.1"),
        ("vLLM", "vllm-0.21", "", "0.21.0"),
        ("vLLM", "vllm==0.21.1", "", "0.21.1"),
        ("vLLM", "0.22.0 (ROCm 7.14)", "", "0.22.0"),
        ("vLLM", "ROCm 7.14, 0.22.0", "", "0.22.0"),
        ("vLLM", "CUDA 12.8", "2026-05-02", "0.20.2"),
        ("vLLM", "torch 2.9 nightly", "2026-05-02", "0.20.2"),
        ("vLLM", "0.1.dev20904", "2026-06", "0.23.0"),
        ("vLLM", "main @abc1234", "2026-03-30", "0.16.0"),
        ("vLLM", "", "2024-01", "0.7.3"),
        ("vLLM", "", "2031-01", None),
        ("vLLM", "", "", None),
        ("vLLM", "", "spring", None),
        ("SGLang", "0.5.6.post2", "", "0.5.6"),
        ("SGLang", "", "2025-08", "0.5.5"),
        ("TensorRT-LLM", "1.2.0", "2026-01", None),
        ("llama.cpp", "b5000", "2026-01", None),
    ],
)
def test_the_release_is_the_one_named_else_the_one_of_the_month(
    engine: str, version: str, date: str, release: str | None
) -> None:
    assert engine_version(engine, version, date) == release


def test_engines_whose_facts_are_unknown_count_as_vllm() -> None:
    assert engine_name("SGLang v0.5 router") == "sglang"
    assert [engine_name(name) for name in ("vLLM", "LMDeploy", "")] == ["vllm"] * 3


@given(st.text(max_size=40))
def test_any_text_is_resolved_without_an_error(text: str) -> None:
    assert gpu_card(text) is None or gpu_card(text) in gpu_names()
    method_name(text)
    engine_version("vLLM", text, text)
