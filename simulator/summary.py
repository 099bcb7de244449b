"""From draws to the figures that are shown: quantiles, probabilities, and numbers fit for strict JSON."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

QUANTILES = {"p05": 0.05, "p10": 0.10, "p25": 0.25, "p50": 0.50, "p75": 0.75, "p90": 0.90, "p95": 0.95}


def quantiles(draws: Array) -> dict[str, float | None]:
    """Quantiles of a vector of draws by name, linear between order statistics; infinite ones are None."""
    return quantile_rows(draws[:, None])[0]


def quantile_rows(draws: Array) -> list[dict[str, float | None]]:
    """Quantiles of every column of `(num_draws, num_cells)`."""
    ordered = np.sort(draws.T, axis=1)
    position = np.array(list(QUANTILES.values())) * (ordered.shape[1] - 1)
    low = np.floor(position).astype(int)
    high = np.minimum(low + 1, ordered.shape[1] - 1)
    below, above = ordered[:, low], ordered[:, high]
    with np.errstate(invalid="ignore"):
        values = np.where(above == below, below, below + (above - below) * (position - low))
    return [{name: finite(x) for name, x in zip(QUANTILES, row, strict=True)} for row in values]


def median(draws: Array) -> Array:
    """Median along the first axis: the mean of the two middle values. (`numpy.median` loads `numpy.ma` at start-up.)"""
    low, high = (len(draws) - 1) // 2, len(draws) // 2
    ordered = np.partition(draws, (low, high), axis=0)
    return np.asarray(0.5 * (ordered[low] + ordered[high]))


def finite(value: Any) -> float | None:
    """A float for JSON: None for NaN and infinity."""
    number = float(value)
    return number if math.isfinite(number) else None


def share_above(draws: Array, threshold: float) -> float:
    """Share of draws above a threshold; ties count half, so that equal arms give one half."""
    return float(np.mean(draws > threshold) + 0.5 * np.mean(draws == threshold))
