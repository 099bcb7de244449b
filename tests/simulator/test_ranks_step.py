"""The whole step on the ranks: agreement with hwmodel, accounts that add up, what was asked is what runs."""

import dataclasses
import itertools
import json
from pathlib import Path

import pytest

from hwmodel.errors import InputError
from simulator.deployment import load_deployment
from simulator.ranks.step import StepQuestion, step

TOPOLOGIES = Path(__file__).parents[1] / "data" / "topo"
PARTS = (
    "attention", "kv_cache", "experts", "shared_dense", "allreduce", "lm_head", "sampling", "overhead",
    "speculation_overhead", "verify_path", "drafter",
)  # fmt: skip
MOE_ON_SWITCH = {
    "model": {"config": "qwen3-30b-a3b-bf16"},
    "hardware": {"gpu": "rtx-pro-6000-blackwell-server", "num_gpus": 4, "interconnect": "pcie-switch"},
    "engine": {"name": "vllm", "version": "0.24.0", "tensor_parallel_size": 4},
    "speculation": {"method": "eagle3", "num_speculative_tokens": 3},
    "workload": {"concurrency": [4], "input_tokens": 1000, "output_tokens": 500},
}
ON_NVSWITCH = {
    **MOE_ON_SWITCH,
    "hardware": {"gpu": "h200", "num_gpus": 4},
    "speculation": {"method": "none"},
}


def _deployment(base=MOE_ON_SWITCH, **changes):
    tables = {name: dict(table) for name, table in base.items()}
    for name, table in changes.items():
        tables[name].update(table)
    return load_deployment(tables)


def _step(deployment=None, **asked):
    return step(deployment or _deployment(), StepQuestion(num_draws=50, **asked))


