"""Decode steps out of torch profiler traces: shares of GPU time by kernel class, AllReduce first of all.

Only kernels on GPU streams count; CPU-side operator events of the same names do not. What runs at the same time on
several streams is counted once. Steps are told by the engine's annotations (`execute_context_0(0)_generation_4(4)` in
vLLM, `step[DECODE bs=4]` in SGLang), else by a record_function with a batch size; steps with prefill are left out. The
profiler stretches the time between kernels, not the kernels: shares of busy time are used, step times are not.
"""

import bisect
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from calibration.readers.kernel_classes import ALLREDUCE, CLASSES, class_of
from calibration.readers.trace_events import Interval, Trace
from calibration.readers.values import mean, median
from calibration.records import Evidence, KernelShares, MeasuredCell, Refused
from hwmodel.percent import percent

_VLLM = re.compile(r"execute_(?:context|new)_(\d+)(?:\((\d+)\))?_(?:generation|cached)_(\d+)(?:\((\d+)\))?")
_SGLANG = re.compile(r"step\[(\w+)\b(?:[^\]]*\bbs=(\d+))?")
# A record_function of one's own around a step: "decode bs=8", "forward (batch_size: 16)", "step num_reqs_4".
_OWN_STEP = re.compile(r"decode|forward|execute|step|iteration|generat", re.IGNORECASE)
_OWN_LOAD = re.compile(r"(?:\bbs|batch(?:[_ ]?size)?|num_(?:reqs|requests|seqs))\s*[=:_ ]\s*(\d+)", re.IGNORECASE)
_OWN_PREFILL = re.compile(r"prefill|extend|prompt", re.IGNORECASE)
_MIN_STEPS = 3
_PREFILL_FACTOR = 3.0  # without annotations: a step this much busier than the median has prefill in it
_SHARE_NOISE = 0.05  # relative, of a share over some steps on some ranks
_SEVERAL = 0.05

Spans = list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class _Step:
    """One decode step on one rank: busy seconds by class and in all, and its wall time."""

    requests: float | None
    tokens: float | None
    by_class: dict[str, float]
    busy_s: float
    wall_s: float


def read_traces(traces: Sequence[Trace]) -> Evidence:
    """Shares of every load in `traces`; files of several ranks of one run are averaged."""
    evidence = Evidence()
    for group in _runs(traces):
        source = group[0].path if len(group) == 1 else f"{os.path.dirname(group[0].path) or '.'} ({len(group)} ranks)"
        evidence += _read_run([part for trace in group for part in _by_device(trace)], source)
    return evidence


def _by_device(trace: Trace) -> list[Trace]:
    """One trace per GPU that it saw; annotations of the host belong to each."""
    devices = sorted({kernel.device for kernel in trace.kernels})
    if len(devices) == 1:
        return [trace]
    return [
        replace(
            trace,
            kernels=[kernel for kernel in trace.kernels if kernel.device == device],
            gpu_marks=[mark for mark in trace.gpu_marks if mark.device == device],
        )
        for device in devices
    ]


def _runs(traces: Sequence[Trace]) -> list[list[Trace]]:
    """Files of one run: same folder and world size, every rank once."""
    runs: list[list[Trace]] = []
    for trace in traces:
        for run in runs:
            one_run = os.path.dirname(run[0].path) == os.path.dirname(trace.path)
            ranks = {item.rank for item in run}
            if one_run and run[0].world_size == trace.world_size and trace.rank is not None and trace.rank not in ranks:
                run.append(trace)
                break
        else:
            runs.append([trace])
    return runs


def _read_run(group: Sequence[Trace], source: str) -> Evidence:
    steps: dict[tuple[float | None, float | None], list[list[_Step]]] = {}
    annotated = True
    for trace in group:
        found, marked = _decode_steps(trace)
        annotated = annotated and marked
        by_load: dict[tuple[float | None, float | None], list[_Step]] = {}
        for step in (_as_stated(step, trace.stated_requests) for step in found):
            by_load.setdefault((step.requests, step.tokens), []).append(step)
        for load, items in by_load.items():
            steps.setdefault(load, []).append(items)
    least = _MIN_STEPS if annotated else 1
    usable = {load: ranks for load, ranks in steps.items() if max(len(items) for items in ranks) >= least}
    if not usable:
        reason = f"fewer than {_MIN_STEPS} decode steps of one load in the trace"
        return Evidence(refused=(Refused(source, reason),))
    evidence = Evidence(refused=(Refused(source, "step times of a profiled run: the profiler slows the host down"),))
    for (requests, tokens), ranks in sorted(usable.items(), key=lambda item: -sum(map(len, item[1]))):
        evidence += _shares(ranks, (requests, tokens), source, _notes(group, annotated))
    return evidence


