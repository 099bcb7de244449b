"""Typed results of a simulation and their JSON: the shapes of the command contract (docs/guide.md, "JSON")."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from simulator.results import JsonObject
from simulator.serving.metrics import NUM_BATCHES, OF_ALL_ENGINES, ArmMetrics, Slo, spread
from simulator.summary import finite

_STUDENT_T_90 = 1.729  # 95 % quantile of Student's t with NUM_BATCHES - 1 = 19 degrees of freedom
_NOTHING_COUNTED = "no request of the counted part finished: ramp-up and the first requests do not count"
_LEAST_BATCH_REQUESTS = 2  # fewer in a batch: no interval


@dataclass(frozen=True, slots=True)
class ArmReport:
    """One arm of a run, summed up. `scale` is by how much the deployment is larger than the engine simulated."""

    metrics: ArmMetrics
    now_s: float
    scale: float
    finished_all: bool

    @property
    def throughput_tokens_per_s(self) -> float | None:
        """Formula: tokens emitted in the window / length of the window, times the engines that share the load."""
        window = self.metrics.window_s(self.now_s)
        return self.metrics.window_tokens / window * self.scale if window > 0.0 else None

    def goodput(self) -> JsonObject:
        """Share of requests within the limits, and their rate in the window."""
        window = self.metrics.window_s(self.now_s)
        rate = self.scale / window if window > 0.0 else None
        return {
            "attainment": self.metrics.attainment,
            "requests_per_s": None if rate is None else self.metrics.kept * rate,
            "tokens_per_s": None if rate is None else self.metrics.kept_tokens * rate,
        }

    def _series(self) -> dict[str, list[float]]:
        """The series of the metrics; what counts requests or tokens is of the whole deployment, as the throughput."""
        series = self.metrics.series.to_dict()
        for name in OF_ALL_ENGINES:
            series[name] = [value * self.scale for value in series[name]]
        return series

    def to_dict(self) -> JsonObject:
        """The arm as JSON; what is undefined is None."""
        m, t = self.metrics, self.metrics.totals
        return {
            "requests": t.finished,
            "throughput_tokens_per_s": self.throughput_tokens_per_s,
            "ttft_s": spread(m.ttft),
            "tpot_s": spread(m.tpot),
            "itl_s": spread(m.itl),
            "e2e_s": spread(m.e2e),
            "step_s": m.step_s,
            "tokens_per_step": m.tokens_per_step,
            "percentiles_reason": None if m.counted else _NOTHING_COUNTED,
            "preemptions": t.preemptions,
            "kv_usage": {"mean": m.kv_usage_s / t.busy_s if t.busy_s else None, "max": m.kv_usage_max},
            "requests_arrived": t.arrived,
            "requests_counted": m.counted,
            "requests_rejected": t.rejected,
            "rejections": m.rejections,
            "requests_unfinished": t.arrived - t.finished - t.rejected,
            "engine_steps": t.steps,
            "output_tokens": t.first_tokens + t.decode_tokens,
            "wasted_tokens": t.wasted_tokens,
            "prompt_tokens_computed": t.prompt_tokens,
            "drafts": t.drafts,
            "draft_tokens": t.draft_tokens,
            "accepted_tokens": t.accepted_tokens,
            "duration_s": self.now_s,
            "busy_s": t.busy_s,
            "window_s": m.window_s(self.now_s),
            "series": self._series(),
        }


def batch_interval(point: float | None, baseline: ArmMetrics, speculative: ArmMetrics, *, closed: bool) -> JsonObject:
    """`{p05, p50, p95}` of the speedup and how it was found, from batches of the same requests in both arms.

    Closed loop: by Little's law the throughput ratio is the ratio of summed e2e times; open loop: of mean TPOTs.
    Formula: point * exp(-+ t * sd(ln ratio of a batch) / sqrt(batches)) with Student's t.
    """
    undefined = {"p05": None, "p50": point, "p95": None}
    if point is None:
        return {"speedup": undefined, "speedup_reason": "too little was finished for a ratio"}
    fewest = min(int(baseline.batch_requests.min()), int(speculative.batch_requests.min()))
    same = bool((baseline.batch_requests == speculative.batch_requests).all())
    if fewest < _LEAST_BATCH_REQUESTS or not same:
        reason = f"too few requests for an interval: allowed from {_LEAST_BATCH_REQUESTS * NUM_BATCHES} counted ones on"
        return {"speedup": undefined, "speedup_reason": reason}
    ours, theirs = (arm.batch_e2e_s if closed else arm.batch_tpot_s for arm in (speculative, baseline))
    if not (ours > 0.0).all() or not (theirs > 0.0).all():
        return {"speedup": undefined, "speedup_reason": "requests of one token have no time per output token"}
    logs = np.log(theirs / ours)
    half = _STUDENT_T_90 * float(logs.std(ddof=1)) / np.sqrt(NUM_BATCHES)
    speedup = {"p05": point * float(np.exp(-half)), "p50": point, "p95": point * float(np.exp(half))}
    return {"speedup": speedup, "speedup_reason": None}


def mean_tpot_ratio(baseline: ArmMetrics, speculative: ArmMetrics) -> float | None:
    """Baseline mean TPOT over speculative mean TPOT: the speedup of open-loop arrivals."""
    ours, theirs = speculative.tpot.mean_s, baseline.tpot.mean_s
    return finite(theirs / ours) if ours and theirs else None


@dataclass(frozen=True, slots=True)
class Simulation:
    """Both arms of a simulated serving run over the same requests."""

    inputs: JsonObject
    baseline: ArmReport | None
    speculative: ArmReport | None
    speedup: JsonObject
    goodput: JsonObject
    outage: JsonObject | None
    notes: tuple[str, ...]
    partial: bool
    runs: JsonObject | None = None  # where more than one was asked for

    def to_dict(self) -> JsonObject:
        """The JSON object of `draftcast simulate --json`."""
        result: dict[str, Any] = {
            "inputs": self.inputs,
            "baseline": None if self.baseline is None else self.baseline.to_dict(),
            "speculative": None if self.speculative is None else self.speculative.to_dict(),
            **self.speedup,
            "goodput": self.goodput,
        }
        if self.outage is not None:
            result["outage"] = self.outage
        if self.runs is not None:
            result["runs"] = self.runs
        return {**result, "notes": list(self.notes), "partial": self.partial}


def goodput_report(slo: Slo, arms: dict[str, ArmReport | None], rates: dict[str, JsonObject]) -> JsonObject:
    """The `goodput` object: limits, what each arm served within them, and the highest rate that keeps them."""
    limits = {"ttft_s_max": slo.ttft_s_max, "tpot_s_max": slo.tpot_s_max, "percentile": slo.percentile}
    if not slo.stated:
        return {"slo": limits, "reason": "neither objective.tpot_ms_max nor objective.ttft_ms_max is given"}
    served = {name: {**(arm.goodput() if arm else {}), **rates.get(name, {})} for name, arm in arms.items()}
    return {"slo": limits, **served}
