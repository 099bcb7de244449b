"""What one server understands beside the bare request: found out with one small request, extras dropped one by one.

Extras: token ids in every chunk (exact tokens of every step), usage in every chunk, a cache salt, usage at the end.
What a server refuses with HTTP 400 or 422 is left out; what it ignores shows in its answer.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hwmodel.errors import InputError
from validate.client.answers import Answer
from validate.client.connection import Connection
from validate.client.faults import FaultError
from validate.measure.prompts import Prompt
from validate.measure.settings import DEFAULT_OUTPUT_TOKENS, Load

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
_PROBE_TOKENS = 8
_REFUSED_FIELD = (400, 422)
_NOT_THERE = (404, 405, 501)
_NAMES = {
    "token_ids": ("return_token_ids",),
    "continuous_usage": ("continuous_usage_stats",),
    "salt": ("cache_salt",),
    "usage": ("stream_options", "include_usage"),
}


@dataclass(frozen=True, slots=True)
class Dialect:
    """How requests to this server are written."""

    path: str
    model: str
    load: Load
    token_ids: bool = True
    continuous_usage: bool = True
    salt: bool = True
    usage: bool = True

    @property
    def is_chat(self) -> bool:
        """Whether prompts go as messages."""
        return self.path == CHAT

    @property
    def prefix(self) -> str:
        """What keeps one request from finding another's prompt in the prefix cache: "salt", "random text", "none"."""
        if self.load.prefix_cache == "allow":
            return "none"
        return "salt" if self.salt else "random text"

    def body(self, prompt: Prompt, unique: str, max_tokens: int | None = None) -> dict[str, Any]:
        """The request for `prompt`; `unique` is a word that no other request has."""
        body: dict[str, Any] = {"model": self.model, "stream": True}
        body |= self._input(prompt, unique)
        body["max_tokens"] = max_tokens or self.output_tokens(prompt)
        if self.load.temperature is not None:
            body["temperature"] = self.load.temperature
        if self.load.ignore_eos:
            body["ignore_eos"] = True
        return body | self._extras(unique)

    def output_tokens(self, prompt: Prompt) -> int:
        """The most tokens that an answer to `prompt` may have."""
        return self.load.output_tokens or prompt.max_tokens or DEFAULT_OUTPUT_TOKENS

    def _input(self, prompt: Prompt, unique: str) -> dict[str, Any]:
        mark = f"[{unique}]\n" if self.prefix == "random text" else ""
        if not self.is_chat:
            return {"prompt": list(prompt.token_ids) if prompt.token_ids else mark + _flat(prompt)}
        messages = [dict(item) for item in prompt.messages or ({"role": "user", "content": prompt.text},)]
        if mark and isinstance(messages[0].get("content"), str):
            messages[0]["content"] = mark + messages[0]["content"]
        return {"messages": messages}

    def _extras(self, unique: str) -> dict[str, Any]:
        extras: dict[str, Any] = {}
        if self.usage:
            extras["stream_options"] = {"include_usage": True}
            if self.continuous_usage:
                extras["stream_options"]["continuous_usage_stats"] = True
        if self.token_ids:
            extras["return_token_ids"] = True
        if self.prefix == "salt":
            extras["cache_salt"] = unique
        return extras


def find_dialect(
    connection: Connection, model: str, load: Load, prompt: Prompt, unique: str
) -> tuple[Dialect, Answer, list[str]]:
    """(the dialect, the answer to the request that found it, what was learnt); `FaultError` where nothing works."""
    dialect = Dialect(_first_path(load, prompt), model, load)
    notes: list[str] = []
    while True:
        tokens = min(_PROBE_TOKENS, dialect.output_tokens(prompt))
        try:
            answer = connection.stream(dialect.path, dialect.body(prompt, unique, tokens))
        except FaultError as error:
            changed, note = _without(dialect, error, prompt)
            if changed is None:
                raise
            dialect = changed
            notes.append(note)
            continue
        return _settled(dialect, answer), answer, notes


def _first_path(load: Load, prompt: Prompt) -> str:
    """Chats as chats, token ids as completions, texts as the load says: chats where the server has a template."""
    if load.api == "chat" and prompt.token_ids:
        raise InputError("prompts of token ids cannot be sent as chats, allowed: --api completions")
    if load.api == "completions" or prompt.token_ids:
        return COMPLETIONS
    return CHAT


def _without(dialect: Dialect, error: FaultError, prompt: Prompt) -> tuple[Dialect | None, str]:
    """The dialect without what the server has just refused, and a note on it; None where nothing is left to drop."""
    status, words = error.fault.status, error.fault.message.lower()
    auto_chat = dialect.is_chat and dialect.load.api == "auto" and not prompt.messages
    if auto_chat and (status in _NOT_THERE or (status in _REFUSED_FIELD and "template" in words)):
        return replace(
            dialect, path=COMPLETIONS
        ), "the server has no chat template or address: prompts go as plain text"
    if status not in _REFUSED_FIELD:
        return None, ""
    held = [extra for extra in _NAMES if getattr(dialect, extra)]
    named = [extra for extra in held if any(name in words for name in _NAMES[extra])]
    if not held:
        return None, ""
    dropped = (named or held)[0]
    change: Mapping[str, Any] = {dropped: False}
    return replace(dialect, **change), f"the server refuses {_NAMES[dropped][0]}: done without it"


def _settled(dialect: Dialect, answer: Answer) -> Dialect:
    """With token ids in the answer, usage in every chunk tells nothing more and is not asked for."""
    return replace(dialect, continuous_usage=False) if answer.counted_by == "token_ids" else dialect


def _flat(prompt: Prompt) -> str:
    """A prompt as plain text; a chat as its messages one below the other."""
    if prompt.text is not None:
        return prompt.text
    return "\n\n".join(f"{item.get('role')}: {item.get('content')}" for item in prompt.messages or ())
