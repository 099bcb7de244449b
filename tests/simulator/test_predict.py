"""The questions and their answers: the JSON contract, repeatability, refusals, and deployments of every kind."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodel.errors import InputError, UnknownNameError
from hwmodel.step import STEP_PARTS
from simulator.choose import choose
from simulator.deployment import Deployment, load_deployment
from simulator.predict import predict, whatif
from simulator.results import Choice, GridCell, Prediction

MOE: dict[str, Any] = {
    "model": {"config": "qwen3-30b-a3b-bf16"},
    "hardware": {"gpu": "rtx-pro-6000-blackwell-server", "interconnect": "pcie-switch"},
    "engine": {"version": "0.16.0", "tensor_parallel_size": 4},
    "speculation": {"method": "eagle3", "num_speculative_tokens": 2, "acceptance": {"per_position": [0.7, 0.5, 0.3]}},
    "workload": {"concurrency": [4, 32]},
    "restart": {"outage_min": 30.0},
}
# What is unusual about each, and one method for it.
ODD: dict[str, dict[str, Any]] = {
    "one GPU, dense": {
        "model": {"config": "llama-3.2-1b-bf16"},
        "hardware": {"gpu": "h100-sxm"},
        "speculation": {"method": "ngram"},
    },
    "does not fit": {
        "model": {"config": "kimi-k2.5-int4"},
        "hardware": {"gpu": "h100-sxm"},
        "speculation": {"method": "eagle3"},
        "restart": {"outage_min": 30.0},
    },
    "the drafter alone does not fit": {
        "model": {"config": "qwen3-32b-bf16"},
        "hardware": {"gpu": "h100-sxm"},
        "engine": {"gpu_memory_utilization": 0.87},
        "speculation": {"method": "draft_model", "draft_model": "qwen3-8b-bf16"},
    },
    "k = 0 in the file": {
        "model": {"config": "qwen3-8b-bf16"},
        "hardware": {"gpu": "rtx-4090"},
        "speculation": {"method": "eagle3", "num_speculative_tokens": 0},
    },
    "data and expert parallel": {
        "model": {"config": "deepseek-v3-fp8"},
        "hardware": {"gpu": "h200"},
        "engine": {"data_parallel_size": 8, "expert_parallel": True},
        "speculation": {"method": "mtp", "num_speculative_tokens": 1},
    },
    "pipeline": {
        "model": {"config": "llama-3.3-70b-bf16"},
        "hardware": {"gpu": "a100-sxm-80gb"},
        "engine": {"tensor_parallel_size": 2, "pipeline_parallel_size": 2},
        "speculation": {"method": "eagle3"},
    },
    "hybrid attention": {
        "model": {"config": "qwen3-next-80b-a3b-bf16"},
        "hardware": {"gpu": "h200"},
        "engine": {"tensor_parallel_size": 4},
        "speculation": {"method": "mtp"},
    },
    "sparse attention": {
        "model": {"config": "deepseek-v3.2-fp8"},
        "hardware": {"gpu": "b200"},
        "engine": {"tensor_parallel_size": 8},
        "speculation": {"method": "mtp"},
    },
    "decode context parallel": {
        "model": {"config": "kimi-k2.5-int4"},
        "hardware": {"gpu": "rtx-pro-6000-blackwell-server"},
        "engine": {"tensor_parallel_size": 8, "decode_context_parallel_size": 8},
        "speculation": {"method": "suffix"},
    },
    "windowed attention": {
        "model": {"config": "gpt-oss-120b-mxfp4"},
        "hardware": {"gpu": "h100-sxm"},
        "engine": {"version": "0.31.0"},
        "speculation": {"method": "dflash"},
    },
    "SGLang": {
        "model": {"config": "qwen3-235b-a22b-fp8"},
        "hardware": {"gpu": "h100-sxm"},
        "engine": {"name": "sglang", "tensor_parallel_size": 8},
        "speculation": {"method": "eagle3"},
    },
    "eager": {
        "model": {"config": "mixtral-8x7b-bf16"},
        "hardware": {"gpu": "l40s"},
        "engine": {"tensor_parallel_size": 4, "enforce_eager": True},
        "speculation": {"method": "draft_model", "draft_model": "llama-3.2-1b-bf16"},
    },
    "CPU": {
        "model": {"config": "qwen3-0.6b-bf16"},
        "hardware": {"gpu": "cpu-2core"},
        "speculation": {"method": "ngram"},
    },
    "one token of output": {
        "model": {"config": "qwen3-8b-bf16"},
        "hardware": {"gpu": "h100-sxm"},
        "speculation": {"method": "medusa"},
        "workload": {"input_tokens": 1, "output_tokens": 1},
    },
    "never accepted": {
        "model": {"config": "qwen3-8b-bf16"},
        "hardware": {"gpu": "h100-sxm"},
        "speculation": {"method": "eagle3", "acceptance": {"conditional": [0.0]}},
        "restart": {"outage_min": 30.0},
    },
}
CONTRACT = {
    "inputs",
    "speedup",
    "probability_faster",
    "break_even_tokens_per_step",
    "baseline",
    "speculative",
    "why",
    "prediction_id",
}


def deployment(**changes: Any) -> Deployment:
    """The MoE deployment with keys of its tables laid over."""
    return load_deployment({**MOE, **{name: {**MOE.get(name, {}), **table} for name, table in changes.items()}})


def strict(answer: Prediction | Choice) -> str:
    """The answer as strict JSON; raises where a number is not finite."""
    return json.dumps(answer.to_dict(), allow_nan=False)


def cell(choice: Choice, k: int, concurrency: int) -> GridCell:
    """One cell of the grid."""
    return next(g for g in choice.grid if (g.num_speculative_tokens, g.concurrency) == (k, concurrency))


def refusal(ask: Callable[[], object], kind: type[InputError] = InputError) -> str:
    """The one line of a refusal."""
    with pytest.raises(kind) as raised:
        ask()
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize("name", ODD)
def test_answers_are_strict_json_with_the_keys_of_the_contract(name: str) -> None:
    asked = load_deployment(ODD[name])
    prediction = predict(asked, num_draws=40)
    answer = json.loads(strict(prediction))
    assert set(answer) >= CONTRACT
    for arm in (answer["baseline"], answer["speculative"]):
        assert set(arm["parts_s"]) == set(STEP_PARTS)
        assert sum(arm["parts_s"].values()) == pytest.approx(arm["step_s"])
        assert arm["tpot_s"] > 0.0
    choice = json.loads(strict(choose(asked, num_speculative_tokens=range(4), concurrency=[1, 100], num_draws=40)))
    assert len(choice["grid"]) == 8
    assert set(choice["recommendation"]) >= {
        "num_speculative_tokens",
        "schedule",
        "flag",
        "restart_worth_it",
        "why",
    }
    assert set(choice["restart"]) >= {"outage_s", "payback_s", "payback_reason"}
    assert set(choice["memory"]) >= {
        "weights_bytes",
        "draft_bytes",
        "kv_cache_tokens_baseline",
        "kv_cache_tokens_speculative",
        "max_concurrency_baseline",
        "max_concurrency_speculative",
        "fits",
    }


def test_what_does_not_fit_says_so_in_figures_and_in_words() -> None:
    found = predict(load_deployment(ODD["does not fit"]), num_draws=40)
    assert found.memory["fits"] is False
    assert found.baseline.limited_by == "does_not_fit"
    assert any("does not fit" in note for note in found.notes)
    choice = choose(load_deployment(ODD["does not fit"]), num_draws=40)
    assert choice.recommendation.num_speculative_tokens == 0
    assert choice.recommendation.flag == ""


def test_a_drafter_that_does_not_fit_beside_the_model_is_told_apart() -> None:
    found = predict(load_deployment(ODD["the drafter alone does not fit"]), num_draws=40)
    assert found.memory["limited_by_baseline"] != "does_not_fit"
    assert found.memory["limited_by_speculative"] == "does_not_fit"
    assert found.memory["fits"] is False
    choice = choose(load_deployment(ODD["the drafter alone does not fit"]), num_draws=40)
    assert choice.recommendation.num_speculative_tokens == 0


def test_break_even_is_the_step_ratio_and_decides_who_is_faster_for_one_user() -> None:
    for rate in (0.05, 0.9):
        spec = {"method": "eagle3", "acceptance": {"conditional": [rate]}}
        found = predict(load_deployment({**MOE, "speculation": spec}), concurrency=1, num_draws=40)
        assert found.break_even_tokens_per_step == pytest.approx(found.speculative.step_s / found.baseline.step_s)
        faster = found.speculative.tokens_per_step > found.break_even_tokens_per_step
        assert (found.speculative.tpot_s < found.baseline.tpot_s) == faster == (rate == 0.9)


def test_acceptance_at_break_even_gives_the_tpot_of_the_baseline() -> None:
    needed = predict(deployment(), num_speculative_tokens=1, concurrency=1, num_draws=40).break_even_tokens_per_step
    spec = {"method": "eagle3", "acceptance": {"mean_length": needed, "measured_at_k": 1}}
    found = predict(
        load_deployment({**MOE, "speculation": spec}), num_speculative_tokens=1, concurrency=1, num_draws=40
    )
    assert found.speculative.tpot_s == pytest.approx(found.baseline.tpot_s, rel=1e-6)


def test_no_drafted_tokens_are_exactly_the_baseline() -> None:
    found = predict(deployment(), num_speculative_tokens=0, num_draws=40)
    assert set(found.speedup.values()) == {1.0}
    assert (found.probability_faster, found.break_even_tokens_per_step) == (0.0, 1.0)
    assert found.speculative == found.baseline
    assert found.client_effects == ()


def test_defaults_are_the_files_draft_length_and_first_concurrency() -> None:
    found = predict(deployment(), num_draws=40)
    assert (found.inputs["num_speculative_tokens"], found.inputs["concurrency"]) == (2, 4)


def test_a_missing_draft_length_is_assumed_and_noted() -> None:
    found = predict(load_deployment({**MOE, "speculation": {"method": "eagle3"}}), num_draws=40)
    assert found.inputs["num_speculative_tokens"] == 3
    assert any("num_speculative_tokens is not given; 3 assumed" in note for note in found.notes)


def test_a_deployment_without_a_method_is_answered_with_its_baseline() -> None:
    plain = load_deployment({**MOE, "speculation": {}})
    found = predict(plain, num_draws=40)
    assert found.inputs["num_speculative_tokens"] == 0
    recommended = choose(plain, num_speculative_tokens=[0], num_draws=40).recommendation
    assert recommended.num_speculative_tokens == 0
    assert recommended.why == "No speculation method is named, so there is nothing to enable."


def test_the_same_question_has_the_same_answer_byte_for_byte() -> None:
    assert strict(predict(deployment(), num_draws=60)) == strict(predict(deployment(), num_draws=60))
    assert strict(choose(deployment(), num_draws=60)) == strict(choose(deployment(), num_draws=60))


def test_another_seed_gives_another_id_and_nearly_the_same_answer() -> None:
    one, other = (predict(deployment(), num_draws=4000, seed=seed) for seed in (0, 1))
    assert one.prediction_id != other.prediction_id
    assert one.baseline.tpot_s == other.baseline.tpot_s
    assert one.speedup["p50"] == pytest.approx(other.speedup["p50"], rel=0.015)
    assert one.speedup["p05"] == pytest.approx(other.speedup["p05"], rel=0.03)
    assert one.probability_faster == pytest.approx(other.probability_faster, abs=0.03)


def test_another_question_has_another_id() -> None:
    ids = {
        predict(deployment(), num_draws=20, num_speculative_tokens=k, concurrency=c).prediction_id
        for k in (1, 2)
        for c in (1, 2)
    }
    assert len(ids) == 4


def test_quantiles_are_in_order_and_the_median_is_near_the_point_value() -> None:
    found = predict(deployment(), num_draws=1000)
    figures = [found.speedup[name] or 0.0 for name in ("p05", "p10", "p25", "p50", "p75", "p90", "p95")]
    assert figures == sorted(figures)
    assert figures[0] > 0.0
    ratio = found.speculative.throughput_tokens_per_s / found.baseline.throughput_tokens_per_s
    assert found.speedup["p50"] == pytest.approx(ratio, rel=0.05)


def test_a_cell_is_the_same_alone_and_in_the_full_grid() -> None:
    full = choose(deployment(), num_draws=100)
    alone = choose(deployment(), num_speculative_tokens=[3], concurrency=[4], num_draws=100)
    one, among = cell(alone, 3, 4).to_dict(), cell(full, 3, 4).to_dict()
    assert one.pop("speedup") == pytest.approx(among.pop("speedup"), rel=1e-6)
    assert one.pop("limited_by") == among.pop("limited_by")
    assert one == pytest.approx(among, rel=1e-6)


def test_predict_and_choose_agree() -> None:
    found = predict(deployment(), num_speculative_tokens=3, concurrency=32, num_draws=100)
    among = cell(choose(deployment(), num_draws=100), 3, 32)
    assert among.speedup == pytest.approx(found.speedup, rel=1e-6)
    assert among.tpot_s == pytest.approx(found.speculative.tpot_s, rel=1e-6)
    assert among.probability_faster == found.probability_faster


def test_the_baseline_is_in_every_grid() -> None:
    choice = choose(deployment(), num_speculative_tokens=[2], num_draws=40)
    assert {g.num_speculative_tokens for g in choice.grid} == {0, 2}
    assert set(cell(choice, 0, 4).speedup.values()) == {1.0}


def test_flag_carries_the_recommended_length_and_schedule() -> None:
    newer = deployment(engine={"version": "0.31.0"}, workload={"concurrency": [1, 8, 64, 256]})
    recommended = choose(newer, num_draws=200).recommendation
    assert recommended.num_speculative_tokens > 0
    config = json.loads(recommended.flag.split("'")[1])
    assert config["num_speculative_tokens"] == recommended.num_speculative_tokens
    assert config.get("num_speculative_tokens_per_batch_size") == recommended.schedule


def test_payback_follows_from_the_gain() -> None:
    choice = choose(deployment(), num_draws=400)
    gain, payback = choice.recommendation.gain["p50"], choice.restart["payback_s"]["p50"]
    assert gain is not None
    assert payback == pytest.approx(1800.0 / (gain - 1.0), rel=0.01)
    assert choice.restart["outage_s"] == 1800.0


def test_the_certainty_asked_for_turns_a_doubtful_recommendation_off() -> None:
    doubtful = {"method": "eagle3", "acceptance": {"conditional": [0.4]}}
    careful, willing = (
        choose(
            load_deployment({**MOE, "speculation": doubtful, "objective": {"min_probability_faster": asked}}),
            concurrency=[256],
            num_draws=400,
        ).recommendation
        for asked in (0.95, 0.3)
    )
    assert 0.3 < careful.probability_better == willing.probability_better < 0.95
    assert (careful.num_speculative_tokens, careful.restart_worth_it, careful.flag) == (0, False, "")
    assert willing.num_speculative_tokens == willing.best_if_enabled == careful.best_if_enabled > 0
    assert "95 % asked" in careful.why


def test_a_limit_that_nothing_keeps_recommends_nothing_and_says_why() -> None:
    recommended = choose(deployment(objective={"tpot_ms_max": 0.001}), num_draws=40).recommendation
    assert recommended.num_speculative_tokens == 0
    assert "no draft length fits in memory and keeps the limits" in recommended.why


def test_a_version_that_refuses_the_method_recommends_nothing() -> None:
    old = load_deployment({**MOE, "speculation": {"method": "dspark"}})  # came with 0.25
    recommended = choose(old, num_speculative_tokens=[3], num_draws=40).recommendation
    assert (recommended.num_speculative_tokens, recommended.flag, recommended.restart_worth_it) == (0, "", False)
    assert "0.25" in recommended.why


def test_another_method_leaves_the_files_acceptance_out_and_says_so() -> None:
    switched = predict(deployment(), method="mtp", num_draws=40)
    assert switched.inputs["method"] == "mtp"
    assert any("acceptance of [speculation] left out" in note for note in switched.notes)
    assert "acceptance" not in switched.inputs["deployment"]["speculation"]
    assert any("prior for mtp" in line for line in switched.why)


def test_whatif_has_a_row_for_every_combination_in_order() -> None:
    answer = whatif(
        deployment(), {"engine.tensor_parallel_size": [1, 2], "workload.input_tokens": [100, 4000]}, num_draws=40
    )
    assert [row.vary for row in answer.rows] == [
        {"engine.tensor_parallel_size": tp, "workload.input_tokens": n} for tp in (1, 2) for n in (100, 4000)
    ]
    rows = json.loads(json.dumps(answer.to_dict(), allow_nan=False))["rows"]
    assert set(rows[0]) >= {"vary", "speedup", "probability_faster", "baseline", "speculative"}
    assert rows[0]["baseline"]["step_s"] < rows[1]["baseline"]["step_s"]


def test_whatif_says_which_key_changes_nothing_and_what_the_other_gpus_do() -> None:
    keys = {"hardware.num_gpus": [1, 8], "workload.input_tokens": [100, 4000]}
    notes = whatif(deployment(engine={"tensor_parallel_size": 1}), keys, num_draws=40).notes
    assert notes[0] == "hardware.num_gpus changes no figure here"
    assert notes[1].startswith("1 of the 8 GPUs serve (TP 1 x PP 1 x DP 1)")
    assert len(notes) == 2
    assert whatif(deployment(), {"workload.input_tokens": [100, 4000]}, num_draws=40).notes == ()


def test_whatif_equals_the_prediction_of_the_changed_file() -> None:
    row = whatif(deployment(), {"engine.tensor_parallel_size": [2]}, num_draws=40).rows[0].prediction
    changed = predict(deployment(engine={"tensor_parallel_size": 2}), num_draws=40)
    assert row is not None
    assert row.speedup == changed.speedup
    assert row.baseline == changed.baseline


def test_a_variant_that_cannot_be_built_has_an_error_and_the_others_their_figures() -> None:
    answer = whatif(deployment(), {"engine.tensor_parallel_size": [2, 3]}, num_draws=40).to_dict()
    assert "speedup" in answer["rows"][0]
    assert "got 3" in answer["rows"][1]["error"]
    assert "\n" not in answer["rows"][1]["error"]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"engine": {"tensor_parallel_size": 6}}, "engine.tensor_parallel_size: got 6"),
        ({"engine": {"tensor_parallel_size": 5, "expert_parallel": True}}, "engine.tensor_parallel_size: got 5"),
        ({"parameters": {"bandwidth": 0.8}}, "no model parameter 'bandwidth'"),
        ({"speculation": {"method": "draft_model", "acceptance": None}}, "speculation.draft_model: got nothing"),
        ({"model": {"config": "llama-3.2-1b-bf16"}, "engine": {"expert_parallel": True}}, "expert_parallel: got true"),
    ],
)
def test_deployments_that_no_engine_accepts_are_refused_in_one_line(changes: dict[str, Any], text: str) -> None:
    assert text in refusal(lambda: predict(deployment(**changes), num_draws=10))


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ({"num_speculative_tokens": 65}, "num_speculative_tokens: got 65, allowed 0 to 64"),
        ({"num_speculative_tokens": -1}, "num_speculative_tokens: got -1, allowed 0 to 64"),
        ({"concurrency": 0}, "concurrency: got 0, allowed 1 to 100000"),
        ({"concurrency": 100_001}, "concurrency: got 100001"),
    ],
)
def test_questions_out_of_range_are_refused_in_one_line(question: dict[str, int], text: str) -> None:
    assert text in refusal(lambda: predict(deployment(), **question, num_draws=10))  # type: ignore[arg-type]


def test_unknown_method_is_refused_with_the_known_ones() -> None:
    line = refusal(lambda: predict(deployment(), method="eagle4", num_draws=10), UnknownNameError)
    assert "eagle3" in line


def test_drafting_without_a_method_is_refused() -> None:
    plain = load_deployment({**MOE, "speculation": {}})
    assert "speculation.method is none" in refusal(lambda: predict(plain, num_speculative_tokens=3, num_draws=10))


def test_grids_out_of_range_are_refused_before_anything_is_computed() -> None:
    assert "got an empty list" in refusal(lambda: choose(deployment(), num_speculative_tokens=[]))
    assert "got 65" in refusal(lambda: choose(deployment(), num_speculative_tokens=[1, 65]))
    assert "concurrency: got 0" in refusal(lambda: choose(deployment(), concurrency=[1, 0]))
    too_many = refusal(lambda: choose(deployment(), num_speculative_tokens=range(65), concurrency=range(1, 2001)))
    assert too_many == "grid: got 130000 cells, allowed at most 100000"


def test_whatif_without_keys_or_with_too_many_is_refused() -> None:
    assert "nothing to vary" in refusal(lambda: whatif(deployment(), {}))
    many = {"workload.input_tokens": range(1, 1001), "workload.output_tokens": range(1, 102)}
    assert "got 101000 combinations" in refusal(lambda: whatif(deployment(), many))


def test_whatif_of_which_nothing_can_be_built_is_refused_with_the_first_reason() -> None:
    line = refusal(lambda: whatif(deployment(), {"engine.tensor_parallel_size": [3, 5]}, num_draws=10))
    assert line.startswith("whatif: no variant can be built; the first: engine.tensor_parallel_size: got 3")


def test_whatif_of_an_unknown_key_is_refused_with_the_nearest() -> None:
    assert "num_gpus" in refusal(lambda: whatif(deployment(), {"hardware.num_gpu": [1]}, num_draws=10))


@settings(max_examples=15)
@given(
    k=st.integers(0, 64),
    users=st.integers(1, 5000),
    method=st.sampled_from(["ngram", "suffix", "eagle", "eagle3", "mtp", "medusa", "mlp_speculator"]),
    tokens=st.tuples(st.integers(1, 30_000), st.integers(1, 4000)),
)
def test_any_question_in_range_has_a_strict_answer(k: int, users: int, method: str, tokens: tuple[int, int]) -> None:
    asked = load_deployment(
        {
            **MOE,
            "speculation": {"method": method},
            "workload": {"input_tokens": tokens[0], "output_tokens": tokens[1]},
        }
    )
    found = predict(asked, num_speculative_tokens=k, concurrency=users, num_draws=12)
    strict(found)
    assert 0.0 <= found.probability_faster <= 1.0
    assert found.baseline.running_requests <= users
    assert found.speculative.tokens_per_step >= 1.0
