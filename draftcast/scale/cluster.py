"""A sweep on a Dask cluster that is there already; its scheduler hands the chunks out again when a worker dies."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Executor
from typing import Any

import click

from draftcast.scale.chunks import chunks
from draftcast.scale.drive import LostError, drive
from hwmodel.errors import InputError
from hwmodel.extras import missing_extra
from simulator.deployment.keys import short
from simulator.sweeps import Outcome, Swept, Tell

CONNECT_S = 10.0
LOST_S = 30.0  # without the scheduler; a restart of it takes less, but it then knows nothing of the chunks
_LEAST_WINDOW, _CHUNKS_PER_THREAD = 32, 4
_COUNT_S = 5.0  # between two questions how large the cluster is
_GUESSED_WORKERS = 16  # a cluster may grow while the sweep runs; this only sets the size of a chunk


class Cluster:
    """A sweep on the cluster at `address`, such as tcp://host:8786."""

    def __init__(self, address: str) -> None:
        """Nothing is imported or connected yet."""
        self._address = address

    def __call__(self, function: Callable[[Any], Any], cells: Sequence[Any], tell: Tell | None = None) -> Swept:
        """The outcomes of all cells, in order; the same as in one process here."""
        outcomes: list[Outcome | None] = [None] * len(cells)
        link = _Link(self._address)
        workers = max(link.threads(), _GUESSED_WORKERS)
        return drive(link, chunks(function, cells, workers), outcomes, tell)


class _Link:
    """The client's side of a cluster."""

    def __init__(self, address: str) -> None:
        """Connects; `InputError` where the package is missing or nobody answers."""
        try:
            import distributed
        except ImportError as error:
            raise missing_extra("dask", "--dask", "--jobs on this machine alone") from error
        self.died: tuple[type[BaseException], ...] = (distributed.KilledWorker,)
        self._lost_since: float | None = None
        self._said = False
        self.lost: tuple[type[BaseException], ...] = (CancelledError, asyncio.CancelledError)
        self._threads, self._count_again_s = 0, 0.0
        self._client: Any = _connected(address)
        self._executor: Executor = self._client.get_executor(pure=False)  # a chunk tried again is not the same task

    def executor(self) -> Executor:
        """The cluster's; it outlives its workers."""
        return self._executor

    def window(self, *, alone: bool) -> int:
        """Enough for every thread, a growing cluster's included; one in all where the guilty cell is sought."""
        return 1 if alone else max(_CHUNKS_PER_THREAD * self.threads(), _LEAST_WINDOW)

    def threads(self) -> int:
        """The threads of all workers, as of some seconds ago."""
        now_s = time.monotonic()
        if self._client.status == "running" and now_s >= self._count_again_s:
            self._count_again_s = now_s + _COUNT_S
            with contextlib.suppress(OSError):  # else what was known
                self._threads = sum(self._client.nthreads().values())
        return self._threads

    def check(self) -> None:
        """`LostError` where the scheduler has been away for too long."""
        if self._client.status == "running":
            self._lost_since = None
            if not self.threads() and not self._said:
                self._said = True
                click.echo("note: the Dask cluster has no worker yet; waiting for one", err=True)
            return
        self._lost_since = self._lost_since or time.monotonic()
        if self._client.status == "closed" or time.monotonic() - self._lost_since > LOST_S:
            raise LostError("the connection to the Dask scheduler was lost")

    def close(self) -> None:
        """What is still out is cancelled; the cluster stays."""
        self._executor.shutdown(wait=False)
        self._client.close(timeout=2)


def _connected(address: str) -> Any:
    import logging

    import distributed

    connect: Any = distributed.Client  # untyped
    for name in ("distributed.client", "distributed.core", "distributed.comm", "tornado.application"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # what goes wrong is said here, in one line
    try:
        if not address.strip():
            raise ValueError("no address")  # with which distributed would start a cluster of its own
        return connect(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError, TypeError, RuntimeError, KeyError) as error:
        raise InputError(
            f"--dask: no scheduler at {short(address)} ({type(error).__name__}); allowed: the address that the "
            "scheduler prints, such as tcp://host:8786"
        ) from error
