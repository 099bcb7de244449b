"""The few figures that stand in boxes under the answer of a report page."""

from collections.abc import Iterator, Mapping
from typing import Any

from draftcast.render.numbers import duration, factor, interval, probability, share, significant, whole
from simulator.results import NO_ROOM

Fact = tuple[str, str]


def facts(result: Mapping[str, Any], view: str) -> Iterator[Fact]:
    """Label and value of the figures that matter most in a result; none for a view that has none."""
    return _VIEWS.get(view, _none)(result)


def _none(_: Mapping[str, Any]) -> Iterator[Fact]:
    yield from ()


def _choose(result: Mapping[str, Any]) -> Iterator[Fact]:
    recommendation, restart = result["recommendation"], result.get("restart") or {}
    k, best = recommendation["num_speculative_tokens"], recommendation["best_if_enabled"]
    yield "Recommended", f"k = {k}" if k else "no drafts"
    yield f"Speedup, k = {k or best}", factor(recommendation["gain"]["p50"])
    yield "90 % interval", interval(recommendation["gain"])
    yield "P(better)", probability(recommendation["probability_better"])
    if (result.get("memory") or {}).get("limited_by_baseline") == NO_ROOM:
        yield "Memory", "does not fit"
    elif restart.get("outage_s") is not None:
        payback_s = (restart.get("payback_s") or {}).get("p50")
        yield "Restart paid back", f"after {duration(payback_s)}" if payback_s is not None else "not expected"


def _simulate(result: Mapping[str, Any]) -> Iterator[Fact]:
    yield "Speedup", factor(result["speedup"]["p50"])
    if result["speedup"].get("p05") is not None:
        yield "90 % interval", interval(result["speedup"])
    for name, key in (("baseline", "baseline"), ("with drafts", "speculative")):
        arm = result[key] or {}
        yield f"Tokens/s, {name}", significant(arm.get("throughput_tokens_per_s"))
        yield f"First token p95, {name}", duration((arm.get("ttft_s") or {}).get("p95"))


def _backtest(result: Mapping[str, Any]) -> Iterator[Fact]:
    overall = result["overall"]
    yield "Runs", whole(overall["rows"])
    if overall["rows"]:
        yield "Median error", share(overall["median_abs_error"])
        yield "90 % of the errors below", share(overall["p90_abs_error"])
        yield "Right about the direction", share(overall["sign_accuracy"])
        yield "Inside their 90 % interval", share(overall["coverage_90"])


_VIEWS = {"choose": _choose, "report": _choose, "simulate": _simulate, "backtest": _backtest}
