"""The charts of `draftcast choose`: the heat map, the speedup against load, what users see."""

import itertools
import math
from collections.abc import Sequence

from validate.report.chart import Chart, Json, Spec, Table
from validate.report.numbers import UNDEFINED, percent, speedup_text
from validate.report.theme import (
    ARMS,
    DIVERGING,
    INK,
    MUTED,
    ON_DARK,
    ON_LIGHT,
    SMALL,
    SPECULATIVE,
    TEXT,
    figure,
    layer,
    log_axis,
    name,
    round_ticks,
    thinned,
)

MAX_COLUMNS, MAX_ROWS = 16, 20  # of the heat map: more cells have no room for their figures
MAX_CURVES = 8  # draft lengths to switch between
LEAST_SPAN, MOST_SPAN = math.log2(1.25), math.log2(2.5)  # of the colours, to either side of no change
DARK_CELL = 0.85  # of the span: beyond it the text is white
CELL_HEIGHT = 40
LABELLED_POINTS = 9
TICKS = {False: 12, True: 6}


def charts(result: Json, details: Json) -> list[Chart]:
    """All charts that the result supports; `details["shown"]` is the draft length that the page speaks about."""
    shown = details.get("shown", 0)
    grid = {(cell["num_speculative_tokens"], cell["concurrency"]): cell for cell in result["grid"]}
    lengths, loads = sorted({k for k, _ in grid}), sorted({load for _, load in grid})
    found = [_heat_map(result, grid, lengths, loads)]
    drafting = [k for k in lengths if k > 0]
    if drafting:
        curves = sorted({*thinned(drafting, MAX_CURVES), *([shown] if shown else [])})
        found += [speedup_curve([grid[k, load] for load in loads], k, selected=k == shown) for k in curves]
        found += _what_users_see(grid, loads, shown or drafting[-1])
    return found


def _heat_map(result: Json, grid: dict[tuple[int, int], Json], lengths: list[int], loads: list[int]) -> Chart:
    asked = result["inputs"].get("deployment", {}).get("objective", {}).get("min_probability_faster", 0.8)
    title = "Speedup by draft length and concurrency"
    finding = (
        "Median of the speedup and, where there is room, its 90 % interval. Green is faster, brown slower; "
        f'framed where the probability of being faster is at least {percent(asked)}; "use" is what is recommended.'
    )
    picked = result["recommendation"]["num_speculative_tokens"]
    table = Table(
        ("draft tokens", "concurrency", "speedup p50", "p05", "p95", "P(faster)", "ms/token", "tokens/s", "limited by"),
        tuple(_row(grid[k, load]) for k in lengths for load in loads),
        num_texts=0,
    )
    specs = [_heat_spec(grid, lengths, loads, {"picked": picked, "asked": asked}, narrow) for narrow in (False, True)]
    alt = f"Heat map: {len(lengths)} draft lengths by {len(loads)} concurrencies, the speedup written in each cell."
    return Chart("speedup-heat-map", title, finding, alt, specs[0], specs[1], table)


def _row(cell: Json) -> tuple[float | str | None, ...]:
    speedup, tpot_s = cell["speedup"], cell["tpot_s"]
    return (
        cell["num_speculative_tokens"],
        cell["concurrency"],
        *(speedup.get(key) for key in ("p50", "p05", "p95")),
        cell["probability_faster"],
        None if tpot_s is None else tpot_s * 1e3,
        cell["throughput_tokens_per_s"],
        str(cell["limited_by"]).replace("_", " "),
    )


def _heat_spec(
    grid: dict[tuple[int, int], Json], lengths: list[int], loads: list[int], marks: Json, narrow: bool
) -> Spec:
    columns, lines = thinned(loads, MAX_COLUMNS), thinned(lengths, MAX_ROWS)
    medians = [grid[k, c]["speedup"].get("p50") for k in lines for c in columns]
    span = max([LEAST_SPAN, *(abs(math.log2(p50)) for p50 in medians if p50)])
    span = min(span, MOST_SPAN)
    rows = [_heat_cell(grid[k, c], marks, span) for k in lines for c in columns]
    with_interval = len(columns) <= (6 if narrow else 10)
    x = {"field": "load", "type": "ordinal", "sort": None, "title": "concurrency (requests at once)",
         "axis": {"orient": "top", "labelAngle": 0, "domain": False, "ticks": False}}  # fmt: skip
    y = {"field": "length", "type": "ordinal", "sort": None, "title": None, "axis": {"domain": False, "ticks": False}}
    scale = {"domain": [span * (i - 4) / 4 for i in range(9)], "range": list(DIVERGING), "clamp": True}
    shade = {"field": "log2", "type": "quantitative", "scale": scale, "legend": None}
    ink = {"condition": {"test": "datum.dark", "value": ON_DARK}, "value": ON_LIGHT}
    crowded = len(columns) > (7 if narrow else MAX_COLUMNS)
    known = [row for row in rows if row["log2"] is not None]
    layers = [
        layer(known, {"type": "rect", "cornerRadius": 2}, x=x, y=y, color=shade),
        layer([row for row in rows if row["sure"]], {"type": "rect", "filled": False, "stroke": INK, "strokeWidth": 2,
              "cornerRadius": 2}, x=x, y=y),
        layer(rows, {"type": "text", "fontWeight": "bold", "fontSize": 9 if crowded else TEXT,
              "dy": -6 if with_interval else 0}, x=x, y=y, text={"field": "median"}, color=ink),
    ]  # fmt: skip
    if with_interval:
        small = {"type": "text", "dy": 9, "fontSize": 9.5 if narrow else SMALL}
        layers.append(layer(rows, small, x=x, y=y, text={"field": "interval"}, color=ink))
    height = len(lines) * (CELL_HEIGHT if with_interval else 26) + 50
    return figure(layers, narrow=narrow, height=height)


