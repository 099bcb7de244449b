"""The shipped measurements, all of them: the accuracy that the project states, with a little slack.

Slow for a unit test (about 20 s): the one place where a change that makes predictions worse is seen before a release.
"""

from collections import Counter

import pytest

from calibration.published.tables import shipped_rows
from validate.backtest.run import Backtest, backtest
from validate.backtest.scores import Scores, score


@pytest.fixture(scope="module")
def informed() -> Backtest:
    """The baseline-informed run over everything."""
    return backtest(shipped_rows())


def figures(result: Backtest) -> Scores:
    """Over all rows."""
    return score(result.scored)


def test_the_rows_that_the_protocol_scores_are_scored(informed: Backtest) -> None:
    assert len(informed.scored) == 565
    reasons = Counter(each.reason for each in informed.skipped)
    assert reasons["calibrates acceptance"] == 193
    assert reasons["adaptive draft length"] == 6
    assert reasons["tree"] == 126
    assert len({each.row.text["set_id"] for each in informed.scored}) == 31


def test_errors_are_within_the_target(informed: Backtest) -> None:
    found = figures(informed)
    assert found.median_abs_error is not None
    assert found.p90_abs_error is not None
    assert found.median_abs_error <= 0.05
    assert found.p90_abs_error <= 0.12


def test_direction_and_choice_are_within_the_target(informed: Backtest) -> None:
    found = figures(informed)
    assert found.sign_accuracy is not None
    assert found.best_k_regret is not None
    assert found.sign_accuracy >= 0.96
    assert found.best_k_regret <= 0.01


def test_intervals_cover_what_they_promise_and_are_narrow(informed: Backtest) -> None:
    found = figures(informed)
    assert found.coverage_90 is not None
    assert found.half_width_90 is not None
    assert 0.85 <= found.coverage_90 <= 0.96
    assert found.half_width_90 <= 0.20


def test_kimi_on_eight_rtx_pro_6000_is_within_its_own_target(informed: Backtest) -> None:
    kimi = [each for each in informed.scored if each.row.text["model"] == "Kimi-K2.6"]
    assert len(kimi) == 160
    found = score(kimi)
    assert found.median_abs_error is not None
    assert found.median_abs_error <= 0.045


def test_the_references_fail_where_they_are_known_to(informed: Backtest) -> None:
    for reference, least in ((informed.interpolation, 0.15), (informed.verification_free, 0.3)):
        found = score(reference, intervals=False)
        assert found.rows == 565
        assert found.median_abs_error is not None
        assert found.median_abs_error > least


def test_predictions_lie_inside_their_own_intervals(informed: Backtest) -> None:
    assert all(0.0 < each.p05 < each.predicted < each.p95 for each in informed.scored)
