"""From the cells of a group to systems: layouts, formats, drafters and priors that the cells call for."""

import pytest
from published_rows import row

from calibration.published.population import CONSTANTS
from calibration.published.rows import PublishedRow
from calibration.published.systems import candidates, names_its_gpu
from simulator.system import System


def only(each: PublishedRow) -> System:
    """The system of a row whose source leaves nothing open."""
    found = candidates([each])
    assert len(found) == 1
    return found[0].system


def test_cells_become_the_layout_of_the_system() -> None:
    system = only(
        row(model="DeepSeek-V3", quantization="FP8", gpu="H200", gpu_count="16", tp="8", dp="2", ep="on", method="MTP")
    )
    assert (system.parallel.tensor, system.parallel.data, system.parallel.expert_parallel) == (8, 2, True)
    assert system.gpu.name == "h200"
    assert system.method == "mtp"
    assert system.batch_divisor == 2


def test_expert_parallelism_of_a_dense_model_is_let_go() -> None:
    assert not only(row(model="Qwen3-32B", ep="on", tp="2", gpu_count="2")).parallel.expert_parallel


def test_decode_context_parallelism_is_taken_where_it_divides_the_group() -> None:
    cells = {"model": "GLM-5.1", "quantization": "NVFP4", "gpu": "B200", "tp": "8", "gpu_count": "8", "method": "MTP"}
    assert only(row(**cells, dcp="4")).parallel.decode_context == 4
    assert only(row(**cells, dcp="3")).parallel.decode_context == 1
    assert only(row(**cells, dcp="")).parallel.decode_context == 1


def test_weights_are_stored_as_the_quantization_says_or_else_the_name() -> None:
    bf16 = only(row(model="Qwen3-32B", quantization="BF16")).work.weight_bytes
    for changes in ({"quantization": "FP8"}, {"quantization": "", "model": "Qwen3-32B-FP8"}):
        fp8 = only(row(**{"model": "Qwen3-32B", **changes})).work.weight_bytes
        assert 0.45 * bf16 < fp8 < 0.6 * bf16


def test_a_cache_in_fp8_says_nothing_of_the_weights() -> None:
    plain, small = (only(row(model="Qwen3-32B", quantization=cell)) for cell in ("BF16", "BF16, fp8 KV"))
    assert small.work.weight_bytes == plain.work.weight_bytes
    assert small.work.kv_bytes_per_token() == pytest.approx(0.5 * plain.work.kv_bytes_per_token())


def test_a_stand_in_has_the_size_that_the_name_states() -> None:
    # 2 bytes a parameter; the embedding and the head do not grow with the rest
    assert only(row(model="Bloomier-60B", arch="dense")).work.weight_bytes == pytest.approx(120e9, rel=0.1)
    large = only(row(model="Nemo-600B-A30B", gpu="B300", tp="8", gpu_count="8"))
    assert 8 * large.work.weight_bytes == pytest.approx(1200e9, rel=0.15)


def test_a_stand_in_of_another_family_has_a_wide_bandwidth() -> None:
    own, kin, other = (
        only(row(model=name, arch="dense")).priors["bandwidth_efficiency"].spread
        for name in ("Qwen3-32B", "Qwen3.9-27B", "Gemma-3-27B")
    )
    assert own == kin < other


@pytest.mark.parametrize(("tp", "allowed"), [("3", 2), ("6", 4), ("7", 4)])
def test_a_group_that_the_heads_do_not_divide_into_becomes_the_nearest_smaller(tp: str, allowed: int) -> None:
    assert only(row(model="Qwen3-32B", tp=tp, gpu_count=tp)).parallel.tensor == allowed


def test_a_guessed_gpu_must_hold_the_model_unless_none_does() -> None:
    labels = {each.label for each in candidates([row(model="Llama-3.3-70B", gpu="", tp="", gpu_count="")])}
    assert labels
    assert not any(label.startswith("1 x h100") for label in labels)  # 141 GB in 80
    assert candidates([row(model="Kimi-K9-9T", gpu="", tp="", gpu_count="")])


def test_a_stated_gpu_did_hold_the_model() -> None:
    assert only(row(model="Llama-3.3-70B", gpu="RTX 4090", tp="1", gpu_count="1"))


@pytest.mark.parametrize(
    ("method", "draft", "expected"),
    [
        ("EAGLE-3", "", "eagle3"),
        ("", "native MTP head", "mtp"),
        ("Jacobi", "", "eagle"),
        ("prompt lookup", "", "ngram"),
        ("suffix", "", "suffix"),
        ("medusa", "", "medusa"),
        ("P-EAGLE", "", "p_eagle"),
        ("MLP speculator", "", "mlp_speculator"),
        ("draft model", "Qwen3-0.6B", "draft_model"),
    ],
)
def test_the_drafter_is_the_one_named_by_either_cell(method: str, draft: str, expected: str) -> None:
    assert only(row(method=method, draft=draft)).method == expected


def test_a_named_draft_model_has_its_own_weight() -> None:
    small, large, unnamed = (
        only(row(method="draft model", draft=draft)).drafter.weight_bytes for draft in ("Qwen3-0.6B", "Qwen3-4B", "")
    )
    assert small < unnamed < large


def test_medusa_has_a_head_for_every_position() -> None:
    three, five = (only(row(method="medusa", k=k)).drafter.weight_bytes for k in ("3", "5"))
    assert five == pytest.approx(three * 5.0 / 3.0, rel=0.01)


def test_other_engines_have_drafter_passes_of_their_own() -> None:
    passes = {
        name: only(row(engine=name)).priors["draft_pass_ms"].center for name in ("vLLM", "TensorRT-LLM", "llama.cpp")
    }
    assert len(set(passes.values())) == 3


def test_an_engine_or_a_drafter_that_nobody_follows_has_a_drafter_pass_of_any_cost() -> None:
    spreads = [
        only(each).priors["draft_pass_ms"].spread
        for each in (row(), row(engine="FooServe"), row(method="WarpSpec"), row(method="WarpSpec", draft="EAGLE-3"))
    ]
    assert spreads[1] == spreads[2] > 3.0 * spreads[0]
    assert spreads[3] == spreads[0]


def test_the_arithmetic_of_a_gpu_without_a_card_is_open() -> None:
    known, unknown = (only(row(gpu=name)) for name in ("H100", "Zeta X1"))
    for name in ("dense_compute_efficiency", "expert_compute_efficiency", "attention_flop_scale"):
        assert unknown.priors[name].spread > known.priors[name].spread
        assert unknown.priors[name].high > 1.0


def test_a_fitted_constant_moves_where_it_applies_and_nowhere_else() -> None:
    name = CONSTANTS[0].name  # of vLLM
    moved = candidates([row()], {name: 0.5})[0].system.priors["draft_pass_ms"].center
    assert moved == pytest.approx(candidates([row()])[0].system.priors["draft_pass_ms"].center * 1.6487, rel=1e-4)
    sglang = row(engine="SGLang")
    assert candidates([sglang], {name: 0.5})[0].system.priors == candidates([sglang])[0].system.priors


def test_a_gpu_is_known_where_the_source_names_one() -> None:
    assert names_its_gpu(row(gpu="H100"))
    assert names_its_gpu(row(gpu="Radeon 8060S"))
    assert not names_its_gpu(row(gpu=""))
