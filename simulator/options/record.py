"""What one option says: gain by load, needs, time to the benefit, payback, risk, and the experiment that settles it."""

from typing import Any, Literal, NamedTuple

from simulator.decision import SCHEDULE_MARGIN

JsonObject = dict[str, Any]
Interval = dict[str, float | None]  # "p05", "p50", "p95"

NeedKind = Literal["restart", "weights", "memory", "training", "money", "hardware", "software", "tuning"]
RiskLevel = Literal["none", "low", "unknown", "lossy"]


class Need(NamedTuple):
    """One thing that an option takes; `amounts` are figures with their unit in the key, null where not known."""

    kind: NeedKind
    text: str
    amounts: dict[str, float | None]

    def to_dict(self) -> JsonObject:
        """The need as JSON."""
        return {"kind": self.kind, "text": self.text, **self.amounts}


class Risk(NamedTuple):
    """What happens to the output: `none` exact or the same distribution, `low` rounding, `lossy` other text."""

    level: RiskLevel
    text: str


class LoadGain(NamedTuple):
    """The option at one load: throughput over today's baseline, with its interval."""

    concurrency: int
    num_speculative_tokens: int
    speedup: Interval
    probability_faster: float
    tpot_s: float
    throughput_tokens_per_s: float
    limited_by: str


class NextBest(NamedTuple):
    """What becomes the best method once the option is in place, and the gain of both together over today."""

    method: str
    drafter: str  # the head or draft model by name, else the method
    num_speculative_tokens: int
    speedup: Interval
    gain: Interval  # of the deployment's objective
    probability_faster: float
    payback_s: Interval
    changes: tuple[str, ...]
    by_load: tuple[LoadGain, ...]
    needs: tuple[Need, ...]  # of the drafter, besides those of the option


class Experiment(NamedTuple):
    """The cheapest measurement that would settle the option, and the outage it takes (0: none, None: not stated)."""

    text: str
    outage_s: float | None = 0.0
    command: str | None = None
    takes_money: bool = False  # a machine must be rented or borrowed
    restarts: int = 0


class Option(NamedTuple):
    """One way to faster decoding. Gains are over the baseline as it runs today, without speculation.

    `changes` are the deployment overrides that the option stands for, as `--set` takes them, so that `predict` with
    them gives the same figures. `speedup` is over the whole traffic (the loads weighted as the deployment says),
    `gain` the same of the deployment's objective; they differ only where the objective is not throughput.
    """

    name: str
    kind: str  # "drafter", "training", "engine", "communication", "hardware", "memory", ...
    method: str
    num_speculative_tokens: int
    changes: tuple[str, ...]
    by_load: tuple[LoadGain, ...]
    speedup: Interval
    gain: Interval
    probability_faster: float
    needs: tuple[Need, ...]
    time_to_benefit_s: float | None
    payback_s: Interval
    payback_reason: str | None
    risk: Risk
    assumptions: tuple[str, ...]
    next_experiment: Experiment
    best_after: NextBest | None = None
    notes: tuple[str, ...] = ()

    @property
    def best(self) -> "Option | NextBest":
        """The figures that count: with the best drafter where that gains clearly more, else alone."""
        after = self.best_after
        if after is not None and (after.gain["p50"] or 0.0) > (self.gain["p50"] or 0.0) * (1.0 + SCHEDULE_MARGIN):
            return after
        return self

    @property
    def value(self) -> float:
        """The median gain by which options are ordered."""
        return self.best.gain["p50"] or 0.0

    def to_dict(self) -> JsonObject:
        """The option as JSON."""
        return {
            **self._asdict(),
            "changes": list(self.changes),
            "by_load": [each._asdict() for each in self.by_load],
            "needs": [need.to_dict() for need in self.needs],
            "risk": self.risk._asdict(),
            "assumptions": list(self.assumptions),
            "next_experiment": self.next_experiment._asdict(),
            "with_best_drafter": self.best is not self,
            "best_after": None if self.best_after is None else _plain(self.best_after),
            "notes": list(self.notes),
        }


def _plain(after: NextBest) -> JsonObject:
    by_load = [each._asdict() for each in after.by_load]
    needs = [need.to_dict() for need in after.needs]
    return {**after._asdict(), "changes": list(after.changes), "by_load": by_load, "needs": needs}
