"""The charts of what stands behind an answer: acceptance by position, distinct experts, AllReduce."""

import math
from collections.abc import Iterator, Sequence

from hwmodel.units import KIB, US
from validate.report.chart import Chart, Json, Spec, Table
from validate.report.marks import TICKS, arm_curves, arm_scales
from validate.report.numbers import percent, text_of
from validate.report.theme import (
    INK,
    MUTED,
    SMALL,
    SPECULATIVE,
    THIRD,
    figure,
    layer,
    log_axis,
    name,
    percent_axis,
    round_ticks,
)

_ROOM_BELOW = 1.3  # under the lowest mark, for its text
_LETTERS_SHARE = 0.04  # of the width, which a text of three digits takes


def acceptance_charts(curves: Json) -> Iterator[Chart]:
    """How often the i-th token of a draft is accepted, with its interval."""
    found = curves.get("acceptance")
    if not found:
        return
    rows = [
        {
            "position": str(row["position"]),
            "rate": row["rate"],
            "low": row["p05"],
            "high": row["p95"],
            "text": percent(row["rate"]),
            "tip": f"position {row['position']}: {percent(row['rate'])}"
            f" ({percent(row['p05'])} to {percent(row['p95'])})",
        }
        for row in found["per_position"]
    ]
    share = found["draft_probability"]["p50"]
    drafted = (
        ""
        if share is None or share >= 1 or found["is_prior"]
        else f" A draft is made on {percent(share)} of the steps."
    )
    yield Chart(
        "acceptance-by-position",
        "Acceptance by position",
        f"The share of drafts whose token at this position is accepted, with its 90 % interval.{drafted} From:"
        f" {name(found['source'], 200)}.",
        f"Marks with intervals: the share of drafts accepted at each of {len(rows)} positions.",
        _acceptance_spec(rows, narrow=False),
        _acceptance_spec(rows, narrow=True),
        Table(
            ("position", "accepted", "p05", "p25", "p50", "p75", "p95"),
            tuple(
                (row["position"], *(row[key] for key in ("rate", "p05", "p25", "p50", "p75", "p95")))
                for row in found["per_position"]
            ),
            num_texts=0,
        ),
    )


def _acceptance_spec(rows: Sequence[Spec], *, narrow: bool) -> Spec:
    axis = {"labelAngle": 0, "grid": False}
    x = {"field": "position", "type": "ordinal", "sort": None, "title": "position in the draft", "axis": axis}
    y = {"field": "rate", "type": "quantitative", "scale": {"domain": [0, 1]},
         "axis": percent_axis("accepted", 5)}  # fmt: skip
    span = {"type": "rule", "color": SPECULATIVE, "strokeWidth": 6, "opacity": 0.35, "strokeCap": "round"}
    layers = [
        layer([{k: v for k, v in row.items() if k != "tip"} for row in rows], span, x=x, y={**y, "field": "low"},
              y2={"field": "high"}),
        layer(rows, {"type": "point", "color": SPECULATIVE, "shape": "square"}, x=x, y=y),
    ]  # fmt: skip
    if len(rows) <= (10 if narrow else 20):
        text = {"type": "text", "dx": 20 if not narrow else 17, "fontSize": SMALL if not narrow else 10}
        layers.append(layer(rows, text, x=x, y=y, text={"field": "text"}))
    return figure(layers, narrow=narrow, height=230 if narrow else 260)


def experts_charts(curves: Json) -> Iterator[Chart]:
    """How many distinct experts a layer reads, by the tokens of the step, and what independent tokens would read."""
    found = curves.get("experts")
    if not found:
        return
    total, points, k = found["num_experts"], found["points"], curves["num_speculative_tokens"]
    rows: list[Spec] = []
    for arm, key, tokens in (("baseline", "baseline", "requests"), ("with drafts", "speculative", "tokens")):
        for point in points:
            read = f"{point[tokens]} tokens read {point[key]:.1f} of {total} experts"
            tip = f"{arm}, concurrency {point['concurrency']}: {read}"
            rows.append({"arm": arm, "tokens": point[tokens], "experts": point[key], "tip": tip})
    uniform = [{"tokens": point["tokens"], "experts": point["uniform"]} for point in points]
    first = points[0]
    yield Chart(
        "distinct-experts",
        "Distinct experts against tokens",
        f"At concurrency {first['concurrency']} a layer reads {text_of(first['baseline'], 3)} of {total} experts"
        f" without drafts and {text_of(first['speculative'], 3)} with k = {k}. Dotted: independent uniform tokens.",
        f"Curves of the distinct experts of a layer over the tokens of a step, up to {total}.",
        _experts_spec(rows, uniform, total, narrow=False),
        _experts_spec(rows, uniform, total, narrow=True),
        Table(
            ("concurrency", "tokens, baseline", "experts", "tokens, with drafts", "experts", "uniform"),
            tuple(
                tuple(p[key] for key in ("concurrency", "requests", "baseline", "tokens", "speculative", "uniform"))
                for p in points
            ),
            num_texts=0,
        ),
    )


