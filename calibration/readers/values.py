"""Values out of other tools' JSON and tables: numbers that can be used, or None; nothing is guessed."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hwmodel.errors import InputError
from simulator.deployment.keys import short

_SENTENCE_CHARS = 600
_PATH_CHARS = 200
_LARGEST = 1e20  # beyond it no time (nanoseconds since 1970 are 2e18), count or size that a server has


def number(value: Any) -> float | None:
    """`value` as a finite number from 0 (text of one too); None for anything else."""
    if type(value) is float:  # most values are: a trace has millions
        return value if 0 <= value <= _LARGEST else None
    if isinstance(value, str):
        try:
            value = float(value.strip())
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not 0 <= value <= _LARGEST:
        return None
    return float(value)


def positive(value: Any) -> float | None:
    """`value` as a number above 0, else None: tools write 0 where they measured nothing."""
    return number(value) or None


def scaled(value: Any, unit: float) -> float | None:
    """`value` times `unit`, above 0; None where there is none."""
    found = positive(value)
    return None if found is None else found * unit


def count(value: Any) -> int | None:
    """`value` as a whole number from 0, else None."""
    found = number(value)
    return int(found) if found is not None and found == int(found) else None


def numbers(value: Any) -> list[float] | None:
    """`value` as a list of numbers from 0; None where it is none, or one of them cannot be used."""
    if not isinstance(value, list):
        return None
    found = [number(item) for item in value]
    return None if any(item is None for item in found) else [item for item in found if item is not None]


def mapping(value: Any) -> Mapping[str, Any]:
    """`value` where it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def at(value: Any, *names: str) -> Any:
    """The value under `names`, one inside the other; None where the way ends early."""
    for name in names:
        value = mapping(value).get(name)
    return value


def first(*values: float | None) -> float | None:
    """The first that is not None."""
    return next((value for value in values if value is not None), None)


def text(value: Any) -> str | None:
    """`value` as one short line where it is text, else None."""
    return short(value) if isinstance(value, str) and value.strip() else None


def sentence(value: Any) -> str | None:
    """`value` as one line where it is text, else None: a reason is read to its end, and is longer than a name."""
    return short(value, _SENTENCE_CHARS) if isinstance(value, str) and value.strip() else None


def shown(path: str) -> str:
    """`path` on one line, its end kept where it is very long: the name tells more than the folders."""
    line = short(path, len(path) + 1)
    return line if len(line) <= _PATH_CHARS else "..." + line[-_PATH_CHARS:]


def load_json(content: str, path: str) -> Any:
    """The JSON value of a whole file; anything else is an `InputError` that says where it breaks."""
    try:
        return json.loads(content)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        what = "cut short" if error.pos >= len(content.rstrip()) - 1 else "broken"
        raise InputError(f"{shown(path)}: {what} JSON ({error.msg}, {place}); allowed: a whole file") from error
    except (RecursionError, ValueError) as error:
        raise InputError(f"{shown(path)}: JSON nested or numbers too long to read; allowed: a tool's result") from error


def load_lines(content: str, path: str) -> Iterator[tuple[int, Any]]:
    """(line number, value) of every non-empty line of a JSON-lines file."""
    for index, line in enumerate(content.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            yield index, json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(
                f"{shown(path)}: line {index} is no JSON (a file cut short?); allowed: one JSON object a line"
            ) from error


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean of at least one value."""
    return math.fsum(values) / len(values)


def standard_deviation(values: Sequence[float]) -> float:
    """Population standard deviation of at least one value."""
    centre = mean(values)
    return math.sqrt(math.fsum((value - centre) ** 2 for value in values) / len(values))


def median(values: Sequence[float]) -> float:
    """Middle value of at least one."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
