"""HTTP to one server, for one user at a time: answers as streams of bytes with their times, faults as records.

A key goes to that server alone: redirects are not followed, .netrc is not read. Imports requests: import this module
only once a URL has been met. Each user has a connection of its own, as each real client has.
"""

import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

import requests
import requests.utils
import urllib3

from hwmodel.units import KB, MB
from simulator.deployment.keys import short
from validate.client.answers import MAX_GARBAGE, Answer, AnswerReader, message_of
from validate.client.faults import Fault, FaultError, of_status
from validate.client.sse import SseDecoder
from validate.client.target import Target
from validate.launch.redaction import redact_text

CONNECT_TIMEOUT_S = 10.0
SILENCE_S = 120.0  # without a byte of a started answer; a long prompt in a full queue takes a while
GET_TIMEOUT_S = 10.0
MAX_GET_BYTES = int(64 * MB)  # /metrics of a busy server with custom buckets has some MB
MAX_ANSWER_BYTES = int(256 * MB)
_PIECE_BYTES = int(64 * KB)
_MAX_ERROR_BYTES = int(64 * KB)
_MAX_RETRY_AFTER_S = 3600.0
_LINGER_S = 1.0  # between [DONE] and the end of the body
_OK = 200
_UNAUTHORIZED = (401, 403)


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a GET; `status` 0 where there was none, and `fault` says why."""

    status: int
    body: bytes = b""
    fault: Fault | None = None
    sent_s: float = 0.0  # monotonic
    received_s: float = 0.0

    @property
    def is_ok(self) -> bool:
        """Whether the server gave what was asked for."""
        return self.fault is None

    @property
    def is_unauthorized(self) -> bool:
        """Whether the server asks for a key, or for another one."""
        return self.status in _UNAUTHORIZED

    @property
    def text(self) -> str:
        """The text, undecodable bytes replaced; empty where there was no answer."""
        return "" if self.fault else self.body.decode("utf-8", errors="replace")

    def json(self) -> Any:
        """The JSON value; None where there is none."""
        try:
            return None if self.fault else json.loads(self.body)
        except (ValueError, RecursionError):
            return None


class Connection:
    """Requests to one server, one after the other."""

    def __init__(self, target: Target, *, silence_s: float = SILENCE_S) -> None:
        """Nothing is sent yet; an answer that is silent for `silence_s` counts as broken."""
        self.target = target
        self._silence_s = silence_s
        self._session = session_of(target)
        self._response: requests.Response | None = None
        self._used = False
        self._lock = threading.Lock()

    def get(self, path: str, timeout_s: float | None = None) -> Reply:
        """The answer to a GET of `path`; never raises for what the server does."""
        sent_s = time.monotonic()
        timeout_s = GET_TIMEOUT_S if timeout_s is None else timeout_s
        try:
            with self._session.get(
                self.target.url + path, timeout=(min(timeout_s, CONNECT_TIMEOUT_S), timeout_s), stream=True,
                allow_redirects=False,
            ) as response:  # fmt: skip
                body = _bounded(response, MAX_GET_BYTES, sent_s + 2 * timeout_s)
        except FaultError as error:
            return Reply(0, fault=error.fault)
        except _ERRORS as error:
            return Reply(0, fault=self._fault(error, timeout_s))
        status = response.status_code
        fault = None if status == _OK else of_status(status, self._words(body))
        return Reply(status, body, fault, sent_s, time.monotonic())

    def stream(
        self, path: str, body: Mapping[str, Any], *, keep: bool = False, until_s: float | None = None,
        stop: threading.Event | None = None,
    ) -> Answer:  # fmt: skip
        """The streamed answer to a POST of `body`; a `FaultError` where it is not whole.

        It is given up at `until_s` (monotonic), and when `stop` is set.
        """
        ends = _Ends(until_s, stop)
        data = json.dumps(body).encode()
        try:
            return self._stream(path, data, keep, ends)
        except _StaleError:  # the server had closed the kept connection before this request
            return self._stream(path, data, keep, ends)

    def abort(self) -> None:
        """Ends the request under way, from another thread."""
        with self._lock:
            raw = self._response.raw if self._response is not None else None
        if raw is not None:
            try:
                raw.shutdown()
            except (ValueError, RuntimeError, OSError):
                return  # it has just ended

    def close(self) -> None:
        """Closes the connection."""
        self._session.close()

    def _stream(self, path: str, data: bytes, keep: bool, ends: "_Ends") -> Answer:
        start_s = time.monotonic()
        reader = AnswerReader(start_s, keep=keep)
        was_used, self._used = self._used, True
        try:
            response = self._session.post(
                self.target.url + path, data=data, headers={"Content-Type": "application/json"}, stream=True,
                timeout=(CONNECT_TIMEOUT_S, self._silence_s), allow_redirects=False,
            )  # fmt: skip
        except _ERRORS as error:
            self._session.close()
            if was_used and _is_stale(error) and not ends.reached():
                raise _StaleError from None
            raise FaultError(self._fault(error, self._silence_s)) from None
        with self._lock:
            self._response = response
        try:
            return self._answer(response, reader, ends)
        finally:
            with self._lock:
                self._response = None
            response.close()

    def _answer(self, response: requests.Response, reader: AnswerReader, ends: "_Ends") -> Answer:
        if response.status_code != _OK:
            raise FaultError(self._refusal(response))
        decoder = SseDecoder()
        try:
            num_bytes = self._events(response, decoder, reader, ends)
        except _ERRORS as error:
            if ends.stopped():
                raise FaultError(Fault("stopped", "ended by us")) from None
            if not reader.is_done and reader.answer.finish_reason is None:
                raise FaultError(_cut(reader, self._fault(error, self._silence_s).message)) from None
            num_bytes = 1
        return self._finished(reader, decoder, num_bytes)

    def _events(self, response: requests.Response, decoder: SseDecoder, reader: AnswerReader, ends: "_Ends") -> int:
        """Feeds the stream to `reader` until it ends or says that it is done; the bytes that came."""
        num_bytes = 0
        read: Callable[[int], bytes] = response.raw.read1
        while piece := read(_PIECE_BYTES):
            now_s = time.monotonic()
            num_bytes += len(piece)
            for event in decoder.feed(piece):
                reader.event(event, now_s)
            if reader.is_done:
                _hurry(response)
            if reader.error is not None:
                raise FaultError(Fault("broken", f"the server ended the stream: {self._hidden(reader.error)}"))
            if ends.reached(now_s):
                raise FaultError(ends.fault(now_s))
            if num_bytes > MAX_ANSWER_BYTES or reader.answer.num_garbage > MAX_GARBAGE:
                raise FaultError(Fault("broken", "the stream is none of an OpenAI-compatible server"))
        return num_bytes

    def _finished(self, reader: AnswerReader, decoder: SseDecoder, num_bytes: int) -> Answer:
        answer = reader.finish(time.monotonic(), decoder.num_oversized)
        if not reader.is_done and answer.finish_reason is None:
            if not num_bytes or answer.num_garbage or not answer.chunk_times_s:
                raise FaultError(Fault("broken", "the answer is no stream of server-sent events"))
            raise FaultError(_cut(reader, "the connection was closed"))
        return answer

    def _refusal(self, response: requests.Response) -> Fault:
        try:
            body = _bounded(response, _MAX_ERROR_BYTES, time.monotonic() + GET_TIMEOUT_S)
        except (*_ERRORS, FaultError):
            body = b""
        return of_status(response.status_code, self._words(body), _retry_after_s(response.headers.get("Retry-After")))

    def _words(self, body: bytes) -> str:
        """The server's own words about an error."""
        try:
            found = message_of(json.loads(body))
        except (ValueError, RecursionError):
            found = short(body[:1000].decode("utf-8", errors="replace"), 200)
            found = "a web page" if found.startswith("<") else found
        return self._hidden(found)

    def _hidden(self, text: str) -> str:
        return redact_text(text, self.target.secrets)

    def _fault(self, error: Exception, timeout_s: float) -> Fault:
        """The fault of a failed exchange; the library's own words may hold what was sent, so they are not used."""
        words = str(error).lower()
        if isinstance(error, requests.exceptions.ConnectTimeout):
            return Fault("broken", f"no connection to {self.target.url} within {CONNECT_TIMEOUT_S:g} s")
        if isinstance(error, requests.exceptions.SSLError):
            return Fault("fatal", f"the TLS connection to {self.target.url} failed: {_tls_cause(words)}")
        if "tls ca certificate bundle" in words:
            return Fault("fatal", "REQUESTS_CA_BUNDLE (or SSL_CERT_FILE) names certificates that are not there")
        if isinstance(error, (requests.exceptions.Timeout, urllib3.exceptions.TimeoutError)) or "timed out" in words:
            return Fault("broken", f"no word from the server for {timeout_s:g} s")
        if "refused" in words:
            return Fault("broken", f"{self.target.url} refuses the connection: no server there, or still starting")
        if "resolve" in words or "name or service" in words or "getaddrinfo" in words:
            return Fault("fatal", f"{self.target.url}: no such host")
        if isinstance(error, (requests.exceptions.ConnectionError, urllib3.exceptions.ProtocolError, OSError)):
            return Fault("broken", "the connection broke")
        return Fault("broken", f"the request failed ({type(error).__name__})")


