"""The schedule that `choose` recommends pays for switching and for undrafted steps, as that of `adaptive` does."""

from typing import Any

import numpy as np
import pytest

from simulator.choose import choose
from simulator.comparison import Comparison, compare_lengths
from simulator.controllers import vllm_schedule
from simulator.decision import Pick, pick_static
from simulator.deployment import load_deployment
from simulator.schedule import scheduled

BASE: dict[str, Any] = {
    "model": {"config": "qwen3-8b-bf16"},
    "hardware": {"gpu": "rtx-4090", "num_gpus": 2},
    "engine": {"version": "0.25.0", "max_num_seqs": 512, "tensor_parallel_size": 2},
    "speculation": {
        "method": "eagle3",
        "acceptance": {"conditional": [0.55], "num_requests": 10**9, "heterogeneity": 1e6},
    },
    "workload": {"concurrency": [1, 16, 200], "input_tokens": 50, "output_tokens": 50},
    "restart": {"outage_min": 10.0},
}


def compare(**changes: dict[str, Any]) -> tuple[Comparison, Pick]:
    tables = {table: {**BASE.get(table, {}), **changes.get(table, {})} for table in {*BASE, *changes}}
    found = compare_lengths(load_deployment(tables), num_draws=200, seed=0)
    return found, pick_static(found.scores, found.study.deployment.objective.min_probability_faster)


def test_a_schedule_is_worth_what_adaptive_says_of_the_same_lengths() -> None:
    found, pick = compare()
    ours, theirs = scheduled(found, pick), vllm_schedule(found)
    assert [tuple(row) for row in ours.ranges or []] == list(theirs.schedule)
    assert ours.gain == pytest.approx(theirs.overall(found.scores.weights))


def test_a_load_that_drafts_nothing_under_a_schedule_is_slower_than_the_baseline() -> None:
    found, pick = compare(speculation={"num_speculative_tokens": 8})
    off = Pick(0, pick.best_enabled, pick.probability_better, pick.gain, "")
    by_load = vllm_schedule(found)
    assert by_load.lengths[0]
    assert by_load.lengths[-1] == 0
    assert (by_load.gain[:, -1] < 1.0).all()
    ours = scheduled(found, off)
    assert ours.gain is None or np.median(ours.gain) < np.median(np.maximum(by_load.gain, 1.0) @ found.scores.weights)


def test_traffic_that_hardly_drafts_is_not_worth_a_schedule() -> None:
    # At load 200 nothing pays, and it is all but the whole traffic: what 1 request gains is less than that costs.
    found, pick = compare(workload={"concurrency": [1, 200], "weights": [0.001, 0.999]})
    assert pick.num_speculative_tokens == 0
    ours = scheduled(found, pick)
    assert ours.ranges is None
    assert "not surely more than leaving it off" in (ours.reason or "")


def test_without_one_length_for_all_the_figures_and_the_payback_are_the_schedules() -> None:
    tables = {**BASE, "workload": {**BASE["workload"], "concurrency": [1, 200], "weights": [0.35, 0.65]}}
    tables["speculation"] = {"method": "eagle3", "acceptance": {"conditional": [0.7], "num_requests": 10**9}}
    tables["engine"] = {**BASE["engine"], "max_num_seqs": 512}
    found = choose(load_deployment(tables), num_speculative_tokens=[0, 7], num_draws=200)
    advice = found.recommendation
    assert advice.schedule is not None
    assert advice.schedule[-1][2] == 0
    assert advice.why.startswith("Enable eagle3 only by batch size")
    assert advice.gain == advice.schedule_gain
    assert advice.gain["p50"] is not None
    assert advice.gain["p50"] > 1.0
    assert found.restart["payback_s"]["p50"] is not None


def test_a_schedule_never_gains_less_than_the_length_that_it_replaces() -> None:
    for conditional in (0.4, 0.6, 0.8, 0.95):
        found, pick = compare(speculation={"acceptance": {"conditional": [conditional]}})
        ours = scheduled(found, pick)
        if ours.gain is not None and pick.num_speculative_tokens:
            assert np.median(ours.gain / pick.gain) > 1.0
