import os
import sqlite3
import stat
import threading
from contextlib import closing
from pathlib import Path

import pytest

from hwmodel.errors import InputError
from validate.ledger import store
from validate.ledger.store import APPLICATION_ID, OUTCOME, PREDICTION, SCHEMA_VERSION, Entry, Ledger


def entry(identity: str = "0123456789abcdef", kind: str = PREDICTION, **body: object) -> Entry:
    return Entry(kind, identity, {"model": "toy"}, {"cells": [], **body})


def filled(path: Path, count: int = 3, size: int = 1) -> Path:
    with Ledger(path, writable=True) as ledger:
        for i in range(count):
            ledger.append(entry(f"{i:016x}", number=i, filler="x" * size))
    return path


def test_what_is_added_can_be_read_in_order(tmp_path: Path) -> None:
    with Ledger(filled(tmp_path / "l.sqlite")) as ledger:
        rows = ledger.rows()
        assert [row.sequence for row in rows] == [1, 2, 3]
        assert [ledger.body(row.sequence)["number"] for row in rows] == [0, 1, 2]
        assert rows[0].summary == {"model": "toy"}
        assert rows[0].created.endswith("Z")
        assert rows[0].created <= rows[-1].created


def test_the_same_prediction_twice_is_two_entries_under_one_id(tmp_path: Path) -> None:
    with Ledger(tmp_path / "l.sqlite", writable=True) as ledger:
        first, second = ledger.append(entry(n=1)), ledger.append(entry(n=2))
        assert first.prediction_id == second.prediction_id
        assert (first.sequence, second.sequence) == (1, 2)
        assert ledger.identity("0123") == "0123456789abcdef"


def test_file_and_folder_are_the_users_alone(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        path = filled(tmp_path / "deep" / "draftcast" / "l.sqlite")
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET body = '{}'",
        "DELETE FROM entries",
        "INSERT OR REPLACE INTO entries VALUES (1, 'prediction', 'x', 'x', '{}', '{}')",
        "REPLACE INTO entries VALUES (2, 'outcome', 'x', 'x', '{}', '{}')",
    ],
)
def test_nothing_can_be_changed_or_removed_even_by_other_programs(tmp_path: Path, statement: str) -> None:
    path = filled(tmp_path / "l.sqlite")
    with closing(sqlite3.connect(path)) as database, pytest.raises(sqlite3.IntegrityError, match="append-only"):
        database.execute(statement)
    with Ledger(path) as ledger:
        assert [ledger.body(row.sequence)["number"] for row in ledger.rows()] == [0, 1, 2]


def test_the_ledger_itself_offers_no_way_to_change_an_entry() -> None:
    offered = {name for name in vars(Ledger) if not name.startswith("_")}
    assert offered == {"append", "rows", "body", "identity"}


def test_a_kind_that_is_none_is_refused_by_the_file(tmp_path: Path) -> None:
    with Ledger(tmp_path / "l.sqlite", writable=True) as ledger, pytest.raises(InputError, match="cannot be written"):
        ledger.append(entry(kind="opinion"))
    with Ledger(tmp_path / "l.sqlite") as ledger:
        assert ledger.rows() == []


def test_an_id_is_found_by_its_beginning_only_where_that_is_unique(tmp_path: Path) -> None:
    with Ledger(tmp_path / "l.sqlite", writable=True) as ledger:
        for identity in ("abc1000000000000", "abc2000000000000", "d000000000000000"):
            ledger.append(entry(identity))
        ledger.append(entry("d000000000000000", OUTCOME))
        assert ledger.identity(" D00 ") == "d000000000000000"
        with pytest.raises(InputError, match="beginning of several; allowed: more digits, of abc1000000000000, abc2"):
            ledger.identity("abc")
        with pytest.raises(InputError, match="no prediction ff in"):
            ledger.identity("ff")
        for bad in ("", "a", "%%", "xyz", "d0' OR 1"):
            with pytest.raises(InputError, match="hexadecimal"):
                ledger.identity(bad)


def test_reading_creates_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no ledger at .*allowed: one that"):
        Ledger(tmp_path / "none" / "l.sqlite")
    assert not (tmp_path / "none").exists()


def test_an_empty_file_is_an_empty_ledger(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"
    path.touch()
    with Ledger(path) as ledger:
        assert ledger.rows() == []
    assert path.stat().st_size == 0
    filled(path)
    with Ledger(path) as ledger:
        assert len(ledger.rows()) == 3


@pytest.mark.parametrize("content", [b"x", b"[model]\nconfig = 'a'\n" * 500, b"SQLite format 2\0" + b"\0" * 2000])
def test_a_file_of_another_kind_is_refused_and_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    for writable in (False, True):
        with pytest.raises(InputError, match="is no ledger") as caught:
            Ledger(path, writable=writable)
        assert "\n" not in str(caught.value)
    assert path.read_bytes() == content


def test_another_programs_database_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE entries (a)")
        database.commit()
    before = path.read_bytes()
    for writable in (False, True):
        with pytest.raises(InputError, match="another program's database"):
            Ledger(path, writable=writable)
    assert path.read_bytes() == before


def test_a_newer_ledger_is_refused_and_says_what_to_do(tmp_path: Path) -> None:
    path = filled(tmp_path / "l.sqlite")
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"newer draftcast \(schema 2\); allowed: schema 1, so update draftcast"):
        Ledger(path, writable=True)
    assert path.read_bytes() == before


