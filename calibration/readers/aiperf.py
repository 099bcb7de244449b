"""AIPerf's `profile_export_aiperf.json`, and the records of single requests beside it (`profile_export.jsonl`).

Format: AIPerf 0.13 common/models/export_models.py (schema 1.4; 1.0 to 1.3 and GenAI-Perf by the same names). Each
metric is {unit, avg, p50, std, count, ...}. `inter_token_latency` is (latency - TTFT) / (output tokens - 1), our TPOT;
`inter_chunk_latency` is the gap between chunks, one engine step. Speculation is told by the engine's own per-request
statistics, if it gives them.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from calibration.readers.acceptance import Counted, counts_of
from calibration.readers.request_times import RequestTimes, with_requests
from calibration.readers.runs import Run, judged, measured_concurrency
from calibration.readers.settings import speculation_of
from calibration.readers.values import at, count, first, mapping, number, positive, text
from calibration.records import Evidence, Refused
from hwmodel.units import MS, US
from simulator.deployment.speculation import MAX_DRAFT_TOKENS

_NS = 1e-3 * US
_TIME_UNITS = {"ns": _NS, "us": US, "ms": MS, "s": 1.0, "sec": 1.0, "seconds": 1.0}


def is_export(record: Any) -> bool:
    """Whether `record` is AIPerf's (or GenAI-Perf's) summary of a run."""
    found = mapping(record)
    names = ("request_latency", "request_throughput", "inter_token_latency", "time_to_first_token")
    return sum(1 for name in names if "unit" in mapping(found.get(name))) >= 2


def is_request_record(record: Any) -> bool:
    """Whether `record` is one line of `profile_export.jsonl`."""
    found = mapping(record)
    return "request_start_ns" in mapping(found.get("metadata")) and isinstance(found.get("metrics"), Mapping)


def read_export(record: Mapping[str, Any], source: str, requests: Sequence[Mapping[str, Any]] = ()) -> Evidence:
    """The cell of a summary, with its single requests where they are given."""
    if record.get("was_cancelled") or record.get("is_complete") is False:
        why = text(record.get("incomplete_reason")) or "cancelled before its end"
        return Evidence(refused=(Refused(source, f"the run is not complete: {why}"),))
    run = with_requests(_run(record, source), list(request_times(requests)))
    counts, reason = _acceptance(record, run)
    return judged(replace(run, **counts)) + Evidence(refused=(Refused(source, reason),) if reason else ())


def read_requests(records: Sequence[Mapping[str, Any]], source: str) -> Evidence:
    """The cell of single requests alone: the load is what was in flight."""
    requests = list(request_times(records))
    failed = sum(1 for record in records if record.get("error"))
    starts = [item.start_s for item in requests if item.start_s is not None]
    ends = [item.start_s + item.latency_s for item in requests if item.start_s is not None]
    run = Run(
        source=source,
        num_completed=len(requests),
        num_failed=failed,
        duration_s=max(ends) - min(starts) if starts else None,
    )
    run = with_requests(run, requests)
    in_flight = measured_concurrency(run)
    return judged(replace(run, concurrency=in_flight))


def request_times(records: Sequence[Mapping[str, Any]]) -> Iterator[RequestTimes]:
    """The successful requests of the measured phase."""
    for record in records:
        metadata, metrics = mapping(record.get("metadata")), mapping(record.get("metrics"))
        if record.get("error") or metadata.get("benchmark_phase") == "warmup":
            continue
        ttft_s, latency_s = (_seconds(metrics, name) for name in ("time_to_first_token", "request_latency"))
        tokens = first(_value(metrics, "output_sequence_length"), _value(metrics, "output_token_count"))
        start_ns = number(metadata.get("request_start_ns"))
        if ttft_s and latency_s and tokens:
            yield RequestTimes(
                ttft_s,
                latency_s,
                tokens,
                _value(metrics, "input_sequence_length"),
                None if start_ns is None else start_ns * _NS,
                _gaps(metrics),
            )


def _value(metrics: Mapping[str, Any], name: str) -> float | None:
    return number(at(metrics, name, "value"))


def _seconds(metrics: Mapping[str, Any], name: str, statistic: str = "value") -> float | None:
    metric = mapping(metrics.get(name))
    value, unit = positive(metric.get(statistic)), _TIME_UNITS.get(str(metric.get("unit")).lower())
    return None if value is None or unit is None else value * unit


def _gaps(metrics: Mapping[str, Any]) -> tuple[float, ...] | None:
    metric = mapping(metrics.get("inter_chunk_latency"))
    values, unit = metric.get("value"), _TIME_UNITS.get(str(metric.get("unit")).lower())
    if not isinstance(values, list) or unit is None:
        return None
    found = [number(value) for value in values]
    return None if None in found else tuple(value * unit for value in found if value is not None)


def _run(record: Mapping[str, Any], source: str) -> Run:
    requested, rate = _load(record)
    k, method = speculation_of(mapping(at(record, "run_info", "variation_values")), requested)
    return Run(
        source=source,
        requested=requested,
        request_rate_per_s=rate,
        num_completed=_average(record, "request_count") or _average(record, "request_latency", "count"),
        num_failed=_average(record, "error_request_count"),
        duration_s=_duration_s(record),
        tpot_s=_seconds(record, "inter_token_latency", "avg"),
        tpot_median_s=_seconds(record, "inter_token_latency", "p50"),
        tpot_sd_s=_seconds(record, "inter_token_latency", "std"),
        gap_s=_seconds(record, "inter_chunk_latency", "avg"),
        gap_median_s=_seconds(record, "inter_chunk_latency", "p50"),
        ttft_s=_seconds(record, "time_to_first_token", "avg"),
        latency_s=_seconds(record, "request_latency", "avg"),
        input_tokens=_average(record, "input_sequence_length"),
        output_tokens=_average(record, "output_sequence_length"),
        throughput_tokens_per_s=_average(record, "output_token_throughput"),
        num_speculative_tokens=k,
        method=method,
        model=_model(record),
    )


def _average(record: Mapping[str, Any], name: str, statistic: str = "avg") -> float | None:
    return number(at(record, name, statistic))


def _load(record: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """(users, arrivals per second) of the measured phase, of older load settings, or of the command line."""
    config = mapping(record.get("input_config"))
    phases = config.get("phases")
    measured = (
        [mapping(phase) for phase in phases if not mapping(phase).get("exclude_from_results")]
        if isinstance(phases, list)
        else []
    )
    places = measured[-1:] or [
        mapping(config.get("loadgen")),
        mapping(at(config, "perf_analyzer", "stimulus")),  # GenAI-Perf
        config,  # GenAI-Perf before that
    ]
    for settings in places:
        users = positive(settings.get("concurrency"))
        rate = positive(settings.get("request_rate") or settings.get("rate"))
        if users is not None or rate is not None:
            return users, rate
    words = _words(text_of_command(record))
    return _option(words, "--concurrency"), _option(words, "--request-rate")


def _duration_s(record: Mapping[str, Any]) -> float | None:
    """As stated, else (GenAI-Perf) requests over their rate."""
    stated, rate = _seconds(record, "benchmark_duration", "avg"), _average(record, "request_throughput")
    completed = _average(record, "request_count")
    return stated if stated is not None or not rate or not completed else completed / rate


def text_of_command(record: Mapping[str, Any]) -> str:
    """The command line that the export kept, or an empty text."""
    places = (at(record, "run_info", "cli_command"), at(record, "input_config", "cli_command"))
    return next((place for place in places if isinstance(place, str)), "")


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()


def _option(words: Sequence[str], name: str) -> float | None:
    for index, word in enumerate(words):
        if word == name and index + 1 < len(words):
            return positive(words[index + 1])
        if word.startswith(name + "="):
            return positive(word.partition("=")[2])
    return None


def _acceptance(record: Mapping[str, Any], run: Run) -> tuple[dict[str, Any], str | None]:
    """Counts of the pooled histogram {accepted drafts: verify steps}; what it changes in the run, or why it is none."""
    histogram = mapping(record.get("pooled_spec_decode_acceptance_histogram"))
    pairs = [(count(key), number(value)) for key, value in histogram.items()]
    known = [(key, value) for key, value in pairs if key is not None and value is not None and key <= MAX_DRAFT_TOKENS]
    if not pairs:
        return {}, None
    most = max((key for key, _ in known), default=0)
    if len(known) < len(pairs) or most == 0:
        return {}, "acceptance: the pooled histogram has no accepted draft, or counts that cannot be"
    drafts, drafted = sum(value for _, value in known), _average(record, "total_draft_tokens")
    k = max(most, round(drafted / drafts)) if drafted and drafts else most  # positions that were never accepted count
    if k > MAX_DRAFT_TOKENS:
        return {}, f"acceptance: {k} tokens a draft, allowed: to {MAX_DRAFT_TOKENS}"
    positions = tuple(sum(value for key, value in known if key > position) for position in range(k))
    accepted = _average(record, "total_accepted_draft_tokens")
    counts, reason, notes = counts_of(Counted(drafts, positions, accepted, drafted))
    k_told = run.num_speculative_tokens if run.num_speculative_tokens is not None else k
    return {"acceptance": counts, "num_speculative_tokens": k_told, "notes": run.notes + notes}, reason


def _model(record: Mapping[str, Any]) -> str | None:
    items = at(record, "input_config", "models", "items")
    if isinstance(items, list) and items:
        return text(at(items[0], "name"))
    names = at(record, "input_config", "endpoint", "model_names")
    return text(names[0]) if isinstance(names, list) and names else None
