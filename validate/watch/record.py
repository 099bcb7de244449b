"""One interval of a watch: the JSON line, which is also what the text table and the Prometheus endpoint show."""

from dataclasses import dataclass
from typing import Any

from hwmodel.percent import probability
from validate.watch.advice import Advice
from validate.watch.steady import Steady
from validate.watch.traffic import Traffic

# ok: compared. unknown: traffic, but no comparison. idle, few: too little traffic. frozen, unreadable: /metrics says
# nothing usable. lost: no two scrapes of one process. restarted: another process answers. unreachable: none does.
STATUSES = ("ok", "unknown", "idle", "few", "frozen", "unreadable", "lost", "restarted", "unreachable")
FAILED = ("unreachable", "lost", "unreadable", "frozen")  # nothing was learned of this interval


@dataclass(frozen=True, slots=True)
class Record:
    """What one look found; `reason` is one sentence, whatever the status."""

    time: str  # ISO 8601, UTC
    status: str
    reason: str
    deployed: int | None = None
    best: int | None = None  # the announced one
    changed: bool = False
    interval_s: float | None = None
    traffic: Traffic | None = None
    advice: Advice | None = None
    notes: tuple[str, ...] = ()

    @property
    def is_failed(self) -> bool:
        """Whether the look found nothing that can be used."""
        return self.status in FAILED

    def to_dict(self) -> dict[str, Any]:
        """For JSON; every key is always there."""
        advice, compared = self.advice, self.advice is not None and self.best is not None
        speedup = advice.figures(self.best) if advice is not None and self.best is not None else None
        return {
            "time": self.time,
            "status": self.status,
            "num_speculative_tokens": self.deployed,
            "best_num_speculative_tokens": self.best,
            "speedup": speedup,
            "speedup_reason": None if compared else self.reason,
            "probability_better": advice.probability_better(self.best) if advice and self.best is not None else None,
            "changed": self.changed,
            "interval_best_num_speculative_tokens": advice.best if advice is not None else None,
            "reason": self.reason,
            "interval_s": self.interval_s,
            "traffic": None if self.traffic is None else traffic_dict(self.traffic),
            "acceptance_source": advice.acceptance_source if advice is not None else None,
            "grid": [] if advice is None else advice.rows(),
            "notes": list(self.notes),
        }


def traffic_dict(traffic: Traffic) -> dict[str, Any]:
    """The figures of a window, for JSON."""
    positions, counts = traffic.per_position, traffic.acceptance
    return {
        "concurrency": traffic.concurrency,
        "running_mean": traffic.running_mean,
        "waiting": traffic.waiting,
        "input_tokens": traffic.input_tokens,
        "output_tokens": traffic.output_tokens,
        "prefix_hit_share": traffic.prefix_hit_share,
        "tokens_per_step": traffic.tokens_per_step,
        "step_s": traffic.step_s,
        "tpot_s": traffic.tpot_s,
        "relative_noise": traffic.relative_noise,
        "throughput_tokens_per_s": traffic.throughput_tokens_per_s,
        "steps": traffic.steps,
        "num_requests": traffic.num_requests,
        "drafts": counts.drafts if counts is not None else None,
        "draft_probability": traffic.draft_probability,
        "acceptance_per_position": list(positions) if positions is not None else None,
        "acceptance_of": traffic.acceptance_source,
    }


def verdict(advice: Advice, steady: Steady, traffic: Traffic, *, changed: bool) -> str:
    """The sentence of an interval that was compared."""
    deployed, best = advice.deployed, steady.announced
    assert best is not None
    at = f"at {traffic.concurrency:.3g} requests" + (
        "" if traffic.tokens_per_step is None else f" and {traffic.tokens_per_step:.2f} tokens per step"
    )
    if best != deployed:
        start = "now" if changed else "still"
        return f"{at}, {start} {_named(best)} is better than the deployed {_named(deployed)}: {_gain(advice, best)}"
    withdrawn = "; what was announced is withdrawn" if changed else ""
    if steady.better_for:
        seen = f"{steady.better_for} of {steady.rule.persist} intervals"
        return f"{at}, {_named(advice.best)} looks better: {_gain(advice, advice.best)}; seen in {seen}{withdrawn}"
    if advice.best != deployed:
        return (
            f"{at}, the deployed {_named(deployed)} stays: {_named(advice.best)} would be {_gain(advice, advice.best)},"
            f" not sure or not large enough{withdrawn}"
        )
    return f"{at}, the deployed {_named(deployed)} is the best{withdrawn}"


def _named(k: int) -> str:
    return f"k={k}" if k else "k=0 (no speculation)"


def _gain(advice: Advice, k: int) -> str:
    figures, better = advice.figures(k), advice.probability_better(k)
    low, mid, high = (figures[name] or 0.0 for name in ("p05", "p50", "p95"))
    edge = "; the longest compared, -k compares more" if k == max(advice.gains) != advice.deployed else ""
    return f"{mid:.2f}x ({low:.2f} to {high:.2f}), P(better) {probability(better)}{edge}"
