"""Acceptance recorded step by step: JSONL, one request a line, `{"draft_tokens": [...], "accepted_tokens": [...]}`.

Entry i of both lists belongs to decode step i: tokens drafted (0: no draft) and, of these, accepted.
"""

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hwmodel.errors import InputError
from simulator.deployment.keys import short
from simulator.deployment.speculation import MAX_DRAFT_TOKENS
from simulator.serving.acceptance_sampling import RecordedAcceptance

Ints = NDArray[np.int64]

_MAX_BYTES = 200_000_000  # all steps are kept in memory, 16 bytes each
_KEYS = ("draft_tokens", "accepted_tokens")


def read_recorded_steps(path: str) -> RecordedAcceptance:
    """The recorded acceptance of a file; `InputError` names the line that is wrong."""
    try:
        if Path(path).stat().st_size > _MAX_BYTES:
            raise InputError(f"{short(path)} is larger than {_MAX_BYTES} bytes, allowed: a sample of its requests")
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot read {short(path)}: {reason}; allowed: a JSONL file of recorded steps") from error
    drafted, accepted = [], []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            ours, theirs = _request(line, f"{short(path)} line {number}")
            drafted.append(ours)
            accepted.append(theirs)
    if not drafted:
        raise InputError(f"{short(path)}: no request, allowed: at least one")
    starts = np.cumsum([0, *(len(steps) for steps in drafted)])
    return RecordedAcceptance(np.concatenate(drafted), np.concatenate(accepted), starts)


def _request(line: str, where: str) -> tuple[Ints, Ints]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        raise InputError(f"{where}: not a JSON object, allowed: one object a line")
    lists = [row.get(key) for key in _KEYS]
    for key, values in zip(_KEYS, lists, strict=True):
        if not isinstance(values, list) or not values or not all(_is_length(value) for value in values):
            raise InputError(f"{where}: {key} is no list of counts, allowed: 0 to {MAX_DRAFT_TOKENS} for each step")
    drafted, accepted = (np.array(values, dtype=np.int64) for values in lists)
    if drafted.shape != accepted.shape or (accepted > drafted).any():
        raise InputError(f"{where}: accepted_tokens do not fit draft_tokens, allowed: as many steps, never more tokens")
    return drafted, accepted


def _is_length(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_DRAFT_TOKENS
