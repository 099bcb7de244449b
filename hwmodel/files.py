"""Files that users name, opened without waiting and read within bounds: a pipe or a device, or an endless file, would
keep a command from ever answering.
"""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

from hwmodel.errors import InputError

# Without it, opening a named pipe waits for its writer. Windows has neither the flag nor such files.
_NO_WAITING = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def open_regular(path: str | Path) -> BinaryIO:
    """The regular file at *path*, open for reading bytes; an OSError, as from `open`, for anything else.

    The open file is checked rather than its name, which may be exchanged in between.
    """
    descriptor = os.open(path, os.O_RDONLY | _NO_WAITING)
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_bounded(path: str | Path, max_bytes: int, *, unreadable: str, too_large: str) -> bytes:
    """All bytes of the regular file at *path*.

    `InputError` with the text `unreadable`, whose "{reason}" is filled in, or `too_large` beyond *max_bytes*.
    """
    try:
        with open_regular(path) as file:
            content = file.read(max_bytes + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(unreadable.replace("{reason}", str(reason))) from None
    if len(content) > max_bytes:
        raise InputError(too_large)
    return content
