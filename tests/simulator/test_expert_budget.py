"""An expert budget on a deployment: limits, the ceiling, the scenario, and the published gain of MoE-Spec."""

from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from hwmodel.errors import InputError
from simulator.deployment import load_deployment
from simulator.expert_budget import ExpertBudgets, expert_budgets
from simulator.predict import whatif
from simulator.summary import median

BASE: dict[str, Any] = {
    "model": {"config": "qwen3-30b-a3b-bf16"},
    "hardware": {"gpu": "a100-sxm-80gb"},
    "engine": {"version": "0.25.0"},
    "speculation": {"method": "eagle3", "num_speculative_tokens": 3, "acceptance": {"conditional": [0.7]}},
    "workload": {"concurrency": [1, 16], "input_tokens": 300, "output_tokens": 300},
}


def found(budgets: list[int], *, substitute: bool = True, **tables: dict[str, Any]) -> ExpertBudgets:
    """The answer for the base deployment with keys of its tables changed."""
    raw = {table: {**BASE.get(table, {}), **tables.get(table, {})} for table in {*BASE, *tables}}
    return expert_budgets(load_deployment(raw), budgets=budgets, substitute=substitute, num_draws=200)


@cache
def usual() -> ExpertBudgets:
    """All, half, a quarter, and top-k of the experts."""
    return found([128, 64, 32, 8])


def test_a_budget_of_all_experts_changes_nothing() -> None:
    for cell in usual().at(128):
        assert (cell.step_gain == 1.0).all()
        assert (cell.scenario_gain == 1.0).all()
    assert (usual().overall(128) == 1.0).all()


def test_smaller_budgets_make_faster_steps_up_to_the_ceiling() -> None:
    for j, load in enumerate(usual().loads):
        gains = [cell.step_gain for b in usual().budgets for cell in usual().at(b) if cell.concurrency == load]
        for larger, smaller in pairwise(gains):
            assert (smaller >= larger - 1e-12).all()
        assert gains[-1] == pytest.approx(usual().ceilings[:, j])


def test_the_scenario_never_gains_more_than_a_budget_that_loses_nothing() -> None:
    for cell in usual().cells:
        assert (cell.scenario_gain <= cell.step_gain + 1e-12).all()


def test_truncation_loses_at_least_as_much_as_substitution() -> None:
    truncated = found([32], substitute=False)
    for ours, theirs in zip(truncated.at(32), usual().at(32), strict=True):
        assert (ours.scenario_gain <= theirs.scenario_gain + 1e-12).all()


def test_the_ceiling_is_below_what_the_share_of_the_experts_allows() -> None:
    """Even if all experts of the step cost nothing, the gain of the median is 1 / (1 - share)."""
    for j in range(len(usual().loads)):
        assert median(usual().ceilings)[j] < 1.0 / (1.0 - usual().expert_share[j]) * 1.02


def test_at_acceptance_zero_a_budget_saves_step_time_and_loses_no_token() -> None:
    none = found([32], speculation={"acceptance": {"per_position": [0.0] * 3, "num_requests": 10**9}})
    for cell in none.at(32):
        saved = cell.step_gain / cell.scenario_gain
        assert saved.min() > 1.0  # only the ranking's cost is left
        assert median(saved) == pytest.approx(1.025, abs=0.01)


def test_at_acceptance_one_the_scenario_loses_tokens_with_the_gate_mass() -> None:
    all_accepted = found([32], speculation={"acceptance": {"per_position": [1.0] * 3}})
    cell = all_accepted.at(32)[1]
    assert median(cell.scenario_gain / cell.step_gain) < 1.0 / 1.025


def test_whatif_over_the_key_gives_the_gain_if_nothing_is_lost() -> None:
    deployment = load_deployment(BASE, ["workload.concurrency=16"])
    rows = whatif(deployment, {"speculation.expert_budget": [128, 32]}, num_draws=200).rows
    every, quarter = (row.prediction for row in rows)
    assert every is not None
    assert quarter is not None
    ratio = quarter.speculative.throughput_tokens_per_s / every.speculative.throughput_tokens_per_s
    assert float(median(usual().at(32)[1].step_gain)) == pytest.approx(ratio, rel=0.05)


def test_the_published_gain_over_eagle3_lies_in_the_scenario() -> None:
    """MoE-Spec, arXiv 2602.16052: 10-30 % over EAGLE-3, trees of 63 tokens, A100, Qwen3-30B-A3B, one request."""
    tree = {"num_speculative_tokens": 7, "sglang_topk": 10, "sglang_num_draft_tokens": 63}
    spec = {**tree, "acceptance": {"mean_length": 3.5, "measured_at_k": 7}}
    engine = {"name": "sglang", "version": "0.5.5"}
    answer = found([48, 32], engine=engine, speculation=spec, workload={"concurrency": [1]})
    mild, tight = (float(median(answer.at(b)[0].scenario_gain)) for b in (48, 32))
    assert 1.05 < mild < 1.30
    assert 1.10 < tight < 1.40
    assert mild < tight


def test_the_reference_case_gains_little() -> None:
    """The specification's own estimate: at most +12 % at one request, since AllReduce decides there."""
    case = load_deployment("examples/kimi-k2.5-8x-rtx-pro-6000.toml", ["speculation.method=eagle3"])
    answer = expert_budgets(case, num_speculative_tokens=3, concurrency=[1], num_draws=200)
    assert 1.02 < float(median(answer.ceilings)[0]) < 1.12


@pytest.mark.parametrize("method", ["ngram", "suffix"])
def test_lookup_drafts_are_budgeted_on_their_drafted_steps_only(method: str) -> None:
    raw = {**BASE, "speculation": {"method": method, "num_speculative_tokens": 4}}
    answer = expert_budgets(load_deployment(raw), budgets=[16], num_draws=100)
    assert (answer.ceilings >= 1.0 - 1e-12).all()
    assert np.isfinite(answer.overall(16)).all()


def test_what_cannot_be_is_a_stated_error() -> None:
    with pytest.raises(InputError, match="has no experts"):
        found([8], model={"config": "qwen3-8b-bf16"})
    with pytest.raises(InputError, match="budgets"):
        found([0])
    with pytest.raises(InputError, match="budgets"):
        found(list(range(1, 100)))
    with pytest.raises(InputError, match="num_speculative_tokens"):
        found([8], speculation={"num_speculative_tokens": 0})


def test_equal_seeds_give_equal_answers() -> None:
    assert found([32]).to_dict() == found([32]).to_dict()


def test_expert_parallelism_says_what_the_budget_means_there() -> None:
    answer = found([16], engine={"tensor_parallel_size": 4, "expert_parallel": True})
    assert any("on each rank" in note for note in answer.notes)
