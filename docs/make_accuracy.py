"""Writes the generated blocks of docs/accuracy.md and docs/results/accuracy.json from a run of the backtest.

`make accuracy`: about ten minutes on two cores, since the fitted constants are moved one by one for the scores of
sources left out.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from calibration.published.population import CONSTANTS
from calibration.published.tables import shipped_rows
from validate.backtest.left_out import LeftOut, leave_families_out
from validate.backtest.protocol import PROTOCOLS
from validate.backtest.run import Backtest, backtest
from validate.backtest.scores import Scores, score

DOCS = Path(__file__).resolve().parent
PAGE = DOCS / "accuracy.md"
RESULTS = DOCS / "results" / "accuracy.json"
BLOCK = re.compile(r"(<!-- generated: (?P<name>[^\n]+) -->\n)(?P<body>.*?)(<!-- end -->)", re.DOTALL)
FIGURES = ("median_abs_error", "p90_abs_error", "sign_accuracy", "best_k_regret", "coverage_90", "half_width_90")
HEADS = ("rows", "median, %", "p90, %", "sign, %", "regret, %", "in 90 %, %", "half-width, %")
KIMI_BOX = "Kimi-K2.6 on 8x RTX PRO 6000"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def figures(scores: Mapping[str, Any]) -> list[str]:
    """The cells of one row of scores; a dash where a figure does not apply."""
    cells = [str(scores["rows"])]
    for name in FIGURES:
        value = scores[name]
        cells.append("-" if value is None else f"{100 * value:.1f}")
    return cells


def overview(runs: Mapping[str, Backtest], left: LeftOut) -> str:
    """All protocols, sources left out, and the references, over all scored rows."""
    rows = [[f"{name}", *figures(score(run.scored).to_dict())] for name, run in runs.items()]
    rows.insert(1, ["informed, source left out", *without_intervals(left.overall)])
    informed = runs["informed"]
    kimi = [row for row in informed.scored if row.row.text["model"] == "Kimi-K2.6"]
    known = [row for row in informed.scored if row.knows_gpu]
    rows.append(["informed, known GPU", *figures(score(known).to_dict())])
    rows.append([f"informed, {KIMI_BOX}", *figures(score(kimi).to_dict())])
    rows.append(["(a) log-log interpolation", *without_intervals(score(informed.interpolation))])
    rows.append(["(b) free verification", *without_intervals(score(informed.verification_free))])
    return table(("protocol", *HEADS), rows)


def without_intervals(scores: Scores) -> list[str]:
    """Scores of point predictions."""
    return figures({**scores.to_dict(), "coverage_90": None, "half_width_90": None})


def sets(runs: Mapping[str, Backtest], left: LeftOut) -> str:
    """Every scored set, worst first, with the other protocols' medians beside it."""
    by_set = {name: run.by_set() for name, run in runs.items()}
    rows = []
    for name, scores in sorted(by_set["informed"].items(), key=lambda item: -(item[1].median_abs_error or 0.0)):
        others = [by_set[protocol].get(name) for protocol in ("cold", "anchored")]
        medians = ["-" if each is None else f"{100 * (each.median_abs_error or 0.0):.1f}" for each in others]
        rows.append([f"`{name}`", *figures(scores.to_dict()), *medians])
    return table(("set", *HEADS, "cold median, %", "anchored median, %"), rows)


def families(runs: Mapping[str, Backtest], left: LeftOut) -> str:
    """Each family of sets predicted with constants that were fitted without it."""
    rows = [[name, *without_intervals(scores)[:4]] for name, scores in left.by_family.items()]
    return table(("left out", *HEADS[:4]), rows)


def constants(runs: Mapping[str, Backtest], left: LeftOut) -> str:
    """The fitted constants: source, shipped value, and where a fit to all sets from the source's value would go."""
    rows = [
        [
            constant.name,
            f"`{constant.parameter}`",
            f"{constant.source_value:g}",
            f"{constant.shipped_value:g}",
            f"{constant.shipped_value * 2.718281828 ** left.shifts[constant.name]:.2g}",
        ]
        for constant in CONSTANTS
    ]
    return table(("constant", "parameter", "source", "shipped", "fit to all sets"), rows)


BLOCKS: dict[str, Callable[[Mapping[str, Backtest], LeftOut], str]] = {
    "overview": overview,
    "sets": sets,
    "families": families,
    "constants": constants,
}


def main() -> None:
    """Runs everything, then rewrites page and results."""
    rows = shipped_rows()
    runs = {protocol: backtest(rows, protocol) for protocol in PROTOCOLS}
    left = leave_families_out(rows)
    page = PAGE.read_text(encoding="utf-8")
    page = BLOCK.sub(lambda match: match[1] + BLOCKS[match["name"]](runs, left) + match[4], page)
    PAGE.write_text(page, encoding="utf-8")
    RESULTS.parent.mkdir(exist_ok=True)
    results = {name: run.to_dict() for name, run in runs.items()}
    results["source left out"] = {"overall": left.overall.to_dict()}
    RESULTS.write_text(json.dumps(results, indent=1, allow_nan=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
