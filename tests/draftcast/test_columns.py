"""Tables as text: columns as wide as they need, or as the page allows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftcast.render.columns import columns, laid_out

FIGURES = [["k = 0", "1.00x", "13.6"], ["k = 10", "0.95x", "8.123"]]


def test_columns_are_as_wide_as_their_widest_cell_and_numbers_end_below_each_other() -> None:
    head, body, width = laid_out(["length", "gain", "ms"], FIGURES, [False, True, True], [True, False, False], 80)
    assert head == ["length   gain     ms"]
    assert body == ["k = 0   1.00x   13.6", "k = 10  0.95x  8.123"]
    assert width == len(head[0])


def test_a_text_is_broken_between_words_before_it_is_broken_through_one() -> None:
    rows = [["rtx-pro-6000-server", "kv cache in eight bits", "1.00x"]]
    _, body, width = laid_out(["gpu", "cache", "gain"], rows, [False, False, True], [True, True, False], 40)
    assert body == ["rtx-pro-6000-server  kv cache in   1.00x", "                     eight bits"]
    assert width == 40
    _, body, width = laid_out(["gpu", "cache", "gain"], rows, [False, False, True], [True, True, False], 30)
    assert body == ["rtx-pro-6000-  kv cache  1.00x", "server         in eight", "               bits"]
    assert width == 30


def test_a_head_of_fewer_lines_stands_above_its_numbers() -> None:
    head, _, _ = laid_out(["a b c d e f g h i j", "gain"], [["x", "1"]], [False, True], [True, False], 16)
    assert [line.split()[-1] for line in head][-1] == "gain"
    assert len(head) == 2


def test_numbers_are_whole_on_a_page_that_is_too_narrow() -> None:
    _, body, width = laid_out(["k", "figure"], [["k = 1", "123456.789"]], [False, True], [True, False], 10)
    assert body == ["k = 1  123456.789"]
    assert width > 10


def test_a_table_without_rows_is_its_head() -> None:
    assert laid_out(["a", "b"], [], [False, True], [True, False], 80) == (["a  b"], [], 4)


@pytest.mark.parametrize(("text", "width"), [("", 0), ("abc", 3), ("名前", 4), ("e\u0301", 1)])
def test_wide_letters_take_two_columns_and_marks_none(text: str, width: int) -> None:
    assert columns(text) == width


words = st.lists(st.text("abcdefg-", min_size=1, max_size=30), min_size=1, max_size=6).map(" ".join)


@given(st.lists(st.tuples(words, words, st.integers(0, 10**9).map(str)), min_size=1, max_size=5), st.integers(30, 120))
def test_every_letter_is_printed_and_the_page_is_kept(rows: list[tuple[str, str, str]], page: int) -> None:
    head, body, width = laid_out(["first", "second", "n"], rows, [False, False, True], [True, True, False], page)
    assert max(map(columns, [*head, *body])) <= width <= page
    printed = "".join(body).replace(" ", "")
    assert sorted(printed) == sorted("".join("".join(row) for row in rows).replace(" ", ""))
