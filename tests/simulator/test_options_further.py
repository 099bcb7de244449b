"""Options of deployments of many kinds: only what exists, what the engine takes, and what its figures say."""

import shlex

import pytest

from hwmodel.models import load_model
from hwmodel.specs import ModelShape
from simulator.deployment import Deployment, load_deployment
from simulator.options import drafters, engine, machine, training
from simulator.options.compare import compare_options
from simulator.options.moves import Today, drafters_today
from simulator.options.record import Option
from simulator.options.situation import Situation
from simulator.published_drafters import expected_accepted, published_drafter
from simulator.training.report import train_cost
from simulator.training.value import downloadable

DRAWS = 100


def deployed(model: str, gpu: str, num_gpus: int = 1, **tables: dict[str, object]) -> Deployment:
    own = {"tensor_parallel_size": num_gpus, "max_model_len": 16384}
    return load_deployment(
        {
            "model": {"config": model},
            "hardware": {"gpu": gpu, "num_gpus": num_gpus},
            "workload": {"concurrency": [1, 8]},
            **tables,
            "engine": {**own, **tables.get("engine", {})},
        }
    )


def situation(deployment: Deployment) -> Situation:
    return Situation(deployment, (1, 8), DRAWS, 0)


def today_of(here: Situation) -> Today:
    found = list(drafters.candidates(here))
    return drafters_today([changes for changes, _ in found], drafters.usable_options(here, found))


# ------------------------------------------------------------------ published heads


@pytest.mark.parametrize("model", ["llama-3.1-70b-bf16", "llama-3.3-70b-fp8"])
def test_the_head_with_the_best_figures_is_compared_wherever_it_stands_in_the_table(model: str) -> None:
    shape = load_model(model)
    found = [drafter.name for drafter, _ in drafters.published_heads(shape)]
    assert found[0] == "nebius/EAGLE3-Llama-3.3-70B-Instruct"
    others = ["lmsys/sglang-EAGLE3-LLaMA3.3-Instruct-70B", "lmsys/SGLang-EAGLE3-Llama-3.3-70B-Instruct-SpecForge"]
    best = expected_accepted(published_drafter(found[0]), shape)
    assert best > max(expected_accepted(published_drafter(name), shape) for name in others)


def test_accepted_tokens_by_hand() -> None:
    shape = load_model("llama-3.1-8b-bf16")
    drafter = published_drafter("lmsys/sglang-EAGLE3-LLaMA3.1-Instruct-8B")
    first, decay = 0.55, 0.86  # c1 as the table of docs/options.md says; an EAGLE-3 head's decay or its own is near it
    by_hand = first + first**2 * decay + first**3 * decay**3 + first**4 * decay**6
    assert expected_accepted(drafter, shape) == pytest.approx(by_hand, rel=0.15)


def test_options_and_train_cost_agree_on_the_best_head() -> None:
    here = situation(deployed("llama-3.1-70b-bf16", "a100-sxm-80gb", 4))
    heads = [option for option in drafters.options(here) if option.method == "eagle3"]
    best = max(heads, key=lambda option: option.speedup["p50"] or 0.0)
    said = downloadable(here)[0]
    assert best.name == said.name
    assert set(said.changes) <= set(best.changes)


def test_the_layers_of_another_model_cannot_be_downloaded() -> None:
    here = situation(deployed("deepseek-r1-fp8", "h200", 8))
    built_in = [gain.name for gain in downloadable(here) if gain.built_in]
    assert built_in == ["deepseek-r1 MTP layer"]


def test_a_relatives_head_says_what_it_was_trained_for() -> None:
    names = [gain.name for gain in downloadable(situation(deployed("llama-3.1-70b-bf16", "h200", 2)))]
    assert names
    assert all("(trained for llama-3.3-70b)" in name for name in names)


def test_own_layers_are_used_and_not_downloaded() -> None:
    said = train_cost(deployed("qwen3-next-80b-a3b-fp8", "h200", 2), num_draws=DRAWS).verdict
    assert said.startswith("Use the model's own layers first: qwen3-next-80b-a3b MTP layer")


# ------------------------------------------------------------------ trees and chains


def test_a_file_with_a_tree_is_still_shown_the_chains() -> None:
    tree = {"method": "eagle3", "num_speculative_tokens": 5, "sglang_topk": 4, "sglang_num_draft_tokens": 16}
    with_tree = deployed("llama-3.1-8b-bf16", "h100-sxm", engine={"name": "sglang"}, speculation=tree)
    plain = deployed("llama-3.1-8b-bf16", "h100-sxm", engine={"name": "sglang"})
    found, without = ({o.name: o for o in drafters.options(situation(each))} for each in (with_tree, plain))
    chain = "lmsys/SGLang-EAGLE3-Llama-3.1-8B-Instruct-SpecForge"
    assert found[chain].gain == without[chain].gain
    assert found.keys() - without.keys() == {f"{chain}, tree as in the file"}
    own = found[f"{chain}, tree as in the file"]
    assert "speculation.sglang_num_draft_tokens=16" in own.changes
    assert own.num_speculative_tokens == 5


# ------------------------------------------------------------------ layouts that engines take


@pytest.mark.parametrize(("name", "version"), [("sglang", "0.5.9"), ("vllm", "0.15.0"), ("vllm", "0.29.0")])
def test_nothing_drafts_over_pipeline_stages(name: str, version: str) -> None:
    staged = {"name": name, "version": version, "tensor_parallel_size": 1, "pipeline_parallel_size": 2}
    here = situation(deployed("qwen3-8b-bf16", "h100-sxm", 2, engine=staged))
    assert list(drafters.options(here)) == []
    unstaged = situation(deployed("qwen3-8b-bf16", "h100-sxm", 2, engine={"name": name, "version": version}))
    assert list(drafters.options(unstaged))


