"""Every figure of a cell that a server can be asked about afterwards, each with its interval.

An answer shows the interval of the speedup and of the throughput. What is written down before a restart must also say
how far the step, the time per token and the tokens per step may be off: those are what the restart will measure.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simulator import explain
from simulator.answers import INTERVAL
from simulator.closed_form import ArmResult, Cell
from simulator.results import JsonObject
from simulator.study import Study
from simulator.summary import finite, quantile_rows, share_above

Array = NDArray[np.float64]

TIMES = ("step_s", "tpot_s", "ttft_s")  # the model's own error lengthens them, or shortens
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
            **{name: rows[i] for name, rows in arms.items()},
        }
        for i, cell in enumerate(cells)
    ]


def _arms(point: ArmResult, draws: ArmResult, error: Array) -> list[JsonObject]:
    """One arm at every cell."""
    bands = {name: [_band(row) for row in quantile_rows(_with_error(name, draws, error))] for name in QUANTITIES}
    return [
        {
            **{name: finite(getattr(point, name)[0, i]) for name in QUANTITIES},
            "running_requests": int(point.running[i]),
            "limited_by": point.limited_by[i],
            "parts_s": explain.parts_at(point.parts_s, i),
            "intervals": {name: bands[name][i] for name in QUANTITIES},
        }
        for i in range(len(point.limited_by))
    ]


def _with_error(name: str, draws: ArmResult, error: Array) -> Array:
    values = np.asarray(getattr(draws, name), dtype=np.float64)
    if name in TIMES:
        return values / error
    return values * error if name == "throughput_tokens_per_s" else np.broadcast_to(values, draws.step_s.shape)


def _band(quantiles: dict[str, float | None]) -> JsonObject:
    return {name: quantiles[name] for name in INTERVAL}
