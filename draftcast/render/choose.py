"""`draftcast choose` for a human reader."""

from collections.abc import Mapping, Sequence
from typing import Any

from draftcast.render import phrases
from draftcast.render.numbers import UNDEFINED, factor, interval, milliseconds, probability
from draftcast.render.page import Page

COLUMNS_PER_TABLE = 5  # concurrencies side by side in 80 columns
Grid = Mapping[tuple[int, int], Mapping[str, Any]]


def render(result: Mapping[str, Any], page: Page) -> None:
    """The answer in a sentence, the grid, what the restart costs, what to paste, and why."""
    recommendation = result["recommendation"]
    grid = {(cell["num_speculative_tokens"], cell["concurrency"]): cell for cell in result["grid"]}
    shown = shown_draft_length(result)
    page.headline(recommendation["why"])
    page.bullets(_schedule(recommendation))
    page.heading("Speedup by draft length and concurrency: median, and 90 % interval")
    concurrencies = list(dict.fromkeys(concurrency for _, concurrency in grid))
    for part in page.parts(len(concurrencies), COLUMNS_PER_TABLE):
        _grid_table(grid, concurrencies[part], shown, page)
    if result.get("restart"):
        page.section("Restart", [phrases.restart_line(result["restart"])])
    if recommendation.get("flag"):
        page.heading("To paste into the launch")
        page.verbatim(recommendation["flag"])
    phrases.closing(result, page)


def _schedule(recommendation: Mapping[str, Any]) -> list[str]:
    """The draft lengths by batch size, where one length for all is not the best."""
    schedule: Sequence[Sequence[int]] = recommendation.get("schedule") or ()
    if len(schedule) < 2:
        return phrases.sentences(recommendation.get("schedule_reason"))
    ranges = ", ".join(f"{k} at {low}-{high}" for low, high, k in schedule)
    return [f"Best by requests in the step, for an engine that can switch: k = {ranges}."]


def shown_draft_length(result: Mapping[str, Any]) -> int:
    """The k whose intervals are printed: the recommended one, else the deployment's own, else the best if enabled."""
    recommendation = result["recommendation"]
    lengths = {cell["num_speculative_tokens"] for cell in result["grid"]}
    asked = result["inputs"].get("deployment", {}).get("speculation", {}).get("num_speculative_tokens")
    for k in (recommendation["num_speculative_tokens"], asked, recommendation["best_if_enabled"]):
        if isinstance(k, int) and k > 0 and k in lengths:
            return k
    return 0


def _grid_table(grid: Grid, concurrencies: Sequence[int], shown: int, page: Page) -> None:
    """Median speedup by k and concurrency; interval, probability and times for the k in question."""

    def row(head: str, k: int, text: Any) -> list[str]:
        return [head, *(text(grid[k, c]) if (k, c) in grid else UNDEFINED for c in concurrencies)]

    lengths = list(dict.fromkeys(k for k, _ in grid))
    rows = []
    for k in lengths:
        rows.append(row(f"k = {k}" + (" (off)" if k == 0 else ""), k, lambda cell: factor(cell["speedup"].get("p50"))))
        if k == shown and k > 0:
            rows.append(row(f"k = {k}, interval", k, lambda cell: interval(cell["speedup"])))
            rows.append(row(f"k = {k}, P(faster)", k, lambda cell: probability(cell["probability_faster"])))
    for k in sorted({0, shown} & set(lengths)):
        rows.append(row(f"k = {k}, ms/token", k, lambda cell: milliseconds(cell["tpot_s"])))
    page.table(("concurrency", *(str(c) for c in concurrencies)), rows)
