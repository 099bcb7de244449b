"""The charts of `draftcast choose`: the heat map, the speedup against load, what users see."""

import itertools
from collections.abc import Sequence

from hwmodel.units import MS
from simulator.results import NO_ROOM
from validate.report.chart import Chart, Json, Spec, Table
from validate.report.heat import MAX_COLUMNS, MAX_LINES, HeatCell, drawn_columns, heat_spec, reading
from validate.report.marks import arms_over_load, banded_curve
from validate.report.numbers import odds, speedup_text, text_of
from validate.report.theme import thinned

MAX_POINTS = 48  # of a curve: more marks touch each other
MAX_CURVES = 8  # draft lengths to switch between
LOAD = "concurrency (requests at once)"
USUAL_PROBABILITY = 0.8  # objective.min_probability_faster
Grid = dict[tuple[int, int], Json]


def charts(result: Json, details: Json) -> list[Chart]:
    """All charts that the result supports; `details["shown"]` is the draft length that the page speaks about."""
    shown = details.get("shown", 0)
    grid: Grid = {(cell["num_speculative_tokens"], cell["concurrency"]): cell for cell in result["grid"]}
    lengths, loads = sorted({k for k, _ in grid}), sorted({load for _, load in grid})
    found = [_heat_map(result, grid, lengths, loads)]
    drafting = [k for k in lengths if k > 0]
    if drafting:
        curves = sorted({*thinned(drafting, MAX_CURVES), *([shown] if shown else [])})
        found += [speedup_curve([grid[k, load] for load in loads], k, selected=k == shown) for k in curves]
        arms = {"with drafts": [grid[shown or drafting[-1], load] for load in loads]}
        if 0 in lengths:
            arms = {"baseline": [grid[0, load] for load in loads], **arms}
        found += what_users_see(arms, shown or drafting[-1])
    return found


def _heat_map(result: Json, grid: Grid, lengths: list[int], loads: list[int]) -> Chart:
    objective = result["inputs"].get("deployment", {}).get("objective", {})
    asked = objective.get("min_probability_faster", USUAL_PROBABILITY)
    runs = (result.get("memory") or {}).get("limited_by_baseline") != NO_ROOM
    picked = result["recommendation"]["num_speculative_tokens"] if runs else None
    few, drawn = thinned(lengths, MAX_LINES), thinned(loads, MAX_COLUMNS)
    cells = [
        HeatCell(
            str(load),
            f"use k = {k}" if k == picked else f"k = {k}",
            f"k = {k}, concurrency {load}",
            grid[k, load]["speedup"],
            grid[k, load]["probability_faster"],
            is_reference=k == 0,
        )
        for k in few
        for load in drawn
    ]
    heads = ("draft tokens", "concurrency", "speedup p50", "p05", "p95", "P(faster)", "ms/token", "tokens/s", "limit")
    return Chart(
        "speedup-heat-map",
        "Speedup by draft length and concurrency",
        reading(
            asked, (len(few), len(lengths), "draft lengths"), (len(drawn_columns(cells)), len(loads), "concurrencies")
        )
        + (' "use" marks the recommended length.' if runs else ""),
        f"Heat map: {len(lengths)} draft lengths by {len(loads)} concurrencies, the speedup written in each cell.",
        heat_spec(cells, LOAD, asked, narrow=False),
        heat_spec(cells, LOAD, asked, narrow=True),
        Table(heads, tuple(_row(grid[k, load]) for k in lengths for load in loads), num_texts=0),
    )


def _row(cell: Json) -> tuple[float | str | None, ...]:
    speedup, tpot_s = cell["speedup"], cell["tpot_s"]
    return (
        cell["num_speculative_tokens"],
        cell["concurrency"],
        *(speedup.get(key) for key in ("p50", "p05", "p95")),
        cell["probability_faster"],
        None if tpot_s is None else tpot_s / MS,
        cell["throughput_tokens_per_s"],
        str(cell["limited_by"]).replace("_", " "),
    )


