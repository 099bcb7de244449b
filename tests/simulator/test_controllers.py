"""What deciding the draft length is worth: limits, order of the ways, vLLM's and SGLang's rules, switching costs."""

from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from hwmodel.errors import InputError
from simulator.adaptive import adaptive
from simulator.comparison import Comparison, compare_lengths
from simulator.controllers import off, optimal, sglang_adaptive, static, vllm_schedule
from simulator.deployment import Deployment, load_deployment
from simulator.serving.policies import sglang_candidates
from simulator.serving.run import simulate
from simulator.switching import switchable, undrafted

BASE: dict[str, Any] = {
    "model": {"config": "qwen3-30b-a3b-bf16"},
    "hardware": {"gpu": "h100-sxm"},
    "engine": {"version": "0.25.0"},
    "speculation": {"method": "eagle3", "acceptance": {"conditional": [0.75]}},
    "workload": {"concurrency": [1, 8, 64], "input_tokens": 500, "output_tokens": 500},
}


def deployment(**changes: dict[str, Any]) -> Deployment:
    """The base deployment with keys of its tables changed."""
    return load_deployment({table: {**BASE.get(table, {}), **changes.get(table, {})} for table in {*BASE, *changes}})


def compare(**changes: dict[str, Any]) -> Comparison:
    """All lengths at the loads of the deployment."""
    return compare_lengths(deployment(**changes), num_draws=200, seed=0)


@cache
def usual() -> Comparison:
    """The base deployment's comparison."""
    return compare()


def test_no_speculation_gains_nothing_and_static_zero_is_the_same() -> None:
    assert (off(usual()).gain == 1.0).all()
    assert (static(usual(), 0).gain == 1.0).all()
    assert (static(usual(), 0).tpot_gain == 1.0).all()


def test_static_gain_is_the_speedup_of_its_cells() -> None:
    index = usual().lengths.index(3)
    assert static(usual(), 3).gain == pytest.approx(usual().gain[:, index])


def test_the_bound_is_never_below_any_other_way_in_any_draw() -> None:
    bound = optimal(usual()).gain
    for control in (off(usual()), vllm_schedule(usual()), sglang_adaptive(usual()), static(usual(), 3)):
        assert (bound >= control.gain - 1e-9).all(), control.name


def test_at_acceptance_zero_every_way_that_can_stops_drafting_and_the_bound_is_the_baseline() -> None:
    found = compare(speculation={"acceptance": {"per_position": [0.0], "num_requests": 10**9}})
    assert found.best_static == 0
    assert vllm_schedule(found).lengths == (0, 0, 0)
    assert np.median(optimal(found).gain) == pytest.approx(1.0, abs=1e-3)
    assert (static(found, 3).overall(found.scores.weights) < 1.0).all()


def test_at_acceptance_one_the_longest_draft_is_best_at_one_request() -> None:
    found = compare(speculation={"acceptance": {"per_position": [1.0] * 8}}, workload={"concurrency": [1]})
    assert found.best_static == 8
    assert vllm_schedule(found).lengths == (8,)
    assert optimal(found).gain == pytest.approx(static(found, 8).gain, rel=1e-6)


def test_the_bound_exceeds_the_best_length_more_where_requests_differ_more() -> None:
    def lead(heterogeneity: float) -> float:
        spec = {"acceptance": {"conditional": [0.75], "heterogeneity": heterogeneity}}
        found = compare(speculation=spec)
        return float(np.median(optimal(found).gain / found.gain.max(axis=1)))

    alike, mixed, apart = lead(1e6), lead(12.0), lead(1.0)
    assert alike == pytest.approx(1.0, abs=1e-3)
    assert 1.0 < mixed < apart


def test_a_step_without_drafts_of_a_speculating_engine_is_slower_than_the_baseline() -> None:
    idle = undrafted(usual().study, 8, usual().loads)
    assert (idle.step_s > usual().baseline.step_s).all()


def test_an_engine_that_keeps_full_graphs_switches_at_no_cost_but_for_undrafted_steps() -> None:
    free = switchable(usual(), keeps_full_graphs=True)
    assert free.gain[:, 1:] == pytest.approx(usual().gain[:, 1:])
    assert (free.gain[:, 0] < 1.0).all()


def test_losing_full_graphs_costs_every_length_something() -> None:
    full = compare(engine={"attention_backend": "FLASH_ATTN", "model_runner": "v1"})
    assert full.study.system.mode(3).uniform_decode_graph == "full"
    lost = switchable(full, keeps_full_graphs=False)
    assert (lost.gain[:, 1:] <= full.gain[:, 1:] + 1e-9).all()
    assert lost.gain[:, 1:].mean() < full.gain[:, 1:].mean()


def test_a_schedule_drafts_less_where_compute_is_short_and_covers_all_batches() -> None:
    found = vllm_schedule(
        compare(
            model={"config": "qwen3-8b-bf16"},
            hardware={"gpu": "rtx-4090"},
            engine={"version": "0.25.0", "max_num_seqs": 512, "tensor_parallel_size": 2},
            workload={"concurrency": [1, 16, 256], "input_tokens": 50, "output_tokens": 50},
        )
    )
    lengths = [k or 0 for k in found.lengths]
    assert lengths[0] > lengths[2]
    ranges = found.schedule
    assert (ranges[0][0], ranges[-1][1]) == (1, 512)
    assert all(low == last + 1 for (_, last, _), (low, _, _) in pairwise(ranges))


