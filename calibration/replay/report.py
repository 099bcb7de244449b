"""What a replay says: the JSON that `draftcast replay` prints and writes, with intervals and warnings."""

from itertools import pairwise
from typing import Any

import numpy as np

from calibration.acceptance_stats import conditional_shares, fit_heterogeneity, worth_trials
from calibration.replay.counts import (
    CONTEXT_EDGES,
    DRAFT_TOKENS,
    DRAFTS,
    FIXED_COLUMNS,
    SCHEDULED,
    SCHEDULED_TOKENS,
    STEPS,
    Tally,
)
from calibration.replay.intervals import Resampling, interval, resampling
from calibration.replay.recording import Ints
from calibration.replay.run import Counted, Recorded

FEW_REQUESTS = 10
_NO_STEPS = "no decode step: every output has fewer than two tokens"
_ONE_CLUSTER = "too few steps for an interval"
_ONE_REQUEST = "one request only: the interval is over parts of it and says nothing about other requests"


def report(counted: Counted, seed: int) -> dict[str, Any]:
    """Results by k, what was replayed, and warnings, as plain values."""
    recorded = counted.recorded
    resamples = _resampling(counted.tallies[0], np.random.default_rng(seed))
    return {
        "results": [_result(tally, resamples) for tally in counted.tallies],
        "num_requests": recorded.requests,
        "output_tokens": recorded.output_tokens,
        "prompt_tokens": recorded.prompt_tokens,
        "requests_without_prompt": recorded.without_prompt,
        "longest_context_tokens": recorded.longest_context,
        "warnings": warnings(recorded),
    }


def warnings(recorded: Recorded) -> list[str]:
    """What a reader of the figures must know about the recordings."""
    found = []
    deciding = recorded.requests - recorded.without_steps
    if deciding < FEW_REQUESTS:
        found.append(
            f"only {deciding} request{'s' * (deciding != 1)} with decode steps: requests differ, so the intervals are "
            f"wide and may still be too narrow; record at least {FEW_REQUESTS}, better 100"
        )
    if recorded.without_prompt:
        found.append(
            f"{recorded.without_prompt} of {recorded.requests} requests have no prompt: drafts copied from prompts are "
            "missing, so the draft probability is too low"
        )
    if recorded.sampled:
        found.append(
            f"{recorded.sampled} of {recorded.requests} outputs were sampled at a temperature above 0: the replay is "
            "still right on average (a copied token is accepted as often as it is sampled), for that temperature only"
        )
    return found


def _resampling(tally: Tally, rng: np.random.Generator) -> Resampling:
    """Over requests; over blocks of the request where only one has steps. Which those are is the same for every k."""
    has_steps = tally.requests[:, STEPS] > 0
    if has_steps.sum() < 2 and tally.by_block is not None:
        return resampling(tally.by_block[:, STEPS] > 0, rng, are_requests=False)
    return resampling(has_steps, rng)


def _result(tally: Tally, resamples: Resampling) -> dict[str, Any]:
    requests = tally.requests
    total = requests.sum(axis=0)
    steps, drafts = int(total[STEPS]), int(total[DRAFTS])
    survivors = total[FIXED_COLUMNS:]
    accepted = int(survivors.sum())
    return {
        "num_speculative_tokens": tally.k,
        "steps": steps,
        "drafts": drafts,
        "draft_tokens": int(total[DRAFT_TOKENS]),
        "scheduled_drafts": int(total[SCHEDULED]),
        "scheduled_draft_tokens": int(total[SCHEDULED_TOKENS]),
        "accepted_tokens": accepted,
        "accepted_per_position": survivors.tolist(),
        "acceptance_per_position": [_ratio(count, drafts) for count in survivors.tolist()],
        "num_requests": int((requests[:, STEPS] > 0).sum()),
        "mean_context_tokens": _ratio(tally.context_tokens, steps),
        **_intervals(total, tally, resamples),
        **_spread(requests),
        "draft_probability_by_context": _by_context(tally.by_context),
        "runs": {"drafted_steps": _runs(tally.drafted_runs), "accepted_tokens": _runs(tally.accepted_runs)},
    }


