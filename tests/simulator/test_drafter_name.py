"""The drafter that the flag to paste names: never a shape that an engine cannot load, never a placeholder in vain."""

import json
import shlex
from typing import Any

import pytest

from hwmodel.engine.flags import PLACEHOLDER
from hwmodel.models import load_model, model_names
from simulator.choose import launch_flag
from simulator.deployment import Deployment, load_deployment
from simulator.drafter_name import loaded_drafter
from simulator.published_drafters import PublishedDrafter, published_drafters
from simulator.study import build_study

HEAD = "AQ-MedAI/Kimi-K25-eagle3"
HEADS = [d for d in published_drafters() if d.method in ("eagle3", "dflash", "dspark", "p_eagle", "mtp", "eagle")]


def deployment(*overrides: str, **speculation: Any) -> Deployment:
    tables = {
        "model": {"config": "kimi-k2.5-int4"},
        "hardware": {"gpu": "h200", "num_gpus": 8},
        "engine": {"tensor_parallel_size": 8, "version": "0.33.0"},
        "speculation": {"method": "eagle3", **speculation},
    }
    return load_deployment(tables, overrides)


def named_in_flag(asked: Deployment) -> object:
    flag, _ = launch_flag(build_study(asked, k_max=2, num_draws=100), 2, None)
    return json.loads(shlex.split(flag)[1]).get("model")


def test_the_flag_names_the_published_head() -> None:
    assert named_in_flag(deployment(acceptance={"published": HEAD})) == HEAD
    assert named_in_flag(deployment(f"speculation.acceptance.published={HEAD.lower()}")) == HEAD


@pytest.mark.parametrize("published", ["new-head", "kimi-k2.5 EAGLE-3 of InferenceX"])
def test_what_cannot_be_loaded_stays_to_be_filled_in(published: str) -> None:
    assert named_in_flag(deployment(acceptance={"published": published})) == PLACEHOLDER


@pytest.mark.parametrize("drafter", HEADS, ids=lambda drafter: drafter.name)
def test_every_published_drafter_with_weights_of_its_own_is_named(drafter: PublishedDrafter) -> None:
    asked = deployment(method=drafter.method, acceptance={"published": drafter.name})
    assert loaded_drafter(asked.speculation) == drafter.repository


def test_a_card_stands_for_its_repository_and_a_config_for_its_folder() -> None:
    for stated, loaded in (
        ("qwen3-0.6b-bf16", "Qwen/Qwen3-0.6B"),
        ("/models/head/config.json", "/models/head"),
        ("org/head", "org/head"),
        ("/cards/head.toml", None),
    ):
        assert loaded_drafter(deployment(draft_model=stated).speculation) == loaded
    assert loaded_drafter(deployment(draft_model="/c/h.toml", acceptance={"published": HEAD}).speculation) == HEAD


def test_every_shipped_card_names_the_repository_it_was_read_from() -> None:
    from hwmodel.models import repository_of_card

    for name in model_names():
        repository = repository_of_card(name)
        assert repository is not None, name
        assert repository in load_model(name).source


def test_a_head_that_is_stated_beside_a_launch_replaces_the_launchs_but_not_a_copy_of_it() -> None:
    launched = {"launch_config": {"method": "eagle3", "model": "org/other-head"}}
    changed = deployment(f"speculation.acceptance.published={HEAD}", **launched)
    assert named_in_flag(changed) == HEAD
    assert changed.notes == (f"the drafter is {HEAD} as stated, not org/other-head as in the launch",)
    copy = {"launch_config": {"method": "eagle3", "model": "/models/kimi-k25-eagle3/"}}
    kept = deployment(f"speculation.acceptance.published={HEAD}", **copy)
    assert (named_in_flag(kept), kept.notes) == ("/models/kimi-k25-eagle3/", ())
    in_file = deployment(acceptance={"published": HEAD}, **launched)
    assert named_in_flag(in_file) == "org/other-head"
