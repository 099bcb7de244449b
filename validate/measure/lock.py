"""One run at a time writes a run file: a second one would put its cells over those of the first."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from typing import IO

from calibration.readers.values import shown
from hwmodel.errors import InputError


@contextlib.contextmanager
def locked(*paths: str | None) -> Iterator[None]:
    """Holds these files while the block runs; `InputError` where another run does.

    The lock is the kernel's and ends with the process, however that ends. A `.lock` file that kill -9 has left behind
    holds nobody up.
    """
    with contextlib.ExitStack() as held:
        for path in dict.fromkeys(os.path.realpath(path) for path in paths if path is not None):
            held.callback(_release, _acquired(path), path)
        yield


def _acquired(path: str) -> IO[bytes]:
    while True:
        file = _opened(path)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.close()
            if not isinstance(error, BlockingIOError):
                raise InputError(
                    f"cannot lock {shown(path)}: {error.strerror}; allowed: a file on a local disk"
                ) from None
            raise InputError(
                f"{shown(path)} is being written by another draftcast measure; allowed: another file, or wait for it"
            ) from None
        if _is_current(file, path):
            return file
        file.close()  # the run before has just ended and taken its lock file away


def _opened(path: str) -> IO[bytes]:
    try:
        return os.fdopen(os.open(_name(path), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "r+b")
    except OSError as error:
        raise InputError(
            f"cannot write {shown(path)}: {error.strerror}; allowed: a file in a folder of your own"
        ) from None


def _is_current(file: IO[bytes], path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(_name(path)))
    except FileNotFoundError:
        return False


def _release(file: IO[bytes], path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(_name(path))
    file.close()


def _name(path: str) -> str:
    return f"{path}.lock"
