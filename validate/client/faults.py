"""What can go wrong with one request, sorted by what to do about it, each with one line for the user."""

from dataclasses import dataclass
from typing import Literal

from hwmodel.errors import DraftcastError

# fatal: no request will ever work; later: the server asks to wait; skip: this request alone; broken: the connection or
# the server failed; stopped: we ended it ourselves.
Kind = Literal["fatal", "later", "skip", "broken", "stopped"]

_LATER = (408, 425, 429, 503)
_FATAL = (401, 403, 404, 405, 501)
_WORDS = {
    301: "moved elsewhere, not followed",
    302: "moved elsewhere, not followed",
    307: "moved elsewhere, not followed",
    308: "moved elsewhere, not followed",
    401: "the server wants an API key (--api-key-env, --api-key-file)",
    403: "the server refuses this API key",
    404: "no such model or address",
    429: "too many requests",
    503: "not ready to serve",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a request gave no whole answer; `status` is the HTTP status, 0 where there was none."""

    kind: Kind
    message: str
    status: int = 0
    retry_after_s: float | None = None


class FaultError(DraftcastError):
    """A fault that ends what was being done."""

    def __init__(self, fault: Fault) -> None:
        """The message is the fault's."""
        super().__init__(fault.message)
        self.fault = fault


def of_status(status: int, words: str, retry_after_s: float | None = None) -> Fault:
    """The fault of an HTTP status; `words` are the server's own, already short and without secrets."""
    kind: Kind = "fatal" if status in _FATAL else "later" if status in _LATER else "skip"
    if status >= 500 and status not in (*_LATER, *_FATAL):
        kind = "broken"
    meaning = _WORDS.get(status)
    message = f"HTTP {status}" + (f", {meaning}" if meaning else "") + (f": {words}" if words else "")
    return Fault(kind, message, status, retry_after_s)
