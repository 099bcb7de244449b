"""What a page is made of: charts with the figures behind them, and the blocks of text around them."""

from collections.abc import Mapping
from typing import Any

from hwmodel.records import dataclass

Spec = dict[str, Any]
Json = Mapping[str, Any]
Cell = str | float | int | None

MAX_TABLE_ROWS = 2000  # beyond that nobody reads on, and the JSON in the page has them all


@dataclass(frozen=True, slots=True)
class Table:
    """Columns and rows; numbers stay numbers until they are printed. `num_texts` leading columns are text."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    num_texts: int = 1


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart, drawn twice: for a page or a screen (`wide`) and for a phone (`narrow`).

    `name` is its file name without ending. Charts in a row with the same `group` are one figure whose readers switch
    between the `label`s. `finding` says what to see, `alt` what is drawn, `table` holds every value.
    """

    name: str
    title: str
    finding: str
    alt: str
    wide: Spec
    narrow: Spec
    table: Table
    group: str = ""
    label: str = ""
    selected: bool = False


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of text of the page; `kind` is headline, heading, text, bullets, verbatim, table or definitions."""

    kind: str
    text: str = ""
    items: tuple[str, ...] = ()
    table: Table | None = None
    pairs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Document:
    """A whole page before it is written down; `facts` are label and value, `result` the command's JSON object."""

    title: str
    subtitle: str
    facts: tuple[tuple[str, str], ...]
    charts: tuple[Chart, ...]
    blocks: tuple[Block, ...]
    result: Json
    made_at: str
    program: str
