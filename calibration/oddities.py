"""Measurements that a smooth model must not be bent to: cliffs in the sweep, and single outliers.

A cliff (past the largest captured graph, say) is no error of the parameters: the cells past it are left out of the
fit, and what they show is kept in the residual at their number of rows, for every context and for drafted steps.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from calibration.cross_validation import LeftOut
from calibration.fit_result import FitResult
from calibration.forward import Forward
from calibration.questions import Question
from hwmodel.residual import NUM_ROW_KNOTS, ROW_KNOTS
from simulator.posterior import Observation

Array = NDArray[np.float64]

_JUMP = 0.35  # log of a step's time over the model's, from one load to the next: no operator does that
_JUMP_NOISES = 6.0
_STAYS = 0.4  # share of the jump that all larger loads keep
_FEWEST_LOADS = 4  # of a sweep with a cliff: fewer may as well be a model that is wrong
_OUTLIER = 4.0  # standard deviations from what the others say
_MOST_SUSPECTS = 3
_FEWEST_REPEATS = 3  # beyond the first of each: fewer do not tell a scatter
_FREE = 10.0  # noise of a cell that must not pull
_PINNED_SPREAD = 0.05  # of a residual that is read off a cell instead of fitted


@dataclass(frozen=True, slots=True)
class Cliff:
    """Rows per replica before and after a jump, its size, and the questions past it."""

    before_rows: float
    after_rows: float
    log_jump: float
    past: tuple[int, ...]


def physics_residuals(forward: Forward, fit: FitResult, without: slice | None = None) -> Array:
    """Log of measured over predicted time without some coordinates, by default the log factors (a share: its logit)."""
    bare = fit.mode.copy()
    bare[without or forward.residuals] = 0.0
    sign = np.array([-1.0 if q.quantity == "throughput" else 1.0 for q in forward.questions])
    return np.asarray(sign * (fit.target - forward.predict(bare[None, :])[0]))


def find_cliff(forward: Forward, fit: FitResult) -> Cliff | None:
    """The first cliff of the baseline's sweep, if it has one."""
    left = physics_residuals(forward, fit)
    sweeps: dict[tuple[float, object], list[int]] = {}
    for i, q in enumerate(forward.questions):
        if not q.drafts and q.quantity != "allreduce_share":
            sweeps.setdefault((round(q.context_tokens, -2), q.setting), []).append(i)
    for places in sweeps.values():
        if len({forward.questions[i].requests for i in places}) < _FEWEST_LOADS:
            continue
        places.sort(key=lambda i: forward.questions[i].requests)
        for j in range(len(places) - 1):
            jump = left[places[j + 1]] - left[places[j]]
            noise = np.hypot(fit.noise[places[j]], fit.noise[places[j + 1]])
            rest = left[places[j + 1 :]] - left[places[j]]
            if jump > max(_JUMP, _JUMP_NOISES * noise) and rest.min() > _STAYS * jump:
                return _cliff(forward, places[j], places[j + 1], float(jump))
    return None


def _cliff(forward: Forward, before: int, after: int, jump: float) -> Cliff:
    rows = [rows_of(q, forward) for q in forward.questions]
    past = tuple(i for i, q in enumerate(forward.questions) if rows[i] > rows[before] * 1.01)
    return Cliff(rows[before], rows[after], jump, past)


def rows_of(question: Question, forward: Forward) -> float:
    """Token rows of the question's step on one replica."""
    sequences = max(question.requests / forward.system.batch_divisor, 1.0)
    return sequences * (1.0 + question.draft_probability * question.setting.num_speculative_tokens)


def outliers(left_out: Sequence[LeftOut], skip: Container[int]) -> list[tuple[int, float]]:
    """The observations that all others contradict most clearly and the sizes of their errors, if any stand out.

    One of them may be wrong: an outlier drags its neighbours' predictions along, and the more exact neighbour then
    seems to be farther off. Which one, the fit without it tells.
    """
    found = {i: abs(item.standardised) for i, item in enumerate(left_out) if i not in skip}
    worst = [i for i in sorted(found, key=lambda i: -found[i]) if found[i] > _OUTLIER][:_MOST_SUSPECTS]
    return [(i, abs(left_out[i].observed - left_out[i].predicted)) for i in worst]


def repeat_scale(questions: Sequence[Question], fit: FitResult) -> float:
    """How many times its noise the same measurement scatters when it is repeated; 1 at least, or where too few were.

    Repeats tell noise from model error: whatever the model misses is the same for all of them.
    """
    repeats: dict[tuple[object, ...], list[int]] = {}
    for i, q in enumerate(questions):
        key = (q.quantity, q.setting, q.requests, round(q.context_tokens), q.kind)
        repeats.setdefault(key, []).append(i)
    left = (fit.target - fit.predicted) / fit.noise
    freedom = sum(len(places) - 1 for places in repeats.values())
    if freedom < _FEWEST_REPEATS:
        return 1.0
    squares = sum(float(np.sum((left[places] - left[places].mean()) ** 2)) for places in repeats.values())
    return float(np.sqrt(max(squares / freedom, 1.0)))


def softened(
    observations: Sequence[Observation], noises: Mapping[int, float], free: Container[int]
) -> tuple[Observation, ...]:
    """The observations with another noise for some, and so much for others that they do not pull at all."""
    return tuple(
        replace(o, noise=_FREE if i in free else max(o.noise, noises.get(i, 0.0))) for i, o in enumerate(observations)
    )


def pinned(forward: Forward, fit: FitResult, cliff: Cliff) -> tuple[Array, Array]:
    """Mode and covariance with the knots past a cliff read off its cells: linear in ln T, held beyond the last."""
    left = physics_residuals(forward, fit, forward.by_rows)
    cells = [
        i for i in cliff.past if not forward.questions[i].drafts and forward.questions[i].quantity != "allreduce_share"
    ]
    rows = np.array([rows_of(forward.questions[i], forward) for i in cells])
    order = np.argsort(rows)
    middle = np.sqrt(cliff.before_rows * cliff.after_rows)
    knots = [j for j in range(NUM_ROW_KNOTS) if ROW_KNOTS[j] >= middle]
    places = [forward.by_rows.start + j for j in knots]
    mode, covariance = fit.mode.copy(), fit.covariance.copy()
    mode[places] = np.interp(np.log2(ROW_KNOTS[knots]), np.log2(rows[order]), left[cells][order])
    covariance[places, :], covariance[:, places] = 0.0, 0.0
    covariance[places, places] = _PINNED_SPREAD**2
    return mode, covariance
