"""`draftcast validate` for a human reader."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from draftcast.render.numbers import UNDEFINED, significant
from draftcast.render.page import Page
from hwmodel.units import MS

# figure: (head, divided by for print)
_FIGURES = {
    "speedup": ("speedup", 1.0),
    "throughput_tokens_per_s": ("tokens/s", 1.0),
    "tpot_s": ("ms/token", MS),
    "step_s": ("step ms", MS),
    "tokens_per_step": ("tokens/step", 1.0),
}


def render(result: Mapping[str, Any], page: Page) -> None:
    """The verdict, every figure of every cell, the error split, causes, and what to do next."""
    page.headline(result["verdict"][:1].upper() + result["verdict"][1:] + ".")
    cells = result["cells"]
    if cells:
        page.heading("Predicted against measured")
        page.table(
            ("k", "at", "figure", "predicted", "90 %", "measured", "+- 90 %", "inside"),
            [row for cell in cells for row in _figures(cell)],
        )
        _splits(cells, page)
    page.section("Not scored", [f"{_where(item['concurrency'])}{item['reason']}" for item in result["not_scored"]])
    page.section("Causes, with what proves them", _causes(result["causes"]))
    page.section("Ruled out", _grouped(result["ruled_out"]))
    _refit(result.get("refit"), page)
    page.section("Next", result["next"])


def _figures(cell: Mapping[str, Any]) -> list[list[str]]:
    """A row for each figure; draft length and concurrency stand in the first alone."""
    rows: list[list[str]] = []
    for name, item in cell["quantities"].items():
        title, unit = _FIGURES[name]
        band = item["predicted"]
        rows.append(
            [
                "" if rows else str(cell["num_speculative_tokens"]),
                "" if rows else str(cell["concurrency"]),
                title,
                significant(band["p50"] / unit),
                f"{significant(band['p05'] / unit)}-{significant(band['p95'] / unit)}",
                significant(item["measured"] / unit),
                f"{100 * math.expm1(1.645 * item['relative_noise']):.0f} %",
                "yes" if item["inside_interval"] else "NO",
            ]
        )
    return rows


def _splits(cells: Sequence[Mapping[str, Any]], page: Page) -> None:
    """What acceptance and cost were off by, of the time per token (else of the figure that speaks for the cell)."""
    rows, reasons = [], []
    for cell in cells:
        name = "tpot_s" if "tpot_s" in cell["quantities"] else cell["quantity"]
        item = cell["quantities"][name]
        if item["acceptance_part"] is None:
            if cell["num_speculative_tokens"]:
                reasons.append(f"{_where(cell['concurrency'])}{cell['split_reason']}")
            continue
        parts = (item["log_error"], item["acceptance_part"], item["cost_part"])
        rows.append(
            [
                str(cell["num_speculative_tokens"]),
                str(cell["concurrency"]),
                _FIGURES[name][0],
                *(_percent(part) for part in parts),
                _tokens(cell["acceptance"]["predicted"]),
                _tokens(cell["acceptance"]["measured"]),
            ]
        )
    if rows:
        page.heading("The error of the time per token, split: acceptance, and cost of a step")
        page.table(("k", "at", "figure", "error", "acceptance", "cost", "tok/step pred.", "counted"), rows)
        page.text("Factors: (1 + error) = (1 + acceptance) x (1 + cost).")
    page.section("Not split", list(dict.fromkeys(reasons)))


def _tokens(acceptance: Mapping[str, Any]) -> str:
    return significant(acceptance["tokens_per_step"])


def _percent(log_part: float) -> str:
    return f"{100 * math.expm1(log_part):+.1f} %"


def _where(concurrency: int | None) -> str:
    return "" if concurrency is None else f"at {concurrency}: "


def _causes(causes: Sequence[Mapping[str, Any]]) -> list[str]:
    return [f"{_where(cause['concurrency'])}{cause['text']} [{cause['code']}]" for cause in causes]


def _grouped(causes: Sequence[Mapping[str, Any]]) -> list[str]:
    """One line for each code: what was found at the first concurrency, and where else it holds."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for cause in causes:
        found.setdefault(cause["code"], []).append(cause)
    lines = []
    for code, items in found.items():
        others = ", ".join(str(item["concurrency"]) for item in items[1:])
        also = f" (as well at {others})" if others else ""
        lines.append(f"{_where(items[0]['concurrency'])}{items[0]['text']}{also} [{code}]")
    return lines


def _refit(refit: Mapping[str, Any] | None, page: Page) -> None:
    """What the next prediction would have said of these cells."""
    if refit is None:
        return
    page.heading(f"With the new profile {refit['profile']}")
    rows = []
    for cell in refit["cells"]:
        title, unit = _FIGURES[cell["quantity"]]
        after = cell["after"]
        rows.append(
            [
                str(cell["num_speculative_tokens"]),
                str(cell["concurrency"]),
                title,
                _band(cell["before"], unit),
                UNDEFINED if after is None else _band(after, unit),
                significant(cell["measured"] / unit),
            ]
        )
    page.table(("k", "at", "figure", "before", "after", "measured"), rows)
    page.section("The fit says", refit["warnings"])


def _band(band: Mapping[str, float], unit: float) -> str:
    low, middle, high = (significant(band[name] / unit) for name in ("p05", "p50", "p95"))
    return f"{middle} ({low}-{high})"
