"""What to deploy, by hand: objective and limits, the best length, the schedule, and what the restart is worth."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.closed_form import ArmResult, Cell
from simulator.decision import Scores, load_weights, pick_schedule, pick_static, restart_value, score
from simulator.deployment import Deployment, load_deployment

BASE: dict[str, Any] = {"model": {"config": "qwen3-8b-bf16"}, "hardware": {"gpu": "h100-sxm"}}
CELLS = [Cell(k, c) for k in (0, 3) for c in (1, 64)]


def deployment(**changes: dict[str, Any]) -> Deployment:
    """A deployment with these tables."""
    return load_deployment({**BASE, **changes})


def scores(gains: list[list[float]], lengths: tuple[int, ...], loads: tuple[int, ...], **changes: Any) -> Scores:
    """Scores that are certain: one gain for each length and load."""
    shape = (len(lengths), len(loads))
    fields: dict[str, Any] = {
        "weights": np.full(len(loads), 1 / len(loads)),
        "gain": np.tile(np.array(gains, dtype=float), (10, 1, 1)),
        "allowed": np.ones(shape, dtype=bool),
    }
    return Scores(lengths, loads, **{**fields, **changes})


def doubtful(share_better: float, gain: float = 1.3) -> Scores:
    """One length at one load that is better in a share of 100 draws, and worse in the rest."""
    draws = np.ones((100, 2, 1))
    draws[:, 1, 0] = np.where(np.arange(100) < share_better * 100, gain, 0.9)
    return Scores((0, 3), (1,), np.ones(1), draws, np.ones((2, 1), dtype=bool))


def arm_of(tpot_ms: list[float], rates: list[float], ttft_ms: float = 100.0, limits: Any = None) -> ArmResult:
    """An arm with these figures in `CELLS`' order, one draw."""
    row = np.array([rates])
    return ArmResult(
        step_s=row,
        tpot_s=np.array([tpot_ms]) * 1e-3,
        ttft_s=np.full_like(row, ttft_ms * 1e-3),
        throughput_tokens_per_s=row,
        tokens_per_step=np.ones_like(row),
        parts_s={},
        running=np.ones(len(rates)),
        limited_by=tuple(limits or ["concurrency"] * len(rates)),
    )


# At 1 user 10 ms becomes 8 ms, at 64 users 30 ms becomes 40 ms; throughput accordingly.
BASELINE = arm_of([10.0, 30.0, 10.0, 30.0], [100.0, 2000.0, 100.0, 2000.0])
SPECULATIVE = arm_of([10.0, 30.0, 8.0, 40.0], [100.0, 2000.0, 120.0, 1500.0])


def scored(*, error: float = 1.0, speculative: ArmResult = SPECULATIVE, **objective: Any) -> Scores:
    """The two arms scored by an objective; drafting cells carry a model error."""
    speedup = speculative.throughput_tokens_per_s / BASELINE.throughput_tokens_per_s * np.array([1, 1, error, error])
    goal = deployment(objective=objective) if objective else deployment()
    return score(goal, CELLS, BASELINE, speculative, speedup, (BASELINE, speculative))


def test_throughput_objective_is_the_speedup() -> None:
    found = scored(error=1.1)
    assert (found.lengths, found.loads) == ((0, 3), (1, 64))
    assert found.gain[0] == pytest.approx(np.array([[1.0, 1.0], [1.1 * 1.2, 1.1 * 0.75]]))
    assert found.overall[0] == pytest.approx([1.0, 1.1 * (1.2 + 0.75) / 2])


def test_tpot_objective_is_the_ratio_of_tpots_with_the_same_model_error() -> None:
    found = scored(error=1.1, maximise="tpot")
    assert found.gain[0] == pytest.approx(np.array([[1.0, 1.0], [1.1 * 10 / 8, 1.1 * 30 / 40]]))


def test_a_tpot_limit_forbids_the_lengths_that_break_it_at_that_load() -> None:
    assert scored(tpot_ms_max=35.0).allowed.tolist() == [[True, True], [True, False]]
    assert scored(tpot_ms_max=9.0).allowed.tolist() == [[False, False], [True, False]]


def test_a_ttft_limit_counts_too() -> None:
    assert scored(ttft_ms_max=99.0).allowed.tolist() == [[False, False], [False, False]]
    assert scored(ttft_ms_max=101.0).allowed.all()


