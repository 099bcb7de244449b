"""The what-if page as a user has it: sliders by keys, addresses shared, files taken along, phones, no scripts."""

import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import PATIENCE_S, Browser
from click.testing import CliRunner
from report_pages import DEPLOYMENT
from served import serving_page, site_of, written

from draftcast.cli import cli
from draftcast.render.numbers import factor, interval, milliseconds, probability
from simulator.explain import PART_WORDS

PHONE = {"width": 360, "height": 780, "deviceScaleFactor": 2, "mobile": True}
HOSTILE = "\"'></title></p></script><script>window.broken=1</script><img src=x onerror=window.broken=1>"


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("serve"), DEPLOYMENT)


@pytest.fixture(scope="module")
def url(box: Path) -> Iterator[str]:
    with serving_page(site_of(box, num_draws=300)) as found:
        yield found


@pytest.fixture
def page(browser: Browser) -> Iterator[Browser]:
    """The browser, with what a test emulates undone after it."""
    yield browser
    browser.call("Emulation.clearDeviceMetricsOverride")
    browser.call("Emulation.setEmulatedMedia", media="", features=[])
    browser.call("Emulation.setScriptExecutionDisabled", value=False)


def commands_say(box: Path, *settings: str, load: int | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """What `choose` and `predict` print as JSON for the same settings."""
    words = [str(box), "--draws", "300", "--json", *(word for text in settings for word in ("--set", text))]
    asked = (["choose", *words], ["predict", *words, *([] if load is None else ["-c", str(load)])])
    told = [json.loads(CliRunner().invoke(cli, each, catch_exceptions=False).stdout) for each in asked]
    return told[0], told[1]


def until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def settled(page: Browser) -> str:
    """Waits for the full answer; the settings that it is of, or "error"."""
    until(lambda: page.evaluate("document.body.dataset.settled") is not None, "no answer")
    page.settle()
    return str(page.evaluate("document.body.dataset.settled"))


def press(page: Browser, key: str, code: int, times: int = 1) -> None:
    for _ in range(times):
        for kind in ("keyDown", "keyUp"):
            page.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)


def type_into(page: Browser, selector: str, text: str) -> None:
    page.evaluate(f"(e => {{ e.focus(); e.select(); }})(document.querySelector({json.dumps(selector)}))")
    page.call("Input.insertText", text=text)


def slider(key: str) -> str:
    return f'[data-key="{key}"] input[type=range]'


def facts(page: Browser) -> dict[str, str]:
    script = (
        "Object.fromEntries([...document.querySelectorAll('[data-fact]')].map(e => [e.dataset.fact, e.textContent]))"
    )
    found: dict[str, str] = json.loads(page.evaluate(f"JSON.stringify({script})"))
    return found


def check_page(page: Browser, choice: dict[str, Any], prediction: dict[str, Any]) -> None:
    """Whether everything on the page is what the two commands say."""
    shown = facts(page)
    assert shown["speedup"] == factor(prediction["speedup"]["p50"])
    assert shown["interval"] == interval(prediction["speedup"])
    assert shown["probability"] == probability(prediction["probability_faster"])
    arms = (prediction["baseline"], prediction["speculative"])
    assert shown["tpot"] == " → ".join(milliseconds(arm["tpot_s"]) for arm in arms)
    assert page.evaluate("document.querySelector('#recommendation').textContent") == choice["recommendation"]["why"]
    cells = json.loads(
        page.evaluate("JSON.stringify([...document.querySelectorAll('.heat td')].map(e => e.firstChild.textContent))")
    )
    assert cells == [factor(cell["speedup"]["p50"]) for cell in choice["grid"]]
    steps = json.loads(
        page.evaluate(
            "JSON.stringify([...document.querySelectorAll('.parts tr:last-child td:not(.bars):not(.share)')]"
            ".map(e => e.textContent))"
        )
    )
    assert steps == [f"{arm['step_s'] * 1e3:.2f}" for arm in arms]


def test_it_opens_without_a_word_on_the_console_and_asks_only_its_own_server(
    page: Browser, url: str, box: Path
) -> None:
    page.open(url)
    check_page(page, *commands_say(box))
    assert page.complaints() == []
    assert all(request.startswith(url) for request in page.requests())


def test_moving_a_slider_by_keys_gives_what_the_commands_give(page: Browser, url: str, box: Path) -> None:
    page.open(url)
    before = facts(page)
    page.evaluate(f"document.querySelector('{slider('hardware.allreduce_latency_us')}').focus()")
    press(page, "ArrowRight", 39, times=3)
    set_to = settled(page)
    assert set_to.startswith("hardware.allreduce_latency_us=")
    value = set_to.partition("=")[2]
    check_page(page, *commands_say(box, f"hardware.allreduce_latency_us={value}"))
    assert facts(page) != before
    assert page.evaluate("location.search") == f"?{set_to}"
    assert page.evaluate("document.activeElement.type") == "range"  # the keyboard stays where it was
    assert page.complaints() == []


