"""Training of a head on many machines: layouts, readers, sizes by hand."""

import numpy as np
import pytest

from simulator.deployment import Deployment, load_deployment
from simulator.deployment.tables import Costs
from simulator.study import build_study
from simulator.training.facts import recipe
from simulator.training.head import head_of
from simulator.training.report import train_cost
from simulator.training.sites import Node, rented_site, study_on
from simulator.training.stages import rates, read_tokens_per_s
from simulator.training.value import new_head_name
from simulator.training.verdict import in_words

DRAWS = 100


def deployed(model: str, gpu: str, **engine: object) -> Deployment:
    sizes = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
    ranks = int(np.prod([int(str(engine.get(name, 1))) for name in sizes]))
    return load_deployment(
        {
            "model": {"config": model},
            "hardware": {"gpu": gpu, "num_gpus": ranks},
            "engine": engine,
            "workload": {"concurrency": [1, 8]},
        }
    )


def _hours(deployment: Deployment, gpu: str) -> float:
    runs = recipe(Costs(), 1000.0, DRAWS, 0)
    return float(np.median(rented_site(deployment, Node(gpu, 8), runs, 0).total_s)) / 3600


@pytest.mark.parametrize("model", ["qwen3-next-80b-a3b-bf16", "glm-4.7-fp8", "llama-3.3-70b-bf16"])
def test_a_machine_with_more_of_everything_is_done_sooner(model: str) -> None:
    deployment = deployed(model, "h100-sxm", tensor_parallel_size=8)
    h200, b200, b300 = (_hours(deployment, gpu) for gpu in ("h200", "b200", "b300"))
    assert h200 > b200
    assert b200 >= b300 * 0.99


def test_no_tensor_parallel_layout_is_faster_than_the_one_that_is_taken() -> None:
    deployment = deployed("qwen3-next-80b-a3b-bf16", "h100-sxm", tensor_parallel_size=4)
    taken = study_on(deployment, Node("b200", 8), DRAWS, 0)
    best = rates(taken, 8 // taken.deployment.num_gpus_used)
    for tensor in (1, 2, 4, 8):
        keys = {"gpu": "b200", "num_gpus": tensor}
        other = load_deployment(
            {
                "model": {"config": "qwen3-next-80b-a3b-bf16"},
                "hardware": keys,
                "engine": {"tensor_parallel_size": tensor},
            }
        )
        there = rates(build_study(other, k_max=1, num_draws=DRAWS, seed=0), 8 // tensor)
        taken_s, other_s = (
            float(np.median(1000 / r.generated_tokens_per_s + 2000 / r.read_tokens_per_s)) for r in (best, there)
        )
        assert taken_s <= other_s * 1.02


def test_the_same_machine_rented_is_no_slower_than_ones_own_layout() -> None:
    deployment = deployed("deepseek-r1-fp8", "h200", data_parallel_size=8, expert_parallel=True)
    own = rates(build_study(deployment, k_max=1, num_draws=DRAWS, seed=0), 1)
    rented = rates(study_on(deployment, Node("h200", 8), DRAWS, 0), 1)
    assert np.median(rented.generated_tokens_per_s) >= np.median(own.generated_tokens_per_s) * 0.95


def test_ranks_of_data_parallelism_read_each_their_own_texts() -> None:
    one = build_study(deployed("qwen3-8b-bf16", "h100-sxm"), k_max=1, num_draws=DRAWS, seed=0)
    four = build_study(deployed("qwen3-8b-bf16", "h100-sxm", data_parallel_size=4), k_max=1, num_draws=DRAWS, seed=0)
    alone, together = (float(np.median(read_tokens_per_s(s.system, s.parameters))) for s in (one, four))
    assert together == pytest.approx(4 * alone, rel=0.05)


def test_training_flop_are_six_a_parameter_in_every_step_of_the_head() -> None:
    head = head_of(build_study(deployed("llama-3.1-8b-bf16", "h200"), k_max=1, num_draws=DRAWS, seed=0).system)
    # One layer with twice the hidden size at its inputs, a SwiGLU, and the head over 32,000 drafted tokens.
    hidden, wide, heads, key_values, mlp = 4096, 8192, 32 * 128, 8 * 128, 14336
    layer = wide * (heads + 2 * key_values) + heads * hidden + 3 * hidden * mlp
    by_hand = 6 * (7 * (layer + 32000 * hidden) + 3 * hidden * hidden)
    assert head.flop_per_token == pytest.approx(by_hand, rel=0.05)
    assert head.state_bytes_per_token == 4 * hidden * 2


def test_samples_are_named_to_three_digits_and_long_times_in_days() -> None:
    assert new_head_name(500_002.4) == "new-head-500000"
    assert new_head_name(0.2) == "new-head-1"
    assert (in_words(0.4), in_words(30.0), in_words(72.0), in_words(3823.0)) == (
        "0.4 h",
        "30 h",
        "3.0 days",
        "159 days",
    )


def test_where_the_engine_refuses_a_head_training_one_is_not_advised() -> None:
    staged = deployed("mixtral-8x22b-bf16", "a100-sxm-80gb", version="0.9.2", tensor_parallel_size=4,
                      pipeline_parallel_size=2)  # fmt: skip
    found = train_cost(staged, num_draws=DRAWS)
    assert found.verdict == "Do not train a head: vLLM 0.9.2 cannot speculate with pipeline parallelism"
    assert found.gain["trained"] is None
    assert "vLLM 0.9.2" in str(found.gain["trained_reason"])


def test_text_beyond_any_published_run_is_said() -> None:
    def why(input_tokens: int) -> str:
        tables = {"model": {"config": "qwen3-8b-bf16"}, "hardware": {"gpu": "h200"},
                  "workload": {"concurrency": [1], "input_tokens": input_tokens}}  # fmt: skip
        return " ".join(train_cost(load_deployment(tables), num_draws=DRAWS).why)

    assert "51 G tokens are 8 times what any published run trained on (6 G)" in why(100_000)
    assert "published run" not in why(1000)


def test_layers_that_the_file_says_more_of_are_listed_once() -> None:
    tables = {"model": {"config": "glm-4.7-fp8"}, "hardware": {"gpu": "h200", "num_gpus": 4},
              "engine": {"tensor_parallel_size": 4}, "workload": {"concurrency": [1]},
              "speculation": {"method": "mtp", "acceptance": {"rate": 0.6, "measured_at_k": 1}}}  # fmt: skip
    names = [head["name"] for head in train_cost(load_deployment(tables), num_draws=DRAWS).gain["download"]]
    assert names == ["mtp, as in the file"]


def test_own_layers_without_published_figures_are_no_reason_to_train_either() -> None:
    found = train_cost(deployed("qwen3.5-27b-bf16", "l40s", tensor_parallel_size=4), num_draws=DRAWS)
    assert [head["name"] for head in found.gain["download"]] == ["own MTP layers"]
    assert found.verdict.startswith("Use the model's own layers first: own MTP layers")


def test_a_smaller_cache_never_lets_more_requests_run() -> None:
    few = deployed("qwen3-8b-bf16", "h100-sxm", max_num_seqs=8)
    found = train_cost(few, num_draws=DRAWS)
    assert found.beside_service["concurrency_left"] == found.beside_service["concurrency_now"] == 8
    assert "would still hold the 8 requests" in " ".join(found.why)
