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

from draftcast.cli import cli

SMALL = """
[model]
config = "qwen3-30b-a3b-bf16"
[hardware]
gpu = "h100-sxm"
[engine]
version = "0.16.0"
[speculation]
method = "eagle3"
num_speculative_tokens = 3
acceptance = { conditional = [0.7] }
[workload]
concurrency = [1, 4, 8]
input_tokens = 100
output_tokens = 50
"""
PHONE = {"width": 360, "height": 780, "deviceScaleFactor": 2, "mobile": True}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of `choose` on a small deployment."""
    folder = tmp_path_factory.mktemp("report")
    deployment, path = folder / "small.toml", folder / "page.html"
    deployment.write_text(SMALL, encoding="utf-8")
    options = ["-k", "0-3", "--draws", "200", "--report", str(path)]
    result = CliRunner().invoke(cli, ["choose", str(deployment), *options], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return path


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


def test_it_opens_without_a_word_on_the_console_and_asks_for_nothing_else(browser: Browser, page: Path) -> None:
    browser.open(page)
    assert browser.complaints() == []
    assert browser.requests() == [page.as_uri()]


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
    assert values(browser, shown)[0] == "speedup-by-load-k3"
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


def test_on_a_phone_nothing_is_wider_than_the_screen_and_labels_stay_readable(
    browser_as_new: Browser, page: Path
) -> None:
    browser_as_new.call("Emulation.setDeviceMetricsOverride", **PHONE)
    browser_as_new.open(page)
    browser_as_new.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
    assert browser_as_new.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    size = browser_as_new.evaluate(
        "(e => parseFloat(getComputedStyle(e).fontSize) * e.ownerSVGElement.getBoundingClientRect().width"
        " / e.ownerSVGElement.viewBox.baseVal.width)(document.querySelector('.narrow text'))"
    )
    assert size > 9


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


def test_ids_are_unique(browser: Browser, page: Path) -> None:
    browser.open(page)
    ids = values(browser, "[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))


def test_markup_that_slips_through_stays_inert(browser: Browser, page: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.html"
    attack = "<main><script>window.broken = 1</script><img src=x onerror='window.broken = 1'>"
    broken.write_text(page.read_text(encoding="utf-8").replace("<main>", attack), encoding="utf-8")
    browser.open(broken)
    assert browser.evaluate("window.broken") is None
    assert len(browser.complaints()) >= 2  # the policy says what it refused
