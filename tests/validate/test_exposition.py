import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validate.exposition import read_exposition

DATA = Path(__file__).parent.parent / "data"
LABEL = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20)


def test_samples_are_summed_over_engines_and_labels() -> None:
    text = (
        'a_total{engine="0",position="0"} 3\na_total{engine="1",position="0"} 4\na_total{engine="0",position="1"} 1\n'
    )
    found = read_exposition(text)
    assert found.total("a_total") == 8
    assert found.by_label("a_total", "position") == {"0": 7.0, "1": 1.0}
    assert found.label_values("a_total", "engine") == ["0", "1"]
    assert found.total("b_total") is None


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("x 1", 1.0),
        ("x 1.5e3 1700000000000", 1500.0),
        ('x{a="b"} +Inf', math.inf),
        ('x{a="b",} 2', 2.0),
        ('x{ a = "b" } 2', 2.0),
        ("x\t3 ", 3.0),
    ],
)
def test_every_spelling_of_a_sample_is_read(line: str, value: float) -> None:
    assert read_exposition(line).samples["x"][0].value == value


def test_escaped_labels_are_undone() -> None:
    sample = read_exposition(r'x{m="a\"b\\c\nd}"} 1').samples["x"][0]
    assert sample.labels == {"m": 'a"b\\c\nd}'}


def test_lines_that_are_no_samples_are_counted() -> None:
    found = read_exposition("# HELP x y\n\nx\n<html>\nx one\ny 2\n")
    assert (found.num_unreadable, list(found.samples)) == (3, ["y"])


def test_what_is_not_finite_is_left_out_of_sums() -> None:
    found = read_exposition("x 1\nx NaN\nx +Inf\ny NaN\n")
    assert (found.total("x"), found.total("y")) == (1.0, None)


@pytest.mark.parametrize("name", sorted(path.name for path in (DATA / "metrics").glob("*.txt")))
def test_recorded_texts_are_read_to_the_last_line(name: str) -> None:
    assert read_exposition((DATA / "metrics" / name).read_text()).num_unreadable == 0


@given(LABEL, st.floats(allow_nan=False, allow_infinity=False))
def test_a_written_sample_comes_back(label: str, value: float) -> None:
    escaped = label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    sample = read_exposition(f'x{{a="{escaped}"}} {value!r}').samples["x"][0]
    assert (sample.labels["a"], sample.value) == (label, value)


@given(st.text(max_size=300))
def test_no_text_breaks_the_reader(text: str) -> None:
    found = read_exposition(text)
    assert found.num_unreadable <= len(text.split("\n"))
