"""Options side by side: limits by hand, monotonicity, one model for all, and the recommendation."""

import json

import numpy as np
import pytest

from hwmodel.engine.backends import usable_backends
from hwmodel.engine.versions import format_version, newest_version
from hwmodel.models import load_model
from simulator.deployment import apply_overrides, load_deployment
from simulator.options import drafters, engine, machine
from simulator.options.build import load_gains
from simulator.options.compare import cheapest, compare_options, recommend, takes_more_than_a_restart
from simulator.options.moves import Today, drafters_today
from simulator.options.record import Experiment, Need, NextBest, Option, Risk
from simulator.options.situation import Outcome, Situation
from simulator.predict import predict

DRAWS = 200
REFERENCE = "examples/kimi-k2.5-8x-rtx-pro-6000.toml"
NEWEST = format_version(newest_version("vllm"))
DENSE = {
    "model": {"config": "llama-3.1-8b-bf16"},
    "hardware": {"gpu": "h100-sxm", "num_gpus": 1},
    "engine": {"version": NEWEST, "max_model_len": 16384},
    "workload": {"concurrency": [1, 8]},
    "restart": {"outage_min": 5},
}


def dense(**tables):
    return load_deployment({**DENSE, **tables})


def situation(deployment, loads=(1, 8)):
    return Situation(deployment, loads, DRAWS, 0)


def with_acceptance(rate):
    return f"speculation.acceptance={{ per_position = [{rate}, {rate}, {rate}] }}"


# ------------------------------------------------------------------ the situation: one baseline for everything


def test_nothing_changed_is_exactly_today():
    here = situation(dense())
    outcome = here.outcome(("speculation.method=none",))
    assert np.all(outcome.speedup == 1.0)
    assert np.all(outcome.traffic_gain(0) == 1.0)


def test_a_drafter_that_is_never_accepted_is_slower_and_never_lists_as_worth_it():
    here = situation(dense())
    outcome = here.outcome(("speculation.method=eagle3", with_acceptance(0.0)))
    k = outcome.pick.best_enabled
    assert np.median(outcome.traffic_speedup(k)) < 1.0


def test_a_drafter_that_is_always_accepted_gains_at_most_one_plus_k():
    here = situation(dense())
    outcome = here.outcome(("speculation.method=eagle3", with_acceptance(1.0)), [3])
    gains = np.median(outcome.speedup[:, [outcome.column(3, load) for load in here.loads]], axis=0)
    assert np.all(gains > 1.5)
    assert np.all(gains < 4.0)


def test_more_acceptance_is_never_slower():
    here = situation(dense())
    medians = []
    for rate in (0.0, 0.25, 0.5, 0.75, 1.0):
        outcome = here.outcome(("speculation.method=eagle3", with_acceptance(rate)), [3])
        medians.append(np.median(outcome.traffic_speedup(3)))
    assert medians == sorted(medians)


def test_gains_are_those_of_predict_with_the_same_overrides():
    deployment = load_deployment(REFERENCE)
    here = Situation(deployment, (16,), DRAWS, 0)
    changes = ("speculation.method=eagle3", "speculation.acceptance.published=lightseekorg/kimi-k2.5-eagle3")
    outcome = here.outcome(changes, [3])
    said = predict(apply_overrides(deployment, changes), num_speculative_tokens=3, concurrency=16, num_draws=DRAWS)
    assert load_gains(outcome, 3)[0].speedup["p50"] == pytest.approx(said.speedup["p50"], rel=1e-9)
    assert load_gains(outcome, 3)[0].probability_faster == pytest.approx(said.probability_faster)


def test_the_models_own_error_only_counts_for_what_changed():
    """The same engine under another name of its version: no part of the step moves, so nothing can be off."""
    here = situation(dense(engine={"version": "0.33.0"}))
    outcome = here.outcome(("speculation.method=none", "engine.max_num_batched_tokens=8192", "engine.version=0.33.1"))
    share = here.moved_share(outcome.study, outcome.point)
    assert share.max() < 0.2
    other = here.outcome(("speculation.method=none", "hardware.gpu=h200"))
    assert np.all(here.moved_share(other.study, other.point) == 1.0)


def test_screening_agrees_with_the_full_outcome():
    here = Situation(load_deployment(REFERENCE), (1, 16), 1000, 0)
    changes = ("speculation.method=eagle3", "speculation.acceptance.published=lightseekorg/kimi-k2.5-eagle3")
    screened, outcome = here.screened(changes, (3,)), here.outcome(changes, [3])
    full = float(np.median(outcome.traffic_speedup(3)))
    assert screened.gain == pytest.approx(full, rel=0.15)


