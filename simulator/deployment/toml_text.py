"""Values and tables as TOML text: what the standard library reads but does not write."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from hwmodel.errors import InputError

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def value_text(value: Any) -> str:
    """One value as TOML on one line; tables inline. Values are those of a checked deployment: finite, never None.

    >>> value_text({"mean_length": 2.5, "measured at": [3, 4]})
    '{ mean_length = 2.5, "measured at" = [3, 4] }'
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key_text(key)} = {value_text(item)}" for key, item in value.items()) + " }"
    if isinstance(value, Sequence):
        return "[" + ", ".join(map(value_text, value)) + "]"
    return repr(value)


def key_text(key: str) -> str:
    """A key, in quotes where TOML asks for them."""
    return key if _BARE_KEY.fullmatch(key) else _string(key)


def _string(text: str) -> str:
    """A basic string: JSON's escapes are TOML's, which escapes DEL besides."""
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise InputError(f"got {text!a}, which is not UTF-8; allowed: names and paths in UTF-8")
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
