import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from loopback import serving

from draftcast.cli import cli

Run = Callable[..., Result]
DATA = Path(__file__).parent.parent / "data"
LAUNCH = DATA / "launch"
NGRAM = '{"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4}'
CONTRACT = {"name", "engine", "version", "argv", "speculative_config", "tensor_parallel_size", "findings"}
BROKEN = LAUNCH / "02_systemd_unquoted_json_BROKEN.service"
GOOD = LAUNCH / "01_systemd_ngram_ok.service"


def report(result: Result) -> dict[str, Any]:
    """The one JSON object on stdout, which holds no NaN or infinity."""

    def refuse(name: str) -> None:
        raise AssertionError(name)

    found: dict[str, Any] = json.loads(result.stdout, parse_constant=refuse)
    return found


@pytest.mark.parametrize("path", sorted(LAUNCH.iterdir()), ids=lambda path: path.name)
def test_every_sample_is_one_json_object_and_fails_exactly_where_it_is_marked_broken(run: Run, path: Path) -> None:
    result = run("inspect", path, "--json")
    found = report(result)
    assert set(found) >= CONTRACT | {"inputs", "launches"}
    severities = {finding["severity"] for launch in found["launches"] for finding in launch["findings"]}
    assert (result.exit_code == 1) == ("error" in severities)
    assert ("error" in severities) == ("BROKEN" in path.name or path.name.startswith("08"))
    assert all(launch["argv"][0] for launch in found["launches"])


def test_the_first_launchs_keys_stand_at_top_level_too(run: Run) -> None:
    found = report(run("inspect", LAUNCH / "17_underscore_and_alias.sh", "--json"))
    assert len(found["launches"]) == 3
    assert {key: found[key] for key in CONTRACT} == {key: found["launches"][0][key] for key in CONTRACT}


def test_an_error_ends_with_one_line_and_exit_code_1(run: Run) -> None:
    result = run("inspect", BROKEN)
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1] == "Error: 1 finding of severity error: json-quotes-lost"
    assert "json-quotes-lost" in result.stdout
    assert f"--speculative-config '{NGRAM.split(', ')[0]}, \"num_speculative_tokens\": 5}}'" in result.stdout


def test_a_malformed_source_is_an_error_finding_and_json_all_the_same(run: Run, tmp_path: Path) -> None:
    for name, text in (("a.service", "[Service]\nExecStart=/bin/vllm serve m --x '{\n"), ("a.yaml", "a: [\n")):
        (tmp_path / name).write_text(text)
        result = run("inspect", tmp_path / name, "--json")
        found = report(result)
        assert (result.exit_code, found["launches"]) == (1, [])
        assert found["findings"][0]["severity"] == "error"


