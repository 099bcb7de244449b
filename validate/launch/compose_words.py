"""How compose reads strings: its own variable interpolation first, then shell-like words without any expansion.

Sources: compose specification, "Interpolation"; the word rules are those of go-shellwords, which compose uses.
"""

import re
from collections.abc import Mapping

from validate.launch.findings import MalformedSourceError
from validate.launch.systemd_words import excerpt

_BLANKS = " \t\r\n"
_STOPS = ";&|<>"
_ESCAPES = {"t": "\t", "n": "\n"}
_REFERENCE = re.compile(
    r"\$(?:(\$)|([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?:(:?[-?+])((?:[^{}]|\{[^{}]*\})*))?\}|(.|$))", re.DOTALL
)
_MAX_DEPTH = 5


def interpolate(text: str, variables: Mapping[str, str], unset: list[str], depth: int = 0) -> str:
    """The text with $X, ${X}, ${X:-d}, ${X:?e}, ${X:+r} replaced, `$$` a dollar; names without value go to `unset`.

    An unset variable stays as written: compose would take it from its own environment, or put an empty text.
    """
    if depth > _MAX_DEPTH:
        raise MalformedSourceError("nested-too-deep", f"compose defaults nested more than {_MAX_DEPTH} deep")

    def value(match: re.Match[str]) -> str:
        escaped, bare, braced, kind, argument, wrong = match.groups()
        if escaped:
            return "$"
        if wrong is not None:
            shown = excerpt(text[match.start() :])
            raise MalformedSourceError(
                "compose-interpolation", f"invalid interpolation: a single $ before {shown!r}; write $$"
            )
        name = bare or braced
        known = variables.get(name)
        filled = known is not None and (known != "" or not (kind or "").startswith(":"))
        if kind and kind.endswith("+"):
            return interpolate(argument, variables, unset, depth + 1) if filled else ""
        if filled:
            return known or ""
        if kind and kind.endswith("-"):
            return interpolate(argument, variables, unset, depth + 1)
        unset.append(name)
        return match[0]

    return _REFERENCE.sub(value, text)


def split_command(text: str) -> tuple[list[str], str]:
    """(words of a compose command string, what it drops): an unquoted ; & | < > ends it, the rest is lost silently."""
    words: list[str] = []
    current: list[str] = []
    inside = False
    quote = ""
    position = 0
    while position < len(text):
        char = text[position]
        position += 1
        if char == "\\" and quote != "'":
            if position == len(text):
                raise MalformedSourceError(
                    "unbalanced-quote", f"compose refuses a command that ends in a backslash: {excerpt(text)}"
                )
            current.append(_ESCAPES.get(text[position], text[position]))
            inside = True
            position += 1
        elif char == quote:
            quote = ""
        elif not quote and char in "'\"":
            quote, inside = char, True
        elif not quote and char in _BLANKS:
            words += ["".join(current)] if inside else []
            current, inside = [], False
        elif not quote and char in _STOPS:
            return [*words, "".join(current)] if inside else words, text[position - 1 :]
        elif not quote and char in "()" and not (char == "(" and current[-1:] == ["$"]):
            raise MalformedSourceError(
                "compose-parenthesis", f"compose refuses an unquoted {char} in a command: {excerpt(text)}"
            )
        else:
            current.append(char)
            inside = True
    if quote:
        raise MalformedSourceError(
            "unbalanced-quote", f"a {quote} is never closed in the compose command: {excerpt(text)}"
        )
    return [*words, "".join(current)] if inside else words, ""
