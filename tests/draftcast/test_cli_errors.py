import configparser
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st

import draftcast.commands.list as list_command
from draftcast.cli import main
from draftcast.text import MAX_CHARACTERS, one_line
from hwmodel.errors import InputError

Run = Callable[..., Result]
PROGRAM = (sys.executable, "-c", "import sys; from draftcast.start import main; sys.exit(main())")
CHECKOUT = Path(__file__).parent.parent.parent


def failing_with(error: BaseException) -> Callable[[str], list[dict[str, object]]]:
    def items(kind: str) -> list[dict[str, object]]:
        raise error

    return items


def main_with(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["draftcast", *arguments])
    return main()


def test_a_stated_error_is_one_line_on_stderr_and_exit_code_1(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_command, "_items", failing_with(InputError("what:\n got \x1b[31mred, allowed: a, b")))
    result = run("list", "gpus", "--json")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "Error: what: got [31mred, allowed: a, b\n"


def test_a_bug_shows_its_trace(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_command, "_items", failing_with(ZeroDivisionError("a bug")))
    with pytest.raises(ZeroDivisionError, match="a bug"):
        run("list", "gpus")


def test_an_interrupt_is_one_line_and_exit_code_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(list_command, "_items", failing_with(KeyboardInterrupt()))
    assert main_with(monkeypatch, "list", "gpus") == 130
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "Error: interrupted; nothing was written\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("chooze", "x.toml"),
        ("predict",),
        ("predict", "x.toml", "--no-such-option"),
        ("predict", "x.toml", "-k", "three"),
        ("predict", "x.toml", "-k", "-1"),
        ("predict", "x.toml", "--draws", "0"),
        ("predict", "x.toml", "--draws", "99"),
        ("choose", "x.toml", "-k", "8-0"),
        ("choose", "x.toml", "-k", "1,,2"),
        ("choose", "x.toml", "-k", "0-999999999999999999999"),
        ("choose", "x.toml", "-c", "²"),
        ("whatif", "x.toml"),
        ("list", "colours"),
        ("allreduce",),
        ("allreduce", "--gpu", "h200"),
        ("allreduce", "--nccl-tests", "x.txt", "--topology", "y.txt"),
        ("allreduce", "--gpu", "h200", "--num-gpus", "8", "--interconnect", "none", "--topology", "y.txt"),
        ("experts", "kimi-k2.5-int4", "-t", "1", "--stickiness", "1.5"),
    ],
)
def test_wrong_usage_is_exit_code_2_with_the_reason_in_the_last_line(run: Run, arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines()[-1].startswith("Error: ")


def test_an_unknown_command_is_answered_with_the_nearest_and_where_all_are(run: Run) -> None:
    message = run("chooze").stderr.splitlines()[-1]
    assert "did you mean 'choose'?" in message
    assert "`draftcast --help`" in message


@pytest.mark.parametrize(
    "arguments",
    [
        ("predict", "no-such-file.toml"),
        ("choose", "no-such-file.toml", "--json"),
        ("whatif", "no-such-file.toml", "--vary", "hardware.num_gpus=4,8"),
        ("predict", "/"),
        ("predict", "\0.toml"),
        ("whatif", "no-such-file.toml", "--vary", "hardware.num_gpus"),
        ("model", "no-such-model"),
        ("experts", "no-such-model", "-t", "1"),
        ("experts", "qwen3-8b-bf16", "-t", "1"),
        ("experts", "kimi-k2.5-int4", "-t", "0"),
        ("experts", "kimi-k2.5-int4", "-t", "1", "--popularity-sigma", "nan"),
        ("allreduce", "--nccl-tests", "no-such-file.txt"),
        ("allreduce", "--nccl-tests", "/"),
        ("allreduce", "--gpu", "h100-sxm", "--num-gpus", "8", "--topology", "no-such-file.txt"),
        ("allreduce", "--gpu", "no-such-gpu", "--num-gpus", "8"),
        ("allreduce", "--gpu", "h100-sxm", "--num-gpus", "8", "--interconnect", "string"),
        ("allreduce", "--gpu", "h200", "--num-gpus", "73"),
        ("allreduce", "--gpu", "h200", "--num-gpus", "1000000"),
        ("allreduce", "--topology", "no-such-file.txt"),
        ("model", "kimi-k2.5-int4", "--tp", "7"),
        ("choose", "vllm serve a\nvllm serve b", "--launch", "z"),
    ],
)
def test_bad_input_is_exit_code_1_and_one_line(run: Run, arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("content", [b"\xff\xfe", b"", b"x" * (5 * 10**6), b"[model\n", b"[[[[" * 5000])
def test_a_broken_deployment_file_is_one_line(run: Run, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.toml"
    path.write_bytes(content)
    result = run("choose", path)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.count("\n") == 1


def test_a_closed_pipe_is_quiet() -> None:
    with subprocess.Popen(
        [*PROGRAM, "list", "keys"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=CHECKOUT
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() != 0


def run_into(stdout: int, *arguments: str, closed: bool = False) -> tuple[int, list[str]]:
    """Exit code and the lines on stderr but notes, with stdout on the open file `stdout`, or closed."""
    done = subprocess.run(
        [*PROGRAM, *arguments],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        cwd=CHECKOUT,
        preexec_fn=(lambda: os.close(1)) if closed else None,
    )
    return done.returncode, [line for line in done.stderr.splitlines() if not line.startswith("note: ")]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
@pytest.mark.parametrize(
    "arguments", [("model", "kimi-k2.5-int4"), ("model", "kimi-k2.5-int4", "--json"), ("list", "keys"), ("--help",)]
)
def test_a_full_disk_is_one_line_and_exit_code_1(arguments: tuple[str, ...]) -> None:
    with open("/dev/full", "wb") as full:
        code, lines = run_into(full.fileno(), *arguments)
    assert code == 1
    assert lines == ["Error: the output cannot be written: No space left on device; what was written is incomplete"]


def test_a_closed_stdout_is_one_line_and_exit_code_1() -> None:
    code, lines = run_into(subprocess.DEVNULL, "list", "gpus", closed=True)
    assert code == 1
    assert lines == ["Error: standard output is closed: the answer cannot be written; allowed: > FILE"]


def interrupted_while_importing(module: str, *, ignored: bool = False) -> subprocess.CompletedProcess[bytes]:
    """The program, which gets SIGINT when it starts to import `module`."""
    script = f"""
import importlib.abc, os, signal, sys
class Interrupt(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
if {ignored}:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
sys.argv = ["draftcast", "list", "gpus"]
from draftcast.start import main
sys.exit(main())
"""
    return subprocess.run([sys.executable, "-c", script], capture_output=True, check=False, cwd=CHECKOUT)


@pytest.mark.parametrize("module", ["draftcast.cli", "click", "hwmodel.errors"])
def test_an_interrupt_during_the_imports_is_quiet(module: str) -> None:
    done = interrupted_while_importing(module)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_an_interrupt_while_a_command_is_imported_is_one_line() -> None:
    done = interrupted_while_importing("hwmodel.gpus")
    assert (done.returncode, done.stdout) == (130, b"")
    assert done.stderr == b"Error: interrupted; nothing was written\n"


def test_an_interrupt_that_the_parent_has_ignored_stays_so() -> None:
    assert interrupted_while_importing("click", ignored=True).returncode == 0


def test_the_console_script_is_the_one_that_can_be_interrupted() -> None:
    setup = configparser.ConfigParser()
    setup.read(CHECKOUT / "setup.cfg", encoding="utf-8")
    assert setup["options.entry_points"]["console_scripts"].split() == ["draftcast", "=", "draftcast.start:main"]


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """A named pipe that nobody writes to: whoever opens it as a file waits for ever."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


@pytest.mark.parametrize(
    "arguments",
    [
        ("predict", "{}"),
        ("predict", "{}.toml"),
        ("model", "{}"),
        ("allreduce", "--gpu", "{}", "--num-gpus", "8"),
        ("allreduce", "--nccl-tests", "{}"),
        ("choose", "{}.service"),
        ("choose", "examples/kimi-k2.5-8x-rtx-pro-6000.toml", "--set", "hardware.topology={}"),
        ("choose", "examples/kimi-k2.5-8x-rtx-pro-6000.toml", "--set", "speculation.acceptance.replay={}"),
    ],
)
def test_what_is_no_regular_file_is_one_line_instead_of_a_wait(pipe: Path, arguments: tuple[str, ...]) -> None:
    for ending in (".toml", ".service"):
        pipe.with_suffix(ending).symlink_to(pipe)
    done = subprocess.run(
        [*PROGRAM, *(argument.format(pipe) for argument in arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=CHECKOUT,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("Error: ")


def output_on_a_terminal(environment: dict[str, str]) -> bytes:
    """What `draftcast list keys` writes when stdout is a terminal."""
    parent, child = pty.openpty()
    clean = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    process = subprocess.Popen(
        [*PROGRAM, "list", "keys"], stdout=child, cwd=CHECKOUT, env=clean | {"TERM": "xterm"} | environment
    )
    os.close(child)
    chunks = []
    while True:
        try:
            chunk = os.read(parent, 65536)
        except OSError:  # how Linux says that the other side has closed
            break
        if not chunk:
            break
        chunks.append(chunk)
    os.close(parent)
    assert process.wait() == 0
    return b"".join(chunks)


def test_a_terminal_gets_styles_and_no_color_turns_all_of_them_off() -> None:
    assert b"\x1b[" in output_on_a_terminal({})
    assert b"\x1b" not in output_on_a_terminal({"NO_COLOR": "1"})


def test_a_terminal_without_unicode_gets_no_trace() -> None:
    done = subprocess.run(
        [*PROGRAM, "list", "gpus"],
        capture_output=True,
        check=False,
        cwd=CHECKOUT,
        env=os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
    )
    assert (done.returncode, done.stderr) == (0, b"")


@given(st.text())
def test_one_line_is_printable_and_short_whatever_it_is_given(text: str) -> None:
    line = one_line(text)
    assert line.isprintable()
    assert len(line) <= MAX_CHARACTERS + 2
