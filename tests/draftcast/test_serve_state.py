"""What the address of the page may say, and what it may not."""

from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftcast.serve.controls import BY_KEY, CONTROLS, LOAD
from draftcast.serve.state import CARDS, FREE_TEXT, MAX_QUERY, State, check_settable, parse
from hwmodel.errors import InputError
from hwmodel.gpus import gpu_names
from hwmodel.models import model_names
from simulator.deployment import known_keys
from simulator.deployment.keys import bare_type, field_at
from simulator.deployment.load import NAME_OR_PATH_KEYS, PATH_KEYS

OWN: dict[str, Any] = {"model": {"config": "/srv/kimi/config.json"}, "hardware": {"gpu": "/srv/box.toml"}}
EVERY_KEY = [info.key for info in known_keys() if "<" not in info.key]
TEXT_KEYS = {key for key in EVERY_KEY if (field := field_at(key.split("."))) and bare_type(field.annotation) is str}
PATHS = ("/etc/passwd", "../box.toml", "~/x.json", "./a", "file:///etc/passwd", "http://evil/x.toml", '"/etc/passwd"')


def test_every_key_that_holds_text_was_thought_about() -> None:
    named = {".".join(path) for path in PATH_KEYS + NAME_OR_PATH_KEYS}
    assert named | FREE_TEXT == TEXT_KEYS
    assert not named & FREE_TEXT
    assert set(CARDS) <= named


@pytest.mark.parametrize("key", sorted({".".join(path) for path in PATH_KEYS + NAME_OR_PATH_KEYS}))
@pytest.mark.parametrize("path", PATHS)
def test_no_key_takes_a_path_from_the_address(key: str, path: str) -> None:
    with pytest.raises(InputError, match=key.replace(".", r"\.")):
        parse(urlencode([("set", f"{key}={path}")]), OWN)


def holders() -> list[str]:
    """Everything inside which a path could be said: tables, and keys that no declaration knows."""
    tables = sorted({key.split(".")[0] for key in EVERY_KEY})
    return [*tables, "parameters", "measured.0", "speculation.acceptance", "speculation.acceptance.counters",
            "speculation.launch_config", "speculation.launch_config.model", "speculation.acceptance.counters.a",
            "measured_on.model.config", "measured_on", "parameters.a.b", "parameters."]  # fmt: skip


@pytest.mark.parametrize("key", holders())
def test_no_table_can_be_set_as_a_whole(key: str) -> None:
    for value in ('{replay = "/etc/passwd", config = "/etc/passwd"}', "x"):
        with pytest.raises(InputError):
            parse(urlencode([("set", f"{key}={value}")]), OWN)


def test_any_key_can_be_put_back_to_its_default() -> None:
    for key in (key for key in EVERY_KEY if not key.startswith("measured.")):
        assert parse(urlencode([("set", f"{key}=")]), OWN).overrides == (f"{key}=",)


@pytest.mark.parametrize("key", ["hardware .gpu", "hardware. gpu", " hardware.gpu", "hardware.gpu ", "hardware.gpu\t"])
def test_blanks_in_a_key_open_no_way_round(key: str) -> None:
    with pytest.raises(InputError):
        check_settable(f"{key}=/etc/passwd", OWN)


def test_the_operators_own_card_and_shipped_ones_can_be_chosen() -> None:
    for key, value in (("model.config", "/srv/kimi/config.json"), ("hardware.gpu", "/srv/box.toml"),
                       ("model.config", model_names()[0]), ("hardware.gpu", gpu_names()[0]),
                       ("workload.length_distribution", "lognormal")):  # fmt: skip
        check_settable(f"{key}={value}", OWN)


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("a=1", r"^the address: got 'a', allowed: speculation\.method, .* and set=KEY=VALUE"),
        ("c=0x10", "concurrency: got '0x10', allowed: integer from 1 to 100000"),
        ("c=1&c=2", "c: got it twice, allowed: once"),
        ("%ff=1", "the address: its settings cannot be read"),
        ("a&b", "the address: got 'a'"),
        ("set=" + "x" * MAX_QUERY, "the address: got 8004 characters of settings, allowed: 8000"),
        ("set=hardware.num_gpus=" + "1" * 2000, "hardware.num_gpus: got 2000 characters"),
        ("hardware.num_gpus=1%002", "hardware.num_gpus: got 3 characters, allowed: 1000 printable ones"),
        ("&".join(["set=hardware.num_gpus=1"] * 65), "set: got 65 entries, allowed: 64"),
        ("&".join(["c="] * 1000), "the address: its settings cannot be read"),
        ("set=hardware.num_gpu=1", "unknown key 'hardware.num_gpu' .nearest: 'hardware.num_gpus'"),
        ("set=nonsense", "got 'nonsense', allowed: KEY=VALUE"),
        ("set=hardware=1", r"hardware: a table cannot be set from the page as a whole; allowed: hardware\.KEY=VALUE"),
        ("set=parameters.A.b=1", r"allowed: parameters\.NAME=NUMBER"),
    ],
)
def test_what_cannot_be_said_is_refused_in_one_short_line(query: str, told: str) -> None:
    with pytest.raises(InputError, match=told) as refused:
        parse(query, OWN)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 800


def test_empty_values_are_as_in_the_file_and_an_entry_may_put_a_default_back() -> None:
    assert parse("speculation.method=&c=&set=&hardware.num_gpus=+", OWN) == State({})
    assert parse("set=restart.outage_min%3D", OWN).overrides == ("restart.outage_min=",)


def test_the_overrides_are_those_of_the_controls_in_their_order_and_then_the_entries() -> None:
    state = parse(
        "set=restart.outage_min=5%0Aengine.block_size=32&hardware.num_gpus=4&speculation.method=ngram&c=8", OWN
    )
    assert state.overrides == (
        "speculation.method=ngram", "hardware.num_gpus=4", "restart.outage_min=5", "engine.block_size=32"
    )  # fmt: skip
    assert state.load == 8
    assert state.arguments()[:2] == ["--set", "speculation.method=ngram"]


settings_of_controls = st.dictionaries(
    st.sampled_from(sorted(set(BY_KEY) - {LOAD, *CARDS})),
    st.text("0123456789.,-abc&=%+# <>\"'é", min_size=1, max_size=20),
)
entries = st.lists(
    st.tuples(
        st.sampled_from(["restart.outage_min", "engine.version", "parameters.x"]), st.text("0123.&=%+ü<", max_size=9)
    )
)


@given(settings_of_controls, entries, st.none() | st.integers(1, 99_999))
def test_a_state_comes_back_from_its_address(values: dict[str, str], pairs: list[Any], load: int | None) -> None:
    stripped = {key: value.strip() for key, value in values.items() if value.strip()}
    state = State(stripped, tuple(f"{key}={value}" for key, value in pairs), load)
    assert parse(state.query, {}) == state
    assert parse(state.query, {}).query == state.query


@given(st.text(max_size=60))
def test_any_address_is_a_state_or_one_line(query: str) -> None:
    told = ""
    try:
        told = parse(query, OWN).query
    except InputError as refused:
        told = str(refused)
    assert "\n" not in told


def test_every_control_is_a_key_with_a_meaning_and_stops_that_rise() -> None:
    for control in CONTROLS:
        assert control.key == LOAD or field_at(control.key.split("."))
        assert control.meaning()[1]
        assert list(control.stops) == sorted(set(control.stops))
        assert not (control.stops and control.options)
        assert not control.needs or control.needs in BY_KEY
