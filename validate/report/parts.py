"""The time of an engine step, part by part, of both arms side by side."""

from collections.abc import Sequence

from hwmodel.percent import percent
from hwmodel.units import MS
from simulator.explain import PART_WORDS
from validate.report.chart import Chart, Json, Spec, Table
from validate.report.marks import arm_bars
from validate.report.numbers import text_of
from validate.report.theme import ARMS, name

SMALLEST_SHARE = 0.002  # of the longer step: less is no visible bar; the table has it
ARM_KEYS = dict(zip(ARMS, ("baseline", "speculative"), strict=True))


def parts_chart(baseline: Json, speculative: Json, label: str, key: str, *, selected: bool) -> Chart:
    """Bars of the parts of a step; `label` says of what, `key` is its part of the chart's name."""
    arms = {"baseline": baseline, "with drafts": speculative}
    longest = max(arm["step_s"] for arm in arms.values())
    names = [part for part in speculative["parts_s"] if any(arm["parts_s"].get(part) for arm in arms.values())]
    names.sort(key=lambda part: -max(arm["parts_s"].get(part, 0.0) for arm in arms.values()))
    shown = [p for p in names if max(arm["parts_s"].get(p, 0.0) for arm in arms.values()) > SMALLEST_SHARE * longest]
    rows = [_bar(arm, values, part) for part in shown for arm, values in arms.items()]
    steps = {arm: values["step_s"] / MS for arm, values in arms.items()}
    return Chart(
        f"step-parts-{key}",
        "Where the time of a step goes",
        f"A mean step takes {text_of(steps['baseline'], 3)} ms without drafts and {text_of(steps['with drafts'], 3)} ms"
        f" with them{_tokens(speculative)}.",
        f"Bars, for each part of a step one without drafts (light) and one with drafts: {label}.",
        arm_bars(rows, "ms of a step", narrow=False),
        arm_bars(rows, "ms of a step", narrow=True),
        Table(
            ("part", "baseline ms", "with drafts ms"),
            (*(_row(part, arms) for part in names), ("whole step", steps["baseline"], steps["with drafts"])),
        ),
        group="step-parts",
        label=label,
        selected=selected,
    )


def parts_over_load(cells: Sequence[Json], loads: Sequence[int]) -> list[Chart]:
    """One drawing for each of `loads`, to switch between; cells hold both arms."""
    shown = [cell for cell in cells if cell["concurrency"] in loads]
    return [
        parts_chart(
            cell["baseline"],
            cell["speculative"],
            f"concurrency {cell['concurrency']}",
            f"c{cell['concurrency']}",
            selected=i == 0,
        )
        for i, cell in enumerate(shown)
    ]


def _tokens(speculative: Json) -> str:
    emitted = speculative.get("tokens_per_step")
    return f", which emit {text_of(emitted, 3)} tokens a request instead of 1" if emitted else ""


def _bar(arm: str, values: Json, part: str) -> Spec:
    time_ms = values["parts_s"].get(part, 0.0) / MS
    label = name(PART_WORDS.get(part, part.replace("_", " ")))  # as in the reasons below the charts
    share = time_ms / (values["step_s"] / MS)
    tip = f"{label}, {arm}: {text_of(time_ms)} ms, {percent(share, 1)} of the step"
    return {"label": label, "arm": arm, "value": time_ms, "text": text_of(time_ms, 3), "tip": tip}


def _row(part: str, arms: dict[str, Json]) -> tuple[str | float, ...]:
    return (part.replace("_", " "), *(values["parts_s"].get(part, 0.0) / MS for values in arms.values()))
