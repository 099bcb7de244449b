"""Speedups from step ratios and acceptance: identities by hand, intervals that shrink with what is seen."""

import numpy as np
import pytest
from published_rows import rows, sweep

from calibration.published.group_fit import Cells, fit_candidates
from calibration.published.prediction import Seen, SpeedupPrediction, predict_group
from calibration.published.rows import PublishedRow
from calibration.published.systems import candidates


def predicted(
    group: list[PublishedRow], seen: Seen, *, baseline: bool = True, intervals: bool = True
) -> SpeedupPrediction:
    """The prediction of every row of a group."""
    cells = Cells.of(group, with_baseline=baseline)
    return predict_group(fit_candidates(candidates(group), cells), group, cells, seen, intervals=intervals)


GROUP = rows(*sweep())
TOLD = Seen({3: (0, 1, 2)}, {})


def test_speedup_is_tokens_per_step_over_the_step_ratio() -> None:
    found = predicted(GROUP, TOLD)
    assert found.speedup == pytest.approx(found.tokens_per_step / found.step_ratio)
    assert found.tokens_per_step == pytest.approx(2.4)


def test_told_lengths_of_one_draft_length_are_pooled() -> None:
    group = rows({"mean_accepted_len": "2.0"}, {"mean_accepted_len": "2.88", "concurrency": "16"})
    assert predicted(group, Seen({3: (0, 1)}, {})).tokens_per_step == pytest.approx(2.4)  # geometric mean


def test_a_calibrated_length_reproduces_the_row_that_calibrates_it() -> None:
    found = predicted(GROUP, Seen({}, {3: (0,)}))
    assert found.speedup[0] == pytest.approx(1.5)
    assert found.tokens_per_step[0] == pytest.approx(1.5 * found.step_ratio[0])


def test_a_calibrated_length_stays_between_one_and_the_draft_length_plus_one() -> None:
    for speedup, length in (("0.05", 1.0), ("9", 4.0)):
        group = rows(*sweep(speedup=speedup))
        assert predicted(group, Seen({}, {3: (0,)})).tokens_per_step == pytest.approx(length)


def test_draft_lengths_without_acceptance_are_undefined_and_the_others_are_not() -> None:
    group = rows({"k": "3"}, {"k": "5"})
    speedup = predicted(group, Seen({3: (0,)}, {})).speedup
    assert np.isfinite(speedup).tolist() == [True, False]


def test_the_interval_holds_the_prediction_and_is_open() -> None:
    found = predicted(GROUP, TOLD)
    assert np.all(found.p05 < found.speedup)
    assert np.all(found.speedup < found.p95)


def test_without_intervals_the_prediction_is_the_same() -> None:
    quick = predicted(GROUP, TOLD, intervals=False)
    assert quick.speedup == pytest.approx(predicted(GROUP, TOLD).speedup)
    assert np.array_equal(quick.p05, quick.p95)


def test_without_a_baseline_the_interval_is_wider() -> None:
    seen, blind = (predicted(GROUP, TOLD, baseline=known) for known in (True, False))
    assert np.median(blind.p95 / blind.p05) > np.median(seen.p95 / seen.p05)


def test_an_anchor_pulls_its_group_towards_itself_and_narrows_it() -> None:
    free = predicted(GROUP, TOLD)
    high = rows(*({**each, "speedup": str(1.15 * free.speedup[0])} for each in sweep()))
    anchored = predicted(high, Seen({3: (0, 1, 2)}, {}, anchors=(0,)))
    assert anchored.speedup[0] == pytest.approx(1.15 * free.speedup[0], rel=0.02)
    moved = anchored.speedup[1:] / free.speedup[1:]
    assert np.all((moved > 1.0) & (moved < 1.15))
    assert np.all(anchored.p95[1:] / anchored.p05[1:] < free.p95[1:] / free.p05[1:])


def test_the_same_rows_give_the_same_figures_every_time() -> None:
    one, other = predicted(GROUP, TOLD), predicted(GROUP, TOLD)
    assert np.array_equal(one.p05, other.p05)
    assert np.array_equal(one.speedup, other.speedup)


def test_longer_drafts_cost_more() -> None:
    group = rows(*({"k": str(k)} for k in range(1, 8)))
    ratios = predicted(group, Seen({k: (k - 1,) for k in range(1, 8)}, {})).step_ratio
    assert np.all(np.diff(ratios) > 0.0)
    assert ratios[0] > 1.0


def test_text_lookup_verifies_only_what_it_drafts() -> None:
    # a length of 1.1 of n-gram drafts means that few steps had a draft, so few rows were verified
    seldom, often = (
        predicted(rows(*sweep((16, 64, 128), method="ngram", mean_accepted_len=length)), TOLD).step_ratio
        for length in ("1.1", "1.9")
    )
    assert np.all(seldom < often)
    assert np.all(seldom < 1.5)
