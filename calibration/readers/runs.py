"""One run of a load generator, and what of it may be used: the judgement shared by every benchmark tool's reader.

docs/measurements.md tells the traps; each rule below names the reason it gives.
"""

import math
from dataclasses import dataclass, replace

from calibration.readers.values import first
from calibration.records import AcceptanceCounts, Evidence, MeasuredCell, Refused
from hwmodel.percent import percent

# Below this share of the asked-for users the run was another one. Ramp-up and tail of ten rounds take 5 %.
CONCURRENCY_RAN = 0.9
# Requests that wait for their first token are not decoding. Prefill alone keeps a quarter of them at most in any
# load that says something about decoding; beyond it the batch was limited (KV cache, max_num_seqs) or is prefill.
DECODING_SHARE = 0.75
MAX_FAILED_SHARE = 0.05  # of the requests: the load that they took is in no figure
MIN_OUTPUT_TOKENS = 8.0  # the first step after a prefill is no mean step
MAX_PREFILL_SHARE = 0.5  # of the time between tokens; beyond it the number is a prefill measurement
PLAUSIBLE_TIME_S = (2e-5, 60.0)  # of a token or a step: outside, the unit is not what the key says
# Noise of a mean: model specification section 7, 2 % with 200 requests or more and 5 % for a cell of ten seconds.
NOISE_FLOOR = 0.02
_NOISE_TEN_SECONDS = 0.046  # with the floor 5 %
_TEN_SECONDS = 10.0
_REQUEST_SCATTER = 0.2  # relative, between requests of one run, where it is not told
_PREFILL_DOUBT = 0.3  # how well a share of prefill can be taken out of a mean
_BURST_NOISE = 0.1  # all requests at once: the batch shrinks from the first to the last token
_OPEN_LOOP_NOISE = 0.05  # arrivals at a rate: the batch varies around its mean
_SHORT_OUTPUT_TOKENS = 32.0
_SHORT_OUTPUT_NOISE = 0.05
_SKEW = 1.15  # mean over median of TPOT: warm-up or stalls
_SAME = 0.05  # relative distance of two figures of one run that is rounding and weighting
_ONE_TOKEN = 0.15  # a mean over requests and a mean over gaps of tokens one by one lie this close together
_MORE_THAN_ALL = (
    1.5  # requests decoding, by Little's law, over users: means over requests and over tokens differ by less
)
_WORTH_SAYING = 0.1
_LONG_PROMPT = 4.0  # input per output token


@dataclass(frozen=True, slots=True)
class Run:
    """What a load generator says of one run, in SI units, before it is judged. `None`: not told.

    `gap_s` is the mean time between two streamed chunks of a request: one engine step, whatever the number of tokens.
    """

    source: str
    requested: float | None = None  # users of a closed loop
    request_rate_per_s: float | None = None  # arrivals of an open loop; None: as fast as possible
    num_completed: float | None = None
    num_failed: float | None = None
    duration_s: float | None = None
    tpot_s: float | None = None  # (latency - TTFT) / (output tokens - 1), mean over requests
    tpot_median_s: float | None = None
    tpot_sd_s: float | None = None
    gap_s: float | None = None
    gap_median_s: float | None = None
    ttft_s: float | None = None
    latency_s: float | None = None
    input_tokens: float | None = None
    output_tokens: float | None = None
    throughput_tokens_per_s: float | None = None
    concurrency: float | None = None  # mean over the run, as the tool says it
    peak_concurrency: float | None = None
    tokens_per_step: float | None = None
    num_speculative_tokens: int | None = None
    method: str | None = None
    acceptance: AcceptanceCounts | None = None
    engine: str | None = None
    engine_version: str | None = None
    model: str | None = None
    steady: bool = False  # only requests of the window in which all users were busy are in the figures
    notes: tuple[str, ...] = ()


