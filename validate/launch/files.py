"""Read the small text files that a launch consists of, safely: regular files only, with a size limit, as UTF-8."""

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from hwmodel.errors import InputError
from hwmodel.files import open_regular
from hwmodel.units import MB

# A launch text is a few kilobytes; beyond this it is a log or a binary.
MAX_BYTES = int(MB)


def check_text(text: str, name: str) -> str:
    """The text itself, if it is one that can be parsed: not too long and without NUL bytes."""
    if len(text) > MAX_BYTES:
        raise InputError(f"{name} is too long for a launch text: {len(text)} characters, allowed {MAX_BYTES}")
    if "\0" in text:
        raise InputError(f"{name} holds NUL bytes: not a launch text")
    return text


def read_source(path: Path) -> str:
    """The text of a file that the user named; what cannot be read is a one-line InputError."""
    name = f"file '{path}'"
    try:
        if path.is_dir():
            raise InputError(f"{name} is a directory; give the unit, compose file, manifest or script itself")
        with open_regular(path) as file:
            return decode_source(file, name)
    except FileNotFoundError:
        raise InputError(f"no {name} (a launch text, or the path of one, is expected)") from None
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{name} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def decode_source(file: BinaryIO, name: str) -> str:
    """The text that an open file or standard input holds, bounded in length; `name` is what messages call it."""
    content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise InputError(f"{name} is too long for a launch text: allowed {MAX_BYTES} bytes")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{name} is not UTF-8 text: {error.reason} at byte {error.start}") from None
    return check_text(text.replace("\r\n", "\n"), name)


def read_beside(name: str, folder: Path | None, root: Path | None = None) -> str | None:
    """The text of a file that a launch names, or None: at its own path, else relative to or beside the launch text.

    A copy beside the unit stands for /etc/default/NAME when the unit was copied from another machine. `root` is where
    absolute paths start: that of a process, which may live in a container.
    """
    for place in _places(Path(name), folder, root):
        try:
            if place.is_file():
                return read_source(place)
        except (InputError, OSError, ValueError):
            continue
    return None


def _places(wanted: Path, folder: Path | None, root: Path | None) -> Iterator[Path]:
    """Where the file may lie; a link beside the launch text that leads out of its folder is not followed."""
    if wanted.is_absolute():
        yield wanted if root is None else root / wanted.relative_to(wanted.anchor)
    if folder is None:
        return
    for place in [folder / wanted.name] if wanted.is_absolute() else [folder / wanted, folder / wanted.name]:
        if not _leads_out(place, folder):
            yield place


def _leads_out(place: Path, folder: Path) -> bool:
    """Whether the place is a symbolic link to somewhere outside the folder."""
    try:
        return place.is_symlink() and not place.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError, ValueError):
        return True