def test_what_does_not_fit_is_not_allowed() -> None:
    heavy = arm_of(
        [10.0, 30.0, 8.0, 20.0], [100.0, 2000.0, 120.0, 2500.0], limits=["concurrency"] * 3 + ["does_not_fit"]
    )
    assert scored(speculative=heavy).allowed.tolist() == [[True, True], [True, False]]


def test_goodput_counts_only_throughput_within_the_limits() -> None:
    # Up to 35 ms: the baseline serves 100 and 2000, equally weighted; k = 3 serves 120 and, too slow, nothing.
    found = scored(maximise="goodput", tpot_ms_max=35.0)
    assert found.overall[0] == pytest.approx([1.0, 120 / 2100])


def test_goodput_of_a_baseline_that_keeps_the_limits_nowhere_is_beaten_by_anything_that_does() -> None:
    found = scored(maximise="goodput", tpot_ms_max=9.0)
    assert found.overall[0] == pytest.approx([1.0, 1 + 120 / 2100])
    assert pick_static(found, 0.8).num_speculative_tokens == 3


def test_weights_of_the_file_count_where_its_loads_are_asked() -> None:
    weighted = deployment(workload={"concurrency": [1, 64], "weights": [3.0, 1.0]})
    assert load_weights(weighted, [1, 64]) == pytest.approx([0.75, 0.25])
    assert load_weights(weighted, [1, 4, 64]) == pytest.approx([1 / 3] * 3)
    assert load_weights(deployment(workload={"concurrency": [1, 64]}), [1, 64]) == pytest.approx([0.5, 0.5])


def test_weights_stay_with_their_loads_when_the_file_lists_them_in_another_order() -> None:
    weighted = deployment(workload={"concurrency": [64, 1], "weights": [1.0, 3.0]})
    assert load_weights(weighted, [1, 64]) == pytest.approx([0.75, 0.25])


def test_overall_gain_is_the_weighted_mean() -> None:
    found = scores([[1.0, 1.0], [1.4, 0.8]], (0, 2), (1, 64), weights=np.array([0.75, 0.25]))
    assert found.overall[0] == pytest.approx([1.0, 0.75 * 1.4 + 0.25 * 0.8])


def test_largest_median_gain_is_picked() -> None:
    pick = pick_static(scores([[1.0], [1.1], [1.3], [1.2]], (0, 1, 3, 5), (1,)), 0.8)
    assert (pick.num_speculative_tokens, pick.best_enabled, pick.reason) == (3, 3, "")
    assert pick.probability_better == 1.0
    assert pick.gain == pytest.approx(np.full(10, 1.3))


def test_of_equal_gains_the_shorter_draft_is_picked() -> None:
    assert pick_static(scores([[1.0], [1.3], [1.3]], (0, 2, 6), (1,)), 0.8).num_speculative_tokens == 2


def test_a_length_that_breaks_a_limit_anywhere_is_passed_over() -> None:
    allowed = np.array([[True, True], [True, True], [True, False]])
    pick = pick_static(scores([[1.0, 1.0], [1.1, 1.1], [1.5, 1.5]], (0, 1, 3), (1, 64), allowed=allowed), 0.8)
    assert pick.num_speculative_tokens == 1


def test_nothing_is_recommended_where_nothing_is_allowed() -> None:
    allowed = np.array([[True], [False]])
    pick = pick_static(scores([[1.0], [1.5]], (0, 3), (1,), allowed=allowed), 0.8)
    assert (pick.num_speculative_tokens, pick.best_enabled) == (0, 3)
    assert pick.reason == "no draft length fits in memory and keeps the limits"


def test_nothing_is_recommended_where_nothing_is_expected_to_be_faster() -> None:
    pick = pick_static(scores([[1.0], [0.9], [0.97]], (0, 1, 3), (1,)), 0.0)
    assert (pick.num_speculative_tokens, pick.best_enabled) == (0, 3)
    assert pick.reason == "no draft length is expected to be faster"


def test_an_exact_tie_with_the_baseline_is_even_odds_and_not_recommended() -> None:
    pick = pick_static(scores([[1.0], [1.0]], (0, 3), (1,)), 0.5)
    assert (pick.num_speculative_tokens, pick.probability_better) == (0, 0.5)


def test_the_probability_asked_for_turns_a_recommendation_off() -> None:
    assert pick_static(doubtful(0.7), 0.6).num_speculative_tokens == 3
    unsure = pick_static(doubtful(0.7), 0.8)
    assert (unsure.num_speculative_tokens, unsure.best_enabled) == (0, 3)
    assert unsure.probability_better == pytest.approx(0.7)
    assert unsure.reason == "the gain is not sure enough"