def speedup_curve(cells: Sequence[Json], k: int, *, selected: bool) -> Chart:
    """The speedup of one draft length against load, with its band and where it crosses 1."""
    known = [_curve_point(cell) for cell in cells if cell["speedup"].get("p50") is not None]
    points = thinned(known, MAX_POINTS)
    heads = ("concurrency", "p05", "p25", "p50", "p75", "p95", "P(faster)")
    keys = ("load", "p05", "p25", "p50", "p75", "p95", "probability")
    crossing = crossings(known)
    told = _crossing_sentence(crossing, points)
    titles = (LOAD, "speedup over no drafts")
    return Chart(
        f"speedup-by-load-k{k}",
        "Speedup against load",
        f"{told} Bands: 50 % and 90 % of the draws.",
        f"Curve of the median speedup with k = {k} over concurrency, with bands of 50 % and 90 %. {told}",
        banded_curve(points, titles, crossing, narrow=False),
        banded_curve(points, titles, crossing, narrow=True),
        Table(heads, tuple(tuple(point[key] for key in keys) for point in known), num_texts=0),
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
        f"P(faster) {odds(cell['probability_faster'])}",
    }


def crossings(points: Sequence[Json]) -> list[tuple[int, int]]:
    """Neighbouring loads between which the median speedup passes 1."""
    pairs = itertools.pairwise(points)
    return [(a["load"], b["load"]) for a, b in pairs if (a["p50"] >= 1.0) != (b["p50"] >= 1.0)]


def _crossing_sentence(crossing: Sequence[tuple[int, int]], points: Sequence[Json]) -> str:
    if not points:
        return "No speedup is defined."
    if crossing:
        between = " and ".join(f"between concurrency {low} and {high}" for low, high in crossing)
        return f"The median passes 1 {between}."
    side = "faster" if points[0]["p50"] >= 1.0 else "slower"
    first, last = points[0]["load"], points[-1]["load"]
    return f"The median is {side} at " + (
        f"every load from {first} to {last}." if len(points) > 1 else f"concurrency {first}."
    )


def what_users_see(arms: dict[str, list[Json]], k: int) -> list[Chart]:
    """Time per output token and throughput of both arms over load; the arms' cells have them as keys."""
    time = ("tpot_s", 1 / MS, "time-per-token", "ms per token", "Time per output token")
    rate = ("throughput_tokens_per_s", 1.0, "throughput", "tokens per second", "Throughput")
    return [_over_load(arms, k, time, selected=True), _over_load(arms, k, rate, selected=False)]


def _over_load(arms: dict[str, list[Json]], k: int, what: tuple[str, float, str, str, str], *, selected: bool) -> Chart:
    key, scale, chart_name, unit, words = what
    rows = []
    for arm, cells in arms.items():
        for load, value in ((cell["concurrency"], cell[key]) for cell in cells if cell[key]):
            tip = f"{arm}, concurrency {load}: {text_of(value * scale)} {unit}"
            rows.append({"load": load, "value": value * scale, "arm": arm, "tip": tip})
    values = {(row["arm"], row["load"]): row["value"] for row in rows}
    loads = sorted({row["load"] for row in rows})
    drawn = [row for arm in arms for row in thinned([row for row in rows if row["arm"] == arm], MAX_POINTS)]
    return Chart(
        chart_name,
        "What users see",
        f"{words} without drafts and with k = {k}, at the median of the parameters.",
        f"Two curves over concurrency: {unit} of the baseline (solid, round) and with drafts (dashed, square).",
        arms_over_load(drawn, unit, narrow=False),
        arms_over_load(drawn, unit, narrow=True),
        Table(
            ("concurrency", f"baseline, {unit}", f"k = {k}, {unit}"),
            tuple((load, values.get(("baseline", load)), values.get(("with drafts", load))) for load in loads),
            num_texts=0,
        ),
        group="what-users-see",
        label=unit,
        selected=selected,
    )
