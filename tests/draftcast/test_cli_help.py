import importlib
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import Result

import draftcast
from draftcast.cli import COMMANDS, cli, module_name
from draftcast.manual_pages import ENVIRONMENT, PAGES

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


def paths_of_commands() -> list[str]:
    """Every command as it is typed behind `draftcast`, those inside a group too."""
    context = click.Context(cli)
    found = []
    for name in COMMANDS:
        command = cli.get_command(context, name)
        found += [name, *(f"{name} {inner}" for inner in getattr(command, "commands", ()))]
    return found


def test_every_command_has_a_page_with_examples_and_there_is_no_page_without_command() -> None:
    assert set(PAGES) == {"", *paths_of_commands()}
    for name, page in PAGES.items():
        assert len(page.examples) >= (1 if " " in name else 2), name
        commands = [example.command for example in page.examples]
        assert any(f"draftcast {name}" in command for command in commands), name


@pytest.mark.parametrize("name", ["", *paths_of_commands()])
def test_help_shows_examples_environment_files_and_exit_status_within_80_columns(run: Run, name: str) -> None:
    text = run(*name.split(), "--help").stdout
    page, words = PAGES[name], " ".join(text.replace("\\\n", "").split())
    assert "Examples:" in text
    for example in page.examples:
        assert example.answers in words
        assert f"$ {' '.join(example.command.split())}" in words
    assert all(name in text for name in page.environment)
    assert all(term in text for term, _ in (*page.files, *page.exits))
    assert max(map(len, text.splitlines())) <= 80


def test_every_variable_of_a_page_is_read_by_the_program_or_by_a_library_that_it_uses() -> None:
    sources = [path.read_text(encoding="utf-8") for room in ("validate", "draftcast") for path in room_files(room)]
    of_libraries = {"NO_COLOR", "COLUMNS", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"}  # rich and click, requests
    for names in ENVIRONMENT:
        for name in names.split(", "):
            assert name in of_libraries or any(f'"{name}"' in source for source in sources), name
    assert {name for page in PAGES.values() for name in page.environment} <= set(ENVIRONMENT)


def room_files(room: str) -> list[Path]:
    return [path for path in (CHECKOUT / room).rglob("*.py") if path.name != "manual_pages.py"]


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


@pytest.mark.parametrize("name", COMMANDS)
def test_the_sections_below_the_options_name_no_option_that_the_command_lacks(name: str) -> None:
    command = importlib.import_module(f"draftcast.commands.{module_name(name)}").command
    inner = getattr(command, "commands", {})
    for path, each in [(name, command), *((f"{name} {word}", below) for word, below in inner.items())]:
        page = PAGES[path]
        said = [
            *(ENVIRONMENT[word] for word in page.environment),
            *(meaning for _, meaning in (*page.files, *page.exits)),
        ]
        named = {option for text in said for option in re.findall(r"--[a-z][a-z-]+", text)}
        has = {option for parameter in each.params for option in (*parameter.opts, *parameter.secondary_opts)}
        has |= {option for below in getattr(each, "commands", {}).values() for p in below.params for option in p.opts}
        assert named <= has, path