def test_the_probability_asked_for_is_enough_when_just_met() -> None:
    assert pick_static(doubtful(0.8), 0.8).num_speculative_tokens == 3


def test_with_only_the_baseline_in_the_grid_there_is_nothing_to_pick() -> None:
    pick = pick_static(scores([[1.0]], (0,), (1,)), 0.8)
    assert (pick.num_speculative_tokens, pick.best_enabled) == (0, 0)
    assert np.all(pick.gain == 1.0)


def test_ranges_of_the_schedule_meet_halfway_between_loads_geometrically() -> None:
    # sqrt(1 x 16) = 4, sqrt(16 x 64) = 32; nothing pays at 64.
    found = scores([[1.0, 1.0, 1.0], [1.2, 1.3, 0.8], [1.5, 1.1, 0.6]], (0, 1, 3), (1, 16, 64))
    assert pick_schedule(found, 0, 0.8, 256) == [[1, 4, 3], [5, 32, 1], [33, 256, 0]]


def test_equal_neighbours_in_the_schedule_are_merged() -> None:
    found = scores([[1.0] * 3, [1.2, 1.3, 0.8]], (0, 2), (1, 16, 64))
    assert pick_schedule(found, 0, 0.8, 100) == [[1, 32, 2], [33, 100, 0]]


def test_schedule_ends_at_max_num_seqs() -> None:
    found = scores([[1.0] * 3, [1.2, 1.2, 0.8], [1.5, 1.1, 0.6]], (0, 1, 3), (1, 16, 64))
    assert pick_schedule(found, 0, 0.8, 3) == [[1, 3, 3]]
    assert pick_schedule(found, 0, 0.8, 20) == [[1, 4, 3], [5, 20, 1]]


def test_a_length_is_scheduled_only_where_it_is_sure_enough() -> None:
    assert pick_schedule(doubtful(0.7), 0, 0.6, 8) == [[1, 8, 3]]
    assert pick_schedule(doubtful(0.7), 0, 0.8, 8) == [[1, 8, 0]]


def test_a_length_that_is_not_allowed_at_a_load_is_not_scheduled_there() -> None:
    allowed = np.array([[True, True], [True, False]])
    found = scores([[1.0, 1.0], [1.5, 1.5]], (0, 3), (1, 16), allowed=allowed)
    assert pick_schedule(found, 0, 0.8, 64) == [[1, 4, 3], [5, 64, 0]]


def test_a_recommended_length_stays_unless_another_gains_clearly_more() -> None:
    found = scores([[1.0] * 3, [1.201, 1.4, 0.9], [1.2, 1.2, 1.2]], (0, 1, 3), (1, 16, 64))
    assert pick_schedule(found, 3, 0.5, 64) == [[1, 4, 3], [5, 32, 1], [33, 64, 3]]


def test_no_scheduled_length_exceeds_a_recommended_one() -> None:
    found = scores([[1.0] * 2, [1.2, 1.2], [1.6, 1.1]], (0, 2, 6), (1, 16))
    assert pick_schedule(found, 2, 0.5, 64) == [[1, 64, 2]]


@settings(max_examples=60)
@given(
    loads=st.sets(st.integers(1, 400), min_size=1, max_size=8),
    max_num_seqs=st.integers(1, 512),
    seed=st.integers(0, 10_000),
    static=st.sampled_from([0, 1, 3, 7]),
)
def test_schedules_are_gapless_ascending_ranges_from_one_to_the_limit(
    loads: set[int], max_num_seqs: int, seed: int, static: int
) -> None:
    gains = 1.0 + 0.3 * np.random.default_rng(seed).standard_normal((4, len(loads)))
    gains[0] = 1.0
    rows = pick_schedule(scores(gains.tolist(), (0, 1, 3, 7), tuple(sorted(loads))), static, 0.8, max_num_seqs)
    assert rows[0][0] == 1
    assert rows[-1][1] == max_num_seqs
    assert all(low <= high for low, high, _ in rows)
    assert all(after[0] == before[1] + 1 for before, after in pairwise(rows))
    assert all(after[2] != before[2] for before, after in pairwise(rows))
    assert {k for _, _, k in rows} <= {0, 1, 3, 7}


def gain_of(value: float) -> np.ndarray:
    """A certain gain."""
    return np.full(200, value)