def test_what_cannot_be_built_is_a_sentence_or_nothing():
    here = situation(dense())
    assert "b999" in here.possible(("hardware.gpu=b999",))
    assert here.screened(("hardware.gpu=b999",)) is None
    assert here.screened(("model.config=kimi-k2.5-int4", "speculation.method=none")) is None, "it does not fit"


# ------------------------------------------------------------------ drafters


def names(deployment):
    return [words.name for _, words in drafters.candidates(situation(deployment))]


def test_mtp_is_there_only_for_models_that_have_such_layers():
    with_layers = load_deployment({**DENSE, "model": {"config": "qwen3.5-35b-a3b-bf16"}, "hardware": {"gpu": "b200"}})
    assert "own MTP layers" in names(with_layers)
    assert "own MTP layers" not in names(dense())


def test_heads_are_the_models_own_and_a_relatives_only_in_their_place():
    kimi = [name for name in names(load_deployment(REFERENCE)) if "/" in name]
    assert any(name.startswith("lightseekorg/kimi-k2.5-eagle3") for name in kimi)
    assert not any("trained for kimi-k2.6" in name for name in kimi), "there are EAGLE-3 heads of its own"
    assert any("trained for kimi-k2.7-code" in name for name in kimi), "no DFlash head of its own has weights"


def test_a_model_without_published_heads_gets_none():
    assert not [
        name for name in names(dense(model={"config": "mixtral-8x7b-bf16"}, hardware={"gpu": "b200"})) if "/" in name
    ]


def test_draft_models_are_small_relatives_with_the_same_vocabulary():
    found = drafters.small_relatives(load_model("qwen3-32b-bf16"))
    assert found == ["qwen3-0.6b-bf16", "qwen3-1.7b-bf16"]
    assert drafters.small_relatives(load_model("qwen3-0.6b-bf16")) == []
    assert drafters.small_relatives(load_model("kimi-k2.5-int4")) == []


def test_active_parameters_count_only_the_experts_of_one_token():
    assert drafters.active_parameters(load_model("qwen3-30b-a3b-bf16")) == pytest.approx(3.0e9, rel=0.1)
    assert drafters.active_parameters(load_model("llama-3.1-8b-bf16")) == pytest.approx(7.5e9, rel=0.1)


def test_what_the_engine_refuses_is_no_option():
    old = dense(engine={"version": "0.8.0", "max_model_len": 16384})
    found = [option.method for option in drafters.options(situation(old))]
    assert "eagle3" not in found, "it came with 0.8.5"
    assert "ngram_gpu" not in found, "it came with 0.18"


def test_trees_are_there_for_sglang_alone():
    sglang = dense(engine={"name": "sglang"})
    assert any("tree with topk" in name for name in names(sglang))
    assert not any("tree" in name for name in names(dense()))
    trees = [option for option in drafters.options(situation(sglang)) if "tree with topk" in option.name]
    assert {option.num_speculative_tokens for option in trees} == {5, 7}


def test_the_files_own_acceptance_stays_with_its_method():
    measured = dense(speculation={
        "method": "eagle3", "num_speculative_tokens": 3, "acceptance": {"per_position": [0.9, 0.8, 0.7]},
    })  # fmt: skip
    options = {option.name: option for option in drafters.options(situation(measured))}
    own = options["eagle3, as in the file"]
    assert "0.900 0.800 0.700" in own.assumptions[0]
    others = [option for name, option in options.items() if name != own.name]
    assert own.value > max(option.value for option in others)


def test_a_drafters_memory_is_among_its_needs():
    option = next(o for o in drafters.options(situation(dense())) if o.method == "eagle3")
    kinds = {need.kind: need for need in option.needs}
    assert kinds["memory"].amounts["bytes_per_gpu"] > 1e8
    assert 0 < kinds["memory"].amounts["kv_cache_share"] < 0.5
    assert "weights" in kinds
    assert kinds["restart"].amounts["outage_s"] == 300.0


# ------------------------------------------------------------------ moves of engine and machine


def today_of(here):
    candidates = list(drafters.candidates(here))
    return drafters_today([changes for changes, _ in candidates], drafters.usable_options(here, candidates))


def test_the_newest_engine_with_everything_on_has_no_engine_option():
    here = situation(
        dense(engine={"version": NEWEST, "max_model_len": 16384, "model_runner": "v2", "async_scheduling": True})
    )
    assert list(engine.options(here, today_of(here))) == []


