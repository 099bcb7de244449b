"""`draftcast experiments` for a human reader."""

from collections.abc import Mapping
from typing import Any

from draftcast.render.numbers import UNDEFINED, duration, factor, probability
from draftcast.render.page import Page

MOST_CHOICES = 6


def render(result: Mapping[str, Any], page: Page) -> None:
    """What to measure next, every measurement with its worth, how to make it, and the choices that it is about."""
    page.headline(result["recommendation"])
    page.heading("Expected regret, in percent of the baseline's throughput")
    found = result["experiments"]
    rows = [["(deciding now)", UNDEFINED, UNDEFINED, percent(result["evpi"]), UNDEFINED, UNDEFINED, UNDEFINED]]
    rows += [_row(experiment) for experiment in found]
    rows += [["(certainty)", UNDEFINED, UNDEFINED, "0.00", f"-{percent(result['evpi'])}", UNDEFINED, UNDEFINED]]
    page.table(("measurement", "takes", "restarts", "regret", "by", "changes", "net worth"), rows)
    page.text(
        "changes: chance that another choice is made; net worth: of the regret saved in"
        f" {result['horizon_days']:g} days, less the restarts, in time of the baseline's full output"
        + (f" ({result['net_value_reason']})." if result["net_value_reason"] else ".")
    )
    page.section("How", [_how(experiment) for experiment in found])
    choices = sorted(result["choices"], key=lambda choice: -choice["expected_gain"])[:MOST_CHOICES]
    page.section("Expected gain of the best choices", [_choice(choice) for choice in choices])


def percent(value: float) -> str:
    """A share in percent with two decimals, without the sign."""
    return f"{100 * value:.2f}"


def _row(experiment: Mapping[str, Any]) -> list[str]:
    saved = experiment["evsi"]
    net = experiment["net_value_s"]
    return [
        experiment["name"],
        duration(experiment["duration_s"]),
        str(experiment["restarts"]),
        percent(experiment["regret_after"]),
        f"-{percent(saved)}" if saved > 0 else "0.00",
        probability(experiment["probability_changes_choice"]),
        UNDEFINED if net is None else ("-" if net < 0 else "") + duration(abs(net)),
    ]


def _how(experiment: Mapping[str, Any]) -> str:
    command = f": {experiment['command']}" if experiment["command"] else ""
    return f"{experiment['name']}: {experiment['text']}{command}"


def _choice(choice: Mapping[str, Any]) -> str:
    k = choice["num_speculative_tokens"]
    name = f"{choice['method']} k={k}" if k else "no speculation"
    return f"{name}: {factor(choice['expected_gain'])} on average, {factor(choice['median_gain'])} in the median"
