"""The prompts of a measurement: the set that ships with draftcast, a file, or recorded traffic; in a fixed order.

The n-th request of a cell has the same prompt in every cell and every run with the same seed, so that cells can be
compared; kinds take turns, so that a few requests hold some of each.
"""

import hashlib
import json
import random
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from calibration.readers.values import load_json, load_lines, shown
from hwmodel.errors import InputError
from hwmodel.files import read_bounded
from hwmodel.units import MB
from simulator.deployment.keys import short

MAX_FILE_BYTES = int(256 * MB)
MAX_PROMPTS = 100_000
MAX_PROMPT_CHARACTERS = 4_000_000  # a million tokens
MAX_OUTPUT_TOKENS = 1_000_000
_ANY = "any"
# Where the text of a request stands in what tools and proxies record, in the order in which they are looked for.
_BODIES = ("body", "request", "request_body", "payload")
_TEXTS = ("prompt", "instruction", "input", "text", "question", "query", "content")
_LENGTHS = ("max_tokens", "max_completion_tokens", "max_output_tokens", "output_tokens", "output_len")
_KINDS = ("kind", "category", "type", "task")
_TOML_START = "[[prompt]]"
_USERS = ("user", "human")


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request to be: a text, or the messages of a chat, or token ids."""

    text: str | None = None
    messages: tuple[Mapping[str, Any], ...] | None = None
    token_ids: tuple[int, ...] | None = None
    kind: str = _ANY
    max_tokens: int | None = None  # as recorded


@dataclass(frozen=True, slots=True)
class PromptSet:
    """All prompts of a source; `sha256` is of its bytes."""

    prompts: tuple[Prompt, ...]
    source: str
    sha256: str

    def order(self, seed: int) -> list[Prompt]:
        """The prompts in the order of this seed: shuffled within their kinds, the kinds in turn."""
        generator = random.Random(seed)
        kinds: dict[str, list[Prompt]] = {}
        for prompt in self.prompts:
            kinds.setdefault(prompt.kind, []).append(prompt)
        for group in kinds.values():
            generator.shuffle(group)
        # Each prompt at its share of its kind's way: kinds of different size are spread evenly.
        places = [
            ((place + 0.5) / len(group), rank, prompt)
            for rank, group in enumerate(kinds.values())
            for place, prompt in enumerate(group)
        ]
        return [prompt for _, _, prompt in sorted(places, key=lambda item: item[:2])]

    def to_dict(self) -> dict[str, Any]:
        """For the record."""
        kinds: dict[str, int] = {}
        for prompt in self.prompts:
            kinds[prompt.kind] = kinds.get(prompt.kind, 0) + 1
        return {"source": self.source, "sha256": self.sha256, "prompts": len(self.prompts), "kinds": kinds}


@dataclass(slots=True)
class Order:
    """The prompts of one cell, without end."""

    prompts: Sequence[Prompt]
    next_number: int = field(default=0)

    def take(self) -> tuple[int, Prompt]:
        """The next request's number, from 0, and its prompt."""
        number = self.next_number
        self.next_number += 1
        return number, self.prompts[number % len(self.prompts)]


def shipped_prompts() -> PromptSet:
    """Code, prose, chat, JSON and repetitive text, written for draftcast."""
    data = resources.files("validate").joinpath("data/prompts.toml").read_bytes()
    return PromptSet(tuple(_toml_prompts(data, "the shipped prompts")), "shipped", hashlib.sha256(data).hexdigest())


def read_prompts(path: str) -> PromptSet:
    """The prompts of a file: JSON, JSON lines, TOML, or text with one prompt a line; `InputError` for anything else."""
    data = _read(path)
    prompts = _parsed(data, path)
    if not prompts:
        raise InputError(f"{shown(path)}: no prompt in it; allowed: {_ALLOWED}")
    if len(prompts) > MAX_PROMPTS:
        raise InputError(f"{shown(path)}: {len(prompts)} prompts, allowed: at most {MAX_PROMPTS}")
    return PromptSet(tuple(prompts), shown(path), hashlib.sha256(data).hexdigest())


_ALLOWED = (
    "JSON or JSON lines with prompt, messages, prompt_token_ids or conversations, TOML with [[prompt]] tables, "
    "or text with one prompt a line"
)


def _read(path: str) -> bytes:
    return read_bounded(
        path,
        MAX_FILE_BYTES,
        unreadable=f"cannot read {shown(path)}: {{reason}}; allowed: a file of prompts",
        too_large=f"{shown(path)} is larger than {MAX_FILE_BYTES} bytes; allowed: a file of prompts",
    )


def _parsed(data: bytes, path: str) -> list[Prompt]:
    try:
        content = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{shown(path)} is not UTF-8 text (byte {error.start}); allowed: {_ALLOWED}") from error
    start = content.lstrip()
    is_toml = path.lower().endswith(".toml") or start.startswith(_TOML_START)
    if start.startswith(("{", "[", '"')) and not is_toml:
        return [_prompt(record, f"{shown(path)} {place}") for place, record in _records(content, path)]
    if is_toml:
        return _toml_prompts(data, shown(path))
    return [_checked(Prompt(text=line.strip()), shown(path)) for line in content.splitlines() if line.strip()]


