"""Values and tables as TOML text: what the standard library reads but does not write."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from hwmodel.errors import InputError
from simulator.deployment.keys import short

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def value_text(value: Any, where: str) -> str:
    """One value as TOML on one line; tables inline. `InputError`, at the key `where`, for what TOML cannot say.

    >>> value_text({"mean_length": 2.5, "measured at": [3, 4], "none": {}}, "acceptance")
    '{ mean_length = 2.5, "measured at" = [3, 4], none = {} }'
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return _string(value, where)
    if isinstance(value, Mapping):
        inner = ", ".join(f"{key_text(key)} = {value_text(item, where)}" for key, item in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, Sequence):
        return "[" + ", ".join(value_text(item, where) for item in value) + "]"
    raise InputError(
        f"{short(where)}: got {short(repr(value))}, which a TOML file cannot say; allowed: without that key"
    )


def key_text(key: str) -> str:
    """A key, in quotes where TOML asks for them."""
    return key if _BARE_KEY.fullmatch(key) else _string(key, "a key")


def _string(text: str, where: str) -> str:
    """A basic string: JSON's escapes are TOML's, which escapes DEL besides."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(
            f"{short(where)}: got {short(ascii(text))}, which is no Unicode; allowed: names in UTF-8"
        ) from None
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
