import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodel.engine.limits import default_memory_share
from hwmodel.engine.versions import (
    DEFAULT_SGLANG,
    DEFAULT_VLLM,
    Version,
    at_version,
    check_engine,
    format_version,
    parse_version,
    resolve_version,
)
from hwmodel.errors import InputError, UnknownNameError


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("0.16.0", (0, 16, 0)),
        ("v0.16.0rc1", (0, 16, 0)),
        ("0.17.0rc1.dev3+g1a2b3c", (0, 17, 0)),
        ("0.8.5.post1", (0, 8, 5)),
        ("0.32.0+cpu", (0, 32, 0)),
        ("0.26.1rc1.dev627+g4988df2eb", (0, 26, 1)),
        (" 0.33 ", (0, 33, 0)),
        ("0.5.10.post1", (0, 5, 10)),
    ],
)
def test_release_candidate_and_development_texts_parse(text: str, version: tuple[int, int, int]) -> None:
    assert parse_version(text) == version


@pytest.mark.parametrize("text", ["", "latest", "0", "1.2.3.4", "0.16.x", "0.16.0; rm -rf", "9" * 50, "0.1\n6", "٠.١"])
def test_garbage_version_is_one_line_that_names_it(text: str) -> None:
    with pytest.raises(InputError) as error:
        parse_version(text)
    assert "engine version: got" in str(error.value)
    assert "\n" not in str(error.value)


@given(st.text(max_size=200))
def test_any_text_parses_or_is_a_stated_error(text: str) -> None:
    try:
        outcome = format_version(parse_version(text))
    except InputError as error:
        outcome = str(error)
    assert outcome
    assert "\n" not in outcome


@given(st.tuples(*[st.integers(0, 9999)] * 3))
def test_formatted_versions_parse_back(version: tuple[int, int, int]) -> None:
    assert parse_version(format_version(version)) == version


def test_newest_versions_are_those_that_were_read() -> None:
    assert DEFAULT_VLLM == (0, 33, 0)
    assert DEFAULT_SGLANG == (0, 5, 23)


def test_newer_version_is_treated_as_the_newest_known_and_said_so() -> None:
    version, notes = resolve_version("vllm", "0.40.1")
    assert version == DEFAULT_VLLM
    assert "0.40.1" in notes[0]


def test_known_version_has_no_note_and_a_missing_one_has() -> None:
    assert resolve_version("vllm", "0.16.0") == ((0, 16, 0), ())
    version, notes = resolve_version("sglang", None)
    assert version == DEFAULT_SGLANG
    assert "assumed" in notes[0]


def test_version_older_than_the_oldest_read_is_kept_with_a_note() -> None:
    version, notes = resolve_version("sglang", "0.4.0")
    assert version == (0, 4, 0)
    assert "older" in notes[0]


def test_engine_names_are_checked_with_a_suggestion() -> None:
    assert check_engine("vLLM") == "vllm"
    with pytest.raises(UnknownNameError, match="did you mean 'sglang'"):
        check_engine("sglan")


def test_rows_include_both_ends() -> None:
    rows = [(None, (0, 13, 99), "old"), ((0, 14, 0), None, "new")]
    assert at_version(rows, (0, 13, 2)) == "old"
    assert at_version(rows, (0, 14, 0)) == "new"
    with pytest.raises(LookupError):
        at_version([((1, 0, 0), None, "x")], (0, 9, 0))


@pytest.mark.parametrize(
    ("engine", "version", "share"),
    [("vllm", (0, 8, 5), 0.90), ("vllm", (0, 20, 2), 0.90), ("vllm", (0, 21, 0), 0.92), ("vllm", (0, 33, 0), 0.92),
     ("sglang", (0, 5, 5), 0.88)],
)  # fmt: skip
def test_the_share_of_memory_that_an_engine_takes_by_default(engine: str, version: Version, share: float) -> None:
    assert default_memory_share(engine, version) == share
