"""Reading what `draftcast replay` wrote: acceptance counted offline, by draft length."""

import json
from collections.abc import Mapping
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
    """Pooled counts: `survivors` of positions 1..k among `drafts`, in `steps` decode steps."""

    drafts: float
    survivors: tuple[float, ...]
    steps: float | None
    num_requests: float | None
    source: str


def read_replay(path: str, num_speculative_tokens: int | None) -> Counted:
    """Counts of a replay: those of the k asked for, positions beyond it from larger k; without that k, all pooled."""
    results = [_Result.of(item, path) for item in _results(path)]
    asked = [result for result in results if result.k == num_speculative_tokens]
    first = asked or results
    drafts, steps = sum(result.drafts for result in first), sum(result.steps for result in first)
    if not drafts:
        raise InputError(f"{_WHERE}: no draft in '{short(path)}', allowed: at least one")
    survivors: list[float] = []
    for position in range(max(result.k for result in results)):
        pool = [item for item in first if item.k > position] or [item for item in results if item.k > position]
        before = sum(item.before(position) for item in pool)
        share = sum(item.accepted[position] for item in pool) / before if before else 0.0
        survivors.append((survivors[-1] if survivors else drafts) * share)
    which = f"k = {asked[0].k}" if asked else "all k"
    return Counted(drafts, tuple(survivors), steps, None, f"replay '{short(path)}', {which}")


def _results(path: str) -> list[Any]:
    try:
        with open_regular(path) as file:
            data = file.read(_MAX_REPLAY_BYTES + 1)
        parsed = json.loads(data) if len(data) <= _MAX_REPLAY_BYTES else None
    except OSError as problem:
        raise InputError(f"{_WHERE}: '{short(path)}' cannot be read: {problem.strerror}") from None
    except (ValueError, RecursionError):
        raise InputError(f"{_WHERE}: '{short(path)}' is not JSON, allowed: what draftcast replay -o wrote") from None
    results = parsed.get("results") if isinstance(parsed, Mapping) else None
    if not isinstance(results, list) or not results:
        raise InputError(f"{_WHERE}: no results in '{short(path)}', allowed: what draftcast replay -o wrote")
    return results


@dataclass(frozen=True, slots=True)
class _Result:
    """One entry of a replay's results, checked."""

    k: int
    steps: float
    drafts: float
    accepted: tuple[float, ...]

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
        return cls(k, steps, drafts, tuple(survivors))

    def before(self, position: int) -> float:
        """Drafts whose positions before `position` (from 0) were all accepted."""
        return self.accepted[position - 1] if position else self.drafts


def _is_count(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _MAX_COUNT
