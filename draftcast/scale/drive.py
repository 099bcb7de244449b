"""Chunks handed to an executor, a few at a time; what dies on the way is tried once more, alone."""

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from typing import Protocol

from draftcast.scale.chunks import Answer, Chunk, outcomes_of, run_chunk, singles
from draftcast.scale.ending import put_off
from hwmodel.errors import InputError
from simulator.deployment.keys import short
from simulator.sweeps import INTERRUPTED, Outcome, Swept, Tell

_POLL_S = 0.2  # between two looks at whether the workers are still there, and at signals
DIED = "the process that computed it ended without an answer, alone and twice (killed, or out of memory?)"


class LostError(Exception):
    """No further answer will come or count, for the reason given; what is done is kept."""


class Backend(Protocol):
    """Where chunks run. `died` are the errors of a future whose process ended; it may have taken others along.

    `lost` are those of one that will never be answered.
    """

    died: tuple[type[BaseException], ...]
    lost: tuple[type[BaseException], ...]

    def executor(self) -> Executor:
        """An executor that works: a new one where the last one is broken."""

    def window(self, *, alone: bool) -> int:
        """How many chunks are handed over before the first has come back; `alone`: to find who is to blame."""

    def check(self) -> None:
        """Raises `LostError` where no answer will come any more."""

    def close(self) -> None:
        """Ends the workers that were started for this, at once."""


def drive(backend: Backend, work: Iterable[Chunk], outcomes: list[Outcome | None], tell: Tell | None) -> Swept:
    """Fills `outcomes` at the chunks' places. Ctrl-C or the loss of all workers ends it early."""
    with put_off() as deliver_signals:
        return _driven(backend, work, outcomes, _Board(backend, outcomes, tell, deliver_signals))


def _driven(backend: Backend, work: Iterable[Chunk], outcomes: list[Outcome | None], board: "_Board") -> Swept:
    try:
        suspects = board.run(work, alone=False)
        board.run((single for chunk in suspects for single in singles(chunk)), alone=True)
    except KeyboardInterrupt:
        return Swept(outcomes, INTERRUPTED)
    except LostError as error:
        if all(outcome is None for outcome in outcomes):
            raise InputError(str(error)) from error
        return Swept(outcomes, str(error))
    finally:
        backend.close()
    return Swept(outcomes)


class _Board:
    """Which chunks are out, and what came back."""

    def __init__(
        self, backend: Backend, outcomes: list[Outcome | None], tell: Tell | None, between: Callable[[], None]
    ) -> None:
        self._backend, self._outcomes, self._tell, self._between = backend, outcomes, tell, between
        self._done = sum(outcome is not None for outcome in outcomes)

    def run(self, work: Iterable[Chunk], *, alone: bool) -> list[Chunk]:
        """All chunks; returns those that were out when a worker died. With `alone` these are failed instead."""
        waiting, out, suspects = deque(work), dict[Future[Answer], Chunk](), list[Chunk]()
        while waiting or out:
            while waiting and len(out) < self._backend.window(alone=alone):
                chunk = waiting.popleft()
                out[self._submit(chunk)] = chunk
            self._between()
            done, _ = wait(out, timeout=_POLL_S, return_when=FIRST_COMPLETED)
            if not done:
                self._backend.check()
            for future in done:
                chunk = out.pop(future)
                if self._take(future, chunk):
                    continue
                if alone:
                    self._record(chunk, [Outcome(None, DIED)])
                else:
                    suspects.append(chunk)
        return suspects

    def _submit(self, chunk: Chunk) -> "Future[Answer]":
        try:
            return self._backend.executor().submit(run_chunk, chunk)
        except self._backend.died:  # broken between the question and the submission
            return self._backend.executor().submit(run_chunk, chunk)

    def _take(self, future: "Future[Answer]", chunk: Chunk) -> bool:
        """Records the answer; False where there is none since a worker died."""
        try:
            answer = future.result()
        except self._backend.died:
            return False
        except self._backend.lost as error:
            raise LostError("the workers dropped what they had been given (was their scheduler stopped?)") from error
        except Exception as error:  # a cell's own faults are outcomes: this is of sending and unpacking
            raise LostError(
                f"a worker cannot run draftcast ({type(error).__name__}: {short(str(error))}); "
                f"allowed: scheduler and workers with draftcast {chunk.program} installed"
            ) from error
        if answer.outcomes is None:
            raise LostError(
                f"a worker has draftcast {answer.program}, here is {chunk.program}; allowed: the same on both sides"
            )
        self._record(chunk, outcomes_of(answer))
        return True

    def _record(self, chunk: Chunk, found: list[Outcome]) -> None:
        for place, outcome in zip(chunk.places, found, strict=True):
            self._outcomes[place] = outcome
        self._done += len(found)
        if self._tell is not None:
            self._tell(self._done, len(self._outcomes))