def test_a_broken_document_of_several_leaves_the_others(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("args: [--model=m]\n---\na: [\n---\nx: {{ .Values.y }}\n---\nargs: [--model=n]\n")
    result = run("inspect", tmp_path / "a.yaml", "--json")
    found = report(result)
    assert [launch["model"] for launch in found["launches"]] == ["m", "n"]
    codes = [finding["code"] for finding in found["findings"] if finding["severity"] == "error"]
    assert codes == ["yaml-error", "template-not-rendered"]
    assert result.exit_code == 1


def test_an_unreadable_source_is_one_line_without_json(run: Run, tmp_path: Path) -> None:
    (tmp_path / "x.service").write_bytes(b"\xff\xfe")
    os.mkfifo(tmp_path / "pipe.sh")
    for name in ("no-such.service", "x.service", "pipe.sh", "."):
        result = run("inspect", tmp_path / name if name != "." else tmp_path, "--json")
        assert (result.exit_code, result.stdout) == (1, "")
        assert len(result.stderr.splitlines()) == 1


def test_the_command_may_follow_after_two_dashes(run: Run) -> None:
    result = run("inspect", "--json", "--", "vllm", "serve", "m", "--json", "--speculative-config", NGRAM)
    found = report(result)
    assert found["argv"] == ["vllm", "serve", "m", "--json", "--speculative-config", NGRAM]
    assert found["inputs"]["source"] == f"vllm serve m --json --speculative-config {NGRAM}"
    split = run("inspect", "--", "vllm", "serve", "m", "--speculative-config", "{method:", "ngram}")
    assert (split.exit_code, "json-word-split" in split.stdout) == (1, True)


def test_a_text_on_standard_input_is_read() -> None:
    result = CliRunner().invoke(cli, ["inspect", "-", "--json"], input=GOOD.read_text(), catch_exceptions=False)
    assert report(result)["speculative_config"]["prompt_lookup_min"] == 4


def test_standard_input_is_never_the_name_of_a_file() -> None:
    for text in (str(GOOD), "", "word"):
        result = CliRunner().invoke(cli, ["inspect", "-", "--json"], input=text, catch_exceptions=False)
        assert [finding["code"] for finding in report(result)["findings"]] == ["no-launch-found"]


def test_the_version_that_is_stated_judges_the_launch(run: Run) -> None:
    found = report(run("inspect", GOOD, "--engine-version", "v0.16.0", "--json"))
    assert found["version"] == "v0.16.0"
    assert "rejection_sample_method" not in found["speculative_config"]  # came with 0.18
    assert "async-scheduling-off" in [finding["code"] for finding in found["findings"]]
    assert found["notes"] == []


def test_a_version_that_contradicts_the_image_is_a_note(run: Run) -> None:
    found = report(run("inspect", LAUNCH / "10_k8s_args_ok.yaml", "--engine-version", "0.16.0", "--json"))
    assert found["notes"] == ["the launch itself says vllm 0.18.1; 0.16.0 is taken as stated"]


def test_a_gpu_settles_the_defaults_that_depend_on_it(run: Run) -> None:
    found = report(run("inspect", GOOD, "--engine-version", "0.16.0", "--gpu", "h200", "--json"))
    assert (found["max_num_seqs"], found["max_num_batched_tokens"]) == (1024, 8192)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--gpu", "h2000"), "no GPU"),
        (("--engine-version", "latest"), "engine version: got 'latest'"),
        (("--model-config", "/no/such/config.json"), "/no/such/config.json"),
        (("--api-key-env", "NO_SUCH_VARIABLE", "--url", "http://127.0.0.1:9"), "NO_SUCH_VARIABLE is not set"),
    ],
)
def test_options_that_cannot_be_used_are_one_line(run: Run, arguments: tuple[str, ...], message: str) -> None:
    source = () if "--url" in arguments else (GOOD,)
    result = run("inspect", *source, *arguments)
    assert result.exit_code == 1
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments", [(), ("a", "b", "c"), ("-", "-"), ("a", "b", "--", "c"), ("a", "--"), ("--pid", "0"), ("--pid", "x")]
)
def test_too_few_or_too_many_sources_are_wrong_usage(run: Run, arguments: tuple[str, ...]) -> None:
    assert run("inspect", *arguments).exit_code == 2


def test_a_command_without_the_dashes_is_told_where_to_put_them(run: Run) -> None:
    result = run("inspect", "vllm", "serve", "m", "--speculative-config", NGRAM)
    assert result.exit_code == 2
    assert "draftcast inspect -- vllm ..." in result.stderr


def test_two_launches_are_compared_after_defaults(run: Run, tmp_path: Path) -> None:
    (tmp_path / "old.sh").write_text("vllm serve m -tp 8 --max-num-seqs 64\n")
    (tmp_path / "new.sh").write_text(
        f"vllm serve m --max_num_seqs=64 --tensor-parallel-size 8 --speculative-config '{NGRAM}'\n"
    )
    result = run("inspect", tmp_path / "old.sh", tmp_path / "new.sh", "--engine-version", "0.16.0", "--json")
    found = report(result)
    assert result.exit_code == 0
    assert [change["key"] for change in found["changes"] if not change["is_consequence"]] == ["speculative_config"]
    assert found["speculative_config"]["method"] == "ngram"  # what would run after the restart
    assert found["old"]["speculative_config"] is None
    assert found["verdict"].startswith("The restart switches speculation on (ngram, 5 draft tokens).")
    assert report(run("inspect", tmp_path / "old.sh", tmp_path / "old.sh", "--json"))["changes"] == []


def test_a_comparison_is_judged_by_what_would_run(run: Run) -> None:
    assert run("inspect", BROKEN, GOOD).exit_code == 0
    result = run("inspect", GOOD, BROKEN)
    assert result.exit_code == 1
    assert result.stdout.startswith("The restart does not do what is written: [json-quotes-lost]")


