"""The answers in one JSON object, whatever tool logged it.

In this order: token ids, a response with `choices` (beside its request, or alone), a list of chunks, vLLM's `outputs`,
plain text, a conversation that ends with the assistant. Requests and responses are found by what they hold, up to two
objects deep, not by the names of the keys around them.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from calibration.replay.sources.answers import (
    Answer,
    BadRecordError,
    Prompt,
    content_text,
    message_text,
    named,
    prompt_of,
    sampling_of,
    token_ids,
)
from calibration.replay.sources.responses import as_chat
from calibration.replay.sources.streams import is_chunk, streamed
from simulator.deployment.keys import short

_TEXT_KEYS = ("text", "output", "response", "completion", "generated_text", "answer")
_ROLES = {"human": "user", "gpt": "assistant", "model": "assistant"}  # of shared conversations
_ALLOWED = "allowed: token_ids, text, output, response, or an OpenAI response with choices"
_SEARCHED_DEPTH = 2  # {"request": {"body": {...}}}, as batch files have it


def answers_in(record: Any) -> list[Answer]:
    """All answers of a record; none for the log of a request that failed. BadRecordError where nothing is known."""
    return named(_answers_in(record), _name_of(record))


def _name_of(record: Any) -> Any:
    """The id of a request, the response's own first; None where it has none."""
    inside = sorted(_objects(record), key=lambda item: not _is_response(item)) if isinstance(record, Mapping) else []
    return next((item[key] for item in inside for key in ("id", "request_id") if item.get(key) is not None), None)


def _answers_in(record: Any) -> list[Answer]:
    if not isinstance(record, Mapping):
        raise BadRecordError(f"got {short(repr(record))}, allowed: a JSON object")
    if record.get("token_ids") is not None:  # whatever else the record holds
        ids = token_ids(record["token_ids"], "token_ids")
        return [Answer(prompt_of(record), ids=ids, sampling=sampling_of(record))]
    inside = list(_objects(record))
    request = next((item for item in sorted(inside, key=_is_response) if _is_request(item)), {})
    response = next(filter(_is_response, inside), None)
    if response is not None:
        return _of_response(response, request, record)
    for events in _lists(inside):
        if events and all(map(is_chunk, events)):
            return streamed(events, prompt_of(request), sampling_of(request, record))
    found = _of_outputs(inside, record) or _of_plain(record, request) or _of_conversation(record)
    if found:
        return found
    if any(item.get("error") for item in inside):
        return []
    raise BadRecordError(f"no output among {short(', '.join(map(str, record)) or 'no keys')}, {_ALLOWED}")


def _objects(record: Mapping[str, Any], depth: int = _SEARCHED_DEPTH) -> Iterator[Mapping[str, Any]]:
    """The object itself and those inside it, outer ones first; a text that holds an object counts as one."""
    yield as_chat(record)
    inner = [_parsed(value) for value in record.values()] if depth else []
    for value in inner:
        if isinstance(value, Mapping):
            yield from _objects(value, depth - 1)


def _parsed(value: Any) -> Any:
    if isinstance(value, str) and value.startswith("{") and value.rstrip().endswith("}"):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _lists(objects: list[Mapping[str, Any]]) -> Iterator[list[Any]]:
    for item in objects:
        yield from (value for value in item.values() if isinstance(value, list))


def _is_request(item: Mapping[str, Any]) -> bool:
    return any(item.get(name) is not None for name in ("messages", "prompt", "prompt_token_ids"))


def _is_response(item: Mapping[str, Any]) -> bool:
    return isinstance(item.get("choices"), list)