def _heat_cell(cell: Json, marks: Json, span: float) -> Spec:
    k, speedup = cell["num_speculative_tokens"], cell["speedup"]
    low, mid, high = (speedup.get(key) for key in ("p05", "p50", "p95"))
    log2 = None if not mid else math.log2(mid)
    known = k > 0 and low is not None and high is not None
    return {
        "load": str(cell["concurrency"]),
        "length": f"use k = {k}" if k == marks["picked"] else f"k = {k}",
        "log2": log2,
        "dark": log2 is not None and abs(log2) > DARK_CELL * span,
        "median": UNDEFINED if mid is None else f"{mid:.2f}x",
        "interval": f"{low:.2f}–{high:.2f}" if known else "",
        "sure": k > 0 and (cell["probability_faster"] or 0.0) >= marks["asked"],
        "tip": f"k = {k}, concurrency {cell['concurrency']}: {speedup_text(speedup)}, "
        f"P(faster) {percent(cell['probability_faster'])}",
    }


def speedup_curve(cells: Sequence[Json], k: int, *, selected: bool) -> Chart:
    """The speedup of one draft length against load, with its band and where it crosses 1."""
    points = [_curve_point(cell) for cell in cells if cell["speedup"].get("p50") is not None]
    table = Table(
        ("concurrency", "p05", "p25", "p50", "p75", "p95", "P(faster)"),
        tuple((p["load"], p["p05"], p["p25"], p["p50"], p["p75"], p["p95"], p["probability"]) for p in points),
        num_texts=0,
    )
    crossing = crossings(points)
    return Chart(
        f"speedup-by-load-k{k}",
        "Speedup against load",
        f"{_crossing_sentence(crossing, points)} Bands: 50 % and 90 % of the draws.",
        f"Curve of the median speedup with k = {k} over concurrency, with bands of 50 % and 90 %. "
        + _crossing_sentence(crossing, points),
        _curve_spec(points, crossing, narrow=False),
        _curve_spec(points, crossing, narrow=True),
        table,
        group="speedup-by-load",
        label=f"k = {k}",
        selected=selected,
    )


def _curve_point(cell: Json) -> Spec:
    speedup = cell["speedup"]
    return {
        "load": cell["concurrency"],
        **{key: speedup.get(key) for key in ("p05", "p25", "p50", "p75", "p95")},
        "probability": cell["probability_faster"],
        "label": f"{speedup['p50']:.2f}x",
        "tip": f"concurrency {cell['concurrency']}: {speedup_text(speedup)}, "
        f"P(faster) {percent(cell['probability_faster'])}",
    }


def crossings(points: Sequence[Json]) -> list[tuple[int, int]]:
    """Neighbouring loads between which the median speedup passes 1."""
    pairs = itertools.pairwise(points)
    return [(a["load"], b["load"]) for a, b in pairs if (a["p50"] >= 1.0) != (b["p50"] >= 1.0)]


def _crossing_sentence(crossing: Sequence[tuple[int, int]], points: Sequence[Json]) -> str:
    if not points:
        return "No speedup is defined."
    if not crossing:
        side = "faster" if points[0]["p50"] >= 1.0 else "slower"
        over = f"from {points[0]['load']} to {points[-1]['load']}" if len(points) > 1 else f"at {points[0]['load']}"
        return f"The median is {side} at every load {over}." if len(points) > 1 else f"The median is {side} {over}."
    between = " and ".join(f"between concurrency {low} and {high}" for low, high in crossing)
    return f"The median passes 1 {between}."


