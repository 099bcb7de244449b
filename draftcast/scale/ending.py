"""A sweep that is told to end: SIGTERM of a batch system and SIGHUP of a closed terminal keep what is done."""

import contextlib
import errno
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

import click

from draftcast.start import INTERRUPTED_EXIT_CODE

_ENDINGS = tuple(number for number in map(signal.__dict__.get, ("SIGTERM", "SIGHUP")) if number is not None)


@contextlib.contextmanager
def ended_as_by_ctrl_c() -> Iterator[None]:
    """The block sees these signals as Ctrl-C, once; the exit code is that of the signal, 128 and its number.

    A signal that the program was started to ignore (`nohup`) stays ignored.
    """
    ours = threading.current_thread() is threading.main_thread()
    taken = [number for number in _ENDINGS if ours and signal.getsignal(number) is signal.SIG_DFL]
    came: list[int] = []

    def end(number: int, frame: FrameType | None) -> None:
        for each in taken:
            signal.signal(each, signal.SIG_IGN)  # said again while the rows are written: they still are
        came.append(number)
        if number != signal.SIGTERM:
            _forget_terminal()
        raise KeyboardInterrupt

    for number in taken:
        signal.signal(number, end)
    try:
        yield
    except click.exceptions.Exit as error:
        if came and error.exit_code == INTERRUPTED_EXIT_CODE:
            raise click.exceptions.Exit(128 + came[0]) from error
        raise
    except KeyboardInterrupt as error:
        if came:
            click.echo("Error: ended by a signal; nothing was written", err=True)
            raise click.exceptions.Exit(128 + came[0]) from error
        raise
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def _forget_terminal() -> None:
    """What would go to a terminal that was closed goes nowhere: writing to it fails, and files are to be written."""
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):
            if _is_terminal(descriptor):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, descriptor)
                os.close(nowhere)


def _is_terminal(descriptor: int) -> bool:
    """Whether this is a terminal, also one whose other side has been closed."""
    try:
        os.ttyname(descriptor)
    except OSError as error:
        return error.errno == errno.EIO
    return True
