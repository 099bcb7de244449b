"""Token ids of texts: by a tokenizer file, or by anything else that answers the same three questions."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from calibration.replay.sources.answers import message_text
from hwmodel.errors import InputError
from hwmodel.extras import missing_extra
from hwmodel.files import read_bounded
from hwmodel.units import MB
from simulator.deployment.keys import short

MAX_TOKENIZER_BYTES = int(200 * MB)  # the largest published tokenizer.json are about 35 MB
_FILE_NAME = "tokenizer.json"


class Tokenizer(Protocol):
    """Turns texts into the ids that the model would see."""

    def output_ids(self, text: str) -> list[int]:
        """Ids of an output: nothing is added before or after it."""

    def prompt_ids(self, text: str) -> list[int]:
        """Ids of a plain prompt, with what the model's tokenizer puts before it."""

    def chat_ids(self, messages: Sequence[Mapping[str, Any]], tools: Any) -> tuple[list[int], bool]:
        """Ids of a chat prompt, and whether they are what the chat template would give."""


class FileTokenizer:
    """A Hugging Face `tokenizer.json`. It holds no chat template: chat prompts are the texts of their messages."""

    def __init__(self, path: str) -> None:
        """The tokenizer in a file, or in the folder of a model; InputError where it cannot be read."""
        place = Path(path)
        place = place / _FILE_NAME if place.is_dir() else place
        try:
            from tokenizers import Tokenizer as Loaded
        except ImportError:
            raise missing_extra("tokenizer", "--tokenizer", "--tokenize-url, or recordings with token ids") from None
        content = _content(place)
        try:
            self._tokenizer = Loaded.from_buffer(content)
        except Exception as error:  # its own errors are plain exceptions
            raise InputError(f"--tokenizer: {short(str(place))} is no tokenizer: {short(str(error))}") from None

    def output_ids(self, text: str) -> list[int]:
        """Ids of an output."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def prompt_ids(self, text: str) -> list[int]:
        """Ids of a plain prompt."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=True).ids
        return ids

    def chat_ids(self, messages: Sequence[Mapping[str, Any]], tools: Any) -> tuple[list[int], bool]:
        """Ids of the messages' texts, one below the other: without the template's own tokens."""
        return self.output_ids("\n".join(map(message_text, messages))), False


def _content(path: Path) -> bytes:
    shown = short(str(path))
    return read_bounded(
        path,
        MAX_TOKENIZER_BYTES,
        unreadable=f"--tokenizer: cannot read {shown}: {{reason}}; allowed: a tokenizer.json",
        too_large=f"--tokenizer: {shown} is larger than {MAX_TOKENIZER_BYTES} bytes; allowed: a tokenizer.json",
    )