def _of_response(response: Mapping[str, Any], request: Mapping[str, Any], record: Mapping[str, Any]) -> list[Answer]:
    sampling = sampling_of(request, record)
    if is_chunk(response):
        return streamed([response], prompt_of(request), sampling)
    choices = response["choices"]
    usage = response.get("usage")
    counted = usage.get("completion_tokens") if isinstance(usage, Mapping) else None
    own = response.get("prompt_token_ids")
    prompts = _prompts(request, len(choices))
    found = []
    for prompt, choice in zip(prompts, choices, strict=True):
        if not isinstance(choice, Mapping):
            raise BadRecordError(f"a choice is {short(repr(choice))}, allowed: an object")
        ids = choice.get("prompt_token_ids", own) if choice.get("prompt_token_ids") is not None else own
        said = Prompt(ids=token_ids(ids, "prompt_token_ids")) if ids is not None else prompt
        alone = counted if type(counted) is int and len(choices) == 1 else None
        found.append(_choice(choice, said, sampling_of(request, record), alone))
    return found


def _prompts(request: Mapping[str, Any], number: int) -> list[Prompt]:
    """The prompt of each choice; a completions request may hold several prompts, each with as many choices."""
    prompt = request.get("prompt")
    several = isinstance(prompt, list) and len(prompt) > 1 and isinstance(prompt[0], str | list)
    if not several:
        return [prompt_of(request)] * number
    assert isinstance(prompt, list)
    each = max(number // len(prompt), 1)
    return [prompt_of({"prompt": prompt[min(index // each, len(prompt) - 1)]}) for index in range(number)]


def _choice(choice: Mapping[str, Any], prompt: Prompt, sampling: Any, counted: int | None) -> Answer:
    ids = choice.get("token_ids")
    if ids is not None:
        return Answer(prompt, ids=token_ids(ids, "token_ids"), sampling=sampling, counted_tokens=counted)
    message = choice.get("message")
    text = message_text(message) if isinstance(message, Mapping) else content_text(choice.get("text"))
    return Answer(prompt, text=text, sampling=sampling, counted_tokens=counted)


def _of_outputs(objects: list[Mapping[str, Any]], record: Mapping[str, Any]) -> list[Answer]:
    """vLLM's RequestOutput: `outputs` with `token_ids` or `text` each; `generated_texts` of a detailed benchmark."""
    for item in objects:
        outputs = item.get("outputs")
        if isinstance(outputs, list) and outputs and all(isinstance(entry, Mapping) for entry in outputs):
            prompt, sampling = prompt_of(item), sampling_of(record)
            return [_choice(entry, prompt, sampling, None) for entry in outputs]
    texts = record.get("generated_texts")
    if isinstance(texts, list) and all(isinstance(text, str) for text in texts):
        return [Answer(Prompt(), text=text, sampling=sampling_of(record)) for text in texts]
    return []


def _of_plain(record: Mapping[str, Any], request: Mapping[str, Any]) -> list[Answer]:
    prompt, sampling = request or record, sampling_of(record, request)
    for key in _TEXT_KEYS:
        value = record.get(key)
        if isinstance(value, str):
            return [Answer(prompt_of(prompt), text=value, sampling=sampling)]
        if isinstance(value, Mapping) and ("content" in value or "tool_calls" in value):
            return [Answer(prompt_of(prompt), text=message_text(value), sampling=sampling)]
    return []


def _of_conversation(record: Mapping[str, Any]) -> list[Answer]:
    """A conversation whose last message is the assistant's: that one is the output, the others are the prompt."""
    turns = record.get("messages", record.get("conversations"))
    if not isinstance(turns, list) or not turns or not all(isinstance(turn, Mapping) for turn in turns):
        return []
    messages = tuple(turn if "role" in turn else _turn(turn) for turn in turns)
    if messages[-1].get("role") != "assistant":
        return []
    prompt = Prompt(messages=messages[:-1], tools=record.get("tools"))
    return [Answer(prompt, text=message_text(messages[-1]), sampling=sampling_of(record))]


def _turn(turn: Mapping[str, Any]) -> Mapping[str, Any]:
    speaker = turn.get("from")
    return {"role": _ROLES.get(speaker, speaker) if isinstance(speaker, str) else "", "content": turn.get("value")}
