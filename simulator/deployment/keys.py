"""The vocabulary of the deployment file, read off the tables: for `draftcast list keys`, errors and `--set`."""

from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from hwmodel.names import nearest, vocabulary
from hwmodel.records import dataclass
from simulator.deployment.schema import FieldInfo, Table
from simulator.deployment.tables import TABLES

PARAMETERS = "parameters"
MEASURED_ON = "measured_on"  # of a file alone: what its facts describe where that is another baseline than its own
# Ending of a key -> its unit, longest first: the key itself is the only place where a unit is stated.
_UNITS = {
    "_tokens_per_s": "tokens/s",
    "_gb_per_s": "GB/s",
    "_tokens": "tokens",
    "_gb": "GB",
    "_ms_max": "ms",
    "_ms": "ms",
    "_us": "us",
    "_min": "minutes",
}
_WORDS: dict[object, str] = {int: "integer", float: "number", str: "text", bool: "true or false"}
_NO_UNIT = ("speculation.prompt_lookup_min", "engine.max_num_batched_tokens")  # `_min` is no time in the first
_ALIKE = 0.6


@dataclass(frozen=True, slots=True)
class KeyInfo:
    """One key of the deployment file, as text for people; `default` is "required" or "-" where there is none."""

    key: str
    type: str
    default: str
    unit: str
    meaning: str


def known_keys() -> list[KeyInfo]:
    """Every key of the deployment file in the order of its tables; `<name>`, `<table>` and `<key>` stand for any."""
    return [_info(key, field) for key, field in _walk()] + [
        KeyInfo("parameters.<name>", allowed_parameter(), "-", "", "a model parameter's value or prior"),
        KeyInfo(
            f"{MEASURED_ON}.<table>.<key>",
            "as that key",
            "-",
            "",
            "in a file alone: tables of what [[measured]] describes, where that is another baseline than this file's",
        ),
    ]


def key_names(table: str) -> list[str]:
    """Names of the keys directly inside `table` (dotted: "engine", "speculation.acceptance")."""
    model = _model_at(table.split("."))
    return list(model.fields) if model else []


def field_at(path: list[str]) -> FieldInfo | None:
    """Declaration of the key at `path`, such as ["engine", "version"]; None where there is no such key."""
    model = _model_at(path[:-1])
    return model.fields.get(path[-1]) if model else None


def unknown_key(path: list[str]) -> str:
    """One line about a key that does not exist: the nearest one, and the known ones of its table."""
    names: list[str] = []
    for depth in range(len(path) - 1, 0, -1):  # the innermost part of the path that is a table
        table = ".".join(path[:depth])
        names = names or key_names(table)
        if names:
            break
    else:
        table, names = "", [*TABLES, PARAMETERS]
    place = f"keys of [{table}]" if table else "tables"
    keys = [key for key, _ in _walk()]
    near = [key for key in keys if key.rpartition(".")[2] == path[-1] and len(path) == 1]
    near = near or nearest(".".join(path), keys + names, most=1, likeness=_ALIKE)
    hint = f" (nearest: '{near[0]}')" if near else ""
    listed = vocabulary(place, names, "list keys")
    return f"unknown key '{short('.'.join(path))}'{hint}; {listed}"


def allowed(field: FieldInfo) -> str:
    """What a key accepts, as words: "integer from 1 to 64", "one of: a, b", "list of numbers from 0 to 1"."""
    return _describe(field.annotation, field.bounds)


def allowed_parameter() -> str:
    """What a key of `[parameters]` accepts, as words."""
    return "number, or { median = number above 0, log_sd = number from 0 }"


def choices(field: FieldInfo) -> tuple[str, ...]:
    """The words that a key accepts where they are a fixed set, else none."""
    kind = bare_type(field.annotation)
    return get_args(kind) if get_origin(kind) is Literal else ()


def is_text(field: FieldInfo) -> bool:
    """Whether a key holds text, so that `--set engine.version=0.17` is not a number."""
    kind = bare_type(field.annotation)
    return kind is str or get_origin(kind) is Literal


def is_list(field: FieldInfo) -> bool:
    """Whether a key holds a list, so that `--set workload.concurrency=1,4` is one."""
    return get_origin(bare_type(field.annotation)) is tuple


def short(text: str, limit: int = 60) -> str:
    """`text` on one line, cut to `limit` characters: what users wrote may be long or hold line breaks."""
    line = "".join(letter if letter.isprintable() else "?" for letter in " ".join(text.split()))
    return line if len(line) <= limit else line[: limit - 3] + "..."


def _walk() -> Iterator[tuple[str, FieldInfo]]:
    for table, model in TABLES.items():
        for name, field in model.fields.items():
            yield f"{table}.{name}", field
            inner = bare_type(field.annotation)
            if isinstance(inner, type) and issubclass(inner, Table):
                yield from ((f"{table}.{name}.{key}", sub) for key, sub in inner.fields.items())


def _model_at(path: list[str]) -> type[Table] | None:
    model = TABLES.get(path[0]) if path else None
    for name in path[1:]:
        field = model.fields.get(name) if model else None
        inner = bare_type(field.annotation) if field else None
        model = inner if isinstance(inner, type) and issubclass(inner, Table) else None
    return model


def _info(key: str, field: FieldInfo) -> KeyInfo:
    default = "required" if field.is_required else _default(field.default)
    unit = "" if key in _NO_UNIT else next((unit for end, unit in _UNITS.items() if key.endswith(end)), "")
    return KeyInfo(key, allowed(field), default, unit, field.description)


def _default(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[" + ", ".join(str(item) for item in value) + "]"
    return str(value)


def bare_type(annotation: Any) -> Any:
    """The type itself, without `| None` and without `Annotated`."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return bare_type(get_args(annotation)[0])
    if origin in (Union, UnionType):
        members = [member for member in get_args(annotation) if member is not type(None)]
        return bare_type(members[0]) if len(members) == 1 else annotation
    return annotation


def _describe(annotation: Any, bounds: Mapping[str, float]) -> str:
    origin = get_origin(annotation)
    if origin is Annotated:
        base, field = get_args(annotation)
        return _describe(base, {**bounds, **field.bounds})
    if origin in (Union, UnionType):
        members = [member for member in get_args(annotation) if member is not type(None)]
        return " or ".join(_describe(member, bounds) for member in members)
    if origin is Literal:
        return "one of: " + ", ".join(get_args(annotation))
    if origin is tuple:
        return _describe_list(get_args(annotation))
    if annotation in (int, float):
        return _WORDS[annotation] + _range(bounds)
    return _WORDS.get(annotation, "table")


def _describe_list(members: tuple[Any, ...]) -> str:
    if members[-1] is not Ellipsis:
        return "list [" + ", ".join(_describe(member, {}) for member in members) + "]"
    return "list, each " + _describe(members[0], {})


def _range(bounds: Mapping[str, float]) -> str:
    low = f" from {bounds['ge']}" if "ge" in bounds else f" above {bounds['gt']}" if "gt" in bounds else ""
    high = f" to {bounds['le']}" if "le" in bounds else f" below {bounds['lt']}" if "lt" in bounds else ""
    return low + (high if low.startswith(" from") else high.replace(" to", " up to"))