CASES = {
    "tensor parallel": _deployment(),
    "NVSwitch, expert parallel": _deployment(ON_NVSWITCH, engine={"expert_parallel": True}),
    "data-parallel attention": _deployment(
        ON_NVSWITCH, engine={"tensor_parallel_size": 1, "data_parallel_size": 4, "expert_parallel": True}
    ),
    "two groups of two": _deployment(
        ON_NVSWITCH, engine={"tensor_parallel_size": 2, "data_parallel_size": 2, "expert_parallel": True}
    ),
    "pipeline": _deployment(engine={"tensor_parallel_size": 2, "pipeline_parallel_size": 2}),
    "n-gram": _deployment(speculation={"method": "ngram"}),
    "draft model on one GPU": _deployment(
        model={"config": "llama-3.1-8b-bf16"},
        speculation={
            "method": "draft_model", "draft_model": "llama-3.2-1b-bf16", "draft_tensor_parallel_size": 1
        },
    ),
    "slow link between sockets": _deployment(
        model={"config": "llama-3.1-8b-bf16"},
        hardware={"gpu": "l40s", "num_gpus": 8, "interconnect": "pcie-dual-socket"},
        engine={"tensor_parallel_size": 8},
    ),
    "one GPU": _deployment(hardware={"num_gpus": 1}, engine={"tensor_parallel_size": 1}),
    "multi-token prediction": _deployment(
        model={"config": "qwen3-next-80b-a3b-bf16"}, engine={"tensor_parallel_size": 2}, speculation={"method": "mtp"}
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("concurrency", [1, 8])
def test_without_jitter_the_step_is_within_two_percent_of_the_formula(name, concurrency):
    result = _step(CASES[name], concurrency=concurrency, jitter=False)
    assert result.closed_form["simulated_over_expected"] == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("name", CASES)
def test_parts_and_accounts_fill_the_step(name):
    result = _step(CASES[name], concurrency=4)
    assert tuple(result.parts_s) == PARTS
    assert sum(result.parts_s.values()) == pytest.approx(result.step_s, rel=1e-9)
    for rank in result.ranks:
        spent = rank.compute_s + rank.allreduce_s + rank.draft_communication_s
        assert spent == pytest.approx(result.step_s, rel=1e-9)
        assert rank.network_s + rank.wait_s == pytest.approx(rank.allreduce_s)


def test_the_formula_it_is_compared_with_is_the_closed_forms():
    import numpy as np

    from simulator.closed_form import baseline_step, speculative_step
    from simulator.ranks.cell import step_cell
    from simulator.study import build_study

    study = build_study(_deployment(), k_max=3, num_draws=50)
    p, four = study.point_parameters, np.array([4.0])
    expected = baseline_step(study.system, p, four, study.system.context_tokens)
    for name, seconds in step_cell(study, 0, 4).parts_s.items():
        assert seconds == pytest.approx(float(expected.parts_s[name][0, 0]), abs=1e-12)
    expected = speculative_step(study.system, p, np.array([3]), four, np.array([[1.0]]))
    for name, seconds in step_cell(study, 3, 4).parts_s.items():
        assert seconds == pytest.approx(float(expected.parts_s[name][0, 0]), abs=1e-12)


def test_the_same_seed_gives_the_same_bytes_and_another_one_does_not():
    one, two, other = (json.dumps(_step(seed=seed).to_dict()) for seed in (1, 1, 2))
    assert one == two
    assert json.loads(one)["step_s"] != json.loads(other)["step_s"]


def test_jitter_is_what_a_profiler_sees_beyond_a_test_of_allreduce_alone():
    calm, rough = (_step(jitter=jitter, steps=3) for jitter in (False, True))
    assert calm.allreduce.skew_s < 0.05 * rough.allreduce.skew_s
    skew_s = 5e-6  # the prior's median
    assert rough.allreduce.skew_s == pytest.approx(skew_s, rel=0.5)
    assert rough.allreduce.mean_s == pytest.approx(rough.allreduce.network_s + rough.allreduce.skew_s)
    assert rough.step_s > calm.step_s


def test_the_number_and_size_of_allreduces_are_the_models():
    result = _step(num_speculative_tokens=3, concurrency=4)
    layers, hidden = 48, 2048  # Qwen3-30B-A3B
    assert result.allreduce.count == 2 * layers + 1
    assert result.allreduce.bytes == 4 * 4 * hidden * 2
    assert result.inputs["rows"] == 16


def test_expert_parallelism_waits_for_the_busiest_rank():
    deployment = _deployment(ON_NVSWITCH, engine={"expert_parallel": True})
    even = _step(_deployment(ON_NVSWITCH), jitter=False, concurrency=2)
    uneven = _step(deployment, jitter=False, concurrency=2)
    experts = uneven.distinct_experts_per_layer
    assert experts.busiest_rank_over_mean > 1.1
    assert uneven.allreduce.skew_s > 10 * even.allreduce.skew_s
    loads = [rank.distinct_experts_per_layer for rank in uneven.ranks]
    assert sum(loads) == pytest.approx(experts.sampled)
    assert even.distinct_experts_per_layer.busiest_rank_over_mean is None


def test_draft_passes_are_walked_like_the_target():
    one, three = (_step(num_speculative_tokens=k, jitter=False) for k in (1, 3))
    assert three.parts_s["drafter"] > 2 * one.parts_s["drafter"]
    assert three.ranks[0].draft_communication_s > 0


def test_another_box_keeps_the_calibration_of_the_deployments_own():
    deployment = _deployment(
        hardware={"num_gpus": 8, "interconnect": "pcie-dual-socket"}, engine={"tensor_parallel_size": 4}
    )
    own = _step(deployment, num_speculative_tokens=0, concurrency=1)
    direct = str(TOPOLOGIES / "topo_04_topology_4gpu.txt")
    other = _step(deployment, num_speculative_tokens=0, concurrency=1, topology=direct)
    assert other.allreduce.calibration == own.allreduce.calibration
    assert other.box["interconnect"] == "pcie-root"
    assert other.allreduce.nccl_tests_s < own.allreduce.nccl_tests_s
    assert any("another box" in note for note in other.notes)


def test_the_algorithm_that_is_asked_for_runs():
    for algorithm in ("ring", "tree", "one-shot", "two-shot"):
        result = _step(num_speculative_tokens=0, algorithm=algorithm)
        assert result.allreduce.algorithm.split()[0] == algorithm
        named = {row["algorithm"]: row["network_s"] for row in result.allreduce.alternatives}
        assert result.allreduce.nccl_tests_s == pytest.approx(named[result.allreduce.algorithm])


def test_the_share_of_allreduce_is_told_for_growing_steps():
    rows = _step(num_speculative_tokens=3).growth
    assert [row["concurrency"] for row in rows if row["num_speculative_tokens"] == 0] == [1, 4, 16, 64]
    sizes = [row["bytes"] for row in rows if row["num_speculative_tokens"] == 3]
    assert sizes == sorted(sizes)
    assert all(0 < row["allreduce_share"] < 1 for row in rows)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"algorithm": "nccl"}, "no AllReduce algorithm 'nccl'"),
        ({"algorithm": "hierarchical"}, "allowed: two or more of one size"),
        ({"protocol": "ll256"}, "no NCCL protocol 'll256'"),
        ({"algorithm": "one-shot", "protocol": "ll"}, "allowed with: auto, ring, tree"),
        ({"steps": 0}, "steps: got 0, allowed 1 to 1000"),
        ({"concurrency": 0}, "concurrency: got 0"),
        ({"topology": "/nowhere/topo.txt"}, "cannot read /nowhere/topo.txt"),
        ({"topology": str(TOPOLOGIES / "topo_rtxpro6000_2x_phb.txt")}, "the topology has 2"),
        ({"topology": str(TOPOLOGIES / "topo_v100_4x_nvlink.txt")}, "shows NVLink"),
    ],
)
def test_what_cannot_be_simulated_is_refused_in_one_line(asked, words):
    with pytest.raises(InputError) as error:
        _step(**asked)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_one_rank_has_no_algorithm_to_choose():
    with pytest.raises(InputError, match="no AllReduce"):
        _step(CASES["one GPU"], algorithm="ring")


