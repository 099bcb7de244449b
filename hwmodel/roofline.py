"""Time of one operator from its bytes and FLOP."""

from typing import Any

import numpy as np


def smooth_maximum(a_s: Any, b_s: Any, exponent: float) -> Any:
    """(a^p + b^p)^(1/p): the sum for p = 1, close to the larger for big p. Times in seconds, any shapes.

    A kernel whose loads and arithmetic overlap badly has p near 1, one that overlaps well a larger p; fitted values by
    architecture are in data/fits/architectures.toml (docs/model.md, eq. R1). Powers of two are done by square roots,
    which are ten times faster than a general power.
    """
    if exponent == 1.0:
        return a_s + b_s
    if exponent == 2.0:
        return np.sqrt(a_s * a_s + b_s * b_s)
    if exponent == 4.0:
        return np.sqrt(np.sqrt(a_s**4 + b_s**4))
    return (a_s**exponent + b_s**exponent) ** (1.0 / exponent)


def operator_time_s(num_bytes: Any, bytes_per_s: Any, flop: Any, flop_per_s: Any, exponent: float) -> Any:
    """Seconds for an operator that reads `num_bytes` and computes `flop` (docs/model.md, eq. R1)."""
    return smooth_maximum(num_bytes / bytes_per_s, flop / flop_per_s, exponent)
