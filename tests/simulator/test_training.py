"""What a head costs to train: sizes by hand, published runs as forward checks, limits, and what it is worth."""

import math

import numpy as np
import pytest

from hwmodel.errors import InputError, UnknownNameError
from hwmodel.models import load_model
from simulator.deployment import apply_overrides, load_deployment
from simulator.deployment.tables import Costs
from simulator.study import build_study
from simulator.training.facts import recipe, training_facts
from simulator.training.head import head_of
from simulator.training.report import train_cost
from simulator.training.sites import Node, local_site, rented_site, study_on
from simulator.training.stages import best_concurrency, rates, read_tokens_per_s, stage_seconds, volume

DRAWS = 400
REFERENCE = "examples/kimi-k2.5-8x-rtx-pro-6000.toml"
OFF = ["speculation.method=none"]
SMALL = {
    "model": {"config": "qwen3-8b-bf16"},
    "hardware": {"gpu": "h100-sxm", "num_gpus": 1},
    "workload": {"concurrency": [1, 8], "input_tokens": 500, "output_tokens": 500},
    "costs": {"training_tokens": 5e7, "epochs": 1.0, "mfu": 0.2},
}


def reference(*overrides):
    return apply_overrides(load_deployment(REFERENCE), [*OFF, *overrides])


def study_of(deployment):
    return build_study(deployment, k_max=1, num_draws=DRAWS)


def interval(draws):
    return np.quantile(draws, [0.05, 0.95])


def test_the_head_of_kimi_has_the_size_of_the_published_ones():
    """Layer .36 + .40, vocabulary 7168 x 32000 = .23, mixing 3 x 7168^2 = .15: 1.14 billion parameters."""
    head = head_of(study_of(reference()).system)
    width, mlp, vocabulary = 7168, 3 * 7168 * 18432, 7168 * 32000
    each = 2 * width * (width + 2 * width) + width * width + mlp + vocabulary
    assert head.parameters == pytest.approx(each + 3 * width**2)
    assert head.flop_per_token == pytest.approx(6 * (7 * each + 3 * width**2))
    assert head.weight_bytes == 2 * head.parameters


def test_sharding_divides_the_optimizer_and_leaves_the_activations():
    head = head_of(study_of(reference()).system)
    one, eight = head.memory_bytes_per_gpu(1), head.memory_bytes_per_gpu(8)
    assert one == head.memory_bytes
    assert one - eight == pytest.approx(head.optimizer_bytes * 7 / 8)


@pytest.mark.parametrize(
    ("model", "tokens", "published_bytes"),
    [
        ("llama-3.1-8b-bf16", 50_000 * 1024, 1.6e12),  # speculators tutorial: 50k samples of 1,024 tokens
        ("kimi-k2.5-int4", 128 * 1024, 7e9),  # TorchSpec blog: one sample of 128k tokens, about 7 GB
    ],
)
def test_stored_hidden_states_are_what_was_published(model, tokens, published_bytes):
    stored = training_facts()["recipe"]["stored_states"] * load_model(model).hidden_size * 2 * tokens
    assert stored == pytest.approx(published_bytes, rel=0.1)


@pytest.mark.parametrize("run", training_facts()["run"], ids=lambda run: run["name"])
def test_published_runs_lie_in_the_interval(run):
    """Kimi-K2.5 on H200: 448 GPU-hours a phase (896 both), 1,500 in all by the makers' blog."""
    deployment = reference(
        "hardware.gpu=h200", "hardware.interconnect=", "workload.input_tokens=2000", "workload.output_tokens=8000",
        f"costs.training_tokens={run['total_tokens'] * 0.8}", "costs.epochs=1",
    )  # fmt: skip
    study = study_of(deployment)
    runs = recipe(deployment.costs, 8000.0, DRAWS, 0)
    site = local_site(study, runs)
    hours = sum(site.seconds[stage] for stage in run["stages"]) * 8 / 3600
    low, high = interval(hours)
    assert low < run["gpu_hours"] < high
    assert high / low < 5, "and the interval says something"


def test_the_stated_mfu_is_that_of_the_published_run():
    """3 G tokens on 16 H200 (989 TFLOP/s) in 14 h, as far as the training kept the GPUs busy."""
    head = head_of(study_of(reference()).system)
    used = 3.0e9 * head.flop_per_token / (16 * 989e12 * 14 * 3600)
    assert used == pytest.approx(0.16, abs=0.01)
    prior = training_facts()["prior"]["mfu"]
    assert abs(math.log(used / prior["median"])) < prior["log_sd"]


def test_prompts_are_read_about_as_fast_as_measured():
    """The rtx6kpro pages: 7.4k tokens a second on 8x RTX PRO 6000; the model's interval is below, by less than two."""
    speed = read_tokens_per_s(study_of(reference()).system, study_of(reference()).parameters)
    assert 7400 / 2 < np.median(speed) < 7400 * 2