def judged(run: Run) -> Evidence:
    """The cell that `run` is, or why it is none; single values that cannot be used are refused one by one."""
    reason = _useless(run) or _other_load(run) or _mostly_prefill(run)
    if reason:
        return Evidence(refused=(Refused(run.source, reason),))
    cell = MeasuredCell(
        source=run.source,
        concurrency=_concurrency(run),
        num_speculative_tokens=run.num_speculative_tokens,
        method=run.method,
        tpot_s=run.tpot_s,
        ttft_s=run.ttft_s,
        throughput_tokens_per_s=run.throughput_tokens_per_s,
        relative_noise=_noise(run),
        num_requests=run.num_completed,
        input_tokens=run.input_tokens,
        output_tokens=run.output_tokens,
        context_tokens=mean_context(run.input_tokens, run.output_tokens),
        acceptance=run.acceptance,
        engine=run.engine,
        engine_version=run.engine_version,
        model=run.model,
        notes=run.notes + _notes(run),
        prefill_share=prefill_share(run),
        duration_s=run.duration_s,
        draft_probability=draft_probability(run.acceptance),
    )
    return with_steps(cell, run.gap_s, run.tokens_per_step)


def mean_context(input_tokens: float | None, output_tokens: float | None) -> float | None:
    """Mean context while decoding: the prompt and half the output."""
    if input_tokens is None or output_tokens is None:
        return None
    return input_tokens + output_tokens / 2


def draft_probability(counts: AcceptanceCounts | None) -> float | None:
    """Drafts per (request, decode step), at most 1; None where steps were not counted."""
    return min(1.0, counts.drafts / counts.steps) if counts is not None and counts.steps else None


def with_steps(cell: MeasuredCell, gap_s: float | None, tokens_per_step: float | None) -> Evidence:
    """`cell` with its step time and tokens per step, from the time between chunks or the tokens of a chunk.

    TPOT = step time / tokens per step, so one of the two gives the other. A chunk is one engine step only where the
    server streams every step: a chunk with more than 1 + k tokens shows that it does not.
    """
    k, tpot_s = cell.num_speculative_tokens, cell.tpot_s
    tokens = first(tokens_per_step, gap_s / tpot_s if gap_s and tpot_s else None)
    if k == 0:
        notes = cell.notes
        if tokens is not None and tokens > 1 + _WORTH_SAYING:
            notes += (f"without speculation a chunk carried {tokens:.2f} tokens: several steps a chunk",)
        return Evidence((replace(cell, step_s=tpot_s, tokens_per_step=1.0, notes=notes),))
    if tokens is None or tpot_s is None:
        return Evidence((cell,))
    if k is not None and tokens > (1 + k) * (1 + _ONE_TOKEN):
        reason = (
            f"time between chunks: a chunk carried {tokens:.2f} tokens, more than the {1 + k} of a step with k = {k}: "
            "a chunk is several steps (--stream-interval, or a client that reads too slowly)"
        )
        return Evidence((cell,), refused=(Refused(cell.source, reason),))
    if tokens < 1 - _ONE_TOKEN:
        reason = (
            f"time between chunks: {tokens:.2f} tokens a chunk; below 1 chunks without a token are counted, "
            "or tokens were counted by another tokenizer"
        )
        return Evidence((cell,), refused=(Refused(cell.source, reason),))
    notes = cell.notes
    if k is None and tokens <= 1 + _ONE_TOKEN:
        return Evidence((replace(cell, step_s=tpot_s, tokens_per_step=1.0),))
    if k is None:
        notes += (f"{tokens:.2f} tokens a chunk: read as speculation (a --stream-interval above 1 looks the same)",)
    tokens = max(1.0, tokens)
    return Evidence((replace(cell, step_s=tpot_s * tokens, tokens_per_step=tokens, notes=notes),))


def measured_concurrency(run: Run) -> float | None:
    """Requests in flight, mean over the run: the tool's figure, else Little's law (rate times latency)."""
    if run.concurrency is not None:
        return run.concurrency
    latency_s = _latency_s(run)
    if latency_s is None or not run.num_completed or not run.duration_s:
        return None
    return run.num_completed * latency_s / run.duration_s


