"""What measurements say a step takes beyond the cost model: factors by token rows, by requests, and of drafted steps.

A baseline sweep over the concurrency is the cost of a step by its number of token rows T; verifying drafts runs the
same rows. So what a fit leaves over at T holds for a drafted step of T rows as well. A part of it may belong to the
requests instead, which in a baseline sweep are as many (docs/calibration.md, eq. C2).
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

NUM_ROW_KNOTS = 14  # 1, 2, 4, ... 8192 rows: the largest default token budget of an engine step
NUM_REQUEST_KNOTS = 11  # 1, 2, 4, ... 1024 requests: the largest default of max_num_seqs
NUM_LOG_FACTORS = NUM_ROW_KNOTS + NUM_REQUEST_KNOTS + 1
ROW_KNOTS: Array = np.exp2(np.arange(float(NUM_ROW_KNOTS)))
REQUEST_KNOTS: Array = np.exp2(np.arange(float(NUM_REQUEST_KNOTS)))


class StepResidual(NamedTuple):
    """Log factors on the target's pass at the knots, `(num_draws, ...)`; linear in the log in between, held outside.

    `drafted` `(num_draws, 1)` is one more for every step of an engine that speculates: what the model misses of it.
    """

    by_rows: Array
    by_requests: Array
    drafted: Array

    @classmethod
    def of(cls, log_factors: Array) -> "StepResidual":
        """Those of `(num_draws, NUM_LOG_FACTORS)`: the knots of rows, of requests, then of drafted steps."""
        rows, requests = log_factors[:, :NUM_ROW_KNOTS], log_factors[:, NUM_ROW_KNOTS:-1]
        return cls(rows, requests, log_factors[:, -1:])

    def factor(self, tokens: Any, requests: Any) -> Array:
        """The factor for steps of `tokens` rows that carry work and so many requests, `(num_draws, num_cells)`."""
        return np.asarray(np.exp(_at(self.by_rows, tokens) + _at(self.by_requests, requests)))

    def drafted_factor(self) -> Array:
        """The factor on every step of an engine that speculates, `(num_draws, 1)`."""
        return np.asarray(np.exp(self.drafted))

    def draw(self, index: int) -> "StepResidual":
        """One draw of it."""
        return StepResidual(*(values[index : index + 1] for values in self))


def _at(knots: Array, counts: Any) -> Array:
    """Values at `counts` rows or requests of a curve through `knots` `(num_draws, num_knots)` at powers of two."""
    last = knots.shape[1] - 1
    where = np.log2(np.clip(np.asarray(counts, dtype=float), 1.0, np.exp2(last)))
    where = where.reshape(-1, where.shape[-1] if where.ndim else 1)
    low = np.minimum(where.astype(int), last - 1)
    share = where - low
    if len(low) == 1:
        below, above = knots[:, low[0]], knots[:, low[0] + 1]
    else:
        draws = np.broadcast_to(knots, (len(low), last + 1))
        below, above = np.take_along_axis(draws, low, 1), np.take_along_axis(draws, low + 1, 1)
    return np.asarray((1.0 - share) * below + share * above)
