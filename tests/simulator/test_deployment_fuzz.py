"""Whatever is written into a deployment file or an override: a checked deployment, or one stated line."""

from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodel.errors import InputError
from simulator.deployment import Deployment, known_keys, load_deployment

REFERENCE = Path(__file__).parents[2] / "examples" / "kimi-k2.5-8x-rtx-pro-6000.toml"
KEYS = [info.key for info in known_keys() if "<" not in info.key] + ["parameters.rho", "measured.0.tpot_ms", "foo.bar"]

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.dates(), st.just(10**400)
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
)


def load(source: Any, overrides: tuple[str, ...] = ()) -> None:
    """Nothing; fails unless loading gives a deployment or one printable line."""
    line = ""
    try:
        assert isinstance(load_deployment(source, overrides), Deployment)
    except InputError as problem:
        line = str(problem)
    assert line.isprintable()


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(KEYS), values)
def test_any_value_in_any_key_is_taken_or_refused_in_one_line(key: str, value: Any) -> None:
    tables: dict[str, Any] = {"model": {"config": "x"}, "hardware": {"gpu": "y"}}
    *path, last = key.split(".")
    here = tables
    for part in path:
        here = here.setdefault(part, {})
    here[last] = value
    if isinstance(tables.get("measured"), dict):
        tables["measured"] = [{"concurrency": 1, **tables["measured"]}]
    load(tables)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([*KEYS, "measured", "model", "speculation.acceptance"]), st.text(max_size=30))
def test_any_text_in_an_override_is_taken_or_refused_in_one_line(key: str, text: str) -> None:
    load(REFERENCE, (f"{key}={text}",))


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=40))
def test_any_override_text_is_taken_or_refused_in_one_line(text: str) -> None:
    load(REFERENCE, (text,))


@settings(max_examples=200, deadline=None)
@given(values)
def test_any_mapping_is_taken_or_refused_in_one_line(value: Any) -> None:
    load(value if isinstance(value, dict) else {"model": value, "measured": value, "parameters": value})
