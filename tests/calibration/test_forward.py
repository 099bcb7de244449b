"""The forward model answers what `predict` answers, under the conditions of each measurement."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from profiles import BOX, box

from calibration.coordinates import coordinates_of, normal_coordinates
from calibration.discrepancy import OFFSET, residual_coordinates
from calibration.forward import Forward, nuisance_name
from calibration.questions import Question, Setting
from hwmodel.residual import NUM_LOG_FACTORS, ROW_KNOTS
from simulator.closed_form import Cell
from simulator.deployment import load_deployment
from simulator.predict import predict
from simulator.study import build_study
from simulator.system import build_system

BASE = Setting("eagle3", 0, 1000, 1000)
DRAFTED = Setting("eagle3", 3, 1000, 1000)


def question(quantity: Any, requests: float, setting: Setting = BASE, **changes: Any) -> Question:
    """What a cell of the box's own workload would ask."""
    known = Question("x", quantity, 1.0, 0.02, setting, requests, 1500.0, with_prompts=requests > 1)
    return replace(known, **changes)


def answers(*questions: Question, y: np.ndarray | None = None) -> np.ndarray:
    """What the box says, at the priors' medians or at `y` beyond the parameters."""
    system = build_system(box())
    coordinates = coordinates_of(system.priors) + residual_coordinates(0.05, 0.05)
    nuisances = dict.fromkeys(q.setting for q in questions if q.tokens_per_step is None)
    for setting in nuisances:
        coordinates = coordinates + normal_coordinates((nuisance_name(setting),), np.array([[0.2]]))
    at = coordinates.mean.copy()
    if y is not None:
        at[len(system.priors.priors) :] = y
    return Forward(system, questions, coordinates).predict(at[None, :])[0]


def test_times_and_throughput_are_those_of_predict() -> None:
    for concurrency in (1, 8):
        told = predict(box(), num_speculative_tokens=3, concurrency=concurrency, num_draws=100)
        per_step = told.speculative.tokens_per_step
        found = answers(
            question("tpot", concurrency),
            question("throughput", concurrency, with_prompts=True),
            question("tpot", concurrency, DRAFTED, tokens_per_step=per_step, with_prompts=True),
            question("step", concurrency, DRAFTED, tokens_per_step=per_step, with_prompts=False),
        )
        alone = concurrency == 1
        assert found[1] == pytest.approx(np.log(told.baseline.throughput_tokens_per_s), abs=1e-6)
        assert found[2] == pytest.approx(np.log(told.speculative.tpot_s), abs=1e-6)
        assert found[3] == pytest.approx(np.log(told.speculative.step_s), abs=1e-6)
        assert found[0] == pytest.approx(np.log(told.baseline.step_s if alone else told.baseline.tpot_s), abs=1e-6)


def test_share_of_allreduce_is_that_of_the_parts() -> None:
    parts = predict(box(), concurrency=1, num_draws=100).baseline.parts_s
    share = parts["allreduce"] / sum(parts.values())
    found = answers(question("allreduce_share", 1.0))[0]
    assert found == pytest.approx(np.log(share / (1.0 - share)), abs=1e-6)


def test_many_rows_are_what_each_is_alone() -> None:
    system = build_system(box())
    asked = [question("tpot", 4.0), question("allreduce_share", 1.0), question("tpot", 2.0, DRAFTED)]
    coordinates = coordinates_of(system.priors) + residual_coordinates(0.05, 0.05)
    forward = Forward(system, asked, coordinates)
    rows = np.random.default_rng(0).standard_normal((5, coordinates.size)) * 0.5 * coordinates.spread
    together = forward.predict(rows)
    assert together == pytest.approx(np.concatenate([forward.predict(row[None, :]) for row in rows]), rel=1e-9)


def test_another_workload_and_context_are_those_of_the_measurement() -> None:
    other = load_deployment({**BOX, "workload": {"input_tokens": 4000, "output_tokens": 200}})
    told = predict(other, concurrency=8, num_draws=100)
    found = answers(question("tpot", 8.0, Setting("eagle3", 0, 4000, 200), context_tokens=4100.0))[0]
    assert found == pytest.approx(np.log(told.baseline.tpot_s), abs=1e-6)


def test_another_method_has_its_own_drafter() -> None:
    ngram = answers(question("step", 1.0, Setting("ngram", 3, 1000, 1000), draft_probability=0.0))[0]
    drafted = answers(question("step", 1.0, DRAFTED))[0]
    assert ngram < drafted


def test_residual_at_its_rows_adds_to_the_log_of_the_time() -> None:
    y = np.zeros(NUM_LOG_FACTORS)
    y[list(ROW_KNOTS).index(8)] = 0.07
    change = answers(question("step", 8.0, with_prompts=False), y=y) - answers(
        question("step", 8.0, with_prompts=False)
    )
    assert change == pytest.approx([0.07], abs=1e-9)


def test_uncounted_tokens_per_step_are_a_coordinate_of_their_own() -> None:
    known = answers(question("tpot", 1.0, DRAFTED, tokens_per_step=2.0))[0]
    y = np.zeros(NUM_LOG_FACTORS + 1)
    y[-1] = np.log(2.0)
    assert answers(question("tpot", 1.0, DRAFTED, tokens_per_step=None), y=y)[0] == pytest.approx(known)


def test_a_fixed_coordinate_stays_whatever_is_asked() -> None:
    system = build_system(box())
    coordinates = coordinates_of(system.priors) + residual_coordinates(0.05, 0.05)
    index = coordinates.names.index("host_step_ms")
    free = Forward(system, [question("tpot", 1.0)], coordinates)
    held = Forward(system, [question("tpot", 1.0)], coordinates, fixed=((index, 1.0),))
    y = np.zeros((1, coordinates.size))
    moved = y.copy()
    moved[0, index] = 1.0
    assert held.predict(y) == pytest.approx(free.predict(moved))
    assert y[0, index] == 0.0


def test_step_of_the_answer_equals_the_grid_of_the_study() -> None:
    study = build_study(box(), k_max=3, num_draws=100)
    grid = study.grid([Cell(3, 8)], point=True)
    found = answers(question("step", 8.0, DRAFTED, with_prompts=False))[0]
    assert found == pytest.approx(np.log(grid.speculative.step_s[0, 0]), abs=1e-9)


def test_names_of_the_coordinates_tell_what_they_are() -> None:
    names = residual_coordinates(0.05, 0.05).names
    assert names[0] == "step at 1 rows, log factor"
    assert names[-1] == OFFSET
    assert len(set(names)) == NUM_LOG_FACTORS
