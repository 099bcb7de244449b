"""What speculation costs in this launch beyond its drafts: graphs too small, token budget, asynchronous scheduling."""

from typing import Any

from hwmodel.engine.versions import Version
from validate.launch.findings import ERROR, INFO, WARNING
from validate.launch.speculative import Speculation

_DEFAULT_LARGEST_GRAPH = 512  # tokens; vllm/config/vllm.py, 0.13 ... 0.32 (1024 on SM100 in 0.33)
_ROW_FACTOR_FIRST: Version = (0, 13, 0)  # before, the default sizes counted requests, not tokens
_ASYNC_DEFAULT: Version = (0, 14, 0)
_RUNNER_2_NGRAM: Version = (0, 32, 0)  # n-gram runs on Model Runner V2: another algorithm, and asynchronous
_SYNCHRONOUS = frozenset(("ngram", "suffix", "medusa"))


def add_performance_findings(case: Speculation, config: dict[str, Any]) -> None:
    """Add what the effective configuration means for speed at the load that the launch allows."""
    length = config.get("num_speculative_tokens")
    method = str(config.get("method"))
    _scheduling(case, method)
    if not isinstance(length, int):
        return
    requests = case.settings.max_num_seqs
    rows = 1 + length
    if requests is not None:
        _graph_coverage(case, requests, rows)
        budget = case.settings.max_num_batched_tokens
        if budget is not None and budget < requests * rows:
            message = (
                f"max_num_batched_tokens={budget} holds {budget // rows} requests of {rows} "
                f"tokens, fewer than max_num_seqs={requests}: "
                "the others wait, prefill gets nothing"
            )
            case.add(WARNING, "token-budget-small", message, f"--max-num-batched-tokens {requests * rows * 2}")


def _graph_coverage(case: Speculation, requests: int, rows: int) -> None:
    settings = case.settings
    if settings.enforce_eager:
        return
    sizes = settings.cudagraph_capture_sizes
    given = settings.max_cudagraph_capture_size or (sizes[-1] if sizes else None)
    largest = given if given is not None else _DEFAULT_LARGEST_GRAPH if case.version >= _ROW_FACTOR_FIRST else None
    if largest is None or largest >= requests * rows:
        return
    message = (
        f"CUDA graphs up to {largest} tokens cover {largest // rows} requests of 1+k={rows} "
        f"tokens; max_num_seqs={requests} allows more, "
        "which then run without graphs"
    )
    case.add(WARNING, "cudagraph-capture-too-small", message, f"--max-cudagraph-capture-size {requests * rows}")


def _scheduling(case: Speculation, method: str) -> None:
    version, asked = case.version, case.settings.async_scheduling
    runner_2 = method == "ngram" and version >= _RUNNER_2_NGRAM and case.settings.model_runner != "v1"
    if runner_2:
        case.add(
            INFO,
            "ngram-algorithm",
            f"{case.label} takes the latest match and always drafts k tokens (before 0.32: the earliest, or none)",
        )
    elif method in _SYNCHRONOUS and version >= _ASYNC_DEFAULT:
        if asked:
            case.add(
                ERROR,
                "async-scheduling-refused",
                f"{case.label} refuses --async-scheduling with {method}",
                "leave out --async-scheduling",
            )
        elif asked is None:
            message = f"{case.label} turns asynchronous scheduling off with {method}: each step also pays its host time"
            case.add(WARNING, "async-scheduling-off", message)