def test_half_an_hour_is_paid_back_in_two_and_a_half_hours_at_a_fifth_more() -> None:
    # 1800 s x X lost, 0.2 X gained a second.
    value = restart_value(deployment(restart={"outage_min": 30.0}), gain_of(1.2), 1000.0)
    assert value.outage_s == 1800.0
    assert value.payback_s == pytest.approx({"p05": 9000.0, "p50": 9000.0, "p95": 9000.0})
    assert value.payback_reason is None
    assert value.expected_outage_s == 1800.0


@pytest.mark.parametrize(("speedup", "hours"), [(1.05, 10.0), (1.1, 5.0), (1.5, 1.0), (1.75, 2 / 3)])
def test_payback_hours_of_a_half_hour_outage(speedup: float, hours: float) -> None:
    payback = restart_value(deployment(restart={"outage_min": 30.0}), gain_of(speedup), 1000.0).payback_s["p50"]
    assert payback == pytest.approx(3600 * hours)


def test_a_rolling_restart_has_no_outage_but_loses_as_much_at_full_load() -> None:
    # Four times 30 minutes with a quarter of the capacity missing: 1800 s of capacity, as with one replica.
    value = restart_value(deployment(restart={"outage_min": 30.0, "replicas": 4}), gain_of(1.2), 1000.0)
    assert value.outage_s == 0.0
    assert value.payback_s["p50"] == pytest.approx(9000.0)


def test_a_rolling_restart_is_not_paid_back_before_its_last_replica_is_up() -> None:
    value = restart_value(deployment(restart={"outage_min": 10.0, "replicas": 16}), gain_of(2.0), 1000.0)
    assert value.payback_s["p50"] == pytest.approx(16 * 600.0)


def test_a_rolling_restart_with_spare_replicas_loses_nothing() -> None:
    spare = {"outage_min": 30.0, "replicas": 4, "traffic_tokens_per_s": 700.0}
    value = restart_value(deployment(restart=spare), gain_of(1.2), 1000.0)
    assert value.expected_outage_s == 0.0
    assert value.payback_s["p50"] == pytest.approx(4 * 1800.0)  # when the last one is up


def test_traffic_below_capacity_gains_waiting_time_and_says_so() -> None:
    # Lost: 1800 s of everybody's time; each second of service then takes 1 / 1.2 of a second.
    low = {"outage_min": 30.0, "traffic_tokens_per_s": 10.0}
    value = restart_value(deployment(restart=low), gain_of(1.2), 1000.0)
    assert value.payback_s["p50"] == pytest.approx(1800.0 / (1 - 1 / 1.2))
    assert "the gain is latency" in (value.payback_reason or "")


def test_traffic_between_both_capacities_limits_what_is_gained() -> None:
    between = {"outage_min": 30.0, "traffic_tokens_per_s": 1100.0}
    value = restart_value(deployment(restart=between), gain_of(1.2), 1000.0)
    assert value.payback_s["p50"] == pytest.approx(1800.0 / 0.1)


def test_a_loss_is_never_paid_back_and_says_so() -> None:
    value = restart_value(deployment(restart={"outage_min": 30.0}), gain_of(0.9), 1000.0)
    assert value.payback_s == {"p05": None, "p50": None, "p95": None}
    assert value.payback_reason == "no gain is expected, so the outage is never paid back"
    assert value.expected_outage_s == 3600.0  # there and back


def test_no_gain_at_all_is_never_paid_back() -> None:
    assert restart_value(deployment(restart={"outage_min": 30.0}), gain_of(1.0), 1000.0).payback_s["p50"] is None


def test_a_doubtful_gain_is_paid_back_in_the_middle_and_never_at_the_end() -> None:
    gain = np.where(np.arange(200) < 160, 1.2, 0.9)
    value = restart_value(deployment(restart={"outage_min": 30.0, "rollback_min": 10.0}), gain, 1000.0)
    assert value.payback_s["p50"] == pytest.approx(9000.0)
    assert value.payback_s["p95"] is None
    assert value.payback_reason == "never paid back where it turns out slower (probability 20 %)"
    assert value.expected_outage_s == pytest.approx(1800.0 + 0.2 * 600.0)


def test_without_an_outage_there_is_no_payback_but_a_reason() -> None:
    value = restart_value(deployment(), gain_of(1.2), 1000.0)
    assert (value.outage_s, value.payback_reason) == (None, "restart.outage_min is not given")
    assert value.payback_s == {"p05": None, "p50": None, "p95": None}


def test_an_outage_of_no_length_is_paid_back_at_once() -> None:
    value = restart_value(deployment(restart={"outage_min": 0.0}), gain_of(1.2), 1000.0)
    assert value.payback_s["p50"] == 0.0
