"""From a TOML file or a parsed mapping to a checked `Deployment`: the one place where users' input is checked."""

import functools
import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic_core import SchemaValidator, ValidationError

from hwmodel.errors import InputError, UnknownNameError
from hwmodel.files import open_regular
from simulator.deployment.checks import check
from simulator.deployment.keys import MEASURED_ON, PARAMETERS, short
from simulator.deployment.overrides import Tables, drop_own_keys, lay_over
from simulator.deployment.problems import stated_error
from simulator.deployment.schema import validator
from simulator.deployment.speculation import METHODS
from simulator.deployment.tables import LENGTH_DISTRIBUTIONS, TABLES, Deployment

if TYPE_CHECKING:
    from simulator.profile import Profile

_MAX_FILE_BYTES = 1_000_000  # a deployment file is a screen of text; a model file given by mistake is not
_SHOWN_PATH = 200
_ALLOWED = "allowed: a deployment file (TOML); `draftcast init -o FILE` writes one"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # what older PowerShells write with `>`
_BASELINE_TABLES = ("model", "hardware", "engine", "workload")
PATH_KEYS = (
    ("hardware", "nccl_tests"),
    ("hardware", "topology"),
    ("workload", "length_distribution"),
    ("speculation", "acceptance", "replay"),
)
NAME_OR_PATH_KEYS = (
    ("model", "config"),
    ("hardware", "gpu"),
    ("speculation", "draft_model"),
    ("engine", "launch"),
    ("costs", "training_gpu"),
)
_FILE_ENDINGS = (".json", ".toml", ".yaml", ".yml", ".service", ".sh")


def load_deployment(
    source: str | Path | Mapping[str, Any], overrides: Sequence[str] = (), notes: Sequence[str] = ()
) -> Deployment:
    """The checked deployment of a TOML file (its path) or of an already parsed mapping.

    `overrides` are "KEY=VALUE" texts laid over it: VALUE is read as TOML, else as bare text; a list key also takes
    "1,4,16"; "KEY=" puts the default back. Paths in a file are relative to its folder, those in a mapping and in
    overrides to the current one. `notes` are sentences to keep about how the mapping came about. Raises InputError
    with one line: what, got, allowed.
    """
    written = _plain(source) if isinstance(source, Mapping) else read_tables(source)
    origin = _origin(written)
    tables, more = lay_over(_plain(written), overrides)
    deployment = _validated(tables, (*notes, *more))
    if deployment.measured and origin is not None and not sets_measured(overrides):
        deployment._measured_on = _validated(origin, ())
    elif deployment.measured and changes_baseline(overrides):
        deployment._measured_on = _validated_or_none(written)
    return deployment


def apply_overrides(deployment: Deployment, overrides: Sequence[str]) -> Deployment:
    """`deployment` with "KEY=VALUE" texts laid over it, checked again; what was stated stays stated."""
    tables, notes = lay_over(deployment.to_dict(stated_only=True), overrides)
    changed = _validated(tables, deployment.notes + notes)
    if changed.measured and not sets_measured(overrides):
        changed._measured_on = deployment._measured_on or (deployment if changes_baseline(overrides) else None)
    changed._profile = deployment._profile
    return changed


def with_profile(deployment: Deployment, profile: "Profile | None") -> Deployment:
    """`deployment` with what a calibration learned; whether that applies is said where it is used."""
    changed = deployment.changed()
    changed._profile = profile
    return changed


def changes_baseline(overrides: Sequence[str]) -> bool:
    """Whether measured facts of the file describe another baseline than the one that results: not what was measured."""
    return not sets_measured(overrides) and any(_root(text) in _BASELINE_TABLES for text in overrides)


def sets_measured(overrides: Sequence[str]) -> bool:
    """Whether the overrides state measured facts themselves: those belong to what results."""
    return any(_root(text) == "measured" for text in overrides)


def _origin(written: Tables) -> Tables | None:
    """Takes `[measured_on]` out of `written`: what the measured facts describe, its tables in place of the file's."""
    stated = written.pop(MEASURED_ON, None)
    if stated is None:
        return None
    if not isinstance(stated, dict):
        raise InputError(f"{MEASURED_ON}: got a value, allowed: [{MEASURED_ON}.TABLE] with the tables of a deployment")
    known = [*(name for name in TABLES if name != "measured"), PARAMETERS]
    for name in stated:
        if name not in known:
            raise UnknownNameError(f"unknown table '{MEASURED_ON}.{short(name)}'; known: {', '.join(known)}")
    return {**_plain(written), **stated}


def _root(override: str) -> str:
    return override.split("=", 1)[0].split(".", 1)[0].strip()


def _validated_or_none(tables: Tables) -> Deployment | None:
    """The deployment as written, or None where it is only complete with the overrides."""
    try:
        return _validated(_plain(tables), ())
    except InputError:
        return None


