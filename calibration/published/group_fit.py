"""The cost model fitted to the baseline of one group, and the step ratio that follows for speculation.

Only numbers that an operator has before the restart enter: the baseline's own figures, datasheets, the model's shape.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration.published.rows import PublishedRow
from calibration.published.systems import Candidate
from calibration.residual import ResidualField, StepPoints
from simulator.closed_form import baseline_step, speculative_step
from simulator.posterior import Observation, Posterior, condition
from simulator.system import System

Array = NDArray[np.float64]

BASELINE_NOISE = 0.03  # cells of 10-30 s repeat to 3-5 % (docs/accuracy.md, "Sources")
_USUAL_OUTPUT_TOKENS = 1000.0
_LONGEST_COUNTED_OUTPUT = 2000.0  # an upper bound such as `<=8192` is no mean
_USUAL_PROMPT_TOKENS = 300.0  # with half an output: 800 tokens, the usual mean context of data sets
_SMALLEST_WEIGHT = 0.02
_MOST_POINTS = 2000  # of a sweep: more tell nothing new, and the field's matrix grows with their square
_LOCAL = 0.1  # of ln(time): twice the standard deviation of the residual field


@dataclass(frozen=True, slots=True)
class Cells:
    """Cells of one group, arrays `(num_cells,)`; `baseline_step_s` is NaN where not measured or not to be seen."""

    num_speculative_tokens: NDArray[np.int_]
    concurrency: Array
    context_tokens: Array
    baseline_step_s: Array

    @classmethod
    def of(cls, rows: Sequence[PublishedRow], *, with_baseline: bool) -> "Cells":
        """The cells of rows that have a concurrency."""
        steps = [row.baseline_step_s if with_baseline and row.baseline_step_s else np.nan for row in rows]
        return cls(
            np.array([row.num_speculative_tokens or 0 for row in rows]),
            np.array([row.requests or 1.0 for row in rows]),
            np.array([mean_context_tokens(row) for row in rows]),
            np.array(steps, dtype=float),
        )

    @property
    def measured(self) -> NDArray[np.int_]:
        """Positions of distinct measured baselines: rows that differ in k repeat the same one."""
        found: dict[tuple[float, float, float], int] = {}
        for i in np.flatnonzero(np.isfinite(self.baseline_step_s)):
            found.setdefault((self.concurrency[i], self.context_tokens[i], self.baseline_step_s[i]), int(i))
        return np.array(sorted(found.values()), dtype=int)

    def sweep(self, divisor: int) -> "Sweep | None":
        """The measured baseline, one point a load and context: repeats count as their mean, known so much better."""
        at = self.measured
        if not len(at):
            return None
        keys = np.stack([self.concurrency[at], self.context_tokens[at]], axis=1)
        points, place, counts = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
        logs = np.bincount(place.ravel(), np.log(self.baseline_step_s[at])) / counts
        kept = np.unique(np.linspace(0, len(points) - 1, min(len(points), _MOST_POINTS)).astype(int))
        sequences = np.maximum(points[kept, 0] / divisor, 1.0)
        measured = StepPoints(sequences, sequences, points[kept, 1])
        return Sweep(measured, np.asarray(logs[kept]), BASELINE_NOISE / np.sqrt(counts[kept]))


@dataclass(frozen=True, slots=True)
class Sweep:
    """Measured baseline steps of one rank's sequences: ln of seconds and its standard error, `(num_points,)`."""

    points: StepPoints
    log_step_s: Array
    noise: Array


def mean_context_tokens(row: PublishedRow) -> float:
    """Mean context of a decode step: the stated context (else a prompt), and half of the output."""
    output = min(row.output_tokens or _USUAL_OUTPUT_TOKENS, _LONGEST_COUNTED_OUTPUT)
    if row.context_tokens is not None:
        return row.context_tokens + output / 2.0
    return (row.input_tokens or _USUAL_PROMPT_TOKENS) + output / 2.0


