"""systemd's own word splitting, not a shell's: quotes may open mid-word, C escapes work inside both kinds of quote.

Source: systemd.syntax(7), systemd.service(5) "Command lines"; behaviour compared with systemd 252.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from validate.launch.findings import MalformedSourceError

BLANKS = " \t\n\r"
_SIMPLE_ESCAPES = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "s": " ",
    "\\": "\\", '"': '"', "'": "'",
}  # fmt: skip
_NUMBER_ESCAPES = re.compile(r"x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{3})")
_OCTAL = 8
_HEXADECIMAL = 16
_LAST_CODE_POINT = 0x10FFFF
_BRACED = re.compile(r"\$\$|\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_BARE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
_EXCERPT_CHARACTERS = 80


@dataclass(frozen=True, slots=True)
class Words:
    """The words of a line, and the escapes that systemd does not know (it keeps them and logs a warning)."""

    words: tuple[str, ...]
    unknown_escapes: tuple[str, ...] = ()


def excerpt(text: str) -> str:
    """The text on one line, cut to a length that fits an error message."""
    line = " ".join(text.split())
    return line if len(line) <= _EXCERPT_CHARACTERS else line[: _EXCERPT_CHARACTERS - 1] + "…"


def split_words(text: str, *, escapes: bool = True, relax: bool = False) -> Words:
    """The words of a systemd setting, quotes removed.

    `escapes` processes C escapes (ExecStart=, Environment=); without it a backslash just yields the next character, as
    in the value of a bare `$VAR`. `relax` accepts an open quote, as there; otherwise it refuses the whole line.
    """
    words: list[str] = []
    unknown: list[str] = []
    current: list[str] = []
    inside_word = False
    quote = ""
    position = 0
    while position < len(text):
        char, length, known = _next_character(text, position, escapes)
        position += length
        if length > 1:
            inside_word = True
            current.append(char)
            unknown += [] if known else [char]
        elif char == quote:
            quote = ""
        elif not quote and char in "'\"":
            quote, inside_word = char, True
        elif not quote and char in BLANKS:
            words += ["".join(current)] if inside_word else []
            current, inside_word = [], False
        else:
            inside_word = True
            current.append(char)
    if quote and not relax:
        raise MalformedSourceError(
            "unbalanced-quote", f"unbalanced quoting: a {quote} is never closed in: {excerpt(text)}"
        )
    words += ["".join(current)] if inside_word else []
    return Words(tuple(words), tuple(unknown))


def _next_character(text: str, position: int, escapes: bool) -> tuple[str, int, bool]:
    """(character, characters of text consumed, whether an escape is known) at the position."""
    following = text[position + 1 : position + 2]
    if text[position] != "\\" or not following:
        return text[position], 1, True
    if not escapes:
        return following, 2, True
    if following in _SIMPLE_ESCAPES:
        return _SIMPLE_ESCAPES[following], 2, True
    number = _NUMBER_ESCAPES.match(text, position + 1)
    if number:
        code = int(number[4], _OCTAL) if number[4] else int(number[1] or number[2] or number[3], _HEXADECIMAL)
        if 0 < code <= _LAST_CODE_POINT:
            return chr(code), 1 + len(number[0]), True
    return "\\" + following, 2, False


def expand_variables(
    words: tuple[str, ...], environment: Mapping[str, str], *, complete: bool = True
) -> tuple[list[str], list[str]]:
    """(argument list, names of unset variables): `$VAR` as a whole word splits, `${VAR}` never does, `$$` is a dollar.

    A `$VAR` in the middle of a word is left as it stands; an unset variable yields no word, or an empty text if braced.
    Where the environment is not `complete` (a file could not be read), an unset variable stays as written.
    """
    argv: list[str] = []
    unset: list[str] = []

    def value(match: re.Match[str]) -> str:
        if match[1] is None:
            return "$"
        if match[1] not in environment:
            unset.append(match[1])
        return environment.get(match[1], "" if complete else match[0])

    for word in words:
        bare = _BARE.fullmatch(word)
        if bare is None:
            argv.append(_BRACED.sub(value, word))
        elif bare[1] in environment:
            argv += split_words(environment[bare[1]], escapes=False, relax=True).words
        else:
            unset.append(bare[1])
            argv += [] if complete else [word]
    return argv, unset


def split_environment_file(text: str) -> dict[str, str]:
    """The variables of an EnvironmentFile=, which has quoting rules of its own: see `_file_value`."""
    variables: dict[str, str] = {}
    position = 0
    while position < len(text):
        end = _line_end(text, position)
        line = text[position:end]
        name, equals, _ = line.partition("=")
        if not line.strip() or line.lstrip().startswith(("#", ";")) or not equals:
            position = end + 1
            continue
        value, position = _file_value(text, position + len(name) + 1)
        variables[name.strip().removeprefix("export ").strip()] = value
    return variables


def _line_end(text: str, position: int) -> int:
    end = text.find("\n", position)
    return len(text) if end < 0 else end


def _file_value(text: str, position: int) -> tuple[str, int]:
    """(value, where the next line starts). Quotes count only at the start of the value or right after a quoted piece.

    In single quotes everything is literal; in double quotes a backslash frees `"`, backslash, `$`, backquote and
    newline; elsewhere it frees any character, and inner quotes stay. Blanks around the value go.
    """
    pieces: list[str] = []
    kept = 0  # trailing blanks beyond this many pieces are dropped
    quote = ""
    at_start = True
    while position < len(text):
        char = text[position]
        position += 1
        if quote:
            if char == quote:
                quote, at_start = "", True
            elif char == "\\" and quote == '"' and position < len(text):
                char = text[position]
                position += 1
                pieces.append({"\n": ""}.get(char, char) if char in '"\\$`\n' else "\\" + char)
            else:
                pieces.append(char)
            kept = len(pieces)
        elif char == "\n":
            break
        elif at_start and char in "'\"":
            quote = char
        elif char == "\\" and position < len(text):
            pieces.append({"\n": ""}.get(text[position], text[position]))
            position += 1
            at_start, kept = False, len(pieces)
        elif char in BLANKS:
            pieces += [] if at_start else [char]
        else:
            pieces.append(char)
            at_start, kept = False, len(pieces)
    return "".join(pieces[:kept]), position
