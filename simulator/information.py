"""What a measurement is worth before it is made: expected regret of a choice, with it, without it, and with certainty.

Preposterior analysis on draws: the outcome that the model predicts for each draw gets its noise, the utilities are
regressed on it, and the choice that the regression would make is valued at the draw's own utilities (docs/model.md,
eq. I1 and I2). Regression on the draws in place of nested sampling: Strong, Oakley, Brennan and Breeze (2015), Medical
Decision Making 35(5), 570-583.
"""

import numpy as np
from numpy.typing import NDArray

from hwmodel.records import dataclass

Array = NDArray[np.float64]
Ints = NDArray[np.int_]

_REPLICATES = 4  # of the noise for every draw
_FOLDS = 5  # the regression that decides for a draw has not seen it
_MOST_COMPONENTS = 6  # of an outcome: 28 terms of a quadratic
_VISIBLE = 0.2  # signal over noise below which a component tells nothing
_RIDGE = 1e-3
_SMALLEST = 1e-12
_FAR = 5.0  # standard deviations to which outcomes are cut: a quadratic must not run away


@dataclass(frozen=True, slots=True)
class Signal:
    """What a measurement would show without noise, `(num_draws, num_outcomes)`, and its noise `(num_outcomes,)`."""

    values: Array
    noise: Array


@dataclass(frozen=True, slots=True)
class Worth:
    """A measurement's worth in units of utility, with the standard error of the estimate.

    `chosen` are the choices after it, `(num_replicates, num_draws)`.
    """

    evsi: float
    standard_error: float
    chosen: Ints

    def changes(self, choice: int) -> float:
        """Probability that another choice is made than `choice`."""
        return float(np.mean(self.chosen != choice))


@dataclass(frozen=True)
class Decision:
    """Choices with utilities `(num_draws, num_choices)`: equally likely states, more is better."""

    utilities: Array

    @property
    def choice(self) -> int:
        """What to choose knowing nothing more: the largest expected utility, the first of equals."""
        return int(np.argmax(self.utilities.mean(axis=0)))

    @property
    def losses(self) -> Array:
        """What each draw's best choice has over the one chosen now, `(num_draws,)`."""
        return np.asarray(self.utilities.max(axis=1) - self.utilities[:, self.choice])

    @property
    def evpi(self) -> float:
        """Expected regret of choosing now, which certainty would take away (docs/model.md, eq. I1)."""
        return float(self.losses.mean())

    @property
    def evpi_standard_error(self) -> float:
        """Monte Carlo error of `evpi`."""
        return float(self.losses.std() / np.sqrt(len(self.losses)))

    def worth(self, signal: Signal, seed: int) -> Worth:
        """The expected value of the measurement (docs/model.md, eq. I2); equal seeds draw the same noise."""
        rng = np.random.default_rng(seed)
        scores = components(signal)
        draws, now = len(self.utilities), self.choice
        noise = rng.standard_normal((_REPLICATES, draws, _MOST_COMPONENTS))[:, :, : scores.shape[1]]
        if not scores.shape[1]:
            return Worth(0.0, 0.0, np.full((_REPLICATES, draws), now))
        seen = scores + noise
        fold = np.arange(draws) % (draws - draws // 2) % _FOLDS  # draws come in mirrored pairs: both in one fold
        chosen = np.empty((_REPLICATES, draws), dtype=int)
        for number in range(_FOLDS):
            out = fold == number
            chosen[:, out] = self._choices(seen[:, ~out], self.utilities[~out], seen[:, out])
        rows = np.arange(draws)
        gains = self.utilities[rows, chosen].mean(axis=0) - self.utilities[:, now]
        error = float(gains.std() / np.sqrt(draws))
        return Worth(max(float(gains.mean()), 0.0), error, chosen)

    def _choices(self, seen: Array, utilities: Array, unseen: Array) -> Ints:
        """Choices for outcomes `(replicates, unseen draws, n)` by a quadratic fitted to the seen ones."""
        center, spread = seen.mean(axis=(0, 1)), seen.std(axis=(0, 1)) + _SMALLEST
        basis = _quadratic(np.concatenate((seen - center) / spread))
        gram = basis.T @ basis + _RIDGE * len(basis) * np.eye(basis.shape[1]) * (np.arange(basis.shape[1]) > 0)
        target = np.concatenate([utilities] * len(seen))
        coefficients = np.linalg.solve(gram, basis.T @ (target - target.mean(axis=0)))
        flat = _quadratic(np.concatenate((unseen - center) / spread))
        expected = target.mean(axis=0) + flat @ coefficients
        return np.asarray(expected.argmax(axis=1).reshape(unseen.shape[:2]))


def components(signal: Signal) -> Array:
    """The outcome along its directions that stand out of the noise, in units of it, `(num_draws, num_components)`.

    Directions are orthogonal, so the noise stays independent with standard deviation 1.
    """
    if not signal.values.shape[1]:
        return np.zeros((len(signal.values), 0))
    scaled = signal.values / signal.noise
    centered = scaled - scaled.mean(axis=0)
    _, sizes, directions = np.linalg.svd(centered, full_matrices=False)
    visible = (sizes / np.sqrt(len(centered)) > _VISIBLE)[: len(directions)]
    return np.asarray(centered @ directions[visible][:_MOST_COMPONENTS].T)


def _quadratic(x: Array) -> Array:
    """1, every column, and every product of two, `(rows, terms)`."""
    x = np.clip(x, -_FAR, _FAR)
    first, second = np.triu_indices(x.shape[1])
    return np.concatenate([np.ones((len(x), 1)), x, x[:, first] * x[:, second]], axis=1)
