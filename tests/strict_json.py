"""Reading what a command prints with --json, as strictly as other tools may."""

import json
from typing import Any


def strict(text: str) -> dict[str, Any]:
    """The one JSON object that `text` is; NaN and Infinity are refused."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    value = json.loads(text, parse_constant=refuse)
    assert isinstance(value, dict)
    return value