def _records(content: str, path: str) -> list[tuple[str, Any]]:
    """(place, value) of every record of a JSON list or of JSON lines."""
    try:
        whole = json.loads(content)
    except RecursionError:
        whole = load_json(content, path)
    except ValueError:
        return [(f"line {line}", record) for line, record in load_lines(content, path)]
    records = whole if isinstance(whole, list) else next(
        (whole[name] for name in ("prompts", "requests", "data") if isinstance(whole.get(name), list)), [whole]
    ) if isinstance(whole, dict) else [whole]  # fmt: skip
    return [(f"[{index}]", record) for index, record in enumerate(records)]


def _toml_prompts(data: bytes, path: str) -> list[Prompt]:
    try:
        tables = tomllib.loads(data.decode("utf-8-sig")).get("prompt")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path}: no TOML ({short(str(error))}); allowed: [[prompt]] tables with text") from error
    if not isinstance(tables, list):
        raise InputError(f"{path}: no [[prompt]] table; allowed: [[prompt]] tables with text and kind")
    return [_prompt(table, f"{path} [[prompt]] {index}") for index, table in enumerate(tables, start=1)]


def _prompt(record: Any, place: str) -> Prompt:
    """The prompt of one record, in the shape of whichever tool wrote it."""
    if isinstance(record, str):
        return _checked(Prompt(text=record), place)
    if not isinstance(record, dict):
        raise InputError(f"{place}: got {type(record).__name__}, allowed: a text or an object; {_ALLOWED}")
    body = next((record[name] for name in _BODIES if isinstance(record.get(name), dict)), record)
    found = _messages(body) or _ids(body) or _text(body)
    if found is None:
        keys = ", ".join(short(str(key), 30) for key in list(body)[:6]) or "nothing"
        raise InputError(f"{place}: no prompt in an object with {keys}; allowed: {_ALLOWED}")
    kind = next((str(record[name]) for name in _KINDS if isinstance(record.get(name), str)), _ANY)
    return _checked(
        Prompt(found.text, found.messages, found.token_ids, short(kind, 40), _max_tokens(body, record)), place
    )


def _messages(body: Mapping[str, Any]) -> Prompt | None:
    """A chat: OpenAI's messages, or the first turn of ShareGPT's conversations or of a list of turns."""
    messages = body.get("messages")
    if isinstance(messages, list) and messages and all(isinstance(item, dict) and "role" in item for item in messages):
        return Prompt(messages=tuple(_until_answer(messages)))
    turns = body.get("conversations") or body.get("conversation")
    if isinstance(turns, list):
        texts = [
            turn.get("value") or turn.get("content")
            for turn in turns
            if isinstance(turn, dict) and (turn.get("from") or turn.get("role")) in _USERS
        ]
        return Prompt(text=texts[0]) if texts and isinstance(texts[0], str) else None
    listed = body.get("turns")
    return Prompt(text=listed[0]) if isinstance(listed, list) and listed and isinstance(listed[0], str) else None


def _until_answer(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without the answer that a record may end with: it is what the server is to say."""
    kept = list(messages)
    while len(kept) > 1 and kept[-1].get("role") == "assistant":
        kept.pop()
    return kept


def _ids(body: Mapping[str, Any]) -> Prompt | None:
    for name in ("prompt_token_ids", "prompt", "input_ids"):
        ids = body.get(name)
        if isinstance(ids, list) and ids and all(type(item) is int and item >= 0 for item in ids):
            return Prompt(token_ids=tuple(ids))
    return None


def _text(body: Mapping[str, Any]) -> Prompt | None:
    for name in _TEXTS:
        text = body.get(name)
        if isinstance(text, list) and text and isinstance(text[0], str):
            text = text[0]  # completions take a list of prompts
        if isinstance(text, str) and text.strip():
            extra = body.get("input") if name == "instruction" else None
            return Prompt(text=f"{text}\n\n{extra}" if isinstance(extra, str) and extra else text)
    return None


def _max_tokens(*records: Mapping[str, Any]) -> int | None:
    found = (record.get(name) for record in records for name in _LENGTHS)
    return next((value for value in found if type(value) is int and 1 <= value <= MAX_OUTPUT_TOKENS), None)


def _checked(prompt: Prompt, place: str) -> Prompt:
    size = len(prompt.text or "") + len(prompt.token_ids or ()) + sum(len(str(item)) for item in prompt.messages or ())
    if size > MAX_PROMPT_CHARACTERS:
        raise InputError(f"{place}: a prompt of {size} characters, allowed: at most {MAX_PROMPT_CHARACTERS}")
    return prompt
