"""Requests one by one, where a benchmark kept them: exact means, and the part in which all users were busy."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from calibration.readers.runs import CONCURRENCY_RAN, Run
from calibration.readers.values import mean, median, standard_deviation

_MIN_STEADY_REQUESTS = 8  # fewer say too little about a load
_COLD = 1.5  # first requests this much slower than the rest were compiling or capturing
_MIN_ROUNDS = 2  # without a second round there is nothing to compare the first with


@dataclass(frozen=True, slots=True)
class RequestTimes:
    """One successful request; seconds. `gaps_s` are the times between its chunks, None where not kept."""

    ttft_s: float
    latency_s: float
    output_tokens: float
    input_tokens: float | None = None
    start_s: float | None = None
    gaps_s: Sequence[float] | None = None

    @property
    def tpot_s(self) -> float | None:
        """(latency - TTFT) / (output tokens - 1); None for a request of one token."""
        if self.output_tokens <= 1 or self.latency_s <= self.ttft_s:
            return None
        return (self.latency_s - self.ttft_s) / (self.output_tokens - 1)


def with_requests(run: Run, requests: Sequence[RequestTimes]) -> Run:
    """`run` with the figures of its single requests; cold ones at the start and the ramps left out where possible."""
    decoded = [item for item in requests if item.tpot_s is not None]
    if not decoded:
        return run
    kept, notes = _without_cold(decoded, run.requested)
    steady = _steady(decoded, run.requested) if run.requested and run.request_rate_per_s is None else None
    if steady is not None and len(steady) < len(decoded):
        in_steady = {id(item) for item in steady}
        kept = [item for item in kept if id(item) in in_steady] or steady
        notes += (f"{len(kept)} of {len(decoded)} requests, those that ran while all users were busy",)
    run = _with_means(run, kept, whole=len(kept) == len(decoded))
    return replace(run, steady=steady is not None, notes=run.notes + notes)


def _with_means(run: Run, kept: Sequence[RequestTimes], *, whole: bool) -> Run:
    tpots = [item.tpot_s for item in kept if item.tpot_s is not None]
    inputs = [item.input_tokens for item in kept if item.input_tokens is not None]
    run = replace(
        run,
        tpot_s=mean(tpots),
        tpot_median_s=median(tpots),
        tpot_sd_s=standard_deviation(tpots),
        ttft_s=mean([item.ttft_s for item in kept]),
        latency_s=mean([item.latency_s for item in kept]) if whole else run.latency_s,
        output_tokens=mean([item.output_tokens for item in kept]),
        input_tokens=mean(inputs) if inputs else run.input_tokens,
        throughput_tokens_per_s=run.throughput_tokens_per_s if whole else None,
    )
    return _with_gaps(run, kept)


def _with_gaps(run: Run, kept: Sequence[RequestTimes]) -> Run:
    """Tokens per chunk counted, not derived: decode tokens over gaps, all requests together."""
    with_gaps = [item for item in kept if item.gaps_s]
    gaps = [gap for item in with_gaps for gap in item.gaps_s or ()]
    if not gaps or len(with_gaps) < len(kept):
        return run
    tokens = sum(item.output_tokens - 1 for item in kept)
    return replace(run, gap_s=mean(gaps), gap_median_s=median(gaps), tokens_per_step=tokens / len(gaps))


def _without_cold(requests: list[RequestTimes], users: float | None) -> tuple[list[RequestTimes], tuple[str, ...]]:
    """The requests without a slow first round: kernels that compile, graphs that are captured, a cold cache."""
    first_round = max(1, round(users or 1))
    if len(requests) < _MIN_ROUNDS * first_round or len(requests) < _MIN_STEADY_REQUESTS:
        return requests, ()
    ordered = requests
    if all(item.start_s is not None for item in requests):
        ordered = sorted(requests, key=lambda item: item.start_s or 0.0)
    cold = mean([item.tpot_s or 0.0 for item in ordered[:first_round]])
    rest = median([item.tpot_s or 0.0 for item in ordered[first_round:]])
    if cold <= _COLD * rest:
        return requests, ()
    what = "first request" if first_round == 1 else f"first {first_round} requests"
    return ordered[first_round:], (f"the {what} took {cold / rest:.1f} times as long per token: left out as warm-up",)


def _steady(requests: Sequence[RequestTimes], users: float) -> list[RequestTimes] | None:
    """Those that decoded while `users` were in flight on average; None where start times are missing or too few."""
    if any(item.start_s is None for item in requests):
        return None
    starts = np.array([item.start_s for item in requests], dtype=float)
    ends = starts + np.array([item.latency_s for item in requests])
    firsts = starts + np.array([item.ttft_s for item in requests])
    busy = _mean_in_flight(starts, ends, firsts) >= CONCURRENCY_RAN * users
    kept = [item for item, stays in zip(requests, busy, strict=True) if stays]
    return kept if len(kept) >= min(_MIN_STEADY_REQUESTS, len(requests)) else None


def _mean_in_flight(
    starts: npt.NDArray[np.float64], ends: npt.NDArray[np.float64], firsts: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Mean number of requests in flight between each request's first token and its end, (num_requests,)."""
    times = np.concatenate([starts, ends])
    order = np.argsort(times, kind="stable")
    times = times[order]
    changes = np.concatenate([np.ones(len(starts)), -np.ones(len(ends))])[order]
    in_flight = np.cumsum(changes)
    area = np.concatenate([[0.0], np.cumsum(in_flight[:-1] * np.diff(times))])  # integral of the number in flight
    covered = np.interp(ends, times, area) - np.interp(firsts, times, area)
    result: npt.NDArray[np.float64] = covered / np.maximum(ends - firsts, np.finfo(float).tiny)
    return result
