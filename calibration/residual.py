"""What a fitted cost model leaves unexplained of a baseline sweep, carried over to the steps of speculation.

The baseline's own sweep is the cost of verifying as many tokens: where a step of C requests lies above the model, a
step that verifies T = C rows will too. A cost can belong to the token rows of a step or to its sequences; in a baseline
sweep both grow together, so the residual is the sum of two smooth random fields, one over each (docs/accuracy.md, eq.
G1).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Standard deviations and lengths of the fields, in ln(time) and ln(count): a few percent over a doubling, local humps
# (algorithm switches, captured sizes) of the same size, and less for what belongs to sequences.
_ROWS_SD, _ROWS_LENGTH = 0.03, 0.8
_HUMP_SD, _HUMP_LENGTH = 0.035, 0.3
_SEQUENCES_SD, _SEQUENCES_LENGTH = 0.02, 1.0
_CONTEXT_SCALE_TOKENS, _CONTEXT_LENGTH = 4000.0, 1.2


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
        prior = _ROWS_SD**2 + _HUMP_SD**2 + _SEQUENCES_SD**2
        return np.asarray(np.sqrt(np.maximum(prior - np.sum((cross @ self.inverse) * cross, axis=1), 0.0)))


def _covariance(a: StepPoints, b: StepPoints) -> Array:
    rows = _squared_distance(np.log(a.rows), np.log(b.rows))
    sequences = _squared_distance(np.log(a.sequences), np.log(b.sequences))
    context = _squared_distance(*(np.log1p(x.context_tokens / _CONTEXT_SCALE_TOKENS) for x in (a, b)))
    of_rows = _ROWS_SD**2 * np.exp(-0.5 * rows / _ROWS_LENGTH**2)
    humps = _HUMP_SD**2 * np.exp(-0.5 * rows / _HUMP_LENGTH**2)
    of_sequences = _SEQUENCES_SD**2 * np.exp(
        -0.5 * sequences / _SEQUENCES_LENGTH**2 - 0.5 * context / _CONTEXT_LENGTH**2
    )
    return np.asarray(of_rows + humps + of_sequences)


def _squared_distance(a: Array, b: Array) -> Array:
    return np.asarray((a[:, None] - b[None, :]) ** 2)