def _tls_cause(words: str) -> str:
    """Why TLS did not come about, from the library's words in lower case, and what to do."""
    if "self-signed" in words or "self signed" in words or "unable to get local issuer" in words:
        return "its certificate is not trusted; name the file of it, or of its issuer, in REQUESTS_CA_BUNDLE"
    if "hostname mismatch" in words or "doesn't match" in words or "not valid for" in words:
        return "its certificate is for another name; use the name that it states in the URL"
    if "certificate has expired" in words:
        return "its certificate has expired"
    if "wrong version number" in words or "record layer" in words or "unknown protocol" in words:
        return "the server does not speak TLS there; try http://"
    return "certificate or protocol"


_ERRORS = (requests.exceptions.RequestException, urllib3.exceptions.HTTPError, OSError, ValueError, AttributeError)


class _StaleError(Exception):
    """A kept connection was closed by the server before the request reached it."""


@dataclass(frozen=True, slots=True)
class _Ends:
    """When a request is given up."""

    until_s: float | None
    stop: threading.Event | None

    def stopped(self) -> bool:
        return self.stop is not None and self.stop.is_set()

    def reached(self, now_s: float | None = None) -> bool:
        late = self.until_s is not None and (time.monotonic() if now_s is None else now_s) > self.until_s
        return late or self.stopped()

    def fault(self, now_s: float) -> Fault:
        if self.stopped():
            return Fault("stopped", "ended by us")
        return Fault("stopped", "the time for one request is over")


