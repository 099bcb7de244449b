"""Acceptance as users state it: every form, and every trap with the line that leads out of it."""

import json
from pathlib import Path
from typing import Any

import pytest

from hwmodel.errors import InputError
from simulator.deployment import load_deployment
from simulator.deployment.counters import read_counters

COUNTERS = {  # a vLLM 0.20 server with n-gram, k = 5, on sparse matches
    "vllm:spec_decode_num_drafts_total": 1242,
    "vllm:spec_decode_num_draft_tokens_total": 6210,
    "vllm:spec_decode_num_accepted_tokens_total": 2462,
    "vllm:spec_decode_num_accepted_tokens_per_pos_total": [750, 578, 467, 369, 298],
    "vllm:generation_tokens_total": 6144,
    "vllm:inter_token_latency_seconds_count": 3675,
    "vllm:time_to_first_token_seconds_count": 24,
}


def load(acceptance: dict[str, Any], method: str = "eagle3") -> None:
    """Nothing; raises what loading a deployment with `acceptance` raises."""
    speculation = {"method": method, "acceptance": acceptance}
    load_deployment({"model": {"config": "x"}, "hardware": {"gpu": "y"}, "speculation": speculation})


@pytest.mark.parametrize(
    "acceptance",
    [
        {"per_position": [0.633, 0.404, 0.264]},
        {"per_position": [0.633, 0.404, 0.264], "mean_length": 2.30, "num_requests": 912},
        {"per_position": [1, 1, 0]},
        {"conditional": [0.633, 0.638, 0.653], "mean_length": 2.30, "measured_at_k": 3},
        {"mean_length": 4, "measured_at_k": 3},
        {"mean_length": 1, "measured_at_k": 3},
        {"rate": 0, "measured_at_k": 1, "draft_probability": 0.2, "heterogeneity": 12},
        {"counters": COUNTERS},
    ],
)
def test_each_form_is_accepted(acceptance: dict[str, Any]) -> None:
    load(acceptance)