def with_method(deployment: Deployment, method: str) -> tuple[Deployment, tuple[str, ...]]:
    """`deployment` drafting by `method`, and notes about what was left out because it describes the file's method."""
    if method not in METHODS:
        raise UnknownNameError(f"speculation.method: got '{short(method)}', allowed: one of: {', '.join(METHODS)}")
    if method == deployment.speculation.method:
        return deployment, ()
    tables = deployment.to_dict(stated_only=True)
    notes = drop_own_keys(tables, method)
    tables.setdefault("speculation", {})["method"] = method
    changed = _validated(tables, deployment.notes + notes)
    changed._measured_on, changed._profile = deployment._measured_on, deployment._profile
    return changed, notes


def read_tables(path: str | Path) -> Tables:
    """The tables of a TOML file as they stand, unchecked, with relative paths resolved against its folder."""
    text, shown = _read_text(path), short(str(path), _SHOWN_PATH)
    try:
        tables = tomllib.loads(text)
    except RecursionError:
        raise InputError(f"{shown}: not usable TOML: nested too deep, {_ALLOWED}") from None
    except ValueError as problem:  # TOMLDecodeError, and plain ValueError for integers of thousands of digits
        raise InputError(f"{shown}: not valid TOML: {short(str(problem), 120)}; {_ALLOWED}") from None
    folder = os.path.dirname(os.path.abspath(path))
    resolve_paths(tables, folder)
    resolve_paths(tables.get(MEASURED_ON), folder)
    return tables


def _read_text(path: str | Path) -> str:
    shown = short(str(path), _SHOWN_PATH)
    try:
        with open_regular(path) as file:
            data = file.read(_MAX_FILE_BYTES + 1)
    except IsADirectoryError:
        raise InputError(f"{shown}: is a directory, {_ALLOWED}") from None
    except FileNotFoundError:
        raise InputError(f"{shown}: no such file{_of_a_clone(path)}, {_ALLOWED}") from None
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise InputError(f"{shown}: cannot be read: {reason}, allowed: a deployment file (TOML)") from None
    if len(data) > _MAX_FILE_BYTES:
        raise InputError(f"{shown}: larger than {_MAX_FILE_BYTES} bytes, allowed: a deployment file (TOML)")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        other = " (it looks like UTF-16)" if data.startswith(_UTF_16) else ""
        raise InputError(
            f"{shown}: not UTF-8 text{other} (byte {problem.start}), allowed: TOML in UTF-8: save it as such"
        ) from None


def _of_a_clone(path: str | Path) -> str:
    """Where the examples are, for a path that was copied from the documentation."""
    return (
        " (the examples are in a clone, not in an installed draftcast)" if Path(path).parts[:1] == ("examples",) else ""
    )


def resolve_paths(tables: Any, folder: str) -> None:
    """Makes the relative paths in `tables` absolute, read from `folder`; names of cards stay."""
    for keys in PATH_KEYS + NAME_OR_PATH_KEYS:
        table: Any = tables
        for key in keys[:-1]:
            table = table.get(key) if isinstance(table, dict) else None
        value = table.get(keys[-1]) if isinstance(table, dict) else None
        if isinstance(value, str) and (keys in PATH_KEYS or _looks_like_path(value, folder)):
            table[keys[-1]] = value if value in LENGTH_DISTRIBUTIONS else _resolved(value, folder)


def _looks_like_path(value: str, folder: str) -> bool:
    """Whether a name-or-path value is a path: by its ending or start, or because it has a slash and exists."""
    if any(blank in value for blank in " \n\t"):  # a launch command, unless there is such a file
        return os.path.isfile(_resolved(value, folder))
    return (
        value.endswith(_FILE_ENDINGS)
        or value.startswith((".", "~"))
        or (os.sep in value and os.path.exists(_resolved(value, folder)))
    )


def _resolved(value: str, folder: str) -> str:
    return os.path.normpath(os.path.join(folder, os.path.expanduser(value)))


def _plain(mapping: Mapping[str, Any]) -> Tables:
    """A copy in plain dicts and lists, so that overrides never change what the caller holds."""
    return {str(key): _plain_value(value) for key, value in mapping.items()}


def _plain_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return _plain(value)
    return [_plain_value(item) for item in value] if isinstance(value, list | tuple) else value


def _validated(tables: Tables, notes: tuple[str, ...]) -> Deployment:
    workload = tables.get("workload")
    if isinstance(workload, dict) and type(workload.get("concurrency")) is int:
        workload["concurrency"] = [workload["concurrency"]]  # one load is a list of one
    try:
        deployment: Deployment = _checker().validate_python(tables)
    except ValidationError as problems:
        raise stated_error(problems) from None
    deployment._notes = notes
    check(deployment)
    return deployment


@functools.cache
def _checker() -> SchemaValidator:
    """Built once, and only where something is checked."""
    return validator(Deployment)
