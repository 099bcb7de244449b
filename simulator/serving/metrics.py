"""What a run is summed up by. Every figure is defined here, in the docstring of what computes it."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.serving.histogram import Histogram, TimeSeries
from simulator.serving.request import Request

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

NUM_BATCHES = 20  # of requests, for the interval of the speedup
_SERIES = ("running", "waiting", "kv_usage", "tokens_per_s")
OF_ALL_ENGINES = ("running", "waiting", "tokens_per_s")  # of these, what engines that share a load add up
_PERCENTILES = (50, 95, 99)


@dataclass(frozen=True, slots=True)
class Slo:
    """The longest acceptable times; None where there is no limit."""

    ttft_s_max: float | None = None
    tpot_s_max: float | None = None
    percentile: float = 95.0

    @property
    def stated(self) -> bool:
        """Whether there is a limit at all."""
        return self.ttft_s_max is not None or self.tpot_s_max is not None

    def kept(self, request: Request) -> bool:
        """Whether a finished request met every limit."""
        if self.ttft_s_max is not None and request.ttft_s > self.ttft_s_max:
            return False
        tpot = request.tpot_s
        return self.tpot_s_max is None or tpot is None or tpot <= self.tpot_s_max


@dataclass(frozen=True, slots=True)
class Counting:
    """Which requests count, by number: those of the ramp-up and of the tail do not.

    `until_closed`: only those that finish while the window is open (a closed loop: afterwards fewer users are busy).
    """

    first: int
    end: int
    until_closed: bool

    def batch_of(self, number: int) -> int | None:
        """The batch of consecutive requests for the interval of the speedup; None outside."""
        if not self.first <= number < self.end:
            return None
        return (number - self.first) * NUM_BATCHES // (self.end - self.first)


@dataclass(slots=True)
class Totals:
    """Sums over the whole run, for the invariants and the rates."""

    arrived: int = 0
    finished: int = 0
    rejected: int = 0
    steps: int = 0  # engine steps
    decode_steps: int = 0  # (request, step) pairs
    step_time_s: float = 0.0  # summed over these pairs
    busy_s: float = 0.0
    first_tokens: int = 0
    decode_tokens: int = 0  # emitted, cut at the limit of the request
    wasted_tokens: int = 0  # accepted beyond that limit
    drafts: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0  # as the engine's counters: those beyond the limit included
    prompt_tokens: int = 0  # computed, those of recomputation included
    preemptions: int = 0
    lost_tokens: int = 0  # generated, then lost in an outage


@dataclass(slots=True)
class ArmMetrics:
    """The figures of one arm, kept up to date as the run goes; memory does not grow with the run."""

    slo: Slo
    counting: Counting
    totals: Totals = field(default_factory=Totals)
    ttft: Histogram = field(default_factory=Histogram)
    tpot: Histogram = field(default_factory=Histogram)
    itl: Histogram = field(default_factory=Histogram)
    e2e: Histogram = field(default_factory=Histogram)
    series: TimeSeries = field(default_factory=lambda: TimeSeries(_SERIES))
    series_tokens: int = 0  # of the tokens, those that the series has seen
    open_s: float = np.inf  # of the window for rates
    close_s: float = np.inf
    window_tokens: float = 0.0
    counted: int = 0
    kept: int = 0
    kept_tokens: int = 0
    rejections: dict[str, int] = field(default_factory=dict)
    kv_usage_s: float = 0.0  # usage integrated over busy time
    kv_usage_max: float = 0.0
    batch_e2e_s: Array = field(default_factory=lambda: np.zeros(NUM_BATCHES))
    batch_tpot_s: Array = field(default_factory=lambda: np.zeros(NUM_BATCHES))
    batch_requests: Ints = field(default_factory=lambda: np.zeros(NUM_BATCHES, dtype=np.int64))

    def decoded(self, seconds: Array, rows: int, tokens: int) -> None:
        """Consecutive decode steps of so many rows: their durations, and the tokens that came out, cut at limits."""
        totals = self.totals
        totals.decode_steps += rows * len(seconds)
        totals.step_time_s += rows * float(np.add.reduce(seconds))
        totals.decode_tokens += tokens

    def emitted_until(self, ends_s: Array, total: Ints, beyond: int) -> None:
        """Tokens emitted up to the ends of consecutive steps, `beyond` of the last ones too many: for the window."""
        first, last = float(ends_s[0]), float(ends_s[-1])
        if first > self.open_s and last <= self.close_s:
            self.window_tokens += int(total[-1]) - beyond
        elif last > self.open_s and first <= self.close_s:
            tokens = np.diff(total, prepend=0)
            tokens[-1] -= beyond
            self.window_tokens += int(tokens[(ends_s > self.open_s) & (ends_s <= self.close_s)].sum())

    def emitted_at(self, time_s: float, tokens: int) -> None:
        """Tokens that came out at one time, for the window."""
        if self.open_s < time_s <= self.close_s:
            self.window_tokens += tokens

    def finished(self, request: Request, now_s: float) -> None:
        """A request is done."""
        self.totals.finished += 1
        counting = self.counting
        if counting.until_closed:
            counts = self.open_s < now_s <= self.close_s
        else:
            counts = counting.first <= request.number < counting.end
        if counts:
            self._count(request)
        batch = counting.batch_of(request.number)
        if batch is not None:
            self.batch_requests[batch] += 1
            self.batch_e2e_s[batch] += request.e2e_s
            self.batch_tpot_s[batch] += request.tpot_s or 0.0

    def _count(self, request: Request) -> None:
        self.counted += 1
        tpot = request.tpot_s
        self.ttft.add_one(request.ttft_s)
        self.e2e.add_one(request.e2e_s)
        if tpot is not None:
            self.tpot.add_one(tpot)
        if self.slo.kept(request):
            self.kept += 1
            self.kept_tokens += request.output_tokens

    def rejected(self, request: Request) -> None:
        """A request that can never run."""
        self.totals.rejected += 1
        self.rejections[request.rejected] = self.rejections.get(request.rejected, 0) + 1

    def window_s(self, now_s: float) -> float:
        """Length of the window: from when all users are busy (or the warm-up requests have arrived) to the last send.

        0 where it never opened.
        """
        return max(min(self.close_s, now_s) - self.open_s, 0.0) if np.isfinite(self.open_s) else 0.0

    @property
    def step_s(self) -> float | None:
        """Mean engine step that a decoding request sees: step durations averaged over (request, step) pairs."""
        return self.totals.step_time_s / self.totals.decode_steps if self.totals.decode_steps else None

    @property
    def tokens_per_step(self) -> float | None:
        """Decode tokens emitted (cut at the limit) per (request, step), draftless steps included."""
        return self.totals.decode_tokens / self.totals.decode_steps if self.totals.decode_steps else None

    @property
    def attainment(self) -> float | None:
        """Share of the counted requests that met every limit; rejected ones did not."""
        total = self.counted + self.totals.rejected
        return self.kept / total if total else None


def spread(histogram: Histogram) -> dict[str, float | None]:
    """`{p50, p95, p99, mean}` of a distribution, seconds."""
    percentiles: dict[str, Any] = {f"p{percent}": histogram.percentile_s(percent) for percent in _PERCENTILES}
    return {**percentiles, "mean": histogram.mean_s}
