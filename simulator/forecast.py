"""Every figure of a cell that a server can be asked about afterwards, each with its interval.

An answer shows the interval of the speedup and of the throughput. What is written down before a restart must also say
how far the step, the time per token and the tokens per step may be off: those are what the restart will measure.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simulator import explain
from simulator.answers import INTERVAL
from simulator.closed_form import ArmResult, Cell, evaluate
from simulator.results import JsonObject
from simulator.study import Study
from simulator.summary import finite, quantile_rows, share_above

Array = NDArray[np.float64]

# The model's own error lengthens them, or shortens. `step_with_prompts_s` is what a server's counters tell: the mean
# time between two steps of a request, the prompts of others included.
TIMES = ("step_s", "step_with_prompts_s", "tpot_s", "ttft_s")
QUANTITIES = (*TIMES, "throughput_tokens_per_s", "tokens_per_step")


def forecast_cells(study: Study, cells: Sequence[Cell]) -> list[JsonObject]:
    """Both arms and the speedup at every cell: point values at the posterior median, 5th to 95th percentile of draws.

    The model's error multiplies a throughput and divides a time; tokens per step depend on acceptance alone.
    """
    point, grid = study.grid(cells, point=True), study.grid(cells, point=False)
    speedup = study.with_model_error(grid)
    bands = [_band(row) for row in quantile_rows(speedup)]
    arms = {
        "baseline": _arms(point.baseline, grid.baseline, study.model_error_factor),
        "speculative": _arms(point.speculative, grid.speculative, study.model_error_factor),
    }
    return [
        {
            "num_speculative_tokens": cell.num_speculative_tokens,
            "concurrency": cell.concurrency,
            "speedup": bands[i],
            "probability_faster": share_above(speedup[:, i], 1.0) if cell.num_speculative_tokens else 0.0,
            "acceptance": acceptance_of(study, cell.num_speculative_tokens),
            **{name: rows[i] for name, rows in arms.items()},
        }
        for i, cell in enumerate(cells)
    ]


def acceptance_of(study: Study, num_speculative_tokens: int) -> JsonObject | None:
    """What is taken for granted of the drafts of that length: `per_position` S_1..S_k, and the share of steps with one.

    None without drafts.
    """
    if not num_speculative_tokens:
        return None
    found = study.acceptance.for_length(num_speculative_tokens)
    share = quantile_rows(found.draft_probability)[0]
    accepted = quantile_rows(found.survival[:, :num_speculative_tokens].sum(axis=1)[:, None])[0]
    return {
        "per_position": found.median_survival[0, :num_speculative_tokens].tolist(),
        "draft_probability": found.median_draft_probability,
        "intervals": {"draft_probability": _band(share), "accepted_per_draft": _band(accepted)},
        "source": found.source,
    }


def at_acceptance(study: Study, cell: Cell, per_position: Sequence[float], draft_probability: float) -> JsonObject:
    """The point values of the speculative arm and the speedup of one cell, were the acceptance as given.

    `per_position` is S_1..S_k, unconditional per draft. With the study's own acceptance it is the point forecast.
    """
    k = cell.num_speculative_tokens
    survival = np.asarray(per_position, dtype=np.float64)[None, :k]
    share = np.array([[draft_probability]])
    grid = evaluate(study.system, study.point_parameters, [cell], survival, share, study.kv_cache_tokens)
    found = {name: float(figure(name, grid.speculative)[0, 0]) for name in QUANTITIES}
    return {**found, "speedup": float(grid.speedup[0, 0])}


def figure(name: str, arm: ArmResult) -> Array:
    """One figure of an arm, `(num_draws, num_cells)`."""
    if name == "step_with_prompts_s":
        return np.asarray(arm.tpot_s * arm.tokens_per_step)
    return np.asarray(np.broadcast_to(getattr(arm, name), arm.step_s.shape), dtype=np.float64)


def _arms(point: ArmResult, draws: ArmResult, error: Array) -> list[JsonObject]:
    """One arm at every cell."""
    bands = {name: [_band(row) for row in quantile_rows(_with_error(name, draws, error))] for name in QUANTITIES}
    return [
        {
            **{name: finite(figure(name, point)[0, i]) for name in QUANTITIES},
            "running_requests": int(point.running[i]),
            "limited_by": point.limited_by[i],
            "parts_s": explain.parts_at(point.parts_s, i),
            "intervals": {name: bands[name][i] for name in QUANTITIES},
        }
        for i in range(len(point.limited_by))
    ]


def _with_error(name: str, draws: ArmResult, error: Array) -> Array:
    values = figure(name, draws)
    if name in TIMES:
        return values / error
    return values * error if name == "throughput_tokens_per_s" else values


def _band(quantiles: dict[str, float | None]) -> JsonObject:
    return {name: quantiles[name] for name in INTERVAL}
