import json
from pathlib import Path
from typing import Any

import pytest

from hwmodel.gpus import load_gpu
from validate.launch.account import account_for
from validate.launch.findings import Finding
from validate.launch.inspection import inspect_launch
from validate.launch.known import Known
from validate.launch.sources import find_launches

H200 = load_gpu("h200")


def judged(
    config: object, options: str = "", version: str = "0.16.0", known: Known | None = None, env: str = ""
) -> dict[str, Finding]:
    """The findings of a launch with this speculative configuration, by code."""
    text = config if isinstance(config, str) else json.dumps(config)
    launch = find_launches(f"{env} vllm serve org/m {options} --speculative-config '{text}'").launches[0]
    given = known or Known()
    account = account_for(launch, Known(version, given.gpu, given.model))
    return {finding.code: finding for finding in account.findings}


MTP = {"method": "mtp", "num_speculative_tokens": 3}
NGRAM = {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4, "prompt_lookup_min": 2}


@pytest.mark.parametrize(
    ("method", "version", "off"),
    [
        ("draft_model", "0.16.0", True),
        ("draft_model", "0.29.0", False),
        ("dflash", "0.20.2", False),
        ("ngram_gpu", "0.18.1", False),
        ("suffix", "0.33.0", True),
        ("medusa", "0.20.2", True),
        ("mtp", "0.14.1", False),
        ("ngram", "0.13.0", False),  # it is off for everybody there
    ],
)
def test_what_turns_asynchronous_scheduling_off_follows_the_version(method: str, version: str, off: bool) -> None:
    found = judged({"method": method, "model": "d", "num_speculative_tokens": 3}, version=version)
    assert ("async-scheduling-off" in found) is off


def test_an_unpadded_drafter_batch_costs_asynchronous_scheduling() -> None:
    value = {**MTP, "disable_padded_drafter_batch": True}
    assert judged(value)["async-scheduling-off"].severity == "warning"
    assert judged(value, "--async-scheduling")["async-scheduling-refused"].severity == "error"
    assert "async-scheduling-off" not in judged(value, "--no-async-scheduling")


@pytest.mark.parametrize("layout", ["--distributed-executor-backend ray", "--pipeline-parallel-size 2"])
def test_how_the_workers_are_laid_out_costs_asynchronous_scheduling_too(layout: str) -> None:
    assert layout.split()[0] in judged(MTP, layout)["async-scheduling-off"].message
    assert judged(MTP, f"{layout} --async-scheduling")["async-scheduling-refused"].severity == "error"
    assert "async-scheduling-off" not in judged(MTP, layout, version="0.13.0")
    assert "async-scheduling-off" not in judged(MTP, f"{layout} --no-async-scheduling")


def test_runner_2_asked_for_with_what_it_lacks_is_refused() -> None:
    found = judged({"method": "suffix"}, version="0.33.0", env="VLLM_USE_V2_MODEL_RUNNER=1")
    assert found["model-runner-refused"].severity == "error"
    assert "model-runner-refused" not in judged(MTP, version="0.33.0", env="VLLM_USE_V2_MODEL_RUNNER=1")


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ("--enforce-eager", "enforce-eager"),
        ("""--compilation-config '{"cudagraph_mode": "PIECEWISE"}'""", "full-graph-off"),
        ("""-cc '{"cudagraph_mode": 0}'""", "full-graph-off"),
        ("-O0", "full-graph-off"),
    ],
)
def test_settings_that_give_up_full_graphs_are_warnings(options: str, code: str) -> None:
    assert judged(MTP, options)[code].severity == "warning"


def test_a_drafter_without_graphs_is_a_warning() -> None:
    assert "drafter-eager" in judged({**MTP, "enforce_eager": True})


def test_ngram_on_runner_1_loses_the_full_graph_in_steps_without_a_draft() -> None:
    known = Known(gpu=H200, model="qwen3-30b-a3b-bf16")
    assert "full-graph-needs-drafts" in judged(NGRAM, version="0.16.0", known=known)
    assert "full-graph-needs-drafts" not in judged(MTP, version="0.16.0", known=known)
    assert "full-graph-needs-drafts" not in judged(NGRAM, version="0.33.0", known=known)  # runner 2 always drafts


def test_a_backend_of_one_token_a_request_loses_the_full_graph_with_drafts() -> None:
    found = judged(MTP, "--attention-backend CUTLASS_MLA", known=Known(gpu=load_gpu("b200"), model="deepseek-v3-fp8"))
    assert "piecewise" in found["full-graph-lost"].message


def test_a_schedule_forces_piecewise_graphs_on_runner_1() -> None:
    value = {**NGRAM, "num_speculative_tokens_per_batch_size": [[1, 64, 3], [65, 512, 0]]}
    assert judged(value, version="0.24.0")["full-graph-off"].severity == "warning"
    assert "full-graph-off" not in judged(value, version="0.33.0")
    ignored = judged({**value, "method": "suffix"}, version="0.33.0")
    assert "ignores" in ignored["schedule-ignored"].message


