"""How alike the model's error is at neighbouring loads: the published baseline sweeps, each source predicted unseen.

The field of eq. C2 (docs/calibration.md) makes what exceeds the usual model error broad: `BROAD_SHARE` of its variance
over `BROAD_LENGTH` in ln(rows). Compared with a field of local humps alone, by the likelihood of the sweeps and by what
one measured load says of the others. Most sweeps can be explained by their parameters; so that errors are seen which
cannot, as where two measurements exclude each other, the parameters' prior spreads count in full, half and a quarter.
Right: the broad field predicts sources that its share and length were not chosen on, and none of them much worse.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from calibration.model_error import ModelError
from calibration.published.group_fit import Cells, GroupFit, fit_candidates
from calibration.published.rows import grouped
from calibration.published.systems import candidates
from calibration.published.tables import shipped_rows
from calibration.residual import BROAD_LENGTH, BROAD_SHARE, StepPoints, broad_covariance, local_covariance
from simulator.closed_form import baseline_step
from simulator.posterior import linearise
from validate.backtest.left_out import family
from validate.backtest.protocol import prepare
from verification.checks import Check, report

Array = NDArray[np.float64]

SPREADS = (1.0, 0.5, 0.25)  # of the parameters, times their priors'
SHARES, LENGTHS = (0.0, 0.3, 0.45, 0.6, 0.75, 0.9), (1.2, 1.8, 2.5, 3.5, 5.0)
LEAST_GAIN = {1.0: 0.0, 0.5: 1.0, 0.25: 3.0}  # of the log likelihood of all families, each as one sweep
MOST_LOST = 0.25  # of it, by one family
TAUS = np.exp(np.linspace(np.log(0.01), 0.0, 60))
USUAL = ModelError.prior(0.05, 0.4)  # model_error of hwmodel/data/priors.toml
SAME = 0.01  # of an error, relative


@dataclass(frozen=True)
class Sweep:
    """A baseline at its shortest context: rows, ln(measured / model at the priors), its reach by parameters, noise."""

    family: str
    rows: Array
    log_step_s: Array
    errors: Array
    reach: Array  # (num_points, num_parameters)
    noise: Array

    def covariance(self, tau: float, share: float, length: float, spread: float) -> Array:
        """Of the errors: parameters, the usual field, what exceeds it, noise."""
        usual = min(tau, USUAL.effective) ** 2
        excess = share * (tau**2 - usual)
        points = StepPoints(self.rows, self.rows, np.zeros_like(self.rows))
        field = (tau**2 - excess) * local_covariance(points) + excess * broad_covariance(np.log(self.rows), length)
        return np.asarray(spread**2 * self.reach @ self.reach.T + field + np.diag(self.noise**2))

    def log_likelihoods(self, share: float, length: float, spread: float, last: int | None = None) -> Array:
        """Log density of the errors (of the first `last` of them) at each tau, with the prior of tau, `(num_taus,)`."""
        found = []
        for tau in TAUS:
            factor = np.linalg.cholesky(self.covariance(tau, share, length, spread)[:last, :last])
            white = np.linalg.solve(factor, self.errors[:last])
            found.append(-0.5 * white @ white - np.log(np.diag(factor)).sum())
        return np.array(found) - 2.5 * np.log1p(
            (np.log(TAUS / USUAL.value) / USUAL.log_sd) ** 2 / 4.0
        )  # Student's t, C3

    def evidence(self, share: float, length: float, spread: float) -> float:
        """Log of the likelihood over tau."""
        return float(np.logaddexp.reduce(self.log_likelihoods(share, length, spread)))

    def from_one_load(self, share: float, spread: float) -> tuple[Array, Array]:
        """Errors of the other loads given the lowest, and their ranks in what is predicted, `(num_points - 1,)`."""
        weights = np.exp(self.log_likelihoods(share, BROAD_LENGTH, spread, 1))
        means, ranks = np.zeros(len(self.rows) - 1), np.zeros(len(self.rows) - 1)
        for tau, weight in zip(TAUS, weights / weights.sum(), strict=True):
            c = self.covariance(float(tau), share, BROAD_LENGTH, spread)
            mean = c[1:, 0] / c[0, 0] * self.errors[0]
            left = np.sqrt(np.diag(c)[1:] - c[1:, 0] ** 2 / c[0, 0])
            means += weight * mean
            ranks += weight * ndtr((self.errors[1:] - mean) / left)
        return self.errors[1:] - means, ranks


def sweeps() -> list[Sweep]:
    """Every distinct baseline of two loads and more, on the system that explains it best."""
    found: dict[bytes, Sweep] = {}
    for group in grouped(shipped_rows()).values():
        task, _ = prepare(group, "informed")
        systems = candidates(task.rows) if task else []
        if task and systems:
            fits = fit_candidates(systems, Cells.of(task.baselines, with_baseline=True))
            sweep = sweep_of(family(task.rows[0]), max(fits, key=lambda fit: fit.weight))
            if sweep is not None:
                found.setdefault(sweep.rows.tobytes() + np.round(sweep.log_step_s, 6).tobytes(), sweep)
    return list(found.values())


def sweep_of(source: str, fit: GroupFit) -> Sweep | None:
    """The errors of one fit, linear in the parameters at its mode; None where there is one load or none."""
    if fit.sweep is None:
        return None
    points, priors = fit.sweep.points, fit.system.priors
    at = points.context_tokens == points.context_tokens.min()
    if at.sum() < 2:
        return None

    def log_step(z: Array) -> Array:
        parameters = priors.parameters(z)
        step = baseline_step(fit.system, parameters, points.sequences[at], points.context_tokens[at], detail=False)
        return np.asarray(np.log(step.total_s))

    predicted, reach = linearise(log_step, fit.posterior.mode)
    measured = fit.sweep.log_step_s[at]
    errors = measured - predicted + reach @ fit.posterior.mode
    return Sweep(source, points.sequences[at], measured, errors, reach, fit.sweep.noise[at])


def by_family(found: Sequence[Sweep], values: Array) -> dict[str, Array]:
    """Means of the values of each sweep over those of one source."""
    names = np.array([sweep.family for sweep in found])
    return {name: values[names == name].mean(axis=0) for name in dict.fromkeys(names.tolist())}


def likelihoods(found: Sequence[Sweep], spread: float) -> Iterator[Check]:
    """What the broad part gains, by source, and what a source gains by the share and length that all others prefer."""
    local = np.array([sweep.evidence(0.0, BROAD_LENGTH, spread) for sweep in found])
    broad = np.array([sweep.evidence(BROAD_SHARE, BROAD_LENGTH, spread) for sweep in found])
    gains = by_family(found, broad - local)
    each = ", ".join(f"{name} {float(gain):+.2f}" for name, gain in gains.items())
    total = float(sum(gains.values()))
    text = f"spreads x {spread:g}: the broad field gains {total:+.2f} in ln likelihood ({each})"
    yield Check(text, min(total - LEAST_GAIN[spread], 0.0), 0.0)
    yield Check(f"spreads x {spread:g}: no source loses much", min(0.0, *map(float, gains.values())), MOST_LOST)
    grid = [(share, length) for share in SHARES for length in LENGTHS]
    tried = np.array([[sweep.evidence(*point, spread) for point in grid] for sweep in found]) - local[:, None]
    table = by_family(found, tried)
    unseen, chosen = 0.0, []
    for name, own in table.items():
        best = int(np.argmax(sum(other for key, other in table.items() if key != name)))
        unseen += float(own[best])
        chosen.append(f"{name} {grid[best][0]:g}/{grid[best][1]:g}")
    text = f"spreads x {spread:g}: share and length chosen on the other sources gain {unseen:+.2f}: {', '.join(chosen)}"
    yield Check(text, min(unseen, 0.0), 0.0)


def one_load(found: Sequence[Sweep], spread: float) -> Iterator[Check]:
    """The other loads of each sweep from its lowest one: their error, and how many lie in their 90 % intervals."""
    shown = []
    for share in (0.0, BROAD_SHARE):
        pairs = [sweep.from_one_load(share, spread) for sweep in found]
        errors = by_family(found, np.array([np.mean(left**2) for left, _ in pairs]))
        inside = by_family(found, np.array([np.mean(np.abs(rank - 0.5) < 0.45) for _, rank in pairs]))
        shown.append((float(np.sqrt(np.mean(list(errors.values())))), float(np.mean(list(inside.values())))))
    (before, held), (after, holds) = shown
    text = f"one load, spreads x {spread:g}: others off by {after:.3f}, local field {before:.3f} (rms of ln)"
    yield Check(f"{text}; in 90 % intervals {holds:.0%}, local {held:.0%}", max(after / before - 1.0, 0.0), SAME)


def checks() -> Iterator[Check]:
    """For each freedom of the parameters."""
    found = sweeps()
    for spread in SPREADS:
        yield from likelihoods(found, spread)
        yield from one_load(found, spread)


def main() -> int:
    """1 when a check fails."""
    return report("error_by_load", checks())


if __name__ == "__main__":
    sys.exit(main())
