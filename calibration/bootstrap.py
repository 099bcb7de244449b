"""Refits to data and priors drawn anew: what bounds and curvature make of the spread of an estimate.

Each sample draws the data around themselves and the prior mean around itself ("randomise, then optimise"): for a
linear model without bounds the modes are exact posterior draws. The linear answer to the same random numbers is known,
so only the difference to it has to be estimated, and some ten refits tell it (control variates).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.fit_result import FitResult

Array = NDArray[np.float64]

_ITERATIONS = 6  # of projected Gauss-Newton from the mode: a refit is never far
_DAMPING = 0.8
_MAX_STEP = 1.0  # prior standard deviations
_LEAST_SHARE = 0.05  # of the Laplace variance in any direction: fewer refits than coordinates tell no less


@dataclass(frozen=True, slots=True)
class Refits:
    """Modes of samples, `(num_refits, n)`, all inside the bounds, and what the linear model says of each sample."""

    modes: Array
    linear: Array

    def covariance(self, fit: FitResult) -> Array:
        """Second moment around the fit's mode: Laplace's, corrected by how refits differ from the linear model."""
        real, linear = self.modes - fit.mode, self.linear - fit.mode
        change = (real.T @ real - linear.T @ linear) / len(real)
        factor = fit.factor
        inverse = np.linalg.inv(factor)
        values, vectors = np.linalg.eigh(np.eye(len(factor)) + inverse @ change @ inverse.T)
        root = factor @ vectors * np.sqrt(np.maximum(values, _LEAST_SHARE))
        return np.asarray(root @ root.T)


def refits(
    linearise: Callable[[Array], tuple[Array, Array]], fit: FitResult, num_refits: int, rng: np.random.Generator
) -> Refits:
    """`num_refits` refits, in mirrored pairs; all move together, so the model is evaluated in bulk."""
    box = fit.coordinates
    noise = fit.noise_scale * fit.noise
    half = (num_refits + 1) // 2
    normal = rng.standard_normal((half, len(noise) + box.size))
    normal = np.concatenate([normal, -normal])
    data = fit.target + noise * normal[:, : len(noise)]
    means = box.mean + normal[:, len(noise) :] @ box.factor.T
    inverse = np.linalg.inv(box.factor)
    precision = inverse.T @ inverse
    shift = (data - fit.target) / noise**2 @ fit.jacobian + (means - box.mean) @ precision
    linear = fit.mode + shift @ fit.covariance
    points = np.repeat(fit.mode[None, :], len(normal), axis=0)
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
    return Refits(points, linear)