@pytest.mark.parametrize(
    ("acceptance", "said"),
    [
        ({}, "none of its forms, allowed: one of per_position, conditional"),
        ({"measured_at_k": 3}, "none of its forms"),
        ({"per_position": []}, "got an empty list"),
        ({"per_position": [0.4, 0.5]}, "never increasing (unconditional shares"),
        ({"per_position": [1.1]}, "got 1.1, allowed: list, each number from 0 to 1"),
        ({"per_position": [-0.1]}, "got -0.1"),
        ({"per_position": [float("nan")]}, "got nan"),
        ({"per_position": [True]}, "got true"),
        ({"per_position": 0.5}, "got 0.5, allowed: list"),
        ({"per_position": [0.1] * 65}, "speculation.acceptance.per_position"),
        ({"per_position": [0.5], "conditional": [0.5]}, "got per_position and conditional, allowed: one form"),
        ({"rate": 0.5, "mean_length": 2, "measured_at_k": 3}, "got mean_length and rate, allowed: one form"),
        ({"per_position": [0.5], "rate": 0.5}, "got per_position and rate"),
        ({"per_position": [0.5, 0.3], "measured_at_k": 3}, "got 3, allowed: 2, as the vector is long"),
        ({"rate": 0.5}, "rate: missing measured_at_k"),
        ({"mean_length": 2.2}, "mean_length: missing measured_at_k"),
        ({"mean_length": 0.9, "measured_at_k": 3}, "got 0.9, allowed: number from 1"),
        ({"mean_length": 4.1, "measured_at_k": 3}, "got 4.1, allowed: 1 to 4"),
        ({"rate": 43, "measured_at_k": 3}, "got 43, allowed: number from 0 to 1"),
        ({"rate": 0.4, "measured_at_k": 0}, "measured_at_k: got 0"),
        ({"rate": 0.4, "measured_at_k": 3, "draft_probability": 2}, "draft_probability: got 2"),
        ({"rate": 0.4, "measured_at_k": 3, "num_requests": 0}, "num_requests: got 0"),
        ({"rate": 0.4, "measured_at_k": 3, "heterogeneity": 0}, "heterogeneity: got 0, allowed: number above 0"),
        ({"per_postion": [0.5]}, "nearest: 'speculation.acceptance.per_position'"),
        ({"replay": "absent.json"}, "speculation.acceptance.replay: no file 'absent.json'"),
    ],
)
def test_each_trap_is_one_line(acceptance: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        load(acceptance)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_cumulative_rates_that_a_card_calls_conditional_are_found_by_the_mean_length() -> None:
    with pytest.raises(InputError, match=r"is 1\.956, stated mean_length 2\.3; read as per_position it is"):
        load({"conditional": [0.633, 0.404, 0.264], "mean_length": 2.30})


def test_conditional_rates_that_a_card_calls_cumulative_are_found_by_the_mean_length() -> None:
    with pytest.raises(InputError, match=r"read as conditional it is: write conditional"):
        load({"per_position": [0.653, 0.638, 0.633], "mean_length": 2.33})


def test_rates_that_fit_the_mean_length_in_neither_reading_are_refused() -> None:
    # a published offline row: sum of the seven rates 4.33, stated mean length 3.97
    with pytest.raises(InputError, match=r"5\.330, stated mean_length 3\.97$"):
        load({"per_position": [0.816, 0.72, 0.66, 0.6, 0.55, 0.51, 0.474], "mean_length": 3.97})


def test_counters_read_the_same_with_and_without_the_engines_prefixes() -> None:
    bare = {
        "num_drafts": 1242,
        "num_draft_tokens": 6210,
        "num_accepted_tokens": 2462,
        "num_accepted_tokens_per_pos": {"0": 750, "1": 578, "2": 467, "3": 369, "4": 298},
        "generation_tokens": 6144,
        "itl_count": 3675,
        "ttft_count": 24,
    }
    assert read_counters(bare) == read_counters(COUNTERS)


def test_decode_steps_come_from_the_latency_count_else_from_the_tokens() -> None:
    assert read_counters(COUNTERS).decode_steps == 3675
    without = {name: value for name, value in COUNTERS.items() if "latency" not in name}
    assert read_counters(without).decode_steps == 6144 - 24 - 2462
    assert read_counters({"num_drafts": 5, "num_accepted_tokens": 3, "num_draft_tokens": 9}).decode_steps is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"num_drafts": 0}, "num_drafts is 0, allowed: above 0"),
        ({"num_drafts": -1}, "num_drafts is -1, allowed: count from 0"),
        ({"num_drafts": float("nan")}, "num_drafts is nan"),
        ({"num_drafts": 10**400}, "allowed: count from 0"),
        ({"num_drafts": "12"}, "num_drafts is '12'"),
        ({"num_accepted_tokens": True}, "num_accepted_tokens is True"),
        ({"num_accepted_tokens": 7000}, "is above num_draft_tokens 6210"),
        ({"num_accepted_tokens": 2600}, "1 + num_accepted_tokens / num_drafts is 3.093, allowed: equal within 1 %"),
        ({"num_accepted_tokens_per_pos": [750, 760, 467, 369, 116]}, "increases, allowed: never"),
        ({"num_accepted_tokens_per_pos": [1300, 578, 467, 117, 0]}, "after 1242 drafts increases"),
        ({"num_accepted_tokens_per_pos": []}, "allowed: list of counts by position"),
        ({"num_accepted_tokens_per_pos": 5}, "allowed: list of counts by position"),
        ({"num_accepted_tokens_per_pos": {"1": 5}}, "has positions 1, allowed: 0, 1"),
        ({"itl_count": 1000}, "num_drafts 1242 is above the 1000 decode steps"),
        ({"draft_acceptance_rate": 0.4}, "V0 engine, which counts no drafts"),
        ({"vllm:spec_decode_efficiency": 0.4}, "V0 engine"),
        ({"num_emitted_tokens": 4}, "V0 engine"),
        ({"num_tokens": 4}, "unknown counter 'num_tokens'; known: num_drafts"),
        ({"spec_decode_num_drafts": 1242}, "num_drafts is given twice"),
    ],
)
def test_counters_that_cannot_be_are_one_line(changes: dict[str, Any], said: str) -> None:
    counters = {
        "num_drafts": 1242,
        "num_draft_tokens": 6210,
        "num_accepted_tokens": 2462,
        "num_accepted_tokens_per_pos": [750, 578, 467, 369, 298],
    }
    with pytest.raises(InputError) as caught:
        load({"counters": {**counters, **changes}})
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kept", [["num_drafts"], ["num_drafts", "num_accepted_tokens"], []])
def test_too_few_counters_are_refused_by_name(kept: list[str]) -> None:
    values = {"num_drafts": 100, "num_accepted_tokens": 50}
    with pytest.raises(InputError, match="missing num_"):
        read_counters({name: values[name] for name in kept})


def test_a_relative_replay_path_is_found_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "replay.json").write_text(json.dumps({"results": []}))
    (tmp_path / "d.toml").write_text(
        '[model]\nconfig = "x"\n[hardware]\ngpu = "y"\n[speculation]\nmethod = "ngram"\n'
        'acceptance = { replay = "replay.json" }\n'
    )
    acceptance = load_deployment(tmp_path / "d.toml").speculation.acceptance
    assert acceptance is not None
    assert acceptance.replay == str(tmp_path / "replay.json")
