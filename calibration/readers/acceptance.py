"""Acceptance counters read from a file: the identities that expose misread or mixed ones, and what they say."""

from dataclasses import dataclass
from itertools import pairwise

from calibration.records import AcceptanceCounts
from hwmodel.percent import percent
from simulator.deployment.counters import IDENTITY_TOLERANCE
from simulator.deployment.speculation import MAX_DRAFT_TOKENS

_EVERY_STEP = 0.98  # of the decode steps: less, and some steps had no draft


@dataclass(frozen=True, slots=True)
class Counted:
    """Counters of one window as a source gives them; `None` where it does not."""

    drafts: float
    accepted_per_position: tuple[float, ...]
    accepted: float | None = None
    draft_tokens: float | None = None
    steps: float | None = None  # (request, decode step) pairs
    decode_tokens: float | None = None  # emitted after each request's first
    num_finished: float | None = None


def counts_of(counted: Counted) -> tuple[AcceptanceCounts | None, str | None, tuple[str, ...]]:
    """(the counts, or why they must not be used, and notes).

    Hard identities: positions never increase, 1 + sum S_i = 1 + accepted / drafts, no more accepted than drafted, no
    more drafts than decode steps. Source: model specification, correction 1.
    """
    reason = _broken(counted)
    if reason:
        return None, reason, ()
    counts = AcceptanceCounts(
        counted.drafts,
        counted.accepted_per_position,
        counted.draft_tokens,
        counted.steps,
        counted.num_finished or None,
    )
    return counts, None, _draftless(counted) + _past_the_end(counted)


def _broken(counted: Counted) -> str | None:
    drafts, positions = counted.drafts, counted.accepted_per_position
    if drafts <= 0:
        return "acceptance: nothing was drafted in this window"
    if not 1 <= len(positions) <= MAX_DRAFT_TOKENS:
        return f"acceptance: {len(positions)} positions, allowed: 1 to {MAX_DRAFT_TOKENS}"
    slack = IDENTITY_TOLERANCE * drafts
    if any(later > earlier + slack for earlier, later in pairwise((drafts, *positions))):
        return (
            f"acceptance: accepted tokens by position ({', '.join(f'{n:g}' for n in positions)} of {drafts:g} drafts) "
            "increase: a position is accepted only after the one before it"
        )
    return _unequal(counted) or _too_many_drafts(counted)


def _unequal(counted: Counted) -> str | None:
    drafts, accepted, drafted = counted.drafts, counted.accepted, counted.draft_tokens
    by_position = 1 + sum(counted.accepted_per_position) / drafts
    by_total = by_position if accepted is None else 1 + accepted / drafts
    if abs(by_position - by_total) > IDENTITY_TOLERANCE * by_total:
        return (
            f"acceptance: 1 + accepted per position / drafts is {by_position:.3f}, but 1 + accepted / drafts is "
            f"{by_total:.3f}; both are one number in one window"
        )
    if drafted is not None and sum(counted.accepted_per_position) > drafted * (1 + IDENTITY_TOLERANCE):
        return f"acceptance: more tokens accepted than the {drafted:g} drafted"
    most = len(counted.accepted_per_position) * drafts
    if drafted is not None and drafted > most * (1 + IDENTITY_TOLERANCE):
        return f"acceptance: {drafted:g} tokens drafted, possible in {drafts:g} drafts: {most:g}; another window or k"
    return None


def _too_many_drafts(counted: Counted) -> str | None:
    steps = counted.steps
    if steps is None or counted.drafts <= steps * (1 + IDENTITY_TOLERANCE):
        return None
    return (
        f"acceptance: {counted.drafts:g} drafts in {steps:.6g} decode steps; a step has one draft per request at most, "
        "so other traffic or another window is in the counters"
    )


def _draftless(counted: Counted) -> tuple[str, ...]:
    """Drafts that were never counted: a lookup without a match on the V1 runner."""
    steps = counted.steps
    if not steps or counted.drafts >= _EVERY_STEP * steps:
        return ()
    share, accepted = counted.drafts / steps, sum(counted.accepted_per_position)
    over_all = counted.decode_tokens / steps if counted.decode_tokens else 1 + accepted / steps
    return (
        f"a draft on {percent(share)} of the decode steps only (text lookup, or drafting was off at times): a"
        f" drafted step yields {1 + accepted / counted.drafts:.2f} tokens, all steps {over_all:.2f} on average",
    )


def _past_the_end(counted: Counted) -> tuple[str, ...]:
    """steps + accepted - decode tokens: accepted past the end of a request, 0 to k per finished one."""
    steps, tokens, finished = counted.steps, counted.decode_tokens, counted.num_finished
    if steps is None or tokens is None:
        return ()
    accepted = counted.accepted if counted.accepted is not None else sum(counted.accepted_per_position)
    extra, slack = steps + accepted - tokens, IDENTITY_TOLERANCE * tokens
    most = None if finished is None else len(counted.accepted_per_position) * finished
    if extra >= -slack and (most is None or extra <= most + slack):
        return ()
    allowed = "0 or more" if most is None else f"0 to {most:g} ({finished:g} requests finished)"
    return (
        f"decode steps + accepted - decode tokens is {extra:.6g}, allowed: {allowed}; "
        "the counters do not cover exactly one window",
    )
