"""What a replay says: the JSON that `draftcast replay` prints and writes, with intervals and warnings."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from calibration.acceptance_stats import fit_heterogeneity, worth_trials
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
from calibration.replay.intervals import Floats, Resampling, independent_error, interval, resampling
from calibration.replay.recording import Ints
from calibration.replay.run import Counted, Recorded

FEW_REQUESTS = 10
_NO_STEPS = "no decode step: every output has fewer than two tokens"
_ONE_REQUEST = "one request only: the interval is over parts of it and says nothing about other requests"


def report(counted: Counted, seed: int, max_model_len: int | None = None) -> dict[str, Any]:
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
        "warnings": [*_limits(recorded, max_model_len), *warnings(recorded)],
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


def _limits(recorded: Recorded, max_model_len: int | None) -> list[str]:
    """What an engine with that limit would not have served."""
    found = []
    if recorded.too_long:
        found.append(f"{recorded.too_long} requests whose prompt alone reaches --max-model-len are left out")
    if recorded.cut:
        found.append(
            f"{recorded.cut} of {recorded.requests} outputs are longer than --max-model-len {max_model_len} allows and"
            " end there, as in an engine with that limit: is it the one that is asked about?"
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


@dataclass(frozen=True, slots=True)
class _Ratio:
    """A mean over trials (steps or drafts): its sum, the sum of squares, and both sums of every resample."""

    name: str
    total: float
    squares: float
    trials: int
    draws: tuple[Floats, Floats]
    added: float = 0.0  # what every trial brings by itself
    most: float = 1.0  # largest value of a trial, without that


def _intervals(total: Ints, tally: Tally, resamples: Resampling) -> dict[str, Any]:
    """The three ratios with their intervals over requests."""
    counts = tally.requests if resamples.are_requests else tally.by_block
    assert counts is not None, "blocks are resampled only where they are counted"
    draws = resamples.sums(counts)
    survivors, steps, drafts = total[FIXED_COLUMNS:], int(total[STEPS]), int(total[DRAFTS])
    accepted = float(survivors.sum())
    squares = float(((2 * np.arange(tally.k) + 1) * survivors).sum())  # sum of a^2 is the sum of (2 i - 1) S_i
    each, on_steps, on_drafts = draws[:, FIXED_COLUMNS:].sum(axis=1), draws[:, STEPS], draws[:, DRAFTS]
    ratios = (
        _Ratio("tokens_per_step", accepted, squares, steps, (each, on_steps), added=1.0, most=float(tally.k)),
        _Ratio("draft_probability", float(drafts), float(drafts), steps, (on_drafts, on_steps)),
        _Ratio("accepted_per_draft", accepted, squares, drafts, (each, on_drafts), most=float(tally.k)),
    )
    return {key: value for ratio in ratios for key, value in _figures(ratio, resamples, steps).items()}


def _figures(ratio: _Ratio, resamples: Resampling, steps: int) -> dict[str, Any]:
    """Value and interval of a ratio; null with the reason where there is none."""
    name, key = ratio.name, f"{ratio.name}_ci95"
    if not ratio.trials:
        reason = "nothing was drafted" if steps else _NO_STEPS
        return {name: None, f"{name}_reason": reason, key: [None, None], f"{key}_reason": reason}
    point = ratio.total / ratio.trials
    usable = ratio.draws[1] > 0
    draws = ratio.draws[0][usable] / ratio.draws[1][usable]
    found = interval(draws, point, resamples.number, independent_error(ratio.total, ratio.squares, ratio.trials))
    low, high = max(found[0], 0.0), min(found[1], ratio.most)
    figures: dict[str, Any] = {name: ratio.added + point, key: [ratio.added + low, ratio.added + high]}
    if not resamples.are_requests or resamples.number < 2:
        figures[f"{key}_reason"] = _ONE_REQUEST
    return figures


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
        "conditional_acceptance": [_ratio(after.sum(), before.sum()) for before, after in pairwise(chain)],
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
