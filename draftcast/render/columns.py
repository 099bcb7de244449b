"""Texts laid out in columns as wide as they need, or as the page allows."""

import textwrap
import unicodedata
from collections.abc import Sequence

GAP = "  "  # between two columns
MIN_WRAPPED_WIDTH = 8  # a column of texts gets no narrower; what then is too wide runs over the page's edge


def laid_out(
    head: Sequence[str], body: Sequence[Sequence[str]], right: Sequence[bool], wraps: Sequence[bool], page: int
) -> tuple[list[str], list[str], int]:
    """The lines of the head, those of the body, and the terminal columns they take; `right` columns flush right.

    Where a row is wider than the page, the widest of the columns that may wrap are narrowed until it fits: between
    words as far as that goes, then through them.
    """
    widths = _fitted([*zip(head, *body, strict=True)], wraps, page)
    lines = [line for row in body for line in _lines(row, right, widths)]
    return _lines(head, right, widths, at_bottom=True), lines, _total(widths)


def columns(text: str) -> int:
    """Columns that `text` takes on a terminal: two for wide characters, none for marks above others.

    >>> columns("abc"), columns("名前"), columns("e" + chr(0x301))
    (3, 4, 1)
    """
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _fitted(cells: Sequence[Sequence[str]], wraps: Sequence[bool], page: int) -> list[int]:
    """The width of each column of cells."""
    widths = [max(map(columns, column)) for column in cells]
    words = [max(columns(word) for cell in column for word in cell.split() or [""]) for column in cells]
    for part in (words, [0] * len(widths)):
        least = [
            max(part[i], MIN_WRAPPED_WIDTH) if wrap and widths[i] > MIN_WRAPPED_WIDTH else widths[i]
            for i, wrap in enumerate(wraps)
        ]
        while _total(widths) > page and widths != least:
            widest = max(range(len(widths)), key=lambda i: widths[i] if widths[i] > least[i] else 0)
            widths[widest] -= 1
    return widths


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _lines(row: Sequence[str], right: Sequence[bool], widths: Sequence[int], *, at_bottom: bool = False) -> list[str]:
    """The row's lines; cells of fewer lines stand at the top, or at the bottom."""
    cells = [_wrapped(cell, width) for cell, width in zip(row, widths, strict=True)]
    height = max(map(len, cells))
    lines = []
    for i in range(height):
        texts = [_line(cell, i - (height - len(cell) if at_bottom else 0)) for cell in cells]
        lines.append(GAP.join(map(_padded, texts, widths, right)).rstrip())
    return lines


def _line(lines: Sequence[str], index: int) -> str:
    return lines[index] if 0 <= index < len(lines) else ""


def _wrapped(cell: str, width: int) -> list[str]:
    return [cell] if columns(cell) <= width else textwrap.wrap(cell, width, break_on_hyphens=False)


def _padded(text: str, width: int, right: bool) -> str:
    space = " " * (width - columns(text))
    return space + text if right else text + space
