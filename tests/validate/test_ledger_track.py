import csv
import io
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validate.ledger.export import COLUMNS, as_csv, exported, safe
from validate.ledger.listing import found, listed
from validate.ledger.store import OUTCOME, PREDICTION, Entry, Ledger, Row
from validate.ledger.track import track_record, wilson

BAND = {"p05": 0.9, "p50": 1.2, "p95": 1.5}


def score(measured: object, quantity: str = "speedup", concurrency: int = 1, **changes: object) -> dict:
    low, high = BAND["p05"], BAND["p95"]
    inside = isinstance(measured, float) and low <= measured <= high
    cell = {"num_speculative_tokens": 3, "concurrency": concurrency, "quantity": quantity, "predicted": BAND}
    return cell | {"measured": measured, "inside": inside} | changes


def outcome(sequence: int, scores: list[object], run: str = "r1", **changes: object) -> Row:
    summary = {"blind": True, "run_sha256": run, "model": "toy", "method": "ngram", "scores": scores}
    return Row(sequence, OUTCOME, f"{sequence:016x}", "2026-01-01T00:00:00.000Z", summary | changes)


def test_the_record_by_hand() -> None:
    rows = [outcome(1, [score(1.2)]), outcome(2, [score(1.0)], "r2"), outcome(3, [score(0.6)], "r3")]
    record = track_record(rows)
    figures = record["by_quantity"]["speedup"]
    assert (record["predictions_scored"], record["runs_scored"], figures["scored"]) == (3, 3, 3)
    assert (figures["inside"], figures["coverage_90"]) == (2, pytest.approx(2 / 3))
    assert figures["median_log_error"] == pytest.approx(math.log(1.2))
    assert figures["bias"] == pytest.approx(0.2), "predictions are too high"
    assert figures["median_abs_error"] == pytest.approx(0.2)
    assert figures["worst"][0]["measured"] == 0.6
    assert (figures["sign_scored"], figures["sign_accuracy"]) == (2, 0.5), "1.0 has no direction, 0.6 was predicted > 1"
    assert record["by_quantity"]["tpot_s"] == {"scored": 0, "reason": figures_reason(record)}


def figures_reason(record: dict) -> str:
    reason = record["by_quantity"]["tpot_s"]["reason"]
    assert "no prediction of it" in reason
    return reason


def test_a_prediction_made_after_the_run_does_not_count() -> None:
    record = track_record([outcome(1, [score(1.2)], blind=False), outcome(2, [score(1.2)])])
    assert (record["outcomes"], record["outcomes_not_blind"], record["predictions_scored"]) == (2, 1, 1)


def test_the_same_run_validated_twice_counts_once_with_its_newest_outcome() -> None:
    first, second = outcome(1, [score(9.0)]), outcome(1, [score(1.2)])
    figures = track_record([first, second])["by_quantity"]["speedup"]
    assert (figures["scored"], figures["inside"]) == (1, 1)


def test_few_cells_come_with_a_caution_and_many_runs_without() -> None:
    one = track_record([outcome(1, [score(1.2, concurrency=c) for c in (1, 2, 3)])])["by_quantity"]["speedup"]
    assert one["caution"] == "only 3 cells of 1 run: cells of one run share their errors, so this says little yet"
    many = [outcome(i, [score(1.2)], f"r{i}") for i in range(1, 31)]
    assert track_record(many)["by_quantity"]["speedup"]["caution"] is None


@pytest.mark.parametrize(
    "bad",
    [
        None,
        "text",
        {},
        score("x"),
        score(0.0),
        score(-1.0),
        score(math.inf),
        score(1.0, predicted=None),
        score(1.0, predicted={"p05": 1, "p50": None, "p95": 2}),
        score(1.0, concurrency="many"),
    ],
)
def test_an_outcome_that_cannot_be_read_is_left_out(bad: object) -> None:
    assert track_record([outcome(1, [bad])])["predictions_scored"] == 0