@dataclass(frozen=True, slots=True)
class GroupFit:
    """One candidate of a group with its parameters narrowed by the baseline; `weight` sums to 1 over the candidates."""

    candidate: Candidate
    posterior: Posterior
    field: ResidualField | None
    sweep: Sweep | None
    weight: float

    @property
    def system(self) -> System:
        """The candidate's system."""
        return self.candidate.system

    def log_step_ratio(self, z: Array, cells: Cells, draft_probability: Any = 1.0) -> Array:
        """ln of the speculative step over the baseline step at parameter coordinates `z`, `(num_draws, num_cells)`.

        The baseline is the measured one where there is one; what the model misses of it is carried over to the step of
        speculation by the residual field.
        """
        system, p = self.system, self.system.priors.parameters(z)
        k, sequences, context = cells.num_speculative_tokens, cells.concurrency, cells.context_tokens
        divisor = system.batch_divisor
        per_replica = np.maximum(sequences / divisor, 1.0)
        share = np.broadcast_to(draft_probability, (len(z), len(k)))
        spec = np.log(speculative_step(system, p, k, per_replica, share, context).total_s)
        base = np.log(baseline_step(system, p, per_replica, context, detail=False).total_s)
        if self.field is None or self.sweep is None:
            return np.asarray(spec - base)
        at = self.sweep.points
        predicted = baseline_step(system, p, at.sequences, at.context_tokens, detail=False)
        residual = self.sweep.log_step_s - np.log(predicted.total_s)
        offset = common_offset(residual)
        residual, spec, base = residual - offset, spec + offset, base + offset
        rows = per_replica * (1.0 + k * np.mean(share, axis=0))
        spec = spec + residual @ self.field.weights(StepPoints(rows, per_replica, context)).T
        base = base + residual @ self.field.weights(StepPoints(per_replica, per_replica, context)).T
        base = np.where(np.isfinite(cells.baseline_step_s), np.log(cells.baseline_step_s), base)
        return np.asarray(spec - base)

    def residual_sd(self, cells: Cells, draft_probability: Any = 1.0) -> Array:
        """Standard deviation of the ratio that the baseline leaves open beyond the parameters, `(num_cells,)`."""
        if self.field is None:
            return np.zeros(len(cells.concurrency))
        share = np.mean(np.atleast_2d(draft_probability), axis=0)
        per_replica = np.maximum(cells.concurrency / self.system.batch_divisor, 1.0)
        rows = per_replica * (1.0 + cells.num_speculative_tokens * share)
        return self.field.sd(StepPoints(rows, per_replica, cells.context_tokens))


def common_offset(residual: Array) -> Array:
    """The part of residuals `(num_draws, num_points)` that no local field explains, `(num_draws, 1)`.

    Where all of a sweep lies far from every candidate (an engine or a GPU that nobody described), the whole step is
    off by a factor, at other loads as well: what exceeds the few percent that the field is for.
    """
    middle = np.median(residual, axis=1, keepdims=True)
    return np.asarray(np.sign(middle) * np.maximum(np.abs(middle) - _LOCAL, 0.0))


def fit_candidates(candidates: Sequence[Candidate], cells: Cells) -> list[GroupFit]:
    """Every candidate narrowed by the measured baselines among `cells`, weighted by how well it explains them."""
    fits = [_fit(candidate, cells) for candidate in candidates]
    if not fits:
        return []
    score = np.array([_log_evidence(fit) for fit in fits])
    weight = np.exp(score - score.max())
    weight /= weight.sum()
    kept = [(fit, w) for fit, w in zip(fits, weight, strict=True) if w >= _SMALLEST_WEIGHT]
    total = sum(w for _, w in kept)
    return [replace(fit, weight=float(w / total)) for fit, w in kept]


def _log_evidence(fit: GroupFit) -> float:
    """Log of prior times likelihood at the mode."""
    posterior = fit.posterior
    return float(fit.candidate.log_prior - 0.5 * (np.sum(posterior.residuals**2) + np.sum(posterior.mode**2)))


def _fit(candidate: Candidate, cells: Cells) -> GroupFit:
    system = candidate.system
    number = len(system.priors.priors)
    sweep = cells.sweep(system.batch_divisor)
    if sweep is None:
        return GroupFit(candidate, condition(lambda z: z, [], number), None, None, 1.0)
    sequences, context = sweep.points.sequences, sweep.points.context_tokens

    def predict(z: Array) -> Array:
        step = baseline_step(system, system.priors.parameters(z), sequences, context, detail=False)
        return np.log(step.total_s)

    facts = zip(sequences.tolist(), sweep.log_step_s.tolist(), sweep.noise.tolist(), strict=True)
    posterior = condition(predict, [Observation(f"baseline at {c:g} requests", y, sd) for c, y, sd in facts], number)
    return GroupFit(candidate, posterior, ResidualField.of(sweep.points, sweep.noise), sweep, 1.0)
