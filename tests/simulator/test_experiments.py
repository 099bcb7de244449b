"""Experiments on deployments: which are offered, what they are worth, what they cost."""

from pathlib import Path
from typing import Any

import pytest

from hwmodel.errors import InputError
from simulator.adaptive import adaptive
from simulator.deployment import load_deployment
from simulator.experiments import Experiments, experiments, worthwhile

REFERENCE = Path("examples/kimi-k2.5-8x-rtx-pro-6000.toml")
BASE: dict[str, Any] = {
    "model": {"config": "qwen3-30b-a3b-bf16"},
    "hardware": {"gpu": "rtx-pro-6000-blackwell-server", "interconnect": "pcie-switch"},
    "engine": {"version": "0.25.0", "tensor_parallel_size": 4},
    "speculation": {"method": "eagle3"},
    "workload": {"concurrency": [1, 16, 128], "input_tokens": 500, "output_tokens": 500},
    "restart": {"outage_min": 10.0},
}


def found(methods: tuple[str, ...] = (), horizon_days: float = 7.0, **tables: dict[str, Any]) -> Experiments:
    """The experiments for the base deployment with keys of its tables changed."""
    raw = {table: {**BASE.get(table, {}), **tables.get(table, {})} for table in {*BASE, *tables}}
    return experiments(load_deployment(raw), methods=methods, horizon_days=horizon_days, num_draws=400)


def names(answer: Experiments) -> set[str]:
    """Names of the experiments, without method and length."""
    return {e.measurement.name.split(" (")[0].split(" k=")[0] for e in answer.experiments}


def reference(*overrides: str, methods: tuple[str, ...] = ()) -> Experiments:
    """The reference case."""
    return experiments(load_deployment(REFERENCE, overrides), methods=methods, num_draws=400)


def test_the_reference_case_is_offered_what_it_has_not_measured() -> None:
    answer = reference(methods=("eagle3",))
    assert {"baseline sweep", "nccl-tests", "replay", "engine log", "synchronous baseline", "run ngram"} <= names(
        answer
    )
    assert "run eagle3" in names(answer)
    assert "profiler" not in names(answer)  # its share is among the facts


def test_worth_is_between_nothing_and_the_regret_and_a_run_tells_most() -> None:
    answer = reference(methods=("eagle3",))
    for experiment in answer.experiments:
        assert 0.0 <= experiment.worth.evsi <= answer.decision.evpi + 1e-12
        assert experiment.regret_after == pytest.approx(answer.decision.evpi - experiment.worth.evsi)
    best = max(answer.experiments, key=lambda e: e.worth.evsi)
    assert best.measurement.name.startswith("run eagle3")


def test_nccl_tests_hardly_matter_since_allreduce_cancels_in_the_ratio() -> None:
    answer = reference(methods=("eagle3",))
    nccl = next(e for e in answer.experiments if e.measurement.name == "nccl-tests")
    assert nccl.worth.evsi < 0.1 * answer.decision.evpi


def test_the_engine_log_is_not_offered_once_the_backend_is_stated() -> None:
    assert "engine log" not in names(reference("engine.attention_backend=TRITON_MLA"))


def test_knowing_the_backend_lowers_the_regret_about_as_promised() -> None:
    """The mean regret left over both answers of the log is what the experiment said it would be."""
    answer = reference(methods=("eagle3",))
    log = next(e for e in answer.experiments if e.measurement.name == "engine log")
    regrets = [reference(f"parameters.verify_path_applies={x}", methods=("eagle3",)).decision.evpi for x in (0.0, 1.0)]
    expected = 0.4 * regrets[0] + 0.6 * regrets[1]  # the prior: it applies with probability 0.6
    assert log.regret_after == pytest.approx(expected, abs=0.01)


def test_a_single_gpu_has_no_allreduce_to_measure() -> None:
    answer = found(engine={"tensor_parallel_size": 1}, hardware={"interconnect": "none"})
    assert not {"nccl-tests", "profiler"} & names(answer)


def test_what_is_measured_already_is_not_proposed() -> None:
    facts = [{"concurrency": c, "tpot_ms": 10.0 + c / 10} for c in (1, 16, 128)]
    raw = {**BASE, "measured": facts}
    answer = experiments(load_deployment(raw), num_draws=200)
    assert "baseline sweep" not in names(answer)


def test_replay_is_proposed_for_text_lookup_until_it_was_made() -> None:
    assert "replay" not in names(found())
    lookup = {**BASE, "speculation": {"method": "ngram"}}
    assert "replay" in names(experiments(load_deployment(lookup), num_draws=200))


