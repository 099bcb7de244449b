"""One form for shares and one for probabilities, wherever they are printed."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodel.percent import percent, probability

ROOT = Path(__file__).parent.parent.parent
SOURCES = [path for room in ("hwmodel", "simulator", "calibration", "validate", "draftcast", "docs")
           for path in sorted((ROOT / room).rglob("*.py"))]  # fmt: skip
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TOUCHING = re.compile(r"(?<![%\w])[<>~+-]?\d[\d.,]*%(?![0-9A-Fa-f]{2})")


@given(st.floats(0.0, 1.0))
def test_an_estimated_probability_is_never_said_to_be_certain(value: float) -> None:
    text = probability(value)
    assert text not in ("0 %", "100 %")
    assert (text == "< 1 %", text == "> 99 %") == (value < 0.01, value > 0.99)


@pytest.mark.parametrize(
    ("value", "decimals", "signed", "text"),
    [(0.07, 0, False, "7 %"), (0.07, 0, True, "+7 %"), (-0.0712, 1, True, "-7.1 %"), (1.0, 0, False, "100 %")],
)
def test_a_share_has_a_space_before_the_sign(value: float, decimals: int, signed: bool, text: str) -> None:
    assert percent(value, decimals, signed=signed) == text


def test_no_source_prints_a_share_in_another_form() -> None:
    own = re.compile(r"\.\d%[}\"']")  # Python's and Vega's form, without the space
    assert [path.name for path in SOURCES if own.search(path.read_text(encoding="utf-8"))] == []


def test_no_page_shows_one() -> None:
    found = [(page.name, m[0]) for page in PAGES for m in TOUCHING.finditer(page.read_text(encoding="utf-8"))]
    assert found == []