def test_graph_limits_are_told_without_a_stated_number_of_requests() -> None:
    assert judged(MTP)["cudagraph-limit"].severity == "info"
    known = judged(MTP, known=Known(gpu=H200))["cudagraph-capture-too-small"]
    assert known.severity == "info"
    assert "128 requests" in known.message  # 512 // (1 + 3)
    assert "max_num_seqs=1024" in known.message  # the default on a GPU of that size


def test_graph_sizes_before_0_13_counted_requests() -> None:
    found = judged(MTP, "--max-num-seqs 32", version="0.12.0")
    assert "16 requests" in found["cudagraph-capture-too-small"].message  # 32 * 2 // (1 + 3)
    assert "cudagraph-capture-too-small" not in judged(MTP, "--max-num-seqs 32", version="0.13.0")


def test_the_token_budget_is_refused_with_lora_and_doubted_below_8192() -> None:
    small = "--max-num-seqs 256 --max-num-batched-tokens 1000"
    assert judged(MTP, f"{small} --enable-lora")["token-budget-lora"].severity == "error"
    assert "token-budget-lora" not in judged(MTP, small)
    found = judged(MTP, "--max-num-seqs 64 --max-num-batched-tokens 4096")
    assert "256 of them" in found["token-budget-below-8192"].message  # 64 * (1 + 3)


@pytest.mark.parametrize(
    ("options", "config", "code"),
    [
        ("--enable-dbo", NGRAM, "dbo-with-speculation"),
        ("--kv-sharing-fast-prefill", MTP, "kv-sharing-with-speculation"),
        ("--logits-processors a.b:C", NGRAM, "logits-processors-with-speculation"),
    ],
)
def test_options_that_speculation_excludes_are_errors(options: str, config: object, code: str) -> None:
    assert judged(config, options)[code].severity == "error"


def test_kv_sharing_is_fine_without_a_head_of_the_eagle_family() -> None:
    assert "kv-sharing-with-speculation" not in judged(NGRAM, "--kv-sharing-fast-prefill")


def test_adaptive_verification_names_what_it_does_not_go_with() -> None:
    value = {"method": "dspark", "model": "d", "num_speculative_tokens": 3, "enable_adaptive_verification": True}
    found = judged(value, "--enforce-eager", version="0.28.0")
    assert "--enforce-eager" in found["adaptive-verification"].message


def test_mtp_lengths_are_judged_by_the_models_own_layers() -> None:
    reused = judged(MTP, known=Known(model="deepseek-v3-fp8"))
    assert reused["mtp-layer-reused"].severity == "warning"
    assert "mtp-layer-reused" not in judged({**MTP, "num_speculative_tokens": 1}, known=Known(model="deepseek-v3-fp8"))
    assert "mtp-layers-missing" in judged(MTP, known=Known(model="qwen3-8b-bf16"))


@pytest.mark.parametrize(
    ("version", "codes"),
    [
        ("0.13.0", {"client-min-p-logit-bias", "client-min-tokens", "client-undrafted"}),
        ("0.14.1", {"client-min-p-logit-bias", "client-min-tokens"}),
        ("0.17.0", {"client-min-p-logit-bias"}),
    ],
)
def test_what_clients_lose_follows_the_version(version: str, codes: set[str]) -> None:
    found = judged(NGRAM, version=version)
    assert {
        code for code, finding in found.items() if code.startswith("client-") and finding.severity == "warning"
    } == codes


def test_a_launch_without_speculation_has_no_effects_on_clients() -> None:
    assert not [f for f in inspect_launch("vllm serve m")["findings"] if f["code"].startswith("client-")]


def test_the_first_engine_is_left_where_the_environment_says_so() -> None:
    assert "falls-back-to-v0" in judged(NGRAM, version="0.8.5")
    assert "falls-back-to-v0" not in judged(NGRAM, version="0.8.5", env="VLLM_USE_V1=1")
    assert inspect_launch("VLLM_USE_V1=1 vllm serve m", Known("0.33.0"))["model_runner"] == "v2"


def test_limits_are_filled_in_for_a_known_gpu() -> None:
    open_ended = inspect_launch("vllm serve m", Known("0.16.0"))
    assert open_ended["max_num_seqs"] is None
    assert "GPU" in open_ended["max_num_seqs_reason"]
    assert inspect_launch("vllm serve m", Known("0.16.0", H200))["max_num_seqs"] == 1024


def test_sizes_that_only_the_environment_knows_are_null_with_the_reason() -> None:
    report = inspect_launch("vllm serve m -tp $TP --max-num-seqs ${N}")
    assert (report["tensor_parallel_size"], report["max_num_seqs"]) == (None, None)
    assert "$" in report["tensor_parallel_size_reason"]