def test_a_restart_costs_its_outage_and_a_choice_that_needs_none_saves_it() -> None:
    short, long = (found(restart={"outage_min": m}) for m in (1.0, 600.0))
    for quick, slow in zip(
        sorted(short.experiments, key=lambda e: e.measurement.name),
        sorted(long.experiments, key=lambda e: e.measurement.name),
        strict=True,
    ):
        assert quick.worth.evsi == slow.worth.evsi
        extra = quick.expected_restarts - (1.0 if short.decision.choice else 0.0)
        assert quick.net_value_min is not None
        assert slow.net_value_min is not None
        assert quick.net_value_min - slow.net_value_min == pytest.approx(599.0 * extra)


def test_the_value_grows_with_the_horizon_and_restarts_do_not() -> None:
    week, month = found(), found(horizon_days=28.0)
    assert [e.worth.evsi for e in week.experiments] == [
        next(m for m in month.experiments if m.measurement.name == e.measurement.name).worth.evsi
        for e in week.experiments
    ]


def test_without_a_stated_outage_there_is_no_net_value_but_a_reason() -> None:
    raw = {key: value for key, value in BASE.items() if key != "restart"}
    answer = experiments(load_deployment(raw), num_draws=200).to_dict()
    assert answer["net_value_reason"]
    assert all(e["net_value_s"] is None for e in answer["experiments"])


def test_rolling_restarts_with_room_miss_nothing() -> None:
    answer = found(restart={"outage_min": 10.0, "replicas": 4, "traffic_tokens_per_s": 1.0})
    assert answer.missed_per_restart_s == 0.0


def test_experiments_come_best_first() -> None:
    values = [e.net_value_min for e in found().experiments]
    assert values == sorted(values, key=lambda v: -(v or 0.0))


def test_what_needs_no_restart_and_tells_a_fair_share_is_to_be_made_first() -> None:
    answer = reference(methods=("eagle3",))
    steps = worthwhile(answer)
    assert steps[0].measurement.name == "engine log"
    assert steps[0].measurement.restarts == 0
    assert max(steps, key=lambda e: e.worth.evsi) is not steps[0]
    assert "If that leaves it open: run eagle3" in answer.to_dict()["recommendation"]


def test_a_sure_choice_needs_no_experiment() -> None:
    sure = {"acceptance": {"per_position": [0.0] * 8, "num_requests": 10**6}}
    answer = found(speculation=sure)
    assert answer.choice == ("none", 0)
    assert "decide now" in answer.to_dict()["recommendation"]


def test_equal_seeds_give_equal_answers_and_what_cannot_be_is_stated() -> None:
    assert found().to_dict() == found().to_dict()
    with pytest.raises(InputError, match="horizon_days"):
        found(horizon_days=0.0)
    with pytest.raises(InputError, match=r"speculation\.method"):
        experiments(load_deployment({**BASE, "speculation": {"method": "none"}}), num_draws=100)


def test_what_does_not_fit_is_said_first() -> None:
    tables = {
        "model": {"config": "deepseek-v3-fp8"},
        "hardware": {"gpu": "rtx-4090", "num_gpus": 2},
        "engine": {"version": "0.25.0", "tensor_parallel_size": 2},
        "speculation": {"method": "eagle3"},
    }
    deployment = load_deployment(tables)
    said = experiments(deployment, num_draws=100).to_dict()["recommendation"]
    assert said.startswith("It does not fit as it stands: ")
    assert adaptive(deployment, num_draws=100).to_dict()["recommendation"].startswith("It does not fit as it stands: ")


def test_a_longer_context_is_asked_for_only_where_it_fits_the_cache():
    tables = {
        "model": {"config": "qwen3-8b-bf16"}, "hardware": {"gpu": "rtx-4090", "num_gpus": 1},
        "engine": {"max_model_len": 32768}, "speculation": {"method": "ngram"},
        "workload": {"concurrency": [1, 4], "input_tokens": 4000, "output_tokens": 1000},
    }  # fmt: skip
    names = [e.measurement.name for e in experiments(load_deployment(tables), num_draws=100).experiments]
    assert "longer context" not in names, "18,000 tokens do not fit beside 16 GB of weights in 24 GB"
    roomy = {**tables, "hardware": {"gpu": "h100-sxm", "num_gpus": 1}}
    assert "longer context" in [
        e.measurement.name for e in experiments(load_deployment(roomy), num_draws=100).experiments
    ]
