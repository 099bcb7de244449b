"""What the server wrote, kept for `draftcast replay`: JSON lines with the token ids of prompt and answer."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from calibration.readers.values import shown
from hwmodel.errors import InputError
from validate.measure.users import Outcome


class OutputFile:
    """Appends the answers of whole cells; those of cells that are measured again are taken out first."""

    def __init__(self, path: str, kept: Sequence[int]) -> None:
        """Keeps the lines of the concurrencies in `kept`, and only those."""
        self._path = Path(path)
        lines = [line for line in self._lines() if _concurrency(line) in kept]
        self._write("w", lines)

    def add(self, concurrency: int, outcomes: Sequence[Outcome]) -> None:
        """The answers of one cell, in the order of their requests."""
        done = sorted((item for item in outcomes if item.answer is not None), key=lambda item: item.number)
        self._write("a", [json.dumps(_record(concurrency, item)) for item in done])

    def _lines(self) -> list[str]:
        if not self._path.exists():
            return []
        return self._path.read_text(encoding="utf-8", errors="replace").splitlines()

    def _write(self, mode: str, lines: Sequence[str]) -> None:
        try:
            with self._path.open(mode, encoding="utf-8") as file:
                file.write("".join(f"{line}\n" for line in lines))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            reason = error.strerror or error
            raise InputError(
                f"cannot write {shown(str(self._path))}: {reason}; allowed: a file on a disk with room"
            ) from error


def _concurrency(line: str) -> int | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None  # cut by a crash
    value = found.get("concurrency") if isinstance(found, dict) else None
    return value if isinstance(value, int) else None


def _record(concurrency: int, item: Outcome) -> dict[str, Any]:
    answer = item.answer
    assert answer is not None
    ids = {"prompt_token_ids": answer.prompt_token_ids, "token_ids": answer.token_ids} if answer.token_ids else {}
    return {
        **ids,
        "text": "".join(answer.text),
        "concurrency": concurrency,
        "number": item.number,
        "kind": item.kind,
        "tokens_per_step": answer.chunk_tokens,
        "finish_reason": answer.finish_reason,
        "shortened": item.is_first and item.user + 1 < concurrency,  # (user + 1) / users of the length
    }
