import os
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from draftcast.output import show, to_json
from draftcast.render.choose import render
from draftcast.render.facts import facts
from draftcast.render.report_page import ReportPage

Show = Callable[[dict[str, Any], str], list[str]]

PARTS_S = {"attention": 2e-3, "experts": 3e-3, "allreduce": 7e-3, "overhead": 1.6e-3, "drafter": 0.0}
BASELINE = {
    "step_s": 13.6e-3,
    "tpot_s": 13.6e-3,
    "throughput_tokens_per_s": 73.5,
    "parts_s": PARTS_S,
    "limited_by": "allreduce",
}
SPECULATIVE = {
    "step_s": 17.6e-3,
    "tpot_s": 16.1e-3,
    "throughput_tokens_per_s": 62.1,
    "parts_s": PARTS_S | {"experts": 7e-3},
    "limited_by": "allreduce",
    "tokens_per_step": 1.09,
}
SLOWER = {"p05": 0.70, "p50": 0.845, "p95": 1.02}
RECOMMENDATION = {
    "best_if_enabled": 1,
    "restart_worth_it": False,
    "flag": "",
    "why": "No load reaches break-even.",
}
MEMORY = {
    "weights_bytes": 594e9,
    "weights_bytes_per_gpu": 74.3e9,
    "draft_bytes": 0.0,
    "kv_cache_tokens_baseline": 1_234_567,
    "kv_cache_tokens_speculative": 1_200_000,
    "max_concurrency_baseline": 411,
    "max_concurrency_speculative": 400,
    "fits": True,
}


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Show:
    """The lines that a result prints on an 80-column page."""
    monkeypatch.setenv("COLUMNS", "80")

    def lines(result: dict[str, Any], view: str) -> list[str]:
        show(result, as_json=False, view=view)
        return capsys.readouterr().out.splitlines()

    return lines


def prediction(**changes: Any) -> dict[str, Any]:
    return {
        "inputs": {"method": "ngram", "num_speculative_tokens": 5, "concurrency": 1},
        "speedup": SLOWER,
        "probability_faster": 0.04,
        "break_even_tokens_per_step": 1.294,
        "baseline": BASELINE,
        "speculative": SPECULATIVE,
        "why": ["Five drafts read further experts in every layer."],
        "memory": MEMORY,
        "client_effects": ["min_p is refused with HTTP 400."],
        "notes": [],
        **changes,
    }


def choice(k: int = 0, **recommendation: Any) -> dict[str, Any]:
    grid = [
        {
            "num_speculative_tokens": row,
            "concurrency": concurrency,
            "speedup": {"p05": 1.0, "p50": 1.0, "p95": 1.0} if row == 0 else SLOWER,
            "probability_faster": 0.0 if row == 0 else 0.04,
            "tpot_s": 13.6e-3,
            "throughput_tokens_per_s": 73.5 * concurrency,
            "limited_by": "allreduce",
        }
        for row in range(9)
        for concurrency in (1, 4, 16, 64, 128, 256)
    ]
    return {
        "inputs": {"method": "ngram", "num_speculative_tokens": 5},
        "grid": grid,
        "recommendation": {
            "num_speculative_tokens": k,
            **RECOMMENDATION,
            **recommendation,
        },
        "restart": {
            "outage_s": 1800.0,
            "payback_s": {"p05": None, "p50": None, "p95": None},
            "payback_reason": "no gain",
        },
        "memory": MEMORY,
        "why": ["AllReduce takes half of the step."],
        "notes": [],
    }


def test_predict_answers_in_its_first_sentence(page: Show) -> None:
    text = " ".join(page(prediction(), "predict")[:2])
    assert text.startswith("Slower: 0.84x (90 % interval 0.70-1.02, P(faster) 4 %) with 5 draft tokens (ngram)")


def test_no_drafts_are_neither_slower_nor_faster(page: Show) -> None:
    without = prediction()
    without["inputs"] = {**without["inputs"], "num_speculative_tokens": 0}
    assert page(without, "predict")[0].startswith("Without drafts, the baseline: ")


