"""Records mean what a frozen dataclass of the standard library means; only their definition is cheaper."""

import copy
import dataclasses
import pickle
from functools import cached_property
from typing import Any

import pytest

from hwmodel.records import dataclass


@dataclass(frozen=True, slots=True)
class Ours:
    """A record with defaults of both kinds."""

    size: int
    name: str = "none"
    tags: list[str] = dataclasses.field(default_factory=list)

    @property
    def twice(self) -> int:
        return 2 * self.size


@dataclasses.dataclass(frozen=True, slots=True)
class Theirs:
    """The same as the standard library makes it."""

    size: int
    name: str = "none"
    tags: list[str] = dataclasses.field(default_factory=list)

    @property
    def twice(self) -> int:
        return 2 * self.size


@dataclass(frozen=True)
class Computed:
    """A record that keeps what it has computed."""

    values: tuple[int, ...]

    @cached_property
    def total(self) -> int:
        return sum(self.values)


@dataclass(frozen=True, eq=False)
class ByIdentity:
    """A record that equals itself only."""

    size: int


@pytest.mark.parametrize(
    ("values", "named"),
    [((1,), {}), ((1, "a"), {}), ((1,), {"tags": ["x"]}), ((), {"size": 3, "name": "b"}), ((1, "a", ["y"]), {})],
)
def test_a_record_is_made_shown_and_compared_as_the_standard_one(values: Any, named: Any) -> None:
    ours, theirs = Ours(*values, **named), Theirs(*values, **named)
    assert dataclasses.asdict(ours) == dataclasses.asdict(theirs)
    assert ours.twice == theirs.twice
    assert repr(ours) == repr(theirs).replace("Theirs", "Ours")
    assert ours == Ours(*values, **named)
    assert ours != theirs
    assert Ours.__match_args__ == Theirs.__match_args__


@pytest.mark.parametrize(
    ("values", "named"),
    [((), {}), ((1, "a", [], 4), {}), ((1,), {"size": 2}), ((1,), {"colour": "red"}), ((), {"name": "b"})],
)
def test_wrong_arguments_are_refused_as_by_the_standard_one(values: Any, named: Any) -> None:
    with pytest.raises(TypeError):
        Theirs(*values, **named)
    with pytest.raises(TypeError, match="Ours"):
        Ours(*values, **named)


def test_each_record_has_a_default_of_its_own() -> None:
    assert Ours(1).tags is not Ours(1).tags


def test_a_record_cannot_be_changed_but_replaced() -> None:
    record = Ours(1, "a")
    with pytest.raises(dataclasses.FrozenInstanceError):
        record.size = 2  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del record.name
    with pytest.raises((AttributeError, TypeError)):
        record.colour = "red"  # type: ignore[attr-defined]
    assert dataclasses.replace(record, size=2) == Ours(2, "a")
    assert record == Ours(1, "a")


def test_equal_records_have_one_hash() -> None:
    assert len({Computed((1, 2)), Computed((1, 2)), Computed((2, 1))}) == 2
    with pytest.raises(TypeError):
        hash(Ours(1))  # holds a list, as with the standard one


def test_a_record_compared_by_identity_equals_only_itself() -> None:
    record = ByIdentity(1)
    assert record == record
    assert record != ByIdentity(1)
    assert len({record, ByIdentity(1)}) == 2


@pytest.mark.parametrize("record", [Ours(1, "a", ["x"]), Computed((1, 2))])
def test_copies_and_pickles_equal_the_record(record: object) -> None:
    assert copy.deepcopy(record) == record
    assert pickle.loads(pickle.dumps(record)) == record


def test_what_is_computed_once_is_kept() -> None:
    record = Computed((1, 2))
    assert (record.total, vars(record)["total"]) == (3, 3)
