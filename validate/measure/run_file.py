"""The run file: written after every cell, whole at any moment, continued by a later run of the same load."""

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from calibration.readers.run_file import is_run_file
from calibration.readers.values import load_json, mapping, shown
from hwmodel.errors import InputError
from hwmodel.files import open_regular
from hwmodel.units import MB

FORMAT = "draftcast run 1"
MAX_BYTES = int(512 * MB)


def read_run(path: str) -> dict[str, Any] | None:
    """The run at `path`; None where there is no file, an `InputError` where it holds something else."""
    try:
        with open_regular(path) as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot read {shown(path)}: {reason}; allowed: a new file, or an earlier run's") from error
    if not data.strip():
        return None
    if len(data) > MAX_BYTES:
        raise InputError(f"{shown(path)} is larger than {MAX_BYTES} bytes; allowed: a new file, or an earlier run's")
    try:
        found = load_json(data.decode("utf-8-sig"), path)
    except (UnicodeDecodeError, InputError) as error:
        raise InputError(f"{shown(path)} is no run file; allowed: a new file, or an earlier run's") from error
    if not is_run_file(found) or not isinstance(found, dict) or "load" not in found:
        raise InputError(f"{shown(path)} is no run file; allowed: a new file, or an earlier run's")
    return found


def write_run(path: str, run: Mapping[str, Any]) -> None:
    """Writes the whole run beside `path`, then puts it in its place: a reader or a crash never meets half a file."""
    part = Path(f"{path}.part")
    try:
        with part.open("w", encoding="utf-8") as file:
            file.write(_text(run))
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        if not isinstance(error, OSError):
            raise
        reason = error.strerror or error
        raise InputError(f"cannot write {shown(path)}: {reason}; allowed: a file on a disk with room") from error


def _text(run: Mapping[str, Any]) -> str:
    """One line for each cell and each other part: short enough to be read, and to be compared by line."""
    parts = [
        f"{json.dumps(name)}: " + (_lines(value) if name == "cells" else json.dumps(value, allow_nan=False))
        for name, value in run.items()
    ]
    return "{" + ",\n".join(parts) + "}\n"


def _lines(cells: Sequence[Any]) -> str:
    return "[\n" + ",\n".join(json.dumps(cell, allow_nan=False) for cell in cells) + "\n]"


def kept_cells(old: Mapping[str, Any], load: Mapping[str, Any], concurrencies: tuple[int, ...]) -> list[dict[str, Any]]:
    """The cells of an earlier run that need not be measured again; an `InputError` for a run with another load."""
    before = mapping(old.get("load"))
    different = [
        f"{name} was {before.get(name)}, is {value}" for name, value in load.items() if before.get(name) != value
    ]
    if different:
        raise InputError(
            f"the run file holds a run with another load ({'; '.join(different[:3])}); "
            "allowed: the same options, another file, or --fresh"
        )
    cells = [cell for cell in old["cells"] if isinstance(cell, dict)]
    return [cell for cell in cells if cell.get("complete") and not cell.get("refused_reason") and _users(cell)]


def _users(cell: Mapping[str, Any]) -> int:
    users = cell.get("concurrency")
    return users if isinstance(users, int) else 0
