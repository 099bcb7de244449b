"""Counters of an engine's /metrics, as users paste them: names normalised, identities checked."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from hwmodel.errors import InputError, UnknownNameError
from hwmodel.records import dataclass
from simulator.deployment.keys import short

_PREFIXES = ("vllm:", "spec_decode_")
_SUFFIXES = ("_total",)
_NAMES = {  # what is left of a metric's name -> our field
    "num_drafts": "num_drafts",
    "num_draft_tokens": "num_draft_tokens",
    "num_accepted_tokens": "num_accepted_tokens",
    "num_accepted_tokens_per_pos": "num_accepted_tokens_per_pos",
    "generation_tokens": "generation_tokens",
    "itl_count": "itl_count",
    "inter_token_latency_seconds_count": "itl_count",
    "ttft_count": "ttft_count",
    "time_to_first_token_seconds_count": "ttft_count",
}
# vLLM's V0 engine (until 0.9) exported gauges and no count of drafts: acceptance per draft cannot be had from them.
_V0_NAMES = ("draft_acceptance_rate", "efficiency", "num_emitted_tokens")
_REQUIRED = ("num_drafts", "num_accepted_tokens")
# 1 + sum S_i = 1 + accepted / drafts holds exactly; scrapes of several series may differ by one step.
# Source: model specification, correction 1 (vLLM v1/spec_decode/metrics.py, observe_draft).
IDENTITY_TOLERANCE = 0.01
_MAX_COUNT = 2**53  # beyond it a Prometheus sample is no longer an exact count; also catches NaN and infinity
_WHERE = "speculation.acceptance.counters"


@dataclass(frozen=True, slots=True)
class Counters:
    """Counts of one window, for one k. `None` where not given."""

    num_drafts: float
    num_accepted_tokens: float
    num_draft_tokens: float | None = None
    num_accepted_tokens_per_pos: tuple[float, ...] | None = None
    generation_tokens: float | None = None
    itl_count: float | None = None
    ttft_count: float | None = None

    @property
    def mean_draft_tokens(self) -> float | None:
        """Tokens per draft; None without `num_draft_tokens`."""
        return self.num_draft_tokens / self.num_drafts if self.num_draft_tokens is not None else None

    @property
    def decode_steps(self) -> float | None:
        """(Request, step) pairs of decode: itl_count; else from the tokens, slightly few where outputs are short.

        Source: model specification, correction 1: emitted decode tokens = generation_tokens - first tokens.
        """
        if self.itl_count is not None:
            return self.itl_count
        if self.generation_tokens is None or self.ttft_count is None:
            return None
        return self.generation_tokens - self.ttft_count - self.num_accepted_tokens


def read_counters(given: Mapping[str, Any]) -> Counters:
    """The counters in `given`, under vLLM's names with or without their prefixes and `_total`; checked."""
    values: dict[str, Any] = {}
    for name, value in given.items():
        field = _field(name)
        if field in values:
            raise InputError(f"{_WHERE}: {field} is given twice, allowed: once")
        values[field] = _positions(name, value) if field.endswith("_per_pos") else _count(name, value)
    missing = [name for name in _REQUIRED if name not in values]
    if missing:
        raise InputError(f"{_WHERE}: missing {', '.join(missing)}; got {', '.join(given) or 'nothing'}")
    counters = Counters(**values)
    _check(counters)
    return counters


def _field(name: str) -> str:
    bare = str(name)
    for prefix in _PREFIXES:
        bare = bare.removeprefix(prefix)
    for suffix in _SUFFIXES:
        bare = bare.removesuffix(suffix)
    if bare in _V0_NAMES:
        raise InputError(
            f"{_WHERE}: got '{short(name)}' of vLLM's V0 engine, which counts no drafts; "
            "allowed: the V1 counters (num_drafts, num_accepted_tokens, ...), or rate with measured_at_k"
        )
    if bare not in _NAMES:
        raise UnknownNameError(f"{_WHERE}: unknown counter '{short(name)}'; known: {', '.join(_NAMES)}")
    return _NAMES[bare]


def _count(name: str, value: Any) -> float:
    good = isinstance(value, int | float) and not isinstance(value, bool)
    if not good or not 0 <= value <= _MAX_COUNT:
        raise InputError(f"{_WHERE}: {short(name)} is {short(repr(value))}, allowed: count from 0")
    return float(value)


def _positions(name: str, value: Any) -> tuple[float, ...]:
    """Counts by position: a list, or a table keyed by the metric's `position` label."""
    if isinstance(value, Mapping):
        keys = sorted(value, key=lambda key: int(key) if str(key).isdecimal() else -1)
        if [str(key) for key in keys] != [str(index) for index in range(len(keys))]:
            raise InputError(
                f"{_WHERE}: {short(name)} has positions {short(', '.join(map(str, keys)))}, allowed: 0, 1, 2, ..."
            )
        value = [value[key] for key in keys]
    if not isinstance(value, list | tuple) or not value:
        raise InputError(f"{_WHERE}: {short(name)} is {short(repr(value))}, allowed: list of counts by position")
    return tuple(_count(name, item) for item in value)


def _check(counters: Counters) -> None:
    drafts, accepted = counters.num_drafts, counters.num_accepted_tokens
    drafted, steps = counters.num_draft_tokens, counters.decode_steps
    if drafts <= 0:
        raise InputError(f"{_WHERE}: num_drafts is {drafts:g}, allowed: above 0 (nothing was drafted in this window)")
    if drafted is not None and accepted > drafted:
        raise InputError(f"{_WHERE}: num_accepted_tokens {accepted:g} is above num_draft_tokens {drafted:g}")
    if steps is not None and drafts > steps * (1 + IDENTITY_TOLERANCE):
        raise InputError(f"{_WHERE}: num_drafts {drafts:g} is above the {steps:g} decode steps: not the same window?")
    if counters.num_accepted_tokens_per_pos is not None:
        _check_positions(counters, counters.num_accepted_tokens_per_pos)
    elif drafted is None:
        raise InputError(f"{_WHERE}: missing num_accepted_tokens_per_pos or num_draft_tokens, one of them is needed")


def _check_positions(counters: Counters, per_pos: tuple[float, ...]) -> None:
    drafts, accepted = counters.num_drafts, counters.num_accepted_tokens
    chain = (drafts, *per_pos)
    if any(later > earlier for earlier, later in pairwise(chain)):
        raise InputError(
            f"{_WHERE}: num_accepted_tokens_per_pos {', '.join(f'{n:g}' for n in per_pos)} after {drafts:g} drafts "
            "increases, allowed: never (position 2 is accepted only after position 1)"
        )
    by_position, by_total = 1 + sum(per_pos) / drafts, 1 + accepted / drafts
    if abs(by_position - by_total) > IDENTITY_TOLERANCE * by_total:
        raise InputError(
            f"{_WHERE}: 1 + sum of num_accepted_tokens_per_pos / num_drafts is {by_position:.3f} but "
            f"1 + num_accepted_tokens / num_drafts is {by_total:.3f}, allowed: equal within 1 % (same window, same k)"
        )
