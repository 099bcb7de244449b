"""`draftcast backtest` for a human reader."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.cells import cell_len, set_cell_size

from draftcast.render.numbers import UNDEFINED, counted
from draftcast.render.page import Page
from draftcast.text import one_line

COLUMNS = ("%", "rows", "median", "p90", "sign", "inside", "+-")
NAME_WIDTH = 38
LARGEST_PERCENT = 9999.0
REASON_WIDTH, MOST_REASONS = 200, 20
REFERENCES = {
    "interpolated_baseline": "log-log interpolation of the baseline",
    "free_verification": "verification taken as free",
}


def render(result: Mapping[str, Any], page: Page) -> None:
    """The sets, worst first; then all rows together beside the two references; then what was not scored."""
    overall = result["overall"]
    page.headline(f"{counted(overall['rows'], 'row')} scored, protocol {result['protocol']}{_verdict(overall)}.")
    worst_first = sorted(result["sets"], key=lambda each: -each["median_abs_error"])
    if worst_first:
        _scores(result, worst_first, page)
    page.section("Not scored", _skipped(result["skipped"]))


def _verdict(overall: Mapping[str, Any]) -> str:
    if not overall["rows"]:
        return ""
    sign = overall["sign_accuracy"]
    return (
        f": median error {_percent(overall['median_abs_error'])}, 90 % of the errors below "
        f"{_percent(overall['p90_abs_error'])}"
    ) + ("" if sign is None else f", right about faster or slower in {_percent(sign)}")


def _scores(result: Mapping[str, Any], worst_first: Sequence[Mapping[str, Any]], page: Page) -> None:
    overall = result["overall"]
    page.text(
        "Per cent: median and 90th percentile of the error, rows whose direction is right, rows inside the 90 % "
        "interval, half of its width. Worst set first."
    )
    page.table(COLUMNS, [_row(each["set_id"], each) for each in worst_first])
    rows = [_row("all rows", overall), _row("known GPU", overall["known_hardware"])]
    rows += [_row(text, result["references"][name], intervals=False) for name, text in REFERENCES.items()]
    page.table(COLUMNS, rows)
    page.section("What draft length the model would have picked", _regret(result))


def _row(name: str, scores: Mapping[str, Any], *, intervals: bool = True) -> list[str]:
    figures = [scores[figure] for figure in ("median_abs_error", "p90_abs_error", "sign_accuracy")]
    figures += [scores[figure] if intervals else None for figure in ("coverage_90", "half_width_90")]
    return [_short(name), str(scores["rows"]), *map(_figure, figures)]


def _figure(value: float | None) -> str:
    """A share in per cent, at most five characters wide."""
    if value is None:
        return UNDEFINED
    percent = 100.0 * value
    if percent > LARGEST_PERCENT:
        return f">{LARGEST_PERCENT:.0f}"
    return f"{percent:.1f}" if percent < 99.95 else f"{percent:.0f}"


def _short(name: str) -> str:
    """The name of a set in the width that the figures leave, cut in the middle; some letters are two columns wide."""
    line = one_line(name)
    if cell_len(line) <= NAME_WIDTH:
        return line
    half = NAME_WIDTH // 2
    return f"{set_cell_size(line, half)}…{set_cell_size(line[::-1], NAME_WIDTH - half - 1)[::-1]}"


def _regret(result: Mapping[str, Any]) -> list[str]:
    regret = result["overall"]["best_k_regret"]
    if regret is None:
        return []
    simple = result["references"]["interpolated_baseline"]["best_k_regret"]
    compared = "" if simple is None else f"; the interpolation {_percent(simple)}"
    return [f"it loses {_percent(regret)} against the best one measured{compared}"]


def _skipped(skipped: Sequence[Mapping[str, Any]]) -> list[str]:
    reasons: dict[str, int] = {}
    for each in skipped:
        reasons[each["reason"]] = reasons.get(each["reason"], 0) + each["rows"]
    ordered = sorted(reasons.items(), key=lambda item: -item[1])
    lines = [f"{counted(rows, 'row')}: {_short_reason(reason)}" for reason, rows in ordered[:MOST_REASONS]]
    others = sum(rows for _, rows in ordered[MOST_REASONS:])
    return [*lines, f"{counted(others, 'row')}: other reasons, see --json"] if others else lines


def _short_reason(reason: str) -> str:
    line = one_line(reason)
    return line if len(line) <= REASON_WIDTH else f"{line[: REASON_WIDTH - 1]}…"


def _percent(value: float | None) -> str:
    return UNDEFINED if value is None else f"{100.0 * value:.1f} %"