def decoding_concurrency(run: Run) -> float | None:
    """Requests past their first token, mean over the run: decode tokens per second times TPOT (Little's law)."""
    if not (run.num_completed and run.output_tokens and run.tpot_s and run.duration_s):
        return None
    return run.num_completed * (run.output_tokens - 1) * run.tpot_s / run.duration_s


def prefill_share(run: Run) -> float | None:
    """Share of the time between tokens that other requests' prefill took: what the mean gap is above the median.

    The median gap is a plain decode step, unless drafted and undrafted steps alternate: then it says nothing.
    """
    if run.gap_s is None or not run.gap_median_s or _varied_drafts(run):
        return None
    return max(0.0, 1 - run.gap_median_s / run.gap_s)


def _latency_s(run: Run) -> float | None:
    if run.latency_s is not None:
        return run.latency_s
    if run.ttft_s is None or run.tpot_s is None or run.output_tokens is None:
        return None
    return run.ttft_s + run.tpot_s * max(0.0, run.output_tokens - 1)


def _useless(run: Run) -> str | None:
    """Why `run` is no measurement of decoding at all."""
    if run.num_completed == 0:
        return "no request completed"
    failed, completed = run.num_failed or 0.0, run.num_completed or 0.0
    if failed > MAX_FAILED_SHARE * (failed + completed):
        return (
            f"{failed:g} of {failed + completed:g} requests failed: the load they took is in no figure "
            f"(allowed: {percent(MAX_FAILED_SHARE)})"
        )
    if run.output_tokens is not None and run.output_tokens < MIN_OUTPUT_TOKENS:
        return f"outputs of {run.output_tokens:.3g} tokens on average: too short for a time per token"
    if run.tpot_s is None:
        return "no time per output token: not streamed, or outputs of one token"
    low, high = PLAUSIBLE_TIME_S
    if not low <= run.tpot_s <= high:
        return f"TPOT of {run.tpot_s:.3g} s is none that a server has ({low:g} to {high:g} s): another unit?"
    return None


def _other_load(run: Run) -> str | None:
    """Why the asked-for concurrency is not what ran; None where it ran, or none was asked for."""
    users = run.requested
    if users is None or run.request_rate_per_s is not None:
        return None
    return (None if run.steady else _never_ran(run, users)) or _more_than_ran(run, users) or _waiting(run, users)


def _more_than_ran(run: Run, users: float) -> str | None:
    """Why TPOT cannot be what its key says: with it more would decode than the users of a closed loop."""
    decoding = decoding_concurrency(run)
    if decoding is None or decoding <= users * _MORE_THAN_ALL:
        return None
    return (
        f"tokens per second times TPOT is {decoding:.3g} requests decoding at once, more than the {users:g} users: "
        "TPOT or the duration is of another unit, or of another run"
    )


def _never_ran(run: Run, users: float) -> str | None:
    made = (run.num_completed or 0.0) + (run.num_failed or 0.0)
    if run.num_completed is not None and made < users:
        return f"asked for {users:g} at once, but only {made:g} requests were made"
    if run.peak_concurrency is not None and run.peak_concurrency < users * CONCURRENCY_RAN:
        return f"asked for {users:g} at once, but at most {run.peak_concurrency:g} ever ran together"
    ran = measured_concurrency(run)
    if ran is not None and ran < users * CONCURRENCY_RAN:
        rounds = made / users
        return (
            f"asked for {users:g} at once, but {ran:.3g} were in flight on average (requests per second times "
            f"latency): {rounds:.2g} rounds of requests, so ramp-up and tail are a large part, or a limit below it"
        )
    return None


def _waiting(run: Run, users: float) -> str | None:
    """Why fewer decoded than were in flight: a request's time before its first token is too large a part."""
    if users <= 1 or run.ttft_s is None or run.tpot_s is None or run.output_tokens is None:
        return None
    decode_s = run.tpot_s * (run.output_tokens - 1)
    share = decode_s / (decode_s + run.ttft_s)
    if share >= DECODING_SHARE:
        return None
    return (
        f"asked for {users:g} at once, but only {users * share:.3g} were decoding on average (TTFT is"
        f" {percent(1 - share)} of the latency): the others waited in the queue (KV cache or max_num_seqs"
        " full) or for their prefill"
    )


