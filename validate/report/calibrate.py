"""The charts of `draftcast calibrate`: residuals, what moved, predicted against measured, what would narrow."""

from collections.abc import Iterator, Sequence

from hwmodel.percent import percent
from hwmodel.units import MS
from validate.report.chart import Chart, Json, Spec, Table
from validate.report.marks import TICKS, intervals, predicted_against_measured
from validate.report.numbers import text_of
from validate.report.theme import (
    BASELINE,
    INK,
    SMALL,
    SPECULATIVE,
    TEXT,
    distinct,
    figure,
    layer,
    log_axis,
    name,
    percent_axis,
    value,
)

QUANTITIES = {
    "tpot": ("time per token", "ms", 1 / MS),
    "step": ("step", "ms", 1 / MS),
    "throughput_tokens_per_s": ("throughput", "tokens/s", 1.0),
    "allreduce_share": ("AllReduce share", "share of the step", 1.0),
}
FEWEST_POINTS = 3  # of a scatter: fewer are told by the residuals
NORMAL_90 = 1.645  # standard deviations on either side that hold 90 % of a normal distribution
TOLD, MOVED = 0.9, 0.5  # spread left, and prior deviations moved, from which on a parameter is drawn (as in the text)


def charts(result: Json, details: Json) -> list[Chart]:
    """All charts that the fit supports."""
    residuals = [row for row in result["residuals"] if row["measured"] and row["predicted"]]
    return [
        *([_residuals(residuals)] if residuals else []),
        *_scatters(residuals),
        *_parameters(result["parameters"]),
        *_measurements(result["measurements"]),
    ]


def _scale(row: Json) -> tuple[str, str, float]:
    return QUANTITIES.get(row["quantity"], (name(row["quantity"]), "", 1.0))


def _said(row: Json) -> str:
    _, unit, scale = _scale(row)
    k = f", k = {row['num_speculative_tokens']}" if row["num_speculative_tokens"] else ""
    return (
        f"{name(row['label'], 80)}{k}: measured {text_of(row['measured'] * scale)},"
        f" fit {text_of(row['predicted'] * scale)} {unit}, error {percent(row['error'], 1, signed=True)}"
    )


def _residuals(residuals: Sequence[Json]) -> Chart:
    rows, left_out = [], []
    for row in residuals:
        base = {"load": row["concurrency"], "quantity": _scale(row)[0], "noise": row["noise"], "low": -row["noise"]}
        rows.append({**base, "error": row["error"], "tip": _said(row)})
        if row["left_out_error"] is not None:
            tip = f"{_said(row)}; predicted from all other loads {percent(row['left_out_error'], 1, signed=True)}"
            left_out.append({**base, "error": row["left_out_error"], "tip": tip})
    heads = ("measured", "concurrency", "k", "value", "fit", "error", "error left out", "noise")
    return Chart(
        "residuals",
        "Calibration residuals",
        "Error of the fit (filled) and of the prediction from all other loads (hollow diamonds); grey: the noise of the"
        " measurement.",
        f"Errors of {len(rows)} measurements over concurrency, around a line at zero.",
        _residual_spec(rows, left_out, narrow=False),
        _residual_spec(rows, left_out, narrow=True),
        Table(
            heads,
            tuple(
                (
                    str(row["label"]),
                    row["concurrency"],
                    row["num_speculative_tokens"],
                    row["measured"],
                    row["predicted"],
                    row["error"],
                    row["left_out_error"],
                    row["noise"],
                )
                for row in residuals
            ),
        ),
    )


def _residual_spec(rows: Sequence[Spec], left_out: Sequence[Spec], *, narrow: bool) -> Spec:
    x = {"field": "load", **log_axis([row["load"] for row in rows], "concurrency", TICKS[narrow])}
    y = {"field": "error", "type": "quantitative", "axis": percent_axis("error of the fit", 6, signed=True)}
    bare = [{k: v for k, v in row.items() if k != "tip"} for row in rows]
    names = list(dict.fromkeys(row["quantity"] for row in rows))
    shapes = {"domain": names, "range": ["circle", "square", "triangle-up", "cross"][: len(names)]}
    shape = {"field": "quantity", "type": "nominal", "scale": shapes}
    noise = {"type": "rule", "color": INK, "opacity": 0.18, "strokeWidth": 7}
    hollow = {"type": "point", "filled": False, "shape": "diamond", "size": 90, "color": SPECULATIVE, "strokeWidth": 2}
    layers = [
        layer([{"error": 0.0}], {"type": "rule", "strokeDash": [5, 4], "color": INK}, y=y),
        layer(bare, noise, x=x, y={**y, "field": "low"}, y2={"field": "noise"}),
        layer(left_out, hollow, x=x, y=y),
        layer(rows, {"type": "point", "color": BASELINE}, x=x, y=y, shape=shape),
    ]
    return figure(layers, narrow=narrow, height=260 if narrow else 300)


