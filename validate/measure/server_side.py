"""What the server's own counters say of a cell, by the readers that also read saved /metrics."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from calibration.readers import sglang_metrics, vllm_metrics
from calibration.readers.metrics_pairs import Window
from calibration.records import AcceptanceCounts, MeasuredCell
from validate.client.answers import Answer

_HITS = ("prefix_cache_hits_total", "gpu_prefix_cache_hits_total", "cached_tokens_total")
_TOLD_ELSEWHERE = "a draft on "
_QUERIES = ("prefix_cache_queries_total", "gpu_prefix_cache_queries_total", "prompt_tokens_total")


@dataclass(frozen=True, slots=True)
class Totals:
    """Growth of counters in a window; None where the server has no such counter."""

    generated_tokens: float | None
    first_tokens: float | None  # requests that got their first token
    steps: float | None  # (request, decode step) pairs
    engine_steps: float | None
    finished: float | None
    aborted: float | None
    prompt_tokens: float | None
    prefix_hit_share: float | None
    preemptions: float | None


@dataclass(frozen=True, slots=True)
class ServerSide:
    """Totals and the reader's cell of one window; `refused` are values that must not be used, with the reason."""

    totals: Totals
    cell: MeasuredCell | None
    refused: tuple[str, ...]

    @property
    def acceptance(self) -> AcceptanceCounts | None:
        """Drafts and what became of them."""
        return self.cell.acceptance if self.cell is not None else None

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        cell = self.cell
        return {
            "tpot_s": cell.tpot_s if cell else None,
            "step_s": cell.step_s if cell else None,
            "ttft_s": cell.ttft_s if cell else None,
            "tokens_per_step": cell.tokens_per_step if cell else None,
            "throughput_tokens_per_s": cell.throughput_tokens_per_s if cell else None,
            "mean_batch": cell.concurrency if cell else None,
            "totals": asdict(self.totals),
            "refused": list(self.refused),
        }


def server_side(window: Window) -> ServerSide:
    """The counters of one window."""
    reader = vllm_metrics if window.engine == "vllm" else sglang_metrics
    evidence = reader.read_window(window)
    cell = evidence.cells[0] if evidence.cells else None
    return ServerSide(_totals(window), cell, tuple(item.reason for item in evidence.refused))


def _totals(window: Window) -> Totals:
    engine = window.engine
    reasons = window.by_label(f"{engine}:request_success_total", "finished_reason")
    finished = sum(reasons.values()) if reasons else window.delta(f"{engine}:num_requests_total")
    return Totals(
        generated_tokens=window.delta(f"{engine}:generation_tokens_total"),
        first_tokens=window.delta(f"{engine}:time_to_first_token_seconds_count"),
        steps=window.delta(f"{engine}:inter_token_latency_seconds_count") if engine == "vllm" else None,
        engine_steps=window.delta(f"{engine}:iteration_tokens_total_count"),
        finished=finished,
        aborted=reasons.get("abort", 0.0) if reasons else None,
        prompt_tokens=window.delta(f"{engine}:prompt_tokens_total"),
        prefix_hit_share=prefix_hit_share(window),
        preemptions=window.delta(f"{engine}:num_preemptions_total"),
    )


def prefix_hit_share(window: Window) -> float | None:
    """Share of prompt tokens that the prefix cache held."""
    hits = next((found for name in _HITS if (found := window.delta(f"{window.engine}:{name}")) is not None), None)
    asked = next((found for name in _QUERIES if (found := window.delta(f"{window.engine}:{name}")) is not None), None)
    return None if hits is None or not asked else min(1.0, hits / asked)


def acceptance_dict(side: ServerSide | None) -> dict[str, Any] | None:
    """Counts for the run file: drafts, accepted by position, steps; None where nothing was drafted."""
    counts = side.acceptance if side is not None else None
    if side is None or counts is None:
        return None
    totals = side.totals
    decoded = None
    if totals.generated_tokens is not None:
        decoded = totals.generated_tokens - (totals.first_tokens or 0.0)
    accepted = sum(counts.accepted_per_position)
    return {
        "drafts": counts.drafts,
        "draft_tokens": counts.draft_tokens,
        "accepted_tokens": accepted,
        "accepted_per_position": list(counts.accepted_per_position),
        "per_position": [count / counts.drafts for count in counts.accepted_per_position],
        "mean_length": 1 + accepted / counts.drafts,
        "steps": counts.steps,
        "decode_tokens": decoded,
        "draft_probability": side.cell.draft_probability if side.cell else None,
        "num_requests": counts.num_requests,
    }


def acceptance_of_answers(answers: Sequence[Answer]) -> dict[str, Any] | None:
    """The same from what the server told with each answer (vLLM 0.29 and later, where asked for), all of them together.

    Its histogram counts the steps with a draft by how many tokens were accepted.
    """
    told = [answer.acceptance_histogram for answer in answers if answer.acceptance_histogram is not None]
    if not told or len(told) < len(answers):
        return None
    k = max(len(histogram) for histogram in told) - 1
    by_accepted = [sum(histogram[n] for histogram in told if n < len(histogram)) for n in range(k + 1)]
    drafts = sum(by_accepted)
    if not drafts:
        return None
    positions = [sum(by_accepted[i + 1 :]) for i in range(k)]
    return {
        "drafts": drafts,
        "accepted_tokens": sum(positions),
        "accepted_per_position": positions,
        "per_position": [count / drafts for count in positions],
        "mean_length": 1 + sum(positions) / drafts,
        "draft_probability": None,
        "num_requests": len(told),
    }


def worth_saying(cell: MeasuredCell | None) -> list[str]:
    """The reader's notes without that on the share of drafted steps, which `acceptance` holds as a number."""
    return [note for note in cell.notes if not note.startswith(_TOLD_ELSEWHERE)] if cell is not None else []
