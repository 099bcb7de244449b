"""How tables and their keys are declared, and the checker that is built from the declarations.

The checking is pydantic's (`pydantic_core`, which says where what is wrong); only its model classes are not used:
importing them and building the tables with them took 0.1 s, a quarter of an answer.
"""

from collections.abc import Callable, Mapping
from dataclasses import FrozenInstanceError
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, Self, Union, get_args, get_origin

from pydantic_core import SchemaValidator, core_schema

from hwmodel.records import dataclass

REQUIRED: Any = ...
_STRICT = core_schema.CoreConfig(strict=True, allow_inf_nan=False)  # holds inside a table; each table needs its own
_SCALARS: dict[Any, Callable[..., core_schema.CoreSchema]] = {
    int: core_schema.int_schema,
    float: core_schema.float_schema,
    str: core_schema.str_schema,
    bool: core_schema.bool_schema,
}


@dataclass(frozen=True, slots=True, eq=False)
class FieldInfo:
    """The declaration of one key; `bounds` are `ge`, `gt`, `le`, `lt`, `min_length` and `max_length`."""

    default: Any
    description: str
    bounds: Mapping[str, float]
    annotation: Any = None

    @property
    def is_required(self) -> bool:
        """Whether the key must be there."""
        return self.default is REQUIRED


def Field(default: Any = REQUIRED, *, description: str = "", **bounds: float) -> Any:
    """The right-hand side of a key's declaration, or bounds inside `Annotated`; anything to type checkers."""
    return FieldInfo(default, description, bounds)


class Table:
    """A table of the deployment file, checked and frozen; subclasses declare its keys, unstated ones are at default."""

    fields: ClassVar[dict[str, FieldInfo]] = {}

    def __init_subclass__(cls) -> None:
        """Collects the declared keys; their defaults become the class's attributes."""
        cls.fields = {}
        for name, annotation in cls.__annotations__.items():
            if name.startswith("_"):
                continue
            assert not hasattr(Table, name), f"{name} is an attribute of every table"
            declared: FieldInfo = vars(cls)[name]
            cls.fields[name] = FieldInfo(declared.default, declared.description, declared.bounds, annotation)
            if declared.is_required:
                delattr(cls, name)
            else:
                setattr(cls, name, declared.default)

    def __init__(self, **stated: Any) -> None:
        """The table with these keys stated; values are taken as they are, only `validator` checks."""
        vars(self).update(stated)

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuses keys; what begins with an underscore is the loader's."""
        if not name.startswith("_"):
            raise FrozenInstanceError(f"cannot change {name} of a checked {type(self).__name__}")
        super().__setattr__(name, value)

    def __eq__(self, other: object) -> bool:
        """Whether all keys have the same values, stated or not."""
        return type(other) is type(self) and all(getattr(self, n) == getattr(other, n) for n in self.fields)

    def __repr__(self) -> str:
        """What is stated."""
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self.stated)})"

    __hash__ = None  # type: ignore[assignment]

    def changed(self, **keys: Any) -> Self:
        """A copy with these keys stated so; values are taken as they are, only `validator` checks."""
        return type(self)(**{**vars(self), **keys})

    @property
    def stated(self) -> list[str]:
        """Names of the keys that were written, in the order of the declarations."""
        return [name for name in self.fields if name in vars(self)]

    def to_dict(self, *, stated_only: bool = False) -> dict[str, Any]:
        """The keys that have a value, as TOML or JSON would state them."""
        values = {name: getattr(self, name) for name in (self.stated if stated_only else self.fields)}
        return {name: _plain(value, stated_only) for name, value in values.items() if value is not None}


def _plain(value: Any, stated_only: bool) -> Any:
    if isinstance(value, Table):
        return value.to_dict(stated_only=stated_only)
    if isinstance(value, tuple):
        return [_plain(item, stated_only) for item in value]
    return {key: _plain(item, stated_only) for key, item in value.items()} if isinstance(value, dict) else value


def validator(table: type[Table]) -> SchemaValidator:
    """The checker from a mapping to an instance of `table`.

    Types are taken strictly (no "8" for 8, no true for 1; a list is fine for a tuple), NaN and infinity are refused.
    """
    return SchemaValidator(_of_table(table))


def _of_table(table: type[Table]) -> core_schema.CoreSchema:
    keys = {
        name: core_schema.typed_dict_field(_of_type(field.annotation, field.bounds), required=field.is_required)
        for name, field in table.fields.items()
    }
    mapping = core_schema.typed_dict_schema(keys, extra_behavior="forbid", config=_STRICT)
    return core_schema.no_info_after_validator_function(lambda stated: table(**stated), mapping)


def _of_type(annotation: Any, bounds: Mapping[str, Any]) -> core_schema.CoreSchema:
    origin, members = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _of_type(members[0], {**bounds, **members[1].bounds})
    if origin in (Union, UnionType):
        return _of_union(members, bounds)
    if origin is Literal:
        return core_schema.literal_schema(list(members))
    if origin is tuple:
        return _of_tuple(members, bounds)
    if origin is dict:
        return core_schema.dict_schema(*(_of_type(member, {}) for member in members))
    if annotation is Any:
        return core_schema.any_schema()
    return _SCALARS[annotation](**bounds) if annotation in _SCALARS else _of_table(annotation)


def _of_union(members: tuple[Any, ...], bounds: Mapping[str, Any]) -> core_schema.CoreSchema:
    """`T | None` by its T; other unions by their members."""
    others = [member for member in members if member is not NoneType]
    schemas: list[Any] = [_of_type(member, bounds) for member in others]
    inner = schemas[0] if len(schemas) == 1 else core_schema.union_schema(schemas)
    return core_schema.nullable_schema(inner) if len(others) < len(members) else inner


def _of_tuple(members: tuple[Any, ...], bounds: Mapping[str, Any]) -> core_schema.CoreSchema:
    """A tuple of any length (`tuple[T, ...]`) or of a fixed one; lists are taken for it."""
    if members[-1] is Ellipsis:
        return core_schema.tuple_schema([_of_type(members[0], {})], variadic_item_index=0, strict=False, **bounds)
    return core_schema.tuple_schema([_of_type(member, {}) for member in members], strict=False)
