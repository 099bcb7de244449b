"""Recordings from files, line by line: JSONL records, streaming captures (SSE), or one JSON document."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import numpy as np

from calibration.readers.files import sha256_of
from calibration.replay.recording import Ints, Recording
from calibration.replay.sources.answers import Answer, BadRecordError, Prompt, named, token_ids
from calibration.replay.sources.records import answers_in
from calibration.replay.sources.responses import is_event, is_partial_event
from calibration.replay.sources.streams import Stream, is_chunk
from calibration.replay.sources.texts import Tokenizer
from hwmodel.errors import InputError
from hwmodel.files import open_regular
from hwmodel.percent import percent
from hwmodel.units import MB
from simulator.deployment.keys import short

_UTF_16_AS_UTF_8 = "\ufffd\ufffd"  # its byte-order mark, as what UTF-8 cannot read is shown
MAX_LINE_BYTES = int(64 * MB)  # some ten million token ids
MAX_OPEN_STREAMS = 100_000  # captures of interleaved streams; more is no capture
_COUNT_TOLERANCE = 0.02  # ids of text that differ from the server's count by more are worth a note
_SSE_FIELDS = ("event:", "id:", "retry:", ":")
_DONE = "[DONE]"
_SHOWN_BAD = 3
_SHOWN_PATH = 120  # characters


@dataclass
class Reading:
    """How files are read, and what was noticed on the way."""

    tokenizer: Tokenizer | None = None
    skip_bad: bool = False
    keep_shortened: bool = False  # what `measure` cut at the start of its load too: the beginnings of answers
    bad: list[str] = field(default_factory=list)  # the first few; `num_bad` counts all
    num_bad: int = 0
    shortened: int = 0  # left out
    failed_requests: int = 0  # logged without an output
    empty_outputs: int = 0
    approximate_prompts: int = 0
    from_text: int = 0
    text_tokens: int = 0  # of outputs whose server counted them too
    counted_tokens: int = 0
    recorded_ids: int = 0  # of outputs given as ids whose server counted them too
    counted_ids: int = 0
    same_files: list[str] = field(default_factory=list)  # given twice
    repeated: int = 0  # requests that were read before
    _seen: set[bytes] = field(default_factory=set)

    def recordings(self, paths: Sequence[str]) -> Iterator[Recording]:
        """The recordings of all files, in order; InputError names the file and the line that cannot be used."""
        read: dict[str, str] = {}
        for path in paths:
            digest = sha256_of(path, "JSONL or a streaming capture")
            if digest in read:
                self.same_files.append(f"{_named(path)} is the same file as {_named(read[digest])}: counted once")
                continue
            read[digest] = path
            try:
                with open_regular(path) as file:
                    yield from self._of_file(file, path)
            except OSError as error:
                raise InputError(
                    f"cannot read {_named(path)}: {error.strerror or error}; allowed: JSONL or a streaming capture"
                ) from None

    def notes(self) -> list[str]:
        """What was noticed, as sentences."""
        found = list(self.same_files)
        if self.repeated:
            found.append(f"requests recorded twice (same id, prompt and output), counted once: {self.repeated}")
        if self.num_bad:
            more = f" and {self.num_bad - len(self.bad)} more" if self.num_bad > len(self.bad) else ""
            found.append(f"{self.num_bad} bad lines left out: {'; '.join(self.bad)}{more}")
        if self.shortened:
            found.append(
                f"{self.shortened} answers that measure had cut short at the start of its load are left out:"
                " beginnings repeat less (--keep-shortened counts them)"
            )
        if self.failed_requests:
            found.append(f"{self.failed_requests} failed requests in the logs have no output and are left out")
        if self.empty_outputs:
            found.append(f"{self.empty_outputs} empty outputs are left out")
        if self.approximate_prompts:
            found.append(
                f"{self.approximate_prompts} chat prompts are approximated by the texts of their messages: a tokenizer "
                "file has no chat template (--tokenize-url applies it)"
            )
        found += self._missing_ids()
        if self.from_text:
            found.append(
                f"{self.from_text} outputs were turned from text into tokens again, which may differ from the tokens "
                f"that the model sampled{self._deviation()}"
            )
        return found

    def _missing_ids(self) -> list[str]:
        """A sentence where logs hold other numbers of ids than the servers say that they sent."""
        change = self.recorded_ids / self.counted_ids - 1 if self.counted_ids else 0.0
        if abs(change) <= _COUNT_TOLERANCE:
            return []
        return [
            f"the token ids of the outputs are {percent(change, signed=True)} against the servers' own counts: cut or"
            " partly recorded outputs draft otherwise than whole ones"
        ]

    def _deviation(self) -> str:
        if not self.counted_tokens:
            return ""
        change = self.text_tokens / self.counted_tokens - 1
        if abs(change) <= _COUNT_TOLERANCE:
            return ""
        why = "hidden reasoning, special tokens or another tokenizer"
        return f" ({percent(change, signed=True)} against the servers' own counts: {why})"

    def _of_file(self, file: BinaryIO, path: str) -> Iterator[Recording]:
        streams, name = _Streams(), _named(path)
        for number, line in _lines(file, name):
            where = f"{name} line {number}"
            try:
                answers = self._of_line(line, number, file, streams)
            except BadRecordError as error:
                self._refuse(where, error)
            else:
                yield from self._recordings(answers, where)
        yield from self._recordings(streams.close(), f"{name}, end of its streams")

    def _recordings(self, answers: list[Answer], where: str) -> Iterator[Recording]:
        for answer in answers:
            try:
                found = self._recording(answer)
            except BadRecordError as error:
                self._refuse(where, error)
            except NoTokenizerError as error:
                raise InputError(f"{where}: {error}") from None
            else:
                if found is not None:
                    yield found

    def _of_line(self, line: str, number: int, file: BinaryIO, streams: "_Streams") -> list[Answer]:
        """The answers that are complete with this line."""
        if not line or line.startswith(_SSE_FIELDS) or streams.is_header(line):
            return []
        if line.startswith("data:"):
            return self._of_event(line.removeprefix("data:").strip(), streams)
        found: list[Answer] = []
        for record in _records(line, number, file):
            if is_chunk(record):
                streams.add(record)
            elif not is_partial_event(record):
                found += [*streams.close(), *self._answers(record)]
        return found

    def _of_event(self, data: str, streams: "_Streams") -> list[Answer]:
        if data == _DONE:
            return streams.done()
        record = _parsed(data)
        if not isinstance(record, Mapping):
            raise BadRecordError(f"an event holds {short(data)}, allowed: a JSON object or {_DONE}")
        if "choices" in record:
            streams.add(record)
        elif is_event(record):
            return [] if is_partial_event(record) else self._answers(record)
        elif record.get("error"):
            self.failed_requests += 1
        return []

    def _answers(self, record: Any) -> list[Answer]:
        if not self.keep_shortened and isinstance(record, Mapping) and record.get("shortened") is True:
            self.shortened += 1
            return []
        found = answers_in(record)
        self.failed_requests += not found
        return found

    def _recording(self, answer: Answer) -> Recording | None:
        """The answer in token ids; None for an empty one."""
        output = answer.ids if answer.ids is not None else self._output_ids(answer)
        if answer.ids is not None and answer.counted_tokens:
            self.recorded_ids += len(output)
            self.counted_ids += answer.counted_tokens
        if not len(output):
            self.empty_outputs += 1
            return None
        prompt, sampling = self._prompt(answer.prompt), answer.sampling
        if answer.name and self._is_repeated(answer.name, prompt, output):
            return None
        return Recording(
            np.zeros(0, np.int64) if prompt is None else prompt,
            output,
            prompt is not None,
            sampling.temperature,
            sampling.max_tokens,
            sampling.undraftable,
        )

    def _is_repeated(self, name: str, prompt: Ints | None, output: Ints) -> bool:
        """Whether the same request, with the same prompt and output, was read before."""
        parts = (name.encode(errors="replace"), b"" if prompt is None else prompt.tobytes(), output.tobytes())
        key = hashlib.blake2b(b"\0".join(parts), digest_size=16).digest()
        again = key in self._seen
        self.repeated += again
        self._seen.add(key)
        return again

    def _output_ids(self, answer: Answer) -> Ints:
        if not answer.text:
            return np.zeros(0, np.int64)
        tokenizer = self._asked_for("text without token ids")
        ids = token_ids(tokenizer.output_ids(answer.text), "the tokenizer's answer")
        if len(ids):
            self.from_text += 1
        if answer.counted_tokens:
            self.text_tokens += len(ids)
            self.counted_tokens += answer.counted_tokens
        return ids

    def _prompt(self, prompt: Prompt) -> Ints | None:
        """Ids of the prompt; None where it is not known."""
        if prompt.ids is not None:
            return prompt.ids
        if prompt.text is None and prompt.messages is None:
            return None
        tokenizer = self._asked_for("a prompt as text")
        if prompt.text is not None:
            return token_ids(tokenizer.prompt_ids(prompt.text), "the tokenizer's answer")
        ids, is_exact = tokenizer.chat_ids(prompt.messages or (), prompt.tools)
        self.approximate_prompts += not is_exact
        return token_ids(ids, "the tokenizer's answer")

    def _asked_for(self, what: str) -> Tokenizer:
        if self.tokenizer is None:
            raise NoTokenizerError(f"holds {what}; allowed with --tokenizer FILE or --tokenize-url URL")
        return self.tokenizer

    def _refuse(self, where: str, error: BadRecordError) -> None:
        if not self.skip_bad:
            raise InputError(f"{where}: {error}") from None
        self.num_bad += 1
        if len(self.bad) < _SHOWN_BAD:
            self.bad.append(f"{where}: {error}")


class NoTokenizerError(InputError):
    """Text was found and nothing was given that turns it into tokens."""


class _Streams:
    """The streams that are open at one place of a file, by the id of their chunks."""

    def __init__(self) -> None:
        self._open: dict[str, Stream] = {}
        self._in_header = False

    def add(self, chunk: Mapping[str, Any]) -> None:
        """One chunk; those of one id belong together."""
        name = chunk.get("id")
        key = name if isinstance(name, str) else ""
        if key not in self._open and len(self._open) >= MAX_OPEN_STREAMS:
            raise BadRecordError(f"more than {MAX_OPEN_STREAMS} streams without an end")
        self._open.setdefault(key, Stream()).add(chunk)

    def done(self) -> list[Answer]:
        """An end mark: it does not say whose, so only a stream that is alone is complete now."""
        return self.close() if len(self._open) == 1 else []

    def close(self) -> list[Answer]:
        """The answers of all open streams, in the order in which they began."""
        found = [answer for name, stream in self._open.items() for answer in named(stream.answers(), name)]
        self._open = {}
        return found

    def is_header(self, line: str) -> bool:
        """Whether the line belongs to HTTP headers that a capture kept: from the status line to the first event."""
        if line.startswith("HTTP/"):
            self._in_header = True
        elif line.startswith(("data:", "{", "[")):
            self._in_header = False
        return self._in_header


def _named(path: str) -> str:
    """The path in one line; of a very long one the end, which tells files apart."""
    whole = short(path, len(path))
    return whole if len(whole) <= _SHOWN_PATH else f"...{whole[-_SHOWN_PATH:]}"


def _lines(file: BinaryIO, name: str) -> Iterator[tuple[int, str]]:
    """Number and text of every line, white space around it removed."""
    number = 0
    while data := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(data) > MAX_LINE_BYTES:
            raise InputError(f"{name} line {number} is longer than {MAX_LINE_BYTES} bytes")
        yield number, data.decode("utf-8-sig" if number == 1 else "utf-8", errors="replace").strip()


def _records(line: str, number: int, file: BinaryIO) -> list[Any]:
    """The JSON values of a line; the whole file's, where the first line begins a document of several lines."""
    try:
        value = _parsed(line)
    except BadRecordError:
        if number != 1 or not line.startswith(("{", "[")):
            raise
        rest = file.read(MAX_LINE_BYTES + 1)
        try:
            value = _parsed(line + "\n" + rest.decode("utf-8", errors="replace"))
        except BadRecordError:
            file.seek(-len(rest), 1)
            raise BadRecordError(f"no JSON: {short(line)}") from None
    return value if isinstance(value, list) else [value]


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise BadRecordError(f"nested too deeply: {short(text)}") from None
    except ValueError as error:
        reason = f"{error.msg} at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else error
        other = ", not UTF-8; it looks like UTF-16" if text.startswith(_UTF_16_AS_UTF_8) else ""
        raise BadRecordError(f"no JSON ({reason}{other}): {short(text)}") from None
