"""Speedups of one group: step ratio of the fitted candidates, acceptance, and what the model itself may be off by.

ln S = ln(tokens per step) - ln(step ratio) + b + e: b is one error of the whole group (a constant of the box that no
baseline shows), e one of each cell. What may be seen of speculative runs narrows all of it by a linear update of the
draws (docs/accuracy.md, eq. G2).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.published.group_fit import Cells, GroupFit
from calibration.published.rows import PublishedRow
from simulator.parameters import standard_draws

Array = NDArray[np.float64]

# Scatter of ln(speedup) that neither parameters nor the residual field explain, such that 90 % intervals hold about
# 90 % of the published rows (docs/accuracy.md): of a whole group, more where its baseline is not seen, and of a cell.
GROUP_ERROR_SD, BLIND_GROUP_ERROR_SD = 0.035, 0.09
CELL_ERROR_SD = 0.035
POOLED_LENGTH_SD = 0.04  # of ln(tokens per step) of one cell; pooled over n cells it falls with sqrt(n)
_SMALLEST_LENGTH_SD = 0.01
NUM_DRAWS = 400
_FEWEST_DRAWS = 60
# Survival of an exact n-gram draft by position: replay of vLLM's search on recorded reasoning text, first 1k tokens
# (specification of the model, section 1.4); held at its last conditional value.
_LOOKUP_SURVIVAL = (0.573, 0.386, 0.303, 0.256, 0.232)
_LOOKUP_ROUNDS = 12  # of the fixed point between draft probability and tokens per step
_FEWEST_DRAFTED = 0.02


@dataclass(frozen=True, slots=True)
class Seen:
    """What of a group's speculative runs may be used: positions of rows among the cells that are predicted.

    `lengths` maps a draft length to the rows whose accepted length is known; `calibration` maps a draft length to rows
    whose speedup fits the acceptance; `anchors` are rows whose speedup is known besides.
    """

    lengths: Mapping[int, Sequence[int]]
    calibration: Mapping[int, Sequence[int]]
    anchors: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class SpeedupPrediction:
    """Predicted speedups `(num_cells,)` with 5th and 95th percentile; NaN where no acceptance is known."""

    speedup: Array
    p05: Array
    p95: Array
    tokens_per_step: Array
    step_ratio: Array


def predict_group(
    fits: Sequence[GroupFit], rows: Sequence[PublishedRow], cells: Cells, seen: Seen, *, intervals: bool = True
) -> SpeedupPrediction:
    """The speedup of every cell (row by row), given what is seen of the group.

    Without `intervals` both ends are the prediction itself, at a tenth of the time, and anchors are not used.
    """
    group = _Group(fits, rows, cells, seen)
    shares = [group.drafted_share(fit) for fit in fits]
    point_ratio = group.point_ratio(shares)
    point_length = group.log_lengths(point_ratio[None, :], np.zeros((1, len(rows))))[0]
    if not intervals:
        speedup = np.exp(point_length - point_ratio)
        return SpeedupPrediction(speedup, speedup, speedup, np.exp(point_length), np.exp(point_ratio))
    ratios = group.drawn_ratios(shares)
    rng = np.random.default_rng(0)
    blind = all(fit.field is None for fit in fits)
    shared = (BLIND_GROUP_ERROR_SD if blind else GROUP_ERROR_SD) * rng.standard_normal((len(ratios), 1))
    apart = CELL_ERROR_SD * rng.standard_normal(ratios.shape)
    lengths = group.log_lengths(ratios, shared + CELL_ERROR_SD * rng.standard_normal(ratios.shape), rng)
    drawn = lengths - ratios + shared + apart
    point = point_length - point_ratio
    if len(seen.anchors):
        observed = np.log([rows[i].speedup or 1.0 for i in seen.anchors])
        point, drawn = _anchored(point, drawn, list(seen.anchors), observed)
    low, high = (np.exp(np.quantile(drawn, q, axis=0)) for q in (0.05, 0.95))
    return SpeedupPrediction(np.exp(point), low, high, np.exp(point_length), np.exp(point_ratio))


def _anchored(point: Array, drawn: Array, at: list[int], observed: Array) -> tuple[Array, Array]:
    """The linear update of all cells by the cells whose speedup is known.

    The draws hold the scatter of the cell itself, noise of its measurement included, so nothing is added to it.
    """
    centred = drawn - drawn.mean(axis=0)
    covariance = centred.T @ centred[:, at] / (len(drawn) - 1)
    gain = covariance @ np.linalg.inv(covariance[at] + 1e-6 * np.eye(len(at)))
    return point + gain @ (observed - point[at]), drawn + (observed - drawn[:, at]) @ gain.T


@dataclass(frozen=True, slots=True)
class _Group:
    fits: Sequence[GroupFit]
    rows: Sequence[PublishedRow]
    cells: Cells
    seen: Seen

    def point_ratio(self, shares: Sequence[Array]) -> Array:
        """ln of the step ratio at the modes, the candidates averaged by weight; `shares` are those of each one."""
        parts = [
            fit.weight * fit.log_step_ratio(fit.posterior.mode[None, :], self.cells, share)[0]
            for fit, share in zip(self.fits, shares, strict=True)
        ]
        return np.asarray(sum(parts))

    def drawn_ratios(self, shares: Sequence[Array]) -> Array:
        """Draws of ln of the step ratio, `(num_draws, num_cells)`, each candidate as often as it weighs."""
        draws = []
        for index, (fit, share) in enumerate(zip(self.fits, shares, strict=True)):
            rng = np.random.default_rng(index)
            number = max(round(NUM_DRAWS * fit.weight), _FEWEST_DRAWS if fit.weight > 0.5 else 2)
            z = fit.posterior.draws(standard_draws(number, len(fit.posterior.mode), rng))
            ratio = fit.log_step_ratio(z, self.cells, share)
            draws.append(ratio + fit.residual_sd(self.cells, share) * rng.standard_normal(ratio.shape))
        return np.concatenate(draws)

    def drafted_share(self, fit: GroupFit) -> Array:
        """Share of the steps with a draft, by cell: 1 but for text lookup, where it is solved with the speedup."""
        k = self.cells.num_speculative_tokens
        if not fit.system.mode(int(k[0])).variable_draft_length:
            return np.ones((1, len(k)))
        accepted = np.array([_lookup_accepted(int(each)) for each in k])
        share = np.full((1, len(k)), 0.2)
        mode = fit.posterior.mode[None, :]
        for _ in range(_LOOKUP_ROUNDS):
            ratio = fit.log_step_ratio(mode, self.cells, share)
            lengths = self.log_lengths(ratio, np.zeros_like(ratio))[0]
            emitted = np.where(np.isfinite(lengths), np.exp(lengths), 1.0 + 0.2 * accepted)
            share = np.clip((emitted - 1.0) / accepted, _FEWEST_DRAFTED, 1.0)[None, :]
        return share

    def log_lengths(self, ratios: Array, error: Array, rng: np.random.Generator | None = None) -> Array:
        """ln of tokens per step, `(num_draws, num_cells)`: pooled over the rows that tell it, else fitted to those that
        calibrate it; NaN where nothing does. `error` is the model's in each cell (it cancels where it is shared)."""
        k = self.cells.num_speculative_tokens
        found = np.full(np.broadcast_shapes(ratios.shape, error.shape), np.nan)
        for length in sorted(set(k.tolist())):
            at = k == length
            if length in self.seen.lengths:
                told = np.log([self.rows[i].mean_accepted_length or 1.0 for i in self.seen.lengths[length]])
                spread = max(POOLED_LENGTH_SD / np.sqrt(len(told)), _SMALLEST_LENGTH_SD)
                noise = 0.0 if rng is None else spread * rng.standard_normal((len(found), 1))
                found[:, at] = np.mean(told) + noise
            elif length in self.seen.calibration:
                use = list(self.seen.calibration[length])
                observed = np.log([self.rows[i].speedup or 1.0 for i in use])
                fitted = np.clip(observed + ratios[:, use] - error[:, use], 0.0, np.log(length + 1.0))
                found[:, at] = fitted.mean(axis=1, keepdims=True)
        return found


def _lookup_accepted(num_speculative_tokens: int) -> float:
    """Expected accepted tokens of a text-lookup draft of that length."""
    known = _LOOKUP_SURVIVAL[:num_speculative_tokens]
    ratio = _LOOKUP_SURVIVAL[-1] / _LOOKUP_SURVIVAL[-2]
    beyond = [_LOOKUP_SURVIVAL[-1] * ratio**i for i in range(1, num_speculative_tokens - len(known) + 1)]
    return float(sum(known) + sum(beyond))
