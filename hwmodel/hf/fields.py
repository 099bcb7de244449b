"""Checked access to the keys of one configuration: the border where a user's file becomes numbers.

Every reader goes through `Fields`: a wrong type, an impossible size or a missing key is one line that names the
model and the key, and what was assumed on the way is collected in `assumptions`.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from hwmodel.errors import InputError

# Far above any model that exists: these catch a typing error and bound the work that one file can cause.
MAX_LAYERS = 2_000
MAX_EXPERTS = 100_000
MAX_WIDTH = 10_000_000
MAX_TOKENS = 1_000_000_000

_SHOWN_CHARS = 60


def one_line(text: str) -> str:
    """*text* fit for a message: names from files may hold line breaks and control characters."""
    return "".join(mark if mark.isprintable() else " " for mark in text)


def shown(value: object) -> str:
    """`value` as it stands in a message: short and on one line."""
    try:
        text = repr(value)
    except ValueError:  # whole numbers of thousands of digits have no decimal form in Python
        text = "a number of thousands of digits"
    return text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "..."


class Fields:
    """The keys of one table, by any of their spellings.

    *names* are the spellings of one key in order of preference; a key that is null counts as absent.
    """

    def __init__(self, table: Mapping[str, Any], model: str, assumptions: list[str] | None = None) -> None:
        """Reads *table* of the model called *model*, and adds to *assumptions*."""
        self.table = table
        self.model = model
        self.assumptions: list[str] = [] if assumptions is None else assumptions

    def fail(self, message: str) -> InputError:
        """The error that says *message* of this model; the caller raises it."""
        return InputError(one_line(f"model {self.model}: {message}"))

    def assume(self, text: str) -> None:
        """Notes once what the configuration does not say."""
        text = one_line(text)
        if text not in self.assumptions:
            self.assumptions.append(text)

    def find(self, *names: str) -> tuple[str, Any] | None:
        """The first of *names* that is present with its value, or None."""
        for name in names:
            value = self.table.get(name)
            if value is not None:
                return name, value
        return None

    def has(self, *names: str) -> bool:
        """Whether any of *names* is present."""
        return self.find(*names) is not None

    def integer(self, *names: str, default: int | None = None, low: int = 1, high: int = MAX_WIDTH) -> int:
        """The whole number under one of *names*, between *low* and *high*; without *default* the key is needed."""
        found = self.find(*names)
        if found is None:
            if default is None:
                also = f" (or {', '.join(names[1:])})" if len(names) > 1 else ""
                raise self.fail(f"no key '{names[0]}'{also}; needed: a whole number from {low} to {high}")
            return default
        name, value = found
        if not _whole(value) or not low <= value <= high:
            raise self.fail(f"{name} is {shown(value)}; allowed: a whole number from {low} to {high}")
        return int(value)

    def flag(self, *names: str, default: bool = False) -> bool:
        """True or false under one of *names*."""
        found = self.find(*names)
        if found is None:
            return default
        if not isinstance(found[1], bool):
            raise self.fail(f"{found[0]} is {shown(found[1])}; allowed: true, false")
        return found[1]

    def text(self, *names: str, default: str = "") -> str:
        """The text under one of *names*."""
        found = self.find(*names)
        if found is None:
            return default
        if not isinstance(found[1], str):
            raise self.fail(f"{found[0]} is {shown(found[1])}; allowed: a text")
        return found[1]

    def mapping(self, *names: str) -> Mapping[str, Any]:
        """The table under one of *names*, empty when absent."""
        found = self.find(*names)
        if found is None:
            return {}
        if not isinstance(found[1], Mapping):
            raise self.fail(f"{found[0]} is {shown(found[1])}; allowed: a table of keys")
        return found[1]

    def integers(self, *names: str, low: int = 0, high: int = MAX_WIDTH) -> list[int]:
        """The list of whole numbers under one of *names*, empty when absent."""
        found = self.find(*names)
        if found is None:
            return []
        name, value = found
        if not _is_list(value) or not all(_whole(item) and low <= item <= high for item in value):
            raise self.fail(f"{name} is {shown(value)}; allowed: a list of whole numbers from {low} to {high}")
        return [int(item) for item in value]

    def texts(self, *names: str) -> list[str]:
        """The list of texts under one of *names*, empty when absent."""
        found = self.find(*names)
        if found is None:
            return []
        name, value = found
        if not _is_list(value) or not all(isinstance(item, str) for item in value):
            raise self.fail(f"{name} is {shown(value)}; allowed: a list of texts")
        return list(value)

    def per_layer(self, values: Sequence[Any], name: str, num_layers: int) -> None:
        """Refuses a list *name* that has fewer entries than the model has layers."""
        if values and len(values) < num_layers:
            raise self.fail(f"{name} has {len(values)} entries; needed: one for each of the {num_layers} layers")


def divides(fields: Fields, total: int, parts: int, what: str) -> int:
    """`total / parts`, refused when it is no whole number."""
    if total % parts:
        raise fields.fail(f"{what}: {total} does not divide by {parts}")
    return total // parts


def _is_list(value: object) -> bool:
    return isinstance(value, list | tuple)


def _whole(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, int) or (math.isfinite(value) and value.is_integer())
