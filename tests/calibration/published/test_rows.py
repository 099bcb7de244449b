"""Rows of published measurements: what is read, what is refused, what is never looked at."""

import csv
import io
import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from published_rows import PLAIN, records, row, rows

from calibration.published.rows import GROUP_COLUMNS, grouped, read_published, rows_of
from hwmodel.errors import InputError


def test_numbers_stand_beside_the_texts_they_came_from() -> None:
    found = row(context_len="~16K", input_len="1,000", output_len="<=8192", temperature="0")
    assert (found.num_speculative_tokens, found.concurrency) == (3, 8.0)
    assert (found.context_tokens, found.input_tokens, found.output_tokens) == (16_000.0, 1000.0, 8192.0)
    assert found.text["temperature"] == "0"
    assert found.text["context_len"] == "~16K"


def test_a_baseline_rate_of_all_requests_is_a_step() -> None:
    assert row(concurrency="8", baseline="400").baseline_step_s == pytest.approx(0.02)


def test_a_stated_baseline_step_wins_over_the_rate() -> None:
    assert row(baseline="400", baseline_step_ms="21").baseline_step_s == pytest.approx(0.021)


def test_a_baseline_of_each_gpu_counts_for_all_of_them() -> None:
    assert row(metric="tok/s/GPU", baseline="100", gpu_count="4").baseline_step_s == pytest.approx(0.02)
    assert row(metric="tok/s/GPU", baseline="100", gpu_count="", tp="4").baseline_step_s == pytest.approx(0.02)


def test_requests_of_each_rank_add_up_over_the_ranks() -> None:
    found = row(concurrency="128 per rank", dp="4", baseline="25600")
    assert (found.concurrency, found.requests) == (128.0, 512.0)
    assert found.baseline_step_s == pytest.approx(0.02)
    assert row(concurrency="128", dp="4").requests == 128.0
    assert row(concurrency="128 per rank").requests == 128.0


def test_a_stated_speedup_is_taken_as_it_is() -> None:
    assert row(speedup="1.234").speedup == 1.234
    assert row(speedup="1.5x", baseline="", spec="").speedup == 1.5


def test_without_one_the_two_figures_give_it_in_the_direction_of_the_metric() -> None:
    assert row(speedup="", baseline="100", spec="150").speedup == pytest.approx(1.5)
    assert row(speedup="", metric="TPOT ms", baseline="15", spec="10").speedup == pytest.approx(1.5)
    assert row(speedup="", baseline="100", spec="").speedup is None
    assert row(speedup="", baseline="", spec="150").speedup is None


def test_a_ratio_of_times_that_was_divided_the_other_way_round_is_turned() -> None:
    assert row(metric="TPOT ms", baseline="15", spec="10", speedup="0.667").speedup == pytest.approx(1.5)
    assert row(metric="TPOT ms", baseline="15", spec="10", speedup="1.5").speedup == 1.5
    assert row(metric="TPOT ms", baseline="15", spec="10", speedup="1.2").speedup == 1.2  # another figure: as stated


@pytest.mark.parametrize("cell", ["0", "20%", "-1.5", "none", "1e9", "0.0001"])
def test_a_speedup_that_is_none_is_not_read(cell: str) -> None:
    assert row(speedup=cell, baseline="", spec="").speedup is None


@pytest.mark.parametrize(
    ("column", "cell"),
    [("speedup", "1,41"), ("speedup", "1,515"), ("baseline", "113,5"), ("baseline_step_ms", "13,612")],
)
def test_a_decimal_comma_is_told_and_not_cut_off(column: str, cell: str) -> None:
    assert row(**{column: cell}).fault == f"{column} is a number with a decimal comma, allowed: a point"


def test_a_comma_that_ends_thousands_is_none_unless_the_file_has_decimal_ones() -> None:
    plain = row(baseline="1,234", spec="2,468.5", speedup="")
    assert plain.fault is None
    assert plain.speedup == pytest.approx(2468.5 / 1234)
    first, second, third = rows({"baseline": "1,234"}, {"spec": "113,5"}, {"baseline": "1,234.5"})
    assert first.fault == "baseline may be a number with a decimal comma, as others of the file are; allowed: a point"
    assert second.fault
    assert third.fault is None


@pytest.mark.parametrize(("cell", "k"), [("3", 3), ("7 (adaptive)", 7), ("", None), ("0", None), ("many", None)])
def test_draft_lengths_are_whole_and_at_least_one(cell: str, k: int | None) -> None:
    assert row(k=cell).num_speculative_tokens == k


def test_a_draft_length_or_load_beyond_reason_is_not_usable() -> None:
    assert row(k="100000").num_speculative_tokens is None
    assert row(concurrency="1e9").concurrency is None
    assert row(concurrency="0").concurrency is None


def test_accepted_length_comes_from_its_column_else_from_the_rates_at_this_draft_length() -> None:
    assert row(mean_accepted_len="2.73-3.69 (as printed)").mean_accepted_length == 2.73
    assert row(mean_accepted_len="", per_position_rates="0.8/0.6/0.4").mean_accepted_length == pytest.approx(2.8)
    assert row(k="2", mean_accepted_len="", per_position_rates="0.8/0.6/0.4").mean_accepted_length == pytest.approx(2.4)
    assert row(mean_accepted_len="2.5", per_position_rates="0.8/0.6/0.4").mean_accepted_length == 2.5
    assert row(mean_accepted_len="", per_position_rates="").mean_accepted_length is None
    assert row(mean_accepted_len="0.7").mean_accepted_length is None  # below the bonus token: something else


