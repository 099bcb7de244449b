"""Functions over cells for the tests of sweeps: workers import them by name."""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
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


def die_while_answering() -> None:
    """As where memory runs out while an answer is sent: the other side has the first half of it."""
    _answer_by_half(die)


def stop_while_answering() -> None:
    """Half an answer, and then nothing for ten minutes."""
    _answer_by_half(lambda: time.sleep(600))


def _answer_by_half(then: Callable[[], None]) -> None:
    send = Connection._send  # type: ignore[attr-defined]

    def half(self: Connection, buffer: bytes, write: Callable[[int, bytes], int] = os.write) -> None:
        send(self, bytes(buffer)[: len(buffer) // 2], write)
        then()

    Connection._send = half  # type: ignore[attr-defined]
