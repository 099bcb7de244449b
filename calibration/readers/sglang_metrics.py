"""A window of an SGLang server's /metrics as a cell.

Semantics (SGLang 0.5.5 to 0.5.23, metrics/collector.py): `inter_token_latency_seconds` observes the interval divided by
its new tokens, once per token: sum over count is the time per *token*, unlike vLLM's metric of the same name.
`spec_accept_length` is a gauge of the last log interval: tokens per verify step, bonus included. Labels `tp_rank` and
`pp_rank` tell ranks of one engine that count the same work.
"""

from calibration.readers.metrics_pairs import Window
from calibration.readers.prometheus_text import Labels, Scrape
from calibration.readers.runs import PLAUSIBLE_TIME_S, mean_context
from calibration.readers.values import number
from calibration.records import Evidence, MeasuredCell, Refused

_ITL = "sglang:inter_token_latency_seconds"
_TTFT = "sglang:time_to_first_token_seconds"
_TOKENS = "sglang:generation_tokens_total"
_NOISE = 0.05  # the batch and the accepted length are gauges, seen at the ends only
_UNEVEN = 1.2
_RANKS = ("tp_rank", "pp_rank", "moe_ep_rank")


def read_window(window: Window) -> Evidence:
    """The cell of a window; the times of a single snapshot are refused."""
    k, length = num_steps(window), _accept_length(window)
    cell = MeasuredCell(
        source=window.source,
        num_speculative_tokens=k,
        tokens_per_step=1.0 if k == 0 else length,
        kv_cache_tokens=_largest(window, "sglang:max_total_num_tokens"),
        engine="sglang",
        model=window.model or None,
        notes=("tokens per step is a gauge of the last log interval",) if length and k != 0 else (),
    )
    if window.first is None:
        reason = "times of one snapshot are means since the server's start, whatever ran; give a second snapshot"
        return Evidence((cell,), refused=(Refused(window.source, reason),))
    tokens, tpot_s = window.delta(_TOKENS), _mean(window, _ITL)
    if not tokens or tpot_s is None:
        return Evidence(refused=(Refused(window.source, "no token was decoded in this window"),))
    low, high = PLAUSIBLE_TIME_S
    if not low <= tpot_s <= high:
        return Evidence(refused=(Refused(window.source, f"{tpot_s:.3g} s per token is none that a server has"),))
    return Evidence((_timed(cell, window, tokens, tpot_s),))


def _timed(cell: MeasuredCell, window: Window, tokens: float, tpot_s: float) -> MeasuredCell:
    running, started = _running(window), window.delta(f"{_TTFT}_count")
    steady = len(running) == 2 and min(running) > 0 and max(running) <= _UNEVEN * min(running)
    inputs = (window.delta("sglang:prompt_tokens_total") or 0.0) / started if started else None
    outputs = tokens / started if started else None
    elapsed_s = window.elapsed_s
    notes = cell.notes if steady else (*cell.notes, "running requests differ at the ends: the load is not known")
    return MeasuredCell(
        source=cell.source,
        concurrency=sum(running) / len(running) if steady else None,
        num_speculative_tokens=cell.num_speculative_tokens,
        tpot_s=tpot_s,
        step_s=tpot_s * cell.tokens_per_step if cell.tokens_per_step else None,
        ttft_s=_mean(window, _TTFT),
        throughput_tokens_per_s=tokens / elapsed_s if elapsed_s and elapsed_s > 0 else None,
        tokens_per_step=cell.tokens_per_step,
        relative_noise=_NOISE,
        num_requests=started,
        input_tokens=inputs or None,
        output_tokens=outputs,
        context_tokens=mean_context(inputs, outputs),
        kv_cache_tokens=cell.kv_cache_tokens,
        engine=cell.engine,
        model=cell.model,
        notes=notes,
        duration_s=elapsed_s,
    )


def _running(window: Window) -> list[float]:
    """Running requests at both ends."""
    ends = (gauge(scrape, "sglang:num_running_reqs") for scrape in (window.first, window.last) if scrape is not None)
    return [value for value in ends if value is not None]


def gauge(scrape: Scrape, name: str) -> float | None:
    """A gauge with engines added up and ranks of one engine, which repeat it, counted once; None without it."""
    engines: dict[Labels, float] = {}
    for labels, value in scrape.labelled(name).items():
        engine = tuple(pair for pair in labels if pair[0] not in _RANKS)
        engines[engine] = max(value, engines.get(engine, 0.0))
    return sum(engines.values()) if engines else None


def _mean(window: Window, histogram: str) -> float | None:
    observed, total = window.delta(f"{histogram}_count"), window.delta(f"{histogram}_sum")
    return total / observed if observed and total and observed > 0 else None


def _largest(window: Window, name: str) -> float | None:
    """A gauge that every rank repeats."""
    return max((value for value in window.last.labelled(name).values() if value > 0), default=None)


def num_steps(window: Window) -> int | None:
    """Draft tokens of a chain: speculative steps; 0 where nothing speculative is exported."""
    steps = _largest(window, "sglang:spec_num_steps")
    if steps is not None:
        width = _largest(window, "sglang:spec_num_draft_tokens")
        return None if width is not None and width > steps + 1 else int(steps)  # wider: a tree of drafts
    return None if any(name.startswith("sglang:spec_") for name in window.last.samples) else 0


def _accept_length(window: Window) -> float | None:
    lengths = [_largest(window, "sglang:spec_accept_length")]
    if window.first is not None:
        values = window.first.labelled("sglang:spec_accept_length").values()
        lengths.append(max((value for value in values if value > 0), default=None))
    known = [value for value in lengths if number(value) is not None and value is not None and value >= 1]
    return sum(known) / len(known) if known else None
