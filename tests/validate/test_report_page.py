"""The page as text: what it is made of, and that its style sheet knows the colours that are drawn."""

import json
import re
from importlib.resources import files

import pytest

from validate.report import theme
from validate.report.chart import MAX_TABLE_ROWS, Block, Chart, Document, Table
from validate.report.html import embedded, page
from validate.report.numbers import text_of
from validate.report.theme import figure, layer, round_ticks, spread

STYLE = files("validate.report").joinpath("page.css").read_text(encoding="utf-8")


def chart(name: str = "one", **changes: object) -> Chart:
    """A chart of one point."""
    spec = figure([layer([{"x": 1, "tip": "here"}], "point", x={"field": "x", "type": "quantitative"})],
                  narrow=False, height=80)  # fmt: skip
    known: dict[str, object] = {"title": "T", "finding": "F", "alt": "a point", "wide": spec, "narrow": spec}
    return Chart(name, **{**known, "table": Table(("x",), ((1,),), 0), **changes})  # type: ignore[arg-type]


def document(*charts: Chart, blocks: tuple[Block, ...] = (), result: dict[str, object] | None = None) -> Document:
    """A page with those charts."""
    return Document("title", "subtitle", (), charts, blocks, result or {}, "today", "draftcast 0")


def test_every_colour_that_changes_in_the_dark_is_known_to_the_style_sheet() -> None:
    for color in (theme.INK, theme.MUTED, theme.GRID, theme.BASELINE, theme.SPECULATIVE, theme.THIRD):
        assert f'[fill="{color}"]' in STYLE
        assert f'[stroke="{color}"]' in STYLE


def test_text_in_cells_keeps_its_colour_with_its_cell() -> None:
    for color in (theme.ON_LIGHT, theme.ON_DARK, *theme.DIVERGING):
        assert f'="{color}"]' not in STYLE


def luminance(color: str) -> float:
    """Relative luminance of an sRGB colour. Source: WCAG 2.2."""
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two colours. Source: WCAG 2.2."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_text_in_every_cell_of_the_heat_map_can_be_read() -> None:
    middle = len(theme.DIVERGING) // 2
    for i, color in enumerate(theme.DIVERGING):
        at_end = abs(i - middle) == middle  # beyond DARK_CELL of the span
        assert contrast(color, theme.ON_DARK if at_end else theme.ON_LIGHT) >= 4.5


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_text_and_marks_stand_out_from_the_paper(mode: str) -> None:
    block = re.findall(r":root \{(.*?)\}", STYLE, re.DOTALL)[0 if mode == "light" else 1]
    colors = dict(re.findall(r"--([a-z]+): (#[0-9a-f]{6})", block))
    for name in ("ink", "muted", "link"):
        assert contrast(colors[name], colors["paper"]) >= 4.5, name
        assert contrast(colors[name], colors["card"]) >= 4.5, name
    for name in ("baseline", "drafts", "third"):
        assert contrast(colors[name], colors["paper"]) >= 3.0, name


def test_charts_of_a_group_share_a_switch_with_the_selected_one_chosen() -> None:
    members = [chart(f"c{i}", group="g", label=f"L{i}", selected=i == 1) for i in range(3)]
    text = page(document(*members, chart("alone")))
    assert text.count('type="radio"') == 3
    assert re.findall(r'id="(s\d-\d)" autocomplete="off" checked', text) == ["s0-1"]
    assert text.count("<h2>T</h2>") == 2
    assert "input:nth-of-type(3):checked" in text


def test_what_follows_the_answer_at_once_stands_before_the_charts() -> None:
    blocks = (Block("headline", "Answer"), Block("text", "at once"), Block("heading", "Why"), Block("text", "below"))
    text = page(document(chart(), blocks=blocks))
    assert text.index("<h1>Answer</h1>") < text.index(">at once<") < text.index("<figure") < text.index(">below<")


def test_a_table_after_a_heading_is_folded_under_it() -> None:
    table = Table(("a", "b"), (("x", "1"),))
    text = page(document(blocks=(Block("heading", "Grid"), Block("table", table=table))))
    assert "<summary>Grid</summary>" in text
    assert "<h2>Grid</h2>" not in text


def test_tables_without_a_heading_are_told_apart_by_their_first_lines() -> None:
    tables = [Table(("%", "rows"), ((first, "1"),)) for first in ("all", "<b>" * 30)]
    text = page(document(blocks=tuple(Block("table", table=table) for table in tables)))
    names = re.findall("<summary>(Table.*?)</summary>", text)
    assert names[0] == "Table: %, rows, ... (all, ...)"
    assert names[1].startswith("Table: %, rows, ... (&lt;b&gt;")
    assert len(names[1]) < 180


def test_a_table_too_long_to_read_says_where_the_rest_is() -> None:
    table = Table(("x",), tuple((i,) for i in range(MAX_TABLE_ROWS + 5)), 0)
    text = page(document(chart(table=table)))
    assert "5 further rows stand in the JSON." in text
    assert text.count("<tr>") == MAX_TABLE_ROWS + 1


def test_json_cannot_leave_its_element() -> None:
    nasty = {"a": "</script><!-- \u2028 & <b>"}
    text = embedded(nasty)
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == nasty


def test_numbers_that_json_does_not_know_are_a_bug_and_not_a_page() -> None:
    with pytest.raises(ValueError, match="JSON"):
        page(document(result={"x": float("nan")}))


@pytest.mark.parametrize(
    ("value", "text"),
    [(1e-7, "1.000e-07"), (0.00012, "0.00012"), (-0.5, "-0.5"), (999.96, "1000"), (123456.7, "123,457"), (True, "1")],
)
def test_figures_have_four_digits(value: float, text: str) -> None:
    assert text_of(value) == text


def test_ticks_enclose_the_values() -> None:
    assert round_ticks([3.0])[0] <= 3.0 <= round_ticks([3.0])[-1]
    assert round_ticks([0.02, 7.0])[0] == 0.02


@pytest.mark.parametrize("most", [3, 6, 12])
def test_ticks_are_few_increasing_and_keep_both_ends(most: int) -> None:
    values = [1, 2, 3, 5, 8, 13, 100, 101, 102, 300]
    ticks = spread(values, most)
    assert len(ticks) <= most
    assert ticks == sorted(ticks)
    assert (ticks[0], ticks[-1]) == (1, 300)


@pytest.mark.parametrize(("low", "high"), [(1.18, 1.93), (13.5, 13.7), (101.0, 140.0)])
def test_an_axis_between_two_round_numbers_still_has_ticks(low: float, high: float) -> None:
    axis = theme.log_axis([low, high], "x", 10, round_ticks([low, high]))["axis"]
    assert 3 <= len(axis["values"]) <= 10
    assert axis["title"] == "x, log scale"
