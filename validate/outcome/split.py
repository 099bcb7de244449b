"""The error split in two: what acceptance was off by, and what the step's cost was off by. Exactly additive in logs.

With T(a) the prediction at acceptance a, a0 as predicted, a1 as measured, and M the measurement:
ln(M / T(a0)) = ln(T(a1) / T(a0)) + ln(M / T(a1)): acceptance part plus cost part. The factor T(a1) / T(a0) is computed
by the model as it stands, both times, so it also serves entries of an earlier version.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from calibration.readers.values import mapping, number, numbers, positive
from simulator.forecast import at_acceptance
from validate.outcome.figures import Figure
from validate.outcome.predicted import Asked, Predicted, Studies

JsonObject = dict[str, Any]

_MODEL_NAMES = {"step_s": "step_with_prompts_s"}


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Of the drafts of one length: S_1..S_k, unconditional per draft, and the share of steps with one."""

    per_position: tuple[float, ...]
    draft_probability: float

    @property
    def tokens_per_step(self) -> float:
        """1 + share of steps with a draft * accepted tokens of a draft."""
        return 1.0 + self.draft_probability * sum(self.per_position)

    def to_dict(self) -> JsonObject:
        """For JSON."""
        return {
            "per_position": list(self.per_position),
            "draft_probability": self.draft_probability,
            "tokens_per_step": self.tokens_per_step,
        }


@dataclass(frozen=True, slots=True)
class Split:
    """Acceptance as predicted and as measured; `factors` is T(a1) / T(a0) of every figure."""

    predicted: Acceptance
    measured: Acceptance
    factors: Mapping[str, float]

    def parts(self, figure: Figure) -> tuple[float, float]:
        """(acceptance part, cost part) of a figure's log error; their sum is the error."""
        acceptance = math.log(self.factors[figure.name])
        return acceptance, figure.log_error - acceptance


def split_of(question: Asked, predicted: Predicted, studies: Studies) -> tuple[Split | None, str | None]:
    """(the split, None), or (None, why there is none)."""
    k = question.num_speculative_tokens
    if not k:
        return None, "nothing was drafted"
    measured = measured_acceptance(question)
    if measured is None:
        return None, "the run counted no drafts: its acceptance is not known apart from its times"
    study = studies.of(question.method)
    assumed = predicted_acceptance(predicted, k)
    if assumed is None:
        return None, "the entry does not hold the acceptance that it was made with"
    before = at_acceptance(study, question.point, assumed.per_position, assumed.draft_probability)
    after = at_acceptance(study, question.point, measured.per_position, measured.draft_probability)
    names = ("speedup", "throughput_tokens_per_s", "tpot_s", "step_s", "tokens_per_step")
    factors = {name: after[_MODEL_NAMES.get(name, name)] / before[_MODEL_NAMES.get(name, name)] for name in names}
    return Split(assumed, measured, factors), None


def measured_acceptance(question: Asked) -> Acceptance | None:
    """What was counted in the cell, padded with 0 to the draft length; None where drafts were not counted.

    Where the share of drafted steps is not told it follows from the tokens per step, else every step drafted.
    """
    found, k = question.cell.measured, question.num_speculative_tokens
    if found is None or found.acceptance is None or not found.acceptance.drafts:
        return None
    counts = found.acceptance
    positions = [min(1.0, count / counts.drafts) for count in counts.accepted_per_position[:k]]
    positions += [0.0] * (k - len(positions))
    share = found.draft_probability
    if share is None and found.tokens_per_step and sum(positions) > 0:
        share = (found.tokens_per_step - 1.0) / sum(positions)
    return Acceptance(tuple(positions), 1.0 if share is None else min(1.0, max(0.0, share)))


def predicted_acceptance(predicted: Predicted, k: int) -> Acceptance | None:
    """What the prediction took for granted."""
    stated = mapping(predicted.forecast.get("acceptance"))
    positions, share = numbers(stated.get("per_position")), number(stated.get("draft_probability"))
    if positions is None or share is None or len(positions) < k or max(positions, default=0.0) > 1.0 or share > 1.0:
        return None
    return Acceptance(tuple(positions[:k]), share)


def stated_band(predicted: Predicted, name: str) -> tuple[float, float] | None:
    """The 90 % interval of one part of the predicted acceptance."""
    band = mapping(mapping(mapping(predicted.forecast.get("acceptance")).get("intervals")).get(name))
    low, high = number(band.get("p05")), positive(band.get("p95"))
    return None if low is None or high is None else (low, high)
