"""A window of a vLLM server's /metrics as a cell: step time, tokens per step, acceptance, batch, KV cache.

Semantics by version: docs/measurements.md and the engine facts it cites (vLLM 0.8 to 0.33, V0 and V1 names).
`inter_token_latency_seconds` (until 0.10 only as `time_per_output_token_seconds`) is one observation per (request,
engine step that returned a token): its count is the number of decode steps of requests, its mean the step time, with
speculation too. `iteration_tokens_total` is a histogram; its count is the number of engine steps.
"""

import math
from dataclasses import replace

from calibration.readers.acceptance import Counted, counts_of
from calibration.readers.metrics_pairs import Window
from calibration.readers.prometheus_text import Labels
from calibration.readers.runs import MIN_OUTPUT_TOKENS, PLAUSIBLE_TIME_S, draft_probability, mean_context
from calibration.readers.values import count, number
from calibration.records import AcceptanceCounts, Evidence, MeasuredCell, Refused

_ITL = ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds")
_TTFT = "vllm:time_to_first_token_seconds"
_STEPS = "vllm:iteration_tokens_total_count"
_TOKENS = "vllm:generation_tokens_total"
_PER_REQUEST = "vllm:request_time_per_output_token_seconds"
_SPEC = "vllm:spec_decode_"
_V0_MARKS = ("vllm:num_requests_swapped", "vllm:cpu_cache_usage_perc", f"{_SPEC}num_emitted_tokens_total")
_NOISE = 0.03  # of a mean over whatever ran in the window; prefill steps are in it
_STEP_SCATTER = 0.3  # steps with prefill beside steps without
_UNEVEN = 1.5  # running requests at an end of the window over the mean batch: the load changed
_UNEVEN_NOISE = 0.1


def read_window(window: Window) -> Evidence:
    """The cell of a window; single values that must not be used are refused one by one."""
    pairs, tokens = _pairs(window), _decode_tokens(window)
    if not pairs or not tokens or tokens <= 0:
        return Evidence(refused=(Refused(window.source, _nothing(window)),))
    counts, refused, notes = _acceptance(window, pairs, tokens)
    cell = MeasuredCell(
        source=window.source,
        num_speculative_tokens=num_speculative_tokens(window),
        tokens_per_step=tokens / pairs,
        num_requests=_finished(window),
        kv_cache_tokens=kv_cache_tokens(window),
        acceptance=counts,
        engine="vllm",
        model=window.model or None,
        notes=notes,
        draft_probability=draft_probability(counts),
    )
    cell = _with_lengths(cell, window)
    if window.first is None:
        reason = "times of one snapshot are means since the server's start, whatever ran; give a second snapshot"
        return Evidence((cell,), refused=(*refused, Refused(window.source, reason)))
    return _with_times(cell, window, pairs) + Evidence(refused=refused)


def _nothing(window: Window) -> str:
    if window.last.value(_TOKENS) is None:
        return "no vllm:generation_tokens_total: statistics off (--disable-log-stats), or not a generating model"
    if _pairs(window) is None:
        return "no inter-token latency histogram: of a version that is not known (0.8 to 0.33 are)"
    return "no token was decoded in this window"


def _pairs(window: Window) -> float | None:
    """(request, decode step) pairs."""
    return next((found for name in _ITL if (found := window.delta(f"{name}_count")) is not None), None)


def _decode_tokens(window: Window) -> float | None:
    """Emitted tokens without each request's first, which its prefill step yields."""
    tokens, started = window.delta(_TOKENS), window.delta(f"{_TTFT}_count")
    return None if tokens is None else tokens - (started or 0.0)


def _finished(window: Window) -> float | None:
    reasons = window.by_label("vllm:request_success_total", "finished_reason")
    return sum(reasons.values()) if reasons else None


def num_speculative_tokens(window: Window) -> int | None:
    """k: series of all positions are made at start-up. Without speculation there is none; the V0 engine tells no k."""
    if any(name in window.last.samples for name in _V0_MARKS):
        spec = any(name.startswith(_SPEC) for name in window.last.samples)
        return None if spec else 0
    positions = window.by_label(f"{_SPEC}num_accepted_tokens_per_pos_total", "position")
    known = [count(position) for position in positions]
    if positions:
        return 1 + max((item for item in known if item is not None), default=0)
    return None if window.delta(f"{_SPEC}num_drafts_total") is not None else 0


def _acceptance(
    window: Window, pairs: float, tokens: float
) -> tuple[AcceptanceCounts | None, tuple[Refused, ...], tuple[str, ...]]:
    drafts = window.delta(f"{_SPEC}num_drafts_total")
    if drafts is None:
        return None, _v0_acceptance(window), ()
    by_position = window.by_label(f"{_SPEC}num_accepted_tokens_per_pos_total", "position")
    order = sorted((key for key in by_position if count(key) is not None), key=lambda key: count(key) or 0)
    counted = Counted(
        drafts=drafts,
        accepted_per_position=tuple(by_position[key] for key in order),
        accepted=window.delta(f"{_SPEC}num_accepted_tokens_total"),
        draft_tokens=window.delta(f"{_SPEC}num_draft_tokens_total"),
        steps=pairs,
        decode_tokens=tokens,
        num_finished=_finished(window),
    )
    counts, reason, notes = counts_of(counted)
    return counts, (Refused(window.source, reason),) if reason else (), notes


def _v0_acceptance(window: Window) -> tuple[Refused, ...]:
    if f"{_SPEC}num_emitted_tokens_total" not in window.last.samples:
        return ()
    reason = "acceptance: vLLM's V0 engine counts no drafts and no positions; tokens per step is all that it tells"
    return (Refused(window.source, reason),)


