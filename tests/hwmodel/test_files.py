"""Files that users name: regular ones only, read whole or not at all, errors in the caller's words."""

import os
from pathlib import Path

import pytest

from hwmodel.errors import InputError
from hwmodel.files import read_bounded

TEXTS = {"unreadable": "no: {reason}; allowed: x", "too_large": "too large; allowed: 4 bytes"}


def test_a_file_of_exactly_the_limit_is_read_and_one_byte_more_is_not(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"abcd")
    assert read_bounded(path, 4, **TEXTS) == b"abcd"
    path.write_bytes(b"abcde")
    with pytest.raises(InputError, match=r"^too large; allowed: 4 bytes$"):
        read_bounded(path, 4, **TEXTS)


@pytest.mark.parametrize("kind", ["missing", "folder", "pipe", "nul"])
def test_what_is_no_regular_file_is_said_without_waiting(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "f"
    if kind == "folder":
        path.mkdir()
    if kind == "pipe":
        os.mkfifo(path)
    with pytest.raises(InputError, match=r"^no: .+; allowed: x$"):
        read_bounded(f"{path}\0" if kind == "nul" else path, 4, **TEXTS)


def test_braces_in_a_name_are_no_format(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^\{0\} \{x\}: No such file"):
        read_bounded(tmp_path / "f", 4, unreadable="{0} {x}: {reason}", too_large="")