def test_dragging_a_slider_shows_previews_and_ends_with_the_full_answer(page: Browser, url: str, box: Path) -> None:
    page.open(url)
    page.evaluate(
        "window.seen = []; new MutationObserver(() => seen.push(document.querySelector('.draws').textContent))"
        ".observe(document.querySelector('#answer'), {childList: true})"
    )
    page.evaluate(f"document.querySelector('{slider('c')}').scrollIntoView({{block: 'center'}})")
    box_of = "(e => { const b = e.getBoundingClientRect(); return JSON.stringify([b.x, b.y + b.height / 2, b.width]) })"
    place = json.loads(page.evaluate(f"{box_of}(document.querySelector('{slider('c')}'))"))

    def mouse(kind: str, part: float) -> None:
        page.call("Input.dispatchMouseEvent", type=kind, x=place[0] + part * place[2], y=place[1], button="left",
                  buttons=1, clickCount=1)  # fmt: skip

    mouse("mousePressed", 0.1)
    for step in range(1, 6):
        mouse("mouseMoved", 0.1 + step / 10)
        time.sleep(0.1)
    mouse("mouseReleased", 0.6)
    load = settled(page).partition("c=")[2]
    check_page(page, *commands_say(box, load=int(load)))
    seen = json.loads(page.evaluate("JSON.stringify(window.seen)"))
    assert seen[0].startswith("Preview of 200 draws")
    assert seen[-1] == "300 draws, seed 0: the commands below say exactly the same."
    assert page.complaints() == []


def test_typed_values_words_and_further_keys_reach_the_model(page: Browser, url: str, box: Path) -> None:
    page.open(url)
    type_into(page, "#workload-input_tokens", "2345")
    type_into(page, "#free", "restart.outage_min=7\nengine.max_num_seqs=32")
    page.evaluate(
        "(e => { e.value = 'chat'; e.dispatchEvent(new Event('change', {bubbles: true})); })"
        "(document.querySelector('#workload-kind'))"
    )
    settings = ("workload.input_tokens=2345", "workload.kind=chat", "restart.outage_min=7", "engine.max_num_seqs=32")
    until(lambda: "max_num_seqs" in settled(page), "the last of the settings")
    check_page(page, *commands_say(box, *settings))
    told = page.evaluate("document.querySelector('#commands').textContent")
    assert all(f"--set {setting}" in told for setting in settings)


def test_an_address_opened_elsewhere_gives_the_same_page(page: Browser, url: str, box: Path) -> None:
    page.open(url)
    type_into(page, "#speculation-num_speculative_tokens", "6")
    type_into(page, "#c", "8")
    until(lambda: settled(page) == "speculation.num_speculative_tokens=6&c=8", "both settings")
    here = page.evaluate("document.querySelector('#answer').textContent")
    address = page.evaluate("location.href")
    page.open(f"{url}icon.svg")
    page.open(address)
    assert page.evaluate("document.querySelector('#answer').textContent") == here
    assert page.evaluate("document.querySelector('#speculation-num_speculative_tokens').value") == "6"
    assert page.evaluate("document.querySelectorAll('.row.changed').length") == 2
    check_page(page, *commands_say(box, "speculation.num_speculative_tokens=6", load=8))


def test_the_exported_file_gives_what_the_page_shows(page: Browser, url: str, tmp_path: Path) -> None:
    page.open(f"{url}?hardware.num_gpus=4&engine.tensor_parallel_size=4&speculation.acceptance.conditional=0.8")
    href = page.evaluate("document.querySelector('#export').href")
    file = tmp_path / "deployment.toml"
    with urllib.request.urlopen(href, timeout=30) as reply:
        file.write_bytes(reply.read())
    check_page(page, *commands_say(file))


def test_reset_of_one_control_and_of_all_goes_back_to_the_file(page: Browser, url: str, box: Path) -> None:
    page.open(f"{url}?speculation.num_speculative_tokens=2&workload.output_tokens=90")
    page.evaluate("document.querySelector('[data-key=\"workload.output_tokens\"] .back').click()")
    assert settled(page) == "speculation.num_speculative_tokens=2"
    page.evaluate("document.querySelector('#reset').click()")
    assert settled(page) == ""
    assert page.evaluate("location.search") == ""
    check_page(page, *commands_say(box))