def test_an_eager_engine_is_offered_graphs():
    eager = {"version": NEWEST, "max_model_len": 16384, "enforce_eager": True}
    here = situation(dense(engine=eager, model={"config": "qwen3-0.6b-bf16"}))
    found = {option.name: option for option in engine.options(here, today_of(here))}
    assert found["CUDA graphs"].gain["p50"] > 1.0
    assert any("full graphs in decode" in note for note in found["CUDA graphs"].notes)


def test_the_reference_case_is_offered_the_newest_engine_because_drafted_rows_leave_the_prefill_branch():
    here = Situation(load_deployment(REFERENCE), (1, 16), DRAWS, 0)
    found = {option.name: option for option in engine.options(here, today_of(here))}
    newer = found[f"newer engine: vllm {NEWEST}"]
    assert newer.best_after.method == "eagle3"
    assert any("no longer go through prefill" in note for note in newer.notes)
    assert newer.best_after.gain["p50"] > newer.gain["p50"]


def test_backends_are_those_that_some_version_picks_for_the_gpu():
    assert usable_backends("mla", "12.0") == ("TRITON_MLA",)
    assert "FLASHINFER_MLA" in usable_backends("mla", "10.0")


def test_one_gpu_has_no_communication_and_no_layout_to_change():
    here = situation(dense())
    kinds = {option.kind for option in machine.options(here, today_of(here))}
    assert kinds <= {"memory", "format", "hardware"}


def test_layouts_use_all_gpus_and_experts_only_where_there_are_any():
    layouts = list(machine._all_layouts(8, load_model("llama-3.1-8b-bf16"), False))
    assert all(tensor * pipeline * data == 8 for tensor, pipeline, data, _, _ in layouts)
    assert not any(experts for _, _, _, experts, _ in layouts)
    with_experts = machine._all_layouts(8, load_model("mixtral-8x7b-bf16"), False)
    assert any(experts for _, _, _, experts, _ in with_experts)


def test_other_machines_have_no_more_gpus_than_now_unless_it_takes_more():
    here = situation(dense())
    for option in machine.options(here, today_of(here)):
        if option.kind == "hardware":
            assert "hardware.num_gpus=1" in option.changes
            assert option.payback_s["p50"] is None
            assert option.time_to_benefit_s is None


def test_a_quantised_card_of_the_same_model_is_offered_with_its_risk():
    tables = {**DENSE, "model": {"config": "llama-3.3-70b-bf16"}, "hardware": {"gpu": "h100-sxm", "num_gpus": 4}}
    tables["engine"] = {"version": NEWEST, "tensor_parallel_size": 4, "max_model_len": 16384}
    here = situation(load_deployment(tables))
    found = {option.name: option for option in machine.options(here, today_of(here))}
    assert found["number format: fp8"].risk.level == "low"
    assert found["number format: fp8"].gain["p50"] > 1.0


def test_a_move_shows_where_the_best_drafter_goes():
    here = situation(dense())
    after = [option.best_after for option in machine.options(here, today_of(here)) if option.best_after]
    assert after
    for best in after:
        assert best.num_speculative_tokens > 0
        assert [gain.concurrency for gain in best.by_load] == [1, 8]


# ------------------------------------------------------------------ side by side


@pytest.fixture(scope="module")
def comparison():
    return compare_options(load_deployment(REFERENCE), num_draws=DRAWS)


def test_options_are_sorted_by_value(comparison):
    values = [option.value for option in comparison.options]
    assert values == sorted(values, reverse=True)


def test_every_kind_of_option_of_the_reference_case_is_there(comparison):
    assert {option.kind for option in comparison.options} >= {"drafter", "engine", "hardware", "training"}
    assert {"ngram", "suffix", "eagle3"} <= {option.method for option in comparison.options}


def test_every_option_says_what_it_takes_risks_and_what_would_settle_it(comparison):
    for option in comparison.options:
        assert option.needs[0].kind == "restart"
        assert option.risk.level in ("none", "low", "unknown", "lossy")
        assert option.risk.text
        assert option.next_experiment.text
        assert option.assumptions
        assert [gain.concurrency for gain in option.by_load] == [1, 4, 16, 64, 128]
        assert option.speedup["p05"] <= option.speedup["p50"] <= option.speedup["p95"]
        assert 0 <= option.probability_faster <= 1


def test_the_answer_is_strict_json(comparison):
    text = json.dumps(comparison.to_dict(), allow_nan=False)
    assert set(json.loads(text)["options"][0]) >= {
        "name", "method", "speedup", "needs", "time_to_benefit_s", "payback_s", "risk", "next_experiment",
    }  # fmt: skip


def test_assumptions_are_listed_once(comparison):
    assert len(set(comparison.assumptions)) == len(comparison.assumptions)


