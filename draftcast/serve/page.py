"""The page and the part of it that changes, as HTML; every text in it passes `safe`."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from draftcast import __version__
from draftcast.render import phrases
from draftcast.render.numbers import UNDEFINED, factor, interval, milliseconds, probability, significant
from draftcast.render.report_page import ReportPage
from draftcast.serve.answer import Answer
from draftcast.serve.controls import CONTROLS, LOAD, Control
from draftcast.serve.drawings import curve, heat_table, parts_table
from draftcast.serve.state import FREE, State
from hwmodel.records import dataclass
from simulator.deployment import Deployment
from simulator.deployment.keys import short
from validate.report.text import safe

_MAX_SHOWN = 60  # characters of a file's value
_UNSTATED = "not stated"
_ACCEPTANCE = "speculation.acceptance.conditional"


@dataclass(frozen=True, slots=True)
class Shown:
    """One view of the page: its state, the answer or what was wrong, and the commands that say the same."""

    state: State
    answer: Answer | None
    error: str | None
    commands: tuple[str, str] | None


def own_values(answer: Answer) -> dict[str, str]:
    """What every control stands at without settings: the file's value as `--set` takes it, or what it comes to."""
    inputs = answer.prediction["inputs"]
    found: dict[str, str] = {}
    for control in CONTROLS:
        here: Any = inputs["deployment"]
        for part in control.key.split("."):
            here = here.get(part) if isinstance(here, Mapping) else None
        found[control.key] = "" if here is None else _as_set(here)
    found[LOAD] = str(inputs["concurrency"])
    found[_ACCEPTANCE] = found[_ACCEPTANCE] or _other_form(answer.deployment)
    found["hardware.interconnect"] = found["hardware.interconnect"] or inputs["resolved"]["interconnect"]
    found["speculation.num_speculative_tokens"] = str(inputs["num_speculative_tokens"])
    found["hardware.num_gpus"] = found["hardware.num_gpus"] or str(answer.deployment.num_gpus)
    return found


def _other_form(deployment: Deployment) -> str:
    """The acceptance of a deployment that states it in another form than the control's; empty where it does not."""
    acceptance = deployment.speculation.acceptance
    if acceptance is None:
        return ""
    value = getattr(acceptance, acceptance.form)
    return acceptance.form if isinstance(value, dict) else f"{acceptance.form} {_as_set(value)}"


def _as_set(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(_as_set, value)) if isinstance(value, list | tuple) else str(value)


def page(shown: Shown, own: Mapping[str, str], subject: str) -> str:
    """The whole page."""
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{safe(f'draftcast: {subject}')}</title>",
            '<link rel="icon" href="icon.svg"><link rel="stylesheet" href="page.css">',
            '<script src="page.js" defer></script>',
            "</head>",
            "<body>",
            f'<header><p class="eyebrow">draftcast serve · {safe(subject)}</p>'
            '<p class="jump"><a href="#settings">Settings</a></p></header>',
            "<main>",
            _form(shown.state, own),
            '<div class="side">',
            f'<p id="error" class="error" role="alert">{safe(shown.error or "")}</p>',
            '<p id="said" class="said" role="status"></p>',
            f'<div id="answer">{"" if shown.answer is None else fragment(shown)}</div>',
            "</div>",
            "</main>",
            f"<footer><p>draftcast {safe(__version__)}. Everything is computed on the machine that serves this page, "
            "by the model of its commands.</p></footer>",
            "</body>",
            "</html>",
            "",
        ]
    )


def _form(state: State, own: Mapping[str, str]) -> str:
    groups = [
        f"<fieldset><legend>{safe(name)}</legend>{''.join(_row(c, state, own) for c in members)}</fieldset>"
        for name, members in groupby(CONTROLS, lambda control: control.group)
    ]
    entries = safe_lines(state.entries)
    rows = max(2, len(state.entries) + 1)
    return (
        '<form id="settings" method="get" action="./" autocomplete="off">'
        + "".join(groups)
        + '<fieldset><legend>Any other key</legend><div class="row"><label for="free">KEY=VALUE, one a line</label>'
        f'<textarea id="free" name="{FREE}" rows="{rows}" spellcheck="false" '
        f'placeholder="engine.expert_parallel=true">{entries}</textarea></div></fieldset>'
        '<p class="buttons"><button type="submit">Ask</button> <a id="reset" href="./">All as in the file</a></p>'
        "</form>"
    )


