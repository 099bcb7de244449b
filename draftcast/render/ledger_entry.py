"""`draftcast ledger show` for a human reader; what stands in the ledger is not trusted."""

from collections.abc import Mapping, Sequence
from typing import Any

from calibration.readers.values import mapping, number
from draftcast.render.ledger import banded, cut, moment, system_of
from draftcast.render.numbers import UNDEFINED, counted, factor, interval, milliseconds, significant
from draftcast.render.page import Page

_MOST_CELLS = 60


def render(result: Mapping[str, Any], page: Page) -> None:
    """When it was recorded, by what, what was predicted for each cell, and what came of it."""
    summary = mapping(result.get("summary"))
    if not summary:
        page.headline(f"{result['prediction_id']}: only outcomes, no prediction on file.")
    else:
        page.headline(
            f"{result['prediction_id']}: {cut(summary.get('command'))} {cut(summary.get('method'))}, "
            f"{system_of(summary)}, recorded {moment(result.get('recorded'))} UTC."
        )
        page.bullets(_facts(result, summary))
        _cells(result["cells"], page)
    page.section("Outcomes", [_outcome(mapping(item)) for item in result["outcomes"]])
    if not result["outcomes"]:
        page.text("\nNot validated yet: draftcast validate DEPLOYMENT --url URL, or --run run.json.")


def _facts(result: Mapping[str, Any], summary: Mapping[str, Any]) -> list[str]:
    """What the figures depend on."""
    profile = mapping(result.get("profile")).get("sha256")
    lines = [
        f"draftcast {cut(result.get('draftcast_version'))}, seed {cut(result.get('seed'))}, "
        f"{cut(result.get('num_draws'))} draws, {'no profile' if profile is None else f'profile {cut(profile)}'}",
        f"deployment: {cut(result.get('source'))}; {cut(summary.get('engine'))} {cut(summary.get('engine_version'))}",
    ]
    before = result.get("recorded_before") or []
    return lines + (
        [f"recorded {counted(len(before), 'time')} before, first {moment(before[0])} UTC"] if before else []
    )


def _cells(cells: Sequence[Mapping[str, Any]], page: Page) -> None:
    heads = ("k", "at", "speedup", "90 %", "step ms", "ms/token", "tokens/s", "tokens/step")
    page.table(heads, map(_cell, cells[:_MOST_CELLS]))
    if len(cells) > _MOST_CELLS:
        page.text(f"{len(cells) - _MOST_CELLS} more cells: --json")


def _cell(cell: Mapping[str, Any]) -> list[str]:
    speedup, arm = banded(cell.get("speedup")), mapping(cell.get("speculative"))
    return [
        cut(cell.get("num_speculative_tokens")),
        cut(cell.get("concurrency")),
        factor(speedup["p50"]),
        interval(speedup),
        milliseconds(number(arm.get("step_s"))),
        milliseconds(number(arm.get("tpot_s"))),
        significant(number(arm.get("throughput_tokens_per_s"))),
        significant(number(arm.get("tokens_per_step"))),
    ]


def _outcome(outcome: Mapping[str, Any]) -> str:
    blind = "" if outcome.get("blind") else " (not blind: predicted after the run)"
    return f"{moment(outcome.get('created'))} UTC: {outcome.get('verdict', UNDEFINED)}{blind}"
