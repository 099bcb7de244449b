"""One-line errors (what, got, allowed) made from pydantic's list of problems."""

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_core import ValidationError

from hwmodel.errors import InputError, UnknownNameError
from simulator.deployment.keys import PARAMETERS, allowed, allowed_parameter, choices, field_at, short, unknown_key
from simulator.deployment.tables import TABLES

_TOO_LONG = ("too_long", "string_too_long")
_PLAIN = re.compile(r"[+-]?[0-9.]{1,20}|true|false")


def stated_error(problems: ValidationError) -> InputError:
    """The error to raise for `problems`: unknown keys first, since a misspelt key often explains a missing one."""
    found = problems.errors(include_url=False)
    first = next((item for item in found if item["type"] == "extra_forbidden"), found[0])
    path, value = _path(first["loc"]), first["input"]
    others = len({tuple(_path(item["loc"])[:3]) for item in found}) - 1
    more = f" (and {others} more problem{'s' if others > 1 else ''})" if others else ""
    if path[0] == PARAMETERS and len(path) > 1:
        shown = short(str(value)) if isinstance(value, dict) else got(value)
        return InputError(f"{short('.'.join(path))}: got {shown}, allowed: {allowed_parameter()}")
    if first["type"] == "extra_forbidden":
        return UnknownNameError(unknown_key(path) + more)
    if first["type"] == "missing":
        return InputError(_missing(path, more))
    if first["type"] in _TOO_LONG:
        return InputError(_too_long(".".join(path), value, first["ctx"]["max_length"]) + more)
    hint = _nearest(path, value) or _unquoted(value, first["type"])
    return InputError(f"{'.'.join(path)}: got {got(value)}{hint}, allowed: {_allowed(path)}{more}")


def _too_long(key: str, value: Any, most: int) -> str:
    """What to say of a list or a text with more in it than is taken."""
    what = "characters" if isinstance(value, str) else "values"
    return f"{key}: got {len(value)} {what}, allowed: at most {most}"


def _path(location: tuple[int | str, ...]) -> list[str]:
    """The dotted key of a problem: list positions and the members of a union are no part of it."""
    parts = [part for part in location if isinstance(part, str)]
    return parts[:2] if parts[0] == PARAMETERS else parts


def _nearest(path: list[str], value: object) -> str:
    """The nearest of a fixed set of words, as a hint."""
    field = field_at(path)
    words = choices(field) if field else ()
    close = difflib.get_close_matches(value, words, n=1) if isinstance(value, str) else []
    return f" (nearest: {close[0]})" if close else ""


def _unquoted(value: object, problem: str) -> str:
    """A hint for a number or truth value in quotes, or a text such as a version without them."""
    if problem == "string_type" and isinstance(value, int | float):
        return " (write it in quotes)"
    quoted = isinstance(value, str) and problem.startswith(("int", "float", "bool"))
    return " (write it without quotes)" if quoted and _PLAIN.fullmatch(str(value).strip()) else ""


def got(value: object) -> str:
    """A value as the user may have written it, short and on one line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{short(value)}"'
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, Sequence) and not value:
        return "an empty list"
    try:
        return short(str(value))
    except ValueError:  # an integer too long for Python to print
        return "a number of thousands of digits"


def _allowed(path: list[str]) -> str:
    if len(path) == 1:
        return "list of tables ([[measured]])" if path[0] == "measured" else "table"
    field = field_at(path)
    return allowed(field) if field else "table"


def _missing(path: list[str], more: str) -> str:
    if len(path) == 1:
        required = [name for name, field in TABLES[path[0]].fields.items() if field.is_required]
        return f"missing table [{path[0]}]; it needs {', '.join(required)}{more}; `draftcast init` writes a first file"
    field: Any = field_at(path)
    return f"missing key {'.'.join(path)}; allowed: {allowed(field)} ({field.description}){more}"
