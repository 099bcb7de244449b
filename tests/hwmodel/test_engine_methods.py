import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodel.engine.methods import Finding, canonical_method, check_method, method_names
from hwmodel.engine.versions import parse_version
from hwmodel.errors import UnknownNameError


def codes(version: str, method: str, k: int = 3, engine: str = "vllm", **options: int) -> set[str]:
    return {finding.code for finding in check_method(engine, parse_version(version), method, k, **options)}


def errors(version: str, method: str, engine: str = "vllm") -> list[Finding]:
    findings = check_method(engine, parse_version(version), method, 3)
    return [finding for finding in findings if finding.severity == "error"]


def test_vocabulary_is_the_contract() -> None:
    names = "none ngram ngram_gpu suffix eagle eagle3 mtp draft_model dflash dspark p_eagle medusa mlp_speculator"
    assert list(method_names()) == names.split()
    assert all(text and "\n" not in text for text in method_names().values())


@pytest.mark.parametrize(
    ("method", "lacking", "having"),
    [
        ("ngram_gpu", "0.17.1", "0.18.0"),
        ("suffix", "0.11.0", "0.11.2"),
        ("draft_model", "0.10.0", "0.9.2"),
        ("draft_model", "0.15.1", "0.16.0"),
        ("dflash", "0.19.1", "0.20.0"),
        ("dspark", "0.24.0", "0.25.0"),
        ("p_eagle", "0.15.1", "0.16.0"),
        ("medusa", "0.33.0", "0.32.0"),
        ("mlp_speculator", "0.33.0", "0.32.0"),
        ("eagle3", "0.8.3", "0.8.5"),
        ("eagle", "0.8.3", "0.8.5"),
    ],
)
def test_methods_come_and_go_with_versions(method: str, lacking: str, having: str) -> None:
    assert [finding.code for finding in errors(lacking, method)] == ["method-not-supported"]
    assert errors(having, method) == []


@pytest.mark.parametrize("version", ["0.7.3", "0.16.0", "0.33.0"])
def test_ngram_is_in_every_version(version: str) -> None:
    assert errors(version, "ngram") == []


def test_mtp_needs_an_alias_before_0_11() -> None:
    assert "mtp-alias" in codes("0.10.2", "mtp")
    assert "mtp-alias" not in codes("0.11.0", "mtp")


@pytest.mark.parametrize(
    ("k", "n_predict", "expected"),
    [
        (5, 2, {"draft-length-not-divisible"}),
        (4, 2, {"mtp-layer-reused"}),
        (2, 2, set()),
        (1, 2, set()),  # fewer than n_predict is allowed
        (3, 1, {"mtp-layer-reused"}),
        (1, 1, set()),
    ],
)
def test_mtp_draft_length_against_its_layers(k: int, n_predict: int, expected: set[str]) -> None:
    assert codes("0.16.0", "mtp", k, n_predict=n_predict) == expected


def test_a_reused_layer_is_a_warning_an_indivisible_length_an_error() -> None:
    assert check_method("vllm", (0, 16, 0), "mtp", 3, n_predict=1)[0].severity == "warning"
    assert check_method("vllm", (0, 16, 0), "mtp", 5, n_predict=2)[0].severity == "error"


def test_layers_do_not_bind_other_methods() -> None:
    assert codes("0.16.0", "ngram", 5, n_predict=2) == set()


@pytest.mark.parametrize(("draft", "bad"), [(1, False), (8, False), (2, True), (16, True)])
def test_drafter_is_split_over_one_rank_or_all(draft: int, bad: bool) -> None:
    found = codes("0.16.0", "eagle3", tensor_parallel_size=8, draft_tensor_parallel_size=draft)
    assert ("draft-tensor-parallel-size" in found) is bad
    assert codes("0.16.0", "ngram", tensor_parallel_size=8, draft_tensor_parallel_size=draft) == set()


def test_suffix_needs_a_package() -> None:
    assert codes("0.16.0", "suffix") == {"needs-package"}


def test_speculation_before_0_9_falls_back_to_v0() -> None:
    assert "falls-back-to-v0" in codes("0.8.5", "ngram")
    assert "falls-back-to-v0" not in codes("0.9.2", "ngram")


@pytest.mark.parametrize("method", ["ngram_gpu", "suffix", "p_eagle", "medusa", "mlp_speculator"])
def test_sglang_lacks_some_methods(method: str) -> None:
    assert [finding.code for finding in errors("0.5.23", method, "sglang")] == ["method-not-supported"]


def test_sglang_block_drafters_are_sure_only_where_read() -> None:
    assert errors("0.5.5", "dflash", "sglang")
    assert codes("0.5.10", "dspark", engine="sglang") == {"method-not-verified"}
    assert codes("0.5.23", "dspark", engine="sglang") == set()


def test_eagle3_has_a_short_target_list_before_0_12() -> None:
    assert "eagle3-target-list" in codes("0.11.2", "eagle3")
    assert "eagle3-target-list" not in codes("0.12.0", "eagle3")


def test_nothing_is_found_without_drafts() -> None:
    assert codes("0.33.0", "medusa", 0) == set()
    assert codes("0.33.0", "none", 5) == set()


def test_negative_length_is_an_error() -> None:
    assert codes("0.33.0", "ngram", -1) == {"negative-draft-length"}


def test_unknown_method_is_a_finding_here_and_an_error_at_the_border() -> None:
    assert codes("0.16.0", "ngramm") == {"unknown-name"}
    with pytest.raises(UnknownNameError, match="did you mean 'mlp_speculator'"):
        canonical_method("mlp-speculator")


@given(
    engine=st.text(max_size=8) | st.sampled_from(["vllm", "sglang"]),
    version=st.tuples(*[st.integers(0, 40)] * 3),
    method=st.text(max_size=8) | st.sampled_from(list(method_names())),
    k=st.integers(-3, 20),
    options=st.fixed_dictionaries(
        {
            "tensor_parallel_size": st.integers(1, 16),
            "draft_tensor_parallel_size": st.none() | st.integers(1, 16),
            "n_predict": st.none() | st.integers(0, 8),
        }
    ),
)
def test_check_raises_nothing(
    engine: str, version: tuple[int, int, int], method: str, k: int, options: dict[str, int | None]
) -> None:
    findings = check_method(engine, version, method, k, **options)  # type: ignore[arg-type]
    for finding in findings:
        assert finding.severity in {"error", "warning", "info"}
        assert finding.code == finding.code.lower().replace("_", "-")
        assert "\n" not in finding.text


def test_drafts_over_pipeline_stages_are_refused_or_not_known_to_start() -> None:
    def severities(engine: str, version: str, stages: int) -> set[str]:
        found = check_method(engine, parse_version(version), "eagle3", 3, pipeline_parallel_size=stages)
        return {finding.severity for finding in found if finding.code == "speculation-with-pipeline"}

    assert severities("sglang", "0.5.23", 2) == {"error"}
    assert severities("vllm", "0.15.0", 2) == {"error"}
    assert severities("vllm", "0.29.0", 4) == {"warning"}
    assert severities("vllm", "0.15.0", 1) == set()
    assert check_method("sglang", parse_version("0.5.23"), "eagle3", 0, pipeline_parallel_size=2) == ()
