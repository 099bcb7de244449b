"""Two special functions in numpy alone: the commands that must start fast do not load scipy."""

from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680)
_SHIFT = 7


def log_gamma(x: Array) -> Array:
    """Natural logarithm of the gamma function, x > 0, absolute error below 1e-10 (Stirling's series after a shift)."""
    product = np.ones_like(x)
    for i in range(_SHIFT):
        product = product * (x + i)
    y = x + _SHIFT
    series = sum(c / y ** (2 * i + 1) for i, c in enumerate(_STIRLING))
    return np.asarray((y - 0.5) * np.log(y) - y + 0.5 * np.log(2 * np.pi) + series - np.log(product))


def normal_quantile(probability: Array) -> Array:
    """Standard-normal quantiles of an array of probabilities."""
    return np.array([NormalDist().inv_cdf(float(p)) for p in np.ravel(probability)]).reshape(np.shape(probability))
