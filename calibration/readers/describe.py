"""What a body of evidence says, in plain sentences: what was read, with what noise, and what was not used and why."""

from collections.abc import Iterator

from calibration.records import AcceptanceCounts, CollectivePoint, Evidence, KernelShares, MeasuredCell
from hwmodel.percent import percent
from hwmodel.units import KIB, MIB, MS, US
from simulator.deployment.keys import short

_NAME_CHARS = 100


def describe(evidence: Evidence) -> list[str]:
    """One sentence per cell, curve, profile, group of steps, note and refusal; in this order."""
    return [
        *(_cell(cell) for cell in evidence.cells),
        *_steps(evidence),
        *_curves(evidence),
        *(_profile(kernels) for kernels in evidence.kernels),
        *(f"note: {note}" for note in evidence.notes),
        *(f"not used: {short(item.source, _NAME_CHARS)}: {item.reason}" for item in evidence.refused),
    ]


def _cell(cell: MeasuredCell) -> str:
    parts = [part for part in (_load(cell), _times(cell), _requests(cell), _counts(cell.acceptance)) if part]
    if cell.kv_cache_tokens:
        parts.append(f"KV cache of {cell.kv_cache_tokens:,.0f} tokens")
    if cell.allreduce_share is not None:
        parts.append(f"AllReduce {percent(cell.allreduce_share, 1)} of the decode step's GPU time")
    sentence = f"{short(cell.source, _NAME_CHARS)}: {'; '.join(parts) or 'nothing that can be used'}"
    return sentence + "".join(f" ({note})" for note in cell.notes)


def _load(cell: MeasuredCell) -> str:
    words = []
    if cell.concurrency is not None:
        words.append(f"{cell.concurrency:.4g} {'user' if cell.concurrency == 1 else 'users'}")
    if cell.num_speculative_tokens == 0:
        words.append("no speculation")
    elif cell.num_speculative_tokens is not None:
        words.append(f"{cell.method or 'speculation'} with k = {cell.num_speculative_tokens}")
    return ", ".join(words)


def _times(cell: MeasuredCell) -> str:
    words = []
    if cell.tpot_s is not None:
        noise = f" +/- {percent(cell.relative_noise, 1)}" if cell.relative_noise is not None else ""
        words.append(f"TPOT {cell.tpot_s / MS:.4g} ms{noise}")
    if cell.step_s is not None and cell.step_s != cell.tpot_s:
        words.append(f"step {cell.step_s / MS:.4g} ms")
    if cell.tokens_per_step is not None and cell.num_speculative_tokens != 0:
        words.append(f"{cell.tokens_per_step:.3g} tokens per step")
    if cell.throughput_tokens_per_s is not None:
        words.append(f"{cell.throughput_tokens_per_s:.4g} tokens/s")
    return ", ".join(words)


def _requests(cell: MeasuredCell) -> str:
    if cell.num_requests is None:
        return ""
    lengths = ""
    if cell.input_tokens is not None and cell.output_tokens is not None:
        lengths = f" of {cell.input_tokens:.4g} + {cell.output_tokens:.4g} tokens"
    return f"{cell.num_requests:g} requests{lengths}"


def _counts(counts: AcceptanceCounts | None) -> str:
    if counts is None or not counts.drafts:
        return ""
    shares = " ".join(f"{accepted / counts.drafts:.3f}" for accepted in counts.accepted_per_position)
    return f"acceptance {shares} by position over {counts.drafts:.6g} drafts"


def _steps(evidence: Evidence) -> Iterator[str]:
    for source in dict.fromkeys(step.source for step in evidence.steps):
        steps = [step for step in evidence.steps if step.source == source]
        decode = [step for step in steps if not step.prefill_tokens]
        most = max(steps, key=lambda step: step.count)
        yield (
            f"{short(source, _NAME_CHARS)}: {sum(step.count for step in steps)} engine steps of {len(steps)} sizes, "
            f"{len(decode)} of them without prefill; most often {most.tokens:g} tokens in {most.step_s / MS:.4g} ms"
        )


def _curves(evidence: Evidence) -> Iterator[str]:
    groups: dict[tuple[str, int | None], list[CollectivePoint]] = {}
    for point in evidence.collectives:
        groups.setdefault((point.source, point.num_ranks), []).append(point)
    for (source, ranks), points in groups.items():
        small, large = points[0], points[-1]
        yield (
            f"{short(source, _NAME_CHARS)}: AllReduce on {ranks} GPUs, {len(points)} sizes, "
            f"{_size(small.num_bytes)} in {small.time_s / US:.4g} us to {_size(large.num_bytes)} in "
            f"{large.time_s / US:.6g} us"
        )


def _size(num_bytes: float) -> str:
    if num_bytes < KIB:
        return f"{num_bytes:g} B"
    return f"{num_bytes / KIB:.4g} KiB" if num_bytes < MIB else f"{num_bytes / MIB:.4g} MiB"


def _profile(kernels: KernelShares) -> str:
    shares = ", ".join(f"{name} {percent(share, 1)}" for name, share in kernels.shares)
    idle = f"; GPU idle {percent(kernels.idle_share)} of the profiled time" if kernels.idle_share is not None else ""
    return (
        f"{short(kernels.source, _NAME_CHARS)}: {kernels.num_steps} decode steps on {kernels.num_ranks} GPUs: "
        f"{shares}{idle}"
    )
