import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftcast.commands.whatif import plain_value, split_values
from draftcast.options import MAX_LIST_ITEMS, IntList, Request


def parsed(text: str) -> tuple[int, ...]:
    return IntList().convert(text, None, None)


def request(**changes: object) -> Request:
    fields = dict.fromkeys(("gpu", "model", "num_gpus", "launch", "profile")) | {"source": "x.toml", "overrides": ()}
    return Request(**(fields | {"num_draws": 2000, "seed": 0, "as_json": False} | changes))


@pytest.mark.parametrize(
    ("text", "values"),
    [("3", (3,)), ("0-8", tuple(range(9))), ("1,2,4-8", (1, 2, 4, 5, 6, 7, 8)), (" 2 , 1-3", (2, 1, 3)), ("4-4", (4,))],
)
def test_a_list_is_items_and_whole_ranges_in_the_order_given(text: str, values: tuple[int, ...]) -> None:
    assert parsed(text) == values


@pytest.mark.parametrize("text", ["", ",", "1,", "a", "1.5", "-1", "1-", "-", "2-1", "1--2", "²", "1 2", "9" * 5000])
def test_what_is_no_list_of_whole_numbers_is_wrong_usage(text: str) -> None:
    with pytest.raises(click.BadParameter):
        parsed(text)


def test_a_list_has_a_limit_whatever_it_is_made_of() -> None:
    assert len(parsed(f"1-{MAX_LIST_ITEMS}")) == MAX_LIST_ITEMS
    with pytest.raises(click.BadParameter, match="more than"):
        parsed(f"0-{MAX_LIST_ITEMS}")
    with pytest.raises(click.BadParameter, match="more than"):
        parsed(f"1-{MAX_LIST_ITEMS},5000")


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=50, unique=True))
def test_a_written_list_reads_back(values: list[int]) -> None:
    assert parsed(",".join(map(str, values))) == tuple(values)


@given(st.text(max_size=30))
def test_any_text_is_a_list_or_wrong_usage(text: str) -> None:
    try:
        values = parsed(text)
    except click.BadParameter:
        return
    assert all(value >= 0 for value in values)


def test_named_options_are_overrides_of_the_keys_that_they_stand_for() -> None:
    named = request(gpu="h200", num_gpus=4, model="qwen3-8b-bf16").named_overrides()
    assert named == ("hardware.gpu=h200", "hardware.num_gpus=4", "model.config=qwen3-8b-bf16")
    assert request().named_overrides("mtp") == ("speculation.method=mtp",)
    assert request().named_overrides() == ()


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("4,8", ["4", "8"]),
        ("nvlink", ["nvlink"]),
        ("[0.6, 0.4],[0.7]", ["[0.6, 0.4]", "[0.7]"]),
        ("{ rate = 0.5, measured_at_k = 3 },{ rate = 0.6 }", ["{ rate = 0.5, measured_at_k = 3 }", "{ rate = 0.6 }"]),
    ],
)
def test_varied_values_are_split_outside_of_brackets(text: str, values: list[str]) -> None:
    assert split_values(text) == values


@given(st.text(max_size=20))
def test_a_plain_value_loses_nothing_of_what_was_written(text: str) -> None:
    value = plain_value(text)
    assert str(value).lower() == text.lower()


@pytest.mark.parametrize("text", ["0.10", "1e3", "0x" + "f" * 5000, "9" * 5000, "1\nb = 2", "1 # x", "[" * 5000])
def test_what_would_read_back_differently_stays_text(text: str) -> None:
    assert plain_value(text) == text
