"""What the model may miss, as coordinates of the fit: smooth factors over rows and requests, one for drafted steps.

Prior of the factors at the knots: normal, together of standard deviation tau, correlated over octaves (Matern 3/2); of
drafted steps: a constant of a deployment, a share of tau (docs/calibration.md, eq. C2).
"""

import numpy as np
from numpy.typing import NDArray

from calibration.coordinates import Coordinates, normal_coordinates
from hwmodel.residual import NUM_LOG_FACTORS, NUM_ROW_KNOTS, REQUEST_KNOTS, ROW_KNOTS
from simulator.profile import CONSTANT_SHARE

Array = NDArray[np.float64]

# How far a deviation reaches: the hump of one AllReduce switch is one to two octaves of rows wide; what belongs to
# requests (scheduler, KV reads) grows more smoothly.
_ROW_OCTAVES, _REQUEST_OCTAVES = 1.5, 2.0
# Of the variance that belongs to rows: a baseline sweep cannot tell it from that of requests. Published baselines left
# 3 % and humps of 3.5 % to rows, 2 % to requests (docs/accuracy.md, eq. G1).
_ROW_SHARE = 0.84
OFFSET = "drafted steps, log factor"


def unit_factor() -> Array:
    """Factor of the covariance of the residual coordinates at tau = 1, `(NUM_LOG_FACTORS, NUM_LOG_FACTORS)`."""
    factor = np.zeros((NUM_LOG_FACTORS, NUM_LOG_FACTORS))
    factor[:NUM_ROW_KNOTS, :NUM_ROW_KNOTS] = np.sqrt(_ROW_SHARE) * _field(ROW_KNOTS, _ROW_OCTAVES)
    factor[NUM_ROW_KNOTS:-1, NUM_ROW_KNOTS:-1] = np.sqrt(1.0 - _ROW_SHARE) * _field(REQUEST_KNOTS, _REQUEST_OCTAVES)
    factor[-1, -1] = CONSTANT_SHARE
    return factor


def _field(knots: Array, octaves: float) -> Array:
    """Factor of the covariance of a smooth field of variance 1 at the knots."""
    where = np.log2(knots)
    distance = np.sqrt(3.0) * np.abs(where[:, None] - where[None, :]) / octaves
    return np.asarray(np.linalg.cholesky((1.0 + distance) * np.exp(-distance)), dtype=np.float64)


def residual_coordinates(tau: float) -> Coordinates:
    """The knots and the factor of drafted steps, around 0."""
    rows = (f"step at {x:.0f} rows, log factor" for x in ROW_KNOTS)
    requests = (f"step at {x:.0f} requests, log factor" for x in REQUEST_KNOTS)
    return normal_coordinates((*rows, *requests, OFFSET), tau * unit_factor())
