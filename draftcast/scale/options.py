"""`--jobs` and `--dask`, the same for every command that sweeps; handed over as one argument `sweep`."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import click

from draftcast.render.numbers import counted
from draftcast.scale.ending import ended_as_by_ctrl_c
from draftcast.start import INTERRUPTED_EXIT_CODE
from simulator.sweeps import INTERRUPTED, Sweep, Swept, Tell

_MOST = 1024
_JOBS = click.option(
    "--jobs",
    type=click.IntRange(1, _MOST),
    metavar="N",
    help="Local processes; default: as many as pay off, one for small sweeps.",
)
_DASK = click.option(
    "--dask", metavar="ADDRESS", help="An existing Dask cluster in place of local processes, such as tcp://host:8786."
)


class Sweeper:
    """Runs a sweep where the options say; keeps how many cells failed, for the exit code."""

    def __init__(self, jobs: int | None, dask: str | None) -> None:
        """Nothing is imported or started yet."""
        if jobs is not None and dask is not None:
            raise click.UsageError("--jobs is of local processes, --dask of a cluster; one of the two")
        self._jobs, self._dask = jobs, dask
        self.failed = 0
        self.stopped: str | None = None

    def __call__(self, function: Callable[[Any], Any], cells: Sequence[Any], tell: Tell | None = None) -> Swept:
        """The outcomes; a sweep in which nothing was done before Ctrl-C is as if it had not begun."""
        swept = self._elsewhere()(function, cells, tell)
        self.failed += sum(outcome is not None and outcome.failed_reason is not None for outcome in swept.outcomes)
        self.stopped = self.stopped or swept.stopped
        return swept

    def _elsewhere(self) -> Sweep:
        if self._dask is not None:
            from draftcast.scale.cluster import Cluster

            return Cluster(self._dask)
        from draftcast.scale.local import Processes  # only where there is a sweep: start-up time

        return Processes(self._jobs)

    def finish(self, what: str) -> None:
        """The exit code once the result is out: 130 after Ctrl-C, 1 with one line where cells failed or are missing.

        `what` is a cell's name for the user.
        """
        if self.stopped == INTERRUPTED:
            click.get_current_context().exit(INTERRUPTED_EXIT_CODE)
        if self.stopped is not None:
            raise click.ClickException(f"{self.stopped}; the {what}s that were done are kept")
        if self.failed:
            raise click.ClickException(f"{counted(self.failed, what)} failed, after a retry; the others are kept")


def sweep_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds --jobs and --dask, handed over as `sweep`; a signal to end is as Ctrl-C."""

    @functools.wraps(command)
    def with_sweep(*arguments: Any, jobs: int | None, dask: str | None, **options: Any) -> None:
        with ended_as_by_ctrl_c():
            command(*arguments, sweep=Sweeper(jobs, dask), **options)

    return _JOBS(_DASK(with_sweep))
