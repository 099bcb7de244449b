"""Requests, responses and events of OpenAI's Responses API, in the shape of a chat's.

What vLLM and SGLang serve as `/v1/responses`: `input` and `instructions` ask, a list `output` of items answers.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from calibration.replay.sources.answers import content_text

_FINAL = ("response.completed", "response.incomplete", "response.failed")  # events that hold the whole response


def as_chat(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """A request or response of that API as one of a chat; anything else as it is."""
    output, asked = item.get("output"), item.get("input")
    if item.get("object") == "response" and isinstance(output, list):
        usage = item.get("usage")
        counted = usage.get("output_tokens") if isinstance(usage, Mapping) else None
        said = {"choices": [{"message": _message(output)}], "usage": {"completion_tokens": counted}}
        return {**said, **{key: item[key] for key in ("id",) if key in item}}
    if "model" in item and isinstance(asked, str | list) and "messages" not in item:
        return {**item, "messages": list(_messages(item.get("instructions"), asked))}
    return item


def is_event(record: Any) -> bool:
    """Whether a record is an event of a stream of that API."""
    kind = record.get("type") if isinstance(record, Mapping) else None
    return isinstance(kind, str) and kind.startswith("response.")


def is_partial_event(record: Any) -> bool:
    """Whether a record is such an event that a later one of the same stream repeats in whole."""
    return is_event(record) and record["type"] not in _FINAL


def _message(output: list[Any]) -> Mapping[str, Any]:
    """What the model wrote: reasoning, text, calls of functions."""
    items = [item for item in output if isinstance(item, Mapping)]
    calls = [{"function": {"name": item.get("name"), "arguments": item.get("arguments")}}
             for item in items if item.get("type") == "function_call"]  # fmt: skip
    texts = {kind: [content_text(item.get("content")) for item in items if item.get("type") == kind]
             for kind in ("reasoning", "message")}  # fmt: skip
    return {"reasoning": "".join(texts["reasoning"]), "content": "".join(texts["message"]), "tool_calls": calls}


def _messages(instructions: Any, asked: str | list[Any]) -> Iterator[Mapping[str, Any]]:
    if isinstance(instructions, str) and instructions:
        yield {"role": "system", "content": instructions}
    for item in [{"role": "user", "content": asked}] if isinstance(asked, str) else asked:
        if not isinstance(item, Mapping) or item.get("type") == "reasoning":
            continue
        if item.get("type") == "function_call_output":
            yield {"role": "tool", "content": content_text(item.get("output"))}
        elif item.get("type") == "function_call":
            yield {"role": "assistant", "content": content_text(item.get("name")) + content_text(item.get("arguments"))}
        else:
            yield {"role": item.get("role", "user"), "content": content_text(item.get("content"))}
