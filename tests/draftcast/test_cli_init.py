import json
import shlex
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from draftcast.commands.init import REFERENCE_CASE

Run = Callable[..., Result]
LAUNCH = "vllm serve Qwen/Qwen3-235B-A22B-Instruct-2507-FP8 --tensor-parallel-size 4 --max-model-len 32768"
FEW = ("--draws", "200")


def stated(text: str) -> dict[str, object]:
    """The tables that state something; others only offer keys."""
    return {name: table for name, table in tomllib.loads(text).items() if table}


def test_the_shipped_reference_case_is_the_example_of_the_checkout(reference_case: Path) -> None:
    assert REFERENCE_CASE.read_bytes() == reference_case.read_bytes()


def test_without_arguments_it_shows_the_reference_case(run: Run, reference_case: Path) -> None:
    result = run("init")
    assert result.exit_code == 0
    assert stated(result.stdout) == stated(reference_case.read_text(encoding="utf-8"))


def test_keys_without_a_model_or_a_gpu_are_laid_over_the_reference_case(run: Run, reference_case: Path) -> None:
    result = run("init", "--set", "restart.outage_min=5")
    assert result.exit_code == 0
    wanted = tomllib.loads(reference_case.read_text(encoding="utf-8"))
    wanted["restart"]["outage_min"] = 5
    assert stated(result.stdout) == wanted
    assert "this is the reference case" in result.stderr


def test_two_commands_lead_from_nothing_to_the_answer(run: Run, tmp_path: Path, reference_case: Path) -> None:
    path = tmp_path / "my deployment.toml"
    made = run("init", "-o", path)
    assert (made.exit_code, made.stderr) == (0, "")
    told = [shlex.split(line) for line in made.stdout.splitlines() if line.strip().startswith("draftcast ")]
    assert ["draftcast", "choose", str(path)] in told
    answers = [strict_answer(run, source) for source in (path, reference_case)]
    assert answers[0] == answers[1]


def strict_answer(run: Run, source: object) -> object:
    result = run("choose", source, "--json", *FEW)
    assert result.exit_code == 0
    return json.loads(result.stdout)["recommendation"]


