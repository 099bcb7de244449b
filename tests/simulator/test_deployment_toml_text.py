import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodel.errors import InputError
from simulator.deployment.toml_text import key_text, value_text

texts = st.text(st.characters(exclude_categories=("Cs",)))
plain = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | texts
values = st.recursive(plain, lambda inner: st.lists(inner) | st.dictionaries(texts, inner), max_leaves=20)


@given(key=texts, value=values)
def test_what_is_written_is_read_back_as_it_was(key: str, value: Any) -> None:
    assert tomllib.loads(f"{key_text(key)} = {value_text(value, 'key')}") == {key: value}


def test_a_plain_key_stands_without_quotes_and_any_other_in_them() -> None:
    assert [key_text(key) for key in ("num_gpus", "a.b", "")] == ["num_gpus", '"a.b"', '""']


def test_a_name_that_is_no_unicode_text_is_a_stated_error() -> None:
    with pytest.raises(InputError, match=r"model\.config: got .*no Unicode"):
        value_text("\udcff.json", "model.config")
