"""Published draft heads: the table, which model they fit, and what their figures say about traffic."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodel.errors import InputError, UnknownNameError
from hwmodel.models import load_model, model_names
from simulator.acceptance import acceptance_draws
from simulator.deployment import METHODS, load_deployment
from simulator.deployment.tables import KINDS
from simulator.published_drafters import (
    Row,
    drafter_facts,
    drafters_for,
    estimate,
    first_acceptance,
    fitted_decay,
    geometry,
    measured_gap,
    name_words,
    named_estimate,
    new_head,
    published_drafter,
    published_drafters,
    traffic_gap,
)

ALL = published_drafters()


@pytest.mark.parametrize("drafter", ALL, ids=lambda drafter: drafter.name)
def test_every_row_of_the_table_can_be(drafter):
    assert drafter.method in METHODS
    assert {figures.setting for figures in drafter.figures} <= {"benchmark", "traffic", "random"}
    assert any(figures.setting != "random" for figures in drafter.figures), "something to estimate from"
    for figures in drafter.figures:
        assert figures.source
        assert figures.temperature is None or 0 <= figures.temperature <= 1
        for row in figures.rows:
            assert row.kind in KINDS
            assert list(row.k) == sorted(set(row.k))
            assert len(row.k) == len(row.length)
            assert all(1 <= length <= k + 1 for k, length in zip(row.k, row.length, strict=True))
            assert all(b > a - 0.01 for a, b in pairwise(row.length)), "longer drafts emit less only by noise"


def test_names_are_unique():
    assert len({drafter.name.lower() for drafter in ALL}) == len(ALL)


@pytest.mark.parametrize("drafter", [d for d in ALL if d.geometry], ids=lambda drafter: drafter.name)
def test_stated_geometry_is_that_of_the_card_of_the_target(drafter):
    cards = [name for name in model_names() if name_words(name) == name_words(drafter.target)]
    for card in cards:
        assert geometry(load_model(card)) == drafter.geometry


def test_a_head_is_the_models_own_by_name_whatever_the_number_format():
    head = published_drafter("lightseekorg/kimi-k2.6-eagle3-mla")
    for card in ("kimi-k2.6-int4", "kimi-k2.6-nvfp4"):
        assert head.relation(load_model(card)) == "own"


def test_a_head_of_a_model_with_the_same_geometry_is_a_relatives():
    head = published_drafter("AQ-MedAI/Kimi-K2-Instruct-eagle3")
    assert head.relation(load_model("kimi-k2-fp8")) == "own"
    assert head.relation(load_model("kimi-k2.5-int4")) == "sibling"


def test_a_head_does_not_fit_another_geometry():
    head = published_drafter("lightseekorg/kimi-k2.5-eagle3")
    assert head.relation(load_model("deepseek-v3-fp8")) is None, "same width and layers, another vocabulary"
    assert head.relation(load_model("qwen3-8b-bf16")) is None


def test_a_model_of_another_shape_under_the_same_name_gets_no_head():
    shape = replace(load_model("kimi-k2.5-int4"), hidden_size=4096)
    assert not drafters_for(shape)


def test_a_nameless_config_is_recognised_by_geometry_as_a_relative():
    shape = replace(load_model("kimi-k2.5-int4"), name="config")
    assert {relation for _, relation in drafters_for(shape)} == {"sibling"}


def test_own_heads_come_before_those_of_relatives():
    relations = [relation for _, relation in drafters_for(load_model("kimi-k2.5-int4"))]
    assert relations == sorted(relations, key=lambda relation: relation != "own")
    assert set(relations) == {"own", "sibling"}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("moonshotai--Kimi-K2.5", {"kimi", "k2.5"}),
        ("nvidia/Kimi-K2.6-NVFP4", {"kimi", "k2.6"}),
        ("Meta-Llama-3.1-8B-Instruct", {"llama", "3.1", "8b"}),
        ("Kimi-K2-Thinking", {"kimi", "k2", "thinking"}),
    ],
)
def test_names_are_compared_by_the_words_that_tell_models_apart(name, words):
    assert name_words(name) == words


def test_first_acceptance_by_hand():
    # k = 2 and decay 1: 1 + c + c^2 = 1.75 has c = 0.5.
    assert first_acceptance(Row("by hand", "mixed", (2,), (1.75,)), 1.0) == pytest.approx(0.5, abs=1e-6)
    # Decay 0.8: 1 + c + 0.8 c^2 = 1.7 has c = 0.5.
    assert first_acceptance(Row("by hand", "mixed", (2,), (1.7,)), 0.8) == pytest.approx(0.5, abs=1e-6)


@given(c1=st.floats(0.2, 0.95), decay=st.floats(0.75, 1.0))
def test_a_curve_with_a_known_decay_is_found_again(c1, decay):
    lengths, survival, total = [], 1.0, 1.0
    for i in range(5):
        survival *= c1 * decay**i
        total += survival
        lengths.append(total)
    row = Row("made", "mixed", (1, 2, 3, 4, 5), tuple(lengths))
    made = replace(ALL[0], name="made", figures=(replace(ALL[0].figures[0], rows=(row,)),))
    found = fitted_decay(made)
    assert found == pytest.approx(decay, abs=0.02), "the grid is 0.01 apart"
    assert first_acceptance(row, decay) == pytest.approx(c1, abs=1e-6)


def test_the_stated_gaps_are_those_of_the_rows():
    for kind, built_in in (("heads", False), ("mtp", True)):
        gaps = [gap for d in ALL if d.is_built_in == built_in and (gap := measured_gap(d)) is not None]
        stated = drafter_facts()["gap"][kind]
        assert len(gaps) >= 3
        assert stated["logit"] == pytest.approx(np.mean(gaps), abs=0.05)
        assert stated["logit_sd"] >= np.std(gaps, ddof=1) - 0.01, "never narrower than the pairs scatter"


def test_a_family_with_its_own_pair_believes_it_more():
    kimi, other = published_drafter("lightseekorg/kimi-k2.5-eagle3"), published_drafter("nebius/EAGLE3-gpt-oss-20b")
    pair = measured_gap(published_drafter("lightseekorg/kimi-k2.6-eagle3-mla"))
    general = drafter_facts()["gap"]["heads"]
    assert traffic_gap(other) == (general["logit"], pytest.approx(general["logit_sd"]))
    gap, spread = traffic_gap(kimi)
    assert abs(gap - pair) < abs(general["logit"] - pair)
    assert spread < general["logit_sd"]


def test_the_stated_loss_on_a_relative_is_that_of_the_qwen_pair():
    foreign = published_drafter("lmsys/Qwen3-235B-A22B-EAGLE3")
    own = published_drafter("lmsys/SGLang-EAGLE3-Qwen3-235B-A22B-Instruct-2507-SpecForge")
    losses = []
    for a, b in zip(foreign.figures[0].rows, own.figures[0].rows, strict=True):
        assert a.dataset == b.dataset
        first = [first_acceptance(row, 0.95) for row in (a, b)]
        losses.append(math.log(first[0] / (1 - first[0])) - math.log(first[1] / (1 - first[1])))
    stated = drafter_facts()["sibling"]
    assert abs(np.mean(losses) - stated["logit"]) < stated["logit_sd"]


def test_traffic_figures_are_taken_as_they_are_and_benchmarks_with_the_gap():
    with_traffic = estimate(published_drafter("lightseekorg/kimi-k2.6-eagle3-mla"), None)
    only_benchmarks = estimate(published_drafter("lightseekorg/kimi-k2.5-eagle3"), None)
    assert "from traffic" in with_traffic.text
    assert "benchmark" in only_benchmarks.text
    assert with_traffic.logit_sd < only_benchmarks.logit_sd


def test_production_like_acceptance_of_kimi_k26_is_met():
    """Server logs 1.95 to 2.29, held-out dialogues 2.30 at k = 3 (rtx6kpro pages, k-l-lambda card)."""
    draws = _draws("kimi-k2.6-int4", "lightseekorg/kimi-k2.6-eagle3-mla", "mixed")
    assert 1.95 < 1 + draws.median_survival[0, :3].sum() < 2.30


def test_a_head_of_a_relative_is_expected_to_do_worse_and_is_less_sure():
    head = published_drafter("lightseekorg/kimi-k2.6-eagle3-mla")
    own, foreign = (estimate(head, load_model(card)) for card in ("kimi-k2.6-int4", "kimi-k2.5-int4"))
    assert foreign.logit < own.logit
    assert foreign.logit_sd > own.logit_sd


def test_more_samples_never_make_a_new_head_worse():
    shape = load_model("kimi-k2.5-int4")
    logits = [new_head("eagle3", shape, samples).logit for samples in (5e3, 5e4, 5e5, 5e6)]
    assert logits == sorted(logits)
    assert new_head("eagle3", shape, 5e5).logit == pytest.approx(new_head("eagle3", shape).logit)


def test_a_new_head_takes_after_those_for_the_same_geometry():
    kimi = [estimate(d, None).logit for d in ALL if d.method == "eagle3" and d.geometry == (7168, 61, 163840)]
    everyone = [estimate(d, None).logit for d in ALL if d.method == "eagle3" and not d.is_built_in]
    found = new_head("eagle3", load_model("kimi-k2.5-int4")).logit
    assert min(np.mean(kimi), np.mean(everyone)) <= found <= max(np.mean(kimi), np.mean(everyone))
    assert abs(found - np.mean(kimi)) < abs(found - np.mean(everyone))


def test_a_method_without_published_heads_has_no_new_head():
    with pytest.raises(InputError, match="medusa"):
        new_head("medusa", None)


@pytest.mark.parametrize(
    ("name", "method", "problem"),
    [
        ("lightseekorg/kimi-k2.5-eagle3", "mtp", "drafts by eagle3"),
        ("nebius/EAGLE3-gpt-oss-20b", "eagle3", "another shape than kimi-k2.5-int4"),
        ("lightseekorg/kimi-k2.5-eagle4", "eagle3", "closest: lightseekorg/kimi-k2.5-eagle3"),
        ("new-head-0", "eagle3", "no published drafter"),
    ],
)
def test_names_that_cannot_apply_are_refused_in_one_line(name, method, problem):
    with pytest.raises((InputError, UnknownNameError), match=problem) as refused:
        named_estimate(name, method, load_model("kimi-k2.5-int4"))
    assert "\n" not in str(refused.value)


def test_an_unknown_drafter_in_the_file_is_refused_when_it_is_loaded():
    with pytest.raises(UnknownNameError, match="no published drafter 'nobody/nothing'"):
        load_deployment(_tables("eagle3", "nobody/nothing"))


def test_text_lookup_has_no_published_head():
    deployment = load_deployment(_tables("ngram", "new-head"))
    with pytest.raises(InputError, match="ngram has no head"):
        acceptance_draws(
            deployment.speculation, deployment.workload, k_max=3, num_draws=10, rng=np.random.default_rng(0),
            ngram_variant="lps", context_tokens=100.0,
        )  # fmt: skip


def test_kind_of_text_and_temperature_move_a_published_prior_as_they_move_the_general_one():
    lengths = [
        1 + _draws("kimi-k2.5-int4", "lightseekorg/kimi-k2.5-eagle3", kind).median_survival.sum()
        for kind in ("chat", "mixed", "code")
    ]
    assert lengths == sorted(lengths)


def _tables(method, name):
    return {
        "model": {"config": "kimi-k2.5-int4"},
        "hardware": {"gpu": "b200", "num_gpus": 8},
        "engine": {"tensor_parallel_size": 8},
        "speculation": {"method": method, "num_speculative_tokens": 3, "acceptance": {"published": name}},
    }


def _draws(model, name, kind):
    tables = _tables("eagle3", name)
    tables["model"]["config"], tables["workload"] = model, {"kind": kind}
    deployment = load_deployment(tables)
    return acceptance_draws(
        deployment.speculation, deployment.workload, k_max=3, num_draws=200, rng=np.random.default_rng(0),
        ngram_variant=None, context_tokens=1000.0, target=load_model(model),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("model", "other"),
    [
        ("deepseek-v3-fp8", "deepseek-v4-pro DSpark"),
        ("llama-4-maverick-fp8", "lmsys/SGLang-EAGLE3-Llama-4-Scout-17B-16E-Instruct-SpecForge"),
        ("qwen3-next-80b-a3b-bf16", "lmsys/SGLang-EAGLE3-Qwen3-Coder-30B-A3B-Instruct-SpecForge"),
    ],
)
def test_a_model_of_the_same_size_with_other_experts_is_no_relative(model, other):
    shape = load_model(model)
    drafter = published_drafter(other)
    assert drafter.geometry == geometry(shape), "it is the experts that tell them apart"
    assert drafter.relation(shape) is None


@pytest.mark.parametrize("drafter", ALL, ids=lambda drafter: drafter.name)
def test_a_repository_is_what_is_named_like_one_and_can_be_loaded(drafter):
    named = drafter.name.count("/") == 1 and " " not in drafter.name
    assert drafter.repository == (drafter.name if named and drafter.weights and not drafter.is_built_in else None)