def safe_lines(lines: Iterable[str]) -> str:
    """Lines for a text area: each made safe, the breaks between them kept."""
    return "\n".join(safe(line) for line in lines)


def _row(control: Control, state: State, own: Mapping[str, str]) -> str:
    """One control; empty means: as in the file."""
    set_to = state.values.get(control.key, "")
    if control.key == LOAD and state.load is not None:
        set_to = str(state.load)
    unit, meaning = control.meaning()
    name = control.key.replace(".", "-")
    told = f"{control.key}: {meaning}" if control.key != LOAD else meaning
    stands = short(own[control.key], _MAX_SHOWN) or _UNSTATED
    changed = " changed" if set_to else ""
    said = unit if control.stops and not unit[:1].isdigit() else ""  # with the value of a slider
    head = (
        f'<div class="row{changed}" data-key="{safe(control.key)}" data-own="{safe(own[control.key])}"'
        f' data-needs="{safe(control.needs)}" data-unit="{safe(said)}" title="{safe(told)}">'
        f'<label for="{name}">{safe(control.label)}' + (f" <small>{safe(unit)}</small>" if unit else "") + "</label>"
    )
    field = _select if control.options else _number
    return (
        head
        + field(control, name, set_to, stands)
        + f'<p class="own">file: {safe(stands)} <button type="button" class="back" hidden '
        f'aria-label="{safe(control.label)}: as in the file">reset</button></p></div>'
    )


def _select(control: Control, name: str, set_to: str, stands: str) -> str:
    words = list(control.options)
    words += [set_to] if set_to and set_to not in words else []
    options = "".join(
        f'<option value="{safe(word)}"{" selected" if word == set_to else ""}>{safe(word)}</option>' for word in words
    )
    first = f'<option value="">as in the file: {safe(stands)}</option>'
    return f'<select id="{name}" name="{safe(control.key)}">{first}{options}</select>'


def _number(control: Control, name: str, set_to: str, stands: str) -> str:
    slider = ""
    if control.stops:
        stops = " ".join(f"{stop:g}" if stop < 1e5 else str(stop) for stop in control.stops)
        slider = (
            f'<input type="range" hidden min="0" max="{len(control.stops) - 1}" step="1" data-stops="{stops}" '
            f'aria-label="{safe(control.label)}">'
        )
    hint = UNDEFINED if stands == _UNSTATED else stands
    return (
        f'<span class="pair">{slider}<input id="{name}" name="{safe(control.key)}" inputmode="decimal" '
        f'value="{safe(set_to)}" placeholder="{safe(hint)}" maxlength="400"></span>'
    )


def fragment(shown: Shown) -> str:
    """What changes with the settings: the answer in two sentences, its figures and drawings, and what stands behind."""
    answer = shown.answer
    assert answer is not None
    prediction, choice = answer.prediction, answer.choice
    k, load = prediction["inputs"]["num_speculative_tokens"], prediction["inputs"]["concurrency"]
    notes = dict.fromkeys((*answer.deployment.notes, *prediction["notes"], *choice["notes"]))
    return "\n".join(
        [
            f'<h1 id="verdict">{safe(_headline("predict", prediction))}</h1>',
            f'<p id="recommendation">{safe(_headline("choose", choice))}</p>',
            f'<p class="draws">{safe(_draws(answer))}</p>',
            _facts(prediction),
            f'<p class="brief" aria-hidden="true">k = {k}, concurrency {load}: {safe(phrases.speedup(prediction))}</p>',
            f"<section><h2>Where the time of a step goes, k = {k} at concurrency {load}</h2>"
            f"{parts_table(prediction)}</section>",
            f"<section><h2>Speedup against concurrency, k = {k}</h2>{_curve_or_why(choice, prediction, k)}</section>",
            "<section><h2>Speedup by draft length and concurrency</h2>"
            f"{heat_table(choice, k, load)}{_legend(choice)}</section>",
            *_take_along(shown),
            _folded("Why", prediction["why"]),
            _folded("Notes", list(notes)),
        ]
    )


