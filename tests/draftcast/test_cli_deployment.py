import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from strict_json import strict

import draftcast

Run = Callable[..., Result]

CHECKOUT = Path(__file__).parent.parent.parent
FEW = ("--draws", "200")
ARM_KEYS = {"step_s", "tpot_s", "throughput_tokens_per_s", "parts_s"}
NOT_ON_THE_PATH = ("scipy", "simpy", "requests", "yaml", "matplotlib", "pydantic")  # of pydantic only its core
LAUNCH = "vllm serve moonshotai/Kimi-K2.5 --tensor-parallel-size 8"


def too_wide(page: str) -> list[str]:
    """Lines over 80 columns, but for the one to paste."""
    return [line for line in page.splitlines() if len(line) > 80 and not line.startswith("  --spec")]


def test_predict_prints_its_contract_and_nothing_else(run: Run, reference_case: Path) -> None:
    result = run("predict", reference_case, "--json", *FEW)
    assert result.exit_code == 0
    prediction = strict(result.stdout)
    assert set(prediction["baseline"]) >= ARM_KEYS
    assert ARM_KEYS | {"tokens_per_step"} <= set(prediction["speculative"])
    for key in ("inputs", "break_even_tokens_per_step", "why", "prediction_id"):
        assert key in prediction
    assert prediction["speedup"]["p05"] <= prediction["speedup"]["p50"] <= prediction["speedup"]["p95"]
    assert 0 <= prediction["probability_faster"] <= 1


def test_predict_uses_the_k_and_concurrency_asked_for(run: Run, reference_case: Path) -> None:
    inputs = strict(run("predict", reference_case, "-k", "2", "-c", "16", "--json", *FEW).stdout)["inputs"]
    assert (inputs["num_speculative_tokens"], inputs["concurrency"], inputs["method"]) == (2, 16, "ngram")


def test_predict_of_no_drafts_is_exactly_no_change(run: Run, reference_case: Path) -> None:
    speedup = strict(run("predict", reference_case, "-k", "0", "--json", *FEW).stdout)["speedup"]
    assert {speedup[name] for name in ("p05", "p50", "p95")} == {1.0}


def test_predict_by_another_method_leaves_out_what_belongs_to_the_files_own(run: Run, reference_case: Path) -> None:
    result = run("predict", reference_case, "--method", "eagle3", "--json", *FEW)
    assert strict(result.stdout)["inputs"]["method"] == "eagle3"
    assert "prompt_lookup_max" in result.stderr


def test_the_same_seed_gives_the_same_bytes(run: Run, reference_case: Path) -> None:
    arguments = ("choose", reference_case, "-k", "0,3", "-c", "1", "--json", *FEW)
    first, second = strict(run(*arguments).stdout), strict(run(*arguments).stdout)
    other = strict(run(*arguments, "--seed", "1").stdout)
    assert first["grid"] == second["grid"]
    assert first["grid"] != other["grid"]


def test_choose_prints_every_cell_of_the_grid(run: Run, reference_case: Path) -> None:
    choice = strict(run("choose", reference_case, "-k", "0-2", "-c", "1,16", "--json", *FEW).stdout)
    cells = [(cell["num_speculative_tokens"], cell["concurrency"]) for cell in choice["grid"]]
    assert sorted(cells) == [(k, c) for k in (0, 1, 2) for c in (1, 16)]
    assert {"num_speculative_tokens", "schedule", "flag", "restart_worth_it", "why"} <= set(choice["recommendation"])
    assert {"outage_s", "payback_s", "payback_reason"} <= set(choice["restart"])
    assert {"weights_bytes", "draft_bytes", "kv_cache_tokens_baseline", "fits"} <= set(choice["memory"])


def test_choose_leaves_ngram_off_in_the_reference_case(run: Run, reference_case: Path) -> None:
    result = run("choose", reference_case, *FEW)
    assert result.exit_code == 0
    assert result.stdout.startswith("Do not enable ngram")
    assert strict(run("choose", reference_case, "--json", *FEW).stdout)["recommendation"]["num_speculative_tokens"] == 0


@pytest.mark.parametrize("command", ["predict", "choose"])
@pytest.mark.parametrize("method", ["ngram", "eagle3", "mtp"])
def test_pages_fit_80_columns(run: Run, reference_case: Path, command: str, method: str) -> None:
    page = run(command, reference_case, "--method", method, *FEW).stdout
    assert too_wide(page) == []
    assert "\x1b" not in page


def test_whatif_prints_the_cross_product(run: Run, reference_case: Path) -> None:
    arguments = ("whatif", reference_case, "--vary", "speculation.num_speculative_tokens=1,3", *FEW)
    arguments += ("--vary", "hardware.interconnect=pcie-switch,pcie-dual-socket")
    rows = strict(run(*arguments, "--json").stdout)["rows"]
    assert [tuple(row["vary"].values()) for row in rows] == [
        (k, link) for k in (1, 3) for link in ("pcie-switch", "pcie-dual-socket")
    ]
    page = run(*arguments).stdout
    assert too_wide(page) == []
    assert "pcie-dual-socket" in page
    assert "num speculative" in page


def test_set_reaches_any_key(run: Run, reference_case: Path) -> None:
    def prediction(*options: str) -> dict[str, Any]:
        return strict(run("predict", reference_case, "--json", *options, *FEW).stdout)

    certain = prediction("--set", "speculation.acceptance.rate=0.95", "--set", "speculation.acceptance.measured_at_k=5")
    assert certain["speculative"]["tokens_per_step"] > prediction()["speculative"]["tokens_per_step"]


