"""The page of `--report`: what a view writes on it is kept, for the HTML file, instead of being printed."""

from collections.abc import Iterable, Sequence

from draftcast.render.page import Page
from draftcast.text import one_line
from validate.report.chart import Block, Table


class ReportPage(Page):
    """Takes what `Page` takes; `blocks` holds it in order, every text in one printable line."""

    def __init__(self) -> None:
        """An empty page; nothing is printed."""
        self.blocks: list[Block] = []
        self.can_draw = False  # its charts are better

    def parts(self, count: int, most: int) -> list[slice]:
        """One part: tables scroll."""
        return [slice(0, count)]

    def headline(self, text: str) -> None:
        """The answer."""
        self._add("headline", text)

    def heading(self, text: str) -> None:
        """The start of a section."""
        self._add("heading", text)

    def text(self, text: str) -> None:
        """A paragraph."""
        self._add("text", text)

    def bullets(self, items: Iterable[str]) -> None:
        """A list."""
        self.blocks.append(Block("bullets", items=tuple(map(one_line, items))))

    def verbatim(self, text: str) -> None:
        """Text to copy."""
        self._add("verbatim", text)

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]], num_texts: int = 1) -> None:
        """A table whose first `num_texts` columns are text."""
        cells = tuple(tuple(map(one_line, row)) for row in rows)
        self.blocks.append(Block("table", table=Table(tuple(map(one_line, columns)), cells, num_texts)))

    def words(self, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """A table of texts."""
        self.table(columns, rows, num_texts=len(columns))

    def lines(self, items: Iterable[str]) -> None:
        """One name a line."""
        self.bullets(items)

    def definitions(self, items: Iterable[tuple[str, str]]) -> None:
        """Terms and what they mean."""
        pairs = tuple((one_line(term), one_line(meaning)) for term, meaning in items)
        self.blocks.append(Block("definitions", pairs=pairs))

    def _add(self, kind: str, text: str) -> None:
        self.blocks.append(Block(kind, one_line(text)))
