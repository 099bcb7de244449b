"""What the model may miss, as coordinates of the fit: smooth factors over rows and requests, one for drafted steps.

Prior of the factors at the knots: the field of `calibration.residual`, together of standard deviation tau; of drafted
steps: a constant of a deployment, a share of tau (docs/calibration.md, eq. C2).
"""

import numpy as np
from numpy.typing import NDArray

from calibration.coordinates import Coordinates, normal_coordinates
from calibration.residual import knot_covariance
from hwmodel.residual import NUM_LOG_FACTORS, REQUEST_KNOTS, ROW_KNOTS
from simulator.profile import CONSTANT_SHARE

Array = NDArray[np.float64]

OFFSET = "drafted steps, log factor"


def residual_covariance(tau: float, usual: float) -> Array:
    """Prior covariance of the residual coordinates, `(NUM_LOG_FACTORS, NUM_LOG_FACTORS)`; `usual` is the usual tau."""
    covariance = np.zeros((NUM_LOG_FACTORS, NUM_LOG_FACTORS))
    covariance[:-1, :-1] = knot_covariance(max(1.0 - (usual / tau) ** 2, 0.0))
    covariance[-1, -1] = CONSTANT_SHARE**2
    return tau**2 * covariance


def residual_coordinates(tau: float, usual: float) -> Coordinates:
    """The knots and the factor of drafted steps, around 0."""
    rows = (f"step at {x:.0f} rows, log factor" for x in ROW_KNOTS)
    requests = (f"step at {x:.0f} requests, log factor" for x in REQUEST_KNOTS)
    factor = np.asarray(np.linalg.cholesky(residual_covariance(tau, usual)))
    return normal_coordinates((*rows, *requests, OFFSET), factor)
