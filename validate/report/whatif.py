"""The charts of `draftcast whatif`: the combinations side by side, and where the time of a step goes in each."""

from collections.abc import Sequence
from dataclasses import replace

from hwmodel.units import MS
from simulator.results import both_fit
from validate.report.chart import Chart, Json, Table
from validate.report.choose import USUAL_PROBABILITY
from validate.report.heat import MAX_COLUMNS, MAX_LINES, HeatCell, drawn_columns, heat_spec, reading
from validate.report.marks import MAX_LINES as MOST_INTERVALS
from validate.report.marks import intervals
from validate.report.numbers import odds, speedup_text
from validate.report.parts import parts_chart
from validate.report.theme import distinct, name

MAX_PARTS = 12  # combinations whose parts are drawn
MAX_LABEL = 120


def charts(result: Json, details: Json) -> list[Chart]:
    """All charts that the rows support; those without figures, or that do not fit, stand in the command's own text."""
    rows = [row for row in result["rows"] if row.get("speedup", {}).get("p50") is not None and both_fit(row)]
    if not rows:
        return []
    keys = list(rows[0]["vary"])
    found = [_heat_map(result, rows, keys)] if _is_grid(rows, keys) else []
    found.append(_speedups(rows, keys))
    for i, row in enumerate(rows[:MAX_PARTS]):
        drawn = parts_chart(row["baseline"], row["speculative"], values_of(row["vary"]), str(i + 1), selected=i == 0)
        found.append(drawn if len(rows) <= MAX_PARTS else _of_the_first(drawn, len(rows)))
    return found


def _of_the_first(chart: Chart, count: int) -> Chart:
    return replace(chart, finding=f"{chart.finding} The first {MAX_PARTS} of {count} combinations are drawn.")


def label(vary: Json) -> str:
    """The combination in full: "kind chat, concurrency 8"."""
    return name(", ".join(f"{short_key(key)} {value}" for key, value in vary.items()), MAX_LABEL)


def values_of(vary: Json) -> str:
    """The combination in short, its values alone: "chat · 8"."""
    return name(" · ".join(str(value) for value in vary.values()))


def short_key(key: str) -> str:
    """The last part of a dotted key, in words."""
    return name(key.rsplit(".", 1)[-1].replace("_", " "))


def _is_grid(rows: Sequence[Json], keys: Sequence[str]) -> bool:
    if len(keys) != 2:
        return False
    columns, lines = ({str(row["vary"][key]) for row in rows} for key in (keys[1], keys[0]))
    return 1 < len(columns) <= MAX_COLUMNS and 1 < len(lines) <= MAX_LINES


def _table(rows: Sequence[Json], keys: Sequence[str]) -> Table:
    columns = (*keys, "speedup p50", "p05", "p95", "P(faster)", "baseline ms/token", "with drafts ms/token")
    return Table(
        columns,
        tuple(
            (
                *(str(row["vary"][key]) for key in keys),
                *(row["speedup"].get(key) for key in ("p50", "p05", "p95")),
                row["probability_faster"],
                row["baseline"]["tpot_s"] / MS,
                row["speculative"]["tpot_s"] / MS,
            )
            for row in rows
        ),
        num_texts=len(keys),
    )


def _heat_map(result: Json, rows: Sequence[Json], keys: Sequence[str]) -> Chart:
    objective = result["inputs"].get("deployment", {}).get("objective", {})
    asked = objective.get("min_probability_faster", USUAL_PROBABILITY)
    lines, columns = (_labels(rows, key, limit) for key, limit in zip(keys, (40, 20), strict=True))
    cells = [
        HeatCell(
            columns[str(row["vary"][keys[1]])],
            lines[str(row["vary"][keys[0]])],
            label(row["vary"]),
            row["speedup"],
            row["probability_faster"],
        )
        for row in rows
    ]
    how = reading(asked, (len(drawn_columns(cells)), len(columns), "columns"))
    return Chart(
        "speedup-heat-map",
        f"Speedup by {name(keys[0])} and {name(keys[1])}",
        f"{how} Combinations that cannot run are empty.",
        f"Heat map of the speedup over {name(keys[0])} and {name(keys[1])}, written in each cell.",
        heat_spec(cells, name(keys[1]), asked, narrow=False),
        heat_spec(cells, name(keys[1]), asked, narrow=True),
        _table(rows, keys),
    )


def _labels(rows: Sequence[Json], key: str, limit: int) -> dict[str, str]:
    """What each value of a key is called on its axis: no two the same, long ones cut short."""
    values = list(dict.fromkeys(str(row["vary"][key]) for row in rows))
    return dict(zip(values, distinct([name(value, limit) for value in values]), strict=True))


def _speedups(rows: Sequence[Json], keys: Sequence[str]) -> Chart:
    drawn = [
        {
            "label": values_of(row["vary"]),
            "low": row["speedup"].get("p05"),
            "mid": row["speedup"]["p50"],
            "high": row["speedup"].get("p95"),
            "tip": f"{label(row['vary'])}: {speedup_text(row['speedup'])}, P(faster) {odds(row['probability_faster'])}",
        }
        for row in rows
    ]
    left = len(rows) - MOST_INTERVALS
    return Chart(
        "speedups",
        "Speedup of every combination",
        f"Median and 90 % interval by {' · '.join(map(short_key, keys))}; the dashed line is no change."
        + (f" The first {MOST_INTERVALS} of {len(rows)}; the table has all." if left > 0 else ""),
        f"Intervals of the speedup of {len(rows)} combinations on one axis, with a line at 1.",
        intervals(drawn, "speedup over no drafts", narrow=False),
        intervals(drawn, "speedup over no drafts", narrow=True),
        _table(rows, keys),
    )
