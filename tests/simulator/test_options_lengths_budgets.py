"""Draft lengths at run time, expert budgets and the next measurement as options on top of a drafter."""

from functools import cache
from typing import Any

import pytest

from simulator.deployment import apply_overrides, load_deployment
from simulator.options import budgets, drafters, lengths, training
from simulator.options.next_measurement import most_valuable, worth_of_measurements
from simulator.options.record import Option
from simulator.options.situation import Situation

MOE: dict[str, Any] = {
    "model": {"config": "qwen3-30b-a3b-bf16"},
    "hardware": {"gpu": "a100-sxm-80gb"},
    "engine": {"version": "0.25.0"},
    "speculation": {"method": "eagle3", "acceptance": {"conditional": [0.6]}},
    "workload": {"concurrency": [1, 16, 128], "input_tokens": 300, "output_tokens": 300},
    "restart": {"outage_min": 20.0},
}


def situation(**tables: dict[str, Any]) -> Situation:
    """The deployment with keys of its tables changed, as the options see it."""
    raw = {table: {**MOE.get(table, {}), **tables.get(table, {})} for table in {*MOE, *tables}}
    deployment = load_deployment(raw)
    return Situation(deployment, tuple(deployment.workload.concurrency), 200, 0)


@cache
def usual() -> tuple[Situation, Option]:
    """The base deployment and its own drafter as an option."""
    own = situation()
    return own, next(o for o in drafters.options(own) if o.name == "eagle3, as in the file")


def dense() -> tuple[Situation, Option]:
    """A dense model on a small GPU, where high load is short of compute."""
    own = situation(
        model={"config": "qwen3-8b-bf16"},
        hardware={"gpu": "rtx-4090"},
        engine={"version": "0.25.0", "tensor_parallel_size": 2},
        workload={"concurrency": [1, 16, 256], "input_tokens": 50, "output_tokens": 50},
    )
    return own, next(o for o in drafters.options(own) if o.name == "eagle3, as in the file")


def test_a_budget_is_an_option_with_a_lossy_risk_and_a_patch_to_make() -> None:
    own, drafter = usual()
    (option,) = budgets.options(own, drafter)
    assert option.kind == "expert budget"
    assert option.risk.level == "lossy"
    assert option.time_to_benefit_s is None
    assert any("patch" in need.text for need in option.needs)
    assert any(note.startswith("Ceiling") for note in option.notes)
    assert option.by_load[0].concurrency == 1
    assert option.to_dict()["changes"][-1].startswith("speculation.expert_budget=")


def test_a_dense_model_has_no_budget_to_set() -> None:
    assert list(budgets.options(*dense())) == []


def test_a_schedule_is_an_option_where_it_adds_something_and_can_be_pasted() -> None:
    own, drafter = dense()
    (option,) = lengths.options(own, drafter)
    assert option.kind == "draft length"
    assert option.risk == drafter.risk
    assert (option.gain["p50"] or 0.0) > (drafter.gain["p50"] or 0.0)
    assert any("num_speculative_tokens_per_batch_size" in note for note in option.notes)
    schedule = apply_overrides(own.deployment, option.changes).speculation.schedule
    assert schedule is not None
    assert schedule[0][0] == 1


def test_an_older_engine_needs_a_newer_one_for_the_schedule() -> None:
    own = situation(
        model={"config": "qwen3-8b-bf16"},
        hardware={"gpu": "rtx-4090"},
        engine={"version": "0.16.0", "tensor_parallel_size": 2},
        workload={"concurrency": [1, 16, 256], "input_tokens": 50, "output_tokens": 50},
    )
    drafter = next(o for o in drafters.options(own) if o.name == "eagle3, as in the file")
    for option in lengths.options(own, drafter):
        assert option.needs[-1].kind == "software"
        assert "0.24" in option.needs[-1].text


@pytest.mark.parametrize("make", [lengths.options, budgets.options])
def test_an_option_that_moves_the_baseline_or_drafts_nothing_is_left_alone(make: Any) -> None:
    own, drafter = usual()
    assert list(make(own, drafter._replace(changes=("engine.async_scheduling=true", *drafter.changes)))) == []
    assert list(make(own, drafter._replace(num_speculative_tokens=0))) == []


def test_the_next_measurement_is_the_one_worth_most_and_says_what_it_saves() -> None:
    own, drafter = usual()
    best = most_valuable(own, [drafter])
    found = worth_of_measurements(own, [drafter])
    assert found is not None
    if best is not None:
        assert any(e.measurement.text in best.text for e in found.experiments)
        assert "regret" in best.text


def test_nothing_to_choose_among_is_nothing_to_measure() -> None:
    own, _ = usual()
    assert most_valuable(own, []) is None
    assert worth_of_measurements(own, []) is None


def test_each_method_enters_once_with_its_best_drafter() -> None:
    own, drafter = usual()
    worse = drafter._replace(name="worse", gain={"p05": 0.1, "p50": 0.2, "p95": 0.3})
    found = worth_of_measurements(own, [worse, drafter])
    assert found is not None
    assert {method for method, k in found.choices if k} == {"eagle3"}


def test_a_rented_training_is_paid_back_in_money_or_not_said_to_be() -> None:
    # The restart alone is not what a head costs: without prices there is no payback, dearer renting takes longer.
    tables = {"model": {"config": "qwen3-8b-bf16"}, "hardware": {"gpu": "h100-sxm"}, "engine": {"version": "0.25.0"},
              "workload": {"concurrency": [1, 16]}, "restart": {"outage_min": 8.0}}  # fmt: skip
    situation = Situation(load_deployment(tables), (1, 16), 100, 0)

    def paid(prices: dict[str, float]) -> tuple[float | None, str | None]:
        option = next(iter(training.options(situation, prices)))
        return option.payback_s["p50"], option.payback_reason

    assert paid({}) == (None, "needs the price of both the rented and the serving GPUs")
    own = {"h100-sxm": 2.0}
    cheap, dear = (paid({**own, **{gpu: price for gpu in training.RENTED}})[0] for price in (2.0, 8.0))
    assert cheap is not None
    assert dear == pytest.approx(4 * cheap)
