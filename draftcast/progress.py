"""How far a long run is, said on stderr from time to time."""

import sys
import time

import click

from draftcast.render.numbers import duration

_FIRST_S = 2.0  # runs shorter than this say nothing
_TERMINAL_S, _FILE_S = 0.5, 10.0  # between two words
_WIDTH = 60  # covers the line that it overwrites


class _Line:
    """One line on stderr: rewritten in place on a terminal, a new one each time elsewhere."""

    def __init__(self) -> None:
        self.terminal = sys.stderr is not None and sys.stderr.isatty()
        self._next = time.monotonic() + _FIRST_S
        self._shown = False

    def is_due(self) -> bool:
        """Whether it is time for a word."""
        return time.monotonic() >= self._next

    def write(self, text: str) -> None:
        """Prints `text`, and starts the wait for the next."""
        self._next = time.monotonic() + (_TERMINAL_S if self.terminal else _FILE_S)
        self._shown = True
        click.echo(f"\r{text:<{_WIDTH}}" if self.terminal else text, err=True, nl=not self.terminal)

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
    """Called with the rows done and those in all; prints now and then how long the rest will take, on a terminal."""

    def __init__(self) -> None:
        """The clock starts now."""
        self._line = _Line()
        self._start = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        """Says it if it is time."""
        if not self._line.terminal or not self._line.is_due() or not done:
            return
        left_s = (time.monotonic() - self._start) / done * (total - done)
        self._line.write(f"{done:,} of {total:,} rows, about {duration(left_s)} left")

    def close(self) -> None:
        """Ends the line on a terminal."""
        self._line.close()
