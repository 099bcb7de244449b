"""A sweep in processes of this machine."""

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from typing import Any

from draftcast.scale.chunks import chunks
from draftcast.scale.drive import drive
from simulator.sweeps import INTERRUPTED, Outcome, Swept, Tell, attempt

MAX_JOBS = 1024
TRIAL_S = 1.0  # how long a sweep runs here before processes are thought of
PAYS_OFF_S = 4.0  # of work left: a process costs about a second of CPU time to start
_WORK_PER_PROCESS_S = 2.0
# Products of small matrices: a pool of threads in each process would only get in the others' way.
_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
# The server that they are forked from starts as `python -c`: it would take a folder `simulator` of the working folder
# for this program's.
_SWITCHES = (*_THREADS, "PYTHONSAFEPATH")


class Processes:
    """A sweep in `jobs` processes; None: as many as pay off, judged by the first second of the sweep itself."""

    def __init__(self, jobs: int | None = None) -> None:
        """Nothing is started yet."""
        self._jobs = jobs

    def __call__(self, function: Callable[[Any], Any], cells: Sequence[Any], tell: Tell | None = None) -> Swept:
        """The outcomes of all cells, in order; the same bit for bit for any number of processes."""
        outcomes: list[Outcome | None] = [None] * len(cells)
        jobs, first = self._jobs, 0
        try:
            if jobs is None or jobs == 1:
                first, spent_s = _here(function, cells, outcomes, tell, TRIAL_S if jobs is None else None)
                jobs = jobs_that_pay_off(spent_s, first, len(cells) - first) if first < len(cells) else 1
                if first < len(cells) and jobs == 1:
                    first, _ = _here(function, cells, outcomes, tell, None)
        except KeyboardInterrupt:
            return Swept(outcomes, INTERRUPTED)
        if first == len(cells):
            return Swept(outcomes)
        with one_thread_each():
            pool = _Pool(min(jobs, len(cells) - first))
            return drive(pool, chunks(function, cells, pool.jobs, first), outcomes, tell)


def jobs_that_pay_off(spent_s: float, done: int, left: int, cpus: int | None = None) -> int:
    """Processes for the rest of a sweep of which `done` cells took `spent_s`.

    One where the rest takes less than 4 s; else one for each 2 s of work, at most as many as CPUs.

    >>> jobs_that_pay_off(1.0, 10, 30, cpus=8), jobs_that_pay_off(1.0, 10, 100, cpus=8)
    (1, 5)
    """
    rest_s = spent_s / max(done, 1) * left
    if rest_s < PAYS_OFF_S:
        return 1
    return max(min(int(rest_s / _WORK_PER_PROCESS_S), cpus or usable_cpus(), MAX_JOBS), 1)


def usable_cpus() -> int:
    """The CPUs that this process may run on."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def _here(
    function: Callable[[Any], Any],
    cells: Sequence[Any],
    outcomes: list[Outcome | None],
    tell: Tell | None,
    limit_s: float | None,
) -> tuple[int, float]:
    """Cells in this process from the first open one on, until `limit_s`; the next open one, and the seconds spent."""
    start, place = time.monotonic(), outcomes.index(None) if None in outcomes else len(cells)
    while place < len(cells) and (limit_s is None or time.monotonic() - start < limit_s):
        outcomes[place] = attempt(function, cells[place])
        place += 1
        if tell is not None:
            tell(place, len(cells))
    return place, time.monotonic() - start


class _Pool:
    """Processes started afresh (never forked from a process that has threads), and anew after one was killed."""

    died: tuple[type[BaseException], ...] = (BrokenProcessPool,)
    lost: tuple[type[BaseException], ...] = ()

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        ways = multiprocessing.get_all_start_methods()
        self._context = multiprocessing.get_context("forkserver" if "forkserver" in ways else "spawn")
        if "forkserver" in ways:
            self._context.set_forkserver_preload(["draftcast.scale.preload"])
        self._pool: _Quiet | None = None

    def executor(self) -> Executor:
        """The pool, a new one where a process of the last was killed."""
        if self._pool is None or self._pool._broken:
            _start_tidying()
            with _held_back():
                self._pool = _Quiet(self.jobs, mp_context=self._context, initializer=follow_parent)
        return self._pool

    def window(self, *, alone: bool) -> int:
        """Two chunks a process, so that none waits for this one; one in all where the guilty cell is sought."""
        return 1 if alone else 2 * self.jobs

    def check(self) -> None:
        """A pool says by itself that a process ended, unless that one was killed in the middle of an answer."""
        if self._pool is not None and not self._pool._broken and self._pool.has_dead():
            self._pool.kill()

    def close(self) -> None:
        """Ends the processes without waiting for what they are at."""
        if self._pool is not None:
            self._pool.kill()


class _Quiet(ProcessPoolExecutor):
    """A pool whose processes leave signals to this one, and that can be ended at any moment."""

    def submit(self, *arguments: Any, **options: Any) -> Any:
        """Starts processes on the way, which inherit that the signal is held back."""
        with _held_back():
            return super().submit(*arguments, **options)

    def has_dead(self) -> bool:
        """Whether a process has ended."""
        processes: dict[int, Any] = dict(self._processes or {})
        return any(process.exitcode is not None for process in processes.values())

    def kill(self) -> None:
        """Ends all processes and then the thread that serves them; what was handed over fails as broken.

        A process that ends in the middle of an answer leaves that thread waiting for the rest of it: the pipe has no
        end as long as this process holds its other side too.
        """
        inner: Any = self  # what the standard library's pool keeps to itself, and has no types for
        processes = list((inner._processes or {}).values())
        answers, manager = inner._result_queue, inner._executor_manager_thread
        with _held_back():  # whoever presses Ctrl-C twice
            self.shutdown(wait=False)
            for process in processes:
                process.kill()
            for process in processes:
                process.join()
            if answers is not None:
                answers._writer.close()
            if manager is not None:
                manager.join()


def _start_tidying() -> None:
    """Starts the process that removes what is left of semaphores; the signals do not reach it.

    Its start lifts the hold on Ctrl-C, so it comes before there are semaphores, which would be lost with it.
    """
    if hasattr(signal, "pthread_sigmask"):
        with _held_back():
            resource_tracker.ensure_running()


def follow_parent() -> None:
    """In a process of the pool: it ends with the one that it works for, however that one ends (SIGKILL included)."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # by which a broken pool ends its processes
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_after, args=(parent.sentinel,), daemon=True).start()


def _end_after(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


@contextlib.contextmanager
def _held_back() -> Iterator[None]:
    """Ctrl-C, SIGTERM and SIGHUP come after the block, here; what is started within never sees them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def one_thread_each() -> Iterator[None]:
    """Processes started within have one thread for linear algebra, and import nothing from the working folder."""
    before = {name: os.environ.get(name) for name in _SWITCHES}
    os.environ.update(dict.fromkeys(_SWITCHES, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