def test_a_slider_put_back_by_keys_is_as_in_the_file(page: Browser, url: str) -> None:
    page.open(url)
    page.evaluate(f"document.querySelector('{slider('speculation.num_speculative_tokens')}').focus()")
    press(page, "ArrowRight", 39)
    assert settled(page) == "speculation.num_speculative_tokens=4"
    press(page, "ArrowLeft", 37)
    assert settled(page) == ""


def test_a_share_of_drafted_steps_brings_its_acceptance_along(page: Browser, tmp_path: Path) -> None:
    path = tmp_path / "lookup.toml"
    text = DEPLOYMENT.replace('"eagle3"', '"ngram"').replace("acceptance = { conditional = [0.6] }", "")
    path.write_text(text, encoding="utf-8")
    with serving_page(site_of(path, num_draws=300)) as found:
        page.open(found)
        page.evaluate(f"document.querySelector('{slider('speculation.acceptance.draft_probability')}').focus()")
        press(page, "Home", 36)
        set_to = settled(page)
    assert set_to == "speculation.acceptance.conditional=0.5&speculation.acceptance.draft_probability=0"


def test_an_acceptance_that_the_file_states_otherwise_is_not_replaced_on_the_way(page: Browser, tmp_path: Path) -> None:
    path = tmp_path / "counted.toml"
    stated = "acceptance = { mean_length = 2.2, measured_at_k = 3 }"
    path.write_text(DEPLOYMENT.replace("acceptance = { conditional = [0.6] }", stated), encoding="utf-8")
    with serving_page(site_of(path, num_draws=300)) as found:
        page.open(found)
        told = "document.querySelector('[data-key=\"speculation.acceptance.conditional\"] .own').textContent"
        assert "mean_length 2.2" in page.evaluate(told)
        page.evaluate(f"document.querySelector('{slider('speculation.acceptance.draft_probability')}').focus()")
        press(page, "End", 35)
        assert settled(page) == "speculation.acceptance.draft_probability=1"


def test_what_does_not_fit_is_one_line_and_the_last_answer_stays(page: Browser, url: str, box: Path) -> None:
    page.open(f"{url}?c=4")
    before = page.evaluate("document.querySelector('#answer').innerHTML")
    type_into(page, "#engine-tensor_parallel_size", "8")
    assert settled(page) == "error"
    line = page.evaluate("document.querySelector('#error').textContent")
    assert line.startswith("engine: TP 8 x PP 1 x DP 1 = 8 GPUs, allowed: hardware.num_gpus = 2")
    assert page.evaluate("document.querySelector('#answer').innerHTML") == before
    assert page.evaluate("document.querySelector('#answer').classList.contains('stale')") is True
    assert page.evaluate("location.search") == "?c=4"
    type_into(page, "#hardware-num_gpus", "8")
    settled(page)
    assert page.evaluate("document.querySelector('#error').textContent") == ""
    check_page(page, *commands_say(box, "hardware.num_gpus=8", "engine.tensor_parallel_size=8", load=4))
    assert page.complaints() == []


def test_a_server_that_has_ended_is_said_and_a_new_one_taken_up(page: Browser, box: Path) -> None:
    with serving_page(site_of(box, num_draws=100)) as found:
        page.open(found)
    type_into(page, "#c", "3")
    until(lambda: "does not answer" in page.evaluate("document.querySelector('#error').textContent"), "no word")


def test_without_scripts_the_form_gives_the_same_answer(page: Browser, url: str, box: Path) -> None:
    page.call("Emulation.setScriptExecutionDisabled", value=True)
    page.open(url)
    assert page.evaluate("[...document.querySelectorAll('input[type=range]')].every(e => e.hidden)") is True
    type_into(page, "#hardware-allreduce_latency_us", "25")
    type_into(page, "#c", "8")
    page.events.clear()
    page.evaluate("document.querySelector('button[type=submit]').click()")
    until(lambda: page.evaluate("location.search") == "?hardware.allreduce_latency_us=25&c=8", "the form's page")
    until(lambda: page.evaluate("document.readyState") == "complete", "the whole page")
    check_page(page, *commands_say(box, "hardware.allreduce_latency_us=25", load=8))


def test_hostile_names_do_nothing(page: Browser, box: Path) -> None:
    with serving_page(site_of(box, subject=HOSTILE, overrides=(f"engine.attention_backend={HOSTILE[:30]}",))) as found:
        page.open(found)
        type_into(page, "#free", f"costs.currency={HOSTILE[:16]}\nspeculation.acceptance.published={HOSTILE}")
        assert settled(page) == "error"
        told = page.evaluate("document.querySelector('#error').textContent")
        page.open(f"{found}?set=%3Cimg+src%3Dx+onerror%3Dwindow.broken%3D1%3E")
        assert "<img" in page.evaluate("document.querySelector('#error').textContent")
    assert "<script>" in told
    assert page.evaluate("window.broken") is None
    assert page.evaluate("document.querySelectorAll('img, script:not([src])').length") == 0
    assert HOSTILE in page.evaluate("document.title")


