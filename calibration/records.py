"""What a measurement says, whatever tool wrote it: readers make these records, the fit and the validator use them.

Times are seconds, shares lie in 0..1. `None` means that the source does not tell; a value that the source tells but
that cannot be used stands in `Refused`, with the reason.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AcceptanceCounts:
    """Draft tokens proposed and accepted, pooled over requests (docs/model.md: per draft, unconditional).

    `steps` counts (request, decode step) pairs, draftless ones included; `drafts` those with a draft.
    """

    drafts: float
    accepted_per_position: tuple[float, ...]  # how many drafts had position i accepted; never increasing
    draft_tokens: float | None = None
    steps: float | None = None
    num_requests: float | None = None


@dataclass(frozen=True, slots=True)
class MeasuredCell:
    """One load at one setting of a server, as far as its source tells.

    `step_s` is the mean engine step a decoding request sees, `tpot_s` per output token after the first: with
    speculation they differ by `tokens_per_step`. `concurrency` is what really ran, not what was asked for.
    """

    source: str  # file, and the place in it
    concurrency: float | None = None
    num_speculative_tokens: int | None = None  # 0 without speculation, None where the source does not tell
    method: str | None = None  # as vLLM names it, None where the source does not tell
    tpot_s: float | None = None
    step_s: float | None = None
    ttft_s: float | None = None
    throughput_tokens_per_s: float | None = None
    tokens_per_step: float | None = None
    relative_noise: float | None = None  # standard error of the times, relative
    num_requests: float | None = None
    input_tokens: float | None = None  # mean of a request
    output_tokens: float | None = None
    context_tokens: float | None = None  # mean while decoding
    allreduce_share: float | None = None  # of the decode step's GPU time
    kv_cache_tokens: float | None = None
    acceptance: AcceptanceCounts | None = None
    engine: str | None = None  # "vllm", "sglang"
    engine_version: str | None = None
    model: str | None = None
    notes: tuple[str, ...] = ()
    prefill_share: float | None = None  # of the time between a request's tokens, lost to the prefill of others
    duration_s: float | None = None  # length of the measurement
    draft_probability: float | None = None  # drafts per (request, decode step), where both are counted


@dataclass(frozen=True, slots=True)
class KernelShares:
    """GPU time of one decode step by kernel class, from a profiler: shares are true, the profiled times are not.

    `shares` are of `busy_s`, the time in which at least one kernel ran; classes that overlap add up to more than 1.
    """

    source: str
    shares: tuple[tuple[str, float], ...]  # class -> share, largest first
    busy_s: float  # per step, mean over steps and ranks
    idle_share: float | None = None  # of the step's wall time: host, launches and the profiler itself
    requests: float | None = None
    tokens: float | None = None
    num_steps: int = 1
    num_ranks: int = 1


@dataclass(frozen=True, slots=True)
class StepSample:
    """One engine iteration (or the mean of equal ones): scheduled tokens and requests against its time."""

    source: str
    tokens: float  # scheduled, drafts included
    requests: float  # in decode
    prefill_tokens: float
    step_s: float
    count: int = 1


@dataclass(frozen=True, slots=True)
class CollectivePoint:
    """One AllReduce timing outside the engine."""

    source: str
    num_bytes: float
    time_s: float
    num_ranks: int | None = None
    gpus: tuple[str, ...] = ()  # device names, as far as the source tells


@dataclass(frozen=True, slots=True)
class Refused:
    """A measurement that was read and must not be used, and why."""

    source: str
    reason: str


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file that was read: what it was taken for, and the hash of its bytes."""

    path: str
    format: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that one or more files say."""

    cells: tuple[MeasuredCell, ...] = ()
    steps: tuple[StepSample, ...] = ()
    collectives: tuple[CollectivePoint, ...] = ()
    refused: tuple[Refused, ...] = ()
    notes: tuple[str, ...] = ()
    kernels: tuple[KernelShares, ...] = ()
    files: tuple[SourceFile, ...] = ()
    num_bad: int = 0  # files that were left out

    def __add__(self, other: "Evidence") -> "Evidence":
        """Both together, in order."""
        return Evidence(
            self.cells + other.cells,
            self.steps + other.steps,
            self.collectives + other.collectives,
            self.refused + other.refused,
            self.notes + other.notes,
            self.kernels + other.kernels,
            self.files + other.files,
            self.num_bad + other.num_bad,
        )
