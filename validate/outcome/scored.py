"""Everything that is known of one scored cell, handed from one part of the validation to the next."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from validate.outcome.figures import Baseline, Figure
from validate.outcome.predicted import Asked, Predicted
from validate.outcome.run_data import RunCell
from validate.outcome.split import Split

JsonObject = dict[str, Any]

HEADLINES = ("speedup", "throughput_tokens_per_s", "tpot_s", "step_s")  # the first that there is speaks for the cell


@dataclass(frozen=True, slots=True)
class Scored:
    """A cell, its prediction, its figures and the split of their errors; `baseline_cell` is the run's it goes with."""

    question: Asked
    predicted: Predicted
    figures: Mapping[str, Figure]
    split: Split | None
    split_reason: str | None
    baseline: Baseline | None = None
    baseline_cell: RunCell | None = None

    @property
    def concurrency(self) -> int:
        """As asked for."""
        return self.question.cell.concurrency

    @property
    def record(self) -> Mapping[str, Any]:
        """The cell as written."""
        return self.question.cell.record

    @property
    def headline(self) -> Figure:
        """The figure that speaks for the cell."""
        return next(self.figures[name] for name in HEADLINES if name in self.figures)

    @property
    def time(self) -> Figure | None:
        """Its time per token, else its step or throughput: what a miss is explained by."""
        return next((self.figures[name] for name in ("tpot_s", *HEADLINES) if name in self.figures), None)


@dataclass(frozen=True, slots=True)
class Cause:
    """Something that the data prove: `matters` where it makes the run differ from the prediction, else it is ruled out.

    `effect` is the log of the factor on the time per token that it explains, where that can be computed.
    """

    code: str
    text: str
    concurrency: int | None  # None: of the whole run
    evidence: JsonObject
    matters: bool = True
    effect: float | None = None

    def to_dict(self) -> JsonObject:
        """For JSON."""
        return {
            "code": self.code,
            "text": self.text,
            "concurrency": self.concurrency,
            "log_effect_on_tpot": self.effect,
            "evidence": self.evidence,
        }