def _with_lengths(cell: MeasuredCell, window: Window) -> MeasuredCell:
    started = window.delta(f"{_TTFT}_count")
    inputs = _mean(window, "vllm:request_prompt_tokens")
    if inputs is None and started:
        inputs = (window.delta("vllm:prompt_tokens_total") or 0.0) / started
    outputs = _mean(window, "vllm:request_generation_tokens")
    return replace(cell, input_tokens=inputs, output_tokens=outputs, context_tokens=mean_context(inputs, outputs))


def _with_times(cell: MeasuredCell, window: Window, pairs: float) -> Evidence:
    """`cell` with its times and its load."""
    step_s = _step_s(window, pairs)
    short = cell.output_tokens is not None and cell.output_tokens < MIN_OUTPUT_TOKENS
    low, high = PLAUSIBLE_TIME_S
    if step_s is None or not low <= step_s <= high or short:
        reason = (
            f"outputs of {cell.output_tokens:.3g} tokens on average: too short for a time per token"
            if short
            else f"a step of {step_s or 0:.3g} s is none that a server has ({low:g} to {high:g} s)"
        )
        return Evidence((cell,), refused=(Refused(window.source, reason),))
    batch = _mean_batch(window)
    uneven = _uneven(window, batch)
    elapsed_s, tokens = window.elapsed_s, window.delta(_TOKENS)
    timed = replace(
        cell,
        concurrency=batch,
        step_s=step_s,
        tpot_s=_tpot_s(window, step_s / (cell.tokens_per_step or 1.0)),
        ttft_s=_mean(window, _TTFT),
        throughput_tokens_per_s=tokens / elapsed_s if tokens and elapsed_s and elapsed_s > 0 else None,
        relative_noise=_noise(window, bool(uneven)),
        duration_s=elapsed_s,
        notes=cell.notes + uneven + _troubles(window),
    )
    return Evidence((timed,))


def _noise(window: Window, uneven: bool) -> float:
    steps = window.delta(_STEPS) or _pairs(window) or 1.0
    return min(1.0, math.hypot(_UNEVEN_NOISE if uneven else _NOISE, _STEP_SCATTER / math.sqrt(max(1.0, steps))))


def _step_s(window: Window, pairs: float) -> float | None:
    total_s = next((found for name in _ITL if (found := window.delta(f"{name}_sum")) is not None), None)
    return total_s / pairs if total_s else None


def _tpot_s(window: Window, per_token_s: float) -> float:
    """Mean over requests where every request of the window began and ended in it, else over tokens."""
    began, ended = window.delta(f"{_TTFT}_count"), window.delta(f"{_PER_REQUEST}_count")
    mean_s = _mean(window, _PER_REQUEST)
    return mean_s if mean_s and began and began == ended else per_token_s


def _mean(window: Window, histogram: str) -> float | None:
    observed, total = window.delta(f"{histogram}_count"), window.delta(f"{histogram}_sum")
    return total / observed if observed and total and observed > 0 else None


def _mean_batch(window: Window) -> float | None:
    """Requests decoding in a step, engines of data parallelism added up; at least 1 where one ran.

    Steps that only prefill count as well, so this is a little low where few requests run; it is never below 1.
    """
    steps = _by_engine(window, _STEPS)
    name = next((f"{name}_count" for name in _ITL if f"{name}_count" in window.last.samples), "")
    pairs = _by_engine(window, name)
    batches = [max(1.0, pairs[key] / steps[key]) for key in pairs if steps.get(key, 0) > 0 and pairs[key] > 0]
    return sum(batches) if batches else None


def _by_engine(window: Window, name: str) -> dict[str, float]:
    found = window.by_label(name, "engine")
    total = window.delta(name)
    return found or ({} if total is None else {"0": total})


def _uneven(window: Window, batch: float | None) -> tuple[str, ...]:
    """Running requests at an end against the mean batch: far apart, and the window mixes loads."""
    running = max(window.gauges("vllm:num_requests_running"), default=0.0)
    if batch is None or running <= _UNEVEN * batch:
        return ()
    return (f"{running:g} requests ran at an end of the window, {batch:.3g} on average: the load changed in it",)


def _troubles(window: Window) -> tuple[str, ...]:
    notes = []
    preempted = window.delta("vllm:num_preemptions_total")
    if preempted:
        notes.append(
            f"{preempted:g} preemptions: the KV cache was full, and gaps of preempted requests are in the mean"
        )
    waiting = max(window.gauges("vllm:num_requests_waiting"), default=0.0)
    if waiting:
        notes.append(f"{waiting:g} requests waited at an end of the window: the batch was at its limit")
    if window.last.start_time_s is None:
        notes.append(
            "no process_start_time_seconds (several API servers): the step count behind the batch may be wrong"
        )
    aborted = window.by_label("vllm:request_success_total", "finished_reason").get("abort", 0.0)
    if aborted:
        notes.append(f"{aborted:g} requests were aborted by their clients")
    return tuple(notes)


def kv_cache_tokens(window: Window) -> float | None:
    """Capacity of the KV cache in tokens, data-parallel engines added up: told since 0.26, else blocks times size."""
    sizes = [_cache_tokens(labels) for labels in window.last.labelled("vllm:cache_config_info")]
    known = [size for size in sizes if size is not None]
    return sum(known) if known else None


def _cache_tokens(labels: Labels) -> float | None:
    config = dict(labels)
    told = number(config.get("kv_cache_size_tokens"))
    blocks, size = number(config.get("num_gpu_blocks")), number(config.get("block_size"))
    if told:
        return told
    return blocks * size if blocks and size else None
