import csv
import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from validate.ledger.store import Entry, Ledger

Run = Callable[..., Result]
CHECKOUT = Path(__file__).parent.parent.parent
FAST = ("--draws", "100")


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ledger that the environment names, not written yet."""
    path = tmp_path / "folder" / "l.sqlite"
    monkeypatch.setenv("DRAFTCAST_LEDGER", str(path))
    return path


def entries(path: Path) -> int:
    with Ledger(path) as opened:
        return len(opened.rows())


def test_record_writes_the_prediction_down_and_says_so(run: Run, reference_case: Path, tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"
    result = run("predict", reference_case, *FAST, "--json", "--record", "--ledger", path)
    identity = json.loads(result.stdout)["prediction_id"]
    assert f"note: recorded as {identity} (entry 1) in {path}" in result.stderr
    again = run("choose", reference_case, *FAST, "-k", "0-2", "--ledger", path)
    assert "(entry 2)" in again.stderr
    assert entries(path) == 2


def test_the_variable_records_every_answer_unless_it_is_refused(run: Run, reference_case: Path, ledger: Path) -> None:
    run("predict", reference_case, *FAST)
    run("choose", reference_case, *FAST, "-k", "0-1")
    assert entries(ledger) == 2
    assert "recorded" not in run("predict", reference_case, *FAST, "--no-record").stderr
    assert entries(ledger) == 2


def test_without_being_asked_nothing_is_recorded(
    run: Run, reference_case: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert "recorded" not in run("predict", reference_case, *FAST).stderr
    assert list(tmp_path.iterdir()) == []
    run("predict", reference_case, *FAST, "--record")
    assert entries(tmp_path / "draftcast" / "ledger.sqlite") == 1
    (tmp_path / ".draftcast").mkdir()
    run("predict", reference_case, *FAST, "--record")
    assert entries(tmp_path / ".draftcast" / "ledger.sqlite") == 1


@pytest.mark.parametrize("as_json", [True, False])
def test_a_ledger_that_fails_never_loses_the_answer(
    run: Run, reference_case: Path, tmp_path: Path, as_json: bool
) -> None:
    bad = tmp_path / "notes.txt"
    bad.write_text("my notes")
    options = ("--json",) if as_json else ()
    result = run("predict", reference_case, *FAST, *options, "--ledger", bad)
    good = run("predict", reference_case, *FAST, *options)
    assert result.stdout == good.stdout
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1].startswith(f"Error: {bad} is no ledger; allowed: ")
    assert bad.read_text() == "my notes"


def test_a_prediction_without_recording_loads_nothing_of_the_ledger(reference_case: Path) -> None:
    arguments = ["predict", str(reference_case), "--json", *FAST]
    script = f"from draftcast.cli import cli\ncli.main({arguments!r}, standalone_mode=False)\n"
    script += "import sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=CHECKOUT)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert loaded.isdisjoint({"sqlite3", "validate.ledger", "simulator.forecast", "validate.launch.redaction"})


def test_list_shows_what_was_predicted(run: Run, reference_case: Path, ledger: Path) -> None:
    run("predict", reference_case, *FAST)
    result = run("ledger", "list")
    assert "1 prediction in" in result.stdout
    assert "  ngram  " in result.stdout
    assert "kimi-k2.5-int4 on 8 x rtx-pro-6000-blackwell-server" in result.stdout
    assert "no prediction has been compared with a run yet" in result.stdout
    assert max(map(len, result.stdout.splitlines()[2:])) <= 80
    (row,) = json.loads(run("ledger", "list", "--json").stdout)["rows"]
    assert (row["model"], row["num_gpus"], row["method"]) == ("kimi-k2.5-int4", 8, "ngram")
    assert (row["num_speculative_tokens"], row["concurrency"], row["outcome"]) == (5, [1], None)
    assert row["speedup"]["p05"] < row["speedup"]["p95"]


def test_list_shows_the_newest_first_and_as_many_as_asked(run: Run, reference_case: Path, ledger: Path) -> None:
    for k in (1, 2, 3):
        run("predict", reference_case, *FAST, "-k", k)
    shown = json.loads(run("ledger", "list", "-n", 2, "--json").stdout)
    assert [row["num_speculative_tokens"] for row in shown["rows"]] == [3, 2]
    assert shown["total"] == 3
    assert "the newest 1 shown" in run("ledger", "list", "-n", 1).stdout


def test_show_finds_a_prediction_by_the_beginning_of_its_id(run: Run, reference_case: Path, ledger: Path) -> None:
    identity = json.loads(run("predict", reference_case, *FAST, "--json").stdout)["prediction_id"]
    assert identity in run("ledger", "show", identity[:6]).stdout
    whole = json.loads(run("ledger", "show", identity[:6].upper(), "--json").stdout)
    assert whole["prediction_id"] == identity
    assert whole["cells"][0]["baseline"]["parts_s"]
    assert whole["deployment"]["model"] == {"config": "kimi-k2.5-int4"}


def test_export_writes_json_or_a_table(run: Run, reference_case: Path, ledger: Path, tmp_path: Path) -> None:
    run("choose", reference_case, *FAST, "-k", "0-2", "-c", "1,4")
    assert len(json.loads(run("ledger", "export").stdout)["entries"]) == 1
    assert len(json.loads(run("ledger", "export", "--json").stdout)["entries"]) == 1
    table = tmp_path / "out.csv"
    written = json.loads(run("ledger", "export", "-o", table, "--json").stdout)
    assert written["format"] == "csv"
    with table.open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 6
    assert run("ledger", "export", "--format", "csv").stdout == table.read_text()
    assert run("ledger", "export", "--format", "csv", "--json").exit_code == 2


def test_export_does_not_overwrite_the_ledger(run: Run, reference_case: Path, ledger: Path) -> None:
    run("predict", reference_case, *FAST)
    result = run("ledger", "export", "-o", ledger)
    assert result.exit_code == 1
    assert "allowed: a file of its own" in result.stderr
    assert entries(ledger) == 1


@pytest.mark.parametrize("arguments", [("list",), ("show", "ab"), ("export",)])
def test_no_ledger_is_one_line(run: Run, ledger: Path, arguments: tuple[str, ...]) -> None:
    result = run("ledger", *arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert (
        result.stderr == f"Error: no ledger at {ledger}; allowed: one that `draftcast predict --record` has written\n"
    )
    assert not ledger.parent.exists()


def test_names_from_a_ledger_cannot_drive_the_terminal_nor_break_the_table(run: Run, ledger: Path) -> None:
    hostile = "\x1b[2Jevil\nname" + "x" * 10_000
    summary = {
        "command": hostile,
        "model": hostile,
        "method": [hostile],
        "gpu": None,
        "num_speculative_tokens": hostile,
    }
    summary |= {"concurrency": hostile, "speedup": hostile, "probability_faster": hostile}
    done = {"blind": True, "prediction_sequence": 1, "verdict": hostile, "cells_scored": hostile, "scores": hostile}
    with Ledger(ledger, writable=True) as opened:
        opened.append(Entry("prediction", "ab" * 8, summary, {"cells": [hostile, {"speedup": 3}], "profile": hostile}))
        opened.append(Entry("outcome", "ab" * 8, done, {"verdict": hostile}))
    for arguments in (("list",), ("show", "abab")):
        result = run("ledger", *arguments)
        assert result.exit_code == 0
        assert "\x1b" not in result.stdout
    assert run("ledger", "export", "--format", "csv").exit_code == 0


def test_a_ledger_of_another_program_is_one_line(run: Run, ledger: Path, reference_case: Path) -> None:
    ledger.parent.mkdir()
    with sqlite3.connect(ledger) as database:
        database.execute("CREATE TABLE mine (a)")
    database.close()
    result = run("predict", reference_case, *FAST)
    assert result.exit_code == 1
    assert "P(faster)" in result.stdout
    assert "another program's database" in result.stderr


def test_an_unknown_action_is_wrong_usage(run: Run) -> None:
    assert run("ledger", "delete").exit_code == 2


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_prediction_whose_reader_has_gone_is_on_file_all_the_same(
    reference_case: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    path = tmp_path / "l.sqlite"
    program = (sys.executable, "-c", "import sys; from draftcast.start import main; sys.exit(main())")
    arguments = ("predict", str(reference_case), *FAST, "--ledger", str(path), *options)
    with subprocess.Popen(
        (*program, *arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=CHECKOUT
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait() != 0
    assert entries(path) == 1


def test_the_longest_row_of_the_list_stays_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    from draftcast.render.ledger import render
    from draftcast.render.page import Page

    band = {"p05": 0.81, "p50": 1.41, "p95": 2.71}
    row = {
        "recorded": "2026-01-31T12:00:07Z", "prediction_id": "860525ab0000", "command": "choose",
        "method": "draft_model", "num_speculative_tokens": 12, "concurrency": [1, 4, 1024], "speedup": band,
        "model": "m", "gpu": "g", "num_gpus": 8,
        "outcome": {"cells_scored": 3, "cells_inside": 3, "measured_speedup": 1.31},
    }  # fmt: skip
    summary = {"predictions_scored": 0, "outcomes_not_blind": 0}
    render({"rows": [row], "total": 1, "ledger": "l.sqlite", "summary": summary}, Page())
    lines = capsys.readouterr().out.splitlines()
    (shown,) = [line for line in lines if "860525ab" in line]
    for text in ("2026-01-31", "draft_model", "1-1024", "1.41x", "0.81-2.71", "1.31x, 3/3 in"):
        assert text in shown
    assert max(map(len, (line.rstrip() for line in lines))) <= 80
