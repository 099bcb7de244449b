import importlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import Result

import draftcast
from draftcast.cli import COMMANDS, module_name

Run = Callable[..., Result]
CHECKOUT = Path(__file__).parent.parent.parent
HEAVY = ("numpy", "scipy", "pydantic", "simpy", "requests", "rich", "yaml")


def modules_after(code: str) -> set[str]:
    """The modules that a fresh interpreter holds after running `code`, which may print."""
    script = f"{code}\nimport sys; print('MODULES', *sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=CHECKOUT)
    return set(done.stdout.rpartition("MODULES")[2].split())


def test_help_lists_every_command_with_its_short_help(run: Run) -> None:
    result = run("--help")
    assert result.exit_code == 0
    words = " ".join(result.stdout.split())
    for name, text in COMMANDS.items():
        assert f"{name} {text}" in words


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_that_starts_with_the_words_of_the_table(run: Run, name: str) -> None:
    result = run(name, "--help")
    assert result.exit_code == 0
    assert COMMANDS[name] in " ".join(result.stdout.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_help_text_and_every_line_fits_80_columns(run: Run, name: str) -> None:
    command = importlib.import_module(f"draftcast.commands.{module_name(name)}").command
    assert command.name == name
    for parameter in command.params:
        assert isinstance(parameter, click.Argument) or parameter.help, parameter.name
    assert max(map(len, run(name, "--help").stdout.splitlines())) <= 80


def test_there_is_no_command_file_outside_the_table() -> None:
    files = {path.stem for path in (CHECKOUT / "draftcast" / "commands").glob("*.py")} - {"__init__"}
    assert files == {module_name(name) for name in COMMANDS}


def test_version_is_the_package_version(run: Run) -> None:
    assert run("--version").stdout == f"draftcast, version {draftcast.__version__}\n"


def test_help_imports_nothing_heavy_and_no_command() -> None:
    loaded = modules_after("from draftcast.cli import cli\ncli.main(['--help'], standalone_mode=False)")
    assert "click" in loaded
    assert loaded.isdisjoint(HEAVY)
    assert not [name for name in loaded if name.startswith("draftcast.commands")]


def test_importing_draftcast_alone_loads_no_other_package() -> None:
    assert modules_after("import draftcast").isdisjoint({*HEAVY, "click"})


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_one_command_imports_nothing_heavy(name: str) -> None:
    loaded = modules_after(f"from draftcast.cli import cli\ncli.main(['{name}', '--help'], standalone_mode=False)")
    assert loaded.isdisjoint(HEAVY)


def test_the_facade_names_what_it_has_when_asked_for_something_else() -> None:
    with pytest.raises(AttributeError, match=r"'foresee'; it has .*predict"):
        draftcast.foresee  # noqa: B018


def test_docs_cli_is_current() -> None:
    done = subprocess.run(
        [sys.executable, "docs/make_cli.py", "--check"], capture_output=True, text=True, check=False, cwd=CHECKOUT
    )
    assert done.returncode == 0, done.stdout + done.stderr