def test_a_truncated_ledger_is_one_line_and_is_not_written_to(tmp_path: Path) -> None:
    path = filled(tmp_path / "l.sqlite", count=20, size=3000)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"is damaged .* left as it is"), Ledger(path, writable=True) as ledger:
        ledger.append(entry())
    with pytest.raises(InputError, match="is damaged"), Ledger(path) as ledger:
        ledger.rows()
    assert path.read_bytes() == before


def test_a_ledger_with_bytes_overwritten_is_not_written_to(tmp_path: Path) -> None:
    path = filled(tmp_path / "l.sqlite", count=20, size=3000)
    content = bytearray(path.read_bytes())
    content[4096 * 2 : 4096 * 9] = b"\xff" * (4096 * 7)
    path.write_bytes(content)
    with pytest.raises(InputError, match="is damaged"), Ledger(path, writable=True) as ledger:
        ledger.append(entry())
    assert path.read_bytes() == content


def test_an_entry_that_is_no_json_object_is_damage(tmp_path: Path) -> None:
    path = filled(tmp_path / "l.sqlite")
    with closing(sqlite3.connect(path)) as database:
        values = ("prediction", "00", "2026", "{}", "[" * 100_000)
        database.execute("INSERT INTO entries (kind, prediction_id, created, summary, body) VALUES (?,?,?,?,?)", values)
        database.commit()
    with Ledger(path) as ledger, pytest.raises(InputError, match="entry 4 is no JSON object"):
        ledger.body(4)


def test_a_folder_or_a_pipe_in_its_place_is_one_line(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(InputError, match="cannot read the ledger"):
            Ledger(path, writable=True)


def test_a_file_where_the_folder_should_be_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"cannot be created|is no folder"):
        Ledger(tmp_path / "file" / "l.sqlite", writable=True)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a file system that takes no files")
def test_a_place_that_cannot_be_written_to_is_one_line() -> None:
    with pytest.raises(InputError, match=r"cannot be created: .*allowed: a folder that can be written to"):
        Ledger(Path("/proc/draftcast/l.sqlite"), writable=True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_ledger_without_write_permission_can_be_read_but_not_added_to(tmp_path: Path) -> None:
    path = filled(tmp_path / "l.sqlite")
    path.chmod(0o400)
    with Ledger(path) as ledger:
        assert len(ledger.rows()) == 3
    with pytest.raises(InputError, match="cannot be written to"), Ledger(path, writable=True) as ledger:
        ledger.append(entry())


def test_a_ledger_that_another_process_holds_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = filled(tmp_path / "l.sqlite")
    monkeypatch.setattr(store, "BUSY_S", 0.05)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(InputError, match="held by another process"):
            Ledger(path, writable=True)
    with Ledger(path) as ledger:
        assert len(ledger.rows()) == 3


def test_names_with_odd_characters_are_names(tmp_path: Path) -> None:
    path = filled(tmp_path / "a?mode=ro#x %41 ü" / "l&cache=shared.sqlite")
    assert path.is_file()
    with Ledger(path) as ledger:
        assert len(ledger.rows()) == 3


def test_threads_that_add_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"
    added: list[int] = []

    def add(first: int) -> None:
        for i in range(5):
            with Ledger(path, writable=True) as ledger:
                added.append(ledger.append(entry(f"{first:08x}{i:08x}")).sequence)

    threads = [threading.Thread(target=add, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(added) == list(range(1, 31))
    with Ledger(path) as ledger:
        assert len({row.prediction_id for row in ledger.rows()}) == 30


def test_the_file_says_what_it_is(tmp_path: Path) -> None:
    with closing(sqlite3.connect(filled(tmp_path / "l.sqlite"))) as database:
        assert database.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
        assert database.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
        assert database.execute("PRAGMA journal_mode").fetchone() == ("delete",)


def test_an_entry_with_a_number_that_json_lacks_is_a_bug_not_an_entry(tmp_path: Path) -> None:
    with Ledger(tmp_path / "l.sqlite", writable=True) as ledger:
        with pytest.raises(ValueError, match="Out of range float"):
            ledger.append(entry(x=float("nan")))
        assert ledger.rows() == []


def test_an_entry_too_large_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MAX_BODY_BYTES", 100)
    with Ledger(tmp_path / "l.sqlite", writable=True) as ledger, pytest.raises(InputError, match="a smaller grid"):
        ledger.append(entry(filler="x" * 200))
