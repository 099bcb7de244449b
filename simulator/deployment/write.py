"""A deployment written down as a file that gives the same answer."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from simulator.deployment.keys import MEASURED_ON, PARAMETERS
from simulator.deployment.tables import TABLES, Deployment
from simulator.deployment.toml_text import key_text, value_text


def file_text(deployment: Deployment, comments: Sequence[str] = ()) -> str:
    """The deployment file (TOML): what was stated, overrides included, and what its facts were measured on.

    A profile is no part of it. `InputError` where it holds what TOML cannot say.
    """
    told = "".join(f"# {''.join(c if c.isprintable() else ' ' for c in line)}\n" for line in comments)
    return told + toml_text(stated_tables(deployment))


def stated_tables(deployment: Deployment) -> dict[str, Any]:
    """What was stated, overrides included, as tables of a file; with what its facts describe, where that differs."""
    tables = deployment.to_dict(stated_only=True)
    origin = deployment.measured_on
    if origin is not deployment:
        then = origin.to_dict(stated_only=True)
        names = [name for name in (*TABLES, PARAMETERS) if name != "measured"]
        changed = {name: then.get(name, {}) for name in names if then.get(name, {}) != tables.get(name, {})}
        tables[MEASURED_ON] = changed
    return tables


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
        key = prefix + key_text(name)
        if _is_list_of_tables(table):
            yield from (f"[[{key}]]\n{_lines(entry, key)}" for entry in table)
        elif name == MEASURED_ON and not prefix:
            yield f"[{key}]\n"
            yield from _blocks(table, f"{key}.")
        elif isinstance(table, Mapping):
            yield f"[{key}]\n{_lines(table, key)}"
        else:
            yield f"{key} = {value_text(table, key)}\n"


def _is_list_of_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) for item in value)


def _lines(table: Mapping[str, Any], where: str) -> str:
    return "".join(f"{key_text(name)} = {value_text(value, f'{where}.{name}')}\n" for name, value in table.items())
