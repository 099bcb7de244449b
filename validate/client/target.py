"""Which server is meant, and with which key: checked once, and shown without anything secret."""

import os
import re
import stat
from dataclasses import dataclass, field
from urllib.parse import urlsplit, urlunsplit

from hwmodel.errors import InputError
from hwmodel.files import open_regular
from simulator.deployment.keys import short

DEFAULT_KEY_VARIABLE = "DRAFTCAST_API_KEY"
_ADDRESSES = re.compile(r"/(v1(/(chat/)?completions|/models)?|metrics|health|version)$")
_MAX_KEY_BYTES = 64 * 1024  # JSON web tokens have a few kB


@dataclass(frozen=True, slots=True)
class Target:
    """A server: `url` without the `/v1` that clients are given; the key is in no text form of this record."""

    url: str
    api_key: str | None = field(default=None, repr=False)

    @property
    def secrets(self) -> tuple[str, ...]:
        """What may never be shown."""
        return (self.api_key,) if self.api_key else ()


def target_with(url: str, api_key: str | None) -> Target:
    """The server at `url`, with a key that is already there; None or an empty one is none."""
    return Target(base_url(url), _checked(api_key, "the API key") if api_key else None)


def target_of(url: str, key_variable: str | None = None, key_file: str | None = None) -> Target:
    """The server at `url`, with the key of an environment variable or a file; `InputError` for what cannot be one."""
    return Target(base_url(url), _api_key(key_variable, key_file))


def base_url(url: str) -> str:
    """The URL of the server itself, also where that of one of its addresses was copied.

    >>> base_url("http://localhost:8000/v1/"), base_url("http://h/gate/v1/chat/completions")
    ('http://localhost:8000', 'http://h/gate')
    """
    try:
        parts = urlsplit(url.strip())
        is_server = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        parts, is_server = None, False
    if parts is None or not is_server or not url.strip().isprintable():
        raise InputError(f"URL: got '{short(_without_user(url))}', allowed: http://HOST:PORT of a running server")
    if parts.username or parts.password:
        raise InputError("URL: got a user or password in it, allowed: http://HOST:PORT, and a key by --api-key-env")
    if parts.query or parts.fragment:
        raise InputError("URL: got a query or fragment in it, allowed: http://HOST:PORT, perhaps with a path")
    path = _ADDRESSES.sub("", parts.path.rstrip("/")).rstrip("/")
    return urlunsplit((parts.scheme, parts.netloc, path, "", ""))


def _without_user(url: str) -> str:
    return url.rpartition("@")[2]


def _api_key(variable: str | None, path: str | None) -> str | None:
    if variable is not None and path is not None:
        raise InputError("--api-key-env and --api-key-file are both given, allowed: one of them")
    if path is not None:
        return _checked(_read_key(path), f"the file {short(path)}")
    name = variable or DEFAULT_KEY_VARIABLE
    value = os.environ.get(name)
    if value is None and variable is None:
        return None
    return _checked(value or "", f"the environment variable {short(name)}")


def _checked(key: str, where: str) -> str:
    key = key.strip()
    if not key:
        raise InputError(f"{where} is empty or not set, allowed: the server's API key")
    if not key.isascii() or not key.isprintable() or " " in key:
        raise InputError(f"{where} holds characters that no API key has, allowed: one word of printable ASCII")
    return key


def _read_key(path: str) -> str:
    try:
        with open_regular(path) as file:
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & stat.S_IWOTH:
                raise InputError(f"{short(path)} can be written by everybody; allowed: a file of your own (chmod 600)")
            content = file.read(_MAX_KEY_BYTES + 1)
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        reason = getattr(error, "strerror", None) or "not a path"
        raise InputError(f"cannot read {short(path)}: {reason}; allowed: a file that holds the API key") from None
    if len(content) > _MAX_KEY_BYTES:
        raise InputError(f"{short(path)} is larger than {_MAX_KEY_BYTES} bytes; allowed: a file that holds the API key")
    return content.decode("utf-8", errors="replace")
