import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hwmodel.errors import InputError
from validate.launch.account import account_for
from validate.launch.process import launch_of_process

PROGRAM = (
    "import subprocess\n"
    "worker = subprocess.Popen(['VLLM::EngineCore', '60'], executable='/bin/sleep')\n"
    "print(worker.pid, flush=True)\n"
    "try:\n    worker.wait()\nfinally:\n    worker.kill()\n"
)
linux = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[tuple[int, int]]:
    """(launcher, engine core) of a real process that is called as vLLM is, with a child that renamed itself."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "vllm"
    program.write_text(PROGRAM)
    (tmp_path / "lib" / "python3.12" / "site-packages" / "vllm-0.16.0.dist-info").mkdir(parents=True)
    (tmp_path / "serve.yaml").write_text("max-num-seqs: 7\n")
    words = ["serve", "org/m", "--config", "serve.yaml", "--api-key", "hunter22", "-tp", "8"]
    environment = {"VLLM_USE_V2_MODEL_RUNNER": "0", "HF_TOKEN": "a-token-of-ours", "UNRELATED": "x"}
    launcher = subprocess.Popen(
        [sys.executable, str(program), *words], stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=environment
    )
    assert launcher.stdout is not None
    core = int(launcher.stdout.readline())
    yield launcher.pid, core
    os.kill(core, 9)
    launcher.kill()
    launcher.wait()
    launcher.stdout.close()


@linux
def test_a_running_engine_tells_its_launch(engine: tuple[int, int]) -> None:
    account = account_for(launch_of_process(engine[0]))
    assert account.argv[1:] == [
        account.argv[1], "serve", "org/m", "--max-num-seqs", "7", "--api-key", "***", "-tp", "8",
    ]  # fmt: skip
    assert (account.version, account.settings.tensor_parallel_size, account.settings.max_num_seqs) == ("0.16.0", 8, 7)
    assert account.environment == {"VLLM_USE_V2_MODEL_RUNNER": "0"}


@linux
def test_a_child_that_renamed_itself_leads_to_the_launcher(engine: tuple[int, int]) -> None:
    launch = launch_of_process(engine[1])
    assert launch.name == f"pid-{engine[0]}"
    assert f"process {engine[1]} belongs to the launch of process {engine[0]}" in launch.notes


@linux
def test_no_secret_of_the_environment_is_shown(engine: tuple[int, int]) -> None:
    account = account_for(launch_of_process(engine[0]))
    assert "a-token-of-ours" not in repr((account.argv, account.environment, account.findings, account.options))
    assert "hunter22" not in repr((account.argv, account.findings, account.options))


def fake(proc: Path, pid: int, parent: int, *argv: str, environment: str = "") -> None:
    """A process as /proc shows it; its name holds what breaks naive readers of `stat`."""
    home = proc / str(pid)
    home.mkdir(parents=True)
    (home / "stat").write_text(f"{pid} (a ) (b) S {parent} 1 1 0\n")
    (home / "cmdline").write_bytes("\0".join(argv).encode() + b"\0" if argv else b"")
    (home / "environ").write_text(environment)


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "self").mkdir()
    return tmp_path


def test_a_wrapper_leads_down_to_the_engine(proc: Path) -> None:
    fake(proc, 1, 0, "tini", "--", "start.sh")
    fake(proc, 7, 1, "bash", "/start.sh")
    fake(proc, 9, 7, "/usr/bin/python3", "/usr/local/bin/vllm", "serve", "m", "--max-num-seqs", "3")
    fake(proc, 12, 9, "VLLM::EngineCore")
    assert launch_of_process(1, proc).argv[-1] == "3"
    assert launch_of_process(12, proc).argv[-1] == "3"


def test_json_arguments_arrive_as_they_are(proc: Path) -> None:
    fake(proc, 3, 1, "vllm", "serve", "m", "--speculative-config", '{"method": "mtp", "num_speculative_tokens": 1}')
    account = account_for(launch_of_process(3, proc))
    assert account.speculation is not None
    assert account.speculation["num_speculative_tokens"] == 1
    assert any("environment cannot be read" in note for note in account.notes)


def test_sglang_processes_are_read_too(proc: Path) -> None:
    fake(proc, 3, 1, "python3", "-m", "sglang.launch_server", "--model-path", "m", "--tp", "4")
    fake(proc, 4, 3, "sglang::scheduler_TP0")
    account = account_for(launch_of_process(4, proc))
    assert (account.engine, account.settings.tensor_parallel_size) == ("sglang", 4)


@pytest.mark.parametrize("pid", [5, 99])
def test_what_is_no_engine_is_one_line(proc: Path, pid: int) -> None:
    fake(proc, 5, 1, "nginx\nmaster")
    fake(proc, 1, 0)
    with pytest.raises(InputError) as caught:
        launch_of_process(pid, proc)
    assert "--pid" in str(caught.value)


def test_a_circle_of_parents_ends(proc: Path) -> None:
    fake(proc, 5, 6, "a")
    fake(proc, 6, 5, "b")
    with pytest.raises(InputError):
        launch_of_process(5, proc)


def test_machines_without_proc_say_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="on Linux only"):
        launch_of_process(1, tmp_path)


def test_bytes_that_are_no_text_do_no_harm(proc: Path) -> None:
    fake(proc, 3, 1, "vllm", "serve", "m")
    (proc / "3" / "cmdline").write_bytes(b"vllm\0serve\0\xff\xfe\0")
    assert launch_of_process(3, proc).argv == ("vllm", "serve", "\\xff\\xfe")
