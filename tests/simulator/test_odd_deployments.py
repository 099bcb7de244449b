"""Draft lengths at run time, budgets and experiments on deployments of every kind: strict JSON, no warning."""

import json
import warnings
from typing import Any

import pytest

from simulator.adaptive import adaptive
from simulator.deployment import Deployment, load_deployment
from simulator.experiments import experiments
from simulator.expert_budget import expert_budgets

MOE = {"config": "qwen3-30b-a3b-bf16"}
H100 = {"gpu": "h100-sxm"}
HEAD = {"method": "eagle3"}
ODD: dict[str, dict[str, Any]] = {
    "does not fit": {"model": {"config": "kimi-k2.5-int4"}, "speculation": HEAD},
    "data and expert parallel": {
        "model": {"config": "deepseek-v3-fp8"},
        "hardware": {"gpu": "h200"},
        "engine": {"data_parallel_size": 8, "expert_parallel": True},
        "speculation": {"method": "mtp", "num_speculative_tokens": 1},
    },
    "hash-routed layers": {
        "model": {"config": "deepseek-v4-pro-fp8"},
        "hardware": {"gpu": "h200"},
        "engine": {"tensor_parallel_size": 8},
        "speculation": {"method": "mtp"},
    },
    "pipeline": {"engine": {"pipeline_parallel_size": 2}, "speculation": HEAD},
    "a tree": {
        "engine": {"name": "sglang"},
        "speculation": {**HEAD, "num_speculative_tokens": 4, "sglang_topk": 4, "sglang_num_draft_tokens": 16},
    },
    "SGLang's n-gram": {"engine": {"name": "sglang"}, "speculation": {"method": "ngram"}},
    "a block drafter": {"speculation": {"method": "dflash", "num_speculative_tokens": 15}},
    "goodput that cannot be reached": {
        "speculation": HEAD,
        "objective": {"maximise": "goodput", "tpot_ms_max": 0.01},
    },
    "TPOT": {"speculation": HEAD, "objective": {"maximise": "tpot"}},
    "one token of output, huge load": {
        "speculation": HEAD,
        "workload": {"output_tokens": 1, "concurrency": [1, 100_000]},
    },
    "a load that does not count": {"speculation": HEAD, "workload": {"concurrency": [1, 8], "weights": [0, 5]}},
    "requests all or nothing": {
        "speculation": {**HEAD, "acceptance": {"mean_length": 2.5, "measured_at_k": 3, "heterogeneity": 0.01}}
    },
    "the first engine": {"engine": {"version": "0.8.5"}, "speculation": {"method": "eagle"}},
    "lengths of any kind": {
        "speculation": {"method": "suffix"},
        "workload": {"length_distribution": "lognormal", "length_log_sd": 3.0},
    },
    "a schedule in the file": {"speculation": {**HEAD, "schedule": [[1, 4, 5], [5, 64, 1]]}},
    "eager": {"engine": {"enforce_eager": True}, "speculation": HEAD},
}


def deployment(name: str) -> Deployment:
    """One of the odd deployments."""
    return load_deployment({"model": MOE, "hardware": H100, **ODD[name]})


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("question", [adaptive, expert_budgets, experiments])
def test_every_kind_of_deployment_gets_an_answer_in_strict_json(name: str, question: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        answer = question(deployment(name), num_draws=100).to_dict()
    assert json.loads(json.dumps(answer, allow_nan=False)) == answer
    assert answer["prediction_id"]


def test_the_objective_decides_what_is_recommended() -> None:
    assert adaptive(deployment("TPOT"), num_draws=100).to_dict()["recommendation"]
    notes = adaptive(deployment("goodput that cannot be reached"), num_draws=100).notes
    assert any("by throughput" in note for note in notes)
