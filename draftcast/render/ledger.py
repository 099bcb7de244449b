"""`draftcast ledger list` for a human reader; what stands in the ledger is not trusted."""

from collections.abc import Mapping, Sequence
from typing import Any

from calibration.readers.values import mapping, number
from draftcast.render.numbers import UNDEFINED, counted, factor, interval, share
from draftcast.render.page import Page

_NAMES = {
    "speedup": "speedup",
    "throughput_tokens_per_s": "throughput",
    "tpot_s": "time per token",
    "step_s": "step time",
    "tokens_per_step": "tokens per step",
}
_ID_DIGITS = 8
_SHORT_CHARS = 11  # of a command or method: the longest is "draft_model"
_NAME_CHARS = 40  # of a model or GPU: names from files may be of any length


def render(result: Mapping[str, Any], page: Page) -> None:
    """The predictions, newest first, and the track record."""
    rows, total = result["rows"], result["total"]
    left = "" if len(rows) == total else f", the newest {len(rows)} shown (--last 0 for all)"
    page.headline(f"{counted(total, 'prediction')} in {result['ledger']}{left}.")
    for system, group in _by_system(rows).items():
        page.heading(system)
        page.table(("day (UTC)", "id", "method", "k", "at", "speedup", "90 %", "outcome"), group, num_texts=3)
    record(result["summary"], page)


def _by_system(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[list[str]]]:
    """The rows under what they are about, in the order of the newest of each."""
    found: dict[str, list[list[str]]] = {}
    for row in rows:
        found.setdefault(system_of(row), []).append(_row(row))
    return found


def _row(row: Mapping[str, Any]) -> list[str]:
    speedup = banded(row.get("speedup"))
    return [
        moment(row.get("recorded"))[: len("2026-01-31")],  # the minute is in `ledger show`
        str(row.get("prediction_id"))[:_ID_DIGITS],
        cut(row.get("method"), _SHORT_CHARS),
        str(row.get("num_speculative_tokens", UNDEFINED))[:_ID_DIGITS],
        _loads(row.get("concurrency")),
        factor(speedup.get("p50")),
        interval(speedup),
        _outcome(mapping(row.get("outcome"))),
    ]


def system_of(row: Mapping[str, Any]) -> str:
    """What a prediction is about: "kimi-k2.5-int4 on 8 x h200"."""
    return f"{cut(row.get('model'))} on {cut(row.get('num_gpus'))} x {cut(row.get('gpu'))}"


def cut(value: Any, most: int = _NAME_CHARS) -> str:
    """A name, shortened."""
    text = str(value)
    return text if len(text) <= most else text[: most - 1] + "…"


def moment(text: Any) -> str:
    """The minute of a time of the ledger."""
    return str(text)[: len("2026-01-31T12:00")].replace("T", " ")


def banded(value: Any) -> dict[str, float | None]:
    """The interval, numbers only."""
    return {name: number(mapping(value).get(name)) for name in ("p05", "p50", "p95")}


def _loads(value: Any) -> str:
    loads = value if isinstance(value, list) and value else [UNDEFINED]
    return str(loads[0])[:_ID_DIGITS] if len(loads) == 1 else f"{str(loads[0])[:6]}-{str(loads[-1])[:6]}"


def _outcome(outcome: Mapping[str, Any]) -> str:
    """What the run showed: "1.31x, 3/3 in", or nothing yet."""
    if not outcome:
        return ""
    scored, inside = number(outcome.get("cells_scored")), number(outcome.get("cells_inside"))
    if not scored:
        return "not scored"
    speedup = number(outcome.get("measured_speedup"))
    head = "" if speedup is None else f"{factor(speedup)}, "
    return f"{head}{inside or 0:.0f}/{scored:.0f} in"


def record(summary: Mapping[str, Any], page: Page) -> None:
    """The track record: a row for each quantity, and the worst misses by name."""
    if not summary["predictions_scored"]:
        others = summary["outcomes_not_blind"]
        tail = f" ({counted(others, 'outcome')} of predictions made after the run do not count)" if others else ""
        page.section("Track record", [f"no prediction has been compared with a run yet: draftcast validate{tail}"])
        return
    page.heading(
        f"Track record: {counted(summary['predictions_scored'], 'prediction')} scored on "
        f"{counted(summary['runs_scored'], 'run')}"
    )
    found = {name: item for name, item in summary["by_quantity"].items() if item["scored"]}
    page.table(
        ("figure", "cells", "inside", "95 % of that", "bias", "error", "direction"),
        [_figures(_NAMES[name], item) for name, item in found.items()],
    )
    page.bullets(_remarks(found))


def _figures(name: str, item: Mapping[str, Any]) -> list[str]:
    band = item["coverage_90_ci95"]
    sign = item.get("sign_accuracy")
    return [
        name,
        str(item["scored"]),
        share(item["coverage_90"]),
        f"{round(100 * band['low'])}-{round(100 * band['high'])} %",
        f"{100 * item['bias']:+.1f} %",
        f"{100 * item['median_abs_error']:.1f} %",
        UNDEFINED if sign is None else share(sign),
    ]


def _remarks(found: Mapping[str, Mapping[str, Any]]) -> Sequence[str]:
    """What the table means, what it cannot tell yet, and the worst misses of the first figure."""
    lines = [
        "inside: within the 90 % interval; bias: median, above 0 where the predictions were too high; error: median, "
        "without its sign; direction: right about faster or slower"
    ]
    lines += list(dict.fromkeys(item["caution"] for item in found.values() if item["caution"]))
    name, first = next(iter(found.items()))
    for miss in first["worst"]:
        band = miss["predicted"]
        lines.append(
            f"{'inside, but off' if miss['inside'] else 'missed'}: {miss['prediction_id'][:_ID_DIGITS]}, "
            f"{cut(miss['model'])}, {cut(miss['method'])} k={miss['num_speculative_tokens']} at "
            f"{miss['concurrency']}: {_NAMES[name]} {band['p50']:.3g} ({band['p05']:.3g}-{band['p95']:.3g}) predicted, "
            f"{miss['measured']:.3g} measured"
        )
    return lines
