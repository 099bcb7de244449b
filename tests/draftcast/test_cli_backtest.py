"""`draftcast backtest`: the JSON of the contract, the page for a reader, roles, errors in one line."""

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from published_rows import records, sweep
from rich.cells import cell_len

Run = Callable[..., Result]
FIGURES = {
    "rows",
    "median_abs_error",
    "p90_abs_error",
    "sign_accuracy",
    "best_k_regret",
    "coverage_90",
    "half_width_90",
}


def write(path: Path, found: Sequence[dict[str, Any]]) -> Path:
    """The records as a CSV file."""
    names = list(dict.fromkeys(name for each in found for name in each))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names, restval="")
        writer.writeheader()
        writer.writerows(found)
    return path


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Two sets of three rows, and one row without a speedup."""
    blind = {"set_id": "C", "speedup": "", "spec": ""}
    return write(tmp_path / "t.csv", records(*sweep(set_id="A"), *sweep(set_id="B", gpu=""), blind))


@pytest.fixture
def sets(tmp_path: Path) -> Path:
    """A file of sets in which the second is not to be scored."""
    path = tmp_path / "sets.csv"
    path.write_text("set_id,role,role_reason\nA,usable,\nB,caution,a known defect\nC,usable,\n")
    return path


def parsed(result: Result) -> dict[str, Any]:
    """The one JSON object on stdout."""
    assert result.exit_code == 0, result.output
    value = json.loads(result.stdout, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert isinstance(value, dict)
    return value


def refused(result: Result, words: str) -> None:
    """Exit 1 with one line that holds these words."""
    assert result.exit_code == 1
    assert not result.stdout
    assert len(result.stderr.strip().splitlines()) == 1
    assert words in result.stderr


def test_json_holds_what_the_contract_names(run: Run, table: Path) -> None:
    value = parsed(run("backtest", table, "--json"))
    assert set(value) >= {"inputs", "sets", "overall", "skipped"}
    assert [each["set_id"] for each in value["sets"]] == ["A", "B"]
    assert all(set(each) >= {"set_id", *FIGURES} for each in value["sets"])
    assert set(value["overall"]) >= {*FIGURES, "by_set", "known_hardware"}
    assert value["overall"]["rows"] == 6
    assert value["overall"]["known_hardware"]["rows"] == 3
    assert value["skipped"] == [{"set_id": "C", "rows": 1, "reason": "no speedup"}]
    assert value["inputs"] == {"csv": str(table), "sets": None, "protocol": "informed"}
    assert "rows" not in value


def test_what_is_null_has_a_reason_beside_it(run: Run, table: Path) -> None:
    def check(value: Any) -> None:
        if isinstance(value, dict):
            for name, each in value.items():
                assert each is not None or name in ("sets", "csv") or value[f"{name}_reason"], name
                check(each)
        elif isinstance(value, list):
            for each in value:
                check(each)

    for protocol in ("informed", "cold", "anchored"):
        check(parsed(run("backtest", table, "--json", "--protocol", protocol)))


def test_rows_are_listed_when_asked_for(run: Run, table: Path) -> None:
    rows = parsed(run("backtest", table, "--json", "--rows"))["rows"]
    assert [each["line"] for each in rows] == [2, 3, 4, 5, 6, 7]
    assert all(each["speedup"]["p05"] < each["speedup"]["p50"] < each["speedup"]["p95"] for each in rows)


@pytest.mark.parametrize(("protocol", "rows"), [("informed", 6), ("cold", 6), ("anchored", 4)])
def test_each_protocol_scores_its_rows(run: Run, table: Path, protocol: str, rows: int) -> None:
    value = parsed(run("backtest", table, "--json", "--protocol", protocol))
    assert (value["protocol"], value["overall"]["rows"]) == (protocol, rows)


def test_a_file_of_sets_says_which_are_scored(run: Run, table: Path, sets: Path) -> None:
    value = parsed(run("backtest", table, "--json", "--sets", sets))
    assert [each["set_id"] for each in value["sets"]] == ["A"]
    assert {"set_id": "B", "rows": 3, "reason": "role caution"} in value["skipped"]
    assert value["inputs"]["sets"] == str(sets)


def test_sets_that_ship_keep_their_role_where_nobody_says_otherwise(run: Run, tmp_path: Path) -> None:
    rows = records(*sweep(set_id="RTX-DS4F-v9"), *sweep(set_id="NEW"))  # the first ships with a known defect
    path = write(tmp_path / "r.csv", rows)
    done = run("backtest", path, "--json")
    assert [each["set_id"] for each in json.loads(done.stdout)["sets"]] == ["NEW"]
    assert "1 set(s) have a known defect and are not scored, such as RTX-DS4F-v9" in done.stderr
    sets = tmp_path / "sets.csv"
    sets.write_text("set_id,role\nRTX-DS4F-v9,usable\n")
    scored = json.loads(run("backtest", path, "--sets", sets, "--json").stdout)["sets"]
    assert [each["set_id"] for each in scored] == ["RTX-DS4F-v9", "NEW"]


def test_a_column_role_does_as_well(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "r.csv", records(*sweep(set_id="A", role="usable"), *sweep(set_id="B", role="ratio only")))
    assert [each["set_id"] for each in parsed(run("backtest", path, "--json"))["sets"]] == ["A"]


def test_a_set_that_the_file_does_not_list_is_scored_with_a_note(run: Run, table: Path, tmp_path: Path) -> None:
    short = tmp_path / "short.csv"
    short.write_text("set_id,role\nB,caution\n")
    result = run("backtest", table, "--json", "--sets", short)
    assert [each["set_id"] for each in parsed(result)["sets"]] == ["A"]
    assert "note: 2 set(s) are not in the file of sets" in result.stderr


def test_a_reader_sees_sets_worst_first_references_and_what_was_left_out(run: Run, table: Path, sets: Path) -> None:
    page = run("backtest", table).stdout
    assert "6 rows scored, protocol informed: median error" in page
    assert page.index("all rows") < page.index("log-log interpolation")
    assert "Not scored\n- 1 row: no speedup" in page
    figures = [line.split() for line in page.splitlines() if line.startswith(("A ", "B "))]
    assert len(figures) == 2
    assert float(figures[0][2]) >= float(figures[1][2])
    assert "3 rows: role caution" in run("backtest", table, "--sets", sets).stdout


def test_the_page_fits_into_80_columns_whatever_the_names(run: Run, tmp_path: Path) -> None:
    names = ["A" * 300, "漢字" * 60, "tab\tand\nline", "\x1b[31mred", "SPECBUNDLE-" + "Qwen3-480B-" * 9]
    rows = [row for name in names for row in sweep(set_id=name, speedup="0.0011")]
    rows += [{"set_id": "x", "skip_reason": "because " * 200}]
    rows += [{"set_id": "x", "skip_reason": f"reason {i}"} for i in range(40)]
    for arguments in ((), ("--protocol", "cold")):
        page = run("backtest", write(tmp_path / "t.csv", records(*rows)), *arguments).stdout
        assert "\x1b" not in page
        assert max(cell_len(line) for line in page.splitlines()) <= 80
        assert "…" in page
        assert "other reasons, see --json" in page
        assert ">9999" in page


def test_figures_are_whole_in_every_row(run: Run, table: Path) -> None:
    lines = [line for line in run("backtest", table).stdout.splitlines() if line.startswith(("A ", "B ", "all rows"))]
    assert len(lines) == 3
    for line in lines:
        assert not any(cell.endswith(".") for cell in line.split())


def test_nothing_to_score_is_said_without_a_table(run: Run, tmp_path: Path) -> None:
    page = run("backtest", write(tmp_path / "t.csv", records({"k": ""}))).stdout
    assert page.startswith("0 rows scored, protocol informed.")
    assert "1 row: no draft length" in page
    assert "median" not in page


def test_progress_stays_off_stdout_and_off_files(run: Run, table: Path) -> None:
    assert run("backtest", table, "--json").stderr == ""


@pytest.mark.parametrize(
    ("text", "words"),
    [("", "no rows"), ("a,b\n1,2\n", "lacks the column set_id"), ("set_id,model,method,k,concurrency\n", "no rows")],
)
def test_a_file_that_is_no_table_is_refused(run: Run, tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    refused(run("backtest", path), words)
    refused(run("backtest", path, "--json"), words)


def test_what_is_no_file_is_refused(run: Run, table: Path, tmp_path: Path) -> None:
    refused(run("backtest", tmp_path), "directory")
    refused(run("backtest", tmp_path / "missing.csv"), "No such file")
    refused(run("backtest", table, "--sets", tmp_path / "missing.csv"), "sets: ")
    refused(run("backtest", table, "--sets", table), "lacks the column role")


def test_an_unknown_protocol_is_a_usage_error(run: Run, table: Path) -> None:
    assert run("backtest", table, "--protocol", "warm").exit_code == 2
