import json
from typing import Any

import pytest

from hwmodel.engine.versions import Version
from validate.launch.arguments import parse_vllm
from validate.launch.findings import Finding, Place
from validate.launch.performance import add_performance_findings
from validate.launch.settings import vllm_settings
from validate.launch.speculative import Speculation, vllm_speculation

NEWEST = (0, 33, 0)


def judge(
    value: dict[str, Any] | str, *words: str, version: Version = NEWEST
) -> tuple[dict[str, Any] | None, dict[str, Finding]]:
    """(effective configuration, findings by code) of a launch with that --speculative-config."""
    text = value if isinstance(value, str) else json.dumps(value)
    return command("--speculative-config", text, *words, version=version)


def command(*words: str, version: Version = NEWEST) -> tuple[dict[str, Any] | None, dict[str, Finding]]:
    arguments = parse_vllm(["org/m", *words], version, is_serve=True)
    case = Speculation(Place("shell"), version, True, vllm_settings(arguments, {}))
    config = vllm_speculation(case, arguments)
    if config is not None:
        add_performance_findings(case, config)
    return config, {finding.code: finding for finding in [*arguments.findings, *case.settings.findings, *case.findings]}


def severities(findings: dict[str, Finding]) -> set[str]:
    return {finding.severity for finding in findings.values()}


@pytest.mark.parametrize("version", [(0, 8, 5), (0, 16, 0), NEWEST])
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, (5, 5)),
        ({"prompt_lookup_max": 4}, (4, 4)),
        ({"prompt_lookup_min": 2}, (2, 2)),
        ({"prompt_lookup_max": 4, "prompt_lookup_min": 2}, (2, 4)),
    ],
)
def test_lookup_defaults_follow_each_other(version: Version, given: dict[str, int], expected: tuple[int, int]) -> None:
    config, _ = judge({"method": "ngram", "num_speculative_tokens": 5} | given, version=version)
    assert config is not None
    assert (config["prompt_lookup_min"], config["prompt_lookup_max"]) == expected


