"""What measurements say a step takes beyond the cost model: a factor by token rows, and one for steps with drafts.

A baseline sweep over the concurrency is the cost of a step by its number of token rows T; verifying drafts runs the
same rows. So what a fit leaves over at T holds for a drafted step of T rows as well (docs/calibration.md, eq. C2).
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

NUM_KNOTS = 14  # 1, 2, 4, ... 8192 rows: the largest default token budget of an engine step
KNOT_TOKENS: Array = np.exp2(np.arange(float(NUM_KNOTS)))


class StepResidual(NamedTuple):
    """Log factors on the target's pass: `at_knots` `(num_draws, NUM_KNOTS)`, linear in ln T in between, held outside.

    `drafted` `(num_draws, 1)` is one more for every step of an engine that speculates: what the model misses of it.
    """

    at_knots: Array
    drafted: Array

    def factor(self, tokens: Any) -> Array:
        """The factor for steps of `tokens` rows that carry work, broadcast to `(num_draws, num_cells)`."""
        where = np.log2(np.clip(np.asarray(tokens, dtype=float), 1.0, KNOT_TOKENS[-1]))
        where = where.reshape(-1, where.shape[-1] if where.ndim else 1)
        low = np.minimum(where.astype(int), NUM_KNOTS - 2)
        share = where - low
        if len(low) == 1:
            below, above = self.at_knots[:, low[0]], self.at_knots[:, low[0] + 1]
        else:
            draws = np.broadcast_to(self.at_knots, (len(low), NUM_KNOTS))
            below, above = np.take_along_axis(draws, low, 1), np.take_along_axis(draws, low + 1, 1)
        return np.asarray(np.exp((1.0 - share) * below + share * above))

    def drafted_factor(self) -> Array:
        """The factor on every step of an engine that speculates, `(num_draws, 1)`."""
        return np.asarray(np.exp(self.drafted))

    def draw(self, index: int) -> "StepResidual":
        """One draw of it."""
        return StepResidual(self.at_knots[index : index + 1], self.drafted[index : index + 1])
