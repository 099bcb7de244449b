"""`draftcast options` for a human reader."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from draftcast.render.numbers import UNDEFINED, duration, factor, interval, probability, significant
from draftcast.render.page import Page
from draftcast.render.phrases import joined

COLUMNS_PER_TABLE = 5  # loads side by side in 80 columns
NAME_WIDTH = 38
MAX_NOTES = 3
LONGEST_WORD = 76  # of a list in 80 columns
_HEADING = {
    "throughput": "Over the traffic, and when",
    "tpot": "Time per token over the traffic, and when",
    "goodput": "Goodput (what keeps the limits) over the traffic, and when",
}


def render(result: Mapping[str, Any], page: Page) -> None:
    """The recommendation, gains by load, what each option takes and risks, and what it all rests on.

    Options that are not expected to gain are named in one line, unless `all_options` of the result is set.
    """
    said = result["recommendation"]
    options = [o for o in result["options"] if result.get("all_options") or _gains_something(o, said["option"])]
    page.headline(said["text"])
    page.bullets(_first_step(result))
    for change in _too_long(_changes_of(result)):
        page.verbatim(change)
    today = {load["concurrency"]: load["throughput_tokens_per_s"] for load in result["today"]["loads"]}
    loads = list(today)
    page.heading("Throughput over today's without speculation, by concurrency: median")
    for part in page.parts(len(loads), COLUMNS_PER_TABLE):
        beside = {load: today[load] for load in loads[part]}
        _gains(options, beside, page, "today: tok/s" if result["today"]["fits"] else "if it fitted: tok/s")
    page.heading(_HEADING[result["inputs"]["deployment"]["objective"]["maximise"]])
    _times(options, page)
    page.bullets(_left_out([o for o in result["options"] if o not in options]))
    page.section("What each takes", list(_needs(options)))
    changes = [f"{i}: {joined(o['notes'][:MAX_NOTES])}" for i, o in enumerate(options, 1) if o["notes"]]
    page.section("What changes in the engine", changes)
    page.section("Risk to the output", list(_risks(options)))
    experiment = result["next_experiment"]
    if experiment:
        page.section("Cheapest next experiment", [_experiment(experiment)])
    if result.get("most_valuable_experiment"):
        page.section("Experiment worth most (docs/experiments.md)", [_experiment(result["most_valuable_experiment"])])
    page.section("Assumed", list(dict.fromkeys(text for option in options for text in option["assumptions"])))


def _gains_something(option: Mapping[str, Any], recommended: str | None) -> bool:
    return option["name"] == recommended or (_best(option)["gain"]["p50"] or 0.0) > 1.0


def _first_step(result: Mapping[str, Any]) -> list[str]:
    """How to do what the headline says: its needs, and the keys that change."""
    said = result["recommendation"]
    option = next((o for o in result["options"] if o["name"] == said["option"]), None)
    if option is None:
        return []
    needs = [*option["needs"], *(_best(option)["needs"] if option["with_best_drafter"] else [])]
    takes = f"it takes {'; '.join(dict.fromkeys(need['text'] for need in needs))}"
    changes = _changes_of(result)
    long = _too_long(changes)
    listed = ", ".join([change for change in changes if change not in long] + (["and the next lines"] if long else []))
    return [takes, *([f"in the file, or as --set: {listed}"] if changes else [])]


def _changes_of(result: Mapping[str, Any]) -> list[str]:
    """The overrides of what is recommended that change something, as a shell takes them."""
    own = result["inputs"]["deployment"]
    return [shlex.quote(each) for each in result["recommendation"]["changes"] if changes_something(own, each)]


def _too_long(changes: Sequence[str]) -> list[str]:
    """Overrides that would be broken in the middle of a word: they get a line each."""
    return [change for change in changes if max(map(len, change.split())) > LONGEST_WORD]


def changes_something(deployment: Mapping[str, Any], change: str) -> bool:
    """Whether the deployment says something else than this override; nothing and empty are the same."""
    key, _, value = change.partition("=")
    table, _, name = key.partition(".")
    now = deployment.get(table, {}).get(name)
    return value != ("" if now is None else str(now).lower() if isinstance(now, bool) else str(now))


def _left_out(options: Sequence[Mapping[str, Any]]) -> list[str]:
    if not options:
        return []
    each = ", ".join(f"{_name(option)} {factor(_best(option)['gain']['p50'])}" for option in options)
    return [f"not expected to gain (--all shows them): {each}"]


def _best(option: Mapping[str, Any]) -> Mapping[str, Any]:
    """The figures that count: alone, or with the best drafter where that is better."""
    best: Mapping[str, Any] = option["best_after"] if option["with_best_drafter"] else option
    return best


def _name(option: Mapping[str, Any]) -> str:
    best = _best(option)
    return option["name"] if best is option else f"{option['name']} + {best['method']}"


def short_names(options: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names that fit the table: the end is left out, the middle where the beginnings are the same."""
    whole = [_name(option) for option in options]
    begun = [name if len(name) <= NAME_WIDTH else f"{name[: NAME_WIDTH - 1]}…" for name in whole]
    pairs = zip(whole, begun, strict=True)
    return [short if begun.count(short) == 1 else _without_middle(name) for name, short in pairs]


