"""The ledger's file: SQLite, and the only place that knows SQL.

Entries are added and read, never changed: the class has nothing else, and triggers refuse it to everybody. A rollback
journal and not WAL: an entry is written once in a while, WAL does not work on network file systems, needs write access
to read, and keeps the newest entries in a second file that a copy of the first would lack. `synchronous = EXTRA`: what
`append` has acknowledged is on the disk.
"""

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from hwmodel.errors import InputError
from hwmodel.files import open_regular
from simulator.deployment.keys import short

JsonObject = dict[str, Any]

APPLICATION_ID = 0x64726674  # "drft": tells a ledger from any other SQLite file
SCHEMA_VERSION = 1
BUSY_S = 30.0  # a writer holds the file for milliseconds; longer than this means that one hangs
MAX_BODY_BYTES = 256_000_000  # SQLite's own limit is a billion
PREDICTION, OUTCOME = "prediction", "outcome"
_MAGIC = b"SQLite format 3\0"
_PATH_CHARS = 300
_CANDIDATES = 6  # of an ambiguous id
_MIN_PREFIX = 2
_HEX = frozenset("0123456789abcdef")

_SCHEMA = (
    """CREATE TABLE entries (
        sequence INTEGER PRIMARY KEY AUTOINCREMENT,
        kind TEXT NOT NULL CHECK (kind IN ('prediction', 'outcome')),
        prediction_id TEXT NOT NULL,
        created TEXT NOT NULL,
        summary TEXT NOT NULL,
        body TEXT NOT NULL
    )""",
    "CREATE INDEX entries_by_prediction ON entries (prediction_id, sequence)",
    """CREATE TRIGGER entries_are_not_changed BEFORE UPDATE ON entries
        BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END""",
    """CREATE TRIGGER entries_are_not_deleted BEFORE DELETE ON entries
        BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END""",
    """CREATE TRIGGER entries_are_not_replaced BEFORE INSERT ON entries
        WHEN EXISTS (SELECT 1 FROM entries WHERE sequence = NEW.sequence)
        BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END""",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)


@dataclass(frozen=True, slots=True)
class Entry:
    """Something to be written down: `summary` is what lists and the track record need, `body` is everything."""

    kind: str  # PREDICTION or OUTCOME
    prediction_id: str
    summary: JsonObject
    body: JsonObject


@dataclass(frozen=True, slots=True)
class Row:
    """An entry as it stands in the ledger, without its body. `created` is UTC, as "2026-01-31T12:00:00.123Z"."""

    sequence: int
    kind: str
    prediction_id: str
    created: str
    summary: JsonObject


