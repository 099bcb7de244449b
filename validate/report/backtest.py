"""The charts of `draftcast backtest`: predicted against measured speedups, and the errors set by set."""

from collections.abc import Iterator, Sequence

from hwmodel.percent import percent
from validate.report.chart import Chart, Json, Table
from validate.report.marks import MAX_LINES, intervals, predicted_against_measured
from validate.report.numbers import percent as in_percent
from validate.report.numbers import speedup_text
from validate.report.theme import name

MAX_POINTS = 1200  # drawn; a cloud is as dense with them as with more


def charts(result: Json, details: Json) -> list[Chart]:
    """All charts that the scores support; the scored rows are `details["rows"]`."""
    return [*_scatter(details.get("rows") or result.get("rows") or []), *_sets(result["sets"])]


def _scatter(rows: Sequence[Json]) -> Iterator[Chart]:
    points = [
        {
            "measured": row["speedup_observed"],
            "predicted": row["speedup"]["p50"],
            "low": row["speedup"].get("p05"),
            "high": row["speedup"].get("p95"),
            "tip": f"{name(row['set_id'])}, {name(row['method'], 24)} k = {row['num_speculative_tokens']},"
            f" concurrency {row['concurrency']:g}: measured {row['speedup_observed']:.2f}x,"
            f" predicted {speedup_text(row['speedup'])}",
        }
        for row in rows
        if row["speedup_observed"] and row["speedup"].get("p50")
    ]
    if not points:
        return
    step = max(1, -(-len(points) // MAX_POINTS))
    shown = points[::step]
    heads = ("set", "method", "k", "concurrency", "measured", "predicted", "p05", "p95")
    yield Chart(
        "predicted-against-measured",
        "Predicted against measured speedup",
        f"{len(points)} runs, each with its 90 % interval; on the dashed line prediction and measurement are equal."
        + (f" One in {step} is drawn." if step > 1 else ""),
        f"Scatter of predicted over measured speedups of {len(shown)} runs, with the line of equality.",
        predicted_against_measured(shown, "speedup", narrow=False),
        predicted_against_measured(shown, "speedup", narrow=True),
        Table(
            heads,
            tuple(
                (
                    str(row["set_id"]),
                    str(row["method"]),
                    row["num_speculative_tokens"],
                    row["concurrency"],
                    row["speedup_observed"],
                    *(row["speedup"].get(key) for key in ("p50", "p05", "p95")),
                )
                for row in rows
            ),
            2,
        ),
    )


def _sets(sets: Sequence[Json]) -> Iterator[Chart]:
    """Median error of every set, the worst first, with the 90th percentile."""
    scored = sorted((s for s in sets if s["median_abs_error"] is not None), key=lambda s: -s["median_abs_error"])
    if not scored:
        return
    rows = [
        {
            "label": f"{name(each['set_id'], 40)} ({each['rows']})",
            "low": 100 * each["median_abs_error"],
            "mid": 100 * each["median_abs_error"],
            "high": 100 * each["p90_abs_error"],
            "tip": f"{name(each['set_id'])}: median {percent(each['median_abs_error'], 1)},"
            f" 90 % below {percent(each['p90_abs_error'], 1)}, right about the direction in"
            f" {in_percent(each['sign_accuracy'])}",
        }
        for each in scored
    ]
    title = "error of the speedup, per cent"
    yield Chart(
        "errors-by-set",
        "Error by set, worst first",
        "Median of the error (mark) up to its 90th percentile (line); in brackets the number of runs."
        + (f" The worst {MAX_LINES} of {len(rows)}." if len(rows) > MAX_LINES else ""),
        f"Errors of {len(rows)} sets on one axis, the worst first.",
        intervals(rows, title, narrow=False, at=None, zero=True),
        intervals(rows, title, narrow=True, at=None, zero=True),
        Table(
            ("set", "rows", "median error", "p90 error", "right sign", "inside 90 %"),
            tuple(
                (
                    str(each["set_id"]),
                    each["rows"],
                    *(each[key] for key in ("median_abs_error", "p90_abs_error", "sign_accuracy", "coverage_90")),
                )
                for each in scored
            ),
        ),
    )
