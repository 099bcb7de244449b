"""`draftcast calibrate` and `--profile` as a newcomer uses them: files in, a report, a profile, and odd input."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from measured import measured_cells

import draftcast
from simulator.deployment import load_deployment

FILE = """
[model]
config = "qwen3-30b-a3b-bf16"
[hardware]
gpu = "rtx-pro-6000-blackwell-server"
interconnect = "pcie-switch"
allreduce_algorithm = "nccl"
[engine]
version = "0.16.0"
tensor_parallel_size = 2
[speculation]
method = "eagle3"
num_speculative_tokens = 3
acceptance = { conditional = [0.6] }
[workload]
concurrency = [1, 8]
"""
TRUTH = {"kernel_floor_us": 1.0, "host_step_ms": -0.7}


@pytest.fixture
def deployment(tmp_path: Path) -> Path:
    """A deployment file."""
    path = tmp_path / "box.toml"
    path.write_text(FILE, encoding="utf-8")
    return path


@pytest.fixture
def table(deployment: Path) -> Path:
    """A CSV of a baseline sweep on it."""
    cells = measured_cells(load_deployment(deployment), TRUTH, (1, 4, 16, 64), noise=(0.02, 1))
    rows = [f"{c.concurrency:g},{1e3 * (c.tpot_s or 0):.4f},0.02" for c in cells]
    path = deployment.parent / "sweep.csv"
    path.write_text("\n".join(["concurrency,tpot_ms,relative_noise", *rows, ""]), encoding="utf-8")
    return path


def parsed(result: Result) -> dict[str, Any]:
    """The JSON object on stdout."""
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert isinstance(found, dict)
    return found


def error(result: Result) -> str:
    """The one line of a stated error."""
    assert result.exit_code == 1, result.output
    assert result.stdout == ""
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    return lines[0]


def test_json_has_the_parameters_and_residuals_of_the_contract(run: Any, deployment: Path, table: Path) -> None:
    found = parsed(run("calibrate", deployment, "--data", table, "--json"))
    floor = found["parameters"]["kernel_floor_us"]
    assert floor["prior"]["median"] == 2.4
    assert floor["value"] > 2.4
    assert 0 < floor["stderr"] < floor["value"]
    assert floor["at_bound"] is False
    assert floor["p05"] < floor["value"] < floor["p95"]
    assert [row["concurrency"] for row in found["residuals"]] == [1, 4, 16, 64]
    assert all(abs(row["error"]) < 0.05 for row in found["residuals"])
    assert isinstance(found["warnings"], list)
    assert {"name", "what", "restarts", "log_speedup_sd_after"} <= set(found["measurements"][0])
    assert {"name", "spread_left", "influence", "why"} <= set(found["undetermined"][0])
    assert found["inputs"]["data"][0]["path"] == str(table)
    assert len(found["inputs"]["data"][0]["sha256"]) == 64
    assert found["profile"] is None


def test_the_report_fits_a_terminal_of_80_columns(run: Any, deployment: Path, table: Path) -> None:
    result = run("calibrate", deployment, "--data", table, "-o", deployment.parent / "p.json")
    assert result.exit_code == 0
    for line in result.stdout.splitlines():
        assert len(line.rstrip()) <= 80 or "--profile" in line, line
    for words in ("4 measurements at 4 loads", "kernel_floor_us", "stderr", "What would narrow the answer most"):
        assert words in result.stdout
    assert "draftcast predict DEPLOYMENT --profile" in result.stdout


def test_several_files_stand_behind_one_option_or_behind_one_each(run: Any, deployment: Path, table: Path) -> None:
    other = deployment.parent / "more.csv"
    other.write_text("concurrency,tpot_ms\n32,14.5\n", encoding="utf-8")
    one = parsed(run("calibrate", deployment, "--data", table, other, "--json"))
    each = parsed(run("calibrate", deployment, "--data", table, "--data", other, "--json"))
    assert [r["concurrency"] for r in one["residuals"]] == [1, 4, 16, 64, 32]
    assert each["parameters"] == one["parameters"]


def test_a_profile_is_written_whole_and_other_commands_take_it(run: Any, deployment: Path, table: Path) -> None:
    profile = deployment.parent / "p.json"
    fitted = parsed(run("calibrate", deployment, "--data", table, "-o", profile, "--json"))
    assert fitted["profile"] == str(profile)
    document = json.loads(profile.read_text(encoding="utf-8"))
    assert (document["format"], document["schema"]) == ("draftcast-profile", 1)
    assert document["versions"].keys() == {"draftcast", "python", "numpy", "scipy"}
    assert document["data"][0]["path"] == str(table)
    assert sorted(path.name for path in deployment.parent.iterdir()) == ["box.toml", "p.json", "sweep.csv"]
    measured = [1e-3 * float(line.split(",")[1]) for line in table.read_text(encoding="utf-8").splitlines()[1:]]
    told = parsed(run("predict", deployment, "-c", 4, "--profile", profile, "--json"))
    assert told["baseline"]["tpot_s"] == pytest.approx(measured[1], rel=0.03)
    assert told["inputs"]["profile"]["created"] == document["created"]
    grid = parsed(run("choose", deployment, "-k", "0,3", "--profile", profile, "--json"))
    assert grid["inputs"]["profile"]["sha256"] == told["inputs"]["profile"]["sha256"]
    rows = parsed(run("whatif", deployment, "--vary", "workload.output_tokens=200,400", "--profile", profile, "--json"))
    assert len(rows["rows"]) == 2
    quick = ("--requests", 10, "--set", "workload.output_tokens=50", "--profile", profile, "--json")
    simulated = parsed(run("simulate", deployment, *quick))
    assert simulated["inputs"]["profile"]["created"] == document["created"]
    ranks = parsed(run("step", deployment, "--profile", profile, "--json"))
    assert any("only the parts that the model knows" in note for note in ranks["notes"])


def test_a_second_sitting_continues_the_first_and_counts_nothing_twice(run: Any, deployment: Path, table: Path) -> None:
    old, new, more = (deployment.parent / name for name in ("old.json", "new.json", "more.csv"))
    parsed(run("calibrate", deployment, "--data", table, "-o", old, "--json"))
    more.write_text("concurrency,tpot_ms\n32,14.5\n", encoding="utf-8")
    second = parsed(run("calibrate", deployment, "--profile", old, "--data", more, table, "-o", new, "--json"))
    assert [row["concurrency"] for row in second["residuals"]] == [1, 4, 16, 64, 32]
    assert any("counted" in note for note in second["notes"])
    assert [item["path"] for item in second["data"]] == [str(table), str(more)]
    assert "no new measurement" in error(run("calibrate", deployment, "--profile", new, "--data", more))


def test_facts_of_the_file_alone_are_enough(run: Any, reference_case: Path) -> None:
    found = parsed(run("calibrate", reference_case, "--json"))
    assert [row["quantity"] for row in found["residuals"]] == ["tpot", "allreduce_share"]
    assert found["cross_validation"]["reason"] == "fewer than two concurrencies were measured"


def test_the_facade_gives_what_the_command_prints(run: Any, deployment: Path, table: Path) -> None:
    found = draftcast.calibrate(draftcast.load(deployment), [table])
    profile = deployment.parent / "p.json"
    found.write(str(profile))
    printed = parsed(run("calibrate", deployment, "--data", table, "--json"))
    assert found.to_dict()["parameters"] == printed["parameters"]
    told = draftcast.predict(draftcast.load(deployment, profile=profile), num_draws=100).to_dict()
    assert told["inputs"]["profile"]["created"] == json.loads(profile.read_text(encoding="utf-8"))["created"]


def test_facts_of_another_deployment_than_the_overrides_make_are_left_out(run: Any, reference_case: Path) -> None:
    changed = ("--set", "engine.kv_cache_dtype=fp8")
    assert "no new measurement" in error(run("calibrate", reference_case, *changed))


# ---- odd input


def test_without_any_measurement_one_line_says_what_to_give(run: Any, deployment: Path) -> None:
    assert "allowed: --data FILE, or [[measured]]" in error(run("calibrate", deployment))


def test_a_bad_file_is_named_and_left_out_when_asked(run: Any, deployment: Path, table: Path) -> None:
    bad = deployment.parent / "bad.json"
    bad.write_text("{", encoding="utf-8")
    assert "bad.json" in error(run("calibrate", deployment, "--data", table, bad))
    found = parsed(run("calibrate", deployment, "--data", table, bad, "--skip-bad", "--json"))
    assert len(found["residuals"]) == 4
    assert any("bad.json" in item["source"] for item in found["refused"])


def test_an_output_over_an_input_or_into_nowhere_is_refused_before_anything_is_computed(
    run: Any, deployment: Path, table: Path
) -> None:
    assert "a file of its own" in error(run("calibrate", deployment, "--data", table, "-o", table))
    assert "a file of its own" in error(run("calibrate", deployment, "--data", table, "-o", deployment))
    assert "no such folder" in error(run("calibrate", deployment, "--data", table, "-o", "/nowhere/p.json"))
    assert "a directory" in error(run("calibrate", deployment, "--data", table, "-o", deployment.parent))


@pytest.mark.parametrize("command", ["predict", "choose", "simulate", "step", "calibrate"])
@pytest.mark.parametrize("content", ["", "{}", "[]", '{"format": "draftcast-profile", "schema": 7}'])
def test_a_malformed_profile_is_one_line(run: Any, deployment: Path, command: str, content: str) -> None:
    profile = deployment.parent / "p.json"
    profile.write_text(content, encoding="utf-8")
    assert "profile" in error(run(command, deployment, "--profile", profile))


def test_a_measurement_in_the_profile_that_was_edited_is_one_line(run: Any, deployment: Path, table: Path) -> None:
    profile = deployment.parent / "p.json"
    parsed(run("calibrate", deployment, "--data", table, "-o", profile, "--json"))
    document = json.loads(profile.read_text(encoding="utf-8"))
    document["measurements"][1]["requests"] = -4
    profile.write_text(json.dumps(document), encoding="utf-8")
    more = deployment.parent / "more.csv"
    more.write_text("concurrency,tpot_ms\n32,14.5\n", encoding="utf-8")
    assert "measurements[1].requests: got -4" in error(
        run("calibrate", deployment, "--profile", profile, "--data", more)
    )


def test_a_profile_of_another_machine_and_model_is_one_line(run: Any, deployment: Path, table: Path) -> None:
    profile = deployment.parent / "p.json"
    parsed(run("calibrate", deployment, "--data", table, "-o", profile, "--json"))
    away = ("--set", "hardware.gpu=h200", "--set", "model.config=qwen3-8b-bf16", "--profile", profile)
    assert "measured on rtx-pro-6000-blackwell-server" in error(run("predict", deployment, *away))
    kept = run("predict", deployment, "--set", "model.config=qwen3-8b-bf16", "--profile", profile)
    assert kept.exit_code == 0
    assert "the profile was measured elsewhere (model qwen3-8b-bf16 instead of qwen3-30b-a3b-bf16)" in " ".join(
        kept.stderr.split()
    )


def test_errors_of_what_was_left_out_are_relative_to_the_measured_value(deployment: Path, table: Path) -> None:
    shares = "concurrency,tpot_ms,allreduce_share\n1,9,0.95\n"  # far from what the other loads say of it
    odd = deployment.parent / "share.csv"
    odd.write_text(shares, encoding="utf-8")
    report = draftcast.calibrate(draftcast.load(str(deployment)), [str(table), str(odd)]).to_dict()
    rows = report["residuals"]
    assert all(row["left_out_error"] > -1.0 for row in rows)
    share = next(row for row in rows if row["quantity"] == "allreduce_share")
    assert share["left_out_error"] < 1.0 / share["measured"]  # a share is at most 1


def test_a_misfit_is_said_by_calibrate_and_by_the_answers_that_use_the_profile(
    run: Any, deployment: Path, tmp_path: Path
) -> None:
    table, profile = tmp_path / "odd.csv", tmp_path / "odd.profile.json"
    table.write_text("concurrency,tpot_ms,k\n1,3,0\n8,40,0\n64,15,0\n")
    found = parsed(run("calibrate", deployment, "--data", table, "-o", profile, "--json"))
    assert found["warnings"][0].startswith("the profile's measurements do not fit the model: 0 of 3 lie in")
    assert "intervals are " in found["warnings"][0]
    assert "they show a model error of" in found["wider_reason"]
    before = parsed(run("predict", deployment, "--json"))["speedup"]
    for command in (("predict",), ("choose",), ("whatif", "--vary", "workload.input_tokens=900,1000"), ("step",)):
        result = run(command[0], deployment, *command[1:], "--profile", profile)
        assert result.exit_code == 0
        assert f"note: {found['warnings'][0]}" in " ".join(result.stderr.split())
    after = parsed(run("predict", deployment, "--profile", profile, "--json"))["speedup"]
    assert after["p95"] / after["p05"] > 2.0 * before["p95"] / before["p05"]


def test_what_no_file_gave_is_said_first(run: Any, deployment: Path, table: Path, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign.csv"
    foreign.write_text("concurrency,tpot_ms,engine\n4,9,sglang\n")
    nothing = run("calibrate", deployment, "--data", foreign)
    assert nothing.exit_code == 1
    assert "calibrate: 0 of 1 files used, no measurement can be used;" in nothing.stderr
    deployment.write_text(FILE + "[[measured]]\nconcurrency = 1\ntpot_ms = 8\n")
    facts = run("calibrate", deployment, "--data", foreign)
    assert facts.exit_code == 0
    assert facts.stdout.startswith("0 of 1 file used: nothing below comes from the data that was given.")
    both = parsed(run("calibrate", deployment, "--data", foreign, "--data", table, "--json"))
    assert both["files"] == {"given": 2, "used": [str(table)]}


def test_another_release_than_the_deployments_is_noted(run: Any, deployment: Path, tmp_path: Path) -> None:
    table = tmp_path / "sweep.csv"
    table.write_text("concurrency,tpot_ms,engine,engine_version\n4,9,vllm,0.16.2\n8,11,vllm,0.19.0\n")
    result = run("calibrate", deployment, "--data", table)
    assert "line 3 (vllm 0.19.0): another engine version than the deployment states" in " ".join(result.stderr.split())
    assert "0.16.2" not in result.stderr