def test_wilsons_interval_by_hand() -> None:
    # 9 of 10: (0.9 + 0.19207 +- 1.95996 sqrt(0.009 + 0.0096036)) / 1.384146, all with z^2 = 3.841459
    assert wilson(9, 10) == pytest.approx((0.59585, 0.98212), abs=1e-5)
    assert wilson(0, 5)[0] == 0.0
    assert wilson(5, 5)[1] == 1.0


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilsons_interval_holds_the_share_and_is_symmetric(counts: tuple[int, int]) -> None:
    k, n = counts
    low, high = wilson(k, n)
    assert 0 <= low <= k / n + 1e-12
    assert k / n - 1e-12 <= high <= 1
    assert wilson(n - k, n) == pytest.approx((1 - high, 1 - low))


@given(st.text() | st.integers() | st.floats(allow_nan=False))
def test_no_text_of_a_csv_cell_is_a_formula(value: object) -> None:
    written = safe(value)
    assert written == value or isinstance(written, str)
    assert not isinstance(written, str) or not written.lstrip(" ").startswith(("=", "+", "-", "@", "\t", "\r", "\n"))


def ledger_of(path: Path) -> Ledger:
    cell = {
        "num_speculative_tokens": 3,
        "concurrency": 1,
        "speedup": BAND,
        "probability_faster": 0.8,
        "speculative": {"intervals": {"tpot_s": {"p05": 0.01, "p50": 0.02, "p95": 0.03}}},
    }
    ledger = Ledger(path, writable=True)
    summary = {"command": "predict", "model": "=cmd|' /C calc'!A0", "method": "ngram", "concurrency": [1]}
    cells = [cell, cell | {"concurrency": 4}]
    row = ledger.append(Entry(PREDICTION, "ab" * 8, summary, {"draftcast_version": "0", "cells": cells}))
    done = {"blind": True, "run_sha256": "r", "prediction_sequence": row.sequence, "scores": [score(1.1)]}
    ledger.append(Entry(OUTCOME, "ab" * 8, done | {"cells_scored": 1, "cells_inside": 1}, {"verdict": "fine"}))
    return ledger


def test_the_csv_has_a_row_for_each_cell_with_what_was_measured(tmp_path: Path) -> None:
    with ledger_of(tmp_path / "l.sqlite") as ledger:
        rows = list(csv.DictReader(io.StringIO(as_csv(ledger))))
    assert list(rows[0]) == list(COLUMNS)
    assert [row["concurrency"] for row in rows] == ["1", "4"]
    assert rows[0]["model"] == "'=cmd|' /C calc'!A0"
    assert [rows[0][name] for name in ("speedup_p50", "tpot_s_p95", "measured_speedup")] == ["1.2", "0.03", "1.1"]
    assert (rows[0]["inside_speedup"], rows[0]["blind"], rows[1]["measured_speedup"]) == ("true", "true", "")


def test_the_json_export_has_everything(tmp_path: Path) -> None:
    with ledger_of(tmp_path / "l.sqlite") as ledger:
        result = exported(ledger)
    assert [entry["kind"] for entry in result["entries"]] == ["prediction", "outcome"]
    assert len(result["entries"][0]["cells"]) == 2
    assert result["summary"]["predictions_scored"] == 1


def test_the_list_has_the_newest_outcome_and_show_has_all(tmp_path: Path) -> None:
    with ledger_of(tmp_path / "l.sqlite") as ledger:
        again = ledger.append(Entry(PREDICTION, "ab" * 8, {"command": "predict"}, {"cells": []}))
        result = listed(ledger, 0)
        assert [row["outcome"] is None for row in result["rows"]] == [True, False], "the second entry has no run yet"
        assert listed(ledger, 1)["rows"][0]["sequence"] == again.sequence
        assert listed(ledger, 1)["total"] == 2
        shown = found(ledger, "abab")
    assert (shown["sequence"], len(shown["recorded_before"]), len(shown["outcomes"])) == (again.sequence, 1, 1)
