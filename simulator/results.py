"""Typed answers and their JSON: the shapes of the command contract (docs/guide.md, "JSON").

Named tuples: each starts five times faster than a frozen dataclass, and start-up time is a requirement.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

JsonObject = dict[str, Any]
NO_ROOM = "does_not_fit"  # what limits an arm, `limited_by`, whose weights or cache the GPUs cannot hold


def both_fit(row: Mapping[str, Any]) -> bool:
    """Whether both arms of an answer as JSON run: the figures of one that does not fit assume that it did."""
    return not any(lacks_memory(row[arm]) for arm in ("baseline", "speculative"))


def lacks_memory(arm: Mapping[str, Any]) -> bool:
    """Whether this arm of an answer as JSON does not fit."""
    return arm.get("limited_by") == NO_ROOM


class ArmPoint(NamedTuple):
    """One arm at one cell, at the posterior median of the parameters. Seconds, tokens per second."""

    step_s: float
    tpot_s: float
    ttft_s: float
    throughput_tokens_per_s: float
    tokens_per_step: float
    running_requests: int
    limited_by: str
    parts_s: dict[str, float]
    throughput_interval: dict[str, float | None]

    def to_dict(self, *, speculative: bool) -> JsonObject:
        """The arm as JSON; `tokens_per_step` only where there is speculation."""
        result: JsonObject = {
            "step_s": self.step_s,
            "tpot_s": self.tpot_s,
            "ttft_s": self.ttft_s,
            "throughput_tokens_per_s": self.throughput_tokens_per_s,
            "throughput_tokens_per_s_interval": self.throughput_interval,
            "running_requests": self.running_requests,
            "limited_by": self.limited_by,
            "parts_s": self.parts_s,
        }
        if speculative:
            result["tokens_per_step"] = self.tokens_per_step
        return result


class Prediction(NamedTuple):
    """One configuration against its baseline."""

    inputs: JsonObject
    speedup: dict[str, float | None]
    probability_faster: float
    break_even_tokens_per_step: float
    baseline: ArmPoint
    speculative: ArmPoint
    plateau: JsonObject
    distinct_experts_per_layer: JsonObject | None
    memory: JsonObject
    why: tuple[str, ...]
    notes: tuple[str, ...]
    client_effects: tuple[str, ...]
    prediction_id: str

    def to_dict(self) -> JsonObject:
        """The JSON object of `draftcast predict --json`."""
        return {
            "inputs": self.inputs,
            "speedup": self.speedup,
            "probability_faster": self.probability_faster,
            "break_even_tokens_per_step": self.break_even_tokens_per_step,
            "baseline": self.baseline.to_dict(speculative=False),
            "speculative": self.speculative.to_dict(speculative=True),
            "plateau": self.plateau,
            "distinct_experts_per_layer": self.distinct_experts_per_layer,
            "memory": self.memory,
            "why": list(self.why),
            "notes": list(self.notes),
            "client_effects": list(self.client_effects),
            "prediction_id": self.prediction_id,
        }


class GridCell(NamedTuple):
    """One (draft length, concurrency) of a choice."""

    num_speculative_tokens: int
    concurrency: int
    speedup: dict[str, float | None]
    probability_faster: float
    tpot_s: float
    ttft_s: float
    throughput_tokens_per_s: float
    tokens_per_step: float
    limited_by: str

    def to_dict(self) -> JsonObject:
        """The cell as JSON."""
        return self._asdict()


class Recommendation(NamedTuple):
    """What to deploy. `num_speculative_tokens` 0 means: do not enable it."""

    num_speculative_tokens: int
    best_if_enabled: int
    schedule: list[list[int]] | None
    schedule_reason: str | None
    schedule_gain: dict[str, float | None] | None
    flag: str
    restart_worth_it: bool
    probability_better: float
    gain: dict[str, float | None]
    by_load: list[JsonObject]
    why: str
    client_effects: tuple[str, ...]

    def to_dict(self) -> JsonObject:
        """The recommendation as JSON."""
        return {**self._asdict(), "client_effects": list(self.client_effects)}


class Choice(NamedTuple):
    """The grid and the recommendation."""

    inputs: JsonObject
    grid: tuple[GridCell, ...]
    recommendation: Recommendation
    restart: JsonObject
    memory: JsonObject
    why: tuple[str, ...]
    notes: tuple[str, ...]
    prediction_id: str

    def to_dict(self) -> JsonObject:
        """The JSON object of `draftcast choose --json`."""
        return {
            "inputs": self.inputs,
            "grid": [cell.to_dict() for cell in self.grid],
            "recommendation": self.recommendation.to_dict(),
            "restart": self.restart,
            "memory": self.memory,
            "why": list(self.why),
            "notes": list(self.notes),
            "prediction_id": self.prediction_id,
        }


class WhatIfRow(NamedTuple):
    """One variant of the deployment; `error` instead of figures where it cannot be built.

    `failed_reason` instead where it may well be possible, but its computation failed.
    """

    vary: JsonObject
    prediction: Prediction | None
    error: str | None = None
    failed_reason: str | None = None

    def to_dict(self) -> JsonObject:
        """The row as JSON."""
        if self.failed_reason is not None:
            return {"vary": self.vary, "failed_reason": self.failed_reason}
        if self.prediction is None:
            return {"vary": self.vary, "error": self.error}
        full = self.prediction.to_dict()
        kept = ("speedup", "probability_faster", "break_even_tokens_per_step", "baseline", "speculative")
        return {"vary": self.vary, **{name: full[name] for name in kept}}


class WhatIf(NamedTuple):
    """Variants of one deployment side by side; fewer than `rows_total` where the sweep was `stopped`, and by what."""

    inputs: JsonObject
    rows: tuple[WhatIfRow, ...]
    notes: tuple[str, ...]
    rows_total: int
    stopped: str | None = None

    def to_dict(self) -> JsonObject:
        """The JSON object of `draftcast whatif --json`."""
        return {
            "inputs": self.inputs,
            "rows": [row.to_dict() for row in self.rows],
            "rows_done": len(self.rows),
            "rows_total": self.rows_total,
            "complete": self.stopped is None,
            "stopped_reason": self.stopped,
            "notes": list(self.notes),
        }
