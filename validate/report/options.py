"""The charts of `draftcast options`: the ways to faster decoding side by side, by gain and by when it comes."""

from collections.abc import Iterator, Sequence

from validate.report.chart import Chart, Json, Spec, Table
from validate.report.marks import intervals
from validate.report.numbers import speedup_text, text_of
from validate.report.theme import name

DAY_S = 86400.0


def charts(result: Json, details: Json) -> list[Chart]:
    """The gain of every option, and how long each takes to come and to pay back."""
    figures = [_with_best_drafter(option) for option in result["options"]]
    known = [option for option in figures if (option.get("speedup") or {}).get("p50") is not None]
    return [*_gains(known), *_times(known)]


def _with_best_drafter(option: Json) -> Json:
    """The option with the figures that its row in the tables has: those with the best drafter after the change."""
    best = option.get("best_after") if option.get("with_best_drafter") else None
    if not best:
        return option
    taken = {key: best[key] for key in ("method", "speedup", "payback_s") if key in best}
    return {**option, **taken}


def _label(option: Json) -> str:
    method = option.get("method")
    return name(option["name"] if not method or str(method) in str(option["name"]) else f"{option['name']} ({method})")


def _gains(options: Sequence[Json]) -> Iterator[Chart]:
    if not options:
        return
    rows = [
        {
            "label": _label(option),
            "low": option["speedup"].get("p05"),
            "mid": option["speedup"]["p50"],
            "high": option["speedup"].get("p95"),
            "tip": f"{_label(option)}: {speedup_text(option['speedup'])}",
        }
        for option in options
    ]
    yield Chart(
        "options",
        "What each option brings",
        "Median and 90 % interval of the speedup over today; the dashed line is no change.",
        f"Intervals of the speedup of {len(rows)} options on one axis, with a line at 1.",
        intervals(rows, "speedup over today", narrow=False),
        intervals(rows, "speedup over today", narrow=True),
        Table(
            ("option", "speedup p50", "p05", "p95", "days to the benefit", "days to payback"),
            tuple(
                (
                    str(option["name"]),
                    *(option["speedup"].get(key) for key in ("p50", "p05", "p95")),
                    _days(option.get("time_to_benefit_s")),
                    _days(_middle(option.get("payback_s"))),
                )
                for option in options
            ),
        ),
    )


def _times(options: Sequence[Json]) -> Iterator[Chart]:
    """From the first benefit to the day on which it has paid for itself, where both are known and positive."""
    rows: list[Spec] = []
    for option in options:
        start, paid = _days(option.get("time_to_benefit_s")), _days(_middle(option.get("payback_s")))
        if start and paid:
            low, high = min(start, paid), max(start, paid)
            tip = f"{_label(option)}: benefit after {text_of(start)} days, paid back after {text_of(paid)} days"
            rows.append({"label": _label(option), "low": low, "mid": start, "high": high, "tip": tip})
    if not rows:
        return
    yield Chart(
        "options-time",
        "When the benefit comes, and when it has paid for itself",
        "The mark is when the option first helps, the line's other end when the gain has paid for the outage.",
        f"Intervals in days of {len(rows)} options, from benefit to payback.",
        intervals(rows, "days", narrow=False, at=None, log=True),
        intervals(rows, "days", narrow=True, at=None, log=True),
        Table(("option", "days to the benefit", "days to payback"),
              tuple((row["label"], row["low"], row["high"]) for row in rows)),
    )  # fmt: skip


def _middle(value: object) -> float | None:
    """A duration that may be one number or an interval."""
    if isinstance(value, dict):
        value = value.get("p50")
    return float(value) if isinstance(value, int | float) else None


def _days(value_s: float | None) -> float | None:
    return None if value_s is None else value_s / DAY_S