@pytest.mark.parametrize("column", GROUP_COLUMNS)
def test_rows_that_differ_in_a_group_column_are_not_one_server(column: str) -> None:
    one, other = rows({}, {column: "something else"})
    assert one.group != other.group
    assert len(grouped([one, other, one])) == 2


@pytest.mark.parametrize("column", ["k", "concurrency", "context_len", "baseline", "date", "engine", "arch"])
def test_other_columns_do_not_split_a_group(column: str) -> None:
    one, other = rows({}, {column: "5"})
    assert one.group == other.group


@pytest.mark.parametrize("column", ["spec_step_ms", "implied_step_ratio", "notes", "acceptance_rate", "provenance"])
def test_columns_that_nobody_may_look_at_are_not_even_read(column: str) -> None:
    assert row(**{column: "12.5"}) == row()


def test_columns_that_are_missing_are_blank() -> None:
    needed = {name: PLAIN[name] for name in ("set_id", "model", "method", "k", "concurrency")}
    found = rows_of([needed], "a test")[0]
    assert found.text["gpu"] == ""
    assert found.speedup is None


@pytest.mark.parametrize("column", ["set_id", "model", "method", "k", "concurrency"])
def test_a_needed_column_that_is_missing_is_named(column: str) -> None:
    record = {name: value for name, value in PLAIN.items() if name != column}
    with pytest.raises(InputError, match=rf"lacks the column {column}, needed: set_id"):
        rows_of([record], "a test")


def _write(path: Path, text: str) -> str:
    path.write_bytes(text.encode())
    return str(path)


def test_a_file_is_read_with_byte_order_mark_quotes_and_either_line_end(tmp_path: Path) -> None:
    text = '\ufeffset_id,model,method,k,concurrency,notes\r\nA,"Llama, 8B",MTP,3,8,"two\nlines"\r\nB,x,MTP,2,4,\r\n'
    found = read_published(_write(tmp_path / "t.csv", text))
    assert [(each.text["set_id"], each.text["model"]) for each in found] == [("A", "Llama, 8B"), ("B", "x")]
    assert [each.line for each in found] == [3, 4]  # where each record ends


def test_a_form_feed_or_a_line_separator_inside_a_cell_is_no_new_row(tmp_path: Path) -> None:
    text = "set_id,model,method,k,concurrency\nA,a\x0cb\u2028c,MTP,3,8\n"
    assert len(read_published(_write(tmp_path / "t.csv", text))) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no rows"),
        ("set_id,model,method,k,concurrency\n", "no rows"),
        ("a,b\n1,2\n", "lacks the column set_id"),
        (f"set_id,model,method,k,concurrency\n{'x' * 200_000},,,,\n", "not CSV"),
    ],
)
def test_a_file_that_is_no_table_of_measurements_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as problem:
        read_published(_write(tmp_path / "t.csv", text))
    assert "\n" not in str(problem.value)


def test_what_is_no_file_is_refused_in_one_line(tmp_path: Path) -> None:
    binary = tmp_path / "b.csv"
    binary.write_bytes(b"\xff\xfe\x00")
    for path in (str(tmp_path), str(tmp_path / "none\nhere.csv"), str(binary), "a\0b"):
        with pytest.raises(InputError) as problem:
            read_published(path)
        assert "\n" not in str(problem.value)


def test_a_table_of_endless_rows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibration.published.rows._MAX_ROWS", 3)
    endless = itertools.repeat(dict(PLAIN))
    with pytest.raises(InputError, match="has more rows, allowed: to 3"):
        rows_of(endless, "a test")
    assert len(rows_of(itertools.islice(endless, 3), "a test")) == 3


def test_a_megabyte_in_a_cell_is_cut() -> None:
    assert len(row(dataset="x" * 1_000_000).text["dataset"]) <= 20_000


@given(st.binary(max_size=400))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_give_rows_or_one_line(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(data)
    try:
        found = read_published(str(path))
    except InputError as problem:
        found = str(problem).splitlines()
    assert len(found) > 0
    assert not isinstance(found[0], str) or len(found) == 1


cells = st.one_of(st.text(max_size=20), st.sampled_from(["", "~1K", "0", "1e400", "-1", "nan", "9" * 40, "0.5/0.2"]))


@given(st.lists(st.dictionaries(st.sampled_from([*PLAIN, "dp", "per_position_rates"]), cells), max_size=4))
def test_any_cells_give_rows_with_usable_numbers_or_none(changes: list[dict[str, Any]]) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, [*PLAIN, "dp", "per_position_rates"], restval="")
    writer.writeheader()
    writer.writerows(records({}, *changes))
    for each in rows_of(csv.DictReader(io.StringIO(text.getvalue())), "a test"):
        for value in (each.num_speculative_tokens, each.concurrency, each.requests, each.speedup, each.baseline_step_s):
            assert value is None or 0.0 < value < float("inf")
        assert each.mean_accepted_length is None or 1.0 <= each.mean_accepted_length < float("inf")
