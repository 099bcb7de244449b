"""`draftcast whatif` for a human reader."""

from collections.abc import Mapping
from typing import Any

from draftcast.render.numbers import UNDEFINED, factor, interval, milliseconds, probability
from draftcast.render.page import Page

# Short heads leave room for the keys; the headline says them in full.
FIGURES = ("speedup", "90 %", "faster", "ms", "drafts")


def render(result: Mapping[str, Any], page: Page) -> None:
    """One row per combination; below them, why a combination has no figures."""
    rows = result["rows"]
    keys = list(rows[0]["vary"]) if rows else []
    page.headline(
        f"{len(rows)} combinations of {', '.join(keys)}: median speedup, its 90 % interval, P(faster), "
        "ms per output token without and with drafts."
    )
    heads = [_short(key, keys) for key in keys]
    cells = ([*(str(row["vary"][key]) for key in keys), *_figures(row)] for row in rows)
    page.table((*heads, *FIGURES), cells, num_texts=len(keys))
    impossible = [row for row in rows if row.get("error")]
    page.section("Not possible", [f"{_named(row['vary'])}: {row['error']}" for row in impossible])


def _figures(row: Mapping[str, Any]) -> list[str]:
    if row.get("error"):
        return [UNDEFINED] * len(FIGURES)
    return [
        factor(row["speedup"].get("p50")),
        interval(row["speedup"]),
        probability(row["probability_faster"]),
        milliseconds(row["baseline"]["tpot_s"]),
        milliseconds(row["speculative"]["tpot_s"]),
    ]


def _named(vary: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} = {value}" for key, value in vary.items())


def _short(key: str, keys: list[str]) -> str:
    """The last part of a dotted key, unless another key ends in the same; in words, which a narrow column can break."""
    last = key.rsplit(".", 1)[-1]
    unique = sum(other.rsplit(".", 1)[-1] == last for other in keys) == 1
    return (last if unique else key).replace("_", " ")
