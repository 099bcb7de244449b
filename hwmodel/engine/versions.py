"""Engine versions as numbers, and tables of facts by version.

A fact is a row (first version, last version, value), both ends included, `None` open; its source is a comment.
"""

import re
from collections.abc import Sequence
from typing import TypeAlias, TypeVar

from hwmodel.engine.names import unknown_name
from hwmodel.errors import InputError

T = TypeVar("T")
Version: TypeAlias = tuple[int, int, int]
Rows: TypeAlias = Sequence[tuple[Version | None, Version | None, T]]

ENGINES = ("vllm", "sglang")
DEFAULT_VLLM: Version = (0, 33, 0)  # newest release whose source was read
DEFAULT_SGLANG: Version = (0, 5, 23)  # newest release whose source was read
_NEWEST: dict[str, Version] = {"vllm": DEFAULT_VLLM, "sglang": DEFAULT_SGLANG}
# The oldest release read; older ones are treated alike and said so.
_OLDEST: dict[str, Version] = {"vllm": (0, 7, 3), "sglang": (0, 5, 5)}
# Bounded digit counts keep a hostile text from becoming a huge number.
_PATTERN = re.compile(
    r"v?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?"
    r"(?:\.?(?:a|b|rc|post|dev)\d{0,6})*(?:\+[0-9A-Za-z.\-]{1,80})?",
    re.ASCII,
)


def parse_version(text: str) -> Version:
    """(major, minor, patch) of a release, candidate, post or development version text.

    A candidate or development build counts as the release it leads to; a missing patch number is 0.

    >>> parse_version("v0.17.0rc1.dev3+g1a2b3c")
    (0, 17, 0)
    """
    match = _PATTERN.fullmatch(text.strip())
    if match is None:
        raise InputError(f"engine version: got {text[:60]!r}, allowed are texts like '0.16.0', 'v0.16.0rc1', '0.5.5'")
    major, minor, patch = match.groups(default="0")
    return int(major), int(minor), int(patch)


def format_version(version: Version) -> str:
    """Dotted text of a version, e.g. "0.16.0"."""
    return ".".join(str(part) for part in version)


def check_engine(name: str) -> str:
    """Canonical engine name, lower case; raises UnknownNameError for anything but a known engine."""
    canonical = name.strip().lower()
    if canonical in ENGINES:
        return canonical
    raise unknown_name("engine name", name, ENGINES)


def newest_version(engine: str) -> Version:
    """The newest release of an engine whose source was read."""
    return _NEWEST[check_engine(engine)]


def resolve_version(engine: str, text: str | None) -> tuple[Version, tuple[str, ...]]:
    """The version whose facts apply, and notes where it is not the one that was asked for.

    Without a text the newest release read is used. A newer one is treated as the newest known, an older one than the
    oldest read keeps its number (the tables are open at the old end).
    """
    newest, oldest = _NEWEST[engine], _OLDEST[engine]
    if text is None:
        return newest, (f"no {engine} version given: {format_version(newest)}, the newest one known, is assumed",)
    version = parse_version(text)
    if version > newest:
        return newest, (
            f"{engine} {format_version(version)} is newer than the newest version known here: treated as "
            f"{format_version(newest)}",
        )
    if version < oldest:
        return version, (
            f"{engine} {format_version(version)} is older than {format_version(oldest)}, the oldest version read: "
            f"its facts are assumed to be the same",
        )
    return version, ()


def at_version(rows: Rows[T], version: Version) -> T:
    """Value of the first row that covers the version. The tables of this package cover every version."""
    for first, last, value in rows:
        if (first is None or first <= version) and (last is None or version <= last):
            return value
    raise LookupError(f"no row covers {format_version(version)}")
