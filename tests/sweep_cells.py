"""Functions over cells for the tests of sweeps: workers import them by name."""

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hwmodel.errors import InputError


def square(cell: int) -> int:
    return cell * cell


def where(cell: int) -> int:
    return os.getpid()


def one_thread_settings(cell: int) -> tuple[str | None, str | None]:
    return os.environ.get("OMP_NUM_THREADS"), os.environ.get("OPENBLAS_NUM_THREADS")


def fail_there(cell: int) -> int:
    if cell == 7:
        raise ZeroDivisionError("7 cannot be")
    return cell


def refuse(cell: int) -> int:
    raise InputError(f"cell: got {cell}, allowed: none")


@dataclass(frozen=True)
class Fault:
    """A fault at cell 5 for the first `times` attempts; `folder` counts them across processes."""

    kind: Callable[[], None]
    folder: str
    times: int = 1

    def __call__(self, cell: int) -> int:
        """The cell itself, where nothing happens to it."""
        done = len(list(Path(self.folder).iterdir()))
        if cell == 5 and done < self.times:
            (Path(self.folder) / str(done)).touch()
            self.kind()
        return cell


def fail_once() -> None:
    raise OSError("not now")


def die() -> None:
    """As the kernel does it where memory runs out."""
    os.kill(os.getpid(), signal.SIGKILL)
