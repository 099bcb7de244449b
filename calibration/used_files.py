"""Which of the files that were given count: those that a measurement of the fit comes from, told by its source."""

import os
import re
from collections.abc import Iterable, Sequence

from calibration.records import SourceFile

_PATH = r"\w/.-"  # characters that go on with a path


def used_files(files: Sequence[SourceFile], sources: Iterable[str]) -> tuple[str, ...]:
    """The paths of `files` that occur in a source, in whole or as the folder of a group (`run (8 ranks)`)."""
    told = tuple(dict.fromkeys(sources))
    text = "\n".join(told)
    return tuple(file.path for file in files if _occurs(file.path, text) or _grouped(file.path, told))


def _occurs(path: str, text: str) -> bool:
    return re.search(rf"(?<![{_PATH}]){re.escape(path)}(?![{_PATH}])", text) is not None


def _grouped(path: str, sources: Sequence[str]) -> bool:
    folder = os.path.dirname(path) or "."
    return any(source.startswith(f"{folder} (") for source in sources)
