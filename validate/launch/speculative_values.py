"""Values of the speculative config that a version refuses: names of choices, and forced acceptance.

Source: vLLM `config/speculative.py` of the releases named; pydantic refuses what is not among a key's literals.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from hwmodel.engine.versions import Version
from validate.launch.findings import ERROR
from validate.launch.json_value import UNKNOWN
from validate.launch.speculative_defaults import Case
from validate.launch.systemd_words import excerpt

_CHOICES: dict[str, tuple[tuple[Version, tuple[str, ...]], ...]] = {  # from that version on, newest first
    "rejection_sample_method": (
        ((0, 33, 0), ("standard", "synthetic", "block", "fly")),
        ((0, 26, 0), ("standard", "synthetic", "block")),
        ((0, 21, 0), ("standard", "synthetic")),
        ((0, 19, 0), ("strict", "probabilistic", "synthetic")),
        ((0, 18, 0), ("strict", "probabilistic")),
    ),
    "draft_sample_method": (((0, 21, 0), ("greedy", "probabilistic")),),
    "draft_lm_head_quantization": (((0, 33, 0), ("fp8", "nvfp4")),),
}
_RATES, _LENGTH = "synthetic_acceptance_rates", "synthetic_acceptance_length"
_RATES_FIRST: Version = (0, 20, 0)
_RENAMED = {"strict": "standard", "standard": "strict"}  # the default method before and from 0.21 on


def check_values(case: Case, config: Mapping[str, Any]) -> None:
    """Record a finding for each value that this version does not take."""
    for key, rows in _CHOICES.items():
        allowed = next((names for first, names in rows if case.version >= first), None)
        value = config.get(key)
        if allowed is None or value is None or value == UNKNOWN or value in allowed:
            continue
        other = _RENAMED.get(value) if isinstance(value, str) else None
        fix = f'"{key}": "{other}"' if other in allowed else None
        text = f"{key}: got {excerpt(str(value))!r}, {case.label} takes one of {', '.join(allowed)}"
        case.add(ERROR, "invalid-value", text, fix)
    if case.version >= _RATES_FIRST:
        _check_synthetic(case, config)


def _check_synthetic(case: Case, config: Mapping[str, Any]) -> None:
    """`rejection_sample_method: synthetic` forces acceptance, by position or by its mean length, not by both."""
    rates, length, k = (config.get(key) for key in (_RATES, _LENGTH, "num_speculative_tokens"))
    if UNKNOWN in (rates, length, k):
        return
    whole = k if isinstance(k, int) and not isinstance(k, bool) else None
    if rates is not None and length is not None:
        case.add(ERROR, "invalid-value", f"{_RATES} and {_LENGTH} exclude each other")
    elif rates is None and length is None and config.get("rejection_sample_method") == "synthetic":
        case.add(ERROR, "invalid-value", f"rejection_sample_method synthetic needs {_RATES} or {_LENGTH}")
    if rates is not None and not _is_survival(rates, whole):
        shown = "one share for each draft token" if whole is None else f"{whole} shares"
        case.add(ERROR, "invalid-value", f"{_RATES}: {shown} from 0 to 1 are needed, none above the one before it")
    if length is not None and not (_is_number(length) and 1 <= length <= (whole or length) + 1):
        case.add(ERROR, "invalid-value", f"{_LENGTH}: got {excerpt(str(length))}, from 1 to k + 1 are allowed")


def _is_survival(rates: Any, k: int | None) -> bool:
    if not isinstance(rates, list) or not all(_is_number(rate) and 0 <= rate <= 1 for rate in rates):
        return False
    return (k is None or len(rates) == k) and all(a >= b for a, b in pairwise(rates))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
