"""How far a long run is, said on stderr from time to time."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from draftcast.render.numbers import duration, share

if TYPE_CHECKING:
    from validate.measure.load_run import RunProgress

_FIRST_S = 2.0  # runs shorter than this say nothing
_TERMINAL_S, _FILE_S = 0.5, 10.0  # between two words
_ROWS_FILE_S = 60.0  # of a sweep in a batch job's log, and before its first
_WIDTH = 60  # covers the line that it overwrites


class _Line:
    """One line on stderr: rewritten in place on a terminal, a new one each time elsewhere."""

    def __init__(self, first_file_s: float = _FIRST_S, file_s: float = _FILE_S) -> None:
        self.terminal = sys.stderr is not None and sys.stderr.isatty()
        self._file_s = file_s
        self._next = time.monotonic() + (_FIRST_S if self.terminal else first_file_s)
        self._shown = False
        self._width = _WIDTH

    def is_due(self) -> bool:
        """Whether it is time for a word."""
        return time.monotonic() >= self._next

    def write(self, text: str) -> None:
        """Prints `text`, and starts the wait for the next."""
        self._next = time.monotonic() + (_TERMINAL_S if self.terminal else self._file_s)
        self._shown = True
        self._width = max(self._width, len(text))
        click.echo(f"\r{text:<{self._width}}" if self.terminal else text, err=True, nl=not self.terminal)

    def close(self) -> None:
        """Ends the line on a terminal."""
        if self._shown and self.terminal:
            click.echo(err=True)


class Progress:
    """Called with an arm's name, the requests done and those in all; prints now and then."""

    def __init__(self) -> None:
        """The clock starts now."""
        self._line = _Line()

    def __call__(self, arm: str, done: int, total: int) -> None:
        """Says it if it is time."""
        if self._line.is_due():
            self._line.write(f"{arm}: {done:,} of {total:,} requests")

    def close(self) -> None:
        """Ends the line on a terminal."""
        self._line.close()


class RowProgress:
    """Called with the rows done and those in all; prints now and then how long the rest will take."""

    def __init__(self, what: str = "rows") -> None:
        """The clock starts now; `what` is counted."""
        self._what = what
        self._line = _Line(_ROWS_FILE_S, _ROWS_FILE_S)
        self._start = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        """Says it if it is time."""
        if not self._line.is_due() or not done:
            return
        left_s = (time.monotonic() - self._start) / done * (total - done)
        self._line.write(f"{done:,} of {total:,} {self._what}, about {duration(left_s)} left")

    def close(self) -> None:
        """Ends the line on a terminal."""
        self._line.close()


class LoadProgress:
    """Called with how far a run of load on a server is; prints now and then, with the time that is left."""

    def __init__(self) -> None:
        """The clock starts now."""
        self._line = _Line()

    def __call__(self, progress: RunProgress) -> None:
        """Says it if it is time."""
        if not self._line.is_due():
            return
        cell = progress.cell
        parts = [f"concurrency {cell.concurrency}, {cell.phase}: {cell.requests:,} requests"]
        if cell.half_width is not None:
            parts.append(f"+-{share(cell.half_width)}")
        if cell.left_s is not None:
            parts.append(f"{duration(cell.left_s)} left")
        if progress.run_left_s is not None and progress.run_left_s != cell.left_s:
            parts.append(f"{duration(progress.run_left_s)} in all")
        self._line.write(", ".join(parts))

    def waiting(self, reason: str) -> None:
        """Says what is waited for, if it is time."""
        if self._line.is_due():
            self._line.write(f"waiting for the server: {reason}")

    def watching(self, gone_s: float, all_s: float, tokens: float) -> None:
        """Says how far a watch is, if it is time."""
        if self._line.is_due():
            self._line.write(f"watching: {tokens:,.0f} tokens so far, {duration(all_s - gone_s)} left")

    def close(self) -> None:
        """Ends the line on a terminal."""
        self._line.close()