def _experts_spec(rows: Sequence[Spec], uniform: Sequence[Spec], total: int, *, narrow: bool) -> Spec:
    tokens = [row["tokens"] for row in rows]
    x = {"field": "tokens", **log_axis(tokens, "tokens in the step", TICKS[narrow], _powers(tokens))}
    y = {"field": "experts", "type": "quantitative", "scale": {"domain": [0, total * 1.04], "nice": False},
         "axis": {"title": "distinct experts of a layer", "tickCount": 6}}  # fmt: skip
    layers = [
        layer([{"experts": total}], {"type": "rule", "color": MUTED, "strokeDash": [5, 4]}, y=y),
        layer(uniform, {"type": "line", "color": THIRD, "strokeDash": [2, 3], "strokeWidth": 2}, x=x, y=y),
        *arm_curves(rows, x, y),
    ]
    return figure(layers, narrow=narrow, height=260 if narrow else 320)


def allreduce_charts(curves: Json) -> Iterator[Chart]:
    """The time of one AllReduce by its size, and where the steps of both arms lie on it."""
    found = curves.get("allreduce")
    if not found:
        return
    rows = [
        {
            "arm": "baseline" if point["arm"] == "baseline" else "with drafts",
            "size": point["bytes"] / KIB,
            "time": point["time_s"] / US,
            "load": str(point["concurrency"]),
            "tip": f"{'baseline' if point['arm'] == 'baseline' else 'with drafts'}, concurrency {point['concurrency']}:"
            f" {text_of(point['bytes'] / KIB)} KiB in {text_of(point['time_s'] / US, 3)} us",
        }
        for point in found["points"]
    ]
    curve = [{"size": point["bytes"] / KIB, "time": point["time_s"] / US} for point in found["curve"]]
    yield Chart(
        "allreduce",
        "AllReduce: the curve and where the steps lie on it",
        f"One AllReduce by its size; a step has {found['allreduces_per_step']:.0f}, each waiting another"
        f" {found['skew_s'] / US:.2g} us for the slowest rank. The marks are the steps by concurrency. Curve:"
        f" {name(found['source'], 200)}.",
        f"Curve of AllReduce time over message size with {len(rows)} marks for the steps of both arms.",
        _allreduce_spec(rows, curve, narrow=False),
        _allreduce_spec(rows, curve, narrow=True),
        Table(
            ("arm", "concurrency", "KiB", "us"),
            (
                *((row["arm"], row["load"], row["size"], row["time"]) for row in rows),
                *(("curve", None, point["size"], point["time"]) for point in curve),
            ),
        ),
    )


def _allreduce_spec(rows: Sequence[Spec], curve: Sequence[Spec], *, narrow: bool) -> Spec:
    low, high = min(row["size"] for row in rows), max(row["size"] for row in rows)
    near = [point for point in curve if low / 8 <= point["size"] <= high * 8] or list(curve)
    sizes = [*(point["size"] for point in near), low, high]
    times = [*(point["time"] for point in near), *(row["time"] for row in rows)]
    times.append(min(times) / _ROOM_BELOW)
    x = {"field": "size", **log_axis(sizes, "message, KiB", TICKS[narrow], _powers(sizes))}
    y = {"field": "time", **log_axis(times, "time of one AllReduce, us", TICKS[narrow], round_ticks(times), grid=True)}
    color, shape = arm_scales()
    layers = [
        layer(near, {"type": "line", "color": INK, "strokeWidth": 2}, x=x, y=y),
        layer(rows, {"type": "point", "size": 70}, x=x, y=y, color=color, shape=shape),
    ]
    if not narrow:
        for arm, shift in (("baseline", 15), ("with drafts", -13)):
            text = {"type": "text", "dy": shift, "fontSize": SMALL}
            said = _apart([row for row in rows if row["arm"] == arm], x["scale"]["domain"])
            layers.append(layer(said, text, x=x, y=y, text={"field": "load"}))
    return figure(layers, narrow=narrow, height=260 if narrow else 320)


def _apart(rows: Sequence[Spec], domain: Sequence[float]) -> list[Spec]:
    """The rows whose texts do not touch those of the rows before them, by their place on the logarithmic axis."""
    least = math.log(domain[1] / domain[0]) * _LETTERS_SHARE
    kept: list[Spec] = []
    for row in sorted(rows, key=lambda row: float(row["size"])):
        if not kept or math.log(row["size"] / kept[-1]["size"]) >= least:
            kept.append(row)
    return kept


def _powers(values: Sequence[float]) -> list[float]:
    """The powers of four among the values, as ticks."""
    powers = [4.0**i for i in range(-5, 20)]
    return [power for power in powers if min(values) <= power <= max(values)] or [min(values)]
