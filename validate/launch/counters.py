"""What the speculation counters of /metrics say about a server: whether it drafts, how many tokens, by which family.

Source: vLLM v1/spec_decode/metrics.py (every position's series exists from the start, so k = 1 + the highest one);
V0 gauges until 0.9; SGLang's spec_* gauges.
"""

from dataclasses import dataclass
from typing import Any

from calibration.readers.metrics_pairs import Window
from calibration.readers.prometheus_text import Scrape, scrapes_of
from hwmodel.engine.versions import Version
from validate.launch.program import SGLANG, VLLM

_PREFIX = "vllm:spec_decode_num_"
_LARGEST_GAUGE = 1_000  # draft tokens; what is larger is none
_ALWAYS_DRAFTED = 0.98  # share of decode steps; below it some had no draft (the ends of requests aside)
_ALL_TOKENS = 0.999  # share of k tokens a draft; grammar and ends of contexts take some away
_RUNNER_2_NGRAM: Version = (0, 32, 0)  # n-gram drafts k tokens in every step from here on
_SCHEDULE_FIRST: Version = (0, 24, 0)
LOOKUP = "ngram or suffix"
MODEL = "draft model, EAGLE or MTP"


@dataclass(frozen=True, slots=True)
class Drafting:
    """The counters since the server's start, summed over its engines; None where they do not exist."""

    is_known: bool  # the engine's metrics are there at all
    is_on: bool
    num_speculative_tokens: int | None = None
    num_drafts: float | None = None
    num_draft_tokens: float | None = None
    num_accepted_tokens: float | None = None
    accepted_per_position: tuple[float, ...] = ()
    decode_steps: float | None = None  # (request, step) pairs
    generation_tokens: float | None = None
    first_tokens: float | None = None

    @property
    def mean_accepted_length(self) -> float | None:
        """Tokens per draft, bonus included; None without any draft."""
        if not self.num_drafts or self.num_accepted_tokens is None:
            return None
        return 1.0 + self.num_accepted_tokens / self.num_drafts

    def counters(self) -> dict[str, Any] | None:
        """The counters under the names that `speculation.acceptance.counters` takes; None without any draft."""
        if not self.num_drafts or self.num_accepted_tokens is None:
            return None
        found = {
            "num_drafts": self.num_drafts,
            "num_draft_tokens": self.num_draft_tokens,
            "num_accepted_tokens": self.num_accepted_tokens,
            "num_accepted_tokens_per_pos": list(self.accepted_per_position) or None,
            "itl_count": self.decode_steps or None,
            "generation_tokens": self.generation_tokens,
            "ttft_count": self.first_tokens,
        }
        return {name: value for name, value in found.items() if value is not None}


def metrics_of(text: str, url: str) -> Window:
    """The engine's series of one /metrics text, counted since the server's start."""
    scrape = next(iter(scrapes_of(text, url)), Scrape(url))
    engine = SGLANG if has_series(scrape, "sglang:") else VLLM
    return Window(None, scrape, "", engine)


def has_series(scrape: Scrape, prefix: str) -> bool:
    """Whether any series is named so."""
    return any(name.startswith(prefix) for name in scrape.samples)


def drafting_of(metrics: Window) -> Drafting:
    """The counters of a server."""
    return _sglang(metrics) if metrics.engine == SGLANG else _vllm(metrics)


def _vllm(metrics: Window) -> Drafting:
    per_position = metrics.by_label(f"{_PREFIX}accepted_tokens_per_pos_total", "position")
    positions = sorted(int(text) for text in per_position if text.isascii() and text.isdigit() and len(text) < 4)
    drafts = metrics.delta(f"{_PREFIX}drafts_total")
    steps = metrics.delta("vllm:inter_token_latency_seconds_count")
    if steps is None:
        steps = metrics.delta("vllm:time_per_output_token_seconds_count")  # its name until 0.10, the same data
    return Drafting(
        is_known=has_series(metrics.last, "vllm:"),
        is_on=drafts is not None or bool(positions) or has_series(metrics.last, "vllm:spec_decode_"),
        num_speculative_tokens=positions[-1] + 1 if positions else None,
        num_drafts=drafts,
        num_draft_tokens=metrics.delta(f"{_PREFIX}draft_tokens_total"),
        num_accepted_tokens=metrics.delta(f"{_PREFIX}accepted_tokens_total"),
        accepted_per_position=tuple(per_position[str(position)] for position in positions),
        decode_steps=steps,
        generation_tokens=metrics.delta("vllm:generation_tokens_total"),
        first_tokens=metrics.delta("vllm:time_to_first_token_seconds_count"),
    )


def _sglang(metrics: Window) -> Drafting:
    steps = _gauge(metrics, "sglang:spec_num_steps")
    calls = metrics.delta("sglang:spec_verify_calls_total")
    return Drafting(
        is_known=True,
        is_on=bool(steps) or bool(calls) or bool(_gauge(metrics, "sglang:spec_accept_length")),
        num_speculative_tokens=int(steps) if steps else None,
        decode_steps=calls,
        generation_tokens=metrics.delta("sglang:generation_tokens_total"),
    )


def _gauge(metrics: Window, name: str) -> float | None:
    """The largest value of a gauge that every rank exports alike."""
    values = [value for value in metrics.last.labelled(name).values() if 0 <= value <= _LARGEST_GAUGE]
    return max(values, default=None)


def inferred_speculation(drafting: Drafting, version: Version) -> tuple[dict[str, Any] | None, dict[str, str]]:
    """(speculative configuration as far as it shows, why each part of it is believed)."""
    key = "speculative_config"
    if not drafting.is_known:
        return None, {key: "unknown: /metrics has none of the engine's series"}
    if not drafting.is_on:
        return None, {key: "off: /metrics has no series about drafts"}
    family, why = _family(drafting, version)
    config = {
        "method": None,
        "method_family": family,
        "num_speculative_tokens": drafting.num_speculative_tokens,
    }
    reasons = {f"{key}.method_family": why}
    if drafting.num_speculative_tokens is None:
        reasons[f"{key}.num_speculative_tokens"] = "unknown: no series by position"
    else:
        reasons[f"{key}.num_speculative_tokens"] = "1 + the highest position that is counted"
    return config, reasons


def _family(drafting: Drafting, version: Version) -> tuple[str, str]:
    drafts, tokens, steps = drafting.num_drafts, drafting.num_draft_tokens, drafting.decode_steps
    length = drafting.num_speculative_tokens
    if not drafts or tokens is None or length is None:
        return "not known", "nothing has been drafted yet, or no counter says how much"
    if tokens < _ALL_TOKENS * length * drafts:
        return LOOKUP, f"drafts hold {tokens / drafts:.2f} of {length} tokens on average: they end where a match does"
    if steps and drafts < _ALWAYS_DRAFTED * steps:
        why = f"{drafts:.0f} of {steps:.0f} decode steps carried a draft"
        if version >= _SCHEDULE_FIRST:
            return f"{LOOKUP}, or a schedule by batch size", why
        return LOOKUP, f"{why}: nothing matched in the others"
    why = f"every decode step carried {length} draft tokens"
    if version >= _RUNNER_2_NGRAM:
        return f"{MODEL}, or ngram (which always drafts k tokens from 0.32 on)", why
    return MODEL, why
