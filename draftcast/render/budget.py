"""`draftcast budget` for a human reader."""

from collections.abc import Mapping, Sequence
from typing import Any

from draftcast.render.numbers import factor, interval, probability, share, significant
from draftcast.render.page import Page

COLUMNS_PER_TABLE = 5  # concurrencies side by side in 80 columns


def render(result: Mapping[str, Any], page: Page) -> None:
    """The ceiling and the advice, speed by budget and load, what is kept of the gates, and the risk."""
    budgets: Sequence[Mapping[str, Any]] = result["budgets"]
    page.headline(" ".join(result["why"]))
    page.heading(f"Over the traffic, to the same speculation (k={result['num_speculative_tokens']}) without a budget")
    rows = [[f"ceiling ({result['ceiling']['budget']})", *_gain(result["ceiling"]["gain"]), ""]]
    rows += [[str(b["budget"]), *_gain(b["gain"]), probability(b["probability_better"])] for b in budgets]
    page.table(("budget", "gain", "90 %", "better"), rows)
    loads = [row["concurrency"] for row in result["ceiling"]["by_load"]]
    for start in range(0, len(loads), COLUMNS_PER_TABLE):
        part = slice(start, start + COLUMNS_PER_TABLE)
        _by_load(result, loads, part, page)
    page.section("Risk", [result["risk"]])


def _gain(gain: Mapping[str, float | None]) -> list[str]:
    return [factor(gain["p50"]), interval(gain)]


def _by_load(result: Mapping[str, Any], loads: Sequence[int], part: slice, page: Page) -> None:
    heads = ("concurrency", *map(str, loads[part]))
    ceiling = result["ceiling"]["by_load"][part]
    page.heading("Gain if nothing is lost, and in the scenario")
    rows = [["ceiling", *(factor(row["gain"]["p50"]) for row in ceiling)]]
    for b in result["budgets"]:
        cells = b["by_load"][part]
        rows.append([f"{b['budget']}, nothing lost", *(factor(c["gain_if_nothing_is_lost"]["p50"]) for c in cells)])
        rows.append([f"{b['budget']}, scenario", *(factor(c["gain"]["p50"]) for c in cells)])
    page.table(heads, rows)
    page.heading("Gate mass kept, and experts read without a budget")
    rows = [["experts read", *(significant(c["distinct_experts"]) for c in result["budgets"][0]["by_load"][part])]]
    for b in result["budgets"]:
        cells = b["by_load"][part]
        rows.append([f"{b['budget']}, skipped", *(share(c["gate_mass_truncated"]) for c in cells)])
        rows.append([f"{b['budget']}, replaced", *(share(c["gate_mass_substituted"]) for c in cells)])
    page.table(heads, rows)
