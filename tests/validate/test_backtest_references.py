"""The two simple references, by hand on a sweep whose baseline step is 1, 2, 4 at 1, 4, 16 requests."""

import numpy as np
import pytest
from published_rows import rows

from calibration.published.group_fit import Cells
from calibration.published.prediction import Seen
from validate.backtest.references import interpolated_ratio, reference_speedups

# Steps of 10, 20 and 40 ms: the step grows with the square root of the requests.
SWEEP = rows(
    {"concurrency": "1", "baseline": "100"},
    {"concurrency": "4", "baseline": "200"},
    {"concurrency": "16", "baseline": "400"},
)


def ratio(concurrency: str, k: str, **cells: str) -> float:
    """The interpolated step ratio of one cell."""
    one = Cells.of(rows({"concurrency": concurrency, "k": k, **cells}), with_baseline=True)
    return float(np.exp(interpolated_ratio(one, Cells.of(SWEEP, with_baseline=True))[0]))


def test_verification_costs_what_as_many_requests_cost() -> None:
    assert ratio("1", "3") == pytest.approx(2.0)  # 4 rows
    assert ratio("4", "3") == pytest.approx(2.0)  # 16 rows
    assert ratio("1", "1") == pytest.approx(np.sqrt(2.0))  # 2 rows, between two points


def test_beyond_the_sweep_the_last_slope_goes_on() -> None:
    assert ratio("16", "3") == pytest.approx(2.0)  # 64 rows: 80 ms


def test_another_context_has_no_sweep_and_no_cost() -> None:
    assert ratio("1", "3", context_len="32768") == pytest.approx(1.0)


def test_one_point_alone_is_flat() -> None:
    one = Cells.of(rows({"concurrency": "4", "k": "7", "baseline": "200"}), with_baseline=True)
    assert interpolated_ratio(one, one)[0] == 0.0


def test_repeated_loads_are_one_point() -> None:
    twice = Cells.of([*SWEEP, *rows({"concurrency": "4", "baseline": "220"})], with_baseline=True)
    one = Cells.of(rows({"concurrency": "1", "k": "3"}), with_baseline=True)
    assert np.exp(interpolated_ratio(one, twice)[0]) == pytest.approx(2.0)


def test_speedup_is_the_pooled_length_over_the_ratio() -> None:
    group = tuple(rows({"mean_accepted_len": "2.0"}, {"mean_accepted_len": "4.5", "k": "4"}))
    found = reference_speedups(group, np.log([2.0, 1.5]), Seen({3: (0,), 4: (1,)}, {}))
    assert found.tolist() == pytest.approx([1.0, 3.0])


def test_free_verification_is_the_length_itself() -> None:
    group = tuple(rows({"mean_accepted_len": "2.0"}, {"mean_accepted_len": "2.88"}))
    assert reference_speedups(group, np.zeros(2), Seen({3: (0, 1)}, {})).tolist() == pytest.approx([2.4, 2.4])


def test_acceptance_is_fitted_to_the_calibrating_row_under_the_references_own_ratio() -> None:
    group = tuple(rows({"speedup": "1.5"}, {"speedup": "9", "concurrency": "16"}))
    found = reference_speedups(group, np.log([2.0, 1.25]), Seen({}, {3: (0,)}))
    assert found.tolist() == pytest.approx([1.5, 2.4])  # a length of 3 over 2 and over 1.25


def test_a_fitted_length_is_possible() -> None:
    group = tuple(rows({"speedup": "1.5"}, {"concurrency": "16"}))
    assert reference_speedups(group, np.log([10.0, 1.0]), Seen({}, {3: (0,)}))[1] == pytest.approx(4.0)


def test_without_acceptance_there_is_no_speedup() -> None:
    assert np.isnan(reference_speedups(tuple(rows({})), np.zeros(1), Seen({}, {}))[0])
