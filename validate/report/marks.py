"""Drawings that several commands share: intervals, bars of both arms, curves, predicted against measured.

Rows are plain records with fixed field names; what they are called on the page stands in titles and labels.
"""

import math
from collections.abc import Sequence
from typing import Any

from validate.report.chart import Spec
from validate.report.theme import (
    ARMS,
    BASELINE,
    INK,
    MUTED,
    SMALL,
    SPECULATIVE,
    distinct,
    figure,
    layer,
    log_axis,
    percent_axis,
    round_ticks,
    thinned,
)

TICKS = {False: 12, True: 6}
LABELLED = {False: 9, True: 6}  # points with their value written beside them
SHAPES = ("circle", "square", "triangle-up", "diamond")
LINE_HEIGHT, BAR_HEIGHT, AXIS = 26, 16, 58
LABEL_WIDTH = {False: 260, True: 130}
BAR_LABEL_WIDTH = {False: 260, True: 160}
MAX_LINES = 40  # of intervals or bars in one drawing


def arm_scales(names: Sequence[str] = tuple(ARMS)) -> tuple[Spec, Spec]:
    """Colour and shape of the arms, with one legend for both."""
    color = {"field": "arm", "type": "nominal", "scale": {"domain": list(names), "range": [ARMS[n] for n in names]}}
    shape = {"field": "arm", "type": "nominal", "scale": {"domain": list(names), "range": list(SHAPES[: len(names)])}}
    return color, shape


_MARKED = 16  # a curve of so few values is no curve without its marks


def arm_curves(rows: Sequence[Spec], x: Spec, y: Spec, *, points: bool = True) -> list[Spec]:
    """Layers of a curve for each arm over `x`; they differ in colour, dash and mark. Rows: arm, x, value."""
    color, shape = arm_scales()
    layers = []
    for arm, dash in zip(ARMS, ([1, 0], [6, 4]), strict=True):
        line = {"type": "line", "color": ARMS[arm], "strokeDash": dash}
        layers.append(layer([row for row in rows if row["arm"] == arm], line, x=x, y=y))
    size = {"type": "point"} if points or len(rows) <= _MARKED else {"type": "point", "size": 8}
    return [*layers, layer(rows, size, x=x, y=y, color=color, shape=shape)]


def arms_over_load(rows: Sequence[Spec], unit: str, *, narrow: bool) -> Spec:
    """Both arms over load, both axes logarithmic. Rows: arm, load, value (positive), tip."""
    loads, values = [row["load"] for row in rows] or [1], [row["value"] for row in rows] or [1]
    x = {"field": "load", **log_axis(loads, "concurrency (requests at once)", TICKS[narrow])}
    y = {"field": "value", **log_axis(values, unit, TICKS[narrow], round_ticks(values), grid=True)}
    return figure(arm_curves(rows, x, y), narrow=narrow, height=240 if narrow else 280)


def banded_curve(
    points: Sequence[Spec], titles: tuple[str, str], crossing: Sequence[tuple[float, float]], *, narrow: bool
) -> Spec:
    """A median over load with bands of 50 and 90 %, a line at 1, and shaded where it passes 1.

    Rows: load, p05, p25, p50, p75, p95, label, tip.
    """
    loads = [point["load"] for point in points] or [1]
    x = {"field": "load", **log_axis(loads, titles[0], TICKS[narrow])}
    axis = {"title": titles[1], "format": ".2f", "tickCount": 6}
    y = {"field": "p50", "type": "quantitative", "scale": {"zero": False}, "axis": axis}

    def band(low: str, high: str, opacity: float) -> Spec:
        kind: Spec = {"type": "area"} if len(points) > 1 else {"type": "bar", "size": 14, "aria": False}
        bare = [{k: v for k, v in point.items() if k != "tip"} for point in points]
        drawn = {**kind, "color": SPECULATIVE, "opacity": opacity}
        return layer(bare, drawn, x=x, y={**y, "field": low}, y2={"field": high})

    zone = [{"load": low, "end": high} for low, high in crossing]
    one = {"type": "rule", "strokeDash": [5, 4], "strokeWidth": 1.5, "color": INK}
    layers = [
        layer(zone, {"type": "rect", "color": MUTED, "opacity": 0.14}, x=x, x2={"field": "end"}),
        band("p05", "p95", 0.18),
        band("p25", "p75", 0.28),
        layer([{"p50": 1.0}], one, y=y),
        layer(points, {"type": "line", "color": SPECULATIVE}, x=x, y=y),
        layer(points, {"type": "point", "color": SPECULATIVE, "shape": "square"}, x=x, y=y),
    ]
    if len(points) <= LABELLED[narrow]:
        layers.append(layer(points, {"type": "text", "dy": -12, "fontSize": SMALL}, x=x, y=y, text={"field": "label"}))
    return figure(layers, narrow=narrow, height=260 if narrow else 320)