def test_the_tabled_hours_of_the_specification_are_met():
    """360 M tokens of answers: 65 h to write at 1,536 tok/s and 6.8 h to train at MFU .3, as lower bounds."""
    deployment = reference("costs.training_tokens=3.6e8", "costs.epochs=1", "costs.mfu=0.3")
    study, runs = study_of(deployment), recipe(deployment.costs, 1000.0, DRAWS, 0)
    seconds = local_site(study, runs).seconds
    assert 65 < np.median(seconds["regeneration"]) / 3600 < 65 * 2.5
    assert 6.8 < np.median(seconds["training"]) / 3600 < 6.8 * 4, "prompts are trained on as well"


def test_stages_by_hand():
    deployment = load_deployment(SMALL)
    study = study_of(deployment)
    runs = recipe(deployment.costs, 500.0, DRAWS, 0)
    data, rate, head = volume(study, runs), rates(study, 2), head_of(study.system)
    assert np.all(runs.samples == 1e5)
    assert np.all(data.output_tokens == 5e7)
    assert np.all(data.total_tokens == 1e8)
    seconds = stage_seconds(data, runs, rate, head, 1e15)
    assert seconds["training"] == pytest.approx(1e8 * head.flop_per_token / (1e15 * 0.2 * runs.busy))
    assert seconds["regeneration"] == pytest.approx(5e7 / (rate.generated_tokens_per_s * runs.busy))


def test_two_replicas_are_twice_as_fast():
    study = study_of(load_deployment(SMALL))
    one, two = rates(study, 1), rates(study, 2)
    assert two.generated_tokens_per_s == pytest.approx(2 * one.generated_tokens_per_s)
    assert two.read_tokens_per_s == pytest.approx(2 * one.read_tokens_per_s)


def test_the_best_concurrency_writes_at_least_as_much_as_any_other():
    study = study_of(load_deployment(SMALL))
    best = best_concurrency(study)
    assert best > 8


def test_stated_values_have_no_spread_and_priors_have():
    stated = recipe(Costs(epochs=2.0, mfu=0.4, training_tokens=1e6), 1000.0, DRAWS, 0)
    assert set(stated.samples) == {1000.0}
    assert set(stated.epochs) == {2.0}
    assert set(stated.mfu) == {0.4}
    free = recipe(Costs(), 1000.0, DRAWS, 0)
    for name, draws in zip(free._fields, free, strict=True):
        assert np.median(draws) == pytest.approx(training_facts()["prior"][name]["median"], rel=0.02)
    assert free.mfu.max() <= 1.0
    assert free.busy.max() <= 1.0


def test_stating_one_factor_leaves_the_draws_of_the_others():
    assert np.array_equal(recipe(Costs(mfu=0.4), 1.0, DRAWS, 3).epochs, recipe(Costs(), 1.0, DRAWS, 3).epochs)


@pytest.mark.parametrize(
    ("change", "longer"),
    [("costs.training_tokens=1e8", True), ("costs.epochs=3", True), ("costs.mfu=0.4", False)],
)
def test_more_work_takes_longer_and_better_use_of_the_gpus_shorter(change, longer):
    def hours(deployment):
        return float(np.median(local_site(study_of(deployment), recipe(deployment.costs, 500.0, DRAWS, 0)).total_s))

    deployment = load_deployment(SMALL)
    assert (hours(apply_overrides(deployment, [change])) > hours(deployment)) is longer


def test_a_rented_machine_holds_the_model_on_as_few_gpus_as_fit():
    deployment = load_deployment(SMALL)
    assert study_on(deployment, Node("h200", 8), DRAWS, 0).deployment.engine.tensor_parallel_size == 1
    assert study_on(reference(), Node("h200", 8), DRAWS, 0).deployment.engine.tensor_parallel_size == 8


def test_a_machine_that_cannot_hold_the_model_is_said_to():
    runs = recipe(Costs(), 1000.0, DRAWS, 0)
    with pytest.raises(InputError, match="2 x l40s"):
        rented_site(reference(), Node("l40s", 2), runs, 0)


def test_local_links_do_not_follow_to_a_rented_machine():
    study = study_on(reference(), Node("h200", 8), DRAWS, 0)
    assert study.system.machine.interconnect == "nvswitch"


@pytest.fixture(scope="module")
def answer():
    return train_cost(load_deployment(REFERENCE), num_draws=DRAWS).to_dict()


def test_hours_of_the_stages_are_in_the_answer_for_every_site(answer):
    for site in (answer["hours"]["local"], *answer["hours"]["rented"].values()):
        for stage in ("regeneration_h", "extraction_h", "training_h", "total_h", "gpu_hours"):
            assert 0 < site[stage]["p05"] < site[stage]["p50"] < site[stage]["p95"]


def test_without_a_price_there_are_hours_and_no_cost(answer):
    assert answer["cost"]["local"] is None
    assert set(answer["cost"]["rented"].values()) == {None}
    assert "costs.gpu_hour_price" in answer["cost"]["reason"]