def _as_stated(step: _Step, requests: float | None) -> _Step:
    """A step whose trace does not tell its load, with that which the user states."""
    return step if step.requests is not None or requests is None else replace(step, requests=requests)


def _notes(group: Sequence[Trace], annotated: bool) -> tuple[str, ...]:
    notes = []
    if not annotated:
        notes.append("no step annotations: steps end with sampling, much busier ones are left out as prefill")
    if any(trace.cut_short for trace in group):
        notes.append("the trace is cut short: used up to there")
    return tuple(notes)


def _shares(
    ranks: Sequence[Sequence[_Step]], load: tuple[float | None, float | None], source: str, notes: tuple[str, ...]
) -> Evidence:
    requests, tokens = load
    per_rank = [_mean_shares(steps) for steps in ranks]
    names = [name for name in CLASSES if any(name in shares for shares in per_rank)]
    shares = {name: mean([rank.get(name, 0.0) for rank in per_rank]) for name in names}
    every = [step for steps in ranks for step in steps]
    where = source if requests is None else f"{source} ({requests:g} decoding)"
    kernels = KernelShares(
        source=where,
        shares=tuple(sorted(shares.items(), key=lambda item: -item[1])),
        busy_s=mean([step.busy_s for step in every]),
        idle_share=max(0.0, 1 - sum(step.busy_s for step in every) / max(sum(step.wall_s for step in every), 1e-12)),
        requests=requests,
        tokens=tokens,
        num_steps=max(len(steps) for steps in ranks),
        num_ranks=len(ranks),
    )
    return Evidence((_cell(kernels, per_rank, notes),), kernels=(kernels,))


def _mean_shares(steps: Sequence[_Step]) -> dict[str, float]:
    busy = sum(step.busy_s for step in steps)
    names = {name for step in steps for name in step.by_class}
    return {name: sum(step.by_class.get(name, 0.0) for step in steps) / busy for name in names}


def _cell(kernels: KernelShares, per_rank: Sequence[dict[str, float]], notes: tuple[str, ...]) -> MeasuredCell:
    requests, tokens = kernels.requests, kernels.tokens
    drafted = round(tokens / requests) - 1 if requests and tokens and tokens > requests else None
    allreduce = [rank.get(ALLREDUCE, 0.0) for rank in per_rank]
    if len(allreduce) > 1 and max(allreduce) - min(allreduce) > _SEVERAL:
        notes += (
            f"AllReduce share from {percent(min(allreduce), 1)} to {percent(max(allreduce), 1)} by rank: the"
            " early ones wait in it",
        )
    if kernels.idle_share is not None and kernels.idle_share > _SEVERAL:
        notes += (f"the GPU idled {percent(kernels.idle_share)} of the profiled steps: not part of the shares",)
    return MeasuredCell(
        source=kernels.source,
        concurrency=requests or None,
        num_speculative_tokens=drafted or None,
        relative_noise=_SHARE_NOISE,
        allreduce_share=mean(allreduce),
        notes=notes,
    )


def _decode_steps(trace: Trace) -> tuple[list[_Step], bool]:
    """(decode steps of a trace, whether annotations told them); the last has no successor and ends with its kernels."""
    kernels = sorted(trace.kernels, key=lambda item: item.start_s)
    marks = _marks(trace, kernels)
    if trace.cut_short and len(marks) > 1:
        marks, end = marks[:-1], marks[-1].start_s  # the last step is not whole
        kernels = [kernel for kernel in kernels if kernel.start_s < end]
    if not marks:
        return _unmarked_steps(kernels), False
    starts = [mark.start_s for mark in marks]
    parts: list[list[Interval]] = [[] for _ in marks]
    for kernel in kernels:
        index = bisect.bisect_right(starts, kernel.start_s) - 1
        if index >= 0:
            parts[index].append(kernel)
    steps = []
    for index, (mark, part) in enumerate(zip(marks, parts, strict=True)):
        requests, tokens, prefill = _load(mark.name)
        if part and not prefill and requests != 0:
            end = starts[index + 1] if index + 1 < len(starts) else max(item.end_s for item in part)
            steps.append(_step(part, requests, tokens, end - part[0].start_s))
    return steps, True