SPECULATORS: dict[str, Any] = {
    "speculators_model_type": "eagle3",
    "speculators_config": {
        "proposal_methods": [{"speculative_tokens": 4}],
        "verifier": {"name_or_path": "org/target"},
    },
    "transformer_layer_config": {},
}


@pytest.fixture
def speculators(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(SPECULATORS))
    return tmp_path


def test_a_model_that_brings_its_speculation_switches_it_on(speculators: Path) -> None:
    report = inspect_launch(f"vllm serve {speculators}", Known("0.16.0"))
    assert report["model"] == "org/target"
    assert report["speculative_config"].items() >= {
        "method": "eagle3", "model": str(speculators), "num_speculative_tokens": 4,
    }.items()  # fmt: skip
    assert "model-brings-speculation" in [finding["code"] for finding in report["findings"]]


def test_a_model_that_brings_its_speculation_replaces_what_the_launch_says(speculators: Path) -> None:
    report = inspect_launch(f"vllm serve {speculators} --speculative-config '{json.dumps(NGRAM)}'", Known("0.16.0"))
    codes = [finding["code"] for finding in report["findings"] if finding["severity"] == "error"]
    assert codes == ["speculative-config-replaced"]
    assert report["speculative_config"]["method"] == "eagle3"


def test_older_versions_do_not_read_what_a_model_brings(speculators: Path) -> None:
    assert inspect_launch(f"vllm serve {speculators}", Known("0.9.2"))["speculative_config"] is None


def test_a_models_config_may_be_given_beside_the_launch(speculators: Path) -> None:
    for given in (speculators, speculators / "config.json"):
        assert inspect_launch("vllm serve org/m", Known("0.16.0", model=str(given)))["model"] == "org/target"


def test_parallel_drafting_of_a_model_that_brings_it_is_kept(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**SPECULATORS, "speculators_model_type": "peagle"}))
    config = inspect_launch(f"vllm serve {tmp_path}", Known("0.33.0"))["speculative_config"]
    assert (config["method"], config["parallel_drafting"]) == ("eagle3", True)


def test_a_repository_named_like_a_speculator_is_doubted() -> None:
    findings = inspect_launch("vllm serve RedHatAI/Llama-3.1-8B-Instruct-speculator.eagle3")["findings"]
    assert "model-may-bring-speculation" in [finding["code"] for finding in findings]


@pytest.mark.parametrize(
    "content", ["[]", "{", '{"speculators_config": 3}', '{"speculators_config": {"verifier": []}}']
)
def test_a_strange_config_of_the_model_changes_nothing(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content)
    report = inspect_launch(f"vllm serve {tmp_path}")
    assert (report["model"], report["speculative_config"]) == (str(tmp_path), None)


@pytest.mark.parametrize(
    ("options", "codes"),
    [
        ("", {"running-requests-lowered"}),
        ("--max-running-requests 64", set()),
        ("--max-running-requests 64 --cuda-graph-max-bs 32", {"cudagraph-capture-too-small"}),
    ],
)
def test_sglangs_limits_with_speculation(options: str, codes: set[str]) -> None:
    text = (
        "python -m sglang.launch_server --model-path m --speculative-algorithm EAGLE3 --speculative-num-steps 3 "
        f"--speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --speculative-draft-model-path d {options}"
    )
    findings = inspect_launch(text)["findings"]
    warnings = {finding["code"] for finding in findings if finding["severity"] == "warning"}
    assert {code for code in warnings if not code.startswith("client-")} == codes


def test_sglangs_adaptive_length_needs_chains() -> None:
    text = (
        "python -m sglang.launch_server --model-path m --speculative-algorithm EAGLE3 --speculative-num-steps 3 "
        "--speculative-eagle-topk 4 --speculative-num-draft-tokens 8 --speculative-draft-model-path d "
        "--speculative-adaptive"
    )
    assert "adaptive-not-supported" in [finding["code"] for finding in inspect_launch(text)["findings"]]
    chain = text.replace("eagle-topk 4", "eagle-topk 1")
    assert "adaptive-not-supported" not in [finding["code"] for finding in inspect_launch(chain)["findings"]]


def test_sglang_versions_that_lack_an_algorithm_refuse_it() -> None:
    text = (
        "python -m sglang.launch_server --model-path m --speculative-algorithm DFLASH --speculative-draft-model-path d"
    )
    found = {finding["code"]: finding["severity"] for finding in inspect_launch(text, Known("0.5.5"))["findings"]}
    assert found["method-not-supported"] == "error"


def test_a_cpu_build_loses_neither_graphs_nor_asynchronous_scheduling() -> None:
    found = judged(NGRAM, "--enforce-eager", version="0.32.0+cpu")
    assert not {"enforce-eager", "async-scheduling-off", "ngram-algorithm", "full-graph-needs-drafts"} & set(found)
    assert {"enforce-eager", "ngram-algorithm"} <= set(judged(NGRAM, "--enforce-eager", version="0.32.0"))
