"""`vllm bench serve` results: one JSON object, one per line (--append-result), or with every request (--save-detailed).

Format: vLLM vllm/benchmarks/serve.py (0.10 to 0.33), before that benchmarks/benchmark_serving.py. `mean_tpot_ms` is
(latency - TTFT) / (output tokens - 1), mean over requests; `mean_itl_ms` is the mean over all gaps between chunks, so
with speculation one engine step. `max_concurrent_requests` is a peak: below the asked-for number it proves that this
did not run; at it, nothing. Before 0.14.1 there are no `spec_decode_*` keys, and without them speculation may be on.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from calibration.readers.acceptance import Counted, counts_of
from calibration.readers.request_times import RequestTimes, with_requests
from calibration.readers.runs import Run, judged
from calibration.readers.settings import speculation_of
from calibration.readers.values import count, mapping, number, numbers, positive, scaled, text
from calibration.records import Evidence, Refused
from hwmodel.units import MS

_MARKS = ("completed", "duration", "request_throughput")
_WEIGHTING = 1.1
_LISTS = ("input_lens", "output_lens", "ttfts", "itls", "latencies", "start_times")


def is_result(record: Any) -> bool:
    """Whether `record` is a result of `vllm bench serve` (of any version, also flattened to a row of text)."""
    found = mapping(record)
    timed = any(f"{kind}_tpot_ms" in found for kind in ("mean", "median")) or "itls" in found
    return all(mark in found for mark in _MARKS) and timed and "mean_e2e_latency_ms" not in found


def is_pooling(record: Any) -> bool:
    """Whether `record` is a result for an embedding model, which decodes nothing."""
    return "input_sequence_throughput" in mapping(record)


def read_result(record: Mapping[str, Any], source: str) -> Evidence:
    """What one result says: a cell, or why it is none, and which of its values must not be used."""
    if is_pooling(record):
        return Evidence(refused=(Refused(source, "a run of an embedding model: nothing was decoded"),))
    run = with_requests(_run(record, source), list(_requests(record)))
    run, refused = _with_acceptance(run, record)
    return judged(run) + Evidence(refused=refused)


def _run(record: Mapping[str, Any], source: str) -> Run:
    completed = count(record.get("completed"))
    requested = positive(record.get("max_concurrency"))
    k, method = speculation_of(record, requested)
    return Run(
        source=source,
        requested=requested,
        request_rate_per_s=_rate(record),
        num_completed=completed,
        num_failed=_failed(record, completed),
        duration_s=positive(record.get("duration")),
        tpot_s=_ms(record, "mean_tpot_ms"),
        tpot_median_s=_ms(record, "median_tpot_ms"),
        tpot_sd_s=_ms(record, "std_tpot_ms"),
        gap_s=_ms(record, "mean_itl_ms"),
        gap_median_s=_ms(record, "median_itl_ms"),
        ttft_s=_ms(record, "mean_ttft_ms"),
        latency_s=_ms(record, "mean_e2el_ms"),
        input_tokens=_per_request(record.get("total_input_tokens"), completed),
        output_tokens=_per_request(record.get("total_output_tokens"), completed),
        throughput_tokens_per_s=positive(record.get("output_throughput")),
        peak_concurrency=positive(record.get("max_concurrent_requests")),
        num_speculative_tokens=k,
        method=method,
        engine=_engine(record),
        engine_version=text(record.get("engine_version")) or text(record.get("vllm_version")),
        model=text(record.get("model_id")),
    )


def _engine(record: Mapping[str, Any]) -> str | None:
    """The server's engine: of the backend's own name, or told by counters that only vLLM has."""
    backend = record.get("backend") or record.get("endpoint_type")
    if backend in ("vllm", "sglang"):
        return str(backend)
    return "vllm" if any(key.startswith("spec_decode_") for key in record) else None


def _ms(record: Mapping[str, Any], key: str) -> float | None:
    return scaled(record.get(key), MS)


def _per_request(total: Any, completed: int | None) -> float | None:
    tokens = number(total)
    return tokens / completed if tokens is not None and completed else None


def _rate(record: Mapping[str, Any]) -> float | None:
    """Arrivals per second; None for "inf", as fast as possible."""
    if text(record.get("ramp_up_strategy")):
        return positive(record.get("request_throughput"))
    return positive(record.get("request_rate"))  # "inf" is beyond every number that can be used


def _failed(record: Mapping[str, Any], completed: int | None) -> float | None:
    """Requests that failed: a key since 0.11, before that those of the prompts that did not complete."""
    stated = number(record.get("failed"))
    prompts = count(record.get("num_prompts"))
    if stated is None and prompts is not None and completed is not None:
        return float(max(0, prompts - completed))
    return stated


def _requests(record: Mapping[str, Any]) -> Iterator[RequestTimes]:
    """The successful requests of a detailed result; a list that is missing, or of another length, is not used."""
    kept = {name: record[name] for name in _LISTS if isinstance(record.get(name), list)}
    length = len(kept.get("output_lens", ()))
    if not all(name in kept and len(kept[name]) == length for name in ("output_lens", "ttfts", "itls")):
        return
    for index in range(length):
        row = {name: values[index] for name, values in kept.items() if len(values) == length}
        request = _request(row)
        if request is not None:
            yield request


def _request(row: Mapping[str, Any]) -> RequestTimes | None:
    tokens, ttft_s, gaps = positive(row["output_lens"]), positive(row["ttfts"]), numbers(row["itls"])
    if tokens is None or ttft_s is None or gaps is None:
        return None  # a failed request has neither tokens nor times
    latency_s = positive(row.get("latencies")) or ttft_s + sum(gaps)
    return RequestTimes(
        ttft_s, latency_s, tokens, number(row.get("input_lens")), number(row.get("start_times")), tuple(gaps)
    )


def _with_acceptance(run: Run, record: Mapping[str, Any]) -> tuple[Run, tuple[Refused, ...]]:
    """`run` with its acceptance counts: differences of /metrics around the run, so other traffic is in them too."""
    drafts = positive(record.get("spec_decode_num_drafts"))
    shares = numbers(_listed(record.get("spec_decode_per_position_acceptance_rates")))
    if drafts is None or not shares:
        return run, ()
    counted = Counted(
        drafts,
        tuple(share * drafts for share in shares),
        number(record.get("spec_decode_accepted_tokens")),
        number(record.get("spec_decode_draft_tokens")),
        _decode_steps(run, drafts),
        num_finished=run.num_completed,
    )
    counts, reason, notes = counts_of(counted)
    k = run.num_speculative_tokens if run.num_speculative_tokens is not None else len(shares)
    run = replace(run, num_speculative_tokens=k, acceptance=counts, notes=run.notes + notes)
    return run, (Refused(run.source, reason),) if reason else ()


def _decode_steps(run: Run, drafts: float) -> float | None:
    """(request, step) pairs: decode tokens over the tokens of a chunk, counted or from TPOT and the mean gap.

    Means of requests and of gaps weigh requests differently: what lies a little below the drafts is as many.
    """
    per_step = run.tokens_per_step or (run.gap_s / run.tpot_s if run.gap_s and run.tpot_s else None)
    if run.num_completed is None or run.output_tokens is None or not per_step:
        return None
    steps = run.num_completed * max(0.0, run.output_tokens - 1) / per_step
    return drafts if steps < drafts <= steps * _WEIGHTING else steps


def _listed(value: Any) -> Any:
    """A list, also where a table kept it as text: "[0.6, 0.4]"."""
    if not isinstance(value, str):
        return value
    return [part for part in value.strip("[]() ").split(",") if part.strip()]
