"""The table of step durations against hwmodel asked directly, and against the closed form."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.closed_form import Cell
from simulator.deployment import load_deployment
from simulator.serving.step_costs import Compositions, StepCosts
from simulator.serving.step_times import StepTimes
from simulator.study import Study, build_study

Tables = dict[str, Any]

DENSE: Tables = {
    "model": {"config": "llama-3.2-1b-bf16"},
    "hardware": {"gpu": "h100-sxm"},
    "engine": {"version": "0.16.0"},
    "speculation": {"method": "eagle3", "acceptance": {"conditional": [0.7]}},
}
EXPERTS: Tables = {
    "model": {"config": "kimi-k2.5-int4"},
    "hardware": {"gpu": "rtx-pro-6000-blackwell-server", "interconnect": "pcie-dual-socket"},
    "engine": {"version": "0.16.0", "tensor_parallel_size": 8},
    "speculation": {"method": "eagle3", "acceptance": {"conditional": [0.6]}},
}
LOOKUP: Tables = {
    **DENSE,
    "speculation": {"method": "ngram", "acceptance": {"per_position": [0.6, 0.4], "draft_probability": 0.3}},
}
CASES = {"dense": DENSE, "experts": EXPERTS, "lookup": LOOKUP}
LENGTH = 3


@pytest.fixture(scope="module")
def study_of() -> Callable[[str], Study]:
    """One study per case."""
    studies = {name: build_study(load_deployment(x), k_max=LENGTH, num_draws=20) for name, x in CASES.items()}
    return lambda name: studies[name]


@pytest.fixture(scope="module")
def times_of(study_of: Callable[[str], Study]) -> Callable[[str, int], StepTimes]:
    """One table per case and draft length, filled by all tests of the module."""
    made: dict[tuple[str, int], StepTimes] = {}

    def times(name: str, length: int) -> StepTimes:
        if (name, length) not in made:
            study = study_of(name)
            made[name, length] = StepTimes(StepCosts(study.system, study.point_parameters, length))
        return made[name, length]

    return times


def directly(times: StepTimes, *composition: float) -> float:
    """The duration of one composition, asked of hwmodel without the table."""
    arrays = [np.array([float(value)]) for value in composition]
    return float(times._costs.seconds(Compositions(*arrays))[0])


@settings(max_examples=15)
@given(
    st.sampled_from(list(CASES)),
    st.integers(1, 200),
    st.floats(0.0, 1.0),
    st.integers(0, LENGTH),
    st.floats(1.0, 60_000.0),
)
def test_the_table_of_decode_steps_equals_direct_evaluation(
    times_of: Callable[[str, int], StepTimes], name: str, rows: int, share: float, tokens: int, context: float
) -> None:
    times = times_of(name, LENGTH)
    drafted = round(share * rows) if tokens else 0
    found = times.decode_s(rows, drafted, drafted * tokens, np.array([context]))[0]
    wanted = directly(times, rows, drafted, drafted * tokens, context, 0, 0, 0)
    assert found == pytest.approx(wanted, rel=2e-3)


@settings(max_examples=15)
@given(
    st.sampled_from(list(CASES)),
    st.integers(0, 100),
    st.integers(1, 20_000),
    st.floats(1.0, 30_000.0),
    st.floats(0.0, 30_000.0),
)
def test_the_table_of_steps_with_prompts_equals_direct_evaluation(
    times_of: Callable[[str, int], StepTimes], name: str, rows: int, prompt: int, context: float, before: float
) -> None:
    times = times_of(name, LENGTH)
    seen = before + prompt / 2
    found = times.mixed_s((rows, rows, LENGTH * rows), context, prompt, seen, 1)
    wanted = directly(times, rows, rows, LENGTH * rows, context if rows else 1.0, prompt, seen, 1)
    assert found == pytest.approx(wanted, rel=2e-3)


@pytest.mark.parametrize("name", ["dense", "experts"])
@pytest.mark.parametrize("concurrency", [1, 7, 64])
def test_a_uniform_step_is_that_of_the_closed_form(
    study_of: Callable[[str], Study], times_of: Callable[[str, int], StepTimes], name: str, concurrency: int
) -> None:
    study = study_of(name)
    grid = study.grid([Cell(LENGTH, concurrency)], point=True)
    context = np.array([study.system.context_tokens])
    plain = times_of(name, 0).decode_s(concurrency, 0, 0, context)[0]
    drafting = times_of(name, LENGTH).decode_s(concurrency, concurrency, LENGTH * concurrency, context)[0]
    assert plain == pytest.approx(grid.baseline.step_s[0, 0], rel=2e-3)
    assert drafting == pytest.approx(grid.speculative.step_s[0, 0], rel=2e-3)


def test_steps_of_different_drafts_are_told_apart(times_of: Callable[[str, int], StepTimes]) -> None:
    times = times_of("lookup", LENGTH)
    context = np.full(4, 1500.0)
    mixed = times.decode_s(8, np.array([0, 3, 7, 3]), np.array([0, 9, 21, 9]), context)
    assert mixed[1] == mixed[3]
    for rows, tokens, found in zip((0, 3, 7), (0, 9, 21), mixed[:3], strict=True):
        assert found == pytest.approx(times.decode_s(8, rows, tokens, context[:1])[0])
    assert mixed[0] < mixed[1] < mixed[2]


def test_a_composition_is_asked_for_once(study_of: Callable[[str], Study]) -> None:
    study = study_of("dense")
    times = StepTimes(StepCosts(study.system, study.point_parameters, LENGTH))  # not the one that other tests fill
    context = np.linspace(1000.0, 2000.0, 50)
    times.decode_s(9, 9, 27, context)
    asked = times.num_evaluated
    times.decode_s(9, 9, 27, context)
    assert times.num_evaluated == asked
    assert asked < 60  # a few nodes, not one a context


def test_a_drafted_batch_is_uniform_only_if_every_row_has_the_configured_draft(
    study_of: Callable[[str], Study],
) -> None:
    costs = StepCosts(study_of("lookup").system, study_of("lookup").point_parameters, LENGTH)

    def uniform(rows: float, drafted: float, drafts: float, prompt: float = 0.0) -> bool:
        one = [np.array([x]) for x in (rows, drafted, drafts, 1000.0, prompt, 0.0, 0.0)]
        return bool(costs.is_uniform(Compositions(*one)))

    assert uniform(4, 4, 12)
    assert not uniform(4, 3, 9)
    assert not uniform(4, 0, 0)  # the full graphs were captured for drafted rows
    assert not uniform(4, 4, 8)
    assert not uniform(4, 4, 12, prompt=16)


def test_a_prompt_costs_time_and_more_of_it_the_longer_it_is(times_of: Callable[[str, int], StepTimes]) -> None:
    times = times_of("experts", 0)
    plain = times.decode_s(8, 0, 0, np.array([1500.0]))[0]
    longer = [times.mixed_s((8, 0, 0), 1500.0, n, n / 2, 1) for n in (200, 800, 3200)]
    assert plain < longer[0] < longer[1] < longer[2]
