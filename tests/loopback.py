"""A small HTTP server on 127.0.0.1 that answers with recorded texts, or misbehaves in a stated way."""

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

Answer = tuple[int, str | bytes]
Misbehaviour = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def serving(answers: Mapping[str, Answer | Misbehaviour], api_key: str | None = None) -> Iterator[str]:
    """The base URL of a server that answers GETs of these paths; 404 for others, 401 without the key where one is set.

    A misbehaviour is called with the handler and writes what it likes. Headers of all requests are not kept: a test
    that wants them passes a misbehaviour.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if api_key is not None and self.headers.get("Authorization") != f"Bearer {api_key}":
                _send(self, 401, '{"error":"Unauthorized"}')
                return
            answer = answers.get(self.path)
            if callable(answer):
                answer(self)
            elif answer is None:
                _send(self, 404, '{"detail":"Not Found"}')
            else:
                _send(self, *answer)

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _send(handler: BaseHTTPRequestHandler, status: int, body: str | bytes) -> None:
    content = body.encode() if isinstance(body, str) else body
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    handler.wfile.write(content)


def cut_short(handler: BaseHTTPRequestHandler) -> None:
    """Promises more bytes than it sends, then closes."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"data":')


def endless(handler: BaseHTTPRequestHandler) -> None:
    """Sends bytes until the other side has had enough."""
    handler.send_response(200)
    handler.end_headers()
    try:
        while True:
            handler.wfile.write(b"vllm:x 1\n" * 10_000)
    except OSError:
        return


def silent(handler: BaseHTTPRequestHandler) -> None:
    """Answers nothing for longer than anybody waits."""
    time.sleep(2)


def redirect(location: str) -> Misbehaviour:
    """Sends the client elsewhere."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(302)
        handler.send_header("Location", location)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return answer


def answered(url: str, sent: bytes) -> bytes:
    """All that the server at this URL says to these bytes, whatever they are."""
    place = urlsplit(url)
    with socket.create_connection((place.hostname, place.port), timeout=5) as sock:
        sock.sendall(sent)
        sock.shutdown(socket.SHUT_WR)
        answer = b""
        while piece := sock.recv(65536):
            answer += piece
    return answer
