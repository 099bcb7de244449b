"""What `${NAME<operator>}` makes of a value: parts cut off, replaced, or in other letters. Source: bash(1)."""

import fnmatch
import re
from collections.abc import Callable

_OPERATOR = re.compile(r"(##|#|%%|%|//|/#|/%|/|\^\^|\^|,,|,)(.*)", re.DOTALL)
_SUBSTRING = re.compile(r":\s*(-?\d+)(?::(\d+))?")
_PATTERN_AND_REPLACEMENT = re.compile(r"((?:\\.|[^/\\])*)(?:/(.*))?", re.DOTALL)
_LONGEST = 2_000  # characters of a value; a path or a name has a hundred
_LONGEST_PATTERN = 200
_MOST_STARS = 3  # of a pattern: each one multiplies the work


def changed_text(value: str, rest: str, operand: Callable[[str], str]) -> str | None:
    """The value after the operator, or None for one that is not known here; `operand` expands what follows it.

    >>> [changed_text("org/m-8b.gguf", rest, str) for rest in ("##*/", "%.*", "/-8b/", "//./_", "^^", ":0:3")]
    ['m-8b.gguf', 'org/m-8b', 'org/m.gguf', 'org/m-8b_gguf', 'ORG/M-8B.GGUF', 'org']
    """
    if len(value) > _LONGEST:
        return None
    substring = _SUBSTRING.fullmatch(rest)
    if substring:
        start = int(substring[1])
        end = None if substring[2] is None else (start if start >= 0 else len(value) + start) + int(substring[2])
        return value[start:end]
    match = _OPERATOR.fullmatch(rest)
    if match is None:
        return None
    kind = match[1]
    if kind in _LETTERS:
        return _LETTERS[kind](value) if not match[2] else None
    parts = _PATTERN_AND_REPLACEMENT.fullmatch(match[2]) if kind.startswith("/") else None
    written, replacement = (match[2], "") if parts is None else (parts[1], parts[2] or "")
    pattern = operand(written)
    if len(pattern) > _LONGEST_PATTERN or pattern.count("*") > _MOST_STARS:
        return None
    if kind.startswith("/"):
        return _replaced(value, kind, pattern, operand(replacement))
    return _cut(value, kind, pattern)


_LETTERS: dict[str, Callable[[str], str]] = {
    "^^": str.upper,
    ",,": str.lower,
    "^": lambda text: text[:1].upper() + text[1:],
    ",": lambda text: text[:1].lower() + text[1:],
}


def _cut(value: str, kind: str, pattern: str) -> str:
    """`#`, `##`: without the shortest, the longest beginning that matches; `%`, `%%`: the same at the end."""
    places, at_start = range(len(value) + 1), kind[0] == "#"
    for place in places if kind in ("#", "%%") else reversed(places):
        piece = value[:place] if at_start else value[place:]
        if fnmatch.fnmatchcase(piece, pattern):
            return value[place:] if at_start else value[:place]
    return value


def _replaced(value: str, kind: str, pattern: str, replacement: str) -> str:
    """`/`: the first match replaced, `//`: every one, `/#` and `/%`: one at the start or the end; longest matches."""
    if not pattern:
        return {"/#": replacement + value, "/%": value + replacement}.get(kind, value)
    body = re.sub(r"\\[zZ]$", "", fnmatch.translate(pattern))
    form = {"/#": rf"\A(?:{body})", "/%": rf"(?:{body})\Z"}.get(kind, body)
    return re.sub(form, lambda _: replacement, value, count=0 if kind == "//" else 1, flags=re.DOTALL)
