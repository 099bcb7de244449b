"""What the model may miss, as coordinates of the fit: a smooth factor over the token rows, and one for drafted steps.

Prior of the factor at the knots: normal, standard deviation tau, correlated over octaves of T (Matern 3/2); of drafted
steps: a constant of a deployment, a share of tau (docs/calibration.md, eq. C2).
"""

import numpy as np
from numpy.typing import NDArray

from calibration.coordinates import Coordinates, normal_coordinates
from hwmodel.residual import KNOT_TOKENS, NUM_KNOTS
from simulator.profile import CONSTANT_SHARE

Array = NDArray[np.float64]

OCTAVES = 1.5  # how far a deviation reaches: the hump of one AllReduce switch is one to two octaves wide
OFFSET = "drafted steps, log factor"


def knot_name(index: int) -> str:
    """Name of a knot's coordinate."""
    return f"step at {KNOT_TOKENS[index]:.0f} rows, log factor"


def unit_factor() -> Array:
    """Factor of the covariance of the residual coordinates at tau = 1, `(NUM_KNOTS + 1, NUM_KNOTS + 1)`."""
    octaves = np.log2(KNOT_TOKENS)
    distance = np.sqrt(3.0) * np.abs(octaves[:, None] - octaves[None, :]) / OCTAVES
    covariance = (1.0 + distance) * np.exp(-distance)
    factor = np.zeros((NUM_KNOTS + 1, NUM_KNOTS + 1))
    factor[:-1, :-1] = np.linalg.cholesky(covariance)
    factor[-1, -1] = CONSTANT_SHARE
    return factor


def residual_coordinates(tau: float) -> Coordinates:
    """The knots and the factor of drafted steps, around 0."""
    names = (*(knot_name(i) for i in range(NUM_KNOTS)), OFFSET)
    return normal_coordinates(names, tau * unit_factor())
