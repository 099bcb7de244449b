"""Users of a closed loop: each sends a request, waits for the whole answer, and sends the next.

Every user is a thread with a connection of its own. Its first request is cut to a share of the usual length, a
different one for each: the loop then starts with requests that are at all stages of their lives, as a loop that has run
for long, and not with all prompts at once.
"""

import queue
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from validate.client.answers import Answer
from validate.client.connection import Connection
from validate.client.faults import Fault, FaultError
from validate.client.target import Target
from validate.measure.dialect import Dialect
from validate.measure.prompts import Order, Prompt

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.1, 30.0
_ABORT_S = 5.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """One request and what came of it: an answer, or a fault."""

    number: int
    kind: str
    user: int
    is_first: bool  # of its user
    sent_s: float  # monotonic
    ended_s: float
    answer: Answer | None = None
    fault: Fault | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """What the users of one cell send; `label` is a word that no other cell has."""

    target: Target
    dialect: Dialect
    prompts: Sequence[Prompt]
    label: str
    request_s: float
    keep: bool = False


class Users:
    """`num_users` users at work, until they are told to stop; what they finish stands in `done`."""

    def __init__(self, work: Work, num_users: int) -> None:
        """Nobody has started."""
        self.done: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        self._work = work
        self._order = Order(work.prompts)
        self._lock = threading.Lock()
        self._no_more = threading.Event()  # finish what you have, then go
        self._stop = threading.Event()  # drop what you have
        self._connections = [Connection(work.target, silence_s=work.request_s) for _ in range(num_users)]
        self._threads = [
            threading.Thread(target=self._user, args=(user,), name=f"user-{user}", daemon=True)
            for user in range(num_users)
        ]

    def start(self) -> None:
        """All users send their first request now."""
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        """Nobody sends another request."""
        self._no_more.set()

    @property
    def num_active(self) -> int:
        """Users that are still at work."""
        return sum(thread.is_alive() for thread in self._threads)

    def abort(self) -> None:
        """Ends all requests under way; returns when they have ended, or after a few seconds."""
        self._no_more.set()
        self._stop.set()
        until_s = time.monotonic() + _ABORT_S
        while self.num_active and time.monotonic() < until_s:
            for connection in self._connections:
                connection.abort()
            self._threads_join(0.05)

    def _threads_join(self, wait_s: float) -> None:
        for thread in self._threads:
            if thread.is_alive():
                thread.join(wait_s)
                return

    def _user(self, user: int) -> None:
        connection, is_first = self._connections[user], True
        while not self._no_more.is_set():
            with self._lock:
                number, prompt = self._order.take()
            if not self._one(connection, user, number, prompt, is_first=is_first):
                break
            is_first = False
        connection.close()

    def _one(self, connection: Connection, user: int, number: int, prompt: Prompt, *, is_first: bool) -> bool:
        """Sends one request until it is answered, as long as the server says "later"; whether to go on."""
        work, wait_s = self._work, _FIRST_WAIT_S
        body = work.dialect.body(prompt, f"{work.label}-{number}", self._length(prompt, user, is_first=is_first))
        while True:
            sent_s = time.monotonic()
            answer, fault = None, None
            try:
                answer = connection.stream(
                    work.dialect.path, body, keep=work.keep, until_s=sent_s + work.request_s, stop=self._stop
                )
            except FaultError as error:
                fault = error.fault
            self.done.put(Outcome(number, prompt.kind, user, is_first, sent_s, time.monotonic(), answer, fault))
            if fault is None or fault.kind == "skip":
                return True
            if fault.kind in ("fatal", "stopped"):
                return False
            wait_s = min(max(wait_s * 2, fault.retry_after_s or 0.0), _LONGEST_WAIT_S)
            if self._no_more.wait(wait_s):
                return False
            if fault.kind == "broken":
                return True

    def _length(self, prompt: Prompt, user: int, *, is_first: bool) -> int:
        """The most tokens of a request; of a first one the user's share of it."""
        tokens = self._work.dialect.output_tokens(prompt)
        if not is_first:
            return tokens
        return max(1, round(tokens * (user + 1) / len(self._threads)))
