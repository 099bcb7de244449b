"""The heat map: speedups in a grid, each cell with its figure, its interval and a frame where it is sure."""

import math
from collections.abc import Sequence

from hwmodel.records import dataclass
from validate.report.chart import Json, Spec
from validate.report.numbers import UNDEFINED, odds, percent, speedup_text
from validate.report.theme import DIVERGING, INK, NARROW, ON_DARK, ON_LIGHT, SMALL, TEXT, WIDE, figure, layer, thinned

MAX_COLUMNS, MAX_LINES = 16, 20  # more cells have no room for their figures
LEAST_SPAN, MOST_SPAN = math.log2(1.25), math.log2(2.5)  # of the colours, to either side of no change
DARK_CELL = 0.85  # of the span: beyond it the text is white (contrast 4.5 and more on either side)
LETTER, LABEL_LIMIT = 6.0, {False: 220, True: 110}  # pixels of a letter of a label, and of a label at most
INTERVAL_WIDTH = {False: 58, True: 50}  # pixels that an interval takes
SMALL_LETTER, USUAL_LETTER = 5.2, 7.0  # pixels of a median's letter in small print and in usual print
FIGURE_GAP = 5.0  # and between two of them
HIGH_CELL, LOW_CELL, AXIS = 40, 26, 50  # pixels, with interval and without


@dataclass(frozen=True, slots=True)
class HeatCell:
    """One cell: the labels of its column and line, where that is in words, the speedup's quantiles, P(faster)."""

    column: str
    line: str
    place: str
    speedup: Json
    probability_faster: float | None
    is_reference: bool = False  # speculation off: no interval, never framed

    def tip(self) -> str:
        """What the cell says when it is pointed at."""
        return f"{self.place}: {speedup_text(self.speedup)}, P(faster) {odds(self.probability_faster)}"


def reading(asked: float, *drawn: tuple[int, int, str]) -> str:
    """How the drawing is to be read, and what is drawn of how many; a phone may leave out more columns."""
    left = [f"{some} of {every} {what}" for some, every, what in drawn if some < every]
    return (
        "Median of the speedup and, where there is room, its 90 % interval. Green is faster, brown slower; "
        f"framed where P(faster) is at least {percent(asked)}."
        + (f" Drawn are {' and '.join(left)}; the table has all." if left else "")
    )


def drawn_columns(cells: Sequence[HeatCell], *, narrow: bool = False) -> list[str]:
    """The columns that have room for their figures beside the labels of the lines."""
    columns = list(dict.fromkeys(cell.column for cell in cells))
    return thinned(columns, max(2, int(_room(cells, narrow) / _figure_width(cells, SMALL_LETTER))))


def _room(cells: Sequence[HeatCell], narrow: bool) -> float:
    label_width = min(LETTER * max(len(cell.line) for cell in cells), LABEL_LIMIT[narrow])
    return (NARROW if narrow else WIDE) - label_width


def _figure_width(cells: Sequence[HeatCell], letter: float) -> float:
    return letter * max(len(_figure(cell)) for cell in cells) + FIGURE_GAP


def heat_spec(cells: Sequence[HeatCell], column_title: str, asked: float, *, narrow: bool) -> Spec:
    """The drawing; framed where P(faster) is at least `asked`. Only the columns whose figures fit."""
    lines = list(dict.fromkeys(cell.line for cell in cells))
    columns = drawn_columns(cells, narrow=narrow)
    span = min(max([LEAST_SPAN, *(abs(math.log2(m)) for m in map(_median, cells) if m)]), MOST_SPAN)
    rows = [_row(cell, asked, span) for cell in cells if cell.column in columns]
    column_width = _room(cells, narrow) / len(columns)
    with_interval = column_width >= INTERVAL_WIDTH[narrow]
    is_crowded = column_width < _figure_width(cells, USUAL_LETTER)
    x = {
        "field": "column",
        "type": "ordinal",
        "sort": None,
        "title": column_title,
        "axis": {"orient": "top", "labelAngle": 0, "domain": False, "ticks": False, "labelLimit": 90},
    }
    axis = {"domain": False, "ticks": False, "labelLimit": LABEL_LIMIT[narrow], "labelPadding": 5}
    y = {"field": "line", "type": "ordinal", "sort": None, "title": None, "axis": axis}
    scale = {"domain": [span * (i - 4) / 4 for i in range(9)], "range": list(DIVERGING), "clamp": True}
    shade = {"field": "log2", "type": "quantitative", "scale": scale, "legend": None}
    ink = {"condition": {"test": "datum.dark", "value": ON_DARK}, "value": ON_LIGHT}
    frame = {"type": "rect", "filled": False, "stroke": INK, "strokeWidth": 2, "cornerRadius": 2}
    figures = {"type": "text", "fontWeight": "bold", "fontSize": 9 if is_crowded else TEXT}
    layers = [
        layer(
            [row for row in rows if row["log2"] is not None], {"type": "rect", "cornerRadius": 2}, x=x, y=y, color=shade
        ),
        layer([row for row in rows if row["sure"]], frame, x=x, y=y),
        layer(rows, {**figures, "dy": -6 if with_interval else 0}, x=x, y=y, text={"field": "median"}, color=ink),
    ]
    if with_interval:
        small = {"type": "text", "dy": 9, "fontSize": 9.5 if narrow else SMALL}
        layers.append(layer(rows, small, x=x, y=y, text={"field": "interval"}, color=ink))
    return figure(layers, narrow=narrow, height=len(lines) * (HIGH_CELL if with_interval else LOW_CELL) + AXIS)


def _median(cell: HeatCell) -> float | None:
    value = cell.speedup.get("p50")
    return float(value) if value else None


def _figure(cell: HeatCell) -> str:
    mid = cell.speedup.get("p50")
    return UNDEFINED if mid is None else f"{mid:.2f}x"


def _row(cell: HeatCell, asked: float, span: float) -> Spec:
    low, mid, high = (cell.speedup.get(key) for key in ("p05", "p50", "p95"))
    log2 = None if not mid else math.log2(mid)
    known = not cell.is_reference and low is not None and high is not None
    return {
        "column": cell.column,
        "line": cell.line,
        "log2": log2,
        "dark": log2 is not None and abs(log2) > DARK_CELL * span,
        "median": _figure(cell),
        "interval": f"{low:.2f}–{high:.2f}" if known else "",
        "sure": not cell.is_reference and (cell.probability_faster or 0.0) >= asked,
        "tip": cell.tip(),
    }
