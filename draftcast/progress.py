"""How far a long run is, said on stderr from time to time."""

import sys
import time

import click

_FIRST_S = 2.0  # runs shorter than this say nothing
_TERMINAL_S, _FILE_S = 0.5, 10.0  # between two words


class Progress:
    """Called with an arm's name, the requests done and those in all; prints now and then."""

    def __init__(self) -> None:
        """The clock starts now."""
        self._terminal = sys.stderr.isatty()
        self._next = time.monotonic() + _FIRST_S
        self._shown = False

    def __call__(self, arm: str, done: int, total: int) -> None:
        """Says it if it is time: in place on a terminal, else a line."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + (_TERMINAL_S if self._terminal else _FILE_S)
        text = f"{arm}: {done:,} of {total:,} requests"
        click.echo(f"\r{text:<60}" if self._terminal else text, err=True, nl=not self._terminal)
        self._shown = True

    def close(self) -> None:
        """Ends the line on a terminal."""
        if self._shown and self._terminal:
            click.echo(err=True)
