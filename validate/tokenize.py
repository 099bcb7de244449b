"""Token ids of texts from a running server's `/tokenize` (vLLM; the chat template is applied there)."""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import requests

from hwmodel.errors import InputError
from hwmodel.units import MB
from simulator.deployment.keys import short

TIMEOUT_S = 60.0
MAX_ANSWER_BYTES = int(64 * MB)
_OPTION = "--tokenize-url"
_CHUNK_BYTES = 1 << 16


class ServerTokenizer:
    """Asks one server, one text at a time. No redirects: texts and key go to the named server only."""

    def __init__(self, url: str, api_key_variable: str | None = None) -> None:
        """The server at `url` (its root, its `/v1` or its `/tokenize`), with the key in an environment variable."""
        self._url = _endpoint(url)
        self._session = requests.Session()
        self._session.trust_env = False  # no credentials from .netrc, no proxy
        self._session.headers.update(_authorisation(api_key_variable))

    def output_ids(self, text: str) -> list[int]:
        """Ids of an output."""
        return self._ids({"prompt": text, "add_special_tokens": False}) if text else []

    def prompt_ids(self, text: str) -> list[int]:
        """Ids of a plain prompt."""
        return self._ids({"prompt": text, "add_special_tokens": True})

    def chat_ids(self, messages: Sequence[Mapping[str, Any]], tools: Any) -> tuple[list[int], bool]:
        """Ids of a chat prompt under the server's own template."""
        body: dict[str, Any] = {"messages": list(messages), "add_generation_prompt": True}
        if tools:
            body["tools"] = tools
        return self._ids(body), True

    def _ids(self, body: dict[str, Any]) -> list[int]:
        answer = self._post(body)
        ids = answer.get("tokens") if isinstance(answer, Mapping) else None
        if not isinstance(ids, list):
            raise InputError(f"{_OPTION}: {self._url} answered without tokens; allowed: vLLM's /tokenize")
        return ids

    def _post(self, body: dict[str, Any]) -> Any:
        try:
            with self._session.post(
                self._url, json=body, timeout=TIMEOUT_S, allow_redirects=False, stream=True
            ) as response:
                content = _bounded(response)
                if response.status_code != requests.codes.ok:
                    said = short(content.decode("utf-8", errors="replace"))
                    raise InputError(f"{_OPTION}: {self._url} answered {response.status_code}: {said}")
        except requests.RequestException as error:
            raise InputError(f"{_OPTION}: no answer from {self._url}: {type(error).__name__}") from None
        try:
            return json.loads(content)
        except (ValueError, RecursionError):
            raise InputError(f"{_OPTION}: {self._url} answered no JSON; allowed: vLLM's /tokenize") from None


def _endpoint(url: str) -> str:
    """The address of `/tokenize`; user and password in an address would be printed with it, so they are refused."""
    try:
        parts = urlsplit(url.strip())
        host, _ = parts.hostname, parts.port
    except ValueError:
        host, parts = None, urlsplit("")
    if parts.scheme not in ("http", "https") or not host:
        raise InputError(f"{_OPTION}: got {short(url)}, allowed: http://HOST:PORT")
    if parts.username is not None or parts.password is not None:
        raise InputError(f"{_OPTION}: the address holds a user or password; allowed: --api-key-env NAME")
    path = parts.path.rstrip("/").removesuffix("/tokenize").removesuffix("/v1")
    return f"{parts.scheme}://{parts.netloc}{path}/tokenize"


def _authorisation(variable: str | None) -> dict[str, str]:
    if variable is None:
        return {}
    key = os.environ.get(variable, "").strip()
    if not key:
        raise InputError(f"--api-key-env: no environment variable {short(variable)}, or it is empty")
    if not key.isascii() or not key.isprintable():
        raise InputError(f"--api-key-env: {short(variable)} holds no key (line breaks or other characters)")
    return {"Authorization": f"Bearer {key}"}


def _bounded(response: requests.Response) -> bytes:
    content = bytearray()
    for chunk in response.iter_content(_CHUNK_BYTES):
        content += chunk
        if len(content) > MAX_ANSWER_BYTES:
            raise InputError(f"{_OPTION}: the answer is larger than {MAX_ANSWER_BYTES} bytes")
    return bytes(content)
