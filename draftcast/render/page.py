"""The page that results are written on: sentences, lists and tables on stdout, as wide as the terminal allows.

Plain text apart from bold and colour, which only a terminal gets: a model's name is printed as it is written.
"""

import os
import sys
import textwrap
from collections.abc import Iterable, Sequence

import click

from draftcast.render.columns import laid_out
from draftcast.text import one_line

MAX_TEXT_WIDTH = 100  # longer lines of prose are hard to read
MIN_WIDTH = 80  # below it tables would lose digits: a narrow terminal breaks their lines instead
STANDARD_STREAMS = (0, 1, 2)


class Page:
    """Writes to stdout; colour and bold only on a terminal, none at all with NO_COLOR."""

    def __init__(self) -> None:
        """A page on the current stdout."""
        plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") in ("dumb", "unknown")
        self._colour = False if plain else None  # None: click leaves it out where stdout is no terminal
        self.width = max(_terminal_width(), MIN_WIDTH)

    def headline(self, text: str) -> None:
        """The answer, in bold."""
        self._print(self._wrap(text), bold=True)

    def heading(self, text: str) -> None:
        """The start of a section."""
        self._print("\n" + one_line(text), bold=True, colour="cyan")

    def text(self, text: str) -> None:
        """A paragraph."""
        self._print(self._wrap(text))

    def bullets(self, items: Iterable[str]) -> None:
        """One list item per line, continued lines indented."""
        for item in items:
            self._print(self._wrap(item, "- ", "  "))

    def section(self, title: str, items: Sequence[str]) -> None:
        """A heading and a list; nothing at all without items."""
        if items:
            self.heading(title)
            self.bullets(items)

    def verbatim(self, text: str) -> None:
        """Text to copy: one unbroken line, however long."""
        self._print("  " + one_line(text))

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]], num_texts: int = 1) -> None:
        """A table whose first `num_texts` columns are text and whose others are numbers, which are never broken."""
        texts = [index < num_texts for index in range(len(columns))]
        self._table(columns, rows, right=[not text for text in texts], wraps=texts)

    def lines(self, items: Iterable[str]) -> None:
        """One name a line and nothing else, so that other tools can read them."""
        for item in items:
            self._print(one_line(item))

    def definitions(self, items: Iterable[tuple[str, str]]) -> None:
        """A term and, indented below it, what it means."""
        for term, meaning in items:
            self._print(one_line(term), bold=True)
            self._print(self._wrap(meaning, "    ", "    "))

    def words(self, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """A table of texts; all but the first column are broken where the page is too narrow."""
        self._table(columns, rows, right=[False] * len(columns), wraps=[index > 0 for index in range(len(columns))])

    def _table(
        self, columns: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[bool], wraps: Sequence[bool]
    ) -> None:
        cells = [[one_line(cell) for cell in row] for row in (columns, *rows)]
        head, body, width = laid_out(cells[0], cells[1:], right, wraps, self.width)
        self._print("")
        for line in head:
            self._print(line, bold=True)
        for line in (_rule() * width, *body):
            self._print(line)

    def _wrap(self, text: str, first: str = "", rest: str = "") -> str:
        width = min(self.width, MAX_TEXT_WIDTH)
        return textwrap.fill(
            one_line(text), width, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False
        )

    def _print(self, text: str, *, bold: bool = False, colour: str | None = None) -> None:
        styled = click.style(text, fg=colour, bold=True) if bold else text
        click.echo(styled, color=self._colour)


def _rule() -> str:
    """The character that lines are drawn with, where stdout has it."""
    try:
        "─".encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return "-"
    return "─"


def _terminal_width() -> int:
    """Columns as COLUMNS says, else of the terminal that any standard stream is on (stdout may be a pager), else 80."""
    stated = os.environ.get("COLUMNS", "")
    if stated.isdecimal() and int(stated):
        return int(stated)
    for stream in STANDARD_STREAMS:
        try:
            return os.get_terminal_size(stream).columns or MIN_WIDTH
        except (OSError, ValueError):
            continue
    return MIN_WIDTH