def test_a_schedule_may_be_told_to_draft_always() -> None:
    found = compare(speculation={"acceptance": {"per_position": [0.0]}})
    assert set(vllm_schedule(found, minimum=1).lengths) == {1}


@pytest.mark.parametrize(("conditional", "alone"), [(0.0, 1), (0.65, 3), (1.0, 7)])
def test_sglang_settles_where_its_rules_hold(conditional: float, alone: int) -> None:
    exact = {"conditional": [conditional] * 8, "num_requests": 10**9, "heterogeneity": 1e6}
    found = compare(speculation={"acceptance": exact}, workload={"concurrency": [1, 8, 64]})
    lengths = sglang_adaptive(found).lengths
    assert lengths[0] == alone
    assert all(k in sglang_candidates(c) for k, c in zip(lengths, found.loads, strict=True) if k is not None)
    assert lengths[2] == 0  # from 64 requests on it never drafts


def test_sglang_of_the_closed_form_agrees_with_the_simulated_controller() -> None:
    spec = {"acceptance": {"conditional": [0.9], "num_requests": 10**6, "heterogeneity": 1e6}}
    engine = {"name": "sglang", "version": "0.5.23"}
    base = deployment(speculation=spec, workload={"concurrency": [4]}, engine=engine)
    control = sglang_adaptive(compare_lengths(base, num_draws=200, seed=0))
    asked = deployment(speculation={**spec, "policy": "sglang-adaptive"}, workload={"concurrency": [4]}, engine=engine)
    ratio = simulate(asked, num_requests=40, seed=0).speedup["speedup"]["p50"]
    assert float(np.median(control.gain)) == pytest.approx(ratio, rel=0.06)


def test_what_is_reported_is_relative_to_off_and_to_the_best_static_length() -> None:
    found = adaptive(deployment(), num_draws=200).to_dict()
    by_name = {c["name"]: c for c in found["controllers"]}
    assert list(by_name) == ["off", "static", "vllm-schedule", "sglang-adaptive", "optimal"]
    assert by_name["static"]["num_speculative_tokens"] == found["best_static"]
    assert by_name["static"]["versus_static"] == {"p05": 1.0, "p50": 1.0, "p95": 1.0}
    assert by_name["off"]["speedup"]["p50"] == 1.0
    assert [row["concurrency"] for row in by_name["off"]["by_load"]] == [1, 8, 64]
    assert not by_name["optimal"]["available"]


def test_a_version_without_schedules_says_so_and_still_hands_out_the_text_for_one_that_has_them() -> None:
    load = {"concurrency": [1, 16, 256], "output_tokens": 200}
    spec = {"acceptance": {"conditional": [0.6]}}
    found = adaptive(deployment(engine={"version": "0.16.0"}, workload=load, speculation=spec), num_draws=200).to_dict()
    schedule = next(c for c in found["controllers"] if c["name"] == "vllm-schedule")
    assert not schedule["available"]
    assert "0.16.0" in schedule["reason"]
    assert "num_speculative_tokens_per_batch_size" in schedule["flag"]
    assert "0.24" in schedule["flag_needs"]


@pytest.mark.parametrize(
    ("version", "available", "word"),
    [("0.5.5", False, "has no"), ("0.5.10", True, "not looked at"), ("0.5.23", True, None)],
)
def test_sglang_versions_are_told_apart(version: str, available: bool, word: str | None) -> None:
    found = adaptive(deployment(engine={"name": "sglang", "version": version}), num_draws=100).to_dict()
    own = next(c for c in found["controllers"] if c["name"] == "sglang-adaptive")
    assert own["available"] is available
    assert own["flag"].endswith("--speculative-adaptive")
    assert own["reason"] is None if word is None else word in own["reason"]


@pytest.mark.parametrize("method", ["ngram", "suffix", "draft_model"])
def test_sglang_is_left_out_for_drafts_that_it_does_not_adapt(method: str) -> None:
    spec = {"method": method, "acceptance": None, "draft_model": "qwen3-0.6b-bf16" if method == "draft_model" else None}
    stated = {key: value for key, value in spec.items() if value is not None}
    raw = {**BASE, "speculation": stated}
    found = adaptive(load_deployment(raw), num_draws=100).to_dict()
    assert [row["name"] for row in found["left_out"]] == ["sglang-adaptive"]
    assert method in found["left_out"][0]["reason"]


def test_nothing_to_decide_is_a_stated_error() -> None:
    with pytest.raises(InputError, match=r"speculation\.method"):
        compare_lengths(load_deployment({**BASE, "speculation": {"method": "none"}}), num_draws=100, seed=0)
    with pytest.raises(InputError, match="at least one length"):
        compare_lengths(deployment(), [0], num_draws=100, seed=0)


def test_equal_seeds_give_equal_answers() -> None:
    first, second = (adaptive(deployment(), num_draws=100, seed=3).to_dict() for _ in range(2))
    assert first == second
