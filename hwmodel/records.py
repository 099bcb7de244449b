"""`dataclass` for frozen records: as the standard library's, but quick to define.

The standard one compiles six methods for every frozen class, close to a millisecond each time; the sixty records that
an answer goes through took half as long to define as the answer to compute. Here all records share the six methods.
Left out: `order`, `kw_only`, `__post_init__`, fields without `init`, records that inherit from records.
"""

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # what it means to type checkers
else:

    def dataclass(*, frozen, slots=False, eq=True):
        """The decorator, written as the standard library's, `frozen=True` always."""
        assert frozen, "for what changes, dataclasses.dataclass is the one"
        define = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots)

        def decorate(cls):
            cls.__doc__ = cls.__doc__ or cls.__name__  # else one is made by parsing the signature, which takes 5 ms
            record = define(cls)
            for name, method in (_SHARED | _COMPARED if eq else _SHARED).items():
                setattr(record, name, method)
            return record

        return decorate


_set = object.__setattr__


def _init(self: Any, *values: Any, **named: Any) -> None:
    fields = self.__dataclass_fields__
    if named or len(values) != len(fields):
        values = _complete(self, fields, values, named)
    for name, value in zip(fields, values, strict=True):
        _set(self, name, value)


def _complete(record: Any, fields: dict[str, Any], values: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
    """All values in the order of the fields, from those given by position, by name, and left at their defaults."""
    given = dict(zip(fields, values, strict=False))
    given.update(named)
    if len(given) != len(values) + len(named) or not fields.keys() >= given.keys():
        wrong = f"{len(values)} values and {', '.join(named) or 'no names'}"
        raise TypeError(f"{_name(record)}: got {wrong}, allowed: each of {', '.join(fields)} once")
    return tuple([given[name] if name in given else _default(record, field) for name, field in fields.items()])


def _default(record: Any, field: "dataclasses.Field[Any]") -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    raise TypeError(f"{_name(record)}: missing {field.name}")


def _values(record: Any) -> tuple[Any, ...]:
    return tuple([getattr(record, name) for name in record.__dataclass_fields__])


def _name(record: Any) -> str:
    return str(type(record).__qualname__)


def _repr(self: Any) -> str:
    return f"{_name(self)}({', '.join(f'{name}={getattr(self, name)!r}' for name in self.__dataclass_fields__)})"


def _eq(self: Any, other: object) -> bool:
    return _values(self) == _values(other) if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    return hash(_values(self))


def _refuse(self: Any, name: str, *_: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot change field {name!r} of {_name(self)}")


def _reduce(self: Any) -> tuple[Any, ...]:
    return type(self), _values(self)


_SHARED = {
    "__init__": _init,
    "__repr__": _repr,
    "__setattr__": _refuse,
    "__delattr__": _refuse,
    "__reduce__": _reduce,  # copies and pickles are made anew, since nothing can be assigned to them
}
_COMPARED = {"__eq__": _eq, "__hash__": _hash}
