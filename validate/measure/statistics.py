"""Means, percentiles and intervals of what a cell measured."""

import math
from collections.abc import Sequence
from typing import Any

from calibration.readers.values import mean

# 97.5 % points of Student's t with 1, 2, ... degrees of freedom; above the table the normal's.
_T_975 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.10)
_NORMAL_975 = 1.96
NUM_BLOCKS = 10  # batch means: enough for an interval, few enough to be longer than what correlates
MIN_BLOCKS = 3


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of `values` lies, linear between two; at least one value.

    >>> percentile([1.0, 2.0, 3.0, 4.0], 0.5)
    2.5
    """
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def student_975(num_values: int) -> float:
    """The factor from a standard error of `num_values` values to the half-width of a 95 % interval."""
    freedom = num_values - 1
    return _T_975[freedom - 1] if 1 <= freedom <= len(_T_975) else _NORMAL_975


def standard_error(values: Sequence[float]) -> float | None:
    """Standard error of the mean of independent values; None for fewer than two."""
    if len(values) < 2:
        return None
    centre = mean(values)
    variance = math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1)
    return math.sqrt(variance / len(values))


def precision_of(values: Sequence[float], num_users: int) -> tuple[float | None, float | None]:
    """(standard error, half-width of the 95 % interval) of the mean of requests in the order in which they ended.

    Requests that run together share their engine steps, so they are not independent: the larger of the error of
    independent values and that of the means of blocks of at least `num_users` requests. None with fewer than three
    blocks, which say too little.
    """
    num_blocks = min(NUM_BLOCKS, len(values) // num_users)
    independent = standard_error(values)
    if num_blocks < MIN_BLOCKS or independent is None:
        return independent, None
    size = len(values) / num_blocks
    blocks = [mean(values[round(i * size) : round((i + 1) * size)]) for i in range(num_blocks)]
    error = standard_error(blocks) or 0.0
    half = max(student_975(num_blocks) * error, student_975(len(values)) * independent)
    return max(error, independent), half


def described(values: Sequence[float], num_users: int = 1) -> dict[str, Any] | None:
    """Mean, percentiles, and 95 % interval of the mean (None where too few values tell it); None without values."""
    if not values:
        return None
    centre = mean(values)
    error, half = precision_of(values, num_users)
    return {
        "mean": centre,
        "p50": percentile(values, 0.5),
        "p90": percentile(values, 0.9),
        "p95": percentile(values, 0.95),
        "p99": percentile(values, 0.99),
        "stderr": error,
        "ci95": None if half is None else [max(0.0, centre - half), centre + half],
    }
