"""Routing parameters from counted experts: what was put in comes back, what is not told is said, bad rows are named."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration.routing_counts import ExpertCount, fit_routing, read_expert_counts
from hwmodel.errors import InputError
from hwmodel.experts_report import default_routing
from hwmodel.moe import Routing, expected_distinct, uniform_distinct
from simulator.deployment.keys import short

STEPS = ((2, 2), (8, 8), (32, 32), (4, 1), (16, 1), (32, 4), (128, 4))


def counted(routing: Routing, steps: tuple[tuple[int, int], ...] = STEPS) -> list[ExpertCount]:
    return [ExpertCount(t, n, expected_distinct(128, 8, t, n, routing)) for t, n in steps]


@given(st.floats(0.3, 1.6), st.floats(0.02, 0.5), st.floats(2.0, 40.0))
@settings(max_examples=8, deadline=None)
def test_counts_of_the_model_are_fitted_by_the_parameters_that_made_them(
    sigma: float, stickiness: float, memory: float
) -> None:
    counts = counted(Routing(sigma, stickiness, memory))
    found = fit_routing(128, 8, counts)
    truth = [count.distinct_experts for count in counts]
    assert found.fitted == pytest.approx(truth, rel=0.04)  # the priors pull
    assert found.value["popularity_sigma"] == pytest.approx(sigma, abs=0.2)


def test_unrelated_tokens_have_no_favourites() -> None:
    found = fit_routing(64, 8, [ExpertCount(t, n, uniform_distinct(64, 8, t)) for t, n in STEPS])
    assert found.undetermined == ()
    assert found.value["popularity_sigma"] < 0.2
    assert found.value["stickiness"] < 0.03
    assert found.value["routing_memory"] > 20.0


def test_one_token_a_request_tells_nothing_of_the_tokens_of_one_request() -> None:
    found = fit_routing(128, 8, counted(Routing(1.5, 0.5, 2.0), ((2, 2), (8, 8), (32, 32))))
    assert set(found.undetermined) >= {"stickiness", "routing_memory"}
    assert found.value["popularity_sigma"] == pytest.approx(1.5, abs=0.1)


def test_one_token_tells_nothing_and_all_priors_stay() -> None:
    found = fit_routing(128, 8, [ExpertCount(1, 1, 8.0)])
    assert len(found.undetermined) == 3
    assert found.value["popularity_sigma"] == pytest.approx(0.9, abs=0.05)


def test_rows_are_read_whatever_other_columns_there_are(tmp_path: Path) -> None:
    path = tmp_path / "counts.csv"
    path.write_text("layer,tokens,requests,distinct_experts\n3,6,1,35.2\n3, 24 ,4,61\n")
    assert read_expert_counts(str(path), 64, 8) == (ExpertCount(6, 1, 35.2), ExpertCount(24, 4, 61.0))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("6,1,7", "line 2: got 7 distinct experts, allowed: 8 to 48 for 6 tokens"),
        ("6,1,49", "got 49 distinct experts"),
        ("100,1,65", "allowed: 8 to 64"),
        ("2,3,16", "line 2: 3 requests with 2 tokens"),
        ("0,1,8", "line 2: tokens: got 0"),
        ("1.5,1,8", "line 2: tokens: got 1.5"),
        ("6,1,", "line 2: distinct_experts: got ''"),
        ("6,1,nan", "line 2: distinct_experts: got 'nan'"),
        ("6,1,inf", "line 2: distinct_experts: got 'inf'"),
        ("6,many,30", "line 2: requests: got 'many'"),
        ("6,1,35,2", "line 2: got 4 cells, allowed: 3, as in the header"),
        ("6,1,35,", "line 2: got 4 cells, allowed: 3"),
    ],
)
def test_an_impossible_row_is_named_with_what_is_allowed(row: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "counts.csv"
    path.write_text(f"tokens,requests,distinct_experts\n{row}\n")
    with pytest.raises(InputError) as raised:
        read_expert_counts(str(path), 64, 8)
    assert message in str(raised.value)
    assert str(raised.value).startswith(f"'{short(str(path), 200)}' line 2: ")
    assert "\n" not in str(raised.value)


def test_a_file_without_the_columns_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "counts.csv"
    path.write_text("concurrency,tpot_ms\n1,13.6\n")
    with pytest.raises(InputError, match="lacks the column tokens"):
        read_expert_counts(str(path), 64, 8)


def test_blank_lines_count_where_a_bad_row_is_named(tmp_path: Path) -> None:
    path = tmp_path / "counts.csv"
    path.write_text("tokens,requests,distinct_experts\n\n6,1,35\n\n6,1,99\n")
    with pytest.raises(InputError, match="line 5: got 99 distinct experts"):
        read_expert_counts(str(path), 64, 8)


@pytest.mark.parametrize(("mark", "name"), [(";", "semicolons"), ("\t", "tabs"), ("|", "bars")])
def test_a_file_with_other_separators_is_told_to_use_commas(mark: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / "counts.csv"
    path.write_text(f"tokens{mark}requests{mark}distinct_experts\n6{mark}1{mark}35,2\n")
    with pytest.raises(InputError, match=f"apart by {name}, allowed: commas, and a point in numbers"):
        read_expert_counts(str(path), 64, 8)


def test_a_file_of_one_other_column_is_not_told_about_separators(tmp_path: Path) -> None:
    path = tmp_path / "counts.csv"
    path.write_text("concurrency\n1\n")
    with pytest.raises(InputError, match=r"needed: tokens, requests, distinct_experts$"):
        read_expert_counts(str(path), 64, 8)


@pytest.mark.parametrize(
    "steps", [((1, 1),), ((2, 2), (8, 8), (32, 32)), ((4, 1),), ((4, 1), (8, 1)), STEPS], ids=lambda s: f"{len(s)} rows"
)
@pytest.mark.parametrize("routing", [Routing(1.2, 0.4, 3.0), Routing(0.5, 0.05, 30.0)])
def test_what_the_counts_do_not_tell_has_the_value_of_its_prior(
    steps: tuple[tuple[int, int], ...], routing: Routing
) -> None:
    found = fit_routing(128, 8, counted(routing, steps))
    centre = default_routing()
    for name in found.undetermined:
        assert found.value[name] == pytest.approx(getattr(centre, name))
    truth = [count.distinct_experts for count in counted(routing, steps)]
    assert found.fitted == pytest.approx(truth, rel=0.06)


def test_counts_that_only_two_parameters_together_explain_leave_one_of_them_told() -> None:
    # One row of one request: the parameters stand in for each other, but cannot all stay at their priors.
    found = fit_routing(128, 8, [ExpertCount(16, 1, 60.0)])
    assert 0 < len(found.undetermined) < 3
    assert found.fitted[0] == pytest.approx(60.0, rel=0.05)


def test_a_layer_that_reads_fewer_experts_is_not_taken_for_one_that_reads_more() -> None:
    spread, narrow = (fit_routing(128, 8, counted(Routing(sigma, 0.1, 20.0))) for sigma in (0.4, 1.4))
    assert np.all(np.array(spread.fitted) > np.array(narrow.fitted))
    assert not any(math.isnan(value) for value in (*spread.fitted, *narrow.fitted))
