"""Numbers as people write them in tables: decimal points and commas, thousands apart by the other mark.

`1,600` is 1600 to some and 1.6 to others. What a table's other cells and its separator tell decides; where nothing
does, such a cell must not be read at all.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from calibration.readers.values import number

_POINT_DECIMAL = re.compile(r"\d{1,3}(?:,\d{3})+\.\d+|0\.\d+|\d+\.(?:\d{1,2}|\d{4,})|\d{4,}\.\d+")
_COMMA_DECIMAL = re.compile(r"\d{1,3}(?:\.\d{3})+,\d+|0,\d+|\d+,(?:\d{1,2}|\d{4,})|\d{4,},\d+")
_EITHER = re.compile(r"[1-9]\d{0,2}(?:(?:,\d{3})+|(?:\.\d{3})+)")


@dataclass(frozen=True, slots=True)
class Marks:
    """Which marks the cells of a table use before decimals, as far as single cells tell."""

    point: bool
    comma: bool
    semicolons: bool = False  # between the cells: decimal commas are usual then

    def value(self, cell: str) -> float | None:
        """The number of a cell; None where it is none, or where its mark may mean either."""
        if _COMMA_DECIMAL.fullmatch(cell):
            return number(cell.replace(".", "").replace(",", "."))
        if not _EITHER.fullmatch(cell):
            return number(cell.replace(",", "")) if _POINT_DECIMAL.fullmatch(cell) else number(cell)
        mark = "," if "," in cell else "."
        if cell.count(mark) > 1:
            return number(cell.replace(mark, ""))
        if mark == ".":
            return None if self.comma and self.point else number(cell.replace(".", "" if self.comma else "."))
        comma = self.comma or self.semicolons
        return None if comma == self.point else number(cell.replace(",", "." if comma else ""))


def marks_of(cells: Iterable[str], separator: str) -> Marks:
    """The marks that `cells` show.

    >>> marks_of(["13,6", "1.600"], ";").value("1.600"), marks_of(["13.6"], ",").value("1,600")
    (1600.0, 1600.0)
    >>> marks_of(["73"], ",").value("1,600"), marks_of(["73"], ";").value("1,600")
    (None, 1.6)
    """
    point = comma = False
    for cell in cells:
        point = point or _POINT_DECIMAL.fullmatch(cell) is not None
        comma = comma or _COMMA_DECIMAL.fullmatch(cell) is not None
    return Marks(point, comma, separator == ";")
