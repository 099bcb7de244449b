"""Writes docs/cli.md from the commands' own help; with --check, says whether it is current (exit code 1 if not)."""

import sys
from pathlib import Path

import click

from draftcast.cli import COMMANDS, cli

PAGE = Path(__file__).parent / "cli.md"
WIDTH = 88  # of the code blocks
HEAD = """# Commands

Written by `make docs` from `--help`; a test compares, and runs the examples. Every command but `completion`: `--json`
prints one JSON object on stdout and nothing else there; notes go to stderr; exit code 0 done, 1 a stated error in one
line, 2 wrong usage, 130 interrupted.
"""


def page() -> str:
    """The whole page."""
    with click.Context(cli, info_name="draftcast", **cli.context_settings) as group:
        sections = [_section("draftcast", cli, group)]
        for name in COMMANDS:
            command = cli.get_command(group, name)
            assert command is not None
            sections += _sections(f"draftcast {name}", command, click.Context(command, group, name))
    return "\n".join([HEAD, *sections])


def _sections(title: str, command: click.Command, context: click.Context) -> list[str]:
    """The command's own help, and that of the commands inside it."""
    inner = command.commands if isinstance(command, click.Group) else {}
    return [_section(title, command, context)] + [
        _section(f"{title} {name}", part, click.Context(part, context, name)) for name, part in inner.items()
    ]


def _section(title: str, command: click.Command, context: click.Context) -> str:
    formatter = click.HelpFormatter(width=WIDTH)
    command.format_help(context, formatter)
    return f"## {title}\n\n```text\n{formatter.getvalue().rstrip()}\n```\n"


def main() -> int:
    """Exit code: 1 when --check finds the page out of date."""
    if sys.argv[1:] == ["--check"]:
        # Words, not line breaks: another release of click may wrap elsewhere.
        current = PAGE.is_file() and PAGE.read_text(encoding="utf-8").split() == page().split()
        print("docs/cli.md is current" if current else "docs/cli.md is out of date: run `make docs`")
        return 0 if current else 1
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
