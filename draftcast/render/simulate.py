"""`draftcast simulate` for a human reader."""

from collections.abc import Mapping
from typing import Any

from draftcast.render.bars import sparkline
from draftcast.render.numbers import (
    UNDEFINED,
    counted,
    duration,
    factor,
    interval,
    milliseconds,
    share,
    significant,
    whole,
)
from draftcast.render.page import Page

Arm = Mapping[str, Any]
SPARK_WIDTH = 36


def render(result: Mapping[str, Any], page: Page) -> None:
    """The speedup in a sentence, what users saw in both arms, what the engine did, and what was cut short."""
    inputs = result["inputs"]
    if result["partial"]:
        page.headline("PARTIAL: stopped before the end; the figures are those of what was done.")
    page.headline(_sentence(result))
    arms = [result["baseline"] or {}, result["speculative"] or {}]
    page.text(f"Arrivals {inputs['arrivals']}, {counted(inputs['num_requests'], 'request')}, seed {inputs['seed']}.")
    _times(arms, page)
    _engine(arms, page)
    _over_time(arms, page)
    page.section("Runs with other seeds", _runs(result.get("runs")))
    _goodput(result["goodput"], page)
    for name, outage in (result.get("outage") or {}).items():
        page.section(f"Outage, {name}", _outage(outage))


def _sentence(result: Mapping[str, Any]) -> str:
    speedup, inputs = result["speedup"], result["inputs"]
    what = f"{counted(inputs['num_speculative_tokens'], 'draft token')} ({inputs['method']}, {inputs['policy']})"
    if speedup["p50"] is None:
        return f"No speedup for {what}: {result['speedup_reason']}."
    bounds = f" (90 % interval {interval(speedup)}, {_basis(result)})" if speedup["p05"] is not None else ""
    return f"{factor(speedup['p50'])} as fast{bounds} with {what}."


def _basis(result: Mapping[str, Any]) -> str:
    return "of the run" if result["speedup_basis"] == "run" else "of parameter draws"


def _times(arms: list[Arm], page: Page) -> None:
    """Percentiles of what users wait for."""
    rows = []
    for label, key in (
        ("time to first token, ms", "ttft_s"),
        ("time per output token, ms", "tpot_s"),
        ("between bursts, ms", "itl_s"),
        ("whole request, ms", "e2e_s"),
    ):
        cells = [milliseconds((arm.get(key) or {}).get(name)) for arm in arms for name in ("p50", "p95", "p99")]
        rows.append((label, *cells))
    page.table(("", "base p50", "p95", "p99", "spec p50", "p95", "p99"), rows)


def _engine(arms: list[Arm], page: Page) -> None:
    """What the engine did."""
    rows = [
        ("output tokens per second", *(significant(arm.get("throughput_tokens_per_s"), 4) for arm in arms)),
        ("step that a request sees, ms", *(milliseconds(arm.get("step_s")) for arm in arms)),
        ("tokens per step and request", *(significant(arm.get("tokens_per_step")) for arm in arms)),
        ("requests finished", *(whole(arm.get("requests")) for arm in arms)),
        ("requests rejected", *(whole(arm.get("requests_rejected")) for arm in arms)),
        ("preemptions", *(whole(arm.get("preemptions")) for arm in arms)),
        ("KV cache in use, mean", *(share((arm.get("kv_usage") or {}).get("mean")) for arm in arms)),
        ("KV cache in use, most", *(share((arm.get("kv_usage") or {}).get("max")) for arm in arms)),
        ("simulated time", *(duration(arm.get("duration_s")) for arm in arms)),
    ]
    page.table(("the engine", "baseline", "with drafts"), rows)


def _over_time(arms: list[Arm], page: Page) -> None:
    """Sparklines of both arms on one scale of time and height; what stays level or empty has none."""
    series = [arm.get("series") or {} for arm in arms]
    ends = [(each.get("time_s") or [0.0])[-1] for each in series]
    if not page.can_draw or max(ends) <= 0:
        return
    rows = []
    for label, key in (("output tokens/s", "tokens_per_s"), ("running", "running"), ("waiting", "waiting")):
        most = max((value or 0.0 for each in series for value in each.get(key, ())), default=0.0)
        for name, each, end in zip(("baseline", "with drafts"), series, ends, strict=True):
            line = sparkline(each.get(key, ()), max(round(SPARK_WIDTH * end / max(ends)), 1), most)
            if line:
                rows.append((label, name, line, f"most {significant(most)}"))
    page.words(("over time", "", duration(max(ends)), ""), rows)


def _goodput(goodput: Mapping[str, Any], page: Page) -> None:
    if "reason" in goodput:
        return
    arms = [goodput["baseline"], goodput["speculative"]]
    rows = [
        ("requests within the limits", *(share(arm.get("attainment")) for arm in arms)),
        ("such requests per second", *(significant(arm.get("requests_per_s")) for arm in arms)),
    ]
    if any("max_rate_requests_per_s" in arm for arm in arms):
        rows.append(("highest rate that keeps them", *(_highest(arm) for arm in arms)))
    page.table(("goodput", "baseline", "with drafts"), rows)


def _highest(arm: Arm) -> str:
    rate = arm.get("max_rate_requests_per_s")
    return UNDEFINED if rate is None else f"{significant(rate)}/s"


def _runs(runs: Mapping[str, Any] | None) -> list[str]:
    """How much the speedup depends on the seed, and which runs failed."""
    if runs is None:
        return []
    failed = [row for row in runs["rows"] if row.get("failed_reason")]
    median, bounds = factor(runs["speedup"]["p50"]), interval(runs["speedup"])
    return [
        f"{median} in the median of {runs['done']:,} of {runs['total']:,} runs, 90 % of them within {bounds}",
        *(f"seed {row['seed']} failed: {row['failed_reason']}" for row in failed),
    ]


def _outage(outage: Arm) -> list[str]:
    if not outage["happened"]:
        return ["the run was over before it"]
    recovery = duration(outage["recovery_s"]) if outage["recovery_s"] is not None else "not within the run"
    return [
        f"from {duration(outage['at_s'])} on for {duration(outage['duration_s'])}",
        f"{counted(outage['lost_requests'], 'request')} lost and sent again,"
        f" {counted(outage['lost_tokens'], 'token')} lost",
        f"{counted(outage['arrived_meanwhile'], 'request')} arrived meanwhile, {whole(outage['queue_at_restart'])}"
        " in the queue at the restart",
        f"queue back to what it was after {recovery}",
    ]
