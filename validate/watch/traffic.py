"""What one window of /metrics says about the traffic of now: load, lengths, step time, drafts and what became of them.

Semantics of the counters: `calibration.readers.vllm_metrics`, `sglang_metrics`. Time average of running requests: the
gaps between tokens add up to the time that requests spent decoding, so their sum over the window's length is it
(Little's law, both engines).
"""

from dataclasses import dataclass

from calibration.readers.metrics_pairs import Window, windows_of
from calibration.records import AcceptanceCounts
from validate.client.scrapes import RUNNING, Counted, gauge_of
from validate.measure.server_side import ServerSide, server_side

MIN_STEPS = 50  # (request, decode step) pairs: below it a window tells nothing about a load
MIN_DRAFTS = 30  # below it acceptance is that of the whole time since the server's start
_MISCOUNTED = 1.5  # times the requests of a step
_MIN_FINISHED = 5  # requests that ended, for the mean lengths of a window
_ITL_SUMS = ("inter_token_latency_seconds_sum", "time_per_output_token_seconds_sum")


@dataclass(frozen=True, slots=True)
class Traffic:
    """The traffic of one window; None: not told."""

    num_speculative_tokens: int | None
    concurrency: float  # requests in a decode step, mean over steps
    running_mean: float | None  # mean over the time, idle time included
    waiting: float | None  # at the window's end
    input_tokens: float | None
    output_tokens: float | None
    prefix_hit_share: float | None
    tokens_per_step: float | None
    step_s: float
    tpot_s: float
    relative_noise: float
    throughput_tokens_per_s: float | None
    steps: float  # (request, decode step) pairs
    num_requests: float  # that had tokens in the window
    acceptance: AcceptanceCounts | None  # of the window, or since the start where it has too few drafts
    acceptance_source: str | None  # "window", "start"
    draft_probability: float | None  # of the window
    kv_cache_tokens: float | None
    notes: tuple[str, ...] = ()

    @property
    def per_position(self) -> tuple[float, ...] | None:
        """Share of the drafts whose position i was accepted."""
        counts = self.acceptance
        return None if counts is None else tuple(n / counts.drafts for n in counts.accepted_per_position)


@dataclass(frozen=True, slots=True)
class Quiet:
    """Why a window says nothing: `status` is "idle", "frozen", "few" or "unreadable"."""

    status: str
    reason: str


def traffic_of(window: Window) -> Traffic | Quiet:
    """The traffic of a window between two scrapes."""
    side = server_side(window)
    cell, totals = side.cell, side.totals
    if totals.generated_tokens is None:
        return Quiet("unreadable", _first(side.refused, "/metrics does not count generated tokens"))
    if not totals.generated_tokens:
        return _still(window)
    if cell is None or cell.step_s is None or cell.tpot_s is None:
        return Quiet(_kind(side, totals.generated_tokens), _first(side.refused, "no step time can be read"))
    steps = max(totals.generated_tokens - (totals.first_tokens or 0.0), 0.0) / (cell.tokens_per_step or 1.0)
    if steps < MIN_STEPS:
        return Quiet("few", f"only {steps:.0f} steps of requests in this interval: too few to tell (from {MIN_STEPS})")
    running = _running_mean(window)
    gauges = (gauge_of(scrape, *RUNNING) or 0.0 for scrape in (window.first, window.last) if scrape is not None)
    load, doubts = _load(cell.concurrency, running, max(gauges, default=0.0))
    start = since_start(window)
    lengths = cell if (cell.num_requests or 0) >= _MIN_FINISHED or start is None else start.cell or cell
    counts, source = _acceptance(side, start)
    return Traffic(
        num_speculative_tokens=cell.num_speculative_tokens,
        concurrency=load,
        running_mean=running,
        waiting=Counted(0.0, window.last).waiting,
        input_tokens=lengths.input_tokens,
        output_tokens=lengths.output_tokens,
        prefix_hit_share=totals.prefix_hit_share,
        tokens_per_step=cell.tokens_per_step,
        step_s=cell.step_s,
        tpot_s=cell.step_s / (cell.tokens_per_step or 1.0),
        relative_noise=cell.relative_noise or 1.0,
        throughput_tokens_per_s=cell.throughput_tokens_per_s,
        steps=steps,
        num_requests=(totals.first_tokens or 0.0) + (_running_at_start(window) or 0.0),
        acceptance=counts,
        acceptance_source=source,
        draft_probability=cell.draft_probability,
        kv_cache_tokens=cell.kv_cache_tokens,
        notes=(*doubts, *_notes(side)),
    )


def _load(counted: float | None, running: float | None, at_ends: float) -> tuple[float, tuple[str, ...]]:
    """(requests in a step, what is odd), from the count of steps, the mean over the time and the gauge at the ends.

    The mean over the time cannot be far above that over the steps: only slow, full steps raise it. Where it is, and the
    gauge agrees, the step count is wrong, as with several API servers (docs/watch.md).
    """
    over_time = max(running or 1.0, 1.0)
    if counted is None or min(over_time, at_ends) <= _MISCOUNTED * counted:
        return counted or over_time, ()
    return min(over_time, at_ends), (
        f"{counted:.3g} requests a step by the count of steps, {over_time:.3g} by the gaps between tokens and"
        f" {at_ends:.3g} by the gauge, which count",
    )


def since_start(window: Window) -> ServerSide | None:
    """What the later scrape alone says: everything since the server's start."""
    found, _ = windows_of([window.last])
    return next((server_side(item) for item in found if item.model == window.model), None)


def _still(window: Window) -> Quiet:
    """No token: nobody asks, or the counters stand still while somebody does."""
    running = [gauge_of(scrape, *RUNNING) or 0.0 for scrape in (window.first, window.last) if scrape is not None]
    if min(running, default=0.0) > 0:
        count = f"{running[-1]:g} request{'' if running[-1] == 1 else 's'}"
        return Quiet(
            "frozen", f"the counters stand still while {count} run: /metrics is frozen, or the engine is stuck"
        )
    return Quiet("idle", "no traffic")


def _kind(side: ServerSide, tokens: float) -> str:
    few = tokens - (side.totals.first_tokens or 0.0) < MIN_STEPS
    return "few" if few and side.cell is None else "unreadable"


def _first(refused: tuple[str, ...], otherwise: str) -> str:
    return next(iter(refused), otherwise)


def _running_mean(window: Window) -> float | None:
    sums = (window.delta(f"{window.engine}:{name}") for name in _ITL_SUMS)
    total_s = next((value for value in sums if value is not None), None)
    return None if total_s is None or not window.elapsed_s else total_s / window.elapsed_s


def _running_at_start(window: Window) -> float | None:
    return None if window.first is None else gauge_of(window.first, *RUNNING)


def _acceptance(side: ServerSide, start: ServerSide | None) -> tuple[AcceptanceCounts | None, str | None]:
    """(counts, whose they are)."""
    now = side.acceptance
    if now is not None and now.drafts >= MIN_DRAFTS:
        return now, "window"
    before = start.acceptance if start is not None else None
    if before is not None and before.drafts >= MIN_DRAFTS:
        return before, "start"
    return None, None


def _notes(side: ServerSide) -> tuple[str, ...]:
    return (*(side.cell.notes if side.cell is not None else ()), *(item for item in side.refused))
