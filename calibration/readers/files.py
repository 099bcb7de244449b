"""The files and folders a user names: opened within bounds, unpacked where gzip, decoded, hashed, walked."""

import gzip
import hashlib
import io
import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from calibration.readers.values import number, shown
from hwmodel.errors import InputError
from hwmodel.files import open_regular
from hwmodel.units import GB, MB

MAX_TEXT_BYTES = int(256 * MB)  # a day of logs, or a detailed benchmark of ten thousand requests
MAX_TRACE_BYTES = int(16 * GB)  # unpacked; eight ranks of a long profile are 4 GB
HEAD_BYTES = int(1 * MB)
_MAX_FILES = 10_000
_STATED, _MOST_REQUESTS = "@concurrency=", 100_000
_MAX_DEPTH = 12
_GZIP = b"\x1f\x8b"
_BLOCK = 1 << 20
_NUL_SHARE = 0.2  # of the first bytes: UTF-16 without its mark, or no text at all


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file to read; `folder` is the folder the user named it by, None where the file itself was named."""

    path: str
    folder: str | None = None
    concurrency: float | None = None  # that the user states


def stated_concurrency(path: str) -> tuple[str, float | None]:
    """The path of `trace.json@concurrency=8` and the concurrency that it states; a file of that very name is itself.

    >>> stated_concurrency("run/trace.json@concurrency=8"), stated_concurrency("trace.json")
    (('run/trace.json', 8.0), ('trace.json', None))
    """
    name, mark, value = path.rpartition(_STATED)
    if not mark or os.path.lexists(path):
        return path, None
    stated = number(value)
    if not name or stated is None or not 1 <= stated <= _MOST_REQUESTS:
        raise InputError(f"{shown(path)}: got {_STATED}{shown(value)}; allowed: 1 to {_MOST_REQUESTS:,}")
    return name, stated


def expand(paths: list[str]) -> list[FoundFile]:
    """Files of `paths` in order, folders walked (sorted; hidden entries and links left out)."""
    found: list[FoundFile] = []
    for path in paths:
        if not path or "\0" in path:
            raise InputError("got an empty or impossible path; allowed: a file or a folder of measurements")
        folder = Path(path)
        if folder.is_dir():
            found.extend(FoundFile(inner, path) for inner in _walk(folder))
        else:
            found.append(FoundFile(path))
        if len(found) > _MAX_FILES:
            raise InputError(f"{shown(path)}: more than {_MAX_FILES} files; allowed: the folder of one measurement")
    return found


def _walk(folder: Path) -> Iterator[str]:
    depth_of_top = len(folder.parts)
    for place, folders, names in os.walk(folder):
        deep = len(Path(place).parts) - depth_of_top >= _MAX_DEPTH
        folders[:] = [] if deep else sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = os.path.join(place, name)
            if not name.startswith(".") and stat.S_ISREG(os.lstat(path).st_mode):
                yield path


@contextmanager
def open_content(path: str) -> Iterator[BinaryIO]:
    """The file's bytes, unpacked where it is gzip; every failure while reading is a one-line `InputError`."""
    try:
        with open_regular(path) as raw:
            packed = raw.read(len(_GZIP)) == _GZIP
            raw.seek(0)
            if packed:
                with gzip.GzipFile(fileobj=raw) as unpacked:
                    yield io.BufferedReader(unpacked)
            else:
                yield raw
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{shown(path)}: damaged or cut gzip file ({error}); allowed: a whole file") from error
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot read {shown(path)}: {reason}; allowed: a file or folder of measurements") from error


def head_of(path: str) -> bytes:
    """The first bytes, enough to recognise the format by."""
    with open_content(path) as file:
        return file.read(HEAD_BYTES)


def text_of(path: str) -> str:
    """The whole text, at most `MAX_TEXT_BYTES`; UTF-8 or UTF-16 with its mark, single bad bytes replaced."""
    with open_content(path) as file:
        data = file.read(MAX_TEXT_BYTES + 1)
    if len(data) > MAX_TEXT_BYTES:
        raise InputError(f"{shown(path)} is larger than {MAX_TEXT_BYTES} bytes; allowed: one measurement's file")
    return decode(data, path)


def decode(data: bytes, path: str) -> str:
    """`data` as text; bytes that are no text are an `InputError`."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):  # what PowerShell's `>` writes
        return data.decode("utf-16", errors="replace")
    sample = data[:_BLOCK]
    if sample.count(0) > _NUL_SHARE * len(sample) or sample[:4] in (b"PK\x03\x04", b"\x7fELF", b"%PDF"):
        raise InputError(f"{shown(path)} is no text file; allowed: the text or JSON that a tool wrote")
    return data.decode("utf-8-sig", errors="replace")


def sha256_of(path: str, allowed: str = "a file or folder of measurements") -> str:
    """Hash of the bytes on disk, packed as they are; `allowed` is what an error says should be there."""
    digest = hashlib.sha256()
    try:
        with open_regular(path) as file:
            while block := file.read(_BLOCK):
                digest.update(block)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot read {shown(path)}: {reason}; allowed: {allowed}") from error
    return digest.hexdigest()
