import os
from pathlib import Path

import pytest

from hwmodel.errors import InputError
from validate.ledger.places import ledger_path


def test_a_named_file_wins_over_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".draftcast").mkdir()
    assert ledger_path("a.sqlite", {"DRAFTCAST_LEDGER": "/x/b.sqlite"}) == tmp_path / "a.sqlite"


def test_the_variable_wins_over_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".draftcast").mkdir()
    assert ledger_path(None, {"DRAFTCAST_LEDGER": "/x/b.sqlite"}) == Path("/x/b.sqlite")


def test_an_empty_variable_names_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".draftcast").mkdir()
    assert ledger_path(None, {"DRAFTCAST_LEDGER": ""}) == tmp_path / ".draftcast" / "ledger.sqlite"


def test_the_projects_folder_is_the_nearest_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = tmp_path / "a" / "b" / "c"
    inner.mkdir(parents=True)
    (tmp_path / ".draftcast").mkdir()
    (tmp_path / "a" / ".draftcast").mkdir()
    (inner / ".draftcast").write_text("a file is no folder")
    monkeypatch.chdir(inner)
    assert ledger_path(None, {}) == tmp_path / "a" / ".draftcast" / "ledger.sqlite"


def test_a_folder_of_another_user_is_no_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".draftcast").mkdir()
    monkeypatch.chdir(tmp_path)
    owner = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    assert ledger_path(None, {"XDG_DATA_HOME": "/data"}) == Path("/data/draftcast/ledger.sqlite")


def test_without_a_project_it_is_the_users_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert ledger_path(None, {"XDG_DATA_HOME": "/data"}) == Path("/data/draftcast/ledger.sqlite")
    usual = tmp_path / "home" / ".local" / "share" / "draftcast" / "ledger.sqlite"
    assert ledger_path(None, {}) == usual
    assert ledger_path(None, {"XDG_DATA_HOME": "relative"}) == usual, "the XDG specification has it ignored"


@pytest.mark.parametrize("text", ["", "  ", "a\0b"])
def test_a_path_that_cannot_be_one_is_an_error(text: str) -> None:
    with pytest.raises(InputError, match="ledger: got an empty or impossible path"):
        ledger_path(text, {})


def test_a_working_directory_that_is_gone_is_no_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert ledger_path(None, {"XDG_DATA_HOME": "/data"}) == Path("/data/draftcast/ledger.sqlite")