def test_days_here_and_hours_elsewhere_mean_rent(answer):
    assert answer["hours"]["local"]["total_h"]["p50"] > 24
    assert "that is days, so rent" in answer["verdict"]


def test_hours_here_do_not_mean_rent():
    answer = train_cost(load_deployment(SMALL), num_draws=DRAWS)
    assert answer.hours["local"]["total_h"]["p50"] < 24
    assert "need not be rented" in answer.verdict


def test_training_does_not_fit_beside_the_reference_case_but_beside_a_small_model(answer):
    assert not answer["beside_service"]["fits"]
    assert answer["beside_service"]["concurrency_left"] < answer["beside_service"]["concurrency_now"]
    roomy = {**SMALL, "engine": {"gpu_memory_utilization": 0.5}}
    beside = train_cost(load_deployment(roomy), num_draws=DRAWS).beside_service
    assert beside["fits"]
    assert beside["concurrency_left"] == beside["concurrency_now"]


def test_prices_give_costs_and_paybacks():
    tables = {**SMALL, "costs": {**SMALL["costs"], "gpu_hour_price": 2.0, "currency": "EUR"}}
    answer = train_cost(load_deployment(tables), prices={"b200": 5.0}, num_draws=DRAWS).to_dict()
    local, hours = answer["cost"]["local"], answer["hours"]["local"]["gpu_hours"]
    assert local["p50"] == pytest.approx(2.0 * hours["p50"])
    assert answer["cost"]["currency"] == "EUR"
    rented = answer["hours"]["rented"]["b200"]["gpu_hours"]["p50"]
    assert answer["cost"]["rented"]["b200"]["p50"] == pytest.approx(5.0 * rented)
    paid = answer["break_even"]["rented"]["b200"]["payback_s"]
    assert paid["p05"] > 0
    assert answer["break_even"]["rented"]["h200"]["payback_s"] is None
    assert "h200" in answer["cost"]["reason"]


def test_free_gpus_pay_back_at_once():
    tables = {**SMALL, "costs": {**SMALL["costs"], "gpu_hour_price": 2.0}}
    answer = train_cost(load_deployment(tables), prices={"b200": 0.0}, num_draws=DRAWS)
    assert answer.break_even["rented"]["b200"]["payback_s"]["p50"] == 0.0


def test_the_answer_names_what_could_be_downloaded_instead(answer):
    names = [head["name"] for head in answer["gain"]["download"]]
    assert "lightseekorg/kimi-k2.5-eagle3" in names
    medians = [head["speedup"]["p50"] for head in answer["gain"]["download"]]
    assert medians == sorted(medians, reverse=True)


def test_every_gain_is_what_predict_says_of_the_same_overrides(answer):
    from simulator.predict import predict

    best = answer["gain"]["download"][0]
    deployment = apply_overrides(load_deployment(REFERENCE), best["changes"])
    for load in (1, 64):
        one = train_cost(load_deployment(REFERENCE), concurrency=(load,), num_draws=DRAWS).gain["download"]
        head = next(head for head in one if head["name"] == best["name"])
        k = head["num_speculative_tokens"]
        # The draws of acceptance are made for k_max drafts: same medians, not the same numbers.
        said = predict(deployment, num_speculative_tokens=k, concurrency=load, num_draws=DRAWS)
        assert head["speedup"]["p50"] == pytest.approx(said.speedup["p50"], rel=0.02)


def test_a_model_that_does_not_fit_is_an_error():
    tables = {**SMALL, "hardware": {"gpu": "rtx-3090", "num_gpus": 1}, "model": {"config": "kimi-k2.5-int4"}}
    with pytest.raises(InputError, match="does not fit"):
        train_cost(load_deployment(tables), num_draws=DRAWS)


def test_the_same_seed_gives_the_same_answer(answer):
    assert train_cost(load_deployment(REFERENCE), num_draws=DRAWS).to_dict() == answer


def test_the_head_in_the_file_stands_beside_the_downloads_and_is_kept_where_it_is_good():
    spec = {"method": "eagle3", "acceptance": {"per_position": [0.9, 0.85, 0.8]}}
    found = train_cost(load_deployment({**SMALL, "speculation": spec}), num_draws=100)
    own = found.gain["download"][0]
    assert own["name"] == "eagle3, as in the file"
    assert found.verdict.startswith("Keep the head that you have")
    poor = {"method": "eagle3", "acceptance": {"per_position": [0.01]}}
    said = train_cost(load_deployment({**SMALL, "speculation": poor}), num_draws=100).verdict
    assert said.startswith("Download first: AngelSlim/Qwen3-8B_eagle3")


def test_a_training_gpu_that_does_not_exist_is_an_error():
    with pytest.raises(UnknownNameError, match="no GPU 'bogus'"):
        train_cost(load_deployment({**SMALL, "costs": {"training_gpu": "bogus"}}), num_draws=50)
