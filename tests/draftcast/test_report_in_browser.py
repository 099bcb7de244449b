"""Report pages as a reader gets them: in a browser, in the dark, on a phone, without scripts, on paper."""

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Browser
from click.testing import CliRunner
from report_pages import VIEWS, arguments, page_option

from draftcast.cli import cli
from draftcast.report_options import Destinations
from draftcast.reporting import write_report

PHONE = {"width": 360, "height": 780, "deviceScaleFactor": 2, "mobile": True}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The page of every command that has one, on a small deployment."""
    folder = tmp_path_factory.mktemp("report")
    made = {view: folder / f"{view}.html" for view in VIEWS}
    for view, path in made.items():
        asked = [*arguments(view, folder), page_option(view), str(path)]
        result = CliRunner().invoke(cli, asked, catch_exceptions=False)
        assert result.exit_code == 0, result.output
    return made


@pytest.fixture(scope="module")
def page(pages: dict[str, Path]) -> Path:
    """The page of `choose`."""
    return pages["choose"]


@pytest.fixture
def browser_as_new(browser: Browser) -> Iterator[Browser]:
    """The browser, with what a test emulates undone after it."""
    yield browser
    browser.call("Emulation.clearDeviceMetricsOverride")
    browser.call("Emulation.setEmulatedMedia", media="", features=[])
    browser.call("Emulation.setScriptExecutionDisabled", value=False)


def values(browser: Browser, expression: str) -> Any:
    """A JavaScript value as JSON."""
    return json.loads(browser.evaluate(f"JSON.stringify({expression})"))


@pytest.mark.parametrize("view", VIEWS)
def test_it_opens_without_a_word_on_the_console_and_asks_for_nothing_else(
    browser: Browser, pages: dict[str, Path], view: str
) -> None:
    browser.open(pages[view])
    assert browser.complaints() == []
    assert browser.requests() == [pages[view].as_uri()]
    assert browser.evaluate("document.querySelectorAll('figure .wide svg').length") >= 2


def test_every_cell_of_the_heat_map_says_what_the_json_says(browser: Browser, page: Path) -> None:
    browser.open(page)
    grid = values(browser, "JSON.parse(document.querySelector('#result').textContent).grid")
    tips = values(
        browser,
        "[...document.querySelectorAll('[data-chart=speedup-heat-map] .wide [data-tip]')].map(e => e.dataset.tip)",
    )
    said = {}
    for tip in tips:
        found = re.match(r"k = (\d+), concurrency (\d+): ([\d.]+)x", tip)
        assert found is not None, tip
        said[int(found[1]), int(found[2])] = found[3]
    assert said == {
        (cell["num_speculative_tokens"], cell["concurrency"]): f"{cell['speedup']['p50']:.2f}" for cell in grid
    }


def test_the_table_under_a_chart_holds_its_values(browser: Browser, page: Path) -> None:
    browser.open(page)
    grid = values(browser, "JSON.parse(document.querySelector('#result').textContent).grid")
    rows = values(
        browser,
        "[...document.querySelectorAll('[data-chart=speedup-heat-map] tbody tr')]"
        ".map(r => [...r.cells].map(c => c.textContent))",
    )
    assert len(rows) == len(grid)
    for row, cell in zip(rows, grid, strict=True):
        assert float(row[2]) == pytest.approx(cell["speedup"]["p50"], rel=1e-3)
        assert float(row[6]) == pytest.approx(cell["tpot_s"] * 1e3, rel=1e-3)


def test_pointing_at_a_mark_shows_its_value(browser: Browser, page: Path) -> None:
    browser.open(page)
    box = values(
        browser,
        "(e => { e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect();"
        "return {x: b.x + b.width / 2, y: b.y + b.height / 2, tip: e.dataset.tip} })"
        "(document.querySelectorAll('[data-chart=speedup-heat-map] .wide [data-tip]')[4])",
    )
    browser.settle()
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=box["x"], y=box["y"])
    assert browser.evaluate("document.querySelector('.tip').textContent") == box["tip"]
    assert browser.evaluate("document.querySelector('.tip').hidden") is False


def test_a_switch_shows_one_curve_at_a_time_and_works_by_mouse_and_keys(browser: Browser, page: Path) -> None:
    browser.open(page)
    shown = (
        "[...document.querySelectorAll('.panels figure')].filter(f => f.getBoundingClientRect().height > 0)"
        ".map(f => f.dataset.chart)"
    )
    assert values(browser, shown)[0] == "speedup-by-load-k2"  # the recommended one
    browser.evaluate("document.querySelector('label[for=s1-0]').click()")
    assert values(browser, shown)[0] == "speedup-by-load-k1"
    browser.evaluate("document.querySelector('#s1-0').focus()")
    for kind in ("keyDown", "keyUp"):
        browser.call("Input.dispatchKeyEvent", type=kind, key="ArrowRight", code="ArrowRight", windowsVirtualKeyCode=39)
    assert values(browser, shown)[0] == "speedup-by-load-k2"


def test_in_the_dark_text_and_lines_are_light(browser_as_new: Browser, page: Path) -> None:
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    browser_as_new.call("Emulation.setEmulatedMedia", features=dark)
    browser_as_new.open(page)
    paper = browser_as_new.evaluate("getComputedStyle(document.body).backgroundColor")
    label = browser_as_new.evaluate(
        "getComputedStyle(document.querySelector('.wide text[fill=\"#59636e\"]')).fill",
    )
    brightness = [sum(map(int, re.findall(r"\d+", color)[:3])) for color in (paper, label)]
    assert brightness[0] < 100
    assert brightness[1] > 400


@pytest.mark.parametrize("view", VIEWS)
def test_on_a_phone_nothing_is_wider_than_the_screen_and_labels_stay_readable(
    browser_as_new: Browser, pages: dict[str, Path], view: str
) -> None:
    browser_as_new.call("Emulation.setDeviceMetricsOverride", **PHONE)
    browser_as_new.open(pages[view])
    browser_as_new.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
    assert browser_as_new.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    sizes = values(
        browser_as_new,
        "[...document.querySelectorAll('.narrow text')].filter(e => e.getBoundingClientRect().width > 0)"
        ".map(e => parseFloat(getComputedStyle(e).fontSize) * e.ownerSVGElement.getBoundingClientRect().width"
        " / e.ownerSVGElement.viewBox.baseVal.width)",
    )
    assert min(sizes) > 8


def test_the_launch_text_is_all_there_on_a_phone_and_on_paper(browser_as_new: Browser, pages: dict[str, Path]) -> None:
    browser_as_new.call("Emulation.setDeviceMetricsOverride", **PHONE)
    browser_as_new.open(pages["choose"])
    cut = values(browser_as_new, "[...document.querySelectorAll('pre')].map(e => e.scrollWidth - e.clientWidth)")
    assert cut
    assert max(cut) == 0


@pytest.mark.parametrize("view", VIEWS)
def test_no_text_of_a_drawing_is_cut_at_its_edge(browser_as_new: Browser, pages: dict[str, Path], view: str) -> None:
    for width in (900, PHONE["width"]):
        browser_as_new.call("Emulation.setDeviceMetricsOverride", **{**PHONE, "width": width})
        browser_as_new.open(pages[view])
        outside = values(
            browser_as_new,
            "[...document.querySelectorAll('.drawing text')].filter(e => { const b = e.getBoundingClientRect(),"
            " s = e.ownerSVGElement.getBoundingClientRect(); return b.width > 0 && (b.left < s.left - 2 ||"
            " b.right > s.right + 2 || b.top < s.top - 2 || b.bottom > s.bottom + 2) }).map(e => e.textContent)",
        )
        assert outside == [], width


def test_without_scripts_everything_is_there(browser_as_new: Browser, page: Path) -> None:
    browser_as_new.call("Emulation.setScriptExecutionDisabled", value=True)
    browser_as_new.open(page)
    visible = "[...document.querySelectorAll('.wide svg')].filter(s => s.getBoundingClientRect().height > 100).length"
    assert browser_as_new.evaluate(visible) == 3
    assert browser_as_new.evaluate("document.querySelectorAll('.wide title').length") > 10
    assert browser_as_new.evaluate("document.querySelector('.tip')") is None


def test_it_prints(browser: Browser, page: Path) -> None:
    browser.open(page)
    pdf = base64.b64decode(browser.call("Page.printToPDF", printBackground=True)["data"])
    assert pdf.startswith(b"%PDF-")
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 6


def test_every_drawing_says_what_it_shows(browser: Browser, page: Path) -> None:
    browser.open(page)
    labels = values(browser, "[...document.querySelectorAll('svg')].map(s => s.getAttribute('aria-label'))")
    assert all(len(label) > 20 for label in labels)
    assert browser.evaluate("document.documentElement.lang") == "en"
    assert "qwen3-30b-a3b" in browser.evaluate("document.title")


@pytest.mark.parametrize("view", VIEWS)
def test_ids_are_unique_and_every_reference_is_met(browser: Browser, pages: dict[str, Path], view: str) -> None:
    browser.open(pages[view])
    ids = values(browser, "[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))
    used = re.findall(r"url\(#([^)]+)\)", pages[view].read_text(encoding="utf-8"))
    assert set(used) <= set(ids)


def test_the_whole_page_has_a_chart_for_every_question(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["report"])
    names = set(values(browser, "[...document.querySelectorAll('[data-chart]')].map(e => e.dataset.chart)"))
    assert names >= {
        "speedup-heat-map",
        "speedup-by-load-k3",
        "time-per-token",
        "step-parts-c8",
        "acceptance-by-position",
        "distinct-experts",
        "allreduce",
        "residuals",
        "series-tokens-per-s",
        "waiting-ttft",
    }


def test_parts_of_a_step_say_what_the_json_says(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["report"])
    cells = values(browser, "JSON.parse(document.querySelector('#result').textContent).curves.cells")
    rows = values(
        browser,
        "[...document.querySelectorAll('[data-chart=step-parts-c8] tbody tr')]"
        ".map(r => [...r.cells].map(c => c.textContent))",
    )
    cell = next(cell for cell in cells if cell["concurrency"] == 8)
    told = {row[0].replace(" ", "_"): [float(text) for text in row[1:]] for row in rows}
    for part, time_ms in told.items():
        key = "step_s" if part == "whole_step" else part
        for value, arm in zip(time_ms, (cell["baseline"], cell["speculative"]), strict=True):
            exact = arm["step_s"] if key == "step_s" else arm["parts_s"][key]
            assert value == pytest.approx(exact * 1e3, rel=1e-3)


def test_markup_that_slips_through_stays_inert(browser: Browser, page: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.html"
    attack = "<main><script>window.broken = 1</script><img src=x onerror='window.broken = 1'>"
    broken.write_text(page.read_text(encoding="utf-8").replace("<main>", attack), encoding="utf-8")
    browser.open(broken)
    assert browser.evaluate("window.broken") is None
    assert len(browser.complaints()) >= 2  # the policy says what it refused


def test_hostile_names_do_nothing_in_a_browser(browser: Browser, pages: dict[str, Path], tmp_path: Path) -> None:
    hostile = "\"'></text></svg></script><script>window.broken=1</script><img src=x onerror=window.broken=1>{{1}}"
    text = pages["whatif"].read_text(encoding="utf-8")
    found = re.search(r'id="result">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    result = json.loads(found[1])
    result["inputs"]["deployment"]["model"]["config"] = hostile
    for row in result["rows"]:
        row["vary"] = {hostile: f"{hostile}{row['vary']['workload.kind']}", "b": row["vary"]["workload.concurrency"]}
    result["notes"] = [hostile]
    page = tmp_path / "hostile.html"
    write_report(result, "whatif", {}, Destinations(str(page), None))
    browser.open(page)
    assert browser.evaluate("window.broken") is None
    assert browser.complaints() == []
    assert browser.evaluate("document.querySelectorAll('img, script:not([id]) ~ script').length") == 0
    assert hostile in browser.evaluate("document.body.textContent")
    assert hostile in browser.evaluate("document.title")