def _curve_spec(points: Sequence[Spec], crossing: Sequence[tuple[int, int]], *, narrow: bool) -> Spec:
    loads = [point["load"] for point in points] or [1]
    x = {"field": "load", **log_axis(loads, "concurrency (requests at once)", TICKS[narrow])}
    axis = {"title": "speedup over no drafts", "format": ".2f", "tickCount": 6}
    y = {"field": "p50", "type": "quantitative", "scale": {"zero": False}, "axis": axis}

    def band(low: str, high: str, opacity: float) -> Spec:
        ends = {"y": {**y, "field": low}, "y2": {"field": high}}
        wide = {"type": "area", "color": SPECULATIVE, "opacity": opacity}
        mark = wide if len(points) > 1 else {"type": "bar", "color": SPECULATIVE, "opacity": opacity, "size": 14}
        return layer(points, mark, x=x, **ends)

    zone = [{"load": low, "end": high} for low, high in crossing]
    one = [{"p50": 1.0, "text": "no change"}]
    layers = [
        layer(zone, {"type": "rect", "color": MUTED, "opacity": 0.14}, x=x, x2={"field": "end"}),
        band("p05", "p95", 0.18),
        band("p25", "p75", 0.28),
        layer(one, {"type": "rule", "strokeDash": [5, 4], "strokeWidth": 1.5, "color": INK}, y=y),
        layer(points, {"type": "line", "color": SPECULATIVE}, x=x, y=y),
        layer(points, {"type": "point", "color": SPECULATIVE, "shape": "square"}, x=x, y=y),
    ]
    if len(points) <= (LABELLED_POINTS if not narrow else 6):
        layers.append(layer(points, {"type": "text", "dy": -12, "fontSize": SMALL}, x=x, y=y, text={"field": "label"}))
    return figure(layers, narrow=narrow, height=260 if narrow else 320)


def _what_users_see(grid: dict[tuple[int, int], Json], loads: Sequence[int], k: int) -> list[Chart]:
    """Time per output token and throughput of both arms over load."""
    arms = {"baseline": [grid[0, load] for load in loads] if (0, loads[0]) in grid else [],
            "with drafts": [grid[k, load] for load in loads]}  # fmt: skip
    return [
        _arms_curve(arms, k, ("tpot_s", 1e3, "time-per-token", "ms per token", "Time per output token"), selected=True),
        _arms_curve(
            arms, k, ("throughput_tokens_per_s", 1.0, "throughput", "tokens per second", "Throughput"), selected=False
        ),
    ]


def _arms_curve(
    arms: dict[str, list[Json]], k: int, what: tuple[str, float, str, str, str], *, selected: bool
) -> Chart:
    key, scale, chart_name, unit, words = what
    rows = [
        {"load": cell["concurrency"], "value": cell[key] * scale, "arm": arm,
         "tip": f"{arm}, concurrency {cell['concurrency']}: {cell[key] * scale:.4g} {unit}"}
        for arm, cells in arms.items() for cell in cells if cell[key] is not None
    ]  # fmt: skip
    pairs = {(row["arm"], row["load"]): row["value"] for row in rows}
    loads = sorted({row["load"] for row in rows})
    table = Table(
        ("concurrency", f"baseline, {unit}", f"k = {k}, {unit}"),
        tuple((load, pairs.get(("baseline", load)), pairs.get(("with drafts", load))) for load in loads),
        num_texts=0,
    )
    return Chart(
        chart_name,
        "What users see",
        f"{words} without drafts and with k = {name(k)}, at the median of the parameters.",
        f"Two curves over concurrency: {unit} of the baseline (solid, round) and with drafts (dashed, square).",
        arms_spec(rows, unit, narrow=False),
        arms_spec(rows, unit, narrow=True),
        table,
        group="what-users-see",
        label=unit,
        selected=selected,
    )


def arms_spec(rows: Sequence[Spec], unit: str, *, narrow: bool) -> Spec:
    """Curves of the two arms over load, both axes logarithmic; they differ in colour, dash and mark."""
    loads, values = [row["load"] for row in rows] or [1], [row["value"] for row in rows] or [1]
    names = list(ARMS)
    x = {"field": "load", **log_axis(loads, "concurrency (requests at once)", TICKS[narrow])}
    y = {"field": "value", **log_axis(values, unit, TICKS[narrow], round_ticks(values), grid=True)}
    color = {"field": "arm", "type": "nominal", "scale": {"domain": names, "range": list(ARMS.values())}}
    shape = {"field": "arm", "type": "nominal", "scale": {"domain": names, "range": ["circle", "square"]}}
    layers = []
    for arm, dash in zip(names, ([1, 0], [6, 4]), strict=True):
        line = {"type": "line", "color": ARMS[arm], "strokeDash": dash}
        layers.append(layer([row for row in rows if row["arm"] == arm], line, x=x, y=y))
    layers.append(layer(rows, "point", x=x, y=y, color=color, shape=shape))
    return figure(layers, narrow=narrow, height=240 if narrow else 280)
