"""`draftcast options` from the outside."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from strict_json import strict

from draftcast.render.options import changes_something, short_names

Run = Callable[..., Result]
FEW = ("--draws", 100, "-c", "1,16")


@pytest.fixture
def dense(tmp_path: Path) -> Path:
    """A small deployment on one GPU."""
    path = tmp_path / "dense.toml"
    path.write_text(
        '[model]\nconfig = "llama-3.1-8b-bf16"\n[hardware]\ngpu = "h100-sxm"\nnum_gpus = 1\n'
        "[engine]\nmax_model_len = 16384\n[restart]\noutage_min = 5\n"
    )
    return path


@pytest.fixture
def replay(tmp_path: Path) -> Callable[..., Path]:
    """A replay file of a method, with this acceptance at k = 3."""

    def write(method: str, share: float, drafts: int = 5000) -> Path:
        path = tmp_path / f"{method}.json"
        accepted = [round(drafts * share**i) for i in (1, 2, 3)]
        entry = {
            "num_speculative_tokens": 3, "steps": 10_000, "drafts": drafts, "accepted_per_position": accepted,
            "num_requests": 100,
        }  # fmt: skip
        path.write_text(json.dumps({"inputs": {"method": method}, "results": [entry]}))
        return path

    return write


def test_the_page_fits_80_columns_and_starts_with_the_recommendation(run: Run, reference_case: Path) -> None:
    result = run("options", reference_case, *FEW)
    assert result.exit_code == 0
    assert all(len(line) <= 80 for line in result.stdout.splitlines())
    assert result.stdout.startswith(("Best step that a restart reaches", "Keep it as it is"))
    for heading in ("What each takes", "Risk to the output", "Cheapest next experiment", "Assumed"):
        assert heading in result.stdout


def test_the_json_holds_the_contract(run: Run, dense: Path) -> None:
    answer = strict(run("options", dense, *FEW, "--json").stdout)
    assert {"inputs", "options", "recommendation", "next_experiment", "assumptions"} <= set(answer)
    for option in answer["options"]:
        assert {"p05", "p50", "p95"} <= set(option["speedup"])
        assert {"p05", "p50", "p95"} <= set(option["payback_s"])
        assert {"level", "text"} == set(option["risk"])
        assert [gain["concurrency"] for gain in option["by_load"]] == [1, 16]
        assert isinstance(option["needs"], list)


def test_a_replay_replaces_the_prior_of_its_method(run: Run, dense: Path, replay: Callable[..., Path]) -> None:
    good, bad = (
        strict(run("options", dense, *FEW, "--acceptance", replay("ngram", share), "--json").stdout)
        for share in (0.95, 0.05)
    )
    gains = [
        next(option["gain"]["p50"] for option in answer["options"] if option["method"] == "ngram")
        for answer in (good, bad)
    ]
    assert gains[0] > gains[1]
    assert any("replay" in text for text in good["assumptions"])


def test_replays_of_both_methods_can_be_given(run: Run, dense: Path, replay: Callable[..., Path]) -> None:
    files = ("--acceptance", replay("ngram", 0.5), "--acceptance", replay("suffix", 0.5))
    answer = strict(run("options", dense, *FEW, *files, "--json").stdout)
    told = [text for text in answer["assumptions"] if "replay" in text]
    assert len(told) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--acceptance", "nowhere.json"), "cannot be read"),
        (("--price", "h100"), "--price: got 'h100'"),
        (("--set", "speculation.acceptance.published=x"), "no published drafter 'x'"),
        (("-c", "0"), "concurrency"),
    ],
)
def test_bad_values_are_one_line(run: Run, dense: Path, arguments: tuple[str, ...], message: str) -> None:
    result = run("options", dense, "--set", "speculation.method=eagle3", *arguments)
    assert result.exit_code == 1
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_replay_of_a_model_method_is_refused(run: Run, dense: Path, replay: Callable[..., Path]) -> None:
    result = run("options", dense, "--acceptance", replay("eagle3", 0.5))
    assert result.exit_code == 1
    assert "is of eagle3, allowed: a replay of ngram" in result.stderr


def test_prices_reach_the_cost_of_training(run: Run, dense: Path) -> None:
    answer = strict(run("options", dense, *FEW, "--price", "h100-sxm=2", "--price", "b300=6", "--json").stdout)
    money = [
        need for option in answer["options"] if option["kind"] == "training" for need in option["needs"]
        if need["kind"] == "money"
    ]  # fmt: skip
    assert money[0]["cost"] > 0


def test_what_is_not_expected_to_gain_is_one_line_unless_all_is_asked(run: Run, dense: Path) -> None:
    loaded = ("--draws", 100, "-c", "256")
    answer = strict(run("options", dense, *loaded, "--json").stdout)
    best = [(o["best_after"] if o["with_best_drafter"] else o)["gain"]["p50"] for o in answer["options"]]
    short, full = run("options", dense, *loaded).stdout, run("options", dense, *loaded, "--all").stdout
    slower = sum(gain <= 1.0 for gain in best)
    assert 0 < slower < len(best)
    assert "not expected to gain (--all shows them)" in short
    assert f"\n{len(best)} " not in short
    assert f"\n{len(best)} " in full
    assert "not expected to gain" not in full
    assert len(short.splitlines()) < len(full.splitlines())


def test_below_the_first_sentence_stands_how_to_do_it(run: Run, dense: Path) -> None:
    answer = strict(run("options", dense, *FEW, "--json").stdout)
    changes = answer["recommendation"]["changes"]
    text = "".join(run("options", dense, *FEW).stdout.split())
    assert changes
    assert "inthefile,oras--set:" in text
    assert all(change in text for change in changes if change.startswith("speculation."))
    assert "ittakesarestartof5min" in text


def test_overrides_that_change_nothing_are_not_shown() -> None:
    own = {"engine": {"tensor_parallel_size": 8, "expert_parallel": False}, "hardware": {"topology": "x"}}
    said = ("engine.tensor_parallel_size=8", "engine.expert_parallel=false", "model.weights_gb=")
    assert not any(changes_something(own, change) for change in said)
    other = (
        "engine.tensor_parallel_size=4",
        "engine.expert_parallel=true",
        "hardware.topology=",
        "engine.version=0.33.0",
    )
    assert all(changes_something(own, change) for change in other)


def _named(*names: str) -> list[dict[str, Any]]:
    return [{"name": name, "with_best_drafter": False} for name in names]


def test_names_that_begin_alike_are_told_apart_and_all_fit() -> None:
    head = "lmsys/SGLang-EAGLE3-Llama-3.1-8B-Instruct-SpecForge"
    names = short_names(_named(head, f"{head}, tree with topk 3", f"{head}, tree with topk 4", "n-gram"))
    assert len(set(names)) == 4
    assert max(map(len, names)) <= 38
    assert names[1].endswith("tree with topk 3")
    assert short_names(_named(head, "n-gram"))[0] == f"{head[:37]}…"


def test_overrides_are_quoted_for_a_shell_and_never_broken(run: Run, tmp_path: Path) -> None:
    case = tmp_path / "case.toml"
    case.write_text(
        '[model]\nconfig = "llama-3.1-8b-bf16"\n[hardware]\ngpu = "h100-sxm"\n[engine]\nname = "sglang"\n'
        "[workload]\nconcurrency = [1]\n"
    )
    text = run("options", case, "--draws", 100).stdout
    long = "speculation.acceptance.published=lmsys/SGLang-EAGLE3-Llama-3.1-8B-Instruct-SpecForge"
    assert f"\n  {long}\n" in text
    own = tmp_path / "own.toml"
    own.write_text(
        '[model]\nconfig = "glm-4.7-fp8"\n[hardware]\ngpu = "h200"\nnum_gpus = 4\n[engine]\ntensor_parallel_size = 4\n'
        "[workload]\nconcurrency = [1]\n"
    )
    assert "'speculation.acceptance.published=glm-4.7 MTP layer'" in " ".join(
        run("options", own, "--draws", 100).stdout.split()
    )
