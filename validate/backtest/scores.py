"""Figures of merit of predicted speedups: error, sign, choice of k, coverage of the intervals."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration.published.rows import PublishedRow

Array = NDArray[np.float64]

_NO_CHANGE = 0.03  # of the observed speedup: up to it a sign means nothing
_ROUNDING = 1e-9  # 1.03 - 1 is a little more than 0.03 in binary
_NO_INTERVALS = "no intervals were computed"
_NO_ROWS = "no row is scored"
_WHY_NONE = {
    "sign_accuracy": "no observed speedup differs from 1 by more than 3 %",
    "best_k_regret": "no group holds several draft lengths at one concurrency",
    "coverage_90": _NO_INTERVALS,
    "half_width_90": _NO_INTERVALS,
}


@dataclass(frozen=True, slots=True)
class ScoredRow:
    """One row that was predicted. `knows_gpu`: the source names a GPU that has a card."""

    row: PublishedRow
    predicted: float
    p05: float
    p95: float
    knows_gpu: bool
    ran_on: str
    tokens_per_step: float
    step_ratio: float

    @property
    def observed(self) -> float:
        """The measured speedup."""
        return self.row.speedup or 1.0

    @property
    def error(self) -> float:
        """Predicted over observed, minus one."""
        return self.predicted / self.observed - 1.0

    @property
    def inside(self) -> bool:
        """Whether the observation lies in the 90 % interval."""
        return self.p05 <= self.observed <= self.p95


@dataclass(frozen=True, slots=True)
class Scores:
    """Figures over some rows; None where no row tells."""

    rows: int
    median_abs_error: float | None
    p90_abs_error: float | None
    sign_accuracy: float | None
    best_k_regret: float | None
    coverage_90: float | None
    half_width_90: float | None

    def to_dict(self) -> dict[str, Any]:
        """The figures under the names of the contract; `..._reason` says why one is None."""
        return with_reasons({name: getattr(self, name) for name in self.__slots__})


def with_reasons(figures: Mapping[str, float | None]) -> dict[str, Any]:
    """The figures, and beside each None why there is none."""
    found: dict[str, Any] = {}
    for name, value in figures.items():
        found[name] = value
        if value is None:
            found[f"{name}_reason"] = _WHY_NONE.get(name, _NO_ROWS) if figures["rows"] else _NO_ROWS
    return found


def score(rows: Sequence[ScoredRow], *, intervals: bool = True) -> Scores:
    """Scores over rows, each row once; without `intervals` p05 and p95 are not looked at."""
    if not rows:
        return Scores(0, None, None, None, None, None, None)
    errors = np.abs([row.error for row in rows])
    told = [row for row in rows if abs(row.observed - 1.0) > _NO_CHANGE + _ROUNDING]
    signs = [(row.predicted > 1.0) == (row.observed > 1.0) for row in told]
    regrets = choice_regrets(rows)
    widths = [0.5 * (row.p95 - row.p05) / row.predicted for row in rows]
    return Scores(
        rows=len(rows),
        median_abs_error=float(np.median(errors)),
        p90_abs_error=float(np.quantile(errors, 0.9)),
        sign_accuracy=float(np.mean(signs)) if signs else None,
        best_k_regret=float(np.mean(regrets)) if regrets else None,
        coverage_90=float(np.mean([row.inside for row in rows])) if intervals else None,
        half_width_90=float(np.median(widths)) if intervals else None,
    )


def choice_regrets(rows: Sequence[ScoredRow]) -> list[float]:
    """What the predicted best draft length loses against the observed best, for every group and load with several.

    Rows that repeat a draft length count as one, with their mean; of equal predictions the shorter draft is chosen.
    """
    cells: dict[Any, dict[int, list[ScoredRow]]] = {}
    for row in rows:
        lengths = cells.setdefault((row.row.group, row.row.concurrency, row.row.context_tokens), {})
        lengths.setdefault(row.row.num_speculative_tokens or 0, []).append(row)
    regrets = []
    for lengths in cells.values():
        if len(lengths) > 1:
            observed = {k: float(np.mean([row.observed for row in same])) for k, same in lengths.items()}
            predicted = {k: float(np.mean([row.predicted for row in same])) for k, same in lengths.items()}
            chosen = max(sorted(predicted), key=predicted.__getitem__)
            best = max(observed.values())
            regrets.append((best - observed[chosen]) / best)
    return regrets


def over_sets(sets: Sequence[Scores]) -> dict[str, Any]:
    """Each figure over sets, every set counting once: medians of medians, means of shares. `rows` are those of all."""
    combine: dict[str, Callable[[list[float]], Any]] = {
        "median_abs_error": np.median,
        "p90_abs_error": np.median,
        "sign_accuracy": np.mean,
        "best_k_regret": np.mean,
        "coverage_90": np.mean,
        "half_width_90": np.median,
    }
    result: dict[str, float | None] = {"sets": len(sets), "rows": sum(each.rows for each in sets)}
    for name, function in combine.items():
        values = [value for each in sets if (value := getattr(each, name)) is not None]
        result[name] = float(function(values)) if values else None
    return with_reasons(result)
