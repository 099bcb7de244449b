"""A sweep that is told to end: SIGTERM of a batch system and SIGHUP of a closed terminal keep what is done."""

import contextlib
import errno
import os
import signal
import threading
from collections.abc import Callable, Iterator
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
        _forget_terminal_after(number)
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


@contextlib.contextmanager
def put_off() -> Iterator[Callable[[], None]]:
    """Signals that would raise an exception wait, within the block, for a call of the function that it is given.

    An exception in the middle of waiting for a lock can leave the lock, and with it the exception, broken. What comes
    after the last call, while the workers are ended, is dropped.
    """
    came: list[int] = []
    ours = threading.current_thread() is threading.main_thread()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, *_ENDINGS) if ours}
    usual = {number: handler for number, handler in handlers.items() if callable(handler)}

    def deliver() -> None:
        if came:
            number = came[0]
            came.clear()
            usual[number](number, None)

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)
        _forget_terminal_after(number)

    for number in usual:
        signal.signal(number, note)
    try:
        yield deliver
    finally:
        for number, handler in usual.items():
            if signal.getsignal(number) is not signal.SIG_IGN:  # what a handler has changed stays so
                signal.signal(number, handler)


def _forget_terminal_after(number: int) -> None:
    """After SIGHUP what would go to the terminal goes nowhere: writing to it fails, and files are to be written."""
    if number in (signal.SIGINT, signal.SIGTERM):
        return
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
