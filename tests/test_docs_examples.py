"""Every example of README, docs and `--help` does what is shown."""

import os
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import generate_tables
import pytest
from page_examples import GENERATED, PAGES, ROOT, Example, clone, difference, examples, missing_files, outputs_of, run

from draftcast.manual import broken
from draftcast.manual_pages import PAGES as MANUAL

TEXTS = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in PAGES}
COMMANDS_OF = {page: [e for e in examples(text) if e.is_draftcast] for page, text in TEXTS.items()}
TABLES = [
    (page, block["name"], block["body"])
    for page, text in TEXTS.items()
    for block in GENERATED.finditer(text)
    if not block["name"].startswith("run ") and page != "docs/accuracy.md"  # as of a run of ten minutes
]
SERVER = "needs a server"
HELP = [
    Example(e.command, (), None, "") for page in MANUAL.values() for e in page.examples if "completion" not in e.command
]
# Parsed only: too long for a test, or run elsewhere (the tutorial, test_cli_report.py, test_local.py).
PARSED = (
    "draftcast backtest",
    "draftcast serve",
    "draftcast report",
    "draftcast options",
    "--runs 4",
    "--trace",
    "--jobs",
)


@pytest.mark.parametrize("page", [page for page, found in COMMANDS_OF.items() if found])
def test_every_command_of_a_page_does_what_the_page_shows(page: str) -> None:
    written: list[str] = []
    faults = {}
    with clone():
        for example in COMMANDS_OF[page]:
            assert missing_files(example, written) == [], example.command
            written += outputs_of(example)
            if fault := example.fault():
                faults[example.command] = fault
    assert faults == {}


@pytest.mark.parametrize(("page", "name", "body"), TABLES, ids=[f"{page}: {name}" for page, name, _ in TABLES])
def test_every_generated_table_is_current(page: str, name: str, body: str) -> None:
    assert generate_tables.is_current(name, body), "run `make docs`"


@pytest.mark.parametrize("page", sorted(TEXTS.keys() - {"docs/cli.md"}))
def test_no_command_of_a_page_escapes_the_tests(page: str) -> None:
    for language, body in re.findall(r"^```(\w+)\n(.*?)^```", GENERATED.sub("", TEXTS[page]), re.DOTALL | re.MULTILINE):
        commands = re.findall(r"^(?:\$ )?draftcast .*$", body, re.MULTILINE)
        assert language != "console" or body.startswith("$ "), f"an output without its command: {body[:60]}"
        assert not commands or language == "console", f"a console block is wanted: {commands}"
        assert all(line.startswith("$ ") for line in commands), commands


@cache
def writer(file: str) -> Example | None:
    """The example of a help that writes `file`."""
    return next((example for example in HELP if file in outputs_of(example)), None)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with clone() as path:
        yield path


def needed(example: Example) -> Iterator[Example]:
    """The examples that write the files which this one reads."""
    for file in re.findall(r"out/[\w.]+", example.command):
        before = writer(file)
        if before is not None and before != example and not Path(file).exists():
            yield before


def cheap(command: str) -> str:
    """With few draws where that leaves the files alone."""
    has_draws = re.match(r"draftcast (choose|predict|whatif|adaptive|budget|options|train-cost|step)\b", command)
    return f"{command} --draws 100" if has_draws and "--record" not in command else command


@pytest.mark.parametrize("example", HELP, ids=lambda example: example.command)
def test_every_example_of_a_help_runs(example: Example, folder: Path) -> None:
    os.chdir(folder)
    if "http://" in example.command or (
        any(text in example.command for text in PARSED) and "--all" not in example.command
    ):
        assert Example(example.command, (), None, SERVER).fault() == ""
        return
    for before in needed(example):
        assert before.fault() == ""
    assert Example(cheap(example.command), ()).fault() == ""


def test_a_long_example_is_broken_where_a_shell_joins_it_again_and_options_keep_their_values() -> None:
    line = "draftcast choose a.toml --set 'a b=1' --method eagle3 -c 1,2"
    lines = broken(line, 40)
    assert lines == ["$ draftcast choose a.toml \\", "    --set 'a b=1' --method eagle3 \\", "    -c 1,2"]
    assert shlex.split("\n".join(lines).removeprefix("$ ").replace("\\\n", "")) == shlex.split(line)
    assert max(map(len, broken(f"draftcast choose {'x ' * 60}", 40))) <= 40


@pytest.mark.parametrize(
    ("shown", "printed", "agrees"),
    [
        ("a 1.50 b", "a 1.51 b", True),
        ("a 1.50 b", "a 1.70 b", False),
        ("12,000 tokens", "12,100 tokens", True),
        ("k = 5", "k = 8", False),
        ("a\n...\nd", "a b c d", True),
        ("a\n...\nd", "a b c", False),
        ("...\nb c", "a b c", True),
        ("b c", "a b c", False),
        ("a b", "a b c", False),
        ("one line", "one\nline", True),
        ("on 2026-11-29", "on 2027-01-02", True),
        ("P(faster) 12%", "P(slower) 12%", False),
    ],
)
def test_outputs_agree_but_for_last_digits_and_line_breaks(shown: str, printed: str, agrees: bool) -> None:
    assert (difference(shown.splitlines(), printed) == "") is agrees


def test_what_a_page_shows_wrongly_is_found() -> None:
    command = "draftcast experts kimi-k2.5-int4 -t 1"
    text = run(command, "80").output
    assert Example(command, tuple(text.splitlines())).fault() == ""
    assert "experts" in Example(command, tuple(text.replace("of 384", "of 484").splitlines())).fault()
    assert "more is printed" in Example(command, tuple(text.splitlines()[:3])).fault()
    assert "exit code" in Example("draftcast experts kimi-k2.5-int4 -t 0", ()).fault()
    with pytest.raises(click.UsageError):
        Example("draftcast experts kimi-k2.5-int4 --nonsense 1", (), reason="needs a server").fault()
    assert missing_files(Example("draftcast choose examples/none.toml", ())) == ["examples/none.toml"]


def test_an_output_is_the_same_on_any_day_but_keeps_the_days_that_are_facts() -> None:
    from datetime import UTC, datetime

    from page_examples import _without_now

    now = datetime.now(UTC)
    text = f"by a card of 2025-06-01, recorded {now:%Y-%m-%d %H:%M}, {now:%Y-%m-%dT%H:%M:%S}Z, {now:%Y-%m-%d}"
    fixed = "by a card of 2025-06-01, recorded 2026-01-31 12:00, 2026-01-31T12:00:00Z, 2026-01-31"
    assert _without_now(text, now) == fixed