def _marks(trace: Trace, kernels: Sequence[Interval]) -> list[Interval]:
    """Step annotations in GPU time: as the profiler projected them, else by the launches inside the CPU's."""
    on_gpu: list[Interval] = []
    for is_step in (_is_step, _is_own_step):
        on_gpu = on_gpu or [mark for mark in trace.gpu_marks if is_step(mark.name)]
        on_gpu = on_gpu or _projected([mark for mark in trace.cpu_marks if is_step(mark.name)], trace, kernels)
    return _once_per_step(sorted(on_gpu, key=lambda item: item.start_s))


def _once_per_step(marks: Sequence[Interval]) -> list[Interval]:
    """An annotation that covers several streams is projected onto each: those that overlap are one step."""
    kept: list[Interval] = []
    for mark in marks:
        last = kept[-1] if kept else None
        if last is not None and mark.name == last.name and mark.start_s < (last.start_s + last.end_s) / 2:
            kept[-1] = replace(last, end_s=max(last.end_s, mark.end_s))
        else:
            kept.append(mark)
    return kept


def _projected(marks: Sequence[Interval], trace: Trace, kernels: Sequence[Interval]) -> list[Interval]:
    """Each CPU annotation from its first kernel to its last, told by the time of their launch."""
    ordered = sorted(marks, key=lambda item: item.start_s)
    starts = [mark.start_s for mark in ordered]
    spans: dict[int, tuple[float, float]] = {}
    for kernel in kernels:
        launched = trace.launches.get(kernel.correlation) if kernel.correlation is not None else None
        index = -1 if launched is None else bisect.bisect_right(starts, launched) - 1
        if index >= 0 and launched is not None and launched <= ordered[index].end_s:
            start, end = spans.get(index, (kernel.start_s, kernel.end_s))
            spans[index] = (min(start, kernel.start_s), max(end, kernel.end_s))
    return [Interval(ordered[index].name, start, end) for index, (start, end) in spans.items()]


def _is_step(name: str) -> bool:
    return bool(_VLLM.search(name) or _SGLANG.search(name))


def _is_own_step(name: str) -> bool:
    return bool(_OWN_STEP.search(name) and _OWN_LOAD.search(name))


def _load(name: str) -> tuple[float | None, float | None, bool]:
    """(decoding requests, their scheduled tokens, whether prompts are processed too) of an annotation."""
    if found := _VLLM.search(name):
        tokens = float(found[4]) if found[4] else None
        return float(found[3]), tokens, int(found[1]) > 0
    found = _SGLANG.search(name)
    own = _OWN_LOAD.search(name)
    if not found and own:
        return float(own[1]), None, bool(_OWN_PREFILL.search(name))
    mode = found[1].upper() if found else ""
    requests = float(found[2]) if found and found[2] else None
    return requests, requests if mode == "DECODE" else None, mode not in ("DECODE", "TARGET_VERIFY")


def _unmarked_steps(kernels: Sequence[Interval]) -> list[_Step]:
    """Steps that end where sampling ends; those much busier than the median are left out."""
    steps: list[_Step] = []
    part: list[Interval] = []
    sampled = False
    for kernel in kernels:
        sampling = class_of(kernel.name) == "sampling"
        if sampled and not sampling and class_of(kernel.name) != "other":
            steps.append(_step(part, None, None, kernel.start_s - part[0].start_s))
            part = []
        sampled = sampling or (sampled and bool(part))
        part.append(kernel)
    if not steps:
        return [_step(part, None, None, part[-1].end_s - part[0].start_s)]  # nothing tells the steps apart
    limit = _PREFILL_FACTOR * median([step.busy_s for step in steps])
    return [step for step in steps if step.busy_s <= limit]


def _step(kernels: Sequence[Interval], requests: float | None, tokens: float | None, wall_s: float) -> _Step:
    spans: dict[str, Spans] = {}
    for kernel in kernels:
        spans.setdefault(class_of(kernel.name), []).append((kernel.start_s, kernel.end_s))
    by_class = {name: _union_s(found) for name, found in spans.items()}
    return _Step(requests, tokens, by_class, _union_s([span for found in spans.values() for span in found]), wall_s)


def _union_s(spans: Spans) -> float:
    total, reach = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reach))
        reach = max(reach, end)
    return total
