"""Colours, sizes and the frame that all charts share.

Two colours carry meaning: what runs now and what runs with drafts. They are of Okabe and Ito's set (2008), which
readers with any colour vision tell apart, and marks differ in shape or dash besides. The page's style sheet exchanges
the colours of text and grid in the dark, so they are written here exactly as there (a test compares them).
"""

import math
from collections.abc import Sequence
from typing import Any

from simulator.deployment.keys import short
from validate.report.chart import Spec

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
INK, MUTED, GRID = "#1f2328", "#59636e", "#d1d9e0"
BASELINE, SPECULATIVE, THIRD = "#0072b2", "#d55e00", "#009e73"
ARMS = {"baseline": BASELINE, "with drafts": SPECULATIVE}
ON_LIGHT, ON_DARK = "#111111", "#ffffff"  # text inside coloured cells: not exchanged in the dark
# Slower to faster, the middle is no change: ColorBrewer's BrBG, safe for colour-blind readers and in grey print.
DIVERGING = ("#8c510a", "#bf812d", "#dfc27d", "#f6e8c3", "#f5f5f5", "#c7eae5", "#80cdc1", "#35978f", "#01665e")
FONT = "Helvetica, Arial, sans-serif"
WIDE, NARROW = 700, 340  # pixels of the whole drawing
TEXT, SMALL = 12, 11  # at 300 dpi across a page 12 px are 8.5 points
MAX_NAME = 48
_FEWEST_TICKS = 3  # with fewer nobody sees that an axis is logarithmic
_TEXT_SHARE = 1.5  # ticks that would fit if their texts touched, over those that are shown
_LEAST_ROOM = 1.03  # beyond the ends of a logarithmic axis, a factor

CONFIG: Spec = {
    "background": None,
    "font": FONT,
    "padding": 4,
    "view": {"stroke": None},
    "axis": {
        "labelColor": MUTED,
        "titleColor": INK,
        "labelFontSize": TEXT,
        "titleFontSize": TEXT,
        "titleFontWeight": "normal",
        "gridColor": GRID,
        "domainColor": MUTED,
        "tickColor": MUTED,
        "titlePadding": 8,
    },
    "legend": {
        "labelColor": INK,
        "titleColor": INK,
        "labelFontSize": TEXT,
        "titleFontSize": TEXT,
        "orient": "top",
        "title": None,
        "symbolSize": 90,
        "symbolStrokeWidth": 2,
    },
    "title": {"color": INK, "subtitleColor": MUTED, "fontSize": 15, "subtitleFontSize": TEXT, "anchor": "start"},
    "text": {"color": INK, "fontSize": TEXT},
    "line": {"strokeWidth": 2.5},
    "point": {"filled": True, "size": 55, "opacity": 1},
    "rule": {"color": MUTED},
}


def figure(layers: Sequence[Spec], *, narrow: bool, height: int, **more: Any) -> Spec:
    """A Vega-Lite specification of that many layers, one over the other, in the frame of a page or of a phone."""
    return {
        "$schema": SCHEMA,
        "width": NARROW if narrow else WIDE,
        "height": height,
        "autosize": {"type": "fit", "contains": "padding"},
        "config": CONFIG,
        "layer": list(layers),
        **more,
    }


def layer(rows: Sequence[Spec], mark: str | Spec, **encoding: Any) -> Spec:
    """One layer: marks for `rows`; where these have a `tip`, it is what a mark says when it is pointed at.

    Texts, lines and areas say nothing: the mark under or on them does.
    """
    drawn: Spec = {"type": mark} if isinstance(mark, str) else dict(mark)
    if rows and "tip" in rows[0] and drawn["type"] not in ("text", "line", "area"):
        encoding["description"] = {"field": "tip"}
    else:
        drawn["aria"] = False
    return {"data": {"values": list(rows)}, "mark": drawn, "encoding": encoding}


def value(constant: Any) -> Spec:
    """A constant in place of a field."""
    return {"value": constant}


