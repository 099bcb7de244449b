from collections.abc import Iterator
from pathlib import Path

import pytest
from loopback import Answer, serving

from draftcast import load
from draftcast.expand import Expanded, expand, stated
from hwmodel.errors import InputError

LAUNCH = "vllm serve moonshotai/Kimi-K2.5 --tensor-parallel-size 8 --max-num-seqs 64"


@pytest.fixture
def deployment_file(tmp_path: Path) -> Path:
    return tmp_path / "deployment.toml"


def test_a_deployment_file_without_a_launch_is_left_to_the_loader(deployment_file: Path) -> None:
    deployment_file.write_text('[model]\nconfig = "kimi-k2.5-int4"  # launch it later\n', encoding="utf-8")
    assert expand(str(deployment_file)) == Expanded(str(deployment_file))


@pytest.mark.parametrize("content", [b"launch \xff", b"launch = [", b"engine = 1 # launch", b"launch = " + b"[" * 9999])
def test_a_faulty_file_is_left_to_the_loader(deployment_file: Path, content: bytes) -> None:
    deployment_file.write_bytes(content)
    assert expand(str(deployment_file)).tables is None


def test_a_missing_file_is_left_to_the_loader() -> None:
    assert expand("no-such-file.toml") == Expanded("no-such-file.toml")


def test_a_launch_command_becomes_tables() -> None:
    tables = expand(LAUNCH).tables
    assert tables is not None
    assert tables["engine"]["name"] == "vllm"
    assert tables["engine"]["tensor_parallel_size"] == 8
    assert tables["engine"]["max_num_seqs"] == 64


def test_a_launch_inside_a_file_is_expanded_and_gone(deployment_file: Path) -> None:
    deployment_file.write_text(f"[hardware]\ngpu = 'h200'\n[engine]\nlaunch = '{LAUNCH}'\n", encoding="utf-8")
    tables = expand(str(deployment_file)).tables
    assert tables is not None
    assert "launch" not in tables["engine"]
    assert tables["engine"]["max_num_seqs"] == 64
    assert tables["hardware"]["gpu"] == "h200"


def test_the_path_of_a_launch_inside_a_file_is_relative_to_it(deployment_file: Path) -> None:
    (deployment_file.parent / "start.sh").write_text(f"#!/bin/sh\nexec {LAUNCH}\n", encoding="utf-8")
    deployment_file.write_text("[engine]\nlaunch = './start.sh'\n", encoding="utf-8")
    tables = expand(str(deployment_file)).tables
    assert tables is not None
    assert tables["engine"]["max_num_seqs"] == 64