def intervals(
    rows: Sequence[Spec],
    title: str,
    *,
    narrow: bool,
    at: float | None = 1.0,
    log: bool = False,
    zero: bool = False,
) -> Spec:
    """A line for each row from low to high with its middle, and a dashed line at `at`.

    Rows: label, low, mid, high, tip; `measured` where something was measured (a hollow diamond).
    """
    labels = distinct([row["label"] for row in rows[:MAX_LINES]])
    shown = [{**row, "label": label} for row, label in zip(rows, labels, strict=False)]
    axis = {"domain": False, "ticks": False, "labelLimit": LABEL_WIDTH[narrow]}
    y = {"field": "label", "type": "nominal", "sort": None, "title": None, "axis": axis}
    x: Spec = {"type": "quantitative", "scale": {"zero": zero}, "axis": {"title": title, "tickCount": 6}}
    if log:
        ends = [row[key] for row in shown for key in ("low", "mid", "high", "measured") if row.get(key)]
        x = log_axis(ends or [1.0], title, TICKS[narrow], round_ticks(ends or [1.0]), grid=True)
    measured = [{**row, "mid": row["measured"]} for row in shown if row.get("measured") is not None]
    dashed = {"type": "rule", "strokeDash": [5, 4], "color": INK}
    hollow = {"type": "point", "shape": "diamond", "filled": False, "size": 90, "color": INK, "strokeWidth": 2}
    span = {"type": "rule", "color": SPECULATIVE, "strokeWidth": 5, "opacity": 0.4, "strokeCap": "round"}
    layers = [
        *([] if at is None else [layer([{"mid": at}], dashed, x={**x, "field": "mid"})]),
        layer([r for r in shown if r["low"] is not None], span, x={**x, "field": "low"}, x2={"field": "high"}, y=y),
        layer(shown, {"type": "point", "color": SPECULATIVE, "shape": "square"}, x={**x, "field": "mid"}, y=y),
        *([layer(measured, hollow, x={**x, "field": "mid"}, y=y)] if measured else []),
    ]
    return figure(layers, narrow=narrow, height=len(shown) * LINE_HEIGHT + AXIS)


def _lighter(name: str) -> Spec:
    """Where the baseline is lighter, so that bars are told apart in grey too; `name` is the datum's field."""
    return {"test": f"datum.{name} === 'baseline'", "value": 0.55}


def arm_bars(rows: Sequence[Spec], title: str, *, narrow: bool) -> Spec:
    """Bars of both arms beside each other with their values written. Rows: label, arm, value, text, tip."""
    labels = list(dict.fromkeys(row["label"] for row in rows))
    axis = {"domain": False, "ticks": False, "labelLimit": BAR_LABEL_WIDTH[narrow]}
    y = {"field": "label", "type": "nominal", "sort": None, "title": None, "axis": axis,
         "scale": {"paddingInner": 0.25}}  # fmt: skip
    offset = {"field": "arm", "type": "nominal", "sort": list(ARMS)}
    most = max((row["value"] for row in rows), default=0.0)
    scale = {"domain": [0, most * (1.22 if narrow else 1.1) or 1.0], "nice": False}
    x = {"field": "value", "type": "quantitative", "scale": scale, "axis": {"title": title, "tickCount": 5}}
    legend = {"encoding": {"symbols": {"fillOpacity": {"condition": _lighter("value"), "value": 1}}}}
    color = {"field": "arm", "type": "nominal", "legend": legend,
             "scale": {"domain": list(ARMS), "range": list(ARMS.values())}}  # fmt: skip
    light = {"condition": _lighter("arm"), "value": 1}
    text = {"type": "text", "align": "left", "dx": 4, "fontSize": SMALL}
    layers = [
        layer(rows, {"type": "bar"}, x=x, y=y, yOffset=offset, color=color, fillOpacity=light),
        layer(rows, text, x=x, y=y, yOffset=offset, text={"field": "text"}),
    ]
    return figure(layers, narrow=narrow, height=2 * len(labels) * BAR_HEIGHT + len(labels) * 4 + AXIS + 30)


def predicted_against_measured(rows: Sequence[Spec], unit: str, *, narrow: bool) -> Spec:
    """Points over a diagonal, both axes alike. Rows: measured, predicted, low, high (or None), tip; all positive."""
    ends = [row[key] for row in rows for key in ("measured", "predicted", "low", "high") if row.get(key)] or [1.0]
    most = 6 if narrow else 10
    ticks = thinned(round_ticks(ends), most)
    x = {"field": "measured", **log_axis(ends, f"measured, {unit}", most, ticks, grid=True)}
    y = {"field": "predicted", **log_axis(ends, f"predicted, {unit}", most, ticks, grid=True)}
    low, high = x["scale"]["domain"]
    diagonal = [{"measured": end, "predicted": end} for end in (low, high)]
    faint = max(0.25, min(1.0, 8.0 / math.sqrt(max(len(rows), 1))))
    bars = [row for row in rows if row.get("low") and row.get("high")]
    bare: list[dict[str, Any]] = [{k: v for k, v in row.items() if k != "tip"} for row in bars]
    layers = [
        layer(diagonal, {"type": "line", "color": INK, "strokeDash": [5, 4], "strokeWidth": 1.5}, x=x, y=y),
        layer(bare, {"type": "rule", "color": SPECULATIVE, "opacity": 0.35 * faint, "strokeWidth": 2}, x=x,
              y={**y, "field": "low"}, y2={"field": "high"}),
        layer(rows, {"type": "point", "color": BASELINE, "opacity": faint, "size": 40}, x=x, y=y),
    ]  # fmt: skip
    return figure(layers, narrow=narrow, height=320 if narrow else 440)


def over_time(rows: Sequence[Spec], unit: str, *, narrow: bool, percent: bool = False) -> Spec:
    """Both arms over simulated time. Rows: arm, time, value, tip."""
    x = {"field": "time", "type": "quantitative", "axis": {"title": "simulated time, s", "tickCount": 6, "grid": False}}
    axis = percent_axis(unit, 5) if percent else {"title": unit, "tickCount": 5, "format": ",~r"}
    y = {"field": "value", "type": "quantitative", "axis": axis, "scale": {"zero": True}}
    return figure(arm_curves(rows, x, y, points=False), narrow=narrow, height=220 if narrow else 240)