def _scatters(residuals: Sequence[Json]) -> Iterator[Chart]:
    """Predicted against measured, a quantity at a time."""
    for i, quantity in enumerate(dict.fromkeys(row["quantity"] for row in residuals)):
        group = [row for row in residuals if row["quantity"] == quantity and row["measured"] > 0 < row["predicted"]]
        if len(group) < FEWEST_POINTS:
            continue
        words, unit, scale = _scale(group[0])
        rows = [
            {"measured": row["measured"] * scale, "predicted": row["predicted"] * scale, "tip": _said(row)}
            for row in group
        ]
        yield Chart(
            f"fit-{str(quantity).replace('_', '-')}" if quantity in QUANTITIES else f"fit-{i}",
            "Fit against measurement",
            f"{words[0].upper()}{words[1:]}: on the dashed line they are equal.",
            f"Scatter of {len(rows)} fitted over measured values of {words}, with the line of equality.",
            predicted_against_measured(rows, unit, narrow=False),
            predicted_against_measured(rows, unit, narrow=True),
            Table((f"measured, {unit}", f"fit, {unit}"), tuple((r["measured"], r["predicted"]) for r in rows), 0),
            group="fit-against-measurement",
            label=words,
            selected=i == 0,
        )


def _parameters(parameters: Json) -> Iterator[Chart]:
    """Where the parameters went, in standard deviations of their priors: those that the measurements tell about."""
    told = {
        parameter: found
        for parameter, found in parameters.items()
        if found.get("spread_left") is not None and (found["spread_left"] < TOLD or abs(found["moved"]) > MOVED)
    }
    if not told:
        return
    rows = [
        {
            "label": name(parameter) + (" (at bound)" if found["at_bound"] else ""),
            "low": found["moved"] - NORMAL_90 * found["spread_left"],
            "mid": found["moved"],
            "high": found["moved"] + NORMAL_90 * found["spread_left"],
            "tip": f"{name(parameter)}: {text_of(found['value'])},"
            f" 90 % {text_of(found['p05'])} to {text_of(found['p95'])}",
        }
        for parameter, found in sorted(told.items(), key=lambda item: item[1]["spread_left"])
    ]
    title = "moved from its prior, in the prior's standard deviations"
    yield Chart(
        "parameters",
        "What the measurements say about the parameters",
        "Where each parameter went and its 90 % interval; the dashed line is its prior, whose own interval reaches from"
        " -1.6 to 1.6. The narrower, the more was learnt.",
        f"Intervals of {len(rows)} parameters on one axis, in standard deviations of their priors.",
        intervals(rows, title, narrow=False, at=0.0),
        intervals(rows, "moved, in prior standard deviations", narrow=True, at=0.0),
        Table(
            ("parameter", "value", "p05", "p95", "moved", "spread left"),
            tuple(
                (parameter, found["value"], found["p05"], found["p95"], found["moved"], found["spread_left"])
                for parameter, found in told.items()
            ),
        ),
    )


def _measurements(measurements: Sequence[Json]) -> Iterator[Chart]:
    """What each further measurement would leave of the uncertainty."""
    if not measurements:
        return
    before = measurements[0]["log_speedup_sd_before"]
    rows = [
        {
            "label": name(item["name"], 40) + (", restart" if item["restarts"] else ""),
            "left": item["log_speedup_sd_after"],
            "text": f"± {percent(item['log_speedup_sd_after'], 1)}",
            "tip": f"{name(item['name'], 40)}: leaves ± {percent(item['log_speedup_sd_after'], 1)} of"
            f" ± {percent(before, 1)}",
        }
        for item in measurements
    ]
    yield Chart(
        "next-measurements",
        "What would narrow the answer",
        f"The speedup is known to ± {percent(before, 1)} (one standard deviation, dashed). A bar is what a"
        " further measurement would leave.",
        f"Bars of the uncertainty that each of {len(rows)} measurements would leave.",
        _left_spec(rows, before, narrow=False),
        _left_spec(rows, before, narrow=True),
        Table(
            ("measurement", "what", "restarts", "leaves", "of"),
            tuple(
                (
                    item["name"],
                    item["what"],
                    "yes" if item["restarts"] else "no",
                    item["log_speedup_sd_after"],
                    item["log_speedup_sd_before"],
                )
                for item in measurements
            ),
            3,
        ),
    )


def _left_spec(bars: Sequence[Spec], before: float, *, narrow: bool) -> Spec:
    labels = distinct([bar["label"] for bar in bars])
    most = before * (1.45 if narrow else 1.2)
    rows = [{**bar, "label": label, "end": most} for bar, label in zip(bars, labels, strict=True)]
    axis = {"domain": False, "ticks": False, "labelLimit": 150 if narrow else 260}
    y = {"field": "label", "type": "nominal", "sort": None, "title": None, "axis": axis}
    scale = {"domain": [0, most]}
    x = {"field": "left", "type": "quantitative", "scale": scale,
         "axis": percent_axis("left, one standard deviation", 4)}  # fmt: skip
    text = {"type": "text", "align": "right", "fontSize": SMALL if narrow else TEXT}  # clear of bars and dashed line
    end = {**x, "field": "end"}
    layers = [
        layer(rows, {"type": "bar", "color": BASELINE, "height": 14}, x=x, y=y),
        layer([{"left": before}], {"type": "rule", "strokeDash": [5, 4], "color": INK}, x=x),
        layer(rows, text, x=end, y=y, text={"field": "text"}, color=value(INK)),
    ]
    return figure(layers, narrow=narrow, height=len(rows) * 26 + 58)
