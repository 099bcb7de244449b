"""What a fitted cost model leaves unexplained of steps: one random field, for profiles and for the backtest.

The baseline's own sweep is the cost of verifying as many tokens: where a step of C requests lies above the model, a
step that verifies T = C rows will too. A cost can belong to the token rows of a step or to its sequences; in a baseline
sweep both grow together, so the residual is the sum of smooth random fields over each (docs/accuracy.md, eq. G1). A
profile keeps it at powers of two (`knot_covariance`), the backtest where a baseline was measured (`ResidualField`).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hwmodel.residual import NUM_ROW_KNOTS, REQUEST_KNOTS, ROW_KNOTS

Array = NDArray[np.float64]

# Standard deviations and lengths of the fields, in ln(time) and ln(count): a few percent over a doubling, local humps
# (algorithm switches, captured sizes) of the same size, and less for what belongs to sequences (scheduler, cache).
_ROWS_SD, _ROWS_LENGTH = 0.03, 0.8
_HUMPS_SD, _HUMPS_LENGTH = 0.035, 0.3
_SEQUENCES_SD, _SEQUENCES_LENGTH = 0.02, 1.0
_VARIANCE = _ROWS_SD**2 + _HUMPS_SD**2 + _SEQUENCES_SD**2
_CONTEXT_SCALE_TOKENS, _CONTEXT_LENGTH = 4000.0, 1.2
# Of an error beyond the usual one: the share of its variance that neighbouring loads have in common, and over which
# length. Likelihood of the published sweeps, sources left out (docs/calibration.md, C2; verification/error_by_load.py).
BROAD_SHARE, BROAD_LENGTH = 0.75, 2.5


@dataclass(frozen=True, slots=True)
class StepPoints:
    """Where steps lie: token rows, sequences and mean context, arrays of one shape `(num_points,)`."""

    rows: Array
    sequences: Array
    context_tokens: Array


@dataclass(frozen=True, slots=True)
class ResidualField:
    """The field given where a baseline was measured; `noise` is the relative standard error of each point."""

    measured: StepPoints
    inverse: Array  # of the covariance of the measured residuals, (num_measured, num_measured)

    @classmethod
    def of(cls, measured: StepPoints, noise: Array) -> "ResidualField":
        """The field for these baseline points."""
        return cls(measured, np.asarray(np.linalg.inv(_covariance(measured, measured) + np.diag(noise**2))))

    def weights(self, points: StepPoints) -> Array:
        """How much each measured residual counts at `points`, `(num_points, num_measured)`."""
        return np.asarray(_covariance(points, self.measured) @ self.inverse)

    def sd(self, points: StepPoints) -> Array:
        """Standard deviation of ln(time) that the measured points leave at `points`."""
        cross = _covariance(points, self.measured)
        return np.asarray(np.sqrt(np.maximum(_VARIANCE - np.sum((cross @ self.inverse) * cross, axis=1), 0.0)))


def knot_covariance(excess: float = 0.0) -> Array:
    """Covariance of the field at the knots of rows, then of requests, for a variance of 1 in all.

    `excess` is the share of the variance beyond the usual model error: a machine that runs otherwise than described
    does so at neighbouring loads as well, so most of it is broad, and only the rest has the shape of the usual humps.
    """
    rows, requests = np.log(ROW_KNOTS), np.log(REQUEST_KNOTS)
    broad = BROAD_SHARE * excess
    covariance = np.zeros((len(rows) + len(requests), len(rows) + len(requests)))
    covariance[:NUM_ROW_KNOTS, :NUM_ROW_KNOTS] = broad_covariance(rows) * broad
    covariance[:NUM_ROW_KNOTS, :NUM_ROW_KNOTS] += _of_rows(rows, rows) / _VARIANCE * (1.0 - broad)
    covariance[NUM_ROW_KNOTS:, NUM_ROW_KNOTS:] = _of_sequences(requests, requests) / _VARIANCE * (1.0 - broad)
    return covariance


def broad_covariance(log_rows: Array, length: float = BROAD_LENGTH) -> Array:
    """Covariance of the broad part between ln(rows), for a variance of 1, `(num_points, num_points)`."""
    return np.asarray(np.exp(-0.5 * _squared_distance(log_rows, log_rows) / length**2))


def local_covariance(points: StepPoints) -> Array:
    """Covariance of the usual field between the points, for a variance of 1, `(num_points, num_points)`."""
    return _covariance(points, points) / _VARIANCE


def _covariance(a: StepPoints, b: StepPoints) -> Array:
    rows = _of_rows(np.log(a.rows), np.log(b.rows))
    sequences = _of_sequences(np.log(a.sequences), np.log(b.sequences))
    context = _squared_distance(*(np.log1p(x.context_tokens / _CONTEXT_SCALE_TOKENS) for x in (a, b)))
    return np.asarray(rows + sequences * np.exp(-0.5 * context / _CONTEXT_LENGTH**2))


def _of_rows(a: Array, b: Array) -> Array:
    """Covariance of what belongs to rows, between ln(rows) `a` and `b`."""
    distance = _squared_distance(a, b)
    smooth = _ROWS_SD**2 * np.exp(-0.5 * distance / _ROWS_LENGTH**2)
    return np.asarray(smooth + _HUMPS_SD**2 * np.exp(-0.5 * distance / _HUMPS_LENGTH**2))


def _of_sequences(a: Array, b: Array) -> Array:
    """Covariance of what belongs to sequences at one context, between ln(sequences) `a` and `b`."""
    return np.asarray(_SEQUENCES_SD**2 * np.exp(-0.5 * _squared_distance(a, b) / _SEQUENCES_LENGTH**2))


def _squared_distance(a: Array, b: Array) -> Array:
    return np.asarray((a[:, None] - b[None, :]) ** 2)
