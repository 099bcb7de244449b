"""Cells of published tables, read as people write them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.published.cells import leading_number, length_of, says_nothing, survival_rates


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("8", 8.0),
        (" 8 ", 8.0),
        ("0.35", 0.35),
        (".35", 0.35),
        ("~1K", 1000.0),
        ("128k", 128_000.0),
        ("8K-1M", 8000.0),
        ("1M", 1e6),
        ("<=8192", 8192.0),
        ("≤ 2048 (EOS)", 2048.0),
        ("≈3.4 under load", 3.4),
        ("1,024", 1024.0),
        ("12,345.5 tok/s", 12345.5),
        ("1.5e3", 1500.0),
        ("2.5E-2", 0.025),
        ("1.4099616858237547", 1.4099616858237547),
        ("128 per rank", 128.0),
        ("2-3 best, 4 no better", 2.0),
        ("7 (adaptive)", 7.0),
        ("3 -> 8", 3.0),
        ("1.5x", 1.5),
        ("0", 0.0),
    ],
)
def test_a_cell_counts_by_its_leading_number(cell: str, value: float) -> None:
    assert leading_number(cell) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("cell", ["", " ", "QPS=1", "burst of 1000", "up to 200", "n/a", "nan", "inf", "-3", "C8", "k"])
def test_a_cell_that_starts_otherwise_holds_no_number(cell: str) -> None:
    assert leading_number(cell) is None


@pytest.mark.parametrize("cell", ["5 kW", "3 km", "4 Mbit", "2 kept"])
def test_a_word_that_starts_with_k_or_m_is_no_multiple(cell: str) -> None:
    assert leading_number(cell) == float(cell[0])


@pytest.mark.parametrize("cell", ["9" * 30, "1e99", "9" * 5000])
def test_a_number_too_long_to_be_a_quantity_is_none(cell: str) -> None:
    assert leading_number(cell) is None


@given(st.text(max_size=60))
def test_any_text_gives_a_finite_number_or_none(cell: str) -> None:
    value = leading_number(cell)
    assert value is None or (math.isfinite(value) and value >= 0.0)


@given(st.floats(min_value=1e-6, max_value=1e12))
def test_numbers_that_programs_write_are_read_back(value: float) -> None:
    assert leading_number(repr(value)) == pytest.approx(value, rel=1e-12)
    assert leading_number(f"{value:.6g}") == pytest.approx(value, rel=1e-5)


@pytest.mark.parametrize("cell", ["", " - ", "N/A", "unknown", "Not stated", "none", "?"])
def test_words_for_blank_say_nothing(cell: str) -> None:
    assert says_nothing(cell)


@pytest.mark.parametrize("cell", ["H100", "unknown GPU of a cloud", "0"])
def test_other_words_say_something(cell: str) -> None:
    assert not says_nothing(cell)


def test_rates_by_position_are_cut_at_slashes() -> None:
    assert survival_rates("0.8/0.6/0.5") == (0.8, 0.6, 0.5)
    assert survival_rates(" .8 / .6 ") == (0.8, 0.6)
    assert survival_rates("0.7") == (0.7,)


@pytest.mark.parametrize("cell", ["", "0.8/?/0.5", "80/60/50", "0.8//0.5", "a/b"])
def test_a_cell_with_anything_but_rates_gives_none(cell: str) -> None:
    assert survival_rates(cell) == ()


def test_length_is_one_and_the_rates_up_to_the_draft_length() -> None:
    assert length_of((0.8, 0.6, 0.5), 3) == pytest.approx(2.9)
    assert length_of((0.8, 0.6, 0.5), 2) == pytest.approx(2.4)
    assert length_of((), 3) is None


def test_missing_positions_are_held_at_the_last_conditional_rate() -> None:
    # conditional 0.4 / 0.8 = 0.5: 0.2, then 0.1
    assert length_of((0.8, 0.4), 4) == pytest.approx(1.0 + 0.8 + 0.4 + 0.2 + 0.1)
    assert length_of((0.5,), 3) == pytest.approx(1.0 + 0.5 + 0.25 + 0.125)


def test_rates_of_zero_give_a_length_of_one() -> None:
    assert length_of((0.0, 0.0), 4) == 1.0


@given(st.lists(st.floats(min_value=0.0, max_value=1.0), min_size=1, max_size=10), st.integers(1, 64))
def test_a_length_lies_between_one_and_the_draft_length_plus_one(rates: list[float], k: int) -> None:
    length = length_of(rates, k)
    assert length is not None
    assert 1.0 <= length <= k + 1.0 + 1e-9