def test_a_missing_lookup_minimum_is_a_warning_with_the_corrected_line() -> None:
    _, findings = judge({"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4}, version=(0, 16, 0))
    finding = findings["prompt-lookup-min-defaulted"]
    assert finding.severity == "warning"
    assert finding.fix is not None
    assert '"prompt_lookup_min": 2' in finding.fix


def test_lookup_bounds_in_the_wrong_order_are_refused() -> None:
    _, findings = judge(
        {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 2, "prompt_lookup_min": 4}
    )
    assert findings["prompt-lookup-order"].severity == "error"


@pytest.mark.parametrize("method", ["ngram", "mtp"])
def test_these_methods_have_no_default_length(method: str) -> None:
    assert judge({"method": method})[1]["num-speculative-tokens-missing"].severity == "error"


def test_suffix_takes_its_length_from_the_tree_depth() -> None:
    config, findings = judge({"method": "suffix"}, version=(0, 20, 2))
    assert config is not None
    assert (config["num_speculative_tokens"], config["suffix_decoding_max_spec_factor"]) == (24, 1.0)
    assert "error" not in severities(findings)
    assert judge({"method": "suffix"}, version=(0, 11, 0))[1]["method-not-supported"].severity == "error"


def test_mtp_uses_the_target_itself_and_its_tensor_parallel_size() -> None:
    config, _ = judge({"method": "mtp", "num_speculative_tokens": 1}, "-tp", "8")
    assert config is not None
    assert (config["model"], config["draft_tensor_parallel_size"]) == ("org/m", 8)


def test_the_draft_runs_on_one_rank_or_on_all() -> None:
    draft = {"method": "eagle3", "model": "d", "num_speculative_tokens": 3}
    assert "draft-tensor-parallel-size" not in judge(draft | {"draft_tensor_parallel_size": 1}, "-tp", "4")[1]
    assert (
        judge(draft | {"draft_tensor_parallel_size": 2}, "-tp", "4")[1]["draft-tensor-parallel-size"].severity
        == "error"
    )


@pytest.mark.parametrize(
    ("model", "method"),
    [
        ("ngram", "ngram"),
        ("[ngram]", "ngram"),
        ("x/y-EAGLE3", "eagle3"),
        ("x/EAGLE-l", "eagle"),
        ("x/y", "draft_model"),
    ],
)
def test_a_missing_method_is_inferred_from_the_draft(model: str, method: str) -> None:
    config, _ = judge({"model": model, "num_speculative_tokens": 3})
    assert config is not None
    assert config["method"] == method


def test_a_length_alone_is_refused() -> None:
    assert judge({"num_speculative_tokens": 3})[1]["method-missing"].severity == "error"
    assert judge({"method": "eagle3", "num_speculative_tokens": 3})[1]["draft-model-missing"].severity == "error"


def test_old_names_of_mtp_are_replaced_from_0_11_on() -> None:
    config, findings = judge({"method": "deepseek_mtp", "num_speculative_tokens": 1}, version=(0, 16, 0))
    assert config is not None
    assert (config["method"], findings["method-alias"].severity) == ("mtp", "warning")
    config, findings = judge({"method": "deepseek_mtp", "num_speculative_tokens": 1}, version=(0, 10, 2))
    assert config is not None
    assert (config["method"], "method-alias" in findings) == ("deepseek_mtp", False)


def test_a_method_that_does_not_exist_is_refused() -> None:
    assert judge({"method": "ngarm", "num_speculative_tokens": 1})[1]["unknown-method"].severity == "error"


@pytest.mark.parametrize(
    ("method", "lacks", "has"),
    [
        ("draft_model", (0, 12, 0), (0, 16, 0)),
        ("dflash", (0, 19, 0), (0, 20, 2)),
        ("ngram_gpu", (0, 17, 0), (0, 18, 1)),
        ("medusa", NEWEST, (0, 31, 0)),
        ("custom_class", (0, 21, 0), (0, 22, 0)),
    ],
)
def test_methods_exist_in_some_versions_only(method: str, lacks: Version, has: Version) -> None:
    config = {"method": method, "model": "d", "num_speculative_tokens": 3}
    assert judge(config, version=lacks)[1]["method-not-supported"].severity == "error"
    assert "method-not-supported" not in judge(config, version=has)[1]


def test_an_unknown_key_is_refused_and_the_nearest_offered() -> None:
    _, findings = judge({"method": "ngram", "num_speculative_tokens": 5, "ngram_prompt_lookup_max": 10})
    finding = findings["unknown-key"]
    assert finding.severity == "error"
    assert finding.fix is not None
    assert '"prompt_lookup_max": 10' in finding.fix


@pytest.mark.parametrize(
    ("key", "value", "version", "severity"),
    [
        ("disable_by_batch_size", 8, (0, 17, 0), "error"),
        ("attention_backend", "X", (0, 18, 1), "error"),
        ("attention_backend", "X", (0, 20, 2), "warning"),
        ("num_speculative_tokens_per_batch_size", [[1, 8, 1]], (0, 21, 0), "error"),
        ("synthetic_acceptance_rate", 0.5, (0, 20, 2), "error"),
    ],
)
def test_keys_come_and_go_with_versions(key: str, value: object, version: Version, severity: str) -> None:
    _, findings = judge({"method": "mtp", "num_speculative_tokens": 1, key: value}, version=version)
    assert findings["key-not-in-version"].severity == severity


def test_a_key_that_nothing_reads_is_a_warning() -> None:
    ngram = {"method": "ngram", "num_speculative_tokens": 5}
    assert judge(ngram | {"disable_by_batch_size": 8}, version=(0, 16, 0))[1]["key-ignored"].severity == "warning"
    assert (
        judge({"method": "mtp", "num_speculative_tokens": 1, "prompt_lookup_max": 4})[1]["key-ignored"].severity
        == "warning"
    )


def test_the_wrong_name_of_the_parallel_size_is_refused() -> None:
    _, findings = judge({"method": "mtp", "num_speculative_tokens": 1, "tensor_parallel_size": 2})
    assert findings["tensor-parallel-size-key"].fix == '"draft_tensor_parallel_size"'


def test_hyphens_in_keys_are_accepted_from_0_26_on() -> None:
    value = {"method": "mtp", "num-speculative-tokens": 2}
    config, findings = judge(value)
    assert config is not None
    assert (config["num_speculative_tokens"], severities(findings) - {"info"}) == (2, set())
    assert judge(value, version=(0, 25, 0))[1]["hyphenated-key"].severity == "error"


@pytest.mark.parametrize("value", ["", "None", "null", "{}"])
def test_an_empty_value_turns_speculation_off_and_is_an_error(value: str) -> None:
    config, findings = judge(value)
    assert config is None
    assert findings["speculative-config-empty"].severity == "error"


@pytest.mark.parametrize("length", [0, -1, 2.5, "x", [3]])
def test_lengths_must_be_whole_numbers(length: object) -> None:
    assert judge({"method": "mtp", "num_speculative_tokens": length})[1]["invalid-value"].severity == "error"


def test_a_key_given_twice_in_the_json_is_a_warning() -> None:
    config, findings = judge('{"method":"mtp","num_speculative_tokens":1,"num_speculative_tokens":2}')
    assert config is not None
    assert (config["num_speculative_tokens"], findings["json-duplicate-key"].severity) == (2, "warning")


def test_the_short_options_fill_the_same_keys_and_exclude_the_json() -> None:
    config, findings = command("--spec-method", "mtp", "--spec-tokens", "2")
    assert config is not None
    assert (config["method"], config["num_speculative_tokens"]) == ("mtp", 2)
    assert severities(findings) <= {"info"}
    _, findings = judge({"method": "mtp", "num_speculative_tokens": 1}, "--spec-tokens", "2")
    assert findings["spec-alias-conflict"].severity == "error"


LEGACY = ("--speculative-model", "[ngram]", "--num-speculative-tokens", "5", "--ngram-prompt-lookup-max", "4")


def test_the_first_engines_options_still_work_in_its_versions() -> None:
    config, findings = command(*LEGACY, version=(0, 7, 3))
    assert config == {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4, "prompt_lookup_min": 1}
    assert "error" not in severities(findings)


def test_the_first_engines_options_are_refused_later_with_the_json_to_write() -> None:
    finding = command(*LEGACY, version=(0, 8, 3))[1]["legacy-option"]
    assert finding.severity == "error"
    assert (
        finding.fix
        == """--speculative-config '{"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4}'"""
    )


@pytest.mark.parametrize(
    ("schedule", "good"),
    [
        ([[1, 64, 3], [65, 128, 1], [129, 512, 0]], True),
        ([[2, 64, 3]], False),
        ([[1, 64, 3], [64, 128, 1]], False),
        ([[1, 64, -1]], False),
        ([[64, 1, 2]], False),
        ([], False),
        ("x", False),
        ([[1, 2]], False),
    ],
)
def test_a_schedule_must_be_sorted_from_one_without_overlap(schedule: object, good: bool) -> None:
    _, findings = judge(
        {"method": "mtp", "num_speculative_tokens": 3, "num_speculative_tokens_per_batch_size": schedule}
    )
    assert ("schedule-invalid" in findings) is not good


def test_a_schedule_is_disabled_with_data_parallelism() -> None:
    value = {"method": "mtp", "num_speculative_tokens": 3, "num_speculative_tokens_per_batch_size": [[1, 8, 3]]}
    assert judge(value, "-dp", "2")[1]["schedule-ignored"].severity == "warning"


@pytest.mark.parametrize(
    ("version", "off"), [((0, 13, 0), False), ((0, 14, 1), True), ((0, 31, 0), True), ((0, 32, 0), False)]
)
def test_ngram_turns_asynchronous_scheduling_off_in_some_versions(version: Version, off: bool) -> None:
    _, findings = judge({"method": "ngram", "num_speculative_tokens": 3}, version=version)
    assert ("async-scheduling-off" in findings) is off


def test_asynchronous_scheduling_asked_for_with_ngram_is_refused() -> None:
    _, findings = judge({"method": "ngram", "num_speculative_tokens": 3}, "--async-scheduling", version=(0, 16, 0))
    assert findings["async-scheduling-refused"].severity == "error"
    _, findings = judge({"method": "ngram", "num_speculative_tokens": 3}, "--no-async-scheduling", version=(0, 16, 0))
    assert "async-scheduling-off" not in findings


def test_graphs_that_cover_too_few_requests_are_a_warning() -> None:
    value = {"method": "mtp", "num_speculative_tokens": 2}
    _, findings = judge(value, "--max-num-seqs", "64", "--max-cudagraph-capture-size", "64", version=(0, 16, 0))
    assert "21 requests" in findings["cudagraph-capture-too-small"].message  # 64 // (1 + 2)
    assert findings["cudagraph-capture-too-small"].fix == "--max-cudagraph-capture-size 192"
    assert "cudagraph-capture-too-small" not in judge(value, "--max-num-seqs", "64", version=(0, 16, 0))[1]
    assert "cudagraph-capture-too-small" in judge(value, "--max-num-seqs", "256", version=(0, 16, 0))[1]


def test_a_token_budget_below_the_drafts_is_a_warning() -> None:
    value = {"method": "mtp", "num_speculative_tokens": 3}
    _, findings = judge(value, "--max-num-seqs", "256", "--max-num-batched-tokens", "1000")
    assert "250 requests" in findings["token-budget-small"].message  # 1000 // (1 + 3)


def test_broken_json_stops_with_the_text_that_reached_the_engine() -> None:
    config, findings = judge("{method:ngram,num_speculative_tokens:5}")
    assert config is None
    assert "`{method:ngram,num_speculative_tokens:5}`" in findings["json-quotes-lost"].message


def test_json_split_by_the_shell_into_several_options_is_put_together() -> None:
    _, findings = command("--speculative-config=method:ngram", "--speculative-config=num_speculative_tokens:5")
    assert (
        findings["json-quotes-lost"].fix
        == """--speculative-config '{"method": "ngram", "num_speculative_tokens": 5}'"""
    )


def test_a_value_that_only_the_environment_knows_is_a_warning() -> None:
    config, findings = judge("${SPEC}")
    assert (config, severities(findings)) == (None, {"warning"})
    config, findings = judge('{"method":"mtp","num_speculative_tokens":${K}}')
    assert config is not None
    assert (config["num_speculative_tokens"], severities(findings)) == (None, {"warning"})


@pytest.mark.parametrize(
    ("version", "value", "refused"),
    [
        ((0, 18, 1), "strict", False),
        ((0, 18, 1), "synthetic", True),
        ((0, 20, 2), "strict", False),
        ((0, 20, 2), "standard", True),
        ((0, 21, 0), "standard", False),
        ((0, 21, 0), "strict", True),
        ((0, 25, 0), "block", True),
        ((0, 26, 0), "block", False),
        (NEWEST, "fly", False),
        (NEWEST, 3, True),
        (NEWEST, ["standard"], True),
    ],
)
def test_rejection_methods_go_with_the_version(version: Version, value: object, refused: bool) -> None:
    given = {"method": "ngram", "num_speculative_tokens": 2, "rejection_sample_method": value}
    if value == "synthetic":
        given["synthetic_acceptance_rates"] = [0.5, 0.4]
    _, findings = judge(given, version=version)
    found = findings.get("invalid-value")
    assert (found is not None and "takes one of" in found.message) is refused
    if found is not None and value in ("strict", "standard"):
        assert found.fix is not None
        assert value not in found.fix


@pytest.mark.parametrize(
    ("keys", "refused"),
    [
        ({"synthetic_acceptance_rates": [0.9, 0.4]}, False),
        ({"synthetic_acceptance_length": 2.5}, False),
        ({"synthetic_acceptance_rates": [0.4, 0.9]}, True),
        ({"synthetic_acceptance_rates": [0.9]}, True),
        ({"synthetic_acceptance_rates": [1.2, 0.9]}, True),
        ({"synthetic_acceptance_rates": "0.9"}, True),
        ({"synthetic_acceptance_length": 3.5}, True),
        ({"synthetic_acceptance_length": True}, True),
        ({"synthetic_acceptance_rates": [0.9, 0.4], "synthetic_acceptance_length": 2}, True),
        ({}, True),
    ],
)
def test_forced_acceptance_is_one_chain_or_one_length(keys: dict[str, Any], refused: bool) -> None:
    given = {"method": "ngram", "num_speculative_tokens": 2, "rejection_sample_method": "synthetic"}
    _, findings = judge(given | keys)
    assert ("invalid-value" in findings) is refused


def test_a_drafters_way_to_sample_is_one_of_two() -> None:
    eagle = {"method": "eagle3", "model": "org/head", "num_speculative_tokens": 2}
    assert "invalid-value" in judge(eagle | {"draft_sample_method": "nucleus"})[1]
    assert "invalid-value" not in judge(eagle | {"draft_sample_method": "probabilistic"})[1]
