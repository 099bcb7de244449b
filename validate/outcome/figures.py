"""Predicted against measured, figure by figure: inside is judged with both uncertainties, and both are stated."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from calibration.readers.values import mapping, number, positive
from simulator.deployment.tables import Measured
from validate.measure.statistics import standard_error
from validate.outcome.predicted import Asked, Predicted
from validate.outcome.run_data import RunCell

JsonObject = dict[str, Any]

Z_90 = 1.6448536269514722  # normal quantile of a two-sided 90 % interval
QUANTITIES = ("speedup", "throughput_tokens_per_s", "tpot_s", "step_s", "tokens_per_step")
_TOKENS_NOISE = 0.01  # of tokens per step at least: other prompts of the same kind differ by as much
_FEWEST_REQUESTS = 5  # behind a standard error of tokens per step
_FACT_NOISE = 0.01  # of a [[measured]] fact, as the model takes it


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of one cell: the interval of the prediction, what was measured, and its relative standard error."""

    name: str
    low: float
    middle: float
    high: float
    measured: float
    noise: float

    @property
    def log_error(self) -> float:
        """ln(measured / predicted median)."""
        return math.log(self.measured / self.middle)

    @property
    def tolerance(self) -> tuple[float, float]:
        """The 90 % interval within which such a measurement should fall: the prediction's width and the run's noise.

        Formula: middle * exp(-+ hypot(ln(middle / end), 1.645 noise)), each side for itself.
        """
        noise = Z_90 * self.noise
        down = math.hypot(math.log(self.middle / self.low), noise)
        up = math.hypot(math.log(self.high / self.middle), noise)
        return self.middle * math.exp(-down), self.middle * math.exp(up)

    @property
    def inside(self) -> bool:
        """Whether the measurement is where it should be."""
        low, high = self.tolerance
        return low <= self.measured <= high

    @property
    def within_noise(self) -> bool:
        """Whether the distance to the median is no larger than what the run's own noise makes."""
        return abs(self.log_error) <= Z_90 * self.noise

    def to_dict(self) -> JsonObject:
        """For JSON."""
        low, high = self.tolerance
        noise = math.exp(Z_90 * self.noise)
        return {
            "predicted": {"p05": self.low, "p50": self.middle, "p95": self.high},
            "measured": self.measured,
            "measured_interval": {"p05": self.measured / noise, "p95": self.measured * noise},
            "relative_noise": self.noise,
            "allowed": {"p05": low, "p95": high},
            "inside_interval": self.inside,
            "log_error": self.log_error,
            "error": self.measured / self.middle - 1.0,
        }


@dataclass(frozen=True, slots=True)
class Baseline:
    """What the speculative cell is compared with for its speedup."""

    source: str
    noise: float
    throughput_tokens_per_s: float | None
    tpot_s: float | None


def figures_of(question: Asked, predicted: Predicted, baseline: Baseline | None) -> dict[str, Figure]:
    """The figures that both prediction and run have."""
    cell, found = question.cell, {}
    for name in QUANTITIES[1:]:
        measured = _measured(cell, name)
        if name == "tokens_per_step" and not question.num_speculative_tokens:
            continue  # 1 by definition
        if name == "throughput_tokens_per_s" and not cell.is_whole:
            continue
        noise = cell.noise if name != "tokens_per_step" else tokens_noise(cell)
        found[name] = figure_of(name, band_of(predicted.forecast, name), measured, noise)
    if question.num_speculative_tokens and baseline is not None:
        speedup, _ = measured_speedup(cell, baseline)
        noise = math.hypot(cell.noise, baseline.noise)
        found["speedup"] = figure_of("speedup", mapping(predicted.forecast.get("speedup")), speedup, noise)
    return {name: found[name] for name in QUANTITIES if found.get(name) is not None}  # type: ignore[misc]


def band_of(forecast: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The predicted interval of a figure as a run counts it: a step with the prompts of others in it."""
    intervals = mapping(mapping(forecast.get("speculative")).get("intervals"))
    if name == "step_s" and "step_with_prompts_s" in intervals:
        name = "step_with_prompts_s"
    return mapping(intervals.get(name))


def figure_of(name: str, band: Mapping[str, Any], measured: float | None, noise: float) -> Figure | None:
    """The figure; None where either side has no finite number."""
    low, middle, high = (positive(band.get(end)) for end in ("p05", "p50", "p95"))
    if measured is None or low is None or middle is None or high is None or not low <= middle <= high:
        return None
    return Figure(name, low, middle, high, measured, noise)


def _measured(cell: RunCell, name: str) -> float | None:
    assert cell.measured is not None
    return positive(getattr(cell.measured, name))


def tokens_noise(cell: RunCell) -> float:
    """Relative standard error of tokens per step: of the requests where each is told, else as of the times."""
    values = []
    for record in cell.requests:
        tokens, chunks = number(record.get("output_tokens")), number(record.get("chunks"))
        if tokens and chunks and tokens > 1 and chunks > 1:
            values.append((tokens - 1) / (chunks - 1))
    if len(values) < _FEWEST_REQUESTS:
        return cell.noise
    return max((standard_error(values) or 0.0) / (sum(values) / len(values)), _TOKENS_NOISE)


def measured_speedup(cell: RunCell, baseline: Baseline) -> tuple[float | None, str | None]:
    """(throughput over throughput at one load, else TPOT over TPOT; by which of the two)."""
    found = cell.measured
    assert found is not None
    if found.throughput_tokens_per_s and baseline.throughput_tokens_per_s and cell.is_whole:
        return found.throughput_tokens_per_s / baseline.throughput_tokens_per_s, "throughput_tokens_per_s"
    if found.tpot_s and baseline.tpot_s:
        return baseline.tpot_s / found.tpot_s, "tpot_s"
    return None, None


def baseline_of_cell(cell: RunCell, source: str) -> Baseline:
    """A measured cell without drafts as the baseline."""
    found = cell.measured
    assert found is not None
    return Baseline(source, cell.noise, found.throughput_tokens_per_s, found.tpot_s)


def baseline_of_fact(fact: Measured, index: int) -> Baseline | None:
    """A `[[measured]]` fact as the baseline; None where it tells no time."""
    tpot_ms = fact.tpot_ms or fact.step_ms
    if tpot_ms is None and fact.throughput_tokens_per_s is None:
        return None
    noise = fact.relative_noise or _FACT_NOISE
    tpot_s = None if tpot_ms is None else tpot_ms * 1e-3
    return Baseline(f"measured[{index}] of the deployment", noise, fact.throughput_tokens_per_s, tpot_s)