def session_of(target: Target) -> requests.Session:
    """A session with the key, the environment's proxies and certificates, and nothing else of the environment."""
    session = requests.Session()
    session.trust_env = False
    session.proxies.update(requests.utils.get_environ_proxies(target.url))
    session.verify = os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("SSL_CERT_FILE") or True
    # No compression: a proxy that packs a stream would hold chunks back.
    session.headers.update({"Accept-Encoding": "identity", "User-Agent": "draftcast"})
    if target.api_key:
        session.headers["Authorization"] = f"Bearer {target.api_key}"
    return session


def _bounded(response: requests.Response, max_bytes: int, until_s: float) -> bytes:
    """The whole body, as long as it is not too long and comes in time."""
    pieces: list[bytes] = []
    num_bytes = 0
    for piece in response.iter_content(_PIECE_BYTES):
        num_bytes += len(piece)
        if num_bytes > max_bytes:
            raise FaultError(Fault("broken", f"an answer longer than {max_bytes} bytes"))
        if time.monotonic() > until_s:
            raise FaultError(Fault("broken", "an answer that does not end"))
        pieces.append(piece)
    return b"".join(pieces)


def _hurry(response: requests.Response) -> None:
    """Only the end of the body is still to come: a server that leaves it open is not waited for."""
    sock = getattr(getattr(response.raw, "connection", None), "sock", None)
    if sock is not None:
        sock.settimeout(_LINGER_S)


def _is_stale(error: Exception) -> bool:
    words = str(error).lower()
    return any(mark in words for mark in ("remote end closed", "connection aborted", "reset by peer", "broken pipe"))


def _cut(reader: AnswerReader, why: str) -> Fault:
    return Fault("broken", f"the stream was cut after {len(reader.answer.chunk_times_s)} chunks: {why}")


def _retry_after_s(value: str | None) -> float | None:
    """Seconds of a Retry-After header: a number, or a date."""
    if value is None:
        return None
    try:
        wait_s = float(value)
    except ValueError:
        try:
            wait_s = parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, TypeError, OverflowError):
            return None
    return min(max(wait_s, 0.0), _MAX_RETRY_AFTER_S) if wait_s == wait_s else None