def _without_middle(name: str) -> str:
    half = (NAME_WIDTH - 1) // 2
    return name if len(name) <= NAME_WIDTH else f"{name[: NAME_WIDTH - 1 - half]}…{name[-half:]}"


def _gains(options: Sequence[Mapping[str, Any]], loads: Mapping[int, float], page: Page, today: str) -> None:
    """Median gains by load, below today's tokens a second."""
    rows = [[today, UNDEFINED, *(significant(speed) for speed in loads.values())]]
    for i, (option, name) in enumerate(zip(options, short_names(options), strict=True), 1):
        best = _best(option)
        by_load = {gain["concurrency"]: gain["speedup"]["p50"] for gain in best["by_load"]}
        k = str(best["num_speculative_tokens"] or UNDEFINED)
        rows.append([f"{i} {name}", k, *(factor(by_load[load]) for load in loads)])
    page.table(("option", "k", *(str(load) for load in loads)), rows)


def _times(options: Sequence[Mapping[str, Any]], page: Page) -> None:
    rows = []
    for i, option in enumerate(options, 1):
        best = _best(option)
        alone = UNDEFINED if best is option else factor(option["gain"]["p50"])
        paid = best["payback_s"]["p50"]
        rows.append(
            [
                str(i),
                factor(best["gain"]["p50"]),
                interval(best["gain"]),
                probability(best["probability_faster"]),
                alone,
                duration(option["time_to_benefit_s"]),
                UNDEFINED if paid is None else duration(paid),
                option["risk"]["level"],
            ]
        )
    page.table(("#", "gain", "90 %", "P(faster)", "alone", "ready in", "paid back", "risk"), rows)


def _needs(options: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The restart that all take, once, and what each takes besides."""
    for text in dict.fromkeys(need["text"] for option in options for need in option["needs"][:1]):
        yield f"each: {text}"
    for i, option in enumerate(options, 1):
        drafter = _best(option)["needs"] if option["with_best_drafter"] else []
        takes = [need["text"] for need in (*option["needs"][1:], *drafter)]
        if takes:
            yield f"{i}: {'; '.join(takes)}"


def _risks(options: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Each kind of risk once, with the options that have it."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for i, option in enumerate(options, 1):
        grouped.setdefault((option["risk"]["level"], option["risk"]["text"]), []).append(str(i))
    for (level, text), numbers in grouped.items():
        yield f"{level} ({', '.join(numbers)}): {text}"


def _experiment(experiment: Mapping[str, Any]) -> str:
    down = experiment["outage_s"]
    outage = {None: "outage not stated", 0: "no outage"}.get(down, f"outage {duration(down)}")
    return f"{experiment['text']} ({outage})"