def name(text: object, limit: int = MAX_NAME) -> str:
    """A name from outside as a label: one line, printable, not too long."""
    return short(str(text), limit)


def distinct(labels: Sequence[str]) -> list[str]:
    """The labels, the second and further of the same text numbered: each is a place of its own on an axis.

    >>> distinct(["a", "b", "a"])
    ['a', 'b', 'a #2']
    """
    seen: dict[str, int] = {}
    found = []
    for label in labels:
        seen[label] = seen.get(label, 0) + 1
        found.append(label if seen[label] == 1 else f"{label} #{seen[label]}")
    return found


def log_axis(
    values: Sequence[float], title: str, most: int, ticks: Sequence[float] | None = None, *, grid: bool = False
) -> Spec:
    """A positional channel on a logarithmic scale over `values`, which are positive; ticks at most `most` of them."""
    room = 1.25 if min(values) == max(values) else max((max(values) / min(values)) ** 0.03, _LEAST_ROOM)
    low, high = min(values) / room, max(values) * room
    shown = [tick for tick in (sorted(set(values)) if ticks is None else ticks) if low <= tick <= high]
    fewest = 2 if ticks is None else _FEWEST_TICKS
    if len(shown) < fewest and len(set(values)) > 1:  # all between two or three round numbers
        shown = _even_ticks(low, high)
    return {
        "type": "quantitative",
        "scale": {"type": "log", "domain": [low, high], "nice": False},
        "axis": {"title": f"{title}, log scale", "values": spread(shown, most), "format": ",~r", "grid": grid},
    }


def percent_axis(title: str, num_ticks: int, *, signed: bool = False) -> Spec:
    """The axis of a share, or of a relative change where `signed`."""
    sign = "+" if signed else ""
    return {"title": title, "tickCount": num_ticks, "labelExpr": f"format(100 * datum.value, '{sign}.0f') + ' %'"}


def round_ticks(values: Sequence[float]) -> list[float]:
    """Ticks of 1, 2, 5 times a power of ten from just below to just above the positive `values`.

    >>> round_ticks([72.0, 1242.0])
    [50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0]
    """
    powers = range(math.floor(math.log10(min(values))), math.ceil(math.log10(max(values))) + 1)
    ticks = [round(step * 10.0**power, 12) for power in powers for step in (1, 2, 5)]
    low = max([tick for tick in ticks if tick <= min(values)], default=ticks[0])
    high = min([tick for tick in ticks if tick >= max(values)], default=ticks[-1])
    return [tick for tick in ticks if low <= tick <= high]


def _even_ticks(low: float, high: float) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten between two values that are close together: three and more."""
    power = math.floor(math.log10((high - low) / 3))
    step = max(each for each in (1, 2, 5) if (high - low) / (each * 10.0**power) >= 3) * 10.0**power
    return [round(i * step, 12) for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


def spread(values: Sequence[float], most: int) -> list[float]:
    """At most `most` of the increasing positive values, far enough apart on a logarithmic axis to be written.

    >>> spread([1, 2, 3, 4, 5, 6, 7, 8], 4), spread([1, 4, 16, 64, 128], 6), spread([5.0], 4)
    ([1, 2, 5, 8], [1, 4, 16, 64, 128], [5.0])
    """
    if len(values) <= 2:
        return list(values)
    gap = math.log(values[-1] / values[0]) / (_TEXT_SHARE * most)
    kept = [values[0]]
    for each in values[1:]:
        if math.log(each / kept[-1]) >= gap:
            kept.append(each)
    while len(kept) > 1 and math.log(values[-1] / kept[-1]) < gap:
        kept.pop()
    return thinned([*kept, values[-1]], most)


def thinned(values: Sequence[Any], most: int) -> list[Any]:
    """At most `most` of the values, evenly over their order, first and last among them."""
    if len(values) <= most:
        return list(values)
    step = (len(values) - 1) / (most - 1)
    return [values[round(i * step)] for i in range(most)]
