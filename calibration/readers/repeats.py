"""Repeated runs of one setting, pooled: their scatter is the noise that no single run shows."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from calibration.readers.values import mean
from calibration.records import AcceptanceCounts, MeasuredCell
from hwmodel.percent import percent

_MEANS = (
    "concurrency",
    "tpot_s",
    "step_s",
    "ttft_s",
    "throughput_tokens_per_s",
    "tokens_per_step",
    "input_tokens",
    "output_tokens",
    "context_tokens",
    "prefill_share",
)
_FLOOR = 0.015  # what repeats on one server share: clocks, placement, the state of its caches


def pooled(cells: Sequence[MeasuredCell], source: str) -> MeasuredCell:
    """One cell of repeated ones: means, counts added, the standard error of the mean as noise."""
    if len(cells) == 1:
        return replace(cells[0], source=source)
    means: dict[str, Any] = {name: _mean(cells, name) for name in _MEANS}
    notes = tuple(dict.fromkeys(note for cell in cells for note in cell.notes))
    scatter = _scatter(cells)
    return replace(
        cells[0],
        source=source,
        relative_noise=_noise(cells, scatter),
        num_requests=_sum(cells, "num_requests"),
        duration_s=_sum(cells, "duration_s"),
        acceptance=_added([cell.acceptance for cell in cells]),
        notes=(*notes, f"mean of {len(cells)} runs that scatter by {percent(scatter, 1)}"),
        **means,
    )


def _values(cells: Sequence[MeasuredCell], name: str) -> list[float]:
    return [value for cell in cells if (value := getattr(cell, name)) is not None]


def _mean(cells: Sequence[MeasuredCell], name: str) -> float | None:
    values = _values(cells, name)
    return mean(values) if values else None


def _sum(cells: Sequence[MeasuredCell], name: str) -> float | None:
    values = _values(cells, name)
    return math.fsum(values) if values else None


def _scatter(cells: Sequence[MeasuredCell]) -> float:
    """Relative standard deviation of the runs' TPOT, unbiased."""
    values = _values(cells, "tpot_s")
    if len(values) < 2:
        return 0.0
    centre = mean(values)
    return math.sqrt(math.fsum((value / centre - 1) ** 2 for value in values) / (len(values) - 1))


def _noise(cells: Sequence[MeasuredCell], scatter: float) -> float:
    """Of the mean of n runs: the larger of what they scatter and what each claims, over sqrt(n), and a shared part."""
    claimed = _values(cells, "relative_noise")
    single = max(scatter, mean(claimed) if claimed else 0.0)
    return math.hypot(_FLOOR, single / math.sqrt(len(cells)))


def _added(counts: Sequence[AcceptanceCounts | None]) -> AcceptanceCounts | None:
    """Counts of several runs together; None where one is missing or has other positions."""
    known = [item for item in counts if item is not None]
    if not known or len(known) < len(counts) or len({len(item.accepted_per_position) for item in known}) > 1:
        return None
    return AcceptanceCounts(
        drafts=math.fsum(item.drafts for item in known),
        accepted_per_position=tuple(
            math.fsum(column) for column in zip(*(item.accepted_per_position for item in known), strict=True)
        ),
        draft_tokens=_total([item.draft_tokens for item in known]),
        steps=_total([item.steps for item in known]),
        num_requests=_total([item.num_requests for item in known]),
    )


def _total(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) if len(known) == len(values) else None