class Ledger:
    """One open ledger, as a context manager; `writable` creates the file where there is none."""

    def __init__(self, path: Path, *, writable: bool = False) -> None:
        """Opens the file; an `InputError` for one that is no ledger, newer, or out of reach."""
        self.path = path
        self._shown = short(str(path), _PATH_CHARS)
        if writable:
            _create(path, self._shown)
        _check_header(path, self._shown)
        with self._stated("opened"):
            # Readers too: what a killed writer has left half done is undone by whoever opens the file next.
            self._db = sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, timeout=BUSY_S, isolation_level=None)
        try:
            with self._stated("read"):
                self._db.execute("PRAGMA trusted_schema = OFF")
                self._db.execute("PRAGMA synchronous = EXTRA")
                self._is_empty = self._check_schema()
        except BaseException:
            self._db.close()
            raise

    def __enter__(self) -> "Ledger":
        """The ledger itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes the file."""
        self._db.close()

    def append(self, entry: Entry) -> Row:
        """Adds an entry; once this returns, neither a crash nor another writer can lose it.

        A damaged file is refused before anything is written to it.
        """
        summary, body = _text(entry.summary), _text(entry.body)
        if len(body) > MAX_BODY_BYTES:
            raise InputError(
                f"ledger: an entry of {len(body)} bytes; allowed: at most {MAX_BODY_BYTES}, a smaller grid"
            )
        with self._stated("written to"):
            self._check_sound()
            with self._transaction():
                if self._check_schema():
                    for statement in _SCHEMA:
                        self._db.execute(statement)
                created = _now()
                sequence = self._db.execute(
                    "INSERT INTO entries (kind, prediction_id, created, summary, body) VALUES (?, ?, ?, ?, ?)",
                    (entry.kind, entry.prediction_id, created, summary, body),
                ).lastrowid
        assert sequence is not None
        self._is_empty = False
        return Row(sequence, entry.kind, entry.prediction_id, created, entry.summary)

    def rows(self) -> list[Row]:
        """All entries, oldest first, without their bodies."""
        if self._is_empty:
            return []
        with self._stated("read"):
            self._check_sound()
            found = self._db.execute(
                "SELECT sequence, kind, prediction_id, created, summary FROM entries ORDER BY sequence"
            ).fetchall()
        return [
            Row(int(sequence), str(kind), str(identity), str(created), self._object(summary, sequence))
            for sequence, kind, identity, created, summary in found
        ]

    def body(self, sequence: int) -> JsonObject:
        """The whole of one entry."""
        with self._stated("read"):
            found = self._db.execute("SELECT body FROM entries WHERE sequence = ?", (sequence,)).fetchone()
        if found is None:
            raise InputError(f"ledger {self._shown}: no entry {sequence}; allowed: one of `draftcast ledger list`")
        return self._object(found[0], sequence)

    def identity(self, prefix: str) -> str:
        """The prediction's whole id, of which `prefix` is the beginning."""
        asked = prefix.strip().lower()
        if len(asked) < _MIN_PREFIX or not set(asked) <= _HEX:
            raise InputError(
                f"id: got {short(prefix)!r}; allowed: the first {_MIN_PREFIX} or more hexadecimal digits of one"
            )
        found: list[str] = []
        if not self._is_empty:
            with self._stated("read"):
                query = "SELECT DISTINCT prediction_id FROM entries WHERE substr(prediction_id, 1, ?) = ? LIMIT ?"
                found = [str(row[0]) for row in self._db.execute(query, (len(asked), asked, _CANDIDATES))]
        if not found:
            raise InputError(f"id: no prediction {asked} in {self._shown}; allowed: one of `draftcast ledger list`")
        if len(found) > 1:
            shown = ", ".join(sorted(short(item) for item in found))
            raise InputError(f"id: {asked} is the beginning of several; allowed: more digits, of {shown}")
        return found[0]

    def _check_schema(self) -> bool:
        """Whether the file is still empty; an `InputError` for another program's file or a newer ledger."""
        application, version, tables = self._schema()
        if not application and not version and not tables:
            return True
        if application != APPLICATION_ID or "entries" not in tables:
            raise InputError(f"{self._shown} is another program's database; allowed: a new file, or an earlier ledger")
        if version > SCHEMA_VERSION:
            raise InputError(
                f"ledger {self._shown}: written by a newer draftcast (schema {version}); "
                f"allowed: schema {SCHEMA_VERSION}, so update draftcast, or name another file"
            )
        return False

    def _schema(self) -> tuple[int, int, list[str]]:
        """(application, version, tables) of one moment: another writer may be creating them just now."""
        alone = not self._db.in_transaction
        if alone:
            self._db.execute("BEGIN")
        try:
            application = self._db.execute("PRAGMA application_id").fetchone()[0]
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            tables = [row[0] for row in self._db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        finally:
            if alone and self._db.in_transaction:
                self._db.execute("COMMIT")
        return application, version, tables

    def _check_sound(self) -> None:
        """SQLite's own check of the file's pages: an append must not make damage worse."""
        found = self._db.execute("PRAGMA quick_check(1)").fetchone()
        if found is None or found[0] != "ok":
            raise self._damaged(str(found[0]) if found else "no answer")

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        """Everything or nothing, with the lock taken at the start: no two writers can block each other half way."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    @contextlib.contextmanager
    def _stated(self, doing: str) -> Iterator[None]:
        """Turns SQLite's errors into one line that says what cannot be done and what would help."""
        try:
            yield
        except sqlite3.Error as error:
            raise self._in_words(error, doing) from error

    def _in_words(self, error: sqlite3.Error, doing: str) -> InputError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_CORRUPT:
            return self._damaged(str(error))
        if code == sqlite3.SQLITE_NOTADB:
            return InputError(f"{self._shown} is no ledger ({error}); allowed: a new file, or an earlier ledger")
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return InputError(
                f"ledger {self._shown}: held by another process for more than {BUSY_S:.0f} s; allowed: try again, "
                "or --ledger FILE on a local disk"
            )
        return InputError(
            f"ledger {self._shown} cannot be {doing}: {error}; allowed: a file on a disk with room, in a folder that "
            "can be written to, see --ledger"
        )

    def _damaged(self, what: str) -> InputError:
        return InputError(
            f"ledger {self._shown} is damaged ({short(what, 120)}) and is left as it is; "
            "allowed: a copy of it that is whole, or another file, see --ledger"
        )

    def _object(self, text: object, sequence: int) -> JsonObject:
        try:
            found = json.loads(text) if isinstance(text, str) else None
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise self._damaged(f"entry {sequence} is no JSON object")
        return found


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _text(value: JsonObject) -> str:
    return json.dumps(value, allow_nan=False, ensure_ascii=True)


def _create(path: Path, shown: str) -> None:
    """An empty file that only the user can read, in a folder of the same kind, where there is none."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        if not path.parent.is_dir():
            raise InputError(f"ledger {shown}: {path.parent} is no folder; allowed: see --ledger") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"ledger {shown} cannot be created: {reason}; allowed: a folder that can be written to, see --ledger"
        ) from error


def _check_header(path: Path, shown: str) -> None:
    """An `InputError` for what SQLite should not even look at: no regular file, or some other kind of file."""
    try:
        with open_regular(path) as file:
            head = file.read(len(_MAGIC))
    except FileNotFoundError:
        raise InputError(f"no ledger at {shown}; allowed: one that `draftcast predict --record` has written") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot read the ledger {shown}: {reason}; allowed: a regular file") from error
    if head and head != _MAGIC:
        raise InputError(f"{shown} is no ledger; allowed: a new file, or an earlier ledger")
