"""Files that the user points at: texts read with one-line errors and a limit, and where a run may write."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TextIO

from hwmodel.errors import InputError
from hwmodel.files import read_bounded
from hwmodel.units import MB

MAX_TEXT_BYTES = int(4 * MB)  # outputs of command-line tools are a few kB


def read_text(path: str) -> str:
    """The file's text; `InputError` when it cannot be read, is no UTF-8 or is larger than `MAX_TEXT_BYTES`."""
    content = read_bounded(
        path,
        MAX_TEXT_BYTES,
        unreadable=f"cannot read {path}: {{reason}}; allowed: a text file",
        too_large=f"{path} is larger than {MAX_TEXT_BYTES} bytes; allowed: the text output of one tool",
    )
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text (byte {error.start}); allowed: a text file") from error


class WholeFile:
    """A text file that appears under its name only when it is complete; nothing is left of it after an error."""

    def __init__(self, path: str) -> None:
        """Opens a file beside `path`; `InputError` where that cannot be written."""
        self.path, self._part = Path(path), Path(f"{path}.part")
        try:
            self.file: TextIO = self._part.open("w", encoding="utf-8", newline="")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InputError(f"cannot write {path}: {reason}; allowed: a path in an existing folder") from error

    def complete(self) -> None:
        """The file stands under its name."""
        self.file.close()
        os.replace(self._part, self.path)

    def discard(self) -> None:
        """Nothing is left of it."""
        self.file.close()
        self._part.unlink(missing_ok=True)


def write_whole(path: str, content: bytes) -> None:
    """Writes `content` to `path`, where it appears only when it is complete."""
    whole = WholeFile(path)
    try:
        whole.file.buffer.write(content)
        whole.complete()
    except OSError as error:
        whole.discard()
        raise InputError(f"cannot write {path}: {error.strerror}; allowed: a file that can be written") from error
    except BaseException:
        whole.discard()
        raise


def check_outputs(outputs: Mapping[str, str | None], inputs: Iterable[str] = ()) -> None:
    """Refuses, before anything is computed, to write where that would fail or destroy something.

    `outputs` maps what is written to its path (None: not written). Only a new or a regular file is written, never over
    one of the `inputs`, and no two outputs into one file.
    """
    taken = {Path(path).resolve(): path for path in inputs if path and "\n" not in path and Path(path).is_file()}
    for what, path in outputs.items():
        if path is None:
            continue
        place = Path(path)
        if not path.strip() or "\0" in path:
            raise InputError(f"{what}: got an empty or impossible path; allowed: a new or regular file")
        if place.exists() and not place.is_file():
            kind = "a directory" if place.is_dir() else "no regular file"
            raise InputError(f"{what}: {path} is {kind}; allowed: a new or regular file")
        if not place.resolve().parent.is_dir():
            raise InputError(f"{what}: cannot write {path}: no such folder; allowed: a path in an existing folder")
        if place.resolve() in taken:
            raise InputError(f"{what}: {path} is also {taken[place.resolve()]}; allowed: a file of its own")
        taken[place.resolve()] = what