def test_the_same_seed_gives_the_same_options():
    one, other, another = (compare_options(dense(), num_draws=DRAWS, seed=seed).to_dict() for seed in (1, 1, 2))
    assert one == other
    assert one != another


def test_the_changes_of_an_option_give_its_figures_back(comparison):
    """What the table says is what `predict` says with the same `--set`, load by load."""
    option = next(o for o in comparison.options if o.name == "n-gram, as in the file")
    deployment = apply_overrides(load_deployment(REFERENCE), option.changes)
    for gain in option.by_load[:2]:
        said = predict(deployment, concurrency=gain.concurrency, num_draws=DRAWS)
        assert gain.speedup["p50"] == pytest.approx(said.speedup["p50"], rel=0.03)
        assert gain.tpot_s == pytest.approx(said.speculative.tpot_s, rel=1e-9)


def made(name, gain, *, probability=0.99, needs=(), experiment=None, after=None):
    figures = {"p05": gain - 0.1, "p50": gain, "p95": gain + 0.1}
    return Option(
        name=name, kind="drafter", method="eagle3", num_speculative_tokens=3, changes=(), by_load=(), speedup=figures,
        gain=figures, probability_faster=probability, needs=needs, time_to_benefit_s=None, payback_s={},
        payback_reason=None, risk=Risk("none", ""), assumptions=(), best_after=after,
        next_experiment=experiment or Experiment("restart", 1800.0),
    )  # fmt: skip


HARDWARE = (Need("hardware", "another machine", {}),)


def test_the_recommendation_is_the_best_sure_option_that_a_restart_reaches():
    options = [made("machine", 3.0, needs=HARDWARE), made("bold", 1.5, probability=0.6), made("sure", 1.2)]
    said = recommend(options, 0.8)
    assert said.option == "sure"
    assert said.beyond == "machine"
    assert "Beyond a restart: machine" in said.text


def test_nothing_sure_enough_is_said_with_what_comes_nearest():
    said = recommend([made("bold", 1.5, probability=0.6), made("slow", 0.8)], 0.8)
    assert said.option is None
    assert said.text.startswith("Keep it as it is")
    assert "bold" in said.text


def test_nothing_faster_at_all_is_said_plainly():
    assert recommend([made("slow", 0.8)], 0.8).text == "Keep it as it is: no option that a restart reaches is faster."


def test_a_drafter_counts_only_where_it_clearly_adds_to_the_change():
    def after(gain):
        figures = {"p05": 0.5, "p50": gain, "p95": 2.0}
        return NextBest("eagle3", "head", 3, figures, figures, 0.6, {}, (), (), ())

    assert made("change", 1.27, after=after(1.28)).best.gain["p50"] == 1.27
    assert made("change", 1.0, after=after(1.4)).best.gain["p50"] == 1.4


def test_an_unsure_drafter_does_not_hide_a_change_that_is_sure_alone():
    figures = {"p05": 0.5, "p50": 1.5, "p95": 2.5}
    option = made("change", 1.2, after=NextBest("eagle3", "head", 3, figures, figures, 0.6, {}, (), (), ()))
    said = recommend([option], 0.8)
    assert said.option == "change"
    assert said.method == "eagle3", "the method of the option itself"
    assert "1.20x" in said.text


def test_the_cheapest_experiment_is_about_an_option_that_may_still_be_the_best():
    free = Experiment("replay", 0.0)
    rent = Experiment("rent", 0.0, takes_money=True)
    options = [
        made("best", 1.5),
        made("hopeless", 1.05, experiment=free),
        made("machine", 3.0, needs=HARDWARE, experiment=rent),
    ]
    assert cheapest(options).text == "restart"
    assert cheapest([made("best", 1.5), made("near", 1.45, experiment=free)]).text == "replay"
    assert cheapest([made("slow", 0.8)]) is None


def test_what_takes_more_than_a_restart():
    assert takes_more_than_a_restart(made("machine", 2.0, needs=HARDWARE))
    assert not takes_more_than_a_restart(made("head", 2.0, needs=(Need("weights", "some", {}),)))


@pytest.mark.parametrize(
    "tables",
    [
        {"model": {"config": "gpt-oss-20b-mxfp4"}},
        {"model": {"config": "qwen3-30b-a3b-bf16"}, "workload": {"concurrency": [1]}},
        {"hardware": {"gpu": "rtx-4090", "num_gpus": 1}},
        {"objective": {"maximise": "tpot"}},
        {"objective": {"maximise": "goodput", "tpot_ms_max": 20}},
        {"restart": {"outage_min": 5, "replicas": 4, "traffic_tokens_per_s": 100}},
        {"engine": {"name": "sglang"}},
    ],
    ids=lambda tables: json.dumps(tables)[:60],
)
def test_other_deployments_are_answered_too(tables):
    answer = compare_options(load_deployment({**DENSE, **tables}), num_draws=DRAWS)
    assert answer.options
    json.dumps(answer.to_dict(), allow_nan=False)


