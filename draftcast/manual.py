"""What stands below the options in `--help`: examples, environment, files, exit status.

`Command` and `Group` are click's with these sections, and with completion of the values that an option takes. What they
say is in `draftcast.manual_pages`, which is imported only when help is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from draftcast.manual_pages import Example

_WORD = re.compile(r"""(?:[^\s'"]|'[^']*'|"[^"]*")+""")  # of a shell command, quotes kept
_ENGINES = ("vllm", "sglang", "python", "python3", "docker")  # a launch of which the quotes were forgotten begins so
_NEXT_LINE = "  "  # before the rest of a command that is broken with a backslash


class Command(click.Command):
    """A command whose help ends with its page, and whose options complete their values."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """As click's; while a shell completes, the options know their values."""
        if extra.get("resilient_parsing"):
            from draftcast.completion import completing

            completing(self.params)
        return super().make_context(info_name, args, parent, **extra)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click's; where a launch stands without its quotes, the error says to set them."""
        words = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            takes_launch = any(parameter.name == "source" for parameter in self.params)
            if takes_launch and len(words) > 1 and words[0] in _ENGINES and not words[1].startswith("-"):
                hint = f'a launch goes in quotes: {ctx.command_path} "{words[0]} {words[1]} ..." --gpu NAME'
                raise click.UsageError(f"{error.format_message().rstrip('.')}; {hint}", ctx) from error
            raise

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The page of this command, found by its path: "ledger list"."""
        write_page(ctx, formatter)


class Group(click.Group):
    """A group of such commands."""

    command_class = Command

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The page of this group."""
        write_page(ctx, formatter)


def write_page(ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """The sections below the options, those of them that the command has."""
    from draftcast.manual_pages import ENVIRONMENT, PAGES

    page = PAGES.get(ctx.command_path.partition(" ")[2])
    if page is None:
        return
    _write_examples(page.examples, formatter)
    known = [(name, ENVIRONMENT[name]) for name in page.environment]
    for title, rows in (("Environment", known), ("Files", page.files), ("Exit status", page.exits)):
        if rows:
            with formatter.section(title):
                formatter.write_dl(list(rows))


def _write_examples(examples: Sequence[Example], formatter: click.HelpFormatter) -> None:
    """Each with what it answers above it."""
    if not examples:
        return
    with formatter.section("Examples"):
        for number, example in enumerate(examples):
            if number:
                formatter.write_paragraph()
            formatter.write_text(example.answers)
            with formatter.indentation():
                indent = " " * formatter.current_indent
                for line in broken(example.command, formatter.width - len(indent)):
                    formatter.write(f"{indent}{line}\n")


def broken(command: str, width: int) -> list[str]:
    """The command in lines of at most `width` columns, which a shell reads as one.

    Words are never broken, and an option stays with its value.
    """
    room, line, lines = width - len("$  \\"), "", []
    for piece in _pieces(_WORD.findall(command)):
        if line and len(line) + len(piece) >= room:
            lines.append(f"{line} \\")
            line = f"{_NEXT_LINE}{piece}"
        else:
            line = f"{line} {piece}" if line else piece
    return [f"{' ' if number else '$'} {text}" for number, text in enumerate([*lines, line])]


def _pieces(words: Sequence[str]) -> Iterator[str]:
    """The words, an option together with the word behind it."""
    waiting = ""
    for word in words:
        if waiting and not word.startswith("-"):
            word, waiting = f"{waiting} {word}", ""
        elif waiting:
            yield waiting
            waiting = ""
        if word.startswith("-") and " " not in word:
            waiting = word
        else:
            yield word
    if waiting:
        yield waiting
