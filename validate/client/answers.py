"""One streamed answer of an OpenAI-compatible server: when its tokens came, and how many they were.

Tokens are counted from `token_ids` (vLLM's `return_token_ids`), else from `usage`, never from chunks: with speculation
a chunk is one engine step and carries 1 to 1 + k tokens, and a server may join several steps in one chunk.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from simulator.deployment.keys import short

DONE = b"[DONE]"
MAX_GARBAGE = 100  # events that are no JSON, after which a stream is none of a model
_MAX_HISTOGRAM = 65
_TEXTS = ("content", "reasoning", "reasoning_content", "refusal")


@dataclass(slots=True)
class Answer:
    """What came back for one request; times in seconds of the monotonic clock.

    `chunk_times_s` and `chunk_tokens` hold the chunks that brought tokens, in order; `chunk_tokens` is empty where the
    server told only the sum.
    """

    start_s: float
    end_s: float = 0.0
    chunk_times_s: list[float] = field(default_factory=list)
    chunk_tokens: list[int] = field(default_factory=list)
    output_tokens: int | None = None
    counted_by: str = "nothing"  # "token_ids", "usage" (on every chunk), "final usage"
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    finish_reason: str | None = None
    token_ids: list[int] = field(default_factory=list)
    prompt_token_ids: list[int] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    has_reasoning: bool = False
    has_tool_calls: bool = False
    num_garbage: int = 0  # events that are no JSON object, or lines too long to keep
    counts_differ: bool = False  # token_ids and usage tell different numbers
    acceptance_histogram: tuple[int, ...] | None = None  # steps by accepted drafts, as the server tells them
    fingerprint: str | None = None

    @property
    def ttft_s(self) -> float | None:
        """From sending the request to its first token; None without one."""
        return self.chunk_times_s[0] - self.start_s if self.chunk_times_s else None

    @property
    def e2e_s(self) -> float:
        """From sending the request to its last token, to its end without one."""
        return (self.chunk_times_s[-1] if self.chunk_times_s else self.end_s) - self.start_s

    @property
    def first_tokens(self) -> int:
        """Tokens of the first chunk: one, unless the server joined steps."""
        return self.chunk_tokens[0] if self.chunk_tokens else 1

    @property
    def decode_tokens(self) -> int | None:
        """Tokens after the first chunk; None where they were not counted."""
        return None if self.output_tokens is None else max(0, self.output_tokens - self.first_tokens)

    @property
    def tpot_s(self) -> float | None:
        """Time per output token after the first.

        Formula: (last token - first token) / (output tokens - tokens of the first chunk).
        """
        tokens = self.decode_tokens
        if not tokens or len(self.chunk_times_s) < 2:
            return None
        return (self.chunk_times_s[-1] - self.chunk_times_s[0]) / tokens


class AnswerReader:
    """Builds an `Answer` from the events of its stream."""

    def __init__(self, start_s: float, *, keep: bool = False) -> None:
        """The request was sent at `start_s`; `keep` also keeps token ids and text."""
        self.answer = Answer(start_s)
        self.error: str | None = None
        self.is_done = False  # the server has said so
        self._keep = keep
        self._by_ids: list[int] = []
        self._by_usage: list[int] = []  # cumulative, one per chunk
        self._usage: int | None = None
        self._steady_usage = True
        self._finish_s: float | None = None

    def event(self, data: bytes, time_s: float) -> None:
        """Takes one event that arrived at `time_s`."""
        if data == DONE:
            self.is_done = True
            return
        for chunk in self._chunks(data):
            self._take(chunk, time_s)

    def finish(self, time_s: float, num_oversized: int = 0) -> Answer:
        """The answer, its tokens counted by the best route there is."""
        answer = self.answer
        answer.end_s = time_s
        answer.num_garbage += num_oversized
        told, counted = self._usage, sum(self._by_ids)
        if counted and (all(self._by_ids) or told == counted):
            answer.counted_by, answer.output_tokens = "token_ids", counted
            self._drop_empty_chunks()
            answer.counts_differ = told is not None and told != counted
        elif answer.chunk_times_s and told and self._steady_usage and self._by_usage:
            answer.counted_by, answer.output_tokens = "usage", told
            answer.chunk_tokens = _differences(self._by_usage, told)
        elif told is not None:
            answer.counted_by, answer.output_tokens = "final usage", told
            if self._finish_s is not None and answer.chunk_times_s and self._finish_s > answer.chunk_times_s[-1]:
                answer.chunk_times_s.append(self._finish_s)  # the last token may have no text
        return answer

    def _drop_empty_chunks(self) -> None:
        """Leaves the chunks with token ids: text that was held back may follow in a chunk without any."""
        answer = self.answer
        times_s = answer.chunk_times_s
        answer.chunk_times_s = [time_s for time_s, ids in zip(times_s, self._by_ids, strict=True) if ids]
        answer.chunk_tokens = [ids for ids in self._by_ids if ids]

    def _chunks(self, data: bytes) -> list[Mapping[str, Any]]:
        """The JSON objects of an event: one; several where a server forgot the empty lines between them."""
        chunk = _object(data)
        if chunk is not None:
            return [chunk]
        parts = [_object(line) for line in data.split(b"\n") if line and line != DONE] if b"\n" in data else []
        if b"\n" in data and DONE in data.split(b"\n"):
            self.is_done = True
        found = [part for part in parts if part is not None]
        if not found:
            self.answer.num_garbage += 1
        return found

    def _take(self, chunk: Mapping[str, Any], time_s: float) -> None:
        if chunk.get("error") or chunk.get("object") == "error":
            self.error = message_of(chunk)
            return
        usage = chunk.get("usage")
        told = self._told(usage) if isinstance(usage, dict) else None
        choices = chunk.get("choices")
        if isinstance(choices, list) and choices and isinstance(choices[0], dict):
            self._choice(choices[0], chunk, told, time_s)
        self._extras(chunk)

    def _told(self, usage: Mapping[str, Any]) -> int | None:
        answer = self.answer
        answer.prompt_tokens = _count(usage.get("prompt_tokens"), answer.prompt_tokens)
        details = usage.get("prompt_tokens_details")
        if isinstance(details, dict):
            answer.cached_tokens = _count(details.get("cached_tokens"), answer.cached_tokens)
        told = _count(usage.get("completion_tokens"), None)
        if told is not None:
            self._usage = max(told, self._usage or 0)
        return told

    def _choice(self, choice: Mapping[str, Any], chunk: Mapping[str, Any], told: int | None, time_s: float) -> None:
        ids = choice.get("token_ids")
        num_ids = len(ids) if isinstance(ids, list) else 0
        has_text = self._texts(choice)
        if num_ids and self._keep and isinstance(ids, list):
            self.answer.token_ids += ids
        prompt_ids = choice.get("prompt_token_ids") or chunk.get("prompt_token_ids")
        if isinstance(prompt_ids, list) and prompt_ids:
            self._prompt(prompt_ids)
        reason = choice.get("finish_reason")
        if isinstance(reason, str):
            self.answer.finish_reason = reason
            self._finish_s = time_s
        grown = told is not None and told > (self._by_usage[-1] if self._by_usage else 0)
        if num_ids or grown or has_text:
            self.answer.chunk_times_s.append(time_s)
            self._by_ids.append(num_ids)
            self._steady_usage &= grown
            if told is not None:
                self._by_usage.append(told)

    def _prompt(self, ids: list[int]) -> None:
        self.answer.prompt_tokens = self.answer.prompt_tokens or len(ids)
        if self._keep:
            self.answer.prompt_token_ids = ids

    def _texts(self, choice: Mapping[str, Any]) -> bool:
        """Whether the chunk brings text, thoughts or a tool call; role and finish chunks bring none."""
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            text = choice.get("text")
            return self._text(text)
        found = False
        for name in _TEXTS:
            if name in delta and self._text(delta[name], keep=name != "reasoning_content" or "reasoning" not in delta):
                found = True
                self.answer.has_reasoning |= name.startswith("reasoning")
        if delta.get("tool_calls") or delta.get("function_call"):
            self.answer.has_tool_calls = found = True
        return found

    def _text(self, text: Any, *, keep: bool = True) -> bool:
        if not isinstance(text, str) or not text:
            return False
        if self._keep and keep:
            self.answer.text.append(text)
        return True

    def _extras(self, chunk: Mapping[str, Any]) -> None:
        fingerprint, metrics = chunk.get("system_fingerprint"), chunk.get("metrics")
        if isinstance(fingerprint, str) and fingerprint:
            self.answer.fingerprint = short(fingerprint)
        if isinstance(metrics, dict) and isinstance(metrics.get("speculative_decoding"), dict):
            self.answer.acceptance_histogram = _histogram(metrics["speculative_decoding"].get("acceptance_histogram"))


def message_of(body: Any) -> str:
    """The words of an error that a server sent: OpenAI's, vLLM's and FastAPI's shapes; short, on one line."""
    found: Any = body
    for _ in range(3):
        if isinstance(found, dict):
            inner = (found.get(name) for name in ("error", "message", "detail", "msg"))
            found = next((item for item in inner if item), "an error without words")
        elif isinstance(found, list) and found:
            found = found[0]
    return short(str(found), 300)


def _object(data: bytes) -> Mapping[str, Any] | None:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _count(value: Any, otherwise: int | None) -> int | None:
    good = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return value if good else otherwise


def _differences(cumulative: list[int], total: int) -> list[int]:
    """Tokens of each chunk; what only the final usage told belongs to the last one."""
    found = [after - before for before, after in zip([0, *cumulative], cumulative, strict=False)]
    found[-1] += total - cumulative[-1]
    return found


def _histogram(value: Any) -> tuple[int, ...] | None:
    if not isinstance(value, list) or not 2 <= len(value) <= _MAX_HISTOGRAM:
        return None
    counts = [_count(item, None) for item in value]
    return None if None in counts else tuple(item for item in counts if item is not None)
