"""Refits to data and priors drawn anew: the spread of an estimate that sits on a bound, where no normal fits it."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from calibration.fit_result import FitResult

Array = NDArray[np.float64]

_ITERATIONS = 6  # of projected Gauss-Newton from the mode: a refit is never far
_DAMPING = 0.8
_MAX_STEP = 1.0  # prior standard deviations


def refits(
    linearise: Callable[[Array], tuple[Array, Array]], fit: FitResult, num_refits: int, rng: np.random.Generator
) -> Array:
    """Modes of `num_refits` parametric bootstrap samples, `(num_refits, n)`, all inside the bounds.

    Each sample draws the data around the fit and the prior mean around itself ("randomise, then optimise": exact
    posterior draws for a linear model without bounds). All samples move together, so the model is evaluated in bulk.
    """
    box = fit.coordinates
    noise = fit.noise_scale * fit.noise
    data = fit.target + noise * rng.standard_normal((num_refits, len(noise)))
    means = box.mean + rng.standard_normal((num_refits, box.size)) @ box.factor.T
    inverse = np.linalg.inv(box.factor)
    precision = inverse.T @ inverse
    points = np.repeat(fit.mode[None, :], num_refits, axis=0)
    free = np.ones((num_refits, box.size), dtype=bool)
    for _ in range(_ITERATIONS):
        values, jacobians = linearise(points)
        scaled = jacobians / noise[:, None]
        hessian = np.swapaxes(scaled, 1, 2) @ scaled + precision
        downhill = np.einsum("rmn,rm->rn", scaled, (data - values) / noise) + (means - points) @ precision
        free = ~(((points <= box.low) & (downhill < 0)) | ((points >= box.high) & (downhill > 0)))
        held = np.where(free[:, :, None] & free[:, None, :], hessian, 0.0)
        held[:, np.arange(box.size), np.arange(box.size)] += np.where(free, 0.0, 1.0)
        step = np.linalg.solve(held, np.where(free, downhill, 0.0)[:, :, None])[:, :, 0]
        largest = np.max(np.abs(step) / box.spread, axis=1, keepdims=True)
        step *= np.minimum(_DAMPING, _MAX_STEP / np.maximum(largest, 1e-12))
        points = np.clip(points + step, box.low, box.high)
    return points
