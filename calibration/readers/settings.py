"""What a result file says about the server's speculation and load, under whatever names sweeps and users gave it."""

import json
from collections.abc import Mapping
from typing import Any

from calibration.readers.values import count, mapping, text
from simulator.deployment.speculation import MAX_DRAFT_TOKENS

_TOKENS = ("num_speculative_tokens", "spec_tokens", "num_spec_tokens", "speculative_num_steps")
_METHOD = ("method", "spec_method", "speculative_method")
_CONFIG = ("speculative_config", "sc")
_SCHEDULE = "num_speculative_tokens_per_batch_size"
_OFF = ("", "none", "null", "off", "false", "{}")


def speculation_of(record: Mapping[str, Any], concurrency: float | None = None) -> tuple[int | None, str | None]:
    """(draft tokens, method) that `record` states; (None, None) where it says nothing.

    Sweeps write the server's options beside the results: `speculative_config` whole (object or text),
    `speculative_config.num_speculative_tokens` dotted, with - or _; metadata may hold `num_speculative_tokens` alone.
    """
    named = {_plain(key): value for key, value in record.items() if isinstance(key, str)}
    for name in _CONFIG:
        if name in named:
            return _from_config(named[name], concurrency)
    inner = {key.rpartition(".")[2]: value for key, value in named.items() if key.rpartition(".")[0] in _CONFIG}
    if inner:
        return _from_config(inner, concurrency)
    tokens = next((named[name] for name in _TOKENS if name in named), None)
    method = next((named[name] for name in _METHOD[1:] if name in named), None)
    if tokens is None and method is None:
        return None, None
    return _checked(tokens), _method(method)


def _plain(key: str) -> str:
    bare = key.strip().lower().lstrip("-").replace("-", "_")
    for prefix in ("serve.", "server.", "vllm."):
        bare = bare.removeprefix(prefix)
    return bare


def _from_config(value: Any, concurrency: float | None) -> tuple[int | None, str | None]:
    if isinstance(value, str):
        if value.strip().lower() in _OFF:
            return 0, None
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None, None
    if value is None or value is False or value == {}:
        return 0, None
    config = {_plain(key): item for key, item in mapping(value).items() if isinstance(key, str)}
    k = _scheduled(config.get(_SCHEDULE), concurrency)
    if k is None:
        k = _checked(config.get("num_speculative_tokens"))
    return k, _method(config.get("method"))


def _scheduled(schedule: Any, concurrency: float | None) -> int | None:
    """Draft tokens at `concurrency` of a schedule [[lo, hi, k], ...]; gaps carry the k before them."""
    if isinstance(schedule, str):
        try:
            schedule = json.loads(schedule)
        except (ValueError, RecursionError):
            return None
    if not isinstance(schedule, list) or concurrency is None:
        return None
    found = None
    for entry in schedule:
        low, k = (count(entry[0]), count(entry[2])) if isinstance(entry, list) and len(entry) == 3 else (None, None)
        if low is None or k is None or k > MAX_DRAFT_TOKENS:
            return None
        if low <= concurrency:
            found = k
    return found


def _checked(value: Any) -> int | None:
    k = count(value)
    return k if k is not None and k <= MAX_DRAFT_TOKENS else None


def _method(value: Any) -> str | None:
    name = text(value)
    return name.lower() if name and name.replace("_", "").isalnum() else None