def _headline(view: str, result: Mapping[str, Any]) -> str:
    """The sentence that the command says first."""
    if view == "choose":
        return str(result["recommendation"]["why"])
    from draftcast.render.predict import render

    told = ReportPage()
    render(result, told)
    return next(block.text for block in told.blocks if block.kind == "headline")


def _draws(answer: Answer) -> str:
    if not answer.is_final:
        return f"Preview of {answer.num_draws} draws while you move; the full answer follows."
    seed = answer.prediction["inputs"]["seed"]
    return f"{answer.num_draws:,} draws, seed {seed}: the commands below say exactly the same."


def _facts(prediction: Mapping[str, Any]) -> str:
    arms = (prediction["baseline"], prediction["speculative"])
    facts = (
        ("speedup", "Speedup", factor(prediction["speedup"]["p50"])),
        ("interval", "90 % interval", interval(prediction["speedup"])),
        ("probability", "P(faster)", probability(prediction["probability_faster"])),
        ("tpot", "ms per token, now → drafts", " → ".join(milliseconds(arm["tpot_s"]) for arm in arms)),
        ("rate", "tokens/s, now → drafts", " → ".join(significant(arm["throughput_tokens_per_s"]) for arm in arms)),
        (
            "tokens",
            "tokens per step, to break even",
            f"{significant(arms[1]['tokens_per_step'])}, {significant(prediction['break_even_tokens_per_step'])}",
        ),
    )
    boxes = "".join(f'<div><dt>{safe(a)}</dt><dd data-fact="{name}">{safe(b)}</dd></div>' for name, a, b in facts)
    return f'<dl class="facts">{boxes}</dl>'


def _curve_or_why(choice: Mapping[str, Any], prediction: Mapping[str, Any], k: int) -> str:
    drawn = curve(choice, prediction, k)
    told = "Line: median. Bands: 50 % and 90 % of the draws. The ring is the concurrency looked into."
    return drawn + f'<p class="finding">{told}</p>' if drawn else '<p class="finding">Nothing is drafted.</p>'


def _legend(choice: Mapping[str, Any]) -> str:
    asked = choice["inputs"]["deployment"]["objective"]["min_probability_faster"]
    told = "Median, below it the 90 % interval. Green is faster, brown slower; framed where P(faster) is at least"
    return f'<p class="finding">{told} {round(100 * asked)} %.</p>'


def _take_along(shown: Shown) -> Iterator[str]:
    """The commands, and the file."""
    choose, predict = shown.commands or ("", "")
    query = f"?{shown.state.query}" if shown.state.query else ""
    yield "<section><h2>Take it along</h2>"
    yield f'<pre id="commands">{safe(choose)}\n{safe(predict)}</pre>'
    yield (
        f'<p><a id="export" href="deployment.toml{safe(query)}" download="deployment.toml">Deployment file</a> with '
        f'these settings · <a href="answer.json{safe(query)}">JSON</a> of both commands · the address of this page '
        "holds the settings: <a "
        f'id="link" href="./{safe(query)}">link</a></p></section>'
    )


def _folded(title: str, items: Sequence[str]) -> str:
    if not items:
        return ""
    listed = "".join(f"<li>{safe(item)}</li>" for item in items)
    return f'<details data-title="{safe(title)}"><summary>{safe(title)}</summary><ul>{listed}</ul></details>'


def change(shown: Shown) -> str:
    """What the page's script asks for, as JSON: the new part, or the one line that says what is wrong."""
    return json.dumps(
        {
            "error": shown.error,
            "query": shown.state.query,
            "answer": None if shown.answer is None else fragment(shown),
        }
    )
