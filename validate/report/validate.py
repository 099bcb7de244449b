"""The charts of `draftcast validate`: what was predicted, with its interval, and what was measured."""

from collections.abc import Iterator, Sequence

from hwmodel.units import MS
from validate.report.chart import Chart, Json, Table
from validate.report.marks import intervals
from validate.report.numbers import text_of
from validate.report.theme import name

FIGURES = {
    "speedup": ("speedup", "speedup over no drafts", 1.0),
    "throughput_tokens_per_s": ("throughput", "tokens per second", 1.0),
    "tpot_s": ("time per token", "ms per token", 1 / MS),
    "step_s": ("step", "ms of a step", 1 / MS),
    "tokens_per_step": ("tokens per step", "tokens per step and request", 1.0),
}
FIRST = "speedup"
WIDE = 8.0  # largest over smallest value, from which on an axis is logarithmic


def charts(result: Json, details: Json) -> list[Chart]:
    """One drawing for each figure that was measured, to switch between; the speedup first, as in the answer."""
    found: dict[str, list[Json]] = {}
    for cell in result["cells"]:
        for figure, item in _figures(cell):
            found.setdefault(figure, []).append({**item, "cell": cell})
    names = sorted(found, key=lambda figure: list(FIGURES).index(figure) if figure in FIGURES else len(FIGURES))
    return [_figure(figure, found[figure], selected=i == 0) for i, figure in enumerate(names)]


def _figures(cell: Json) -> Iterator[tuple[str, Json]]:
    """Each figure of a cell; a cell without several is one figure itself."""
    several = cell.get("quantities")
    items = several.items() if several else [(cell.get("quantity") or FIRST, cell)]
    for figure, item in items:
        if item.get("measured") is not None and (item.get("predicted") or {}).get("p50") is not None:
            yield str(figure), item


def _is_wide(values: Sequence[float | None]) -> bool:
    """Whether some of the values would be a point on a linear axis: then it is logarithmic."""
    known = [value for value in values if value is not None]
    return min(known) > 0 and max(known) > WIDE * min(known)


def _figure(figure: str, items: Sequence[Json], *, selected: bool) -> Chart:
    words, unit, scale = FIGURES.get(figure, (name(figure.replace("_", " ")), name(figure), 1.0))
    rows, table = [], []
    for item in items:
        cell, band = item["cell"], item["predicted"]
        place = f"k = {cell['num_speculative_tokens']}, concurrency {cell['concurrency']}"
        low, mid, high = (None if band.get(key) is None else band[key] * scale for key in ("p05", "p50", "p95"))
        measured = item["measured"] * scale
        inside = "inside" if item.get("inside_interval") else "OUTSIDE"
        tip = f"{place}: predicted {text_of(mid)} ({text_of(low)} to {text_of(high)}), measured {text_of(measured)}"
        label = place + ("" if item.get("inside_interval") else " (outside)")
        rows.append({"label": label, "low": low, "mid": mid, "high": high, "measured": measured, "tip": tip})
        table.append((cell["num_speculative_tokens"], cell["concurrency"], mid, low, high, measured, inside))
    hits = sum(bool(item.get("inside_interval")) for item in items)
    at = 1.0 if figure == FIRST else None
    log = _is_wide([row[key] for row in rows for key in ("low", "mid", "high", "measured")])
    return Chart(
        f"predicted-and-measured-{figure.replace('_', '-')}" if figure in FIGURES else "predicted-and-measured-other",
        "Predicted and measured",
        f"{words[0].upper()}{words[1:]}: the prediction (square) with its 90 % interval and what was measured (hollow"
        f" diamond). {hits} of {len(items)} lie inside.",
        f"Intervals of the predicted {words} of {len(items)} cells, a mark for what was measured.",
        intervals(rows, unit, narrow=False, at=at, log=log),
        intervals(rows, unit, narrow=True, at=at, log=log),
        Table(("k", "concurrency", f"predicted, {unit}", "p05", "p95", "measured", "90 % interval"), tuple(table), 0),
        group="predicted-and-measured",
        label=words,
        selected=selected,
    )
