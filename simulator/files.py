"""Texts that the user points at, read with one-line errors and a limit."""

from hwmodel.errors import InputError
from hwmodel.files import open_regular
from hwmodel.units import MB

MAX_TEXT_BYTES = int(4 * MB)  # outputs of command-line tools are a few kB


def read_text(path: str) -> str:
    """The file's text; `InputError` when it cannot be read, is no UTF-8 or is larger than `MAX_TEXT_BYTES`."""
    try:
        with open_regular(path) as file:
            content = file.read(MAX_TEXT_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot read {path}: {reason}; allowed: a text file") from error
    if len(content) > MAX_TEXT_BYTES:
        raise InputError(f"{path} is larger than {MAX_TEXT_BYTES} bytes; allowed: the text output of one tool")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text (byte {error.start}); allowed: a text file") from error
