"""Tables are declared once: defaults, bounds and the checker follow from the declaration."""

import copy
import dataclasses
import pickle
from typing import Annotated, Any, Literal

import pytest
from pydantic_core import ValidationError

from simulator.deployment.schema import Field, Table, validator

Count = Annotated[int, Field(ge=1, le=10)]


class Inner(Table):
    """A table inside another."""

    share: Annotated[float, Field(gt=0, lt=1)] = Field(description="a share")
    note: str | None = Field(None, max_length=5)


class Outer(Table):
    """A table with every kind of key."""

    name: str = Field(description="its name", min_length=1)
    count: Count = Field(3, description="how many")
    counts: tuple[Count, ...] | None = Field(None, min_length=1)
    pair: tuple[int, float] | None = Field(None)
    mode: Literal["a", "b"] = Field("a")
    inner: Inner | None = Field(None)
    free: dict[str, Any] | None = Field(None)
    named: dict[str, float | Inner] = Field({})
    listed: tuple[Inner, ...] = Field(())
    _secret: int = 0


CHECK = validator(Outer)


def problems(**stated: Any) -> list[tuple[Any, ...]]:
    """Where and as what the problems are found."""
    with pytest.raises(ValidationError) as caught:
        CHECK.validate_python(stated)
    return [(*item["loc"], item["type"]) for item in caught.value.errors()]


def test_what_is_not_stated_is_at_its_default() -> None:
    table = CHECK.validate_python({"name": "x"})
    assert (table.name, table.count, table.counts, table.mode, table.listed) == ("x", 3, None, "a", ())
    assert table.stated == ["name"]
    assert table.to_dict(stated_only=True) == {"name": "x"}
    assert table.to_dict() == {"name": "x", "count": 3, "mode": "a", "named": {}, "listed": []}


def test_lists_become_tuples_and_tables_become_records() -> None:
    stated = {
        "name": "x",
        "counts": [1, 2],
        "pair": [1, 2],
        "listed": [{"share": 0.5}],
        "named": {"a": 1, "b": {"share": 0.25}},
    }
    table = CHECK.validate_python(stated)
    assert table.counts == (1, 2)
    assert table.pair == (1, 2.0)
    assert table.listed[0].share == 0.5
    assert table.named["b"] == Inner(share=0.25)
    assert table.to_dict(stated_only=True) == stated | {"named": {"a": 1.0, "b": {"share": 0.25}}}


def test_a_required_key_is_missed_and_an_unknown_one_found() -> None:
    assert problems() == [("name", "missing")]
    assert problems(name="x", nmae="y") == [("nmae", "extra_forbidden")]
    assert problems(name="x", inner={"shar": 0.5}) == [
        ("inner", "share", "missing"),
        ("inner", "shar", "extra_forbidden"),
    ]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("count", 0),
        ("count", "3"),
        ("count", True),
        ("count", 3.0),
        ("counts", []),
        ("counts", (1, 11)),
        ("counts", (1, "2")),
        ("pair", [1]),
        ("mode", "c"),
        ("inner", {"share": 1}),
        ("inner", {"share": True}),
        ("inner", {"share": float("nan")}),
        ("inner", {"share": 0.5, "note": "too long"}),
        ("inner", [0.5]),
        ("named", {"a": "1"}),
        ("name", ""),
    ],
)
def test_values_are_taken_strictly_and_within_their_bounds(key: str, value: Any) -> None:
    assert {where[0] for where in problems(**({"name": "x"} | {key: value}))} == {key}


def test_a_checked_table_is_frozen_but_for_what_the_loader_keeps_in_it() -> None:
    table = CHECK.validate_python({"name": "x"})
    with pytest.raises(dataclasses.FrozenInstanceError, match="count of a checked Outer"):
        table.count = 4
    table._secret = 4
    assert table._secret == 4
    assert table.stated == ["name"]


def test_tables_are_equal_by_their_values_stated_or_not() -> None:
    assert Outer(name="x", count=3) == Outer(name="x")
    assert Outer(name="x", count=4) != Outer(name="x")
    assert repr(Outer(name="x", count=3)) == "Outer(name='x', count=3)"


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda table: pickle.loads(pickle.dumps(table))])
def test_copies_state_what_the_table_states(copied: Any) -> None:
    table = Outer(name="x", inner=Inner(share=0.5))
    table._secret = 7
    again = copied(table)
    assert (again, again.stated, again._secret) == (table, ["name", "inner"], 7)
