"""A sweep: one pure function over many cells, by whoever runs them; order and figures are the same everywhere.

Running cells elsewhere is no modelling, so this room knows only the shape of it: `draftcast.scale` has the processes
and the cluster.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from hwmodel.errors import DraftcastError

_ATTEMPTS = 2  # of a cell: one retry
Cell = TypeVar("Cell")
Value = TypeVar("Value")
Tell = Callable[[int, int], None]


class Outcome(NamedTuple):
    """What became of one cell: its value, or why there is none."""

    value: Any
    failed_reason: str | None = None


class Swept(NamedTuple):
    """An outcome for every cell in order, None where the sweep ended before; then `stopped` says why."""

    outcomes: list[Outcome | None]
    stopped: str | None = None

    @property
    def done(self) -> int:
        """The cells that have an outcome."""
        return sum(outcome is not None for outcome in self.outcomes)


# Evaluates a function that can be pickled over cells that can be; the last argument is told the cells done and all.
Sweep = Callable[[Callable[[Any], Any], Sequence[Any], Tell | None], Swept]
INTERRUPTED = "interrupted"


def attempt(function: Callable[[Cell], Value], cell: Cell) -> Outcome:
    """The cell's outcome, after one retry where the first attempt failed; a stated error needs none."""
    reason = ""
    for _ in range(_ATTEMPTS):
        try:
            return Outcome(function(cell))
        except DraftcastError as error:
            return Outcome(None, str(error))
        except Exception as error:  # one cell's fault must not take the others along
            reason = f"{type(error).__name__}: {error}".rstrip(": ")
    return Outcome(None, reason)


def in_this_process(function: Callable[[Cell], Value], cells: Sequence[Cell], tell: Tell | None = None) -> Swept:
    """One cell after another, here. Ctrl-C ends the sweep; what is done by then is kept."""
    outcomes: list[Outcome | None] = [None] * len(cells)
    try:
        for i, cell in enumerate(cells):
            outcomes[i] = attempt(function, cell)
            if tell is not None:
                tell(i + 1, len(cells))
    except KeyboardInterrupt:
        return Swept(outcomes, INTERRUPTED)
    return Swept(outcomes)
