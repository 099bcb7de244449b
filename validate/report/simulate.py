"""The charts of `draftcast simulate`: what users waited for, and the engine over simulated time."""

from collections.abc import Iterator

from hwmodel.percent import percent
from hwmodel.units import MS
from validate.report.chart import Chart, Json, Spec, Table
from validate.report.marks import arm_bars, over_time
from validate.report.numbers import text_of
from validate.report.parts import ARM_KEYS
from validate.report.theme import thinned

TIMES = {
    "ttft_s": ("to first token", "Time to first token"),
    "tpot_s": ("per token", "Time per output token"),
    "itl_s": ("between bursts", "Time between bursts of tokens"),
    "e2e_s": ("whole request", "Time of a whole request"),
}
SERIES = {
    "tokens_per_s": ("tokens per second", "Output tokens per second"),
    "running": ("running", "Requests that run"),
    "waiting": ("waiting", "Requests that wait"),
    "kv_usage": ("KV cache", "KV cache in use"),
}
PERCENTILES = ("p50", "p95", "p99")
MAX_POINTS = 80  # of a curve: more are closer than a pixel


def charts(result: Json, details: Json) -> list[Chart]:
    """Percentiles of the waiting times and the series that the simulator kept; an arm that did not run is left out."""
    arms = {arm: result[key] for arm, key in ARM_KEYS.items() if result.get(key)}
    return [*_times(arms), *_series(arms)]


def _times(arms: dict[str, Json]) -> Iterator[Chart]:
    selected = True
    for key, (label, words) in TIMES.items():
        rows: list[Spec] = []
        for quantile in PERCENTILES:
            for arm, values in arms.items():
                value_s = (values.get(key) or {}).get(quantile)
                if value_s is not None:
                    tip = f"{words}, {quantile}, {arm}: {text_of(value_s / MS)} ms"
                    rows.append({"label": quantile, "arm": arm, "value": value_s / MS,
                                 "text": text_of(value_s / MS), "tip": tip})  # fmt: skip
        if not rows:
            continue
        values_ms = {(row["arm"], row["label"]): row["value"] for row in rows}
        yield Chart(
            f"waiting-{key.removesuffix('_s')}",
            "What users wait for",
            f"{words}: half of the requests, 95 % and 99 % are faster than this.",
            f"Bars: {words.lower()} at percentiles 50, 95 and 99, without drafts (light) and with them.",
            arm_bars(rows, "ms", narrow=False),
            arm_bars(rows, "ms", narrow=True),
            Table(
                ("percentile", *(f"{arm} ms" for arm in arms)),
                tuple((q, *(values_ms.get((arm, q)) for arm in arms)) for q in PERCENTILES),
            ),
            group="waiting",
            label=label,
            selected=selected,
        )
        selected = False


def _series(arms: dict[str, Json]) -> Iterator[Chart]:
    kept = {arm: values["series"] for arm, values in arms.items() if values.get("series", {}).get("time_s")}
    for key, (label, words) in SERIES.items():
        is_share = key == "kv_usage"
        rows = [row for arm, series in kept.items() if key in series for row in _points(arm, series, key, is_share)]
        if not rows:
            continue
        unit = "share of the blocks" if is_share else words.lower()
        yield Chart(
            f"series-{key.replace('_', '-')}",
            "The engine over time",
            f"{words}, each arm on its own clock.",
            f"Curves over simulated time: {words.lower()} without drafts (solid) and with them (dashed).",
            over_time(rows, unit, narrow=False, percent=is_share),
            over_time(rows, unit, narrow=True, percent=is_share),
            Table(("arm", "time s", unit), tuple((row["arm"], row["time"], row["value"]) for row in rows)),
            group="series",
            label=label,
            selected=key == "tokens_per_s",
        )


def _points(arm: str, series: Json, key: str, is_share: bool) -> Iterator[Spec]:
    pairs = [(t, v) for t, v in zip(series["time_s"], series[key], strict=False) if v is not None]
    for time, value in thinned(pairs, MAX_POINTS):
        said = percent(value) if is_share else text_of(value)
        yield {"arm": arm, "time": time, "value": value, "tip": f"{arm}, {text_of(time)} s: {said}"}
