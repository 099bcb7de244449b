"""The page that results are written on: sentences, lists and tables on stdout, as wide as the terminal allows.

Markup, emoji codes and highlighting are off, so a model's name is printed as it is written, whatever it holds.
"""

import os
from collections.abc import Iterable, Sequence
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from draftcast.text import MAX_TEXT_WIDTH, MIN_WIDTH, one_line, wrapped

CELL_PADDING = (0, 1)


class _Console(Console):
    """One that leaves it to the program what to do when whoever reads the output has gone."""

    def on_broken_pipe(self) -> None:
        """Called where that is found out."""
        raise  # the BrokenPipeError that is being handled


class Page:
    """Writes to stdout; colour and bold only on a terminal, none at all with NO_COLOR."""

    def __init__(self) -> None:
        """A page on the current stdout."""
        self.console = _Console(
            markup=False, emoji=False, highlight=False, color_system=None if os.environ.get("NO_COLOR") else "auto"
        )
        self.console.width = max(self.console.width, MIN_WIDTH)
        self.can_draw = self.console.encoding.lower().startswith("utf")

    def parts(self, count: int, most: int) -> list[slice]:
        """`count` columns in parts of `most`, which fit beside each other in 80 columns."""
        return [slice(start, start + most) for start in range(0, count, most)]

    def headline(self, text: str) -> None:
        """The answer, in bold."""
        self._print(self._wrap(text), "bold")

    def heading(self, text: str) -> None:
        """The start of a section."""
        self._print("\n" + one_line(text), "bold cyan")

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
        self.console.print(Text("  " + one_line(text)), soft_wrap=True)

    def row(self, text: str) -> None:
        """One line of a table that grows while it is shown: our own text, its blanks kept."""
        self.console.print(Text(text), soft_wrap=True)

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]], num_texts: int = 1) -> None:
        """A table whose first `num_texts` columns are text and whose others are numbers, which are never broken."""
        table = Table(box=SIMPLE_HEAD, padding=CELL_PADDING, collapse_padding=True, pad_edge=False, show_edge=False)
        for index, column in enumerate(columns):
            text = index < num_texts
            side: Literal["left", "right"] = "left" if text else "right"
            table.add_column(one_line(column), justify=side, overflow="fold", no_wrap=not text or num_texts == 1)
        self._table(table, rows)

    def lines(self, items: Iterable[str]) -> None:
        """One name a line and nothing else, so that other tools can read them."""
        for item in items:
            self._print(one_line(item))

    def definitions(self, items: Iterable[tuple[str, str]]) -> None:
        """A term and, indented below it, what it means."""
        for term, meaning in items:
            self._print(one_line(term), "bold")
            self._print(self._wrap(meaning, "    ", "    "))

    def words(self, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """A table of texts; the last column takes the width that is left."""
        table = Table(box=SIMPLE_HEAD, padding=CELL_PADDING, collapse_padding=True, pad_edge=False, show_edge=False)
        for index, column in enumerate(columns):
            table.add_column(one_line(column), overflow="fold", no_wrap=index == 0)
        self._table(table, rows)

    def _table(self, table: Table, rows: Iterable[Sequence[str]]) -> None:
        for row in rows:
            table.add_row(*(one_line(cell) for cell in row))
        self.console.print()
        self.console.print(table)

    def _wrap(self, text: str, first: str = "", rest: str = "") -> str:
        width = min(self.console.width, MAX_TEXT_WIDTH)
        return wrapped(text, width, first, rest)

    def _print(self, text: str, style: str = "") -> None:
        self.console.print(Text(text, style=style), soft_wrap=True)
