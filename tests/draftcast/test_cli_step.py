"""`draftcast step`: the JSON of the contract, the page for a reader, a trace, errors in one line."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

Run = Callable[..., Result]
CONTRACT = {"inputs", "notes", "step_s", "parts_s", "distinct_experts_per_layer", "ranks", "allreduce", "links"}


def _json(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    value = json.loads(result.stdout, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert isinstance(value, dict)
    return value


@pytest.fixture
def deployment(tmp_path: Path) -> Path:
    """A small model on the box of the reference case."""
    path = tmp_path / "small.toml"
    path.write_text(
        '[model]\nconfig = "qwen3-30b-a3b-bf16"\n'
        '[hardware]\ngpu = "rtx-pro-6000-blackwell-server"\nnum_gpus = 4\n'
        '[engine]\nname = "vllm"\nversion = "0.24.0"\ntensor_parallel_size = 4\n'
        '[speculation]\nmethod = "eagle3"\nnum_speculative_tokens = 2\n'
        "[workload]\nconcurrency = [2]\ninput_tokens = 500\noutput_tokens = 500\n"
    )
    return path


def test_json_holds_what_the_contract_names(run: Run, deployment: Path) -> None:
    value = _json(run("step", deployment, "--json", "--draws", 100))
    assert set(value) >= CONTRACT
    assert sum(value["parts_s"].values()) == pytest.approx(value["step_s"])
    assert len(value["ranks"]) == 4
    assert set(value["ranks"][0]) >= {"compute_s", "allreduce_s", "wait_s"}
    assert set(value["allreduce"]) >= {"count", "bytes", "mean_s", "network_s", "skew_s", "algorithm"}
    assert value["inputs"]["num_speculative_tokens"] == 2
    assert value["inputs"]["concurrency"] == 2


def test_the_same_seed_prints_the_same_bytes(run: Run, deployment: Path) -> None:
    asked = ("step", deployment, "--json", "--draws", 100, "--seed", 7, "-k", 0, "-c", 1)
    assert run(*asked).stdout == run(*asked).stdout


def test_the_page_says_what_takes_the_time_and_why(run: Run, deployment: Path) -> None:
    result = run("step", deployment, "--draws", 100, "-k", 0, "--no-jitter", "--steps", 2)
    assert result.exit_code == 0
    assert "A step takes" in result.stdout
    assert "alone, by one-shot" in result.stdout
    assert "waiting ms" in result.stdout
    assert "One AllReduce of 8 KiB (ring Simple)" in result.stdout
    assert "a profiler sees" not in result.stdout.lower()


def test_a_topology_text_is_the_box(run: Run, deployment: Path) -> None:
    topology = Path(__file__).parents[1] / "data" / "topo" / "topo_04_topology_4gpu.txt"
    value = _json(run("step", deployment, "--json", "--draws", 100, "--topology", topology, "--algorithm", "one-shot"))
    assert value["box"]["interconnect"] == "pcie-root"
    assert value["allreduce"]["algorithm"] == "one-shot"


def test_a_trace_is_written(run: Run, deployment: Path, tmp_path: Path) -> None:
    out = tmp_path / "trace.json"
    assert run("step", deployment, "--draws", 100, "-k", 0, "--trace", out).exit_code == 0
    assert {event["ph"] for event in json.loads(out.read_text())["traceEvents"]} == {"M", "X"}


@pytest.mark.parametrize(
    "wrong",
    [
        ("--algorithm", "bogus"),
        ("--protocol", "bogus"),
        ("--topology", "/nowhere"),
        ("--trace", "/nowhere/trace.json"),
        ("--steps", "100000"),
        ("--method", "bogus"),
        ("--set", "hardware.interconnect=none"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_one(run: Run, deployment: Path, wrong: tuple[str, str]) -> None:
    result = run("step", deployment, "--draws", 100, *wrong)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert len(result.stderr.strip().splitlines()) == 1
    assert result.stderr.startswith("Error: ")


def test_predicting_does_not_load_the_event_kernel() -> None:
    code = "import sys, draftcast.api, draftcast.commands.step; sys.exit('simpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_facade_has_the_function() -> None:
    import draftcast
    from simulator.ranks.step import step

    assert draftcast.step is step
