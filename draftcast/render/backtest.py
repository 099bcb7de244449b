"""`draftcast backtest` for a human reader."""

from collections.abc import Mapping, Sequence
from typing import Any

from draftcast.render.numbers import UNDEFINED, counted
from draftcast.render.page import Page

COLUMNS = ("%", "rows", "median", "p90", "sign", "inside", "+-")
NAME_WIDTH = 41
REFERENCES = {
    "interpolated_baseline": "log-log interpolation of the baseline",
    "free_verification": "verification taken as free",
}


def render(result: Mapping[str, Any], page: Page) -> None:
    """The sets, worst first; then all rows together beside the two references; then what was not scored."""
    overall = result["overall"]
    page.headline(
        f"{counted(overall['rows'], 'row')} scored, protocol {result['protocol']}: median error "
        f"{_percent(overall['median_abs_error'])}, 90 % of the errors below {_percent(overall['p90_abs_error'])}, "
        f"right about faster or slower in {_percent(overall['sign_accuracy'])}."
    )
    worst_first = sorted(result["sets"], key=lambda each: -each["median_abs_error"])
    page.text(
        "Per cent: median and 90th percentile of the error, rows whose direction is right, rows inside the 90 % "
        "interval, half of its width. Worst set first."
    )
    page.table(COLUMNS, [_row(each["set_id"], each) for each in worst_first])
    rows = [_row("all rows", overall), _row("known GPU", overall["known_hardware"])]
    rows += [_row(text, result["references"][name], intervals=False) for name, text in REFERENCES.items()]
    page.table(COLUMNS, rows)
    page.section("What draft length the model would have picked", _regret(result))
    page.section("Not scored", _skipped(result["skipped"]))


def _row(name: str, scores: Mapping[str, Any], *, intervals: bool = True) -> list[str]:
    figures = [scores[figure] for figure in ("median_abs_error", "p90_abs_error", "sign_accuracy")]
    figures += [scores[figure] if intervals else None for figure in ("coverage_90", "half_width_90")]
    cells = (UNDEFINED if value is None else f"{100.0 * value:.1f}" for value in figures)
    return [_short(name), str(scores["rows"]), *cells]


def _short(name: str) -> str:
    """The name of a set in the width that the figures leave."""
    return name if len(name) <= NAME_WIDTH else f"{name[: NAME_WIDTH - 1]}…"


def _regret(result: Mapping[str, Any]) -> list[str]:
    regret = result["overall"]["best_k_regret"]
    if regret is None:
        return []
    simple = result["references"]["interpolated_baseline"]["best_k_regret"]
    return [f"it loses {_percent(regret)} against the best one measured; the interpolation {_percent(simple)}"]


def _skipped(skipped: Sequence[Mapping[str, Any]]) -> list[str]:
    reasons: dict[str, int] = {}
    for each in skipped:
        reasons[each["reason"]] = reasons.get(each["reason"], 0) + each["rows"]
    ordered = sorted(reasons.items(), key=lambda item: -item[1])
    return [f"{counted(rows, 'row')}: {reason}" for reason, rows in ordered]


def _percent(value: float | None) -> str:
    return UNDEFINED if value is None else f"{100.0 * value:.1f} %"