def test_predict_prints_milliseconds_and_shares_of_both_steps(page: Show) -> None:
    lines = page(prediction(), "predict")
    assert ["allreduce", "█" * 14, "7.00", "51", "%", "7.00", "40", "%"] in [line.split() for line in lines]
    assert ["experts", "█" * 6 + "▒" * 8, "3.00", "22", "%", "7.00", "40", "%"] in [line.split() for line in lines]
    assert ["step", "13.60", "100", "%", "17.60", "100", "%"] in [line.split() for line in lines]
    assert not any(line.split()[:1] == ["drafter"] for line in lines)


def test_predict_says_what_would_be_enough(page: Show) -> None:
    lines = [" ".join(line.split()) for line in page(prediction(), "predict")]
    assert "tokens per step to break even 1.29" in lines
    assert "tokens per step and request 1 1.09" in lines


def test_choose_answers_in_its_first_sentence(page: Show) -> None:
    assert page(choice(why="Do not enable ngram: no load reaches break-even."), "choose")[0].startswith("Do not enable")


def test_choose_prints_the_interval_of_the_recommended_k_else_of_the_best(page: Show) -> None:
    assert any(line.split()[:4] == ["k", "=", "3,", "interval"] for line in page(choice(3), "choose"))
    other = choice(0) | {"inputs": {"method": "ngram", "num_speculative_tokens": [0, 1, 2]}}
    assert any(line.split()[:4] == ["k", "=", "1,", "interval"] for line in page(other, "choose"))


def test_choose_prints_the_flag_unbroken_however_long(page: Show) -> None:
    flag = "--speculative-config '" + '{"method":"ngram","num_speculative_tokens":3,"prompt_lookup_max":4}' + "'"
    lines = page(choice(3, flag=flag, restart_worth_it=True), "choose")
    assert "  " + flag in lines


def test_choose_prints_a_schedule_by_its_ranges(page: Show) -> None:
    schedule = [[1, 8, 5], [9, 64, 2], [65, 1024, 0]]
    text = " ".join(" ".join(page(choice(5, schedule=schedule, restart_worth_it=True), "choose")).split())
    assert "k = 5 at 1-8, 2 at 9-64, 0 at 65-1024." in text


def test_choose_prints_no_schedule_where_one_length_serves_all(page: Show) -> None:
    text = " ".join(page(choice(5, schedule=[[1, 1024, 5]], restart_worth_it=True), "choose"))
    assert "that can switch" not in text


def test_choose_states_the_restart_and_the_reason_for_no_payback(page: Show) -> None:
    assert "- outage 30 min; no gain" in page(choice(), "choose")


def test_choose_states_when_the_restart_is_paid_back(page: Show) -> None:
    payback = {"p05": 3 * 3600.0, "p50": 10 * 3600.0, "p95": None}
    restart = {"outage_s": 1800.0, "payback_s": payback, "payback_reason": "never where it turns out slower"}
    text = " ".join(" ".join(page(choice(3) | {"restart": restart}, "choose")).split())
    assert "outage 30 min; paid back after 10 h (90 % interval 3 h to never); never where it turns out slower" in text


def test_a_rolling_restart_has_no_outage(page: Show) -> None:
    restart = {"outage_s": 0.0, "payback_s": {}, "payback_reason": "no gain"}
    assert "- no outage; no gain" in page(choice() | {"restart": restart}, "choose")


def test_memory_that_does_not_fit_is_said_first(page: Show) -> None:
    lines = page(prediction(memory=MEMORY | {"fits": False}), "predict")
    assert any(line.startswith("- DOES NOT FIT: weights 74.3 GB on each GPU (594 GB in all") for line in lines)


def test_whatif_prints_one_row_per_combination(page: Show) -> None:
    row = {"speedup": SLOWER, "probability_faster": 0.04, "baseline": BASELINE, "speculative": SPECULATIVE}
    rows = [{"vary": {"hardware.num_gpus": n, "engine.version": "0.16.0"}, **row} for n in (4, 8)]
    lines = page({"inputs": {}, "rows": rows}, "whatif")
    assert ["8", "0.16.0", "0.84x", "0.70-1.02", "4", "%", "13.6", "16.1"] in [line.split() for line in lines]


