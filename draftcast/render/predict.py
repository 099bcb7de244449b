"""`draftcast predict` for a human reader."""

from collections.abc import Mapping
from typing import Any

from draftcast.render import phrases
from draftcast.render.bars import FULL, SHADED, compared
from draftcast.render.numbers import UNDEFINED, counted, milliseconds, share, significant
from draftcast.render.page import Page
from hwmodel.units import MS

BAR_HEAD = f"{FULL} now {SHADED} added"
BAR_WIDTH = 14


def render(result: Mapping[str, Any], page: Page) -> None:
    """The answer in a sentence, the step part by part, what it means for users, and why."""
    page.headline(_headline(result))
    _parts(result["baseline"], result["speculative"], page)
    _figures(result, page)
    phrases.closing(result, page)


def _headline(result: Mapping[str, Any]) -> str:
    inputs = result["inputs"]
    place = f"at concurrency {inputs['concurrency']}"
    if inputs["num_speculative_tokens"] == 0:
        return (
            f"Without drafts, the baseline: {milliseconds(result['baseline']['tpot_s'])} ms per output token {place}."
        )
    return (
        f"{phrases.verdict(result['probability_faster'])}: {phrases.speedup(result)} with "
        f"{counted(inputs['num_speculative_tokens'], 'draft token')} ({inputs['method']}) {place}."
    )


def _parts(baseline: Mapping[str, Any], speculative: Mapping[str, Any], page: Page) -> None:
    """One engine step: a row for each part that either arm has."""
    arms = (baseline, speculative)
    decimals = 2 if max(arm["step_s"] for arm in arms) < 100 * MS else 1
    names = [name for name in speculative["parts_s"] if any(arm["parts_s"].get(name) for arm in arms)]
    names.sort(key=lambda name: -speculative["parts_s"][name])
    rows = []
    most = max(arm["parts_s"].get(name, 0.0) for arm in arms for name in names) if names else 0.0
    for name in [*names, "step_s"]:
        values_s = [arm["step_s"] if name == "step_s" else arm["parts_s"].get(name, 0.0) for arm in arms]
        cells = [name.removesuffix("_s").replace("_", " ")]
        if page.can_draw:
            cells.append("" if name == "step_s" else compared(values_s[0], values_s[1], most, BAR_WIDTH))
        for arm, value_s in zip(arms, values_s, strict=True):
            cells += [f"{value_s / MS:.{decimals}f}", share(value_s / arm["step_s"])]
        rows.append(cells)
    bar = (BAR_HEAD,) if page.can_draw else ()
    page.table(("part of a step", *bar, "baseline ms", "", "with drafts ms", ""), rows, num_texts=1 + len(bar))


def _figures(result: Mapping[str, Any], page: Page) -> None:
    """What a step of that length means for users, and how many tokens per step would be enough."""
    arms = (result["baseline"], result["speculative"])
    rows = [
        ("time per output token, ms", *(milliseconds(arm["tpot_s"]) for arm in arms)),
        ("time to first token, ms", *(milliseconds(arm.get("ttft_s")) for arm in arms)),
        ("output tokens per second", *(significant(arm["throughput_tokens_per_s"]) for arm in arms)),
        ("90 % interval", *(_throughput_interval(arm.get("throughput_tokens_per_s_interval")) for arm in arms)),
        ("tokens per step and request", "1", significant(arms[1]["tokens_per_step"])),
        ("tokens per step to break even", "", significant(result.get("break_even_tokens_per_step"))),
        ("limited by", *(str(arm.get("limited_by") or UNDEFINED).replace("_", " ") for arm in arms)),
    ]
    page.table(("what users see", "baseline", "with drafts"), [row for row in rows if set(row[1:]) != {UNDEFINED}])


def _throughput_interval(interval: Mapping[str, float | None] | None) -> str:
    """The 5th to 95th percentile: "61.2-85.0"."""
    low, high = (interval or {}).get("p05"), (interval or {}).get("p95")
    return UNDEFINED if low is None or high is None else f"{significant(low)}-{significant(high)}"
