"""How the model does on sources that its constants were not fitted to: leave one family of sets out.

The fitted constants (`calibration.published.population`) are fitted anew without a family, from their source values,
and the family is predicted with them. Both steps use the derivatives of the predictions at the shipped values.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from calibration.published.population import CONSTANTS
from calibration.published.rows import PublishedRow
from validate.backtest.run import Options, backtest
from validate.backtest.scores import ScoredRow, Scores, score

Array = NDArray[np.float64]

_DIFFERENCE = 0.2  # in ln, of each constant
_NOISE = 0.05  # of ln(speedup): a row within it counts in full, one far outside with its absolute value
_SHARED_WEIGHT = -0.25  # rows of one set share errors: each counts with n to this power
_ROUNDS = 30
_NOT_FITTED = ("llama.cpp",)  # other kernels: scored, not fitted to


def family(row: PublishedRow) -> str:
    """Which sets stand or fall together: those of one source and, where it serves several models, one model."""
    name = row.text["set_id"]
    return "-".join(name.split("-")[:2]) if name.startswith("RTX") else name.split("-")[0]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Scores of each family predicted without it, and of all rows so predicted; shifts (ln) of a fit to everything."""

    by_family: dict[str, Scores]
    overall: Scores
    in_sample: Scores
    shifts: dict[str, float]


def leave_families_out(rows: Sequence[PublishedRow]) -> LeftOut:
    """The model on families of sets that its constants have not seen."""
    base = backtest(rows, options=Options(intervals=False)).scored
    errors = _log_errors(base)
    slopes = np.stack([(_log_errors(_moved(rows, c.name)) - errors) / _DIFFERENCE for c in CONSTANTS], axis=1)
    families = np.array([family(each.row) for each in base])
    fitted = np.array([not any(name in each.row.text["engine"] for name in _NOT_FITTED) for each in base])
    weights = _weights(base)
    unseen = np.empty(len(base))
    for name in sorted(set(families)):
        here = families == name
        use = ~here & fitted
        shift = _fit(errors[use], slopes[use], weights[use])
        unseen[here] = errors[here] + slopes[here] @ shift
    everything = _fit(errors[fitted], slopes[fitted], weights[fitted])
    predicted = [
        replace(each, predicted=each.observed * float(np.exp(e))) for each, e in zip(base, unseen, strict=True)
    ]
    by_family = {
        name: score([each for each, own in zip(predicted, families, strict=True) if own == name], intervals=False)
        for name in dict.fromkeys(families.tolist())
    }
    shifts = {constant.name: float(value) for constant, value in zip(CONSTANTS, everything, strict=True)}
    return LeftOut(by_family, score(predicted, intervals=False), score(base, intervals=False), shifts)


def _moved(rows: Sequence[PublishedRow], name: str) -> list[ScoredRow]:
    return backtest(rows, options=Options({name: _DIFFERENCE}, intervals=False)).scored


def _log_errors(rows: Sequence[ScoredRow]) -> Array:
    return np.log([each.predicted / each.observed for each in rows])


def _weights(rows: Sequence[ScoredRow]) -> Array:
    names = [each.row.text["set_id"] for each in rows]
    return np.array([names.count(name) ** _SHARED_WEIGHT for name in names])


def _fit(errors: Array, slopes: Array, weights: Array) -> Array:
    """Shifts that minimise sum w rho(e + J x) + |(x - source) / sd|^2, rho the smooth absolute value beyond the noise.

    By iteratively reweighted least squares.
    """
    source = np.array([constant.source_shift for constant in CONSTANTS])
    precision = np.diag([constant.log_sd**-2 for constant in CONSTANTS])
    shift = np.zeros(len(CONSTANTS))
    for _ in range(_ROUNDS):
        now = errors + slopes @ shift
        row = weights / np.sqrt(1.0 + (now / _NOISE) ** 2) / _NOISE**2
        normal = (slopes * row[:, None]).T @ slopes + precision
        shift = np.linalg.solve(normal, precision @ source - (slopes * row[:, None]).T @ errors)
    return shift
