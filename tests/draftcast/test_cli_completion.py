"""Completion in real shells; a shell that is not installed is skipped."""

import os
import pty
import re
import select
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import Result

from draftcast.cli import COMMANDS
from draftcast.commands.completion import SHELLS
from draftcast.manual_pages import PAGES
from draftcast.shells import script

Run = Callable[..., Result]
CHECKOUT = Path(__file__).parent.parent.parent
PROGRAM = Path(sys.executable).parent / "draftcast"
HEAVY = ("numpy", "scipy", "pydantic", "simpy", "requests", "rich", "yaml")
ENVIRONMENT = os.environ | {"PATH": f"{PROGRAM.parent}:{os.environ['PATH']}", "TERM": "dumb"}

needs = {
    shell: pytest.mark.skipif(shutil.which(shell) is None or not PROGRAM.exists(), reason=f"{shell} is not installed")
    for shell in SHELLS
}

BASH = """
{script}
compopt() {{ :; }}
COMP_LINE={line}
COMP_POINT=${{#COMP_LINE}}
_draftcast_completion draftcast
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def bash(line: str) -> list[str]:
    """What bash would offer for the last of its own words of the line."""
    code = BASH.format(script=script("bash"), line=shlex.quote(line))
    done = subprocess.run(
        ["bash", "-c", code], capture_output=True, text=True, check=True, env=ENVIRONMENT, cwd=CHECKOUT
    )
    return done.stdout.split()


@needs["bash"]
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("draftcast ch", ["choose"]),
        ("draftcast list ", ["gpus", "models", "methods", "drafters", "interconnects", "keys", "parameters"]),
        ("draftcast ledger ", ["export", "list", "show"]),
        ("draftcast ledger export --format ", ["json", "csv"]),
        ("draftcast choose a.toml --gpu h10", ["h100-nvl", "h100-pcie", "h100-sxm"]),
        ("draftcast choose a.toml --model kimi-k2.5", ["kimi-k2.5-int4"]),
        ("draftcast model kimi-k2.5", ["kimi-k2.5-int4"]),
        ("draftcast choose a.toml --method eag", ["eagle", "eagle3"]),
        ("draftcast allreduce --interconnect nv", ["nvlink", "nvswitch"]),
        ("draftcast choose a.toml --set hardware.gp", ["hardware.gpu="]),
        ("draftcast choose a.toml --set hardware.gpu=h10", ["h100-nvl", "h100-pcie", "h100-sxm"]),
        ("draftcast choose a.toml --set engine.expert_parallel=", ["true", "false"]),
        ("draftcast choose a.toml --set workload.input_tokens=", []),
        ("draftcast whatif a.toml --vary workload.kind=chat,cod", ["chat,code"]),
        ("draftcast options a.toml --price l40", ["l40s="]),
        ("draftcast choose a.toml --metho", ["--method"]),
        ("draftcast completion ", ["bash", "zsh", "fish"]),
        ("draftcast choose 'my fi", []),
        ("draftcast nonsense --gp", []),
        ("draftcast inspect -- ", []),
    ],
)
def test_bash_is_offered_what_fits(line: str, offered: list[str]) -> None:
    assert bash(line) == offered


@needs["bash"]
def test_bash_is_offered_every_command_in_the_order_of_the_help() -> None:
    assert bash("draftcast ")[: len(COMMANDS)] == list(COMMANDS)


def typed(arguments: list[str], setup: str, keys: str, wanted: str) -> str:
    """What an interactive shell shows after `setup` and the keys; waits until it shows the pattern `wanted`."""
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(CHECKOUT)
        os.execvpe(arguments[0], arguments, ENVIRONMENT | {"PS1": "$ ", "HISTFILE": "/dev/null"})
    try:
        shown = ""
        for text, pattern in ((f"{setup}; echo rea''dy\n", "ready"), (keys, wanted)):
            os.write(terminal, text.encode())
            shown, deadline = "", time.monotonic() + 60
            while not re.search(pattern, shown) and time.monotonic() < deadline:
                if select.select([terminal], [], [], 0.2)[0]:
                    shown += os.read(terminal, 65536).decode(errors="replace")
        return shown
    finally:
        os.kill(process, 9)
        os.waitpid(process, 0)
        os.close(terminal)


@needs["bash"]
@pytest.mark.parametrize(
    ("keys", "wanted"),
    [
        ("draftcast choose exa\t", "examples/"),
        ("draftcast choose x --set hardware.gp\tb20\t ", "hardware.gpu=b200 "),
        ("draftcast choose x --gpu h20\t\t", "h200"),
    ],
)
def test_a_tab_in_bash_completes_names_values_and_files(keys: str, wanted: str) -> None:
    arguments = ["bash", "--noprofile", "--norc", "-i"]
    assert wanted in typed(arguments, 'eval "$(draftcast completion bash)"', keys, re.escape(wanted))


@needs["zsh"]
@pytest.mark.parametrize(
    ("keys", "wanted"),
    [
        ("draftcast cho\t", "choose"),
        ("draftcast choose exa\t", "examples/"),
        ("draftcast choose x --set hardware.gp\tb20\t ", "u=b200"),
    ],
)
def test_a_tab_in_zsh_completes_names_values_and_files(keys: str, wanted: str, tmp_path: Path) -> None:
    setup = f'autoload -U compinit; compinit -u -d {tmp_path}/dump; eval "$(draftcast completion zsh)"'
    assert wanted in typed(["zsh", "-f", "-i"], setup, keys, re.escape(wanted))


@needs["fish"]
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("draftcast cho", {"choose"}),
        ("draftcast choose x --gpu h20", {"h20", "h200"}),
        ("draftcast choose x --set hardware.gp", {"hardware.gpu="}),
        ("draftcast choose exa", {"examples/"}),
    ],
)
def test_fish_is_offered_what_fits(line: str, offered: set[str], tmp_path: Path) -> None:
    code = f"draftcast completion fish | source; complete -C '{line}'"
    done = subprocess.run(
        ["fish", "--no-config", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=ENVIRONMENT | {"HOME": str(tmp_path)},
        cwd=CHECKOUT,
    )
    assert {line.split("\t")[0] for line in done.stdout.splitlines()} == offered


@pytest.mark.parametrize("line", ["", "choose a.toml --gpu ", "choose a.toml --set ", "watch u --model ", "list "])
def test_completing_imports_nothing_heavy(line: str) -> None:
    code = (
        "import os, sys\n"
        f"os.environ.update(_DRAFTCAST_COMPLETE='bash_complete', COMP_LINE='draftcast {line}', COMP_WORDBREAKS='=')\n"
        "from draftcast.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print('MODULES', *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=CHECKOUT)
    offered, _, modules = done.stdout.rpartition("MODULES")
    assert offered.strip()
    assert set(modules.split()).isdisjoint(HEAVY)
    if not line:
        assert not [name for name in modules.split() if name.startswith("draftcast.commands.")]


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_is_printed_and_the_shell_can_read_it(run: Run, shell: str) -> None:
    result = run("completion", shell)
    assert result.exit_code == 0
    assert "draftcast" in result.stdout
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=result.stdout, text=True, check=True)


def test_another_shell_is_refused_with_the_known_ones(run: Run) -> None:
    result = run("completion", "tcsh")
    assert result.exit_code == 2
    assert all(shell in result.stderr for shell in SHELLS)


def test_the_help_shows_a_line_for_every_shell(run: Run) -> None:
    text = run("completion", "--help").stdout
    assert all(f"draftcast completion {shell}" in text for shell in SHELLS)
    lines = [example.command for example in PAGES["completion"].examples]
    assert sorted({line.partition("completion ")[2][:3] for line in lines}) == ["bas", "fis", "zsh"]


def test_completion_is_of_plain_texts_alone() -> None:
    from draftcast.commands.allreduce import command

    command.make_context("allreduce", [], resilient_parsing=True)
    types = {parameter.name: type(parameter.type).__name__ for parameter in command.params}
    assert types["gpu"] == types["topology"] == types["interconnect"] == "Completed"
    assert isinstance(next(p for p in command.params if p.name == "num_gpus").type, click.IntRange)