def _mostly_prefill(run: Run) -> str | None:
    share = prefill_share(run)
    if share is None or share <= MAX_PREFILL_SHARE:
        return None
    return (
        f"{percent(share)} of the time between tokens is above the median gap: other requests' prefill (long"
        " prompts or short outputs) or stalls, not decoding"
    )


def _concurrency(run: Run) -> float | None:
    if run.requested is not None and run.request_rate_per_s is None:
        return run.requested
    in_flight = measured_concurrency(run)
    decoding = decoding_concurrency(run)
    if run.request_rate_per_s is None and decoding is not None:
        in_flight = decoding  # all at once: most of them wait in the server's queue
    return max(1.0, in_flight) if in_flight is not None else None


def _noise(run: Run) -> float:
    """Relative standard error of the times: requests, length of the run, and what distorts its mean."""
    parts = [NOISE_FLOOR, *_distortions(run)]
    if run.duration_s:
        parts.append(_NOISE_TEN_SECONDS * math.sqrt(_TEN_SECONDS / run.duration_s))
    if run.tpot_sd_s is not None and run.tpot_s and run.num_completed:
        parts.append(run.tpot_sd_s / run.tpot_s / math.sqrt(run.num_completed))
    elif run.num_completed:
        parts.append(_REQUEST_SCATTER / math.sqrt(run.num_completed))
    return min(1.0, math.sqrt(math.fsum(part * part for part in parts)))


def _distortions(run: Run) -> list[float]:
    found = [_PREFILL_DOUBT * (prefill_share(run) or 0.0)]
    if run.tpot_s and run.tpot_median_s and run.tpot_s > _SKEW * run.tpot_median_s:
        found.append((run.tpot_s / run.tpot_median_s - 1) / 2)
    if run.request_rate_per_s is not None:
        found.append(_OPEN_LOOP_NOISE)
    elif run.requested is None:
        found.append(_BURST_NOISE)
    if run.output_tokens is not None and run.output_tokens < _SHORT_OUTPUT_TOKENS:
        found.append(_SHORT_OUTPUT_NOISE)
    return found


def _notes(run: Run) -> tuple[str, ...]:
    notes = []
    if run.requested is not None and run.request_rate_per_s is None and measured_concurrency(run) is None:
        notes.append("no duration or latency: whether the asked-for concurrency ran cannot be checked")
    if run.num_failed:
        notes.append(f"{run.num_failed:g} requests failed and are in no figure")
    if run.request_rate_per_s is not None:
        notes.append(f"arrivals at {run.request_rate_per_s:g} per second: concurrency is the mean in flight")
    elif run.requested is None:
        notes.append("all requests sent at once: concurrency is the mean number decoding, the batch shrank over time")
    if run.tpot_s and run.tpot_median_s and run.tpot_s > _SKEW * run.tpot_median_s:
        notes.append(f"mean TPOT is {run.tpot_s / run.tpot_median_s:.2f} times the median: warm-up or stalls in it")
    share = prefill_share(run)
    if share is not None and share > _WORTH_SAYING:
        notes.append(f"{percent(share)} of the time between tokens is other requests' prefill")
    elif _long_prompts(run):
        notes.append("long prompts against the outputs: part of the time between tokens is other requests' prefill")
    return tuple(notes)


def _long_prompts(run: Run) -> bool:
    many = (run.requested or measured_concurrency(run) or 1.0) > 1
    return bool(many and run.input_tokens and run.output_tokens and run.input_tokens > _LONG_PROMPT * run.output_tokens)


def _varied_drafts(run: Run) -> bool:
    """Whether steps with and without a draft alternate, as with text lookup."""
    counts = run.acceptance
    if counts is not None and counts.steps and counts.drafts < (1 - _SAME) * counts.steps:
        return True
    return run.method in ("ngram", "ngram_gpu", "suffix")
