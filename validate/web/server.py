"""A small HTTP server of our own: GET and HEAD only, bounded in connections, threads and time, silent about clients."""

import contextlib
import errno
import re
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from hwmodel.errors import InputError
from simulator.deployment.keys import short

MAX_CLIENTS = 8  # at once; further ones are hung up on
REQUEST_S = 10.0  # for one whole request and its answer
PLAIN = "text/plain; charset=utf-8"
_ADDRESS = re.compile(r"(?:(?P<host>\[[0-9a-fA-F:.%]+\]|[^\[\]:\s/]*):)?(?P<port>[0-9]{1,5})")
_MAX_PORT = 65535
_OF_THE_PORT = (errno.EADDRINUSE, errno.EACCES, errno.EPERM)
LOOPBACK = "127.0.0.1"


class Reply(NamedTuple):
    """What a request gets; `headers` beside the usual ones."""

    status: int
    content_type: str
    text: str
    headers: tuple[tuple[str, str], ...] = ()


class Address(NamedTuple):
    """Where to listen."""

    host: str
    port: int


def address_of(text: str) -> Address:
    """HOST:PORT, or a port on loopback.

    >>> address_of("9109"), address_of("[::1]:0")
    (Address(host='127.0.0.1', port=9109), Address(host='::1', port=0))
    """
    found = _ADDRESS.fullmatch(text.strip())
    if found is None or int(found["port"]) > _MAX_PORT:
        raise InputError(f"--listen: got '{short(text)}', allowed: HOST:PORT or PORT, such as 127.0.0.1:9109")
    return Address((found["host"] or "").strip("[]") or LOOPBACK, int(found["port"]))


class Handler(BaseHTTPRequestHandler):
    """Subclasses say what a GET gets; any other method is not allowed, and what is no request is repeated nowhere."""

    max_clients = MAX_CLIENTS
    allowed: str  # the paths, in words, for what is refused
    headers_of_all: tuple[tuple[str, str], ...] = ()
    server_version, sys_version = "draftcast", ""
    timeout = REQUEST_S

    def reply(self) -> Reply:
        """The answer to a GET of `self.path`."""
        raise NotImplementedError

    def do_GET(self) -> None:
        """The answer."""
        self._answer(self.reply())

    def do_HEAD(self) -> None:
        """The heads of a GET."""
        self.do_GET()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """A short text in place of the library's page, which repeats what was sent."""
        self.close_connection = True
        self._answer(Reply(405 if code == 501 else code, PLAIN, f"allowed: {self.allowed}\n"))

    def _answer(self, reply: Reply) -> None:
        body = reply.text.encode()
        self.send_response(reply.status)
        for name, value in (
            ("Content-Type", reply.content_type),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
            *self.headers_of_all,
            *reply.headers,
        ):
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is logged."""


class Listener:
    """Answers by `handler` in threads of its own, from now on until it is closed."""

    def __init__(self, address: Address, handler: type[Handler], options: tuple[str, str]) -> None:
        """`InputError` where it cannot listen; `options` are what the user gave the host and the port by."""
        self._server = _listening(address, handler, options)
        host, port = str(self._server.server_address[0]), self._server.server_address[1]
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.2}, name="listener", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stops listening; threads that still answer end with their connections."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _listening(address: Address, handler: type[Handler], options: tuple[str, str]) -> "_Server":
    try:
        family, _, _, _, where = socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return _Server(family, (str(where[0]), int(where[1])), handler)
    except (OSError, UnicodeError) as error:
        reason = (getattr(error, "strerror", None) or "not a host name").lower()
        shown = f"{short(address.host)}:{address.port}"
        of_port = getattr(error, "errno", None) in _OF_THE_PORT
        option, allowed = (options[1], "a free port") if of_port else (options[0], "an address")
        raise InputError(f"{option}: cannot listen on {shown}: {reason}; allowed: {allowed} of this machine") from None


class _Server(ThreadingHTTPServer):
    """At most the handler's `max_clients` connections at once, each for `REQUEST_S`."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 16
    allow_reuse_address = True

    def __init__(self, family: int, address: tuple[str, int], handler: type[Handler]) -> None:
        self.address_family = family
        self._slots = threading.BoundedSemaphore(handler.max_clients)
        self._open: set[socket.socket] = set()
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """Without the look-up of its own name, which can take long."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """A thread for the connection, where one is free."""
        if not self._slots.acquire(blocking=False):
            self.shutdown_request(request)
            return
        self._open.add(request)
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answers one connection; it is cut off when its time is over."""
        timer = threading.Timer(REQUEST_S, _cut, (request,))
        timer.daemon = True
        timer.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            timer.cancel()
            self._open.discard(request)
            self._slots.release()

    def server_close(self) -> None:
        """Also ends the connections that are still open."""
        super().server_close()
        for request in list(self._open):
            _cut(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no matter."""


def _cut(request: socket.socket) -> None:
    with contextlib.suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)