def _intervals(total: Ints, tally: Tally, resamples: Resampling) -> dict[str, Any]:
    """The three ratios with their intervals over requests."""
    counts = tally.requests if resamples.are_requests else tally.by_block
    assert counts is not None, "blocks are resampled only where they are counted"
    draws = resamples.sums(counts)
    steps, drafts = total[STEPS], total[DRAFTS]
    accepted = total[FIXED_COLUMNS:].sum()
    found: dict[str, Any] = {}
    each = draws[:, FIXED_COLUMNS:].sum(axis=1)
    for name, top, bottom, figures in (
        ("tokens_per_step", steps + accepted, steps, (draws[:, STEPS] + each, draws[:, STEPS])),
        ("draft_probability", drafts, steps, (draws[:, DRAFTS], draws[:, STEPS])),
        ("accepted_per_draft", accepted, drafts, (each, draws[:, DRAFTS])),
    ):
        point = _ratio(top, bottom)
        found[name] = point
        if point is None:
            found[f"{name}_reason"] = _NO_STEPS if not steps else "nothing was drafted"
        low, high = _limits(name, tally.k)
        found |= _interval(name, figures, point, resamples, (low, high))
    return found


def _limits(name: str, k: int) -> tuple[float, float]:
    """What the ratio can be at all."""
    return {"tokens_per_step": (1.0, k + 1.0), "draft_probability": (0.0, 1.0), "accepted_per_draft": (0.0, float(k))}[
        name
    ]


def _interval(
    name: str,
    figures: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]],
    point: float | None,
    resamples: Resampling,
    limits: tuple[float, float],
) -> dict[str, Any]:
    key = f"{name}_ci95"
    usable = figures[1] > 0
    found = None
    if point is not None and usable.any():
        found = interval(figures[0][usable] / figures[1][usable], point, resamples.number)
    if point is None or found is None:
        return {key: [None, None], f"{key}_reason": _NO_STEPS if point is None else _ONE_CLUSTER}
    answer: dict[str, Any] = {key: [max(found[0], limits[0]), min(found[1], limits[1])]}
    if not resamples.are_requests:
        answer[f"{key}_reason"] = _ONE_REQUEST
    return answer


def _spread(requests: Ints) -> dict[str, Any]:
    """How requests differ, and how many independent trials the counts are worth because of it."""
    counts = requests.astype(np.float64)
    steps, drafts = counts[:, STEPS], counts[:, DRAFTS]
    chain = [drafts, *counts[:, FIXED_COLUMNS:].T]
    kappa = fit_heterogeneity(chain[1], drafts)
    return {
        "heterogeneity": None if kappa is None else kappa.kappa,
        "heterogeneity_log_sd": None if kappa is None else kappa.log_sd,
        "effective_steps": worth_trials(drafts, steps),
        "effective_drafts_per_position": [worth_trials(after, before) for before, after in pairwise(chain)],
        "conditional_acceptance": conditional_shares(
            float(drafts.sum()), counts[:, FIXED_COLUMNS:].sum(axis=0)
        ).tolist(),
    }


def _by_context(table: Ints) -> list[dict[str, Any]]:
    """Draft probability by context length, bins without steps left out."""
    ends: list[int | None] = [*CONTEXT_EDGES[1:], None]
    return [
        {
            "context_tokens_from": low,
            "context_tokens_below": high,
            "steps": steps,
            "drafts": drafts,
            "draft_probability": drafts / steps,
            "tokens_per_step": 1 + accepted / steps,
        }
        for low, high, (steps, drafts, accepted) in zip(CONTEXT_EDGES, ends, table.T.tolist(), strict=True)
        if steps
    ]


def _runs(histogram: Ints) -> dict[str, Any]:
    """Number, mean and percentiles of run lengths."""
    number = int(histogram.sum())
    if not number:
        return {"runs": 0, "mean": None, "p50": None, "p90": None, "max": None, "reason": "no run"}
    lengths = np.arange(len(histogram))
    passed = np.cumsum(histogram)
    return {
        "runs": number,
        "mean": float((lengths * histogram).sum() / number),
        "p50": int(np.searchsorted(passed, 0.5 * number)),
        "p90": int(np.searchsorted(passed, 0.9 * number)),
        "max": int(np.flatnonzero(histogram)[-1]),
    }


def _ratio(top: float, bottom: float) -> float | None:
    return float(top / bottom) if bottom else None