def test_a_launch_becomes_a_file_that_answers_as_the_launch_does(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "launch.toml"
    assert run("init", LAUNCH, "--gpu", "h100-sxm", "--method", "ngram", "-o", path).exit_code == 0
    tables = tomllib.loads(path.read_text(encoding="utf-8"))
    assert tables["model"]["config"] == "qwen3-235b-a22b-fp8"
    assert tables["engine"]["tensor_parallel_size"] == 4
    direct = run("choose", LAUNCH, "--gpu", "h100-sxm", "--method", "ngram", "--json", *FEW)
    assert strict_answer(run, path) == json.loads(direct.stdout)["recommendation"]


def test_a_launch_without_drafts_is_asked_about_the_method_that_needs_no_drafter(run: Run) -> None:
    assert tomllib.loads(run("init", LAUNCH, "--gpu", "h100-sxm").stdout)["speculation"] == {"method": "ngram"}


def test_a_launch_with_drafts_keeps_its_method(run: Run) -> None:
    launch = LAUNCH + """ --speculative-config '{"method": "suffix", "num_speculative_tokens": 4}'"""
    tables = tomllib.loads(run("init", launch, "--gpu", "h100-sxm").stdout)
    assert tables["speculation"]["method"] == "suffix"
    assert tables["speculation"]["num_speculative_tokens"] == 4


@pytest.mark.parametrize("model", ["gpt-oss-120b-mxfp4", "openai/gpt-oss-120b"])
def test_names_alone_describe_a_deployment(run: Run, model: str) -> None:
    result = run("init", "--gpu", "h200", "--model", model, "--num-gpus", "2", "--set", "workload.kind=code")
    tables = tomllib.loads(result.stdout)
    assert tables["model"] == {"config": "gpt-oss-120b-mxfp4"}
    assert tables["hardware"] == {"gpu": "h200", "num_gpus": 2}
    assert tables["engine"] == {"tensor_parallel_size": 2}
    assert tables["workload"]["kind"] == "code"


def test_a_path_is_made_absolute_since_the_file_may_be_written_anywhere(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config |= {"num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 1000, "torch_dtype": "bfloat16"}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (tmp_path / "deep").mkdir()
    done = run("init", "--gpu", "h200", "--model", "./config.json", "-o", "deep/d.toml")
    assert done.exit_code == 0
    tables = tomllib.loads((tmp_path / "deep" / "d.toml").read_text(encoding="utf-8"))
    assert tables["model"]["config"] == str(tmp_path / "config.json")
    assert run("choose", "deep/d.toml", *FEW).exit_code == 0


def test_a_file_that_is_there_is_kept_unless_forced(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("precious", encoding="utf-8")
    refused = run("init", "-o", path)
    assert refused.exit_code == 1
    assert "--force" in refused.stderr
    assert path.read_text(encoding="utf-8") == "precious"
    assert run("init", "-o", path, "--force").exit_code == 0
    assert tomllib.loads(path.read_text(encoding="utf-8"))["hardware"]["num_gpus"] == 8


@pytest.mark.parametrize(
    ("arguments", "next_step"),
    [
        (("--gpu", "h200"), "--model NAME"),
        (("--model", "qwen3-8b-bf16"), "--gpu NAME"),
        (("--set", "foo.bar=1"), "unknown key 'foo.bar'"),
        (("--gpu", "h200", "--set", "foo.bar=1"), "unknown key 'foo.bar'"),
        (("--set", "hardware.num_gpus=4"), "--set engine.tensor_parallel_size=N"),
        (("--num-gpus", "4"), "this is the reference case"),
        (("--gpu", "h2000"), "did you mean 'h200'"),
        (("--model", "qwen3-8b-bf17"), "did you mean 'qwen3-8b-bf16'"),
        ((LAUNCH,), "--gpu NAME"),
        (("--gpu", "h200", "--model", "Qwen/Qwen3-32B-AWQ"), "did you mean 'qwen3-32b-bf16'"),
        (("--gpu", "h100", "--model", "qwen3-8b-bf16"), "'h100-nvl' or 'h100-pcie' or 'h100-sxm'"),
        (("vllm serve a\nvllm serve b", "--gpu", "h200"), "--launch"),
        (("-o", "."), "cannot write"),
        (("llama-server -m x.gguf",), "draftcast init --model NAME --gpu NAME"),
        (("-o", "no/such/folder/x.toml"), "existing folder"),
    ],
)
def test_what_is_missing_is_said_with_the_option_to_give(run: Run, arguments: tuple[str, ...], next_step: str) -> None:
    result = run("init", *arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert next_step in result.stderr
    assert result.stderr.count("\n") == 1


def test_json_holds_the_tables_and_the_text(run: Run) -> None:
    result = json.loads(run("init", "--json").stdout)
    assert stated(result["text"]) == result["deployment"]
    assert result["output"] is None


@pytest.mark.parametrize(
    ("arguments", "points"),
    [
        (("--model", "deepseek-v3-fp8", "--gpu", "h200", "--num-gpus", "8"), True),
        (("--model", "deepseek-v3-fp8", "--gpu", "h200", "--num-gpus", "8", "--method", "mtp"), False),
        (("--model", "qwen3-8b-bf16", "--gpu", "h200"), False),
        (("vllm serve deepseek-ai/DeepSeek-V3 -tp 8", "--gpu", "h200"), True),
    ],
)
def test_a_model_with_layers_of_its_own_that_draft_is_pointed_to_them(
    run: Run, arguments: tuple[str, ...], points: bool
) -> None:
    made = run("init", *arguments)
    assert ('method = "mtp" in' in made.stdout) is points
    asked = run("choose", *arguments, "-k", "1", "-c", "1", *FEW)
    assert asked.exit_code == 0
    assert ("--method mtp asks about them" in " ".join(asked.stderr.split())) is points