def test_whatif_says_first_where_the_speedup_is_largest_among_what_can_run(page: Show) -> None:
    arms = {"baseline": BASELINE, "speculative": SPECULATIVE}
    unfit = {**arms, "baseline": BASELINE | {"limited_by": "does_not_fit"}}
    rows = [
        {
            "vary": {"a.b": i},
            "speedup": {"p05": low, "p50": 2 * low, "p95": 3 * low},
            "probability_faster": 0.9,
            **these,
        }
        for i, (low, these) in enumerate(((0.4, arms), (0.7, arms), (0.5, arms), (0.9, unfit)))
    ]
    text = " ".join(page({"inputs": {}, "rows": [*rows, {"vary": {"a.b": 9}, "error": "no"}]}, "whatif"))
    answer = "5 combinations of a.b: the largest speedup is 1.40x (0.70-2.10), P(faster) 90 %, with a.b = 1."
    assert answer in text
    none = page({"inputs": {}, "rows": [{"vary": {"a.b": 9}, "error": "no"}]}, "whatif")
    assert none[0] == "1 combination of a.b: none of them has a speedup."


def test_whatif_says_why_a_combination_has_no_figures(page: Show) -> None:
    rows = [{"vary": {"engine.tensor_parallel_size": 3}, "error": "3 does not divide 64 heads"}]
    lines = page({"inputs": {}, "rows": rows}, "whatif")
    assert ["3", "-", "-", "-", "-", "-"] in [line.split() for line in lines]
    assert "- engine.tensor_parallel_size = 3: 3 does not divide 64 heads" in lines


@pytest.mark.parametrize(
    ("lacking", "times"), [(("baseline", "speculative"), ["-", "-"]), (("speculative",), ["13.6", "-"])]
)
def test_whatif_marks_a_combination_that_does_not_fit_instead_of_giving_its_figures(
    page: Show, lacking: tuple[str, ...], times: list[str]
) -> None:
    arms = {"baseline": BASELINE, "speculative": SPECULATIVE}
    arms |= {name: arms[name] | {"limited_by": "does_not_fit"} for name in lacking}
    row = {"vary": {"hardware.num_gpus": 4}, "speedup": SLOWER, "probability_faster": 0.04, **arms}
    lines = page({"inputs": {}, "rows": [row]}, "whatif")
    assert ["4", "does", "not", "fit", "-", "-", *times] in [line.split() for line in lines]


def test_the_figures_under_the_answer_call_no_restart_unpaid_whose_outage_is_not_stated() -> None:
    gain = {"num_speculative_tokens": 1, "gain": SLOWER, "probability_better": 0.9}
    paid, unpaid = {"payback_s": {"p50": 600.0}}, {"payback_s": {"p50": None}}

    def said(restart: dict[str, Any], **memory: Any) -> dict[str, str]:
        result = {"recommendation": RECOMMENDATION | gain, "restart": restart, "memory": MEMORY | memory}
        return dict(facts(result, "choose"))

    assert said({**paid, "outage_s": 60.0})["Restart paid back"] == "after 10 min"
    assert said({**unpaid, "outage_s": 60.0})["Restart paid back"] == "not expected"
    assert "Restart paid back" not in said({**unpaid, "outage_s": None})
    assert said({**unpaid, "outage_s": 60.0}, limited_by_baseline="does_not_fit")["Memory"] == "does not fit"


def test_a_page_keeps_the_grid_in_one_table_where_a_terminal_has_several() -> None:
    paper = ReportPage()
    render(choice(), paper)
    tables = [block.table for block in paper.blocks if block.table is not None]
    assert [len(table.columns) for table in tables] == [7]


def test_a_narrow_terminal_cuts_no_digits(page: Show, monkeypatch: pytest.MonkeyPatch) -> None:
    at_80 = page(choice(), "choose")
    monkeypatch.setenv("COLUMNS", "40")
    narrow = page(choice(), "choose")
    figures = [line.split() for line in at_80 if line.startswith("k = ")]
    assert figures
    assert [line.split() for line in narrow if line.startswith("k = ")] == figures


def test_one_request_is_no_requests(page: Show) -> None:
    few = MEMORY | {"max_concurrency_baseline": 1, "max_concurrency_speculative": 1}
    text = " ".join(page(prediction(memory=few), "predict"))
    assert "room for 1 request without speculation" in text


