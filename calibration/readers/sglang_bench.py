"""SGLang's `bench_serving --output-file`: one JSON object per line, with lists per request under --output-details.

Format: SGLang python/sglang/bench_serving.py (0.4 to 0.5.23). Its ITL is per *token*, never a step: the native backend
divides each gap by the tokens of the chunk, and with speculation the OpenAI backends divide by retokenised chunks. The
step time is TPOT times `accept_length` (tokens per verify step, bonus included), which the server averages since its
start, not over the run. `concurrency` is the sum of latencies over the duration: Little's law.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from calibration.readers.request_times import RequestTimes, with_requests
from calibration.readers.runs import Run, judged
from calibration.readers.settings import speculation_of
from calibration.readers.values import at, count, mapping, number, positive, scaled, text
from calibration.records import Evidence
from hwmodel.units import MS

_NATIVE = ("sglang", "sglang-native", "sglang-oai", "sglang-oai-chat")
_METHODS = {  # SGLang's --speculative-algorithm -> vLLM's name
    "EAGLE": "eagle",
    "EAGLE3": "eagle3",
    "NEXTN": "mtp",
    "STANDALONE": "draft_model",
    "NGRAM": "ngram",
    "DFLASH": "dflash",
    "DSPARK": "dspark",
}


def is_result(record: Any) -> bool:
    """Whether `record` is a line of SGLang's benchmark."""
    found = mapping(record)
    return "mean_e2e_latency_ms" in found and "completed" in found and "mean_tpot_ms" in found


def read_result(record: Mapping[str, Any], source: str) -> Evidence:
    """What one line says: a cell, or why it is none."""
    run = with_requests(_run(record, source), list(_requests(record)))
    if run.engine == "sglang":
        run = replace(run, gap_s=None, gap_median_s=None, tokens_per_step=_accept_length(record))
        if run.tokens_per_step is not None:
            note = "tokens per step is the server's average since its start, not over this run"
            run = replace(run, notes=(*run.notes, note))
    return judged(run)


def _run(record: Mapping[str, Any], source: str) -> Run:
    completed = count(record.get("completed"))
    native = record.get("backend") in _NATIVE
    requested = positive(record.get("max_concurrency"))
    k, method = _speculation(record, requested)
    return Run(
        source=source,
        requested=requested,
        request_rate_per_s=positive(record.get("request_rate")),
        num_completed=completed,
        num_failed=_failed(record, completed),
        duration_s=positive(record.get("duration")),
        tpot_s=scaled(record.get("mean_tpot_ms"), MS),
        tpot_median_s=scaled(record.get("median_tpot_ms"), MS),
        tpot_sd_s=scaled(record.get("std_tpot_ms"), MS),
        gap_s=None if native else scaled(record.get("mean_itl_ms"), MS),
        gap_median_s=None if native else scaled(record.get("median_itl_ms"), MS),
        ttft_s=scaled(record.get("mean_ttft_ms"), MS),
        latency_s=scaled(record.get("mean_e2e_latency_ms"), MS),
        input_tokens=_per_request(record.get("total_input_tokens"), completed),
        output_tokens=_per_request(record.get("total_output_tokens"), completed),
        throughput_tokens_per_s=positive(record.get("output_throughput")),
        concurrency=positive(record.get("concurrency")),
        num_speculative_tokens=k,
        method=method,
        engine="sglang" if native else _other_engine(record),
        engine_version=text(at(record, "server_info", "version")),
        model=text(at(record, "server_info", "model_path")) or text(record.get("model_id")),
    )


def _other_engine(record: Mapping[str, Any]) -> str | None:
    return "vllm" if str(record.get("backend")).startswith("vllm") else None


def _per_request(total: Any, completed: int | None) -> float | None:
    tokens = number(total)
    return tokens / completed if tokens is not None and completed else None


def _failed(record: Mapping[str, Any], completed: int | None) -> float | None:
    prompts = count(record.get("num_prompts"))
    if prompts is not None and completed is not None:
        return float(max(0, prompts - completed))
    errors = record.get("errors")
    return float(sum(1 for error in errors if error)) if isinstance(errors, list) else None


def _speculation(record: Mapping[str, Any], requested: float | None) -> tuple[int | None, str | None]:
    """(draft tokens, method) of the server's own arguments; a tree of drafts has no k."""
    server = mapping(record.get("server_info"))
    if "speculative_algorithm" not in server:
        return speculation_of(record, requested)
    algorithm = server["speculative_algorithm"]
    if not isinstance(algorithm, str) or not algorithm.strip():
        return 0, None
    tree = (count(server.get("speculative_eagle_topk")) or 1) > 1
    k = None if tree else count(server.get("speculative_num_steps"))
    return k, _METHODS.get(algorithm.upper())


def _accept_length(record: Mapping[str, Any]) -> float | None:
    length = positive(record.get("accept_length"))
    return length if length is not None and length >= 1 else None


def _requests(record: Mapping[str, Any]) -> Iterator[RequestTimes]:
    """Successful requests; latency is TTFT plus all gaps, which native ITLs add up to as well."""
    lists = [record.get(name) for name in ("output_lens", "ttfts", "itls", "input_lens")]
    if not all(isinstance(values, list) for values in lists) or len({len(values or ()) for values in lists}) > 1:
        return
    for tokens, ttft, gaps, prompt in zip(*(values or () for values in lists), strict=True):
        output_tokens, ttft_s = positive(tokens), positive(ttft)
        each = [number(gap) for gap in gaps] if isinstance(gaps, list) else []
        known = [gap for gap in each if gap is not None]
        if output_tokens is not None and ttft_s is not None and len(known) == len(each):
            yield RequestTimes(ttft_s, ttft_s + sum(known), output_tokens, number(prompt), None, tuple(known))
