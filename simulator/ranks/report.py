"""What a simulated step answers, and its JSON (command contract: `draftcast step --json`)."""

from dataclasses import asdict, dataclass
from typing import Any

JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RankReport:
    """One rank over the mean step, seconds: computing, inside AllReduce, and of that waiting for the last rank."""

    rank: int
    gpu: int
    compute_s: float
    allreduce_s: float
    network_s: float
    wait_s: float
    experts_s: float
    drafter_s: float
    draft_communication_s: float  # of drafter_s
    distinct_experts_per_layer: float | None  # that this rank reads
    times_last: float  # AllReduces of the target that the others waited in for this rank


@dataclass(frozen=True, slots=True)
class LinkReport:
    """One direction of one link over the mean step. `queued_s` is what messages waited for it, all together."""

    name: str
    kind: str
    num_messages: float
    num_bytes: float
    busy_s: float
    busy_share: float
    queued_s: float


@dataclass(frozen=True, slots=True)
class AllReduceReport:
    """The AllReduces of the target's pass: how many, how large, and where their time goes (means per AllReduce).

    `mean_s` is what a profiler sees: `network_s` after the last rank has entered, `skew_s` waiting for it.
    """

    count: int
    bytes: float
    algorithm: str
    mean_s: float
    nccl_tests_s: float  # what a test of the AllReduce alone shows
    network_s: float
    skew_s: float
    share: float  # of the step
    published_links_s: float | None
    calibration: float | None  # network time over that on the links as published
    alternatives: tuple[JsonObject, ...]

    def to_dict(self) -> JsonObject:
        """The record as JSON."""
        return {**asdict(self), "alternatives": list(self.alternatives)}


@dataclass(frozen=True, slots=True)
class ExpertReport:
    """Distinct experts, GEMM rows and imbalance of the sampled routing, per MoE layer and step."""

    sampled: float
    sampled_min: int
    sampled_max: int
    expected: float
    padded_rows: float
    busiest_rank_over_mean: float | None
    num_experts: int
    top_k: int
    tokens: int

    def to_dict(self) -> JsonObject:
        """The record as JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class RankStep:
    """One engine step on the ranks (mean over the simulated steps). `parts_s` adds up to `step_s`."""

    inputs: JsonObject
    step_s: float
    steps_s: tuple[float, ...]
    parts_s: dict[str, float]
    closed_form: JsonObject
    distinct_experts_per_layer: ExpertReport | None
    ranks: tuple[RankReport, ...]
    links: tuple[LinkReport, ...]
    allreduce: AllReduceReport
    growth: tuple[JsonObject, ...]
    box: JsonObject
    why: tuple[str, ...]
    notes: tuple[str, ...]

    def to_dict(self) -> JsonObject:
        """The JSON object of `draftcast step --json`."""
        experts = self.distinct_experts_per_layer
        return {
            "inputs": self.inputs,
            "step_s": self.step_s,
            "steps_s": list(self.steps_s),
            "parts_s": self.parts_s,
            "closed_form": self.closed_form,
            "distinct_experts_per_layer": None if experts is None else experts.to_dict(),
            "ranks": [asdict(rank) for rank in self.ranks],
            "links": [asdict(link) for link in self.links],
            "allreduce": self.allreduce.to_dict(),
            "growth": list(self.growth),
            "box": self.box,
            "why": list(self.why),
            "notes": list(self.notes),
        }
