"""The charts of `draftcast options`: the ways to faster decoding side by side, by load, by gain and by time.

As in the command's text an option's figures are its own, or those with the best drafter after it where that is better.
"""

from collections.abc import Iterator, Sequence

from hwmodel.units import HOUR
from validate.report.chart import Chart, Json, Spec, Table
from validate.report.heat import MAX_COLUMNS, MAX_LINES, HeatCell, drawn_columns, heat_spec, reading
from validate.report.marks import intervals
from validate.report.numbers import speedup_text, text_of
from validate.report.theme import name, thinned

DAY = 24 * HOUR
USUAL_PROBABILITY = 0.8  # objective.min_probability_faster
Known = Sequence[tuple[Json, Json]]  # an option and its best figures


def charts(result: Json, details: Json) -> list[Chart]:
    """The gain of every option by load and over the traffic, and how long each takes to come and to pay back."""
    known = [(option, best(option)) for option in result["options"]]
    known = [pair for pair in known if (pair[1].get("speedup") or {}).get("p50") is not None]
    return [*_by_load(result, known), *_gains(known), *_times(known)]


def best(option: Json) -> Json:
    """The figures that count: the option's, or those with the best drafter where that is better."""
    after: Json | None = option.get("best_after")
    return after if after is not None and option.get("with_best_drafter") else option


def _label(option: Json, figures: Json) -> str:
    after = figures.get("drafter") or figures.get("method")
    text = option["name"] if figures is option or not after else f"{option['name']} + {after}"
    return name(text, 64)


def _by_load(result: Json, known: Known) -> Iterator[Chart]:
    """The heat map of options and loads."""
    rows = [(option, figures) for option, figures in known if figures.get("by_load")]
    if not rows:
        return
    objective = result.get("inputs", {}).get("deployment", {}).get("objective", {})
    asked = objective.get("min_probability_faster", USUAL_PROBABILITY)
    every = sorted({gain["concurrency"] for _, figures in rows for gain in figures["by_load"]})
    loads = thinned(every, MAX_COLUMNS)
    cells = [
        HeatCell(
            str(gain["concurrency"]),
            f"{i} {_label(option, figures)}",
            f"{_label(option, figures)}, concurrency {gain['concurrency']}",
            gain["speedup"],
            gain.get("probability_faster"),
        )
        for i, (option, figures) in enumerate(rows[:MAX_LINES], 1)
        for gain in figures["by_load"]
        if gain["concurrency"] in loads
    ]
    yield Chart(
        "options-by-load",
        "What each option brings, by load",
        "Throughput over today's without speculation. "
        + reading(
            asked,
            (len(rows[:MAX_LINES]), len(rows), "options"),
            (len(drawn_columns(cells)), len(every), "concurrencies"),
        ),
        f"Heat map: {len(rows)} options by {len(loads)} concurrencies, the speedup written in each cell.",
        heat_spec(cells, "concurrency (requests at once)", asked, narrow=False),
        heat_spec(cells, "concurrency (requests at once)", asked, narrow=True),
        Table(
            ("option", "concurrency", "k", "speedup p50", "p05", "p95", "P(faster)"),
            tuple(
                (
                    _label(option, figures),
                    gain["concurrency"],
                    gain.get("num_speculative_tokens"),
                    *(gain["speedup"].get(key) for key in ("p50", "p05", "p95")),
                    gain.get("probability_faster"),
                )
                for option, figures in rows
                for gain in figures["by_load"]
            ),
        ),
    )


def _gains(known: Known) -> Iterator[Chart]:
    if not known:
        return
    rows = [
        {
            "label": f"{i} {_label(option, figures)}",
            "low": figures["speedup"].get("p05"),
            "mid": figures["speedup"]["p50"],
            "high": figures["speedup"].get("p95"),
            "tip": f"{_label(option, figures)}: {speedup_text(figures['speedup'])}",
        }
        for i, (option, figures) in enumerate(known, 1)
    ]
    yield Chart(
        "options",
        "What each option brings over the traffic",
        "Median and 90 % interval of the speedup over today; the dashed line is no change.",
        f"Intervals of the speedup of {len(rows)} options on one axis, with a line at 1.",
        intervals(rows, "speedup over today", narrow=False),
        intervals(rows, "speedup over today", narrow=True),
        Table(
            ("option", "speedup p50", "p05", "p95", "days to the benefit", "days to payback"),
            tuple(
                (
                    _label(option, figures),
                    *(figures["speedup"].get(key) for key in ("p50", "p05", "p95")),
                    _days(option.get("time_to_benefit_s")),
                    _days(_middle(figures.get("payback_s"))),
                )
                for option, figures in known
            ),
        ),
    )


def _times(known: Known) -> Iterator[Chart]:
    """From the first benefit to the time at which it has paid for itself, where both are known and positive."""
    pairs = [(_label(o, f), o.get("time_to_benefit_s"), _middle(f.get("payback_s"))) for o, f in known]
    times = [(label, start_s, paid_s) for label, start_s, paid_s in pairs if start_s and paid_s]
    if not times:
        return
    unit, scale_s = ("days", DAY) if max(max(start, paid) for _, start, paid in times) >= 2 * DAY else ("h", HOUR)
    rows: list[Spec] = [_time_row(label, start / scale_s, paid / scale_s, unit) for label, start, paid in times]
    yield Chart(
        "options-time",
        "When the benefit comes, and when it has paid for itself",
        "The mark is when the option first helps, the line's other end when the gain has paid for the outage.",
        f"Intervals of {len(rows)} options, from benefit to payback, in {unit}.",
        intervals(rows, f"{unit} from now", narrow=False, at=None, log=True),
        intervals(rows, f"{unit} from now", narrow=True, at=None, log=True),
        Table(
            ("option", f"{unit} to the benefit", f"{unit} to payback"),
            tuple((label, start / scale_s, paid / scale_s) for label, start, paid in times),
        ),
    )


def _time_row(label: str, start: float, paid: float, unit: str) -> Spec:
    tip = f"{label}: benefit after {text_of(start, 3)} {unit}, paid back after {text_of(paid, 3)} {unit}"
    return {"label": label, "low": min(start, paid), "mid": start, "high": max(start, paid), "tip": tip}


def _middle(value: object) -> float | None:
    """A duration that may be one number or an interval."""
    if isinstance(value, dict):
        value = value.get("p50")
    return float(value) if isinstance(value, int | float) else None


def _days(value_s: float | None) -> float | None:
    return None if value_s is None else value_s / DAY
