"""Reading what `draftcast replay` wrote: acceptance counted offline, by draft length."""

import json
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from hwmodel.errors import InputError
from hwmodel.files import open_regular
from hwmodel.records import dataclass
from simulator.deployment.keys import short
from simulator.deployment.speculation import MAX_DRAFT_TOKENS

_MAX_REPLAY_BYTES = 20_000_000  # one entry per k: a file of this size is something else
_MAX_COUNT = 2**53  # beyond it no exact count; also catches NaN and infinity
_WHERE = "speculation.acceptance.replay"


@dataclass(frozen=True, slots=True)
class Counted:
    """Pooled counts: `survivors` of positions 1..k among `drafts`, in `steps` decode steps.

    `trials` and `step_trials` say how many independent trials the acceptance at each position given the one before, and
    the share of steps with a draft, are worth, requests being what differs; None where the source does not tell.
    """

    drafts: float
    survivors: tuple[float, ...]
    steps: float | None
    num_requests: float | None
    source: str
    trials: tuple[float, ...] | None = None
    step_trials: float | None = None
    context_tokens: float | None = None  # mean over the steps
    replayed: "Replayed | None" = None


@dataclass(frozen=True, slots=True)
class Replayed:
    """How a replay was set, as far as its file tells."""

    method: str | None = None
    variant: str | None = None
    lookup_range: tuple[int, int] | None = None


def read_replay(path: str, num_speculative_tokens: int | None) -> Counted:
    """Counts of a replay: those of the k asked for, positions beyond it from larger k; all pooled where none is asked.

    A k that was not replayed takes the counts of the nearest one, since drafts are rarer the longer they are.
    Without any draft in all its steps the method never drafts on such text, which is an answer too.
    """
    parsed = _parsed(path)
    results = [_Result.of(item, path) for item in parsed["results"]]
    asked = _nearest(results, num_speculative_tokens)
    first = asked or results
    drafts, steps = sum(result.drafts for result in first), sum(result.steps for result in first)
    if not steps:
        raise InputError(f"{_WHERE}: no decode step in '{short(path)}', allowed: at least one")
    survivors: list[float] = []
    trials: list[float | None] = []
    for position in range(max(result.k for result in results)):
        pool = [item for item in first if item.k > position] or [item for item in results if item.k > position]
        before = sum(item.before(position) for item in pool)
        share = sum(item.accepted[position] for item in pool) / before if before else 0.0
        survivors.append((survivors[-1] if survivors else drafts) * share)
        trials.append(_least(None if item.trials is None else item.trials[position] for item in pool))
    return Counted(
        drafts,
        tuple(survivors),
        steps,
        _least(item.num_requests for item in first),
        f"replay '{short(path)}', {f'k = {asked[0].k}' if asked else 'all k'}",
        trials=None if None in trials else tuple(value or 0.0 for value in trials),
        step_trials=_least(item.step_trials for item in first),
        context_tokens=_least(item.context_tokens for item in first),
        replayed=_replayed(parsed.get("inputs")),
    )


def _nearest(results: "list[_Result]", k: int | None) -> "list[_Result]":
    """The results of k, else of the nearest k, the larger of two; none where no k is asked for."""
    if k is None:
        return []
    nearest = min((result.k for result in results), key=lambda other: (abs(other - k), -other))
    return [result for result in results if result.k == nearest]


def _least(values: Iterable[float | None]) -> float | None:
    """The smallest value, since replays of one text for several k add no data; None where one is missing."""
    known = list(values)
    return None if None in known else min(value for value in known if value is not None)


def _replayed(inputs: Any) -> Replayed:
    given = inputs if isinstance(inputs, Mapping) else {}
    method, variant = given.get("method"), given.get("variant")
    low, high = given.get("prompt_lookup_min"), given.get("prompt_lookup_max")
    return Replayed(
        method if isinstance(method, str) else None,
        variant if isinstance(variant, str) else None,
        (low, high) if type(low) is int and type(high) is int else None,
    )


def _parsed(path: str) -> Mapping[str, Any]:
    try:
        with open_regular(path) as file:
            data = file.read(_MAX_REPLAY_BYTES + 1)
        parsed = json.loads(data) if len(data) <= _MAX_REPLAY_BYTES else None
    except OSError as problem:
        raise InputError(f"{_WHERE}: '{short(path)}' cannot be read: {problem.strerror}") from None
    except (ValueError, RecursionError):
        raise InputError(f"{_WHERE}: '{short(path)}' is not JSON, allowed: what draftcast replay -o wrote") from None
    results = parsed.get("results") if isinstance(parsed, Mapping) else None
    if not isinstance(parsed, Mapping) or not isinstance(results, list) or not results:
        raise InputError(f"{_WHERE}: no results in '{short(path)}', allowed: what draftcast replay -o wrote")
    return parsed


@dataclass(frozen=True, slots=True)
class _Result:
    """One entry of a replay's results, checked."""

    k: int
    steps: float
    drafts: float
    accepted: tuple[float, ...]
    num_requests: float | None = None
    trials: tuple[float, ...] | None = None
    step_trials: float | None = None
    context_tokens: float | None = None

    @classmethod
    def of(cls, item: Any, path: str) -> "_Result":
        """The entry `item` of the replay in `path`; InputError where its counts cannot be."""
        entry = item if isinstance(item, Mapping) else {}
        k, accepted = entry.get("num_speculative_tokens"), entry.get("accepted_per_position")
        chain = [entry.get("steps"), entry.get("drafts"), *(accepted if isinstance(accepted, list) else [None])]
        if type(k) is not int or not 1 <= k <= MAX_DRAFT_TOKENS or not all(map(_is_count, chain)):
            raise InputError(
                f"{_WHERE}: an entry of '{short(path)}' lacks num_speculative_tokens, steps, drafts or "
                "accepted_per_position as counts, allowed: what draftcast replay -o wrote"
            )
        steps, drafts, *survivors = chain
        if len(survivors) != k or any(later > earlier for earlier, later in pairwise(chain)):
            raise InputError(
                f"{_WHERE}: entry k = {k} of '{short(path)}' has {short(str(chain))} as steps, drafts and accepted, "
                "allowed: k positions, never increasing"
            )
        trials = entry.get("effective_drafts_per_position")
        counted = isinstance(trials, list) and len(trials) == k and all(map(_is_count, trials))
        return cls(
            k,
            steps,
            drafts,
            tuple(survivors),
            _count_or_none(entry.get("num_requests")) or None,
            tuple(trials) if isinstance(trials, list) and counted else None,
            _count_or_none(entry.get("effective_steps")),
            _count_or_none(entry.get("mean_context_tokens")),
        )

    def before(self, position: int) -> float:
        """Drafts whose positions before `position` (from 0) were all accepted."""
        return self.accepted[position - 1] if position else self.drafts


def _count_or_none(value: Any) -> float | None:
    return float(value) if _is_count(value) else None


def _is_count(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _MAX_COUNT