@pytest.mark.parametrize("width", [360, 700, 1200])
def test_nothing_is_wider_than_the_screen_and_labels_stay_readable(page: Browser, url: str, width: int) -> None:
    page.call("Emulation.setDeviceMetricsOverride", **{**PHONE, "width": width})
    page.open(f"{url}?c=4")
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    smallest = (
        "Math.min(...[...document.querySelectorAll('.drawing text')].filter(e => e.getBoundingClientRect().width > 0)"
        ".map(e => 11 * e.ownerSVGElement.getBoundingClientRect().width / e.ownerSVGElement.viewBox.baseVal.width))"
    )
    assert page.evaluate(smallest) > 8
    outside = (
        "[...document.querySelectorAll('.drawing text')].filter(e => { const b = e.getBoundingClientRect(),"
        " s = e.ownerSVGElement.getBoundingClientRect(); return b.width > 0 && (b.left < s.left - 1 ||"
        " b.right > s.right + 1 || b.bottom > s.bottom + 1) }).length"
    )
    assert page.evaluate(outside) == 0


def test_every_control_has_a_label_and_ids_are_unique(page: Browser, url: str) -> None:
    page.open(url)
    unlabelled = (
        "[...document.querySelectorAll('input, select, textarea')]"
        ".filter(e => !e.labels.length && !e.getAttribute('aria-label')).length"
    )
    assert page.evaluate(unlabelled) == 0
    ids = json.loads(page.evaluate("JSON.stringify([...document.querySelectorAll('[id]')].map(e => e.id))"))
    assert len(ids) == len(set(ids))
    assert page.evaluate("document.documentElement.lang") == "en"


def test_in_the_dark_it_is_dark(page: Browser, url: str) -> None:
    page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    page.open(url)
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    line = page.evaluate("getComputedStyle(document.querySelector('.drawing .wide [stroke=\"#d55e00\"]')).stroke")
    assert (paper, line) == ("rgb(15, 20, 25)", "rgb(240, 136, 62)")


def test_a_slider_says_its_value_with_the_unit(page: Browser, url: str) -> None:
    page.open(f"{url}?hardware.allreduce_latency_us=25")
    told = (
        "[...document.querySelectorAll('input[type=range]')].map(e => [e.closest('.row').dataset.key, e.ariaValueText])"
    )
    said = dict(json.loads(page.evaluate(f"JSON.stringify({told})")))
    assert said["hardware.allreduce_latency_us"] == "25 us"
    assert said["speculation.acceptance.conditional"] == "0.6"
    assert said["speculation.acceptance.draft_probability"] == "not stated"
    assert said["workload.input_tokens"] == "100 tokens"


def test_focus_and_scrolled_boxes_stay_where_they_are_when_the_answer_is_replaced(page: Browser, url: str) -> None:
    page.call("Emulation.setDeviceMetricsOverride", **PHONE)
    page.open(f"{url}?workload.concurrency=1,2,3,4,6,8,12,16")
    box = "document.querySelector('.scroll:has(.heat)')"
    page.evaluate(f"{box}.scrollLeft = 50; {box}.marked = true")
    for reach, where in (("summary", "SUMMARY"), ("#export", "A"), (".scroll:has(.heat)", "DIV")):
        type_into(page, "#speculation-num_speculative_tokens", str(len(where)))
        page.evaluate(f"document.querySelector('#answer {reach}').focus()")
        assert f"num_speculative_tokens={len(where)}" in settled(page)
        assert page.evaluate("document.activeElement.tagName") == where
    assert page.evaluate(f"{box}.marked") is None
    assert page.evaluate(f"{box}.scrollLeft") == 50


def test_an_error_of_the_servers_own_is_said_in_its_words(page: Browser, box: Path) -> None:
    site = site_of(box, num_draws=100)
    with serving_page(site) as found:
        page.open(found)
        site._paths["/change"] = lambda query, gone: 1 // 0  # type: ignore[assignment, return-value]
        type_into(page, "#c", "3")
        assert settled(page) == "error"
        told = page.evaluate("document.querySelector('#error').textContent")
    assert told == "an error of draftcast's own; the terminal that serves the page shows it"


def test_the_parts_of_a_step_have_the_names_of_the_report(page: Browser, url: str) -> None:
    page.open(url)
    names = json.loads(
        page.evaluate("JSON.stringify([...document.querySelectorAll('.parts tbody th')].map(e => e.textContent))")
    )
    assert set(names[:-1]) <= set(PART_WORDS.values())
    assert "kernel floors and host" in names
