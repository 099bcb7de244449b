"""The track record: how often the intervals held, which way the predictions lean, and where they were worst.

Only predictions that were on file before the run count; each cell of a run counts once for each quantity.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from calibration.readers.values import median
from validate.ledger.store import OUTCOME, Row

JsonObject = dict[str, Any]

QUANTITIES = ("speedup", "throughput_tokens_per_s", "tpot_s", "step_s", "tokens_per_step")
_Z_95 = 1.959963984540054  # normal quantile of a two-sided 95 % interval
_FLAT = 0.03  # a measured change below it has no sign, as in the backtest
_WORST = 3
_FEW = 20  # scored cells below which the coverage of a 90 % interval cannot be told from 75 % or 100 %


@dataclass(frozen=True, slots=True)
class Score:
    """One figure of one cell: what was predicted, what came, and where it is from."""

    prediction_id: str
    run: str  # the hash of the run's file
    concurrency: int
    num_speculative_tokens: int
    quantity: str
    low: float
    predicted: float
    high: float
    measured: float
    inside: bool
    model: str
    method: str

    @property
    def log_error(self) -> float:
        """ln(predicted / measured): above 0 for a prediction that was too high."""
        return math.log(self.predicted / self.measured)

    def to_dict(self) -> JsonObject:
        """For the list of the worst."""
        named = ("prediction_id", "model", "method", "num_speculative_tokens", "concurrency", "quantity")
        return {
            **{name: getattr(self, name) for name in named},
            "predicted": {"p05": self.low, "p50": self.predicted, "p95": self.high},
            "measured": self.measured,
            "error": self.predicted / self.measured - 1.0,
            "inside": self.inside,
        }


def track_record(rows: Iterable[Row]) -> JsonObject:
    """The record over all outcomes, as the `summary` of `draftcast ledger list --json`."""
    outcomes = [row for row in rows if row.kind == OUTCOME]
    blind = [row for row in outcomes if row.summary.get("blind") is True]
    scores = scores_of(blind)
    return {
        "predictions_scored": len({score.prediction_id for score in scores}),
        "runs_scored": len({score.run for score in scores}),
        "outcomes": len(outcomes),
        "outcomes_not_blind": len(outcomes) - len(blind),
        "by_quantity": {name: _figures([s for s in scores if s.quantity == name]) for name in QUANTITIES},
    }


def scores_of(outcomes: Sequence[Row]) -> list[Score]:
    """The scores of outcomes; where a run was validated again, its newest outcome counts."""
    found: dict[tuple[object, ...], Score] = {}
    for row in outcomes:
        listed = row.summary.get("scores")
        for item in listed if isinstance(listed, list) else ():
            score = _score(row, item)
            if score is not None:
                key = (
                    score.prediction_id,
                    score.run,
                    score.concurrency,
                    score.num_speculative_tokens,
                    score.quantity,
                )
                found[key] = score
    return list(found.values())


def _score(row: Row, item: Any) -> Score | None:
    """The score that an outcome holds; None for one that cannot be used."""
    try:
        band = item["predicted"]
        low, predicted, high, measured = (float(x) for x in (band["p05"], band["p50"], band["p95"], item["measured"]))
        if not 0 < predicted < math.inf or not 0 < measured < math.inf:
            return None
        return Score(
            row.prediction_id,
            str(row.summary.get("run_sha256")),
            int(item["concurrency"]),
            int(item["num_speculative_tokens"]),
            str(item["quantity"]),
            low,
            predicted,
            high,
            measured,
            bool(item["inside"]),
            str(row.summary.get("model")),
            str(row.summary.get("method")),
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def _figures(scores: Sequence[Score]) -> JsonObject:
    """Coverage, bias and size of the errors of one quantity; None where there is nothing to count."""
    if not scores:
        return {"scored": 0, "reason": "no prediction of it has been compared with a run yet"}
    inside = sum(score.inside for score in scores)
    bias = median([score.log_error for score in scores])
    low, high = wilson(inside, len(scores))
    worst = sorted(scores, key=lambda score: -abs(score.log_error))[:_WORST]
    figures: JsonObject = {
        "scored": len(scores),
        "inside": inside,
        "coverage_90": inside / len(scores),
        "coverage_90_ci95": {"low": low, "high": high},
        "median_log_error": bias,
        "bias": math.exp(bias) - 1.0,
        "median_abs_error": median([abs(s.predicted / s.measured - 1.0) for s in scores]),
        "worst": [score.to_dict() for score in worst],
        "caution": _caution(scores),
    }
    return figures | (_signs(scores) if scores[0].quantity == "speedup" else {})


def _signs(scores: Sequence[Score]) -> JsonObject:
    """How often the direction was right, over cells where the effect is large enough to have one."""
    clear = [score for score in scores if abs(score.measured - 1.0) > _FLAT]
    right = sum((score.predicted > 1.0) == (score.measured > 1.0) for score in clear)
    if not clear:
        return {"sign_scored": 0, "sign_accuracy": None, "sign_accuracy_reason": "no effect above 3 % was measured"}
    return {"sign_scored": len(clear), "sign_accuracy": right / len(clear)}


def _caution(scores: Sequence[Score]) -> str | None:
    """What a small count forbids to conclude."""
    runs = len({score.run for score in scores})
    if len(scores) >= _FEW and runs > 1:
        return None
    few = f"only {len(scores)} cell{'' if len(scores) == 1 else 's'} of {runs} run{'' if runs == 1 else 's'}"
    return f"{few}: cells of one run share their errors, so this says little yet"


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """The 95 % Wilson interval of a share: sensible also for 0 of n, n of n, and small n.

    Formula: (p + z^2/2n +- z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n). Source: E. B. Wilson, JASA 22 (1927).

    >>> tuple(round(x, 3) for x in wilson(3, 3)), tuple(round(x, 3) for x in wilson(9, 10))
    ((0.439, 1.0), (0.596, 0.982))
    """
    share, square = successes / trials, _Z_95**2
    middle = share + square / (2 * trials)
    half = _Z_95 * math.sqrt(share * (1 - share) / trials + square / (4 * trials**2))
    scale = 1 + square / trials
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)
