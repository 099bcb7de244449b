"""Where a run may write: nothing is overwritten that is not a regular file of its own."""

import os
from pathlib import Path

import pytest

from hwmodel.errors import InputError
from simulator.files import check_outputs, write_whole


def test_new_and_regular_files_are_written(tmp_path: Path) -> None:
    old = tmp_path / "old.csv"
    old.write_text("x", encoding="utf-8")
    check_outputs({"records": str(old), "trace": str(tmp_path / "new.json"), "other": None})


@pytest.mark.parametrize("kind", ["directory", "fifo", "device", "no folder", "empty"])
def test_what_is_no_place_for_a_file_is_refused_in_one_line(tmp_path: Path, kind: str) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    path = {
        "directory": str(tmp_path), "fifo": str(fifo), "device": os.devnull,
        "no folder": str(tmp_path / "no" / "x"), "empty": "",
    }[kind]  # fmt: skip
    with pytest.raises(InputError, match="records") as error:
        check_outputs({"records": path})
    assert "\n" not in str(error.value)


def test_an_input_is_never_overwritten(tmp_path: Path) -> None:
    trace = tmp_path / "arrivals.csv"
    trace.write_text("x", encoding="utf-8")
    link = tmp_path / "link.csv"
    link.symlink_to(trace)
    with pytest.raises(InputError, match="allowed: a file of its own"):
        check_outputs({"records": str(link)}, [str(trace)])


def test_two_outputs_do_not_share_a_file(tmp_path: Path) -> None:
    same = str(tmp_path / "same.csv")
    with pytest.raises(InputError, match=r"trace: .* is also records"):
        check_outputs({"records": same, "trace": same})


def test_a_whole_file_replaces_the_old_one_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    for content in (b"old", b"\x89new"):
        write_whole(str(path), content)
    assert [p.name for p in tmp_path.iterdir()] == ["page.html"]
    assert path.read_bytes() == b"\x89new"


def test_a_whole_file_that_cannot_take_its_place_is_an_error_in_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(InputError, match="cannot write"):
        write_whole(str(tmp_path / "taken"), b"x")
    assert [p.name for p in tmp_path.iterdir()] == ["taken"]
