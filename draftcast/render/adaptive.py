"""`draftcast adaptive` for a human reader."""

from collections.abc import Mapping, Sequence
from typing import Any

from draftcast.render.numbers import UNDEFINED, factor, interval, milliseconds, probability
from draftcast.render.page import Page

COLUMNS_PER_TABLE = 5  # concurrencies side by side in 80 columns


def render(result: Mapping[str, Any], page: Page) -> None:
    """The advice, every way over the whole traffic, by load, by context, and what to paste."""
    controllers: Sequence[Mapping[str, Any]] = result["controllers"]
    page.headline(result["recommendation"])
    page.heading("Over the whole traffic, to no speculation and to the best static length")
    page.table(("draft length", "speedup", "90 %", "faster", "to static", "90 %", "better"), map(_overall, controllers))
    loads = [row["concurrency"] for row in controllers[0]["by_load"]]
    page.heading("Speedup by concurrency, draft length in brackets")
    for start in range(0, len(loads), COLUMNS_PER_TABLE):
        chosen = slice(start, start + COLUMNS_PER_TABLE)
        heads = ("concurrency", *map(str, loads[chosen]))
        page.table(heads, [_row(c, chosen) for c in controllers])
    page.heading("ms per output token")
    for start in range(0, len(loads), COLUMNS_PER_TABLE):
        chosen = slice(start, start + COLUMNS_PER_TABLE)
        rows = [[c["title"], *(milliseconds(x["tpot_s"]) for x in c["by_load"][chosen])] for c in controllers]
        page.table(("concurrency", *map(str, loads[chosen])), rows)
    _contexts(result["contexts"], page)
    _reasons(result, page)
    for control in controllers:
        if control["flag"] and (control["speedup"]["p50"] or 0.0) > 1.0:
            needs = f" (needs {control['flag_needs']})" if control["flag_needs"] else ""
            if not needs and control["reason"]:
                needs = " (not known of this version: see above)"
            page.heading(f"To paste into the launch: {control['title']}{needs}")
            page.verbatim(control["flag"])


def _overall(control: Mapping[str, Any]) -> list[str]:
    name = control["title"]
    if control["name"] == "off":
        return [name, "1.00x", UNDEFINED, UNDEFINED, *_against(control)]
    gain = control["speedup"]
    return [name, factor(gain["p50"]), interval(gain), probability(control["probability_faster"]), *_against(control)]


def _against(control: Mapping[str, Any]) -> list[str]:
    against = control["versus_static"]
    if against["p05"] == against["p95"] == 1.0:
        return ["1.00x", UNDEFINED, UNDEFINED]
    return [factor(against["p50"]), interval(against), probability(control["probability_better_than_static"])]


def _cell(row: Mapping[str, Any]) -> str:
    k = row["num_speculative_tokens"]
    return factor(row["speedup"]["p50"]) + (f" ({k})" if k is not None else "")


def _row(control: Mapping[str, Any], chosen: slice) -> list[str]:
    cells = [_cell(x) if control["name"] != "off" else factor(1.0) for x in control["by_load"][chosen]]
    return [control["title"], *cells]


def _contexts(contexts: Mapping[str, Any], page: Page) -> None:
    page.section("Best static length by context", [f"contexts: {contexts['basis']}"])
    rows = [
        (
            f"{p['context_tokens']:,} tokens",
            str(p["num_speculative_tokens"]),
            factor(p["speedup"]["p50"]),
            interval(p["speedup"]),
            factor(p["versus_static"]["p50"]),
        )
        for p in contexts["points"]
    ]
    page.table(("mean context", "k", "speedup", "90 %", "vs static"), rows)
    page.text(contexts["text"])


def _reasons(result: Mapping[str, Any], page: Page) -> None:
    """What this engine cannot do, and what was not computed."""
    lines = [f"{c['title']}: {c['reason']}" for c in result["controllers"] if c["reason"] and c["name"] != "optimal"]
    lines += [f"{row['name']} left out: {row['reason']}" for row in result["left_out"]]
    page.section("Not here", lines)
