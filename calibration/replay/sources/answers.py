"""What a source says about one prompt and one output, before any text is turned into token ids."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from calibration.replay.recording import Ints
from hwmodel.errors import InputError
from simulator.deployment.keys import short

MAX_TOKEN_ID = 2**31 - 1  # engines keep ids in 32 bits
# Request parameters that turn text lookup off in vLLM up to 0.13 unless they have this value (engines' docs, 0.13).
_NEUTRAL = {"frequency_penalty": 0, "presence_penalty": 0, "repetition_penalty": 1, "min_p": 0, "logprobs": False}


class BadRecordError(InputError):
    """A record that cannot be used; the reader adds where it stands."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt in the best form that the source has; all None where it has none."""

    ids: Ints | None = None
    text: str | None = None
    messages: tuple[Mapping[str, Any], ...] | None = None
    tools: Any = None  # of a chat request: part of what its template writes


@dataclass(frozen=True, slots=True)
class Sampling:
    """What a request says about how its answer was sampled."""

    temperature: float | None = None
    max_tokens: int | None = None
    undraftable: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """One output: token ids, or text; `counted_tokens` is the server's own count.

    `name` is that of its request and choice; empty where the source gives none.
    """

    prompt: Prompt
    ids: Ints | None = None
    text: str | None = None
    sampling: Sampling = Sampling()
    counted_tokens: int | None = None
    name: str = ""


def named(answers: list[Answer], request: Any) -> list[Answer]:
    """The answers of one request with its name, where it has one."""
    if isinstance(request, bool) or not isinstance(request, str | int) or request == "":
        return answers
    return [replace(answer, name=f"{request} {choice}") for choice, answer in enumerate(answers)]


def token_ids(value: Any, what: str) -> Ints:
    """The ids as an array; BadRecordError for anything but a list of whole numbers of 32 bits."""
    if not isinstance(value, list) or not set(map(type, value)) <= {int}:
        raise BadRecordError(f"{what} is {short(repr(value))}, allowed: a list of token ids")
    if value and not (min(value) >= 0 and max(value) <= MAX_TOKEN_ID):
        raise BadRecordError(f"{what} has an id outside 0 to {MAX_TOKEN_ID}")
    return np.array(value, dtype=np.int64)


def is_ids(value: Any) -> bool:
    """Whether `value` is a list that starts like token ids: an empty list, or one with a number first."""
    return isinstance(value, list) and (not value or type(value[0]) in (int, float, bool))


def prompt_of(source: Mapping[str, Any]) -> Prompt:
    """The prompt in an object with `prompt_token_ids`, `prompt` or `messages`."""
    ids, text, messages = source.get("prompt_token_ids"), source.get("prompt"), source.get("messages")
    if ids is not None:
        return Prompt(ids=token_ids(ids, "prompt_token_ids"))
    if isinstance(text, str):
        return Prompt(text=text)
    if text and is_ids(text):
        return Prompt(ids=token_ids(text, "prompt"))
    if messages is not None:
        return Prompt(messages=_messages(messages), tools=source.get("tools"))
    if isinstance(text, list) and len(text) == 1:
        return prompt_of({"prompt": text[0]})
    if text is not None:
        raise BadRecordError(f"prompt is {short(repr(text))}, allowed: a text or a list of token ids")
    return Prompt()


def _messages(value: Any) -> tuple[Mapping[str, Any], ...]:
    if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
        raise BadRecordError(f"messages is {short(repr(value))}, allowed: a list of objects with role and content")
    return tuple(value)


def content_text(content: Any) -> str:
    """The text of a message's content: a string, or the text parts of a list; nothing for anything else."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, Mapping)]
        return "".join(part for part in parts if isinstance(part, str))
    return ""


def message_text(message: Mapping[str, Any]) -> str:
    """All text that a message made the model write: reasoning under either name, content, tool calls.

    vLLM 0.11.2 to 0.14 sends the reasoning under both names: it counts once.
    """
    reasoning = [content_text(message.get(name)) for name in ("reasoning_content", "reasoning")]
    parts = [reasoning[0] or reasoning[1], content_text(message.get("content"))]
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping):
            parts += [content_text(function.get("name")), content_text(function.get("arguments"))]
    return "".join(parts)


def sampling_of(*sources: Mapping[str, Any]) -> Sampling:
    """The sampling parameters that any of the sources states, the first one winning."""
    stated = {key: value for source in reversed(sources) for key, value in source.items() if value is not None}
    limit = stated.get("max_completion_tokens", stated.get("max_tokens"))
    temperature = stated.get("temperature")
    off = [name for name, neutral in _NEUTRAL.items() if name in stated and _differs(stated[name], neutral)]
    return Sampling(
        temperature=float(temperature) if temperature is not None and _is_number(temperature) else None,
        max_tokens=limit if type(limit) is int and limit > 0 else None,
        undraftable=off[0] if off else None,
    )


def _differs(value: Any, neutral: float) -> bool:
    """Whether a parameter is set to something else than "off"; `logprobs: 0` asks for the sampled token's own."""
    if neutral is False:
        return value is True or type(value) is int
    return _is_number(value) and value != neutral


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
