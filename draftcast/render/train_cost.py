"""`draftcast train-cost` for a human reader."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from draftcast.render.numbers import UNDEFINED, duration, factor, interval, significant, storage, whole
from draftcast.render.page import Page
from hwmodel.units import HOUR, TERA

GIGA = 1e9

HEADS = ("h, median", "answers", "states", "training", "total", "90 %", "GPU-h", "cost")
STAGES = ("regeneration_h", "extraction_h", "training_h", "total_h")


def render(result: Mapping[str, Any], page: Page) -> None:
    """The verdict, the hours of every site, when it has paid, the data, and what that rests on."""
    page.headline(result["verdict"])
    page.heading("Hours on these GPUs alone: answers written, hidden states read, head trained")
    page.table(HEADS, _rows(result))
    cost = result["cost"]
    page.bullets([f"cost in {cost['currency']}" if cost["reason"] is None else cost["reason"]])
    page.section("When it has paid", list(_paid(result)))
    page.section("Instead of training", list(_downloads(result)))
    page.section("Data and memory", list(_data(result)))
    page.section("Why", result["why"])
    page.section("Assumed", result["assumptions"])


def _rows(result: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    cost, hours = result["cost"], result["hours"]
    here = hours["local"]
    yield _row(f"here: {_gpus(here)}", here, cost["local"])
    for name, site in hours["rented"].items():
        if site["total_h"] is None:
            yield (name, *[UNDEFINED] * (len(HEADS) - 1))
        else:
            yield _row(f"{name}: {_gpus(site)}", site, cost["rented"][name])


def _row(name: str, site: Mapping[str, Any], cost: Mapping[str, Any] | None) -> Sequence[str]:
    medians = [significant(site[stage]["p50"], 2) for stage in STAGES]
    ends = [significant(site["total_h"][end], 2) for end in ("p05", "p95")]
    price = UNDEFINED if cost is None else significant(cost["p50"], 2)
    return (name, *medians, "-".join(ends), significant(site["gpu_hours"]["p50"], 2), price)


def _paid(result: Mapping[str, Any]) -> Iterator[str]:
    even = result["break_even"]
    if even["reason"]:
        yield even["reason"]
        return
    yield f"trained here, the service down meanwhile: {_when(even['local'])}"
    for name, site in even["rented"].items():
        yield f"trained on {name}: {_when(site)}"
    saved = even["gpu_hours_saved_per_day"]
    yield (
        f"GPU-hours that the gain saves a day at full load: {significant(saved['p50'], 2)}"
        f" ({significant(saved['p05'], 2)} to {significant(saved['p95'], 2)})"
    )


def _gpus(site: Mapping[str, Any]) -> str:
    return f"{site['num_gpus']} GPU{'' if site['num_gpus'] == 1 else 's'}"


def _when(payback: Mapping[str, Any]) -> str:
    figures, reason = payback["payback_s"], payback["reason"]
    if figures is None or figures["p50"] is None:
        return str(reason)
    late = "never" if figures["p95"] is None else duration(figures["p95"])
    text = f"after {duration(figures['p50'])} of service ({duration(figures['p05'])} to {late})"
    return f"{text}; {reason}" if reason else text


def _downloads(result: Mapping[str, Any]) -> Iterator[str]:
    for head in result["gain"]["download"]:
        yield (
            f"{head['name']}, k = {head['num_speculative_tokens']}: {factor(head['speedup']['p50'])}"
            f" ({interval(head['speedup'])})"
        )
    if not result["gain"]["download"]:
        yield "no head of `draftcast list drafters` and no MTP layer can be used here"


def _scaled(figures: Mapping[str, float], unit: float, name: str) -> str:
    low, middle, high = (significant(figures[end] / unit, 2) for end in ("p05", "p50", "p95"))
    return f"{middle} {name} ({low} to {high})" if low != high else f"{middle} {name}"


def _round(count: float) -> str:
    """A count by its first three digits: the next ones are of the draws.

    >>> _round(500_002.3)
    '500,000'
    """
    return whole(float(f"{count:.3g}"))


def _data(result: Mapping[str, Any]) -> Iterator[str]:
    data, head, outage = result["data"], result["head"], result["outage"]
    yield (
        f"{_round(data['samples']['p50'])} conversations, {_scaled(data['total_tokens'], GIGA, 'G tokens')};"
        f" hidden states stored offline: {_scaled(data['storage_bytes'], TERA, 'TB')}"
    )
    yield (
        f"head: {significant(head['parameters'] / 1e9)} B parameters, {storage(head['weights_bytes'])};"
        f" training needs {storage(head['memory_bytes_per_gpu'])} on each GPU"
    )
    spare = outage["in_spare_capacity_s"]
    if spare is not None:
        yield f"answers and states in the service's spare capacity: {significant(spare['p50'] / HOUR, 2)} h"