def test_a_layout_with_pipeline_stages_is_offered_without_drafts_alone() -> None:
    here = situation(deployed("kimi-k2.5-int4", "rtx-pro-6000-blackwell-server", 8, engine={"version": "0.16.0"}))
    staged = [option for option in machine.options(here, today_of(here)) if "PP" in option.name.split()[-1]]
    assert staged
    assert all(option.best_after is None for option in staged)


def _contexts(shape: ModelShape) -> set[tuple[int, int]]:
    return {(tensor, context) for tensor, _, _, _, context in machine._all_layouts(8, shape, True)}


def test_a_context_is_shared_by_the_ranks_that_hold_the_same_heads() -> None:
    latent, grouped = load_model("kimi-k2.5-int4"), load_model("qwen3-next-80b-a3b-bf16")  # 1 latent; 2 heads
    assert (8, 8) in _contexts(latent)
    assert (8, 4) in _contexts(grouped)
    assert (8, 8) not in _contexts(grouped)
    assert {context for tensor, context in _contexts(grouped) if tensor <= 2} == {1}
    eight_heads = load_model("llama-3.1-70b-bf16")
    assert {context for _, context in _contexts(eight_heads)} == {1}


def test_an_engine_without_shared_contexts_is_offered_none() -> None:
    for settings in ({"name": "sglang"}, {"version": "0.10.0"}):
        here = situation(deployed("kimi-k2.5-int4", "h200", 8, engine=settings))
        assert not machine._shares_context(here.today.study.system)
    assert machine._shares_context(situation(deployed("kimi-k2.5-int4", "h200", 8)).today.study.system)


def test_graph_modes_are_offered_where_they_exist_and_never_with_fewer_graphs() -> None:
    def modes(version: str) -> set[str]:
        here = situation(deployed("llama-3.2-1b-bf16", "rtx-3090", engine={"version": version}))
        found = [name for _, name, _ in engine._changes(here)]
        return {name for name in found if name.startswith("cudagraph_mode")}

    assert modes("0.10.0") == set()
    assert modes("0.10.2") == {"cudagraph_mode FULL_AND_PIECEWISE"}


def test_nvfp4_weights_are_not_moved_to_amd() -> None:
    here = situation(deployed("qwen3.5-397b-a17b-nvfp4", "b200", 4))
    amd = [o for o in machine.options(here, Today((), 1.0)) if o.kind == "hardware" and "mi3" in o.name]
    assert amd == []


# ------------------------------------------------------------------ experiments and restarts


def _option(here: Situation) -> Option:
    return next(iter(training.options(here, {})))


def test_a_try_of_training_takes_money_where_it_is_rented_and_else_the_service() -> None:
    long = _option(situation(deployed("llama-3.1-70b-bf16", "a100-pcie-80gb", 4, restart={"outage_min": 5})))
    assert long.next_experiment.takes_money
    short = {"training_tokens": 1e6, "epochs": 1}
    here = _option(situation(deployed("llama-3.1-8b-bf16", "h200", restart={"outage_min": 5}, costs=short)))
    assert not here.next_experiment.takes_money
    local_s = 3600 * next(need.amounts["local_h"] or 0.0 for need in here.needs if need.kind == "training")
    assert here.next_experiment.outage_s == pytest.approx(0.1 * local_s + 300)


def test_replicas_that_take_turns_have_no_outage_anywhere() -> None:
    rolling = deployed("qwen3-8b-bf16", "h100-sxm", restart={"outage_min": 10, "replicas": 3})
    for option in drafters.options(situation(rolling)):
        assert option.needs[0].amounts["outage_s"] == 0.0
        assert option.next_experiment.outage_s == 0.0


def test_the_command_of_an_experiment_is_what_a_shell_takes() -> None:
    here = situation(deployed("glm-4.7-fp8", "h200", 8))
    own = next(option for option in drafters.options(here) if option.name == "own MTP layers")
    words = shlex.split(own.next_experiment.command or "")
    assert "speculation.acceptance.published=glm-4.7 MTP layer" in words


# ------------------------------------------------------------------ other objectives


def test_goodput_is_named_and_not_mixed_with_throughput() -> None:
    limited = deployed(
        "gpt-oss-120b-mxfp4", "h100-sxm", 2, objective={"maximise": "goodput", "tpot_ms_max": 12.0},
        workload={"concurrency": [1, 64]},
    )  # fmt: skip
    found = compare_options(limited, num_draws=DRAWS)
    assert "the goodput (" in found.recommendation.text
    assert not {option.kind for option in found.options} & {"draft length", "expert budget"}


@pytest.mark.parametrize("model", ["minimax-m2-fp8", "minimax-m2.5-fp8"])
def test_layers_that_no_checkpoint_holds_are_no_option(model: str) -> None:
    here = situation(deployed(model, "h200", 4))
    assert "own MTP layers" not in [words.name for _, words in drafters.candidates(here)]
    assert any("not in the published weights" in note for note in here.today.study.system.shape.assumptions)


def test_what_needs_a_patch_is_not_the_cheapest_experiment() -> None:
    found = compare_options(deployed("llama-4-maverick-fp8", "h100-sxm", 8), num_draws=DRAWS)
    assert found.next_experiment is not None
    assert "patch" not in found.next_experiment.text