def test_a_model_with_one_expert_reads_no_more_of_them_to_verify(tmp_path):
    """Limit: Mixtral's layers with a single expert; with eight, verifying four rows reads more of them."""
    parts = {}
    for experts in (1, 8):
        config = {
            "model_type": "mixtral", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
            "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 32000, "torch_dtype": "bfloat16",
            "num_local_experts": experts, "num_experts_per_tok": 1, "max_position_embeddings": 32768,
        }  # fmt: skip
        path = tmp_path / f"{experts}.json"
        path.write_text(json.dumps(config))
        here = situation(dense(model={"config": str(path)}, hardware={"gpu": "h200", "num_gpus": 1}), (1,))
        outcome = here.outcome(("speculation.method=eagle3", with_acceptance(0.6)), [3])
        grown = outcome.point.speculative.parts_s["experts"][0, outcome.column(3, 1)]
        parts[experts] = grown / here.today.point.baseline.parts_s["experts"][0, 0]
    assert parts[1] == pytest.approx(1.0, rel=0.02)
    assert parts[8] > 1.5


def test_a_baseline_that_does_not_fit_is_said():
    answer = compare_options(dense(hardware={"gpu": "rtx-3090", "num_gpus": 1}, model={"config": "qwen3-32b-bf16"}),
                             num_draws=DRAWS)  # fmt: skip
    assert not answer.today["fits"]
    assert answer.today["does_not_fit_reason"]


def test_the_published_b200_result_lies_in_the_interval():
    """Baseten, 10 February 2026: 340+ tok/s of Kimi-K2.5 on B200, single stream, custom EAGLE-3 head.

    Their engine is not vLLM: the forward check is made with the smaller drafter cost of the other engines. With
    vLLM's own the interval ends below.
    """
    deployment = apply_overrides(
        load_deployment(REFERENCE),
        ["hardware.gpu=b200", "hardware.interconnect=", "measured=", "engine.name=sglang", "engine.version=",
         "speculation.method=eagle3", "speculation.acceptance.published=lightseekorg/kimi-k2.5-eagle3"],
    )  # fmt: skip
    for k in (3, 5):
        arm = predict(deployment, num_speculative_tokens=k, concurrency=1).speculative
        assert arm.throughput_interval["p05"] < 340 < arm.throughput_interval["p95"]


def test_outcomes_are_what_possible_returns():
    assert isinstance(situation(dense()).possible(("speculation.method=ngram",)), Outcome)


def test_today_ranks_drafters_by_gain_and_keeps_those_that_cannot_run():
    options = {("a",): made("a", 0.9), ("b",): made("b", 1.3)}
    found = drafters_today([("a",), ("b",), ("c",)], options)
    assert found == Today((("b",), ("a",), ("c",)), 1.3)


def test_what_changes_the_output_is_never_the_step_that_is_recommended():
    lossy = made("4 bits", 2.0)._replace(risk=Risk("lossy", "other text"))
    said = recommend([lossy, made("head", 1.3)], 0.8)
    assert said.option == "head"
    assert said.beyond == "4 bits"
    assert said.text.endswith("its output differs.")


def test_where_it_does_not_fit_the_answer_is_never_to_keep_it():
    tables = {"hardware": {"gpu": "rtx-4090", "num_gpus": 2}, "model": {"config": "deepseek-v3-fp8"},
              "engine": {"version": "0.25.0", "tensor_parallel_size": 2}}  # fmt: skip
    text = compare_options(load_deployment(tables), concurrency=[1], num_draws=50).recommendation.text
    assert text.startswith("It does not fit as it stands")
    assert "Keep it as it is" not in text
    assert "Nothing that a restart reaches makes it fit" in text


def test_a_schedule_that_no_engine_takes_is_no_option():
    # Suffix decoding is served by vLLM's V1 runner alone, which ignores a schedule for it.
    tables = {"hardware": {"gpu": "h100-sxm"}, "model": {"config": "qwen3-8b-bf16"}, "engine": {"version": "0.25.0"},
              "workload": {"concurrency": [1, 16, 128], "input_tokens": 2000, "output_tokens": 600}}  # fmt: skip
    found = compare_options(load_deployment(tables), num_draws=100).options
    assert not [o.name for o in found if o.kind == "draft length" and "suffix" in o.name]
