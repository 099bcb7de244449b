"""Two simple references, computed in the same run: what a log-log plot or the textbook formula would have said."""

import numpy as np
from numpy.typing import NDArray

from calibration.published.group_fit import Cells
from calibration.published.prediction import Seen
from calibration.published.rows import PublishedRow

Array = NDArray[np.float64]


def interpolated_ratio(cells: Cells, sweep: Cells) -> Array:
    """Step ratio by log-log interpolation of the baseline sweep of the same context, `(num_cells,)`; no drafter cost.

    A step that verifies C (1 + k) tokens is taken to cost what C (1 + k) requests cost; beyond the sweep the slope of
    its last two points goes on, and one point alone is flat.
    """
    at = sweep.measured
    rows = cells.concurrency * (1.0 + cells.num_speculative_tokens)
    ratios = np.zeros(len(rows))
    for i in range(len(rows)):
        same = at[sweep.context_tokens[at] == cells.context_tokens[i]]
        if len(same):
            x, y = _sorted(np.log(sweep.concurrency[same]), np.log(sweep.baseline_step_s[same]))
            ratios[i] = _line(np.log(rows[i]), x, y) - _line(np.log(cells.concurrency[i]), x, y)
    return np.asarray(ratios)


def _sorted(x: Array, y: Array) -> tuple[Array, Array]:
    order = np.argsort(x, kind="stable")
    keep = np.concatenate([[True], np.diff(x[order]) > 0.0])
    return x[order][keep], y[order][keep]


def _line(at: float, x: Array, y: Array) -> float:
    if len(x) > 1 and at > x[-1]:
        slope = (y[-1] - y[-2]) / (x[-1] - x[-2])
        return float(y[-1] + slope * (at - x[-1]))
    return float(np.interp(at, x, y))


def reference_speedups(rows: tuple[PublishedRow, ...], log_ratio: Array, seen: Seen) -> Array:
    """Speedups for a given ln of the step ratio, acceptance taken from the same rows as the model takes it."""
    speedups = np.full(len(rows), np.nan)
    for i, row in enumerate(rows):
        k = row.num_speculative_tokens or 0
        if k in seen.lengths:
            told = np.mean(np.log([rows[j].mean_accepted_length or 1.0 for j in seen.lengths[k]]))
        elif k in seen.calibration:
            use = list(seen.calibration[k])
            fitted = np.log([rows[j].speedup or 1.0 for j in use]) + log_ratio[use]
            told = np.mean(np.clip(fitted, 0.0, np.log(k + 1.0)))
        else:
            continue
        speedups[i] = np.exp(told - log_ratio[i])
    return speedups
