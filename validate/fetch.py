"""Small GET requests to a server that may be slow, hostile or gone: bounded in time and size, no redirects followed.

Imports requests: import this module only once a URL has been met.
"""

import json
import os
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import requests
import requests.utils

from hwmodel.errors import InputError
from hwmodel.units import MB
from validate.launch.systemd_words import excerpt

CONNECT_TIMEOUT_S = 5.0
READ_TIMEOUT_S = 10.0  # between two pieces of an answer
TOTAL_TIMEOUT_S = 20.0  # of one answer
MAX_BYTES = int(20 * MB)  # a busy server's /metrics has some 100 kB
_CHUNK_BYTES = 65536
_OK = 200
_UNAUTHORIZED = (401, 403)


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer: the HTTP status, 0 where there was none and `fault` says why; `body` is empty then."""

    status: int
    body: bytes = b""
    fault: str = ""

    @property
    def is_ok(self) -> bool:
        """Whether the server gave what was asked for."""
        return self.status == _OK and not self.fault

    @property
    def is_unauthorized(self) -> bool:
        """Whether the server asks for a key, or for another one."""
        return self.status in _UNAUTHORIZED

    def json(self) -> Any:
        """The JSON of the answer, None where it is none."""
        try:
            return json.loads(self.body) if self.is_ok else None
        except (ValueError, RecursionError):
            return None

    def text(self) -> str:
        """The text of the answer, undecodable bytes replaced; empty where there was none."""
        return self.body.decode("utf-8", errors="replace") if self.is_ok else ""


def base_url(url: str) -> str:
    """The URL of the server itself: without query, and without the `/v1` that clients are given.

    >>> base_url("http://localhost:8000/v1/")
    'http://localhost:8000'
    """
    try:
        parts = urlsplit(url.strip())
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise InputError(f"URL: got '{excerpt(url)}', allowed: http://HOST:PORT of a running server")
    path = parts.path.rstrip("/").removesuffix("/v1").rstrip("/")
    return urlunsplit((parts.scheme, parts.netloc, path, "", ""))


def shown_url(url: str) -> str:
    """The URL without the user and password that may stand in it."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rsplit("@", 1)[-1], parts.path, "", ""))


class Fetcher:
    """GET requests to one server. A key goes to that server alone: redirects are not followed, .netrc is not read."""

    def __init__(self, url: str, api_key: str | None = None) -> None:
        """A fetcher for the server at the URL."""
        self.url = base_url(url)
        self.session = requests.Session()
        self.session.trust_env = False
        self.session.proxies.update(requests.utils.get_environ_proxies(self.url))
        self.session.verify = os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("SSL_CERT_FILE") or True
        if api_key:
            if not api_key.isascii() or not api_key.isprintable():
                raise InputError("the API key holds characters that no HTTP header can carry")
            self.session.headers["Authorization"] = f"Bearer {api_key}"

    def get(self, path: str, read_timeout_s: float | None = None) -> Reply:
        """The answer to a GET of the path, which starts with a slash; it never raises for what the server does."""
        wait_s = READ_TIMEOUT_S if read_timeout_s is None else read_timeout_s
        timeouts = (CONNECT_TIMEOUT_S, wait_s)
        try:
            with self.session.get(self.url + path, timeout=timeouts, stream=True, allow_redirects=False) as response:
                return _read(response, time.monotonic() + TOTAL_TIMEOUT_S)
        except requests.exceptions.ConnectTimeout:
            return Reply(0, fault=f"no connection within {CONNECT_TIMEOUT_S:g} s")
        except requests.exceptions.Timeout:
            return Reply(0, fault=f"no answer within {wait_s:g} s")
        except requests.exceptions.SSLError:
            return Reply(0, fault="the TLS connection failed: certificate or protocol")
        except requests.exceptions.ConnectionError as error:
            return Reply(0, fault="connection refused" if "refused" in str(error).lower() else "the connection failed")
        except (requests.exceptions.RequestException, ValueError, OSError) as error:
            return Reply(0, fault=f"the request failed ({type(error).__name__})")


def _read(response: requests.Response, until_s: float) -> Reply:
    """The whole answer, as long as it comes in time and is not too long."""
    pieces: list[bytes] = []
    length = 0
    for piece in response.iter_content(_CHUNK_BYTES):
        length += len(piece)
        if length > MAX_BYTES:
            return Reply(response.status_code, fault=f"the answer is longer than {MAX_BYTES} bytes")
        if time.monotonic() > until_s:
            return Reply(response.status_code, fault=f"the answer took longer than {TOTAL_TIMEOUT_S:g} s")
        pieces.append(piece)
    return Reply(response.status_code, b"".join(pieces))