def test_a_question_can_be_asked_by_name():
    by_name = step(_deployment(), num_speculative_tokens=0, concurrency=1, num_draws=50)
    assert by_name.step_s == _step(num_speculative_tokens=0, concurrency=1).step_s
    assert dataclasses.asdict(StepQuestion())["algorithm"] == "auto"


def test_the_trace_has_a_row_for_each_rank_and_link_and_its_spans_fill_the_step(tmp_path):
    path = tmp_path / "step.json"
    result = step(_deployment(), StepQuestion(num_speculative_tokens=1, num_draws=50), trace=str(path))
    events = json.loads(path.read_text())["traceEvents"]
    names = [e["args"]["name"] for e in events if e["name"] == "thread_name"]
    assert names[:4] == [f"rank {rank}" for rank in range(4)]
    assert set(names[4:]) == {link.name for link in result.links}
    for rank in range(4):
        mine = sorted((e["ts"], e["dur"]) for e in events if e["ph"] == "X" and e["pid"] == 1 and e["tid"] == rank)
        assert sum(duration for _, duration in mine) == pytest.approx(result.step_s * 1e6, rel=1e-3)
        for (start, duration), (after, _) in itertools.pairwise(mine):
            assert after >= start + duration - 0.01
    busy = sum(e["dur"] for e in events if e["ph"] == "X" and e["pid"] == 2)
    assert busy == pytest.approx(1e6 * sum(link.busy_s for link in result.links), rel=1e-2)


def test_a_trace_that_cannot_be_written_is_refused_in_one_line(tmp_path):
    with pytest.raises(InputError, match="cannot write"):
        step(_deployment(), StepQuestion(num_draws=50), trace=str(tmp_path / "no" / "step.json"))
