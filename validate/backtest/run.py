"""The backtest: every group of published rows predicted under a protocol, and scored."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from calibration.published.group_fit import Cells, fit_candidates
from calibration.published.prediction import predict_group
from calibration.published.rows import PublishedRow, grouped
from calibration.published.systems import candidates, names_its_gpu
from hwmodel.errors import InputError
from validate.backtest.protocol import PROTOCOLS, SkippedRow, Task, prepare
from validate.backtest.references import interpolated_ratio, reference_speedups
from validate.backtest.scores import ScoredRow, Scores, over_sets, score


@dataclass(frozen=True, slots=True)
class Options:
    """Beside the protocol: fitted constants moved (`population.shifted`), and whether intervals are wanted."""

    shifts: Mapping[str, float] = field(default_factory=dict)
    intervals: bool = True


@dataclass(frozen=True, slots=True)
class Backtest:
    """Everything that was predicted, and what the two references said of the same rows.

    Nothing is interpolated in the cold protocol, where no baseline is seen.
    """

    protocol: str
    options: "Options"
    scored: list[ScoredRow] = field(default_factory=list)
    skipped: list[SkippedRow] = field(default_factory=list)
    interpolation: list[ScoredRow] = field(default_factory=list)
    verification_free: list[ScoredRow] = field(default_factory=list)

    def by_set(self) -> dict[str, Scores]:
        """Scores of each set, in order of appearance."""
        sets: dict[str, list[ScoredRow]] = {}
        for row in self.scored:
            sets.setdefault(row.row.text["set_id"], []).append(row)
        return {name: self._score(rows) for name, rows in sets.items()}

    def _score(self, rows: Sequence[ScoredRow]) -> Scores:
        return score(rows, intervals=self.options.intervals)

    def to_dict(self, *, with_rows: bool = False) -> dict[str, Any]:
        """The contract's JSON: sets, overall figures, skipped rows by set and reason, references; rows if asked for."""
        sets = self.by_set()
        known = self._score([row for row in self.scored if row.knows_gpu])
        found = {
            "protocol": self.protocol,
            "sets": [{"set_id": name, **scores.to_dict()} for name, scores in sets.items()],
            "overall": {
                **self._score(self.scored).to_dict(),
                "by_set": over_sets(list(sets.values())),
                "known_hardware": known.to_dict(),
            },
            "references": {
                "interpolated_baseline": score(self.interpolation, intervals=False).to_dict(),
                "free_verification": score(self.verification_free, intervals=False).to_dict(),
            },
            "skipped": self._skipped(),
        }
        return {**found, "rows": [_row(each) for each in self.scored]} if with_rows else found

    def _skipped(self) -> list[dict[str, Any]]:
        counts: dict[tuple[str, str], int] = {}
        for each in self.skipped:
            key = (each.row.text["set_id"], each.reason)
            counts[key] = counts.get(key, 0) + 1
        return [{"set_id": name, "rows": rows, "reason": reason} for (name, reason), rows in counts.items()]


_USUAL = Options()


def backtest(
    rows: Sequence[PublishedRow],
    protocol: str = "informed",
    progress: Callable[[int, int], None] | None = None,
    options: Options = _USUAL,
) -> Backtest:
    """All rows predicted and scored; `progress` is told the rows done and those in all."""
    if protocol not in PROTOCOLS:
        raise InputError(f"backtest protocol: got '{protocol}', allowed: {', '.join(PROTOCOLS)}")
    result = Backtest(protocol, options)
    done = 0
    for group in grouped(rows).values():
        if progress:
            progress(done, len(rows))
        done += len(group)
        task, skipped = prepare(group, protocol)
        result.skipped.extend(skipped)
        if task is not None:
            _predict(result, task, protocol)
    return result


def _row(each: ScoredRow) -> dict[str, Any]:
    text = each.row.text
    return {
        "line": each.row.line,
        **{name: text[name] for name in ("set_id", "model", "method", "dataset")},
        "num_speculative_tokens": each.row.num_speculative_tokens,
        "concurrency": each.row.concurrency,
        "context_tokens": each.row.context_tokens,
        "speedup_observed": each.observed,
        "speedup": {"p05": each.p05, "p50": each.predicted, "p95": each.p95},
        "tokens_per_step": each.tokens_per_step,
        "step_ratio": each.step_ratio,
        "ran_on": each.ran_on,
    }


def _predict(result: Backtest, task: Task, protocol: str) -> None:
    found = candidates(task.rows, result.options.shifts)
    if not found:
        result.skipped.extend(SkippedRow(task.rows[i], "no system can be built") for i in task.scored)
        return
    informed = protocol != "cold"
    cells = Cells.of(task.rows, with_baseline=informed)
    baselines = Cells.of(task.baselines, with_baseline=informed)
    fits = fit_candidates(found, baselines)
    prediction = predict_group(fits, task.rows, cells, task.seen, intervals=result.options.intervals)
    best = max(fits, key=lambda fit: fit.weight)
    known = names_its_gpu(task.rows[0])

    def scored(i: int, predicted: float, low: float, high: float) -> ScoredRow:
        length, ratio = float(prediction.tokens_per_step[i]), float(prediction.step_ratio[i])
        return ScoredRow(task.rows[i], predicted, low, high, known, best.candidate.label, length, ratio)

    references = [(result.verification_free, np.zeros(len(task.rows)))]
    if informed:
        references.append((result.interpolation, interpolated_ratio(cells, baselines)))
    for i in task.scored:
        row = scored(i, float(prediction.speedup[i]), float(prediction.p05[i]), float(prediction.p95[i]))
        result.scored.append(row)
    for store, log_ratio in references:
        speedups = reference_speedups(task.rows, log_ratio, task.seen)
        store.extend(scored(i, *[float(speedups[i])] * 3) for i in task.scored)
