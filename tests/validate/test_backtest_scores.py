"""Figures of merit, worked out by hand."""

from typing import Any

import pytest
from published_rows import row

from validate.backtest.scores import ScoredRow, choice_regrets, over_sets, score


def scored(observed: float, predicted: float, half: float = 0.1, **cells: Any) -> ScoredRow:
    """A row with this observed and predicted speedup, and an interval of `half` of the prediction on either side."""
    known = cells.pop("knows_gpu", True)
    return ScoredRow(
        row(speedup=repr(observed), **cells),
        predicted,
        predicted * (1 - half),
        predicted * (1 + half),
        known,
        "",
        2.0,
        1.5,
    )


def test_errors_are_relative_to_the_observed_speedup() -> None:
    found = score([scored(2.0, 2.2), scored(1.0, 0.7), scored(0.5, 0.6)])
    assert found.rows == 3
    assert found.median_abs_error == pytest.approx(0.2)
    assert found.p90_abs_error == pytest.approx(0.28)  # between 0.2 and 0.3


def test_coverage_counts_rows_inside_and_half_width_is_relative_to_the_prediction() -> None:
    found = score([scored(1.0, 1.05, 0.1), scored(1.0, 1.5, 0.2), scored(1.0, 1.0, 0.3)])
    assert found.coverage_90 == pytest.approx(2.0 / 3.0)
    assert found.half_width_90 == pytest.approx(0.2)


def test_the_edge_of_the_interval_is_inside() -> None:
    assert scored(1.1, 1.0, 0.1).inside or scored(0.9, 1.0, 0.1).inside
    assert not scored(1.2, 1.0, 0.1).inside


@pytest.mark.parametrize(
    ("observed", "counts"), [(1.03, False), (0.97, False), (1.031, True), (0.969, True), (1.0, False), (1.02, False)]
)
def test_a_sign_counts_only_beyond_three_percent(observed: float, counts: bool) -> None:
    found = score([scored(observed, 5.0)])
    assert (found.sign_accuracy is not None) == counts


def test_a_sign_is_right_when_both_are_faster_or_both_slower() -> None:
    rows = [scored(1.5, 1.01), scored(0.8, 0.99), scored(1.5, 0.99), scored(0.8, 1.01), scored(1.01, 0.5)]
    assert score(rows).sign_accuracy == pytest.approx(0.5)
    assert score([scored(1.5, 1.0)]).sign_accuracy == 0.0  # no gain predicted


def test_regret_is_what_the_chosen_draft_length_loses_against_the_best() -> None:
    rows = [scored(1.5, 1.2, k="1"), scored(2.0, 1.6, k="3"), scored(1.8, 1.9, k="5")]
    assert choice_regrets(rows) == pytest.approx([0.1])  # 1.8 instead of 2.0
    assert score(rows).best_k_regret == pytest.approx(0.1)


def test_a_right_choice_has_no_regret() -> None:
    assert choice_regrets([scored(1.5, 1.2, k="1"), scored(2.0, 1.6, k="3")]) == [0.0]


def test_draft_lengths_are_compared_at_one_load_context_and_group_only() -> None:
    pairs = [{"concurrency": "1"}, {"context_len": "16384"}, {"dataset": "another"}, {"set_id": "another"}]
    for cells in pairs:
        assert choice_regrets([scored(1.5, 1.2, k="1"), scored(2.0, 1.6, k="3", **cells)]) == []
    assert score([scored(1.5, 1.2, k="1")]).best_k_regret is None


def test_of_equal_predictions_the_shorter_draft_is_chosen() -> None:
    rows = [scored(1.0, 1.5, k="7"), scored(2.0, 1.5, k="2"), scored(1.0, 1.5, k="5")]
    assert choice_regrets(rows) == [0.0]
    assert choice_regrets([scored(2.0, 1.5, k="7"), scored(1.0, 1.5, k="2")]) == [0.5]


def test_rows_that_repeat_a_draft_length_are_one_choice_with_their_mean() -> None:
    rows = [scored(1.0, 1.5, k="3"), scored(2.0, 1.5, k="3"), scored(1.2, 1.1, k="1")]
    assert choice_regrets(rows) == [0.0]
    assert choice_regrets(rows[:2]) == []


def test_no_rows_have_no_figures_and_say_so() -> None:
    found = score([]).to_dict()
    assert found["rows"] == 0
    assert found["median_abs_error"] is None
    assert found["median_abs_error_reason"] == "no row is scored"


def test_every_missing_figure_has_a_reason_and_no_other_has() -> None:
    found = score([scored(1.01, 1.2)], intervals=False).to_dict()
    missing = {name for name, value in found.items() if value is None}
    assert missing == {"sign_accuracy", "best_k_regret", "coverage_90", "half_width_90"}
    assert {name for name in found if name.endswith("_reason")} == {f"{name}_reason" for name in missing}


def test_over_sets_every_set_counts_once() -> None:
    large = score([scored(1.0, 1.1) for _ in range(99)])
    small = score([scored(2.0, 2.6), scored(2.0, 2.6)])
    third = score([scored(1.5, 1.5)])
    found = over_sets([large, small, third])
    assert (found["sets"], found["rows"]) == (3, 102)
    assert found["median_abs_error"] == pytest.approx(0.1)
    assert found["sign_accuracy"] == 1.0  # of the two sets that tell
    assert found["best_k_regret"] is None


def test_over_no_sets_there_is_nothing() -> None:
    assert over_sets([])["rows"] == 0
    assert over_sets([])["median_abs_error"] is None
