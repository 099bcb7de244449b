"""`draftcast whatif` for a human reader."""

from collections.abc import Mapping, Sequence
from typing import Any

from draftcast.render.numbers import UNDEFINED, counted, factor, interval, milliseconds, probability
from draftcast.render.page import Page
from hwmodel.percent import percent
from simulator.results import both_fit, lacks_memory

# Short heads leave room for the keys; the headline says them in full.
NOTABLE_SHARE = 0.1  # of the step: a difference that explains something
FIGURES = ("speedup", "90 %", "faster", "ms", "drafts")


def render(result: Mapping[str, Any], page: Page) -> None:
    """One row per combination, those without room for it marked; below them, why a combination has no figures."""
    rows = result["rows"]
    keys = list(rows[0]["vary"]) if rows else []
    if not result.get("complete", True):
        page.headline(f"PARTIAL: {result['stopped_reason']} after {len(rows):,} of {result['rows_total']:,} rows.")
    page.headline(_answer(rows, keys))
    page.text("Median speedup, its 90 % interval, P(faster), ms per output token without and with drafts.")
    heads = [_short(key, keys) for key in keys]
    cells = ([*(str(row["vary"][key]) for key in keys), *_figures(row)] for row in rows)
    page.table((*heads, *FIGURES), cells, num_texts=len(keys))
    page.section("AllReduce's share of the step without drafts", _allreduce_shares(rows))
    impossible = [row for row in rows if row.get("error")]
    failed = [row for row in rows if row.get("failed_reason")]
    page.section("Not possible", [f"{_named(row['vary'])}: {row['error']}" for row in impossible])
    page.section("Failed", [f"{_named(row['vary'])}: {row['failed_reason']}" for row in failed])


def _answer(rows: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> str:
    """The largest speedup among the combinations that can run, and where it is."""
    what = f"{counted(len(rows), 'combination')} of {', '.join(keys)}"
    known = [row for row in rows if _has_figures(row) and both_fit(row)]
    known = [row for row in known if row["speedup"].get("p50") is not None]
    if not known:
        return f"{what}: none of them has a speedup."
    best = max(known, key=lambda row: float(row["speedup"]["p50"]))
    figures = f"{factor(best['speedup']['p50'])} ({interval(best['speedup'])})"
    odds = f"P(faster) {probability(best['probability_faster'])}"
    return f"{what}: the largest speedup is {figures}, {odds}, with {_named(best['vary'])}."


def _figures(row: Mapping[str, Any]) -> list[str]:
    if not _has_figures(row):
        return [UNDEFINED] * len(FIGURES)
    arms = [row["baseline"], row["speculative"]]
    times = [UNDEFINED if lacks_memory(arm) else milliseconds(arm["tpot_s"]) for arm in arms]
    if not both_fit(row):
        # Its figures assume that it did fit: beside those that do, they would be read as an answer.
        return ["does not fit", UNDEFINED, UNDEFINED, *times]
    return [factor(row["speedup"].get("p50")), interval(row["speedup"]), probability(row["probability_faster"]), *times]


def _allreduce_shares(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The shares, where they tell the combinations apart."""
    arms = {_named(row["vary"]): row["baseline"] for row in rows if _has_figures(row)}
    shares = {name: arm.get("parts_s", {}).get("allreduce", 0.0) / arm["step_s"] for name, arm in arms.items()}
    if not shares or max(shares.values()) - min(shares.values()) < NOTABLE_SHARE:
        return []
    return [f"{name}: {percent(share)}" for name, share in shares.items()]


def _has_figures(row: Mapping[str, Any]) -> bool:
    return not row.get("error") and not row.get("failed_reason")


def _named(vary: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} = {value}" for key, value in vary.items())


def _short(key: str, keys: list[str]) -> str:
    """The last part of a dotted key, unless another key ends in the same; in words, which a narrow column can break."""
    last = key.rsplit(".", 1)[-1]
    unique = sum(other.rsplit(".", 1)[-1] == last for other in keys) == 1
    return (last if unique else key).replace("_", " ")
