"""Why an answer got wider: measurements that fit never do it silently, and the reason named is the one put in."""

import numpy as np
from measured import measured_cells
from profiles import box

from calibration.records import AcceptanceCounts, Evidence, MeasuredCell
from calibration.session import CalibrationAnswer, calibrated
from simulator.deployment import Deployment

SURE = {"acceptance": {"per_position": [0.6, 0.36, 0.2], "num_requests": 100_000, "heterogeneity": 1e6}}


def answer(deployment: Deployment, *cells: MeasuredCell) -> CalibrationAnswer:
    """A calibration with its report."""
    return calibrated(deployment, Evidence(cells), num_draws=1000)


def test_a_good_sweep_narrows_and_gives_no_reason() -> None:
    found = answer(box(), *measured_cells(box(), {"kernel_floor_us": 0.5}, noise=(0.02, 5)))
    assert found.report["wider_reason"] is None


def test_acceptance_counted_in_few_drafts_widens_a_surely_stated_one_and_is_named() -> None:
    deployment = box(speculation=SURE)
    counts = AcceptanceCounts(12.0, (7.0, 4.0, 2.0), None, 2.0)
    counted = MeasuredCell("metrics.txt", num_speculative_tokens=3, method="eagle3", acceptance=counts)
    reason = answer(deployment, *measured_cells(deployment), counted).report["wider_reason"]
    assert "acceptance as it was counted is less certain than as it was stated" in reason


def test_loads_that_the_model_cannot_explain_widen_by_the_model_error() -> None:
    cells = measured_cells(box(), loads=(1, 8, 64), factor=lambda rows: 3.0 if rows == 8 else 1.0)
    reason = answer(box(), *cells).report["wider_reason"]
    assert "they show a model error of" in reason
    assert "where 5 % was assumed" in reason


def test_the_widths_in_the_sentence_are_those_of_the_predictions() -> None:
    cells = measured_cells(box(), loads=(1, 8, 64), factor=lambda rows: 3.0 if rows == 8 else 1.0)
    found = answer(box(), *cells)
    after, before = (float(part.split(" %")[0]) for part in found.report["wider_reason"].split("+- ")[1:3])
    assert after > before > 0
    assert np.isfinite(after)
    assert found.identified.widening is not None
    assert found.identified.widening > 1.5
