"""Reading JSON that others may have touched: values are asked for by type, and what is wrong is named by its place."""

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwmodel.errors import InputError
from simulator.deployment.keys import short

Array = NDArray[np.float64]

_MAX_ITEMS = 100_000


class JsonTable:
    """A table of the document, whose values are asked for by type; wrong ones are errors that name their place."""

    def __init__(self, value: Any, place: str) -> None:
        """`place` is where the table stands."""
        if not isinstance(value, Mapping):
            raise InputError(f"{place or 'document'}: got {_kind(value)}, allowed: a table")
        self.value, self._place = value, place

    def get(self, key: str) -> Any:
        """The raw value, None where absent."""
        return self.value.get(key)

    def _at(self, key: str) -> str:
        return f"{self._place}.{key}" if self._place else key

    def refuse(self, key: str, allowed: str) -> InputError:
        """The error for the value under `key`, to be raised."""
        return InputError(f"{self._at(key)}: got {_kind(self.get(key))}, allowed: {allowed}")

    def text(self, key: str) -> str:
        """A short text."""
        value = self.get(key)
        if not isinstance(value, str) or len(value) > _MAX_ITEMS:
            raise self.refuse(key, "a text")
        return value

    def number(self, key: str, low: float, high: float) -> float:
        """A finite number from `low` to `high`."""
        value = self.get(key)
        if not _is_number(value) or not low <= value <= high:
            raise self.refuse(key, f"a number from {low:g} to {high:g}")
        return float(value)

    def optional(self, key: str, low: float, high: float) -> float | None:
        """A number, or None where there is none."""
        return None if self.get(key) is None else self.number(key, low, high)

    def whole(self, key: str, low: int, high: int) -> int:
        """A whole number from `low` to `high`."""
        value = self.get(key)
        if type(value) is not int or not low <= value <= high:
            raise self.refuse(key, f"a whole number from {low} to {high}")
        return value

    def truth(self, key: str) -> bool:
        """True or false."""
        value = self.get(key)
        if not isinstance(value, bool):
            raise self.refuse(key, "true or false")
        return value

    def table(self, key: str) -> "JsonTable":
        """The table under `key`."""
        return JsonTable(self.get(key), self._at(key))

    def items(self, key: str, most: int = _MAX_ITEMS) -> list["JsonTable"]:
        """The tables of the list under `key`."""
        return [JsonTable(item, f"{self._at(key)}[{i}]") for i, item in enumerate(self.rows(key, most))]

    def rows(self, key: str, most: int) -> list[Any]:
        """The list under `key`, its items unchecked."""
        value = self.get(key)
        if not isinstance(value, list | tuple) or len(value) > most:
            raise self.refuse(key, f"a list of at most {most}")
        return list(value)

    def words(self, key: str) -> tuple[str, ...]:
        """The texts of the list under `key`."""
        value = self.rows(key, _MAX_ITEMS)
        if not all(isinstance(item, str) for item in value):
            raise self.refuse(key, "a list of texts")
        return tuple(value)

    def texts(self) -> dict[str, str]:
        """The whole table, whose values are texts."""
        if not all(isinstance(value, str) for value in self.value.values()):
            raise InputError(f"{self._place}: allowed: texts only")
        return dict(self.value)

    def vector(self, key: str, size: int | None = None) -> Array:
        """The finite numbers of the list under `key`; `size` of them where given."""
        value = self.rows(key, _MAX_ITEMS)
        if not all(map(_is_number, value)) or (size is not None and len(value) != size):
            raise self.refuse(key, "finite numbers" if size is None else f"{size} finite numbers")
        return np.array(value, dtype=float)


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) if isinstance(value, float) else abs(value) < 2**53


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, list | Mapping):
        return f"a {'list' if isinstance(value, list) else 'table'} of {len(value)}"
    return short(json.dumps(value), 40)