def test_what_set_says_about_acceptance_is_meant_for_the_method_asked_for(run: Run, reference_case: Path) -> None:
    acceptance = ("--set", "speculation.acceptance={ mean_length = 3.0, measured_at_k = 3 }")
    result = run("predict", reference_case, "--method", "eagle3", "-k", "3", *acceptance, "--json", *FEW)
    assert strict(result.stdout)["speculative"]["tokens_per_step"] == pytest.approx(3.0, rel=0.05)


def test_an_unknown_key_is_one_line_with_the_nearest(run: Run, reference_case: Path) -> None:
    result = run("predict", reference_case, "--set", "hardware.num_gpu=4")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "hardware.num_gpus" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "options",
    [
        ("--set", "hardware.num_gpus"),
        ("--set", "hardware.num_gpus=many"),
        ("--set", "speculation.num_speculative_tokens=10000"),
        ("--gpu", "no-such-gpu"),
        ("--model", "no-such-model"),
        ("--method", "no-such-method"),
        ("--set", "parameters.no_such_parameter=1"),
        ("--set", "engine.tensor_parallel_size=3", "--num-gpus", "3"),
        ("-k", "100000000"),
    ],
)
@pytest.mark.parametrize("command", ["predict", "choose"])
def test_impossible_options_are_one_line(
    run: Run, reference_case: Path, command: str, options: tuple[str, ...]
) -> None:
    result = run(command, reference_case, "--json", *options)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.splitlines()[-1].startswith("Error: ")
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("command", ["predict", "choose"])
def test_a_launch_stands_in_place_of_the_file(run: Run, command: str) -> None:
    options = ("--gpu", "h200", "--model", "kimi-k2.5-int4", "--method", "ngram", "--json", *FEW)
    result = run(command, LAUNCH, *options)
    assert result.exit_code == 0, result.stderr
    strict(result.stdout)


def test_a_launch_without_a_gpu_asks_for_it(run: Run) -> None:
    result = run("choose", LAUNCH)
    assert result.exit_code == 1
    assert "--gpu NAME" in result.stderr


@pytest.mark.parametrize("form", ["page", "json"])
@pytest.mark.parametrize("command", ["predict", "choose"])
def test_the_main_path_loads_nothing_that_it_does_not_need(reference_case: Path, command: str, form: str) -> None:
    arguments = [command, str(reference_case), *FEW, *(["--json"] if form == "json" else [])]
    script = (
        f"from draftcast.cli import cli\ncli.main({arguments!r}, standalone_mode=False)\n"
        "import sys; print('MODULES', *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=CHECKOUT)
    loaded = set(done.stdout.rpartition("MODULES")[2].split())
    assert loaded.isdisjoint(NOT_ON_THE_PATH)
    assert ("rich" in loaded) == (form == "page")


def test_the_flag_keeps_what_the_launch_said(run: Run) -> None:
    config = {
        "method": "eagle3",
        "model": "/models/my-eagle3",
        "num_speculative_tokens": 3,
        "draft_sample_method": "probabilistic",
    }
    launch = f"vllm serve Qwen/Qwen3-32B -tp 2 --speculative-config '{json.dumps(config)}'"
    options = ("--gpu", "h100-sxm", "--set", "engine.version=0.24.0", "-c", "1", "--json", *FEW)
    flag = strict(run("choose", launch, *options).stdout)["recommendation"]["flag"]
    written = json.loads(shlex.split(flag)[1])
    assert written["model"] == "/models/my-eagle3"
    assert written["draft_sample_method"] == "probabilistic"


@pytest.mark.parametrize("command", ["predict", "choose", "whatif"])
def test_warnings_about_the_launch_are_notes_in_both_forms(run: Run, command: str) -> None:
    config = '{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}'
    launch = f"{LAUNCH} --max-modle-len 4096 --speculative-config '{config}'"
    vary = ("--vary", "workload.output_tokens=100") if command == "whatif" else ()
    result = run(command, launch, *vary, "--gpu", "h200", "--set", "workload.concurrency=1", "--json", *FEW)
    assert result.exit_code == 0, result.stderr
    assert any("did you mean --max-model-len?" in note for note in strict(result.stdout)["notes"])
    assert "did you mean --max-model-len?" in " ".join(result.stderr.split())


@pytest.mark.parametrize("where", [("--set", "engine.launch={}"), ("--set", " engine.launch ={}")])
def test_a_launch_given_as_a_key_is_refused(run: Run, reference_case: Path, where: tuple[str, str]) -> None:
    result = run("choose", reference_case, where[0], where[1].format("vllm serve x --tensor-parallel-size 4"))
    assert (result.exit_code, result.stdout) == (1, "")
    assert "allowed: the launch as DEPLOYMENT, or written in the deployment file" in result.stderr
    assert result.stderr.count("\n") == 1


def test_the_facade_gives_what_the_command_prints(run: Run, reference_case: Path) -> None:
    prediction = draftcast.predict(draftcast.load(str(reference_case)), num_draws=200).to_dict()
    printed = strict(run("predict", reference_case, "--json", *FEW).stdout)
    assert prediction["speedup"] == printed["speedup"]