def test_a_side_that_holds_no_launch_leaves_no_changes(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text("echo nothing\n")
    for arguments in ((tmp_path / "a.sh", GOOD), (GOOD, tmp_path / "a.sh")):
        result = run("inspect", *arguments, "--json")
        assert result.exit_code == 1
        assert report(result)["changes"] is None
        assert "holds no launch" in report(result)["changes_reason"]


def test_a_running_server_and_a_launch_are_compared(run: Run) -> None:
    answers = {
        "/version": (200, (DATA / "server/qwen_k5_version.json").read_text()),
        "/v1/models": (200, (DATA / "server/qwen_k5_models.json").read_text()),
        "/metrics": (200, (DATA / "measurements/qwen_k5_metrics_after.txt").read_text()),
    }
    with serving(answers) as url:
        alone = report(run("inspect", "--url", f"{url}/v1", "--json"))
        same = report(run("inspect", url, "--json"))
        compared = report(run("inspect", "--url", url, "--json", "--", "vllm", "serve", "models/qwc"))
    assert (alone["engine"], alone["version"], alone["argv"]) == ("vllm", "0.32.0", [])
    assert alone["speculative_config"]["num_speculative_tokens"] == 5
    assert alone["inferred"]["speculative_config.num_speculative_tokens"].startswith("1 + the highest position")
    assert same["server"] == alone["server"]
    assert "speculative_config" in [change["key"] for change in compared["changes"]]


def test_a_key_comes_from_the_environment_and_is_nowhere_in_the_output(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {"/v1/models": (200, (DATA / "server/qwen_k5_models.json").read_text())}
    monkeypatch.setenv("DRAFTCAST_API_KEY", "first-k3y")
    monkeypatch.setenv("OTHER_KEY", "second-k3y")
    with serving(answers, "first-k3y") as url:
        assert run("inspect", url).exit_code == 0
    with serving(answers, "second-k3y") as url:
        refused = run("inspect", url)
        assert refused.exit_code == 1
        assert "k3y" not in refused.output
        assert run("inspect", url, "--api-key-env", "OTHER_KEY").exit_code == 0


@pytest.mark.parametrize("as_json", [True, False])
def test_no_credential_of_either_side_is_printed(run: Run, tmp_path: Path, as_json: bool) -> None:
    (tmp_path / "a.sh").write_text("export HF_TOKEN=first-s3cret\nvllm serve m --api-key second-s3cret third-s3cret\n")
    options = ["--json"] if as_json else []
    words = ["vllm", "serve", "m", "--api-key", "fourth-s3cret", "fifth-s3cret", "--served-model-name", "fourth-s3cret"]
    for arguments in (
        [tmp_path / "a.sh"],
        [tmp_path / "a.sh", "--", *words],
        ["vllm serve m --api-key a6 sixth-s3cret"],
    ):
        result = run("inspect", *options, *arguments)
        assert "s3cret" not in result.output
    assert "pa55word" not in run("inspect", "http://user:pa55word@127.0.0.1:9").output


def test_the_launch_of_a_deployment_file_is_read(run: Run, tmp_path: Path) -> None:
    (tmp_path / "d.toml").write_text('[engine]\nlaunch = "vllm serve m -tp 8"\n')
    assert report(run("inspect", tmp_path / "d.toml", "--json"))["tensor_parallel_size"] == 8
    (tmp_path / "e.toml").write_text('[model]\nconfig = "x"\n')
    result = run("inspect", tmp_path / "e.toml")
    assert (result.exit_code, "draftcast predict" in result.stderr) == (1, True)


def test_every_line_for_people_fits_80_columns_but_those_to_copy(run: Run) -> None:
    for path in sorted(LAUNCH.iterdir()):
        lines = run("inspect", path).stdout.splitlines()
        assert not [line for line in lines if len(line) > 80 and not line.startswith("  ")]


def test_a_running_process_is_inspected(run: Run, tmp_path: Path) -> None:
    if not Path("/proc/self/stat").exists():
        pytest.skip("needs /proc")
    program = tmp_path / "vllm"
    program.write_text("print(flush=True)\nimport time\ntime.sleep(60)\n")
    words = [sys.executable, str(program), "serve", "org/m", "--speculative-config", NGRAM]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = report(run("inspect", "--pid", process.pid, "--json"))
        compared = report(run("inspect", "--pid", process.pid, "--json", "--", *words[:-1], NGRAM.replace("5", "3")))
        process.kill()
    assert found["argv"] == words
    assert found["speculative_config"]["prompt_lookup_min"] == 4
    assert [change["key"] for change in compared["changes"]] == ["speculative_config.num_speculative_tokens"]
    assert run("inspect", "--pid", 2**22 + 1).exit_code == 1


def test_inspecting_a_unit_loads_neither_yaml_nor_requests_nor_numpy() -> None:
    code = (
        "import sys; from draftcast.cli import cli; "
        f"cli.main(['inspect', {str(GOOD)!r}, '--json'], standalone_mode=False); "
        "bad = {'yaml', 'requests', 'numpy', 'scipy', 'simpy'} & set(sys.modules); assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=DATA.parent.parent, capture_output=True)


@given(st.binary(max_size=300))
def test_no_bytes_on_standard_input_give_a_traceback(content: bytes) -> None:
    result = CliRunner().invoke(cli, ["inspect", "-", "--json"], input=content, catch_exceptions=False)
    assert result.exit_code in (0, 1)
    assert not result.stdout or report(result)
    assert not any(line.startswith("Traceback") for line in result.output.splitlines())


@given(st.lists(st.text(max_size=12), max_size=6))
def test_no_words_after_the_dashes_give_a_traceback(words: list[str]) -> None:
    arguments = ["inspect", "--json", "--", "vllm", "serve", *words]
    result = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    assert result.exit_code in (0, 1)
    assert not result.stdout or report(result)
