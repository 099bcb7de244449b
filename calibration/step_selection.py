"""Questions from single engine iterations: time against scheduled tokens, the most direct view of what T rows cost.

Iterations without prompt rows are pooled by requests and tokens (bins of 10 %); the mean of their logs counts.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from calibration.questions import Question, Setting
from calibration.records import Refused, StepSample
from calibration.selection import Selected
from simulator.deployment.speculation import LOOKUP_METHODS
from simulator.system import System

_BIN = np.log(1.1)  # of requests and tokens
_FEWEST = 3  # iterations of one kind: less is noise
_LEAST_NOISE, _CONTEXT_NOISE = 0.01, 0.02  # of a mean; the log does not tell the context
_WHOLE = 0.02  # distance of tokens per request from a whole number that is no mixture
_TRIMMED = 0.1  # share of iterations left out at either end: garbage collection, other processes


def take_steps(system: System, samples: Iterable[StepSample], chosen: Selected) -> None:
    """Adds the questions of the iterations to `chosen`, and says what was left out."""
    by_source: dict[str, list[StepSample]] = {}
    for sample in samples:
        by_source.setdefault(sample.source, []).append(sample)
    for source, own in by_source.items():
        _take_source(system, source, own, chosen)


def _take_source(system: System, source: str, samples: Sequence[StepSample], chosen: Selected) -> None:
    decode = [s for s in samples if not s.prefill_tokens and s.requests >= 1 and s.step_s > 0]
    if len(decode) < len(samples):
        chosen.notes.append(f"{source}: {len(samples) - len(decode)} iterations with prompt rows are left out")
    drafting = any(s.tokens > s.requests * (1.0 + _WHOLE) for s in decode)
    if drafting and system.method == "none":
        chosen.refused.append(Refused(source, "iterations with drafts, but the deployment names no method"))
        return
    bins: dict[tuple[int, int], list[StepSample]] = {}
    for s in decode:
        key = (round(float(np.log(s.requests)) / _BIN), round(float(np.log(max(s.tokens, 1.0))) / _BIN))
        bins.setdefault(key, []).append(s)
    few = 0
    for own in bins.values():
        if sum(s.count for s in own) < _FEWEST:
            few += 1
            continue
        question = _question(system, source, own, drafting)
        if question is not None:
            chosen.questions.append(question)
    if few:
        chosen.notes.append(f"{source}: {few} kinds of iteration occur less than {_FEWEST} times and are left out")


def _question(system: System, source: str, samples: Sequence[StepSample], drafting: bool) -> Question | None:
    """One kind of iteration; None where the model has no such step."""
    requests, tokens, log_s, noise = _pooled(samples)
    setting, share = _drafts(system, requests, tokens, drafting)
    if setting is None:
        return None
    workload = system.deployment.workload
    base = Setting(system.method, setting, workload.input_tokens, max(workload.output_tokens, 2))
    return Question(
        source=source,
        quantity="step",
        value=float(np.exp(log_s)),
        noise=noise,
        setting=base,
        requests=requests * system.batch_divisor,
        context_tokens=system.context_tokens,
        draft_probability=share,
        with_prompts=False,
        kind="step",
    )


def _drafts(system: System, requests: float, tokens: float, drafting: bool) -> tuple[int | None, float]:
    """(draft length, share of the requests that drafted); None for a step that this method does not have."""
    if not drafting:
        return 0, 1.0
    extra = tokens / requests - 1.0
    stated = system.deployment.speculation.num_speculative_tokens
    if extra <= _WHOLE:
        return (stated or 1, 0.0) if system.method in LOOKUP_METHODS else (None, 0.0)
    whole = round(extra)
    if abs(extra - whole) <= _WHOLE * max(whole, 1) and system.method not in LOOKUP_METHODS:
        return whole, 1.0
    k = stated or max(int(np.ceil(extra - _WHOLE)), 1)
    return k, float(min(extra / k, 1.0))


def _pooled(samples: Sequence[StepSample]) -> tuple[float, float, float, float]:
    """(requests, tokens, mean log seconds, its noise), the slowest and fastest tenth left out."""
    counts = np.array([float(s.count) for s in samples])
    logs = np.array([np.log(s.step_s) for s in samples])
    order = np.argsort(logs)
    place = (np.cumsum(counts[order]) - 0.5 * counts[order]) / counts.sum()
    kept = order[(place >= _TRIMMED) & (place <= 1.0 - _TRIMMED)]
    kept = kept if len(kept) else order
    weights = counts[kept] / counts[kept].sum()
    mean = float(weights @ logs[kept])
    scatter = float(np.sqrt(weights @ (logs[kept] - mean) ** 2 / max(counts[kept].sum() - 1.0, 1.0)))
    requests = float(weights @ np.array([samples[i].requests for i in kept]))
    tokens = float(weights @ np.array([samples[i].tokens for i in kept]))
    return requests, tokens, mean, float(np.hypot(max(scatter, _LEAST_NOISE), _CONTEXT_NOISE))
