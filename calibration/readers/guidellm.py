"""GuideLLM's `benchmarks.json`: one cell per benchmark of the report.

Format: GuideLLM 0.8.1 benchmark/schemas, report version 2; 0.2 to 0.6 read by the same names (`args`, and
`scheduler` in 0.4, for `config`).
`inter_token_latency_ms` is (last - first token) / (tokens - 1), our TPOT. `time_per_output_token_ms` is none: it
divides the whole latency, TTFT included, by all tokens. Each metric is {successful, errored, incomplete, total} of
statistics; `request_concurrency` is a mean over time, incomplete requests included in `total`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from calibration.readers.runs import Run, judged
from calibration.readers.settings import speculation_of
from calibration.readers.values import at, first, mapping, mean, number, positive, scaled, standard_deviation, text
from calibration.records import Evidence, Refused
from hwmodel.units import MS

_ALL_KEPT = 0.99  # of the successful requests: the report may hold only a sample of them


def is_report(record: Any) -> bool:
    """Whether `record` is a GuideLLM report."""
    benchmarks = mapping(record).get("benchmarks")
    return isinstance(benchmarks, list) and any("metrics" in mapping(item) for item in benchmarks)


def read_report(record: Mapping[str, Any], path: str) -> Evidence:
    """Cells of every benchmark in the report."""
    evidence = Evidence()
    for index, item in enumerate(record["benchmarks"]):
        source = f"{path} benchmarks[{index}]"
        benchmark = mapping(item)
        if not mapping(benchmark.get("metrics")):
            evidence += Evidence(refused=(Refused(source, "a benchmark without metrics"),))
        else:
            evidence += judged(_run(benchmark, record, source))
    return evidence


def _run(benchmark: Mapping[str, Any], report: Mapping[str, Any], source: str) -> Run:
    metrics = mapping(benchmark["metrics"])
    requested, rate = _load(benchmark)
    outputs = _stat(metrics, "output_token_count", "mean")
    ttft_s = scaled(_stat(metrics, "time_to_first_token_ms", "mean"), MS)
    tpots = list(_tpots(benchmark))
    completed = _completed(benchmark, metrics)
    exact = tpots if completed and len(tpots) >= _ALL_KEPT * completed else []
    k, method = speculation_of({**mapping(report.get("config")), **mapping(benchmark.get("extras"))}, requested)
    return Run(
        source=source,
        requested=requested,
        request_rate_per_s=rate,
        num_completed=completed,
        num_failed=_made(benchmark, metrics, "errored"),
        duration_s=_duration(benchmark),
        tpot_s=mean(exact) if exact else _tpot(metrics, outputs, ttft_s),
        tpot_median_s=scaled(_stat(metrics, "inter_token_latency_ms", "median"), MS),
        tpot_sd_s=standard_deviation(exact)
        if exact
        else scaled(_stat(metrics, "inter_token_latency_ms", "std_dev"), MS),
        ttft_s=ttft_s,
        latency_s=_stat(metrics, "request_latency", "mean"),
        input_tokens=_stat(metrics, "prompt_token_count", "mean"),
        output_tokens=outputs,
        throughput_tokens_per_s=first(
            positive(_of(metrics, "output_tokens_per_second", "total", "mean")),
            _stat(metrics, "output_tokens_per_second", "mean"),
        ),
        concurrency=first(
            positive(_of(metrics, "request_concurrency", "total", "mean")),
            _stat(metrics, "request_concurrency", "mean"),
        ),
        tokens_per_step=_tokens_per_chunk(metrics, outputs),
        num_speculative_tokens=k,
        method=method,
        model=_model(benchmark, report),
    )


def _of(metrics: Mapping[str, Any], name: str, status: str, statistic: str) -> Any:
    return at(metrics, name, status, statistic)


def _stat(metrics: Mapping[str, Any], name: str, statistic: str) -> float | None:
    """A statistic of the successful requests."""
    return positive(_of(metrics, name, "successful", statistic))


def _load(benchmark: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """(users of a closed loop, arrivals per second): of the strategy that ran."""
    found = (at(benchmark, place, "strategy") for place in ("config", "scheduler", "args"))
    strategy = mapping(next((item for item in found if item), None))
    kind = str(strategy.get("type_") or strategy.get("type") or "")
    if kind == "synchronous":
        return 1.0, None
    if kind == "concurrent":
        return first(positive(strategy.get("streams")), positive(strategy.get("max_concurrency"))), None
    if kind == "throughput":
        return None, None
    return None, positive(strategy.get("rate"))


def _made(benchmark: Mapping[str, Any], metrics: Mapping[str, Any], status: str) -> float | None:
    totals = (
        metrics.get("request_totals"),
        benchmark.get("request_totals"),
        at(benchmark, "run_stats", "requests_made"),
    )
    made = at(benchmark, "scheduler_metrics", "requests_made")
    return first(*(number(at(total, status)) for total in (*totals, made)))


def _completed(benchmark: Mapping[str, Any], metrics: Mapping[str, Any]) -> float | None:
    counted = _made(benchmark, metrics, "successful")
    return first(counted, number(_of(metrics, "request_latency", "successful", "count")))


def _duration(benchmark: Mapping[str, Any]) -> float | None:
    stated = positive(benchmark.get("duration"))
    start, end = number(benchmark.get("start_time")), number(benchmark.get("end_time"))
    return stated or (end - start if start is not None and end is not None and end > start else None)


def _tpot(metrics: Mapping[str, Any], outputs: float | None, ttft_s: float | None) -> float | None:
    """The mean ITL; without it the mean time per output token with the first token's share taken out."""
    itl_s = scaled(_stat(metrics, "inter_token_latency_ms", "mean"), MS)
    whole_s = scaled(_stat(metrics, "time_per_output_token_ms", "mean"), MS)
    if itl_s is not None or whole_s is None or ttft_s is None or outputs is None or outputs <= 1:
        return itl_s
    return positive((whole_s * outputs - ttft_s) / (outputs - 1))


def _tokens_per_chunk(metrics: Mapping[str, Any], outputs: float | None) -> float | None:
    """Tokens after the first per chunk after the first."""
    per_chunk = _stat(metrics, "iter_tokens_per_iteration", "mean")
    chunks = _stat(metrics, "request_streaming_iterations_count", "mean")
    if per_chunk is not None or chunks is None or outputs is None or chunks <= 1:
        return per_chunk
    return (outputs - 1) / (chunks - 1)


def _tpots(benchmark: Mapping[str, Any]) -> Iterator[float]:
    """TPOT of the single successful requests that the report kept, seconds."""
    kept = at(benchmark, "requests", "successful")
    for request in kept if isinstance(kept, list) else ():
        tpot_s = scaled(mapping(request).get("inter_token_latency_ms"), MS)
        if tpot_s is not None:
            yield tpot_s


def _model(benchmark: Mapping[str, Any], report: Mapping[str, Any]) -> str | None:
    places = (
        at(benchmark, "config", "backend", "model"),
        at(benchmark, "worker", "backend_model"),
        at(benchmark, "benchmarker", "backend", "model"),
        at(report, "config", "model"),
        at(report, "args", "model"),
    )
    return next((name for place in places if (name := text(place))), None)
