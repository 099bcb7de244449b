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
PROGRAM = (sys.executable, "-c", "import sys; from draftcast.cli import main; sys.exit(main())")
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


def test_an_unknown_command_is_answered_with_the_nearest_and_all(run: Run) -> None:
    message = run("chooze").stderr.splitlines()[-1]
    assert "did you mean choose?" in message
    assert "allreduce" in message


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
