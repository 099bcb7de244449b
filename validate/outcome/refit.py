"""The parameters fitted once more, with the run as data, and what the new profile makes of the measured cells."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from calibration.session import CalibrationAnswer, calibrated
from simulator.deployment.load import with_profile
from simulator.forecast import forecast_cells
from validate.outcome.figures import figures_of
from validate.outcome.predicted import Predicted, Studies
from validate.outcome.validation import Validation

JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Refit:
    """A calibration that has seen the run."""

    answer: CalibrationAnswer
    path: str

    def to_dict(self, validation: Validation) -> JsonObject:
        """What the new profile makes of the cells that were measured, and which parameters it moved."""
        deployment = with_profile(validation.question.deployment, self.answer.calibration.profile)
        studies = Studies(deployment, validation.studies.k_max, validation.question.num_draws, validation.question.seed)
        cells = []
        for cell in validation.scored:
            forecast = forecast_cells(studies.of(cell.question.method), [cell.question.point])[0]
            after = figures_of(cell.question, Predicted(forecast, None, {}, blind=False), cell.baseline)
            figure = after.get(cell.headline.name)
            cells.append(
                {
                    "concurrency": cell.concurrency,
                    "num_speculative_tokens": cell.question.num_speculative_tokens,
                    "quantity": cell.headline.name,
                    "before": cell.headline.to_dict()["predicted"],
                    "after": None if figure is None else figure.to_dict()["predicted"],
                    "measured": cell.headline.measured,
                    "inside_interval": None if figure is None else figure.inside,
                }
            )
        report: Mapping[str, Any] = self.answer.report
        return {"profile": self.path, "cells": cells, "warnings": list(report["warnings"]),
                "refused": list(report["refused"])}  # fmt: skip


def refit(validation: Validation, path: str) -> Refit:
    """The parameters fitted to the baseline's run and to this one, as a profile for `path`; nothing is written yet."""
    question = validation.question
    evidence = question.run.evidence
    if question.baseline is not None:
        evidence = question.baseline.evidence + evidence
    answer = calibrated(question.deployment, evidence, num_draws=question.num_draws, seed=question.seed)
    return Refit(answer, path)
