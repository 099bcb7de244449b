"""`draftcast validate` as a user runs it: on run files, on a server, and on inputs that cannot be used."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from fault_server import FaultServer
from outcome_runs import BEFORE, cell, run_record, write_run

from validate.ledger.store import Ledger

Run = Callable[..., Result]
FAST = ("--draws", "100")
QUICK = ("--cell-seconds", "2", "--warmup-seconds", "0", "--precision", "1", "--output-tokens", "41")


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "l.sqlite"
    monkeypatch.setenv("DRAFTCAST_LEDGER", str(path))
    return path


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test finds or makes a ledger of the user who runs it."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)


def test_a_prediction_recorded_before_a_run_is_validated_and_remembered(
    run: Run, reference_case: Path, ledger: Path, tmp_path: Path
) -> None:
    identity = json.loads(run("predict", reference_case, *FAST, "--json").stdout)["prediction_id"]
    file = write_run(tmp_path / "run.json", cell(tpot_s=0.0138))
    base = write_run(tmp_path / "base.json", cell(k=0, tpot_s=0.0136))
    result = run("validate", reference_case, "--run", file, "--baseline-run", base, *FAST, "--json")
    answer = json.loads(result.stdout)
    (scored,) = answer["cells"]
    assert (scored["concurrency"], scored["num_speculative_tokens"], scored["inside_interval"]) == (1, 5, True)
    assert scored["predicted"]["p05"] < scored["measured"] < scored["predicted"]["p95"]
    assert (scored["prediction_id"], answer["blind"]) == (identity, True)
    assert answer["verdict"].startswith("1 of 1 cell inside the 90 % interval; speculation is 0.99x as fast")
    assert f"note: outcome added to {ledger}" in result.stderr
    listed = run("ledger", "list").stdout
    assert "0.99x, 1/1 in" in listed
    assert "1 prediction scored on 1 run" in " ".join(listed.split())
    assert "0.99x as fast" in " ".join(run("ledger", "show", identity[:8]).stdout.split())
    table = run("ledger", "export", "--format", "csv").stdout.splitlines()
    assert dict(zip(table[0].split(","), table[1].split(","), strict=True))["inside_speedup"] == "true"


def test_the_page_has_verdict_table_causes_and_what_to_do(run: Run, reference_case: Path, tmp_path: Path) -> None:
    file = write_run(tmp_path / "run.json", cell(tpot_s=0.02), cell(4, complete=False))
    result = run("validate", reference_case, "--run", file, *FAST)
    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= 80
    for part in (
        "0 of 1 cell inside",
        "Predicted against measured",
        "split",
        "Not scored",
        "Causes",
        "Ruled out",
        "Next",
    ):
        assert part in result.stdout, part
    assert "this is not a blind prediction" in " ".join(result.stderr.split())


def test_without_a_ledger_none_is_made(run: Run, reference_case: Path, tmp_path: Path) -> None:
    file = write_run(tmp_path / "run.json", cell())
    assert run("validate", reference_case, "--run", file, *FAST).exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.json"]
    named = tmp_path / "new.sqlite"
    result = run("validate", reference_case, "--run", file, *FAST, "--ledger", named)
    assert "outcome added" in result.stderr
    with Ledger(named) as opened:
        assert [row.summary["blind"] for row in opened.rows()] == [False]


def test_a_profile_is_written_and_taken_by_the_next_prediction(run: Run, reference_case: Path, tmp_path: Path) -> None:
    file, profile = write_run(tmp_path / "run.json", cell(tpot_s=0.02)), tmp_path / "profile.json"
    answer = json.loads(run("validate", reference_case, "--run", file, *FAST, "-o", profile, "--json").stdout)
    assert answer["refit"]["profile"] == str(profile)
    before = json.loads(run("predict", reference_case, *FAST, "--json").stdout)["speculative"]["tpot_s"]
    after = json.loads(run("predict", reference_case, *FAST, "--json", "--profile", profile).stdout)
    assert abs(after["speculative"]["tpot_s"] - 0.02) < abs(before - 0.02)


def test_a_run_is_measured_now_and_kept(run: Run, reference_case: Path, ledger: Path, tmp_path: Path) -> None:
    options = (*FAST, "--set", "engine.version=0.32.0")
    run("predict", reference_case, *options, "-k", 3)
    with FaultServer(k=3, tokens_per_step=2, pace_s=0.012) as server:
        server.style = "text"
        kept = tmp_path / "kept.json"
        load = ("-c", "1", *QUICK, "--method", "ngram", "--save-run", kept)
        result = run("validate", reference_case, *options, "--url", server.url, *load, "--json")
    assert result.exit_code == 0, result.stderr
    answer = json.loads(result.stdout)
    assert [item["num_speculative_tokens"] for item in answer["cells"]] == [3]
    assert answer["blind"]
    assert json.loads(kept.read_text())["cells"][0]["concurrency"] == 1
    again = run("validate", reference_case, *options, "--run", kept, "--json")
    assert json.loads(again.stdout)["cells"][0]["measured"] == answer["cells"][0]["measured"]


def test_a_server_that_is_not_there_is_one_line(run: Run, reference_case: Path) -> None:
    result = run("validate", reference_case, *FAST, "--url", "http://127.0.0.1:9")
    assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (1, "", 1)


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--run", "a.json", "--url", "http://x"),
        ("--run", "a.json", "--force"),
        ("--run", "a.json", "-c", "4"),
        ("--run", "a.json", "--passive", "5"),
    ],
)
def test_what_does_not_go_together_is_wrong_usage(run: Run, reference_case: Path, arguments: tuple[str, ...]) -> None:
    assert run("validate", reference_case, *arguments).exit_code == 2


ODD_RUNS = {
    "empty": "",
    "text": "not json",
    "list": "[]",
    "number": "7",
    "null": "null",
    "no cells": '{"cells": [], "server": {}}',
    "cells no list": '{"cells": {"a": 1}, "server": {}}',
    "deep": "[" * 100_000,
    "cut": json.dumps(run_record(cell()))[:-40],
    "profile": '{"format": "draftcast-profile", "cells": 3}',
}


@pytest.mark.parametrize("content", ODD_RUNS.values(), ids=ODD_RUNS)
@pytest.mark.parametrize("option", ["--run", "--baseline-run"])
def test_a_file_that_is_no_run_is_one_line(
    run: Run, reference_case: Path, tmp_path: Path, content: str, option: str
) -> None:
    bad, good = tmp_path / "bad.json", write_run(tmp_path / "run.json", cell())
    bad.write_text(content)
    options = ("--run", bad) if option == "--run" else ("--run", good, option, bad)
    result = run("validate", reference_case, *FAST, *options)
    assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (1, "", 1)


def test_missing_files_and_folders_are_one_line(run: Run, reference_case: Path, tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path, ""):
        result = run("validate", reference_case, *FAST, "--run", path)
        assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1), path


HOSTILE = ("x", -1, 0, None, True, [], {}, 1e300, "\x1b[2J" * 50, [[1]], {"mean": -1}, {"mean": "x"})


@pytest.mark.parametrize("value", HOSTILE, ids=[repr(value)[:12] for value in HOSTILE])
def test_a_cell_with_a_value_that_makes_no_sense_never_ends_in_a_trace(
    run: Run, reference_case: Path, tmp_path: Path, value: object
) -> None:
    names = [*cell(), "gauges", "server", "client", "requests", "prefill_share", "foreign_traffic", "joined_chunks"]
    cells = [cell(4)] + [cell(5 + i) | {name: value} for i, name in enumerate(names)]
    for own in (cells, [cell() | dict.fromkeys(names, value)]):
        result = run("validate", reference_case, *FAST, "--run", write_run(tmp_path / "run.json", *own))
        assert result.exit_code in (0, 1)
        assert "\x1b" not in result.stdout + result.stderr
    inside = {"totals": value, "gap_by_tokens_s": value, "tokens_of_chunks": value, "waiting_max": value, "1": value}
    parts = {name: inside for name in ("gauges", "server", "client", "acceptance")} | {"requests": [inside, value]}
    for extra in (parts, {"client": {"gap_by_tokens_s": inside, "tokens_of_chunks": inside}}):
        file = write_run(tmp_path / "run.json", cell() | extra)
        assert run("validate", reference_case, *FAST, "--run", file, "--baseline-run", file).exit_code in (0, 1)
    for name in ("server", "load", "provenance", "cells"):
        (tmp_path / "run.json").write_text(json.dumps(run_record(cell()) | {name: value}))
        assert run("validate", reference_case, *FAST, "--run", tmp_path / "run.json").exit_code in (0, 1), name


def test_a_prediction_that_is_not_on_file_is_one_line(
    run: Run, reference_case: Path, tmp_path: Path, ledger: Path
) -> None:
    file = write_run(tmp_path / "run.json", cell())
    none = run("validate", reference_case, *FAST, "--run", file, "--prediction", "abcd")
    assert none.stderr.startswith("Error: --prediction: no ledger at ")
    run("predict", reference_case, *FAST)
    for text in ("zz", "abcdef0123", ""):
        result = run("validate", reference_case, *FAST, "--run", file, "--prediction", text)
        assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (1, "", 1), text


def test_a_broken_ledger_stops_before_anything_is_measured(run: Run, reference_case: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.sqlite"
    bad.write_text("no database")
    with FaultServer(k=3) as server:
        result = run("validate", reference_case, *FAST, "--url", server.url, "--ledger", bad)
        assert server.bodies == []
    assert "is no ledger" in result.stderr
    assert (result.exit_code, result.stdout) == (1, "")


def test_outputs_do_not_overwrite_what_is_read(run: Run, reference_case: Path, tmp_path: Path) -> None:
    file = write_run(tmp_path / "run.json", cell())
    result = run("validate", reference_case, *FAST, "--run", file, "-o", file)
    assert result.exit_code == 1
    assert "allowed: a file of its own" in result.stderr
    assert json.loads(file.read_text())["cells"]


def test_a_prediction_recorded_after_the_run_is_not_used(
    run: Run, reference_case: Path, tmp_path: Path, ledger: Path
) -> None:
    file = write_run(tmp_path / "run.json", cell(started=BEFORE), started=BEFORE)
    run("predict", reference_case, *FAST)
    answer = json.loads(run("validate", reference_case, *FAST, "--run", file, "--json").stdout)
    assert not answer["blind"]
    assert answer["verdict"].endswith("(not blind)")