def test_a_key_that_the_launch_contradicts_is_an_error_with_both_values(deployment_file: Path) -> None:
    deployment_file.write_text(f"[engine]\nmax_num_seqs = 32\nlaunch = '{LAUNCH}'\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"engine\.max_num_seqs: got 32 beside a launch that says 64"):
        expand(str(deployment_file))


def test_a_key_that_the_launch_repeats_is_no_error(deployment_file: Path) -> None:
    deployment_file.write_text(f"[engine]\nmax_num_seqs = 64\nlaunch = '{LAUNCH}'\n", encoding="utf-8")
    assert expand(str(deployment_file)).tables is not None


def test_the_file_may_ask_about_another_model_and_drafter_than_the_launch_runs(deployment_file: Path) -> None:
    deployment_file.write_text(
        f"[model]\nconfig = 'my.json'\n[speculation]\nmethod = 'mtp'\n[engine]\nlaunch = '{LAUNCH}'\n", encoding="utf-8"
    )
    tables = expand(str(deployment_file)).tables
    assert tables is not None
    assert tables["speculation"] == {"method": "mtp"}
    assert tables["model"]["config"].endswith("my.json")


def test_what_the_file_leaves_out_about_the_drafter_is_the_launchs(deployment_file: Path) -> None:
    config = '{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}'
    deployment_file.write_text(
        f'[speculation.acceptance]\nrate = 0.5\n[engine]\nlaunch = """{LAUNCH} --speculative-config \'{config}\'"""\n',
        encoding="utf-8",
    )
    tables = expand(str(deployment_file)).tables
    assert tables is not None
    assert tables["speculation"]["method"] == "ngram"
    assert tables["speculation"]["acceptance"] == {"rate": 0.5}


def test_a_drafter_that_the_file_states_takes_the_place_of_the_launchs(deployment_file: Path) -> None:
    config = '{"method": "eagle3", "model": "/models/a", "num_speculative_tokens": 3, "quantization": "fp8"}'
    deployment_file.write_text(
        f'[speculation]\ndraft_model = "b"\n[engine]\nlaunch = """{LAUNCH} --speculative-config \'{config}\'"""\n',
        encoding="utf-8",
    )
    tables = expand(str(deployment_file)).tables
    assert tables is not None
    assert tables["speculation"]["draft_model"] == "b"
    assert "model" not in tables["speculation"]["launch_config"]
    assert tables["speculation"]["launch_config"]["quantization"] == "fp8"


def test_one_of_several_launches_is_chosen_by_name(tmp_path: Path) -> None:
    compose = tmp_path / "compose.yaml"
    services = [f"  {name}:\n    command: vllm serve m/{name} --max-num-seqs {n}\n" for name, n in (("a", 1), ("b", 2))]
    compose.write_text("services:\n" + "".join(services), encoding="utf-8")
    with pytest.raises(InputError, match="2 launches"):
        expand(str(compose))
    tables = expand(str(compose), "b").tables
    assert tables is not None
    assert tables["engine"]["max_num_seqs"] == 2


def test_a_launch_asked_for_by_name_in_a_file_without_one_is_an_error(deployment_file: Path) -> None:
    deployment_file.write_text('[model]\nconfig = "kimi-k2.5-int4"\n', encoding="utf-8")
    with pytest.raises(InputError, match=r"--launch: got 'z', but .* holds no launch"):
        expand(str(deployment_file), "z")


def test_the_version_that_a_file_or_an_option_states_judges_its_launch(deployment_file: Path) -> None:
    deployment_file.write_text(f"[engine]\nversion = '0.16.0'\nlaunch = '{LAUNCH}'\n", encoding="utf-8")
    assert not any("assumed" in note for note in expand(str(deployment_file)).notes)
    assert any("assumed" in note for note in expand(LAUNCH).notes)
    assert not any("assumed" in note for note in expand(LAUNCH, version="0.17.0").notes)


def test_the_last_override_of_a_key_is_what_is_stated() -> None:
    overrides = ("engine.version=0.16.0", "hardware.gpu=h200", "engine.version = 0.17.0")
    assert stated(overrides, "engine.version") == "0.17.0"
    assert stated((*overrides, "engine.version="), "engine.version") is None
    assert stated(overrides, "model.config") is None


def test_what_a_launch_leaves_out_is_asked_for_by_the_option_that_gives_it() -> None:
    with pytest.raises(InputError, match=r"the launch does not say hardware\.gpu; allowed: --gpu NAME"):
        expand(LAUNCH).require("hardware.gpu", False, "--gpu")


def test_nothing_is_asked_for_where_an_option_gave_it_or_the_loader_will() -> None:
    expand(LAUNCH).require("hardware.gpu", True, "--gpu")
    expand("no-such-file.toml").require("hardware.gpu", False, "--gpu")


def test_a_value_where_a_table_belongs_is_one_line(deployment_file: Path) -> None:
    deployment_file.write_text("hardware = 3\n[engine]\nlaunch = 'vllm serve m'\n", encoding="utf-8")
    with pytest.raises(InputError) as error:
        load(deployment_file, gpu="h200")
    assert "\n" not in str(error.value)


def test_a_gpu_and_a_model_given_to_load_win_over_the_launch() -> None:
    deployment = load(LAUNCH, gpu="h200", model="kimi-k2.5-int4")
    assert deployment.hardware.gpu == "h200"
    assert deployment.model.config == "kimi-k2.5-int4"
    assert deployment.engine.max_num_seqs == 64


SERVER = Path(__file__).parent.parent / "data"


@pytest.fixture
def server() -> Iterator[str]:
    """The URL of a server that answers as vLLM 0.20.2 with n-gram drafts did."""
    answers: dict[str, Answer] = {
        "/version": (200, '{"version": "0.20.2"}'),
        "/v1/models": (200, '{"data": [{"id": "m", "root": "moonshotai/Kimi-K2.5", "owned_by": "vllm"}]}'),
        "/metrics": (200, (SERVER / "measurements" / "metrics_v0.20.2_ngram_k5_sparse.txt").read_text()),
    }
    with serving(answers) as url:
        yield url


def test_a_running_server_is_a_deployment(server: str) -> None:
    deployment = load(f"{server}/v1", ["speculation.method=ngram"], gpu="h200")
    assert deployment.model.config == "kimi-k2.5-int4"
    assert deployment.engine.version == "0.20.2"
    assert deployment.speculation.num_speculative_tokens == 5
    assert deployment.speculation.acceptance is not None
    assert deployment.speculation.acceptance.form == "counters"
    assert any("inferred" in note for note in deployment.notes)


def test_what_a_server_does_not_say_is_asked_for(server: str) -> None:
    with pytest.raises(InputError, match=r"the server speculates \(5 draft tokens\) but does not say .*--method NAME"):
        load(server, gpu="h200")
    with pytest.raises(InputError, match=r"the server does not say hardware\.gpu; allowed: --gpu NAME"):
        expand(server).require("hardware.gpu", False, "--gpu")
    with pytest.raises(InputError, match="a server is one launch"):
        expand(server, "z")


def test_a_server_that_is_gone_is_one_line() -> None:
    with serving({}) as url:
        pass
    with pytest.raises(
        InputError, match=r"refuses the connection: .*; allowed: the base URL of a running vLLM or SGLang server"
    ):
        expand(url)


def test_a_note_that_asks_for_a_key_is_gone_once_the_key_is_given() -> None:
    found = expand("vllm serve org/unheard-of --tensor-parallel-size 2")
    asked = "the model org/unheard-of is no card known here: name one with --model"
    assert asked in found.notes_beside(("hardware.gpu=h200",))
    assert asked not in found.notes_beside(("model.config=qwen3-8b-bf16",))
    assert set(found.notes) - {asked} <= set(found.notes_beside(("model.config=qwen3-8b-bf16",)))
