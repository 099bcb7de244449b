"""A deployment written down as a file that gives the same answer."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hwmodel.errors import InputError
from simulator.deployment.keys import MEASURED_ON, PARAMETERS, short
from simulator.deployment.tables import TABLES, Deployment

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def file_text(deployment: Deployment, comments: Sequence[str] = ()) -> str:
    """The deployment file (TOML): what was stated, overrides included, and what its facts were measured on.

    A profile is no part of it. `InputError` where it holds what TOML cannot say.
    """
    tables = deployment.to_dict(stated_only=True)
    origin = deployment.measured_on
    if origin is not deployment:
        then = origin.to_dict(stated_only=True)
        names = [name for name in (*TABLES, PARAMETERS) if name != "measured"]
        changed = {name: then.get(name, {}) for name in names if then.get(name, {}) != tables.get(name, {})}
        tables[MEASURED_ON] = changed
    told = "".join(f"# {''.join(c if c.isprintable() else ' ' for c in line)}\n" for line in comments)
    return told + toml_text(tables)


def toml_text(tables: Mapping[str, Any]) -> str:
    """Nested tables as TOML; `tomllib.loads` gives them back. `InputError` for a value that TOML lacks.

    >>> print(toml_text({"a": {"x": 1, "y": [0.5]}, "b": [{"z": "q"}]}), end="")
    [a]
    x = 1
    y = [0.5]
    <BLANKLINE>
    [[b]]
    z = "q"
    """
    return "\n".join(_blocks(tables, ""))


def _blocks(tables: Mapping[str, Any], prefix: str) -> Iterator[str]:
    for name, table in tables.items():
        key = prefix + _key(name)
        if _is_list_of_tables(table):
            yield from (f"[[{key}]]\n{_lines(entry, key)}" for entry in table)
        elif name == MEASURED_ON and not prefix:
            yield f"[{key}]\n"
            yield from _blocks(table, f"{key}.")
        elif isinstance(table, Mapping):
            yield f"[{key}]\n{_lines(table, key)}"
        else:
            yield f"{key} = {_value(table, key)}\n"


def _is_list_of_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) for item in value)


def _lines(table: Mapping[str, Any], where: str) -> str:
    return "".join(f"{_key(name)} = {_value(value, f'{where}.{name}')}\n" for name, value in table.items())


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _text(name, "a key")


def _value(value: Any, where: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return _text(value, where)
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_key(str(key))} = {_value(item, where)}" for key, item in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(item, where) for item in value) + "]"
    raise InputError(
        f"{short(where)}: got {short(repr(value))}, which a TOML file cannot say; allowed: without that key"
    )


def _text(value: str, where: str) -> str:
    """A basic string: as in JSON, but for the one control character that JSON leaves as it is."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InputError(f"{short(where)}: got text that is no Unicode, allowed: Unicode") from None
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