def test_a_note_that_comes_twice_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    show({"notes": ["a", "b", "a"]}, as_json=True, view="predict")
    assert capsys.readouterr().err.splitlines() == ["note: a", "note: b"]


@pytest.mark.parametrize(
    ("result", "view"), [(prediction(), "predict"), (choice(), "choose"), (choice(3, restart_worth_it=True), "choose")]
)
def test_pages_fit_80_columns_and_end_no_line_in_an_escape(result: dict[str, Any], view: str, page: Show) -> None:
    lines = page(result, view)
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in "".join(lines)


def test_names_from_outside_are_printed_as_they_are_written(page: Show) -> None:
    hostile = "[bold]my:smile:[/] model\x1b[31m\n[link=x]"
    text = " ".join(page(prediction(why=[hostile]), "predict"))
    assert "- [bold]my:smile:[/] model [31m [link=x]" in text


def test_undefined_values_are_dashes_not_traces(page: Show) -> None:
    undefined = {"p05": None, "p50": None, "p95": None}
    lines = page(prediction(speedup=undefined, probability_faster=None, break_even_tokens_per_step=None), "predict")
    assert lines[0].startswith("Undefined: - (90 % interval -, P(faster) -)")


def test_notes_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    show(prediction(notes=["acceptance is a prior"]), as_json=True, view="predict")
    captured = capsys.readouterr()
    assert captured.err == "note: acceptance is a prior\n"
    assert captured.out.count("\n") == 1


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_json_with_a_value_that_json_lacks_is_a_bug(value: float) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        to_json({"speedup": value})


def test_a_terminal_without_block_characters_gets_the_figures_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import json, sys; from draftcast.output import show\n"
        "show(json.loads(sys.argv[1]), as_json=False, view='predict')"
    )
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "COLUMNS": "80"}
    command = [sys.executable, "-c", code, to_json(prediction())]
    text = subprocess.run(command, env=environment, capture_output=True, check=True).stdout.decode("ascii")
    assert "allreduce" in text
    assert "\\u" not in text


def test_no_color_means_no_escape_sequences_and_the_same_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    texts = []
    for value in ("", "1"):
        monkeypatch.setenv("NO_COLOR", value)
        show(prediction(), as_json=False, view="predict")
        texts.append(capsys.readouterr().out)
    assert "\x1b[" in texts[0]
    assert "\x1b" not in texts[1]
    assert re.sub(r"\x1b\[[0-9;]*m", "", texts[0]) == texts[1]


def test_remarks_are_joined_whether_or_not_they_end_as_sentences() -> None:
    from draftcast.render.phrases import joined

    assert joined(["It reads 8 experts.", "full graphs", "It gains. "]) == "It reads 8 experts; full graphs; It gains"


@pytest.mark.parametrize(("columns", "width"), [("60", 80), ("80", 80), ("90", 90), ("200", 100)])
def test_notes_are_wrapped_and_of_many_the_first_are_shown(
    columns: str, width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from draftcast.output import MOST_NOTES, show_notes

    monkeypatch.setenv("COLUMNS", columns)
    notes = [f"number {i} " + "word " * 40 for i in range(MOST_NOTES + 3)]
    show_notes([*notes, notes[0]])
    lines = capsys.readouterr().err.splitlines()
    assert max(map(len, lines)) <= width
    assert max(map(len, lines)) > width - 5
    said = [line for line in lines if line.startswith("note: ")]
    assert [line.split()[2] for line in said[:-1]] == [str(i) for i in range(MOST_NOTES)]
    assert said[-1] == "note: 3 more, which --json has"
    show_notes(notes[: MOST_NOTES + 1])
    assert "more" not in capsys.readouterr().err


@pytest.mark.parametrize("width", range(12, 40))
def test_no_line_ends_between_a_figure_and_its_percent_sign(width: int) -> None:
    from draftcast.text import wrapped

    text = "regret from 9.3 % to 0.13 % with P(faster) < 1 % here, > 99 % there and 12 tokens"
    lines = wrapped(text, width).splitlines()
    assert " ".join(lines) == text
    assert not any(line.startswith("%") or line[-1] in "<>" for line in lines)
