import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodel.errors import InputError
from hwmodel.models import model_names
from simulator.deployment import load_deployment
from simulator.system import build_system
from validate.launch.deployment_keys import deployment_from_launch, looks_like_launch
from validate.launch.inspection import inspect_launch

SAMPLES = Path(__file__).parent.parent / "data" / "launch"
NGRAM = """--speculative-config '{"method":"ngram","num_speculative_tokens":5,"prompt_lookup_max":4}'"""


def error_text(call: Callable[[], object]) -> str:
    """The message of the stated error that the call ends with, or an empty text."""
    try:
        call()
    except InputError as error:
        return str(error)
    return ""


def errors(report: dict[str, object]) -> list[str]:
    findings = report["findings"]
    assert isinstance(findings, list)
    return [finding["code"] for finding in findings if finding["severity"] == "error"]


@pytest.mark.parametrize(
    ("name", "number", "expected"),
    [
        (
            "01_systemd_ngram_ok.service",
            0,
            {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_min": 4, "prompt_lookup_max": 4},
        ),
        ("05_systemd_backslash_ok.service", 0, {"method": "suffix", "num_speculative_tokens": 16}),
        ("07_compose_list_ok.yml", 0, {"method": "mtp", "num_speculative_tokens": 8, "draft_tensor_parallel_size": 2}),
        ("08_compose_string_folded.yml", 0, {"method": "ngram", "prompt_lookup_min": 2, "prompt_lookup_max": 4}),
        ("10_k8s_args_ok.yaml", 0, {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_min": 4}),
        (
            "13_bash_double_quoted_vars.sh",
            0,
            {"method": "eagle3", "model": "/models/eagle3-head", "num_speculative_tokens": 3},
        ),
        ("17_underscore_and_alias.sh", 0, {"method": "eagle3", "enforce_eager": True, "num_speculative_tokens": 3}),
        ("17_underscore_and_alias.sh", 1, {"method": "mtp", "num_speculative_tokens": 1, "model": "org/m"}),
        ("17_underscore_and_alias.sh", 2, {"method": "mtp", "num_speculative_tokens": 2}),
        (
            "18_vllm_config.yaml",
            0,
            {"method": "eagle3", "model": "org/model-120b-eagle3", "draft_tensor_parallel_size": 4},
        ),
        ("21_sglang.sh", 0, {"method": "eagle", "num_speculative_tokens": 3, "eagle_topk": 1, "num_draft_tokens": 4}),
    ],
)
def test_good_samples_give_their_speculative_config(name: str, number: int, expected: dict[str, object]) -> None:
    launch = inspect_launch(SAMPLES / name)["launches"][number]
    assert launch["speculative_config"].items() >= expected.items()
    assert errors(launch) == []


@pytest.mark.parametrize(
    ("name", "codes"),
    [
        ("02_systemd_unquoted_json_BROKEN.service", ["json-quotes-lost"]),
        ("14_bash_printf_literal_quotes_BROKEN.sh", ["json-literal-quotes"]),
        (
            "20_json_typos_BROKEN.txt",
            ["json-trailing-comma", "json-python-quotes", "json-smart-quotes", "json-python-literal",
             "json-double-escaped", "json-template-braces", "unknown-key"],
        ),
    ],
)  # fmt: skip
def test_every_launch_of_a_broken_sample_is_an_error(name: str, codes: list[str]) -> None:
    assert [errors(launch)[0] for launch in inspect_launch(SAMPLES / name)["launches"]] == codes


def test_the_backslash_in_a_folded_compose_string_is_an_error() -> None:
    good, suspicious = inspect_launch(SAMPLES / "08_compose_string_folded.yml")["launches"]
    assert errors(good) == []
    assert errors(suspicious) == ["escaped-blank"]
    assert " --speculative-config" in suspicious["argv"]


def test_the_report_has_the_shape_of_the_contract() -> None:
    report = inspect_launch(SAMPLES / "07_compose_list_ok.yml")
    assert {"name", "engine", "version", "argv", "speculative_config", "tensor_parallel_size", "findings"} <= set(
        report
    )
    assert (report["engine"], report["version"], report["tensor_parallel_size"]) == ("vllm", "0.20.2", 2)
    assert report["argv"][:3] == ["vllm", "serve", "/models/org/model-fp8"]
    assert report["launches"][0]["argv"] == report["argv"]
    assert set(report["findings"][0]) == {"severity", "code", "message", "fix"}
    json.dumps(report, allow_nan=False)


def test_no_speculation_is_null() -> None:
    assert inspect_launch("vllm serve org/m")["speculative_config"] is None


def test_a_malformed_source_has_findings_and_no_launches() -> None:
    report = inspect_launch("vllm serve m --x '")
    assert report["launches"] == []
    assert errors(report) == ["unbalanced-quote"]
    assert errors(inspect_launch("echo nothing here")) == ["no-launch-found"]


def test_an_argument_list_is_taken_as_it_is() -> None:
    report = inspect_launch(
        ["vllm", "serve", "m", "--speculative-config", '{"method":"mtp","num_speculative_tokens":1}']
    )
    assert report["speculative_config"]["method"] == "mtp"
    assert report["argv"][:3] == ["vllm", "serve", "m"]


def test_a_config_file_beside_the_script_is_read_and_the_command_line_wins(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(
        "tensor-parallel-size: 4\nport: 1\nenforce-eager: true\ntrust-remote-code: false\n"
        "speculative-config: {method: mtp, num_speculative_tokens: 2}\n"
    )
    script = tmp_path / "s.sh"
    script.write_text("vllm serve m --config c.yaml --port 2\n")
    report = inspect_launch(script)
    assert report["argv"] == [
        "vllm", "serve", "m", "--tensor-parallel-size", "4", "--port", "1", "--enforce-eager", "--speculative-config",
        '{"method": "mtp", "num_speculative_tokens": 2}', "--port", "2",
    ]  # fmt: skip
    assert report["speculative_config"]["num_speculative_tokens"] == 2
    script.write_text("vllm serve m --config=c.yaml\n")
    assert errors(inspect_launch(script)) == ["config-file-ignored"]
    script.write_text("pip install vllm==0.11.2\nvllm serve m --config c.yaml\n")
    assert "config-nested-mapping" in errors(inspect_launch(script))
    (tmp_path / "c.yaml").write_text("a: [\n")
    assert errors(inspect_launch(script)) == ["config-file-malformed"]


def test_keys_of_the_reference_launch() -> None:
    text = (
        "pip install vllm==0.16.0\nvllm serve moonshotai/Kimi-K2.5 -tp 8 --max-model-len 131072 "
        f"--gpu-memory-utilization 0.95 {NGRAM}"
    )
    keys = deployment_from_launch(text)
    assert keys.tables == {
        "engine": {"name": "vllm", "version": "0.16.0", "tensor_parallel_size": 8, "max_model_len": 131072,
                   "gpu_memory_utilization": 0.95},
        "speculation": {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_min": 4, "prompt_lookup_max": 4,
                        "launch_config": {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4}},
        "model": {"config": "kimi-k2.5-int4"},
    }  # fmt: skip
    assert keys.model_name == "moonshotai/Kimi-K2.5"


def notes_of(launch: str) -> str:
    return "\n".join(deployment_from_launch(launch).notes)


def test_a_misspelt_option_is_a_note_with_the_right_name() -> None:
    assert "--max-modle-len is no option known here; did you mean --max-model-len?" in notes_of(
        "vllm serve org/m --max-modle-len 4096"
    )
    assert "--context-lenght is no option known here; did you mean --context-length?" in notes_of(
        "python -m sglang.launch_server --model-path org/m --context-lenght 4096"
    )


@pytest.mark.parametrize(
    "launch", ["vllm serve org/m --frobnicate 3", "python -m sglang.launch_server --model-path org/m --frobnicate 3"]
)
def test_an_option_that_is_not_known_here_is_a_note(launch: str) -> None:
    assert "not known here and passed over: --frobnicate" in notes_of(launch)


def test_a_key_that_the_version_ignores_is_a_note() -> None:
    value = '{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4, "disable_by_batch_size": 8}'
    assert "'disable_by_batch_size' is accepted and ignored" in notes_of(
        f"pip install vllm==0.11.0\nvllm serve org/m --speculative-config '{value}'"
    )


def test_a_version_stated_elsewhere_is_the_one_that_judges_the_launch() -> None:
    launch = "vllm serve org/m --enforce-eager"
    assert any("is assumed" in note for note in deployment_from_launch(launch).notes)
    keys = deployment_from_launch(launch, version="0.16.0")
    assert not any("is assumed" in note for note in keys.notes)
    assert "version" not in keys.tables["engine"]  # the launch does not say it
    with pytest.raises(InputError, match=r"came with 0\.8\.2"):
        deployment_from_launch(f"vllm serve org/m {NGRAM}", version="0.8.1")


def test_a_launch_without_speculation_says_none() -> None:
    assert deployment_from_launch("vllm serve org/m").tables["speculation"] == {"method": "none"}


def test_sglang_keys_are_translated() -> None:
    tables = deployment_from_launch(str(SAMPLES / "21_sglang.sh")).tables
    assert tables["engine"] == {"name": "sglang", "tensor_parallel_size": 8}
    assert tables["speculation"] == {
        "method": "eagle",
        "num_speculative_tokens": 3,
        "sglang_topk": 1,
        "sglang_num_draft_tokens": 4,
    }


def test_the_speculative_config_is_kept_as_the_launch_wrote_it_without_the_engines_defaults() -> None:
    value = {"method": "eagle3", "model": "/models/my-eagle3", "num_speculative_tokens": 3, "quantization": None}
    table = deployment_from_launch(f"vllm serve m --speculative-config '{json.dumps(value)}'").tables["speculation"]
    assert table["launch_config"] == value
    assert "launch_config" not in deployment_from_launch("vllm serve m").tables["speculation"]


def test_what_only_the_environment_knows_is_no_part_of_the_launch_config() -> None:
    value = (
        '{"method": "eagle3", "model": "/models/$NAME", "num_speculative_tokens": 3, "draft_load_config": {"a": "$B"}}'
    )
    table = deployment_from_launch(f"vllm serve m --speculative-config '{value}'").tables["speculation"]
    assert table["launch_config"] == {"method": "eagle3", "num_speculative_tokens": 3}


def test_credentials_in_the_speculative_config_are_hidden() -> None:
    value = {"method": "eagle3", "model": "https://me:hunter2@example.org/head", "num_speculative_tokens": 3}
    tables = deployment_from_launch(f"vllm serve m --speculative-config '{json.dumps(value)}'").tables
    assert "hunter2" not in json.dumps(tables)


def test_the_path_of_sglangs_drafter_is_kept() -> None:
    text = (
        "python -m sglang.launch_server --model-path m --speculative-algorithm EAGLE3 --speculative-num-steps 3 "
        "--speculative-eagle-topk 4 --speculative-num-draft-tokens 8 --speculative-draft-model-path /models/head"
    )
    table = deployment_from_launch(text).tables["speculation"]
    assert table["launch_config"] == {"model": "/models/head"}
    assert (table["sglang_topk"], table["sglang_num_draft_tokens"]) == (4, 8)


def test_parallel_drafting_is_p_eagle_and_a_schedule_is_kept() -> None:
    value = {
        "method": "eagle3", "model": "d", "num_speculative_tokens": 3, "parallel_drafting": True,
        "num_speculative_tokens_per_batch_size": [[1, 8, 3], [9, 64, 0]],
    }  # fmt: skip
    table = deployment_from_launch(f"vllm serve m --speculative-config '{json.dumps(value)}'").tables["speculation"]
    assert (table["method"], table["schedule"]) == ("p_eagle", [[1, 8, 3], [9, 64, 0]])


@pytest.mark.parametrize(
    ("repository", "card"),
    [
        ("moonshotai/Kimi-K2.5", "kimi-k2.5-int4"),
        ("moonshotai/Kimi-K2-Thinking", "kimi-k2-thinking-int4"),
        ("moonshotai/Kimi-K2-Instruct-0905", "kimi-k2-fp8"),
        ("nvidia/Kimi-K2.6-NVFP4", "kimi-k2.6-nvfp4"),
        ("deepseek-ai/DeepSeek-V3-0324", "deepseek-v3-fp8"),
        ("Qwen/Qwen3-235B-A22B-Instruct-2507", "qwen3-235b-a22b-bf16"),
        ("Qwen/Qwen3-235B-A22B-FP8", "qwen3-235b-a22b-fp8"),
        ("openai/gpt-oss-120b", "gpt-oss-120b-mxfp4"),
        ("/models/Qwen3-8B/", "qwen3-8b-bf16"),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b-bf16"),
        ("org/unheard-of", None),
    ],
)
def test_repository_names_find_their_card(repository: str, card: str | None) -> None:
    if card is not None and card not in model_names():
        pytest.skip(f"no card {card}")
    keys = deployment_from_launch(f"vllm serve {repository}")
    assert keys.tables.get("model", {}).get("config") == card
    assert any("no card" in note for note in keys.notes) is (card is None)


def test_a_local_checkpoint_is_named_by_its_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert deployment_from_launch(f"vllm serve {tmp_path}").tables["model"] == {"config": str(tmp_path / "config.json")}


def test_an_error_stops_with_one_line_that_names_code_and_correction() -> None:
    with pytest.raises(InputError) as caught:
        deployment_from_launch(str(SAMPLES / "02_systemd_unquoted_json_BROKEN.service"))
    assert "[json-quotes-lost]" in str(caught.value)
    assert "--speculative-config '{" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_several_launches_need_a_name() -> None:
    path = str(SAMPLES / "17_underscore_and_alias.sh")
    with pytest.raises(InputError, match="line-2, line-3, line-4"):
        deployment_from_launch(path)
    assert deployment_from_launch(path, "line-4").tables["speculation"]["num_speculative_tokens"] == 2
    with pytest.raises(InputError, match="did you mean 'line-4'"):
        deployment_from_launch(path, "line4")


@pytest.mark.parametrize("source", ["no-such-file.service", "", "word", str(SAMPLES), "vllm serve m --x '", "a: ["])
def test_unusable_sources_are_one_line_errors(source: str) -> None:
    with pytest.raises(InputError) as caught:
        deployment_from_launch(source)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"vllm serve \0", b"x" * 1_000_001])
def test_binary_and_huge_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.sh"
    path.write_bytes(content)
    with pytest.raises(InputError):
        inspect_launch(path)


def test_launch_texts_and_deployment_files_are_told_apart(tmp_path: Path) -> None:
    deployment = tmp_path / "d.toml"
    deployment.write_text('[model]\nconfig = "x"\n[engine]\nname = "vllm"\n')
    assert not looks_like_launch(str(deployment))
    assert not looks_like_launch(deployment.read_text())
    assert not looks_like_launch("no-such-file")
    assert looks_like_launch("vllm serve org/m")
    assert all(looks_like_launch(str(path)) for path in sorted(SAMPLES.iterdir()) if path.suffix != ".txt")


def test_yaml_is_imported_only_when_yaml_is_met() -> None:
    code = (
        "import sys; from validate.launch.deployment_keys import deployment_from_launch as d, looks_like_launch as l; "
        "l('services:\\n  a: {}\\n'); d('vllm serve org/m'); assert 'yaml' not in sys.modules, 'yaml'; "
        "assert 'numpy' not in sys.modules, 'numpy'; assert 'scipy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


@given(st.text(max_size=120))
def test_no_text_gives_a_traceback(text: str) -> None:
    assert "\n" not in error_text(lambda: inspect_launch(text))
    assert "\n" not in error_text(lambda: deployment_from_launch(text))
    looks_like_launch(text)


@given(
    st.lists(
        st.sampled_from(
            [
                "vllm serve m",
                "\n",
                " ",
                "'",
                '"',
                "$",
                "{",
                "}",
                ": ",
                "- ",
                "args:",
                "[Service]\nExecStart=",
                "\\",
                "--x=",
                "&a ",
                "*a",
            ]
        ),
        max_size=12,
    )
)
def test_no_mixture_of_formats_gives_a_traceback(pieces: list[str]) -> None:
    assert "\n" not in error_text(lambda: json.dumps(inspect_launch("vllm serve m\n" + "".join(pieces))))
    assert "\n" not in error_text(lambda: json.dumps(inspect_launch("".join(pieces))))


def test_the_largest_captured_size_of_a_launch_reaches_every_draft_length() -> None:
    keys = deployment_from_launch(
        "vllm serve Qwen/Qwen3-8B --max-cudagraph-capture-size 24 -cc.cudagraph_mode=PIECEWISE", version="0.16.0"
    )
    assert keys.tables["engine"]["max_cudagraph_capture_size"] == 24
    deployment = load_deployment({**keys.tables, "hardware": {"gpu": "h100-sxm"}, "speculation": {"method": "eagle3"}})
    system = build_system(deployment)
    assert [system.mode(k).capture_sizes for k in (0, 5)] == [(1, 2, 4, 8, 16, 24)] * 2


def test_two_largest_sizes_that_contradict_each_other_are_refused() -> None:
    keys = deployment_from_launch(
        "vllm serve Qwen/Qwen3-8B --max-cudagraph-capture-size 24 --cudagraph-capture-sizes 1 8"
    )
    with pytest.raises(InputError, match="got 24 beside sizes up to 8"):
        load_deployment({**keys.tables, "hardware": {"gpu": "h100-sxm"}})


@pytest.mark.parametrize(
    ("name", "card"),
    [
        ("moonshotai/Kimi-K2-Thinking", None),  # what the card was made from
        ("deepseek-ai/DeepSeek-R1-0528", "deepseek-r1-fp8"),
        ("/models/Kimi-K2-Thinking", "kimi-k2-thinking-int4"),
    ],
)
def test_a_model_that_another_card_stands_for_is_told(name, card):
    told = [note for note in deployment_from_launch(f"vllm serve {name}").notes if "is taken as" in note]
    wanted = f"launch: the model {name} is taken as the card {card}; --model names another one"
    assert told == ([wanted] if card else [])
