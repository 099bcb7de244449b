"""Answers put together from the chunks of a streamed response."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from calibration.replay.recording import Ints
from calibration.replay.sources.answers import Answer, Prompt, Sampling, message_text, token_ids


@dataclass
class _Choice:
    """One output as it arrives: parts of text by kind, and ids as long as every piece of text came with some."""

    prompt_ids: Ints | None = None
    reasoning: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    ids: list[Ints] = field(default_factory=list)
    lacks_ids: bool = False

    def add(self, choice: Mapping[str, Any]) -> None:
        """One more chunk of this choice."""
        delta = choice.get("delta")
        piece = delta if isinstance(delta, Mapping) else {"content": choice.get("text")}
        reasoning = {name: piece.get(name) for name in ("reasoning_content", "reasoning")}
        self.reasoning.append(message_text(reasoning))
        self.said.append(message_text({name: piece.get(name) for name in ("content", "tool_calls")}))
        ids = choice.get("token_ids")
        if ids is not None:
            self.ids.append(token_ids(ids, "token_ids"))
        elif self.reasoning[-1] or self.said[-1]:
            self.lacks_ids = True
        if choice.get("prompt_token_ids") is not None:
            self.prompt_ids = token_ids(choice["prompt_token_ids"], "prompt_token_ids")

    def answer(self, prompt: Prompt, sampling: Sampling, counted_tokens: int | None) -> Answer:
        """What has arrived; the reasoning comes first, as the model wrote it first."""
        prompt = prompt if self.prompt_ids is None else Prompt(ids=self.prompt_ids)
        if self.ids and not self.lacks_ids:
            ids: Ints = np.concatenate(self.ids)
            return Answer(prompt, ids=ids, sampling=sampling, counted_tokens=counted_tokens)
        text = "".join([*self.reasoning, *self.said])
        return Answer(prompt, text=text, sampling=sampling, counted_tokens=counted_tokens)


class Stream:
    """One streamed response: its chunks in order of arrival."""

    def __init__(self, prompt: Prompt | None = None, sampling: Sampling | None = None) -> None:
        """Nothing yet; `prompt` and `sampling` as the request says, where it is known."""
        self._prompt, self._sampling = prompt or Prompt(), sampling or Sampling()
        self._choices: dict[int, _Choice] = {}
        self._counted: int | None = None

    def add(self, chunk: Mapping[str, Any]) -> None:
        """One more chunk."""
        if chunk.get("prompt_token_ids") is not None:
            self._prompt = Prompt(ids=token_ids(chunk["prompt_token_ids"], "prompt_token_ids"))
        choices = chunk.get("choices")
        for position, choice in enumerate(choices if isinstance(choices, list) else ()):
            if isinstance(choice, Mapping):
                index = choice.get("index", position)
                self._choices.setdefault(index if type(index) is int else position, _Choice()).add(choice)
        usage = chunk.get("usage")
        if isinstance(usage, Mapping) and type(usage.get("completion_tokens")) is int:
            self._counted = usage["completion_tokens"]

    def answers(self) -> list[Answer]:
        """One for each choice, by index. The server's count is of all choices together."""
        counted = self._counted if len(self._choices) == 1 else None
        return [self._choices[index].answer(self._prompt, self._sampling, counted) for index in sorted(self._choices)]


def is_chunk(value: Any) -> bool:
    """Whether an object is one chunk of a streamed response."""
    if not isinstance(value, Mapping) or not isinstance(value.get("choices"), list):
        return False
    kind = value.get("object")
    deltas = any(isinstance(choice, Mapping) and "delta" in choice for choice in value["choices"])
    return deltas or (isinstance(kind, str) and kind.endswith(".chunk"))


def streamed(chunks: list[Any], prompt: Prompt, sampling: Sampling) -> list[Answer]:
    """The answers of a whole list of chunks."""
    stream = Stream(prompt, sampling)
    for chunk in chunks:
        if isinstance(chunk, Mapping):
            stream.add(chunk)
    return stream.answers()
