"""Best lengths by context: when a split is recommended, and when not."""

from typing import Any

import pytest

from hwmodel.errors import InputError
from simulator.comparison import compare_lengths
from simulator.context_split import ContextSplit, contexts_of, split_by_context
from simulator.deployment import load_deployment
from simulator.deployment.tables import Workload

# The drafter is verified through the prefill branch of the attention: ruinous at long context, harmless at short.
PREFILL_PATH: dict[str, Any] = {
    "model": {"config": "kimi-k2.5-int4"},
    "hardware": {"gpu": "rtx-pro-6000-blackwell-server", "interconnect": "pcie-switch"},
    "engine": {"version": "0.16.0", "tensor_parallel_size": 8, "attention_backend": "TRITON_MLA"},
    "speculation": {"method": "eagle3", "acceptance": {"conditional": [0.8], "num_requests": 1000}},
    "workload": {"concurrency": [1], "input_tokens": 200, "output_tokens": 200},
    "parameters": {"verify_path_scale": 1.0},
}


def split(contexts: list[int] | None = None, **workload: Any) -> ContextSplit:
    """The split of the deployment with this workload."""
    raw = {**PREFILL_PATH, "workload": {**PREFILL_PATH["workload"], **workload}}
    return split_by_context(compare_lengths(load_deployment(raw), num_draws=200, seed=0), contexts, 0.8)


def test_a_penalty_that_grows_with_context_asks_for_a_split() -> None:
    found = split([300, 60_000])
    short, long = found.points
    assert short.num_speculative_tokens > 0
    assert long.num_speculative_tokens == 0
    assert found.recommended
    assert "second deployment" in found.text


def test_contexts_that_are_nearly_alike_ask_for_none() -> None:
    found = split([300, 320])
    assert not found.recommended
    assert "One draft length serves every context" in found.text


def test_requests_of_one_length_cannot_be_served_apart() -> None:
    assert not split(output_tokens=20_000).recommended


def test_the_whole_traffic_is_one_of_the_points_of_a_fixed_length_and_is_its_own_static_length() -> None:
    found = split()
    middle = found.points[1]
    assert middle.context_tokens == 300
    assert (middle.over_static == 1.0).all()
    assert middle.probability_better == 0.0


def test_fixed_lengths_run_from_the_prompt_to_the_end_of_the_answer() -> None:
    assert contexts_of(Workload(input_tokens=1000, output_tokens=500))[1] == (1000, 1250, 1500)


def test_spread_out_lengths_give_quantiles_around_the_mean() -> None:
    low, middle, high = contexts_of(Workload(length_distribution="lognormal", length_log_sd=0.8))[1]
    assert low < middle < 1500 < high


@pytest.mark.parametrize("contexts", [[], [0], [10**9], list(range(1, 40))])
def test_contexts_that_cannot_be_are_stated_errors(contexts: list[int]) -> None:
    with pytest.raises(InputError, match="contexts"):
        split(contexts)


@pytest.mark.parametrize("context", [1, 2, 50])
def test_contexts_shorter_than_the_answer_shorten_the_answer(context: int) -> None:
    assert [p.context_tokens for p in split([context]).points] == [context]
