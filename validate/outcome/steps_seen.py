"""What single steps of a run show: steps without a draft against the baseline's, and drafted steps against context."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from calibration.readers.values import mapping, number, positive
from hwmodel.percent import percent
from hwmodel.units import MS
from validate.outcome.run_data import RunCell
from validate.outcome.scored import Cause, Scored

_FEWEST_CHUNKS = 30.0
_ALWAYS, _HARDLY = 0.98, 0.05  # share of steps with a draft: all of them, none to speak of
_SAME = 0.05  # relative: as long as the baseline's
_MOST_MIXED = 0.5  # share of the one-token chunks that are rejected drafts: beyond it they say little of the others
_FEWEST_REQUESTS = 12
_SPREAD = 1.5  # longest over shortest context of the requests
_SURE = 3.0  # standard errors
_Z_90 = 1.645


def step_causes(cell: Scored) -> Iterator[Cause]:
    """With one user alone: only then is the time between two chunks a step of this request's own making."""
    if cell.concurrency != 1 or cell.split is None:
        return
    yield from _draftless(cell)
    yield from _by_context(cell)


def _draftless(cell: Scored) -> Iterator[Cause]:
    """A step without a draft in the speculating server against a step of the baseline."""
    base = cell.baseline_cell.measured if cell.baseline_cell is not None else None
    if base is None or base.step_s is None or cell.baseline_cell is None:
        return
    found = _draftless_step_s(cell)
    if found is None:
        return
    step_s, how = found
    ratio = step_s / base.step_s
    noise = _Z_90 * math.hypot(cell.question.cell.noise, cell.baseline_cell.noise)
    evidence = {"draftless_step_s": step_s, "baseline_step_s": base.step_s, "how": how, "log_noise_90": noise}
    both = f"{step_s / MS:.3g} ms, a step of the baseline {base.step_s / MS:.3g} ms"
    if abs(math.log(ratio)) <= max(_SAME, noise):
        text = f"a step without a draft takes {both}: the same within the noise"
        yield Cause("draftless-step", text, 1, evidence, matters=False)
        return
    text = f"a step without a draft takes {both}: {percent(abs(ratio - 1))} {'longer' if ratio > 1 else 'less'}"
    why = ", as where speculation turns off full graphs or asynchronous scheduling for every step" if ratio > 1 else ""
    yield Cause("draftless-step", text + why, 1, evidence)


def _draftless_step_s(cell: Scored) -> tuple[float, str] | None:
    """(mean step without a draft, from what); None where the data do not tell.

    A chunk of several tokens is a drafted step for certain. One of a single token is a step without a draft, or one
    whose draft was rejected at once: with d the share of steps with a draft and S_1 its first acceptance,
    mean gap of one-token chunks = ((1 - d) t0 + d (1 - S_1) t1) / ((1 - d) + d (1 - S_1)).
    """
    assert cell.split is not None
    share = cell.split.measured.draft_probability
    found = cell.question.cell.measured
    if share <= _HARDLY and found is not None and found.step_s is not None:
        return found.step_s, f"only {percent(share, 1)} of the steps carried a draft"
    gaps = mapping(mapping(cell.record.get("client")).get("gap_by_tokens_s"))
    counts = mapping(mapping(cell.record.get("client")).get("tokens_of_chunks"))
    single_s, single = positive(gaps.get("1")), number(counts.get("1")) or 0.0
    several = _mean_of_several(gaps, counts)
    if single_s is None or several is None or cell.record.get("joined_chunks"):
        return None
    drafted_s, num_several = several
    rejected = share * (1.0 - cell.split.measured.per_position[0])
    mixed = rejected / ((1.0 - share) + rejected) if share < 1.0 else 1.0
    if min(single, num_several) < _FEWEST_CHUNKS or mixed > _MOST_MIXED:
        return None
    step_s = (single_s - mixed * drafted_s) / (1.0 - mixed)
    return (
        (step_s, f"{single:.0f} chunks of one token, {percent(mixed)} of them rejected drafts") if step_s > 0 else None
    )


def _mean_of_several(gaps: Mapping[str, Any], counts: Mapping[str, Any]) -> tuple[float, float] | None:
    """(mean gap of chunks of two tokens and more, how many)."""
    total_s, total = 0.0, 0.0
    for tokens, value in gaps.items():
        gap_s, count = positive(value), number(counts.get(tokens))
        if tokens.isdigit() and int(tokens[:9]) > 1 and gap_s is not None and count:
            total_s, total = total_s + gap_s * count, total + count
    return (total_s / total, total) if total else None


def _by_context(cell: Scored) -> Iterator[Cause]:
    """How the step grows with context, against the baseline's; only where every step is a drafted one."""
    assert cell.split is not None
    if cell.split.measured.draft_probability < _ALWAYS or cell.baseline_cell is None:
        return
    ours, theirs = _slope(cell.question.cell), _slope(cell.baseline_cell)
    if ours is None or theirs is None:
        return
    (slope, error), (base, base_error) = ours, theirs
    apart, doubt = slope - base, math.hypot(error, base_error)
    evidence = {
        "drafted_step_s_per_token": slope,
        "baseline_step_s_per_token": base,
        "standard_error": doubt,
        "requests": len(_requests(cell.question.cell)),
    }
    per_1000 = 1000.0 / MS
    if apart <= _SURE * doubt:
        text = (
            f"drafted steps grow with context as the baseline's do, by {slope * per_1000:.2g} ms per 1,000 tokens "
            f"({base * per_1000:.2g} there, +- {doubt * per_1000:.2g})"
        )
        yield Cause("drafted-step-context", text, 1, evidence, matters=False)
        return
    text = (
        f"drafted steps grow by {slope * per_1000:.2g} ms per 1,000 tokens of context, the baseline's by "
        f"{base * per_1000:.2g} (+- {doubt * per_1000:.2g}): verification reads the context once for every row, as an "
        "attention backend does that takes one token a row"
    )
    yield Cause("drafted-step-context", text, 1, evidence)


def _slope(cell: RunCell) -> tuple[float, float] | None:
    """(step time per token of context, its standard error), least squares over requests; None where they are few."""
    points = _requests(cell)
    if len(points) < _FEWEST_REQUESTS:
        return None
    context, step_s = np.array(points).T
    if context.max() < _SPREAD * context.min():
        return None
    centred = context - context.mean()
    spread = float(centred @ centred)
    slope = float(centred @ step_s) / spread
    left = step_s - step_s.mean() - slope * centred
    return slope, math.sqrt(float(left @ left) / (len(points) - 2) / spread)


def _requests(cell: RunCell) -> Sequence[tuple[float, float]]:
    """(mean context, mean step) of every request of the window whose chunks are steps."""
    found = []
    for record in cell.requests:
        prompt, output = positive(record.get("input_tokens")), number(record.get("output_tokens"))
        tpot_s, chunks = positive(record.get("tpot_s")), number(record.get("chunks"))
        if prompt and output and output > 1 and tpot_s and chunks and chunks > 1:
            found.append((prompt + output / 2, tpot_s * (output - 1) / (chunks - 1)))
    return found
