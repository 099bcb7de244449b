"""The variables of a `.env` file as docker compose reads it: quotes, remarks after values, references to earlier ones.

Source: compose-go, package dotenv, and "Syntax for environment files" of the compose documentation.
"""

import re
from collections.abc import Mapping

_ENTRY = re.compile(
    r"^[ \t]*(?:export[ \t]+)?(?P<name>[A-Za-z_][\w.\-]*)[ \t]*[=:][ \t]*"
    r"(?:'(?P<single>(?:\\'|[^'])*)'|\"(?P<double>(?:\\.|[^\"\\])*)\"|(?P<plain>[^\n]*))",
    re.MULTILINE | re.DOTALL,
)
_REMARK = re.compile(r"(?:^|[ \t])#.*")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}
_REFERENCE = re.compile(r"\\\$|\$\{(\w+)(?::?-([^{}]*))?\}|\$(\w+)")


def read_dotenv(text: str) -> dict[str, str]:
    """The variables, in order; single quotes are literal, in double quotes and outside earlier variables are filled in.

    >>> read_dotenv('A=1 # one\\nB="x ${A}"\\nC=\\'{"k": "$A"}\\'')
    {'A': '1', 'B': 'x 1', 'C': '{"k": "$A"}'}
    """
    variables: dict[str, str] = {}
    for match in _ENTRY.finditer(text):
        if match["single"] is not None:
            value = match["single"].replace("\\'", "'")
        elif match["double"] is not None:
            value = _filled(_ESCAPE.sub(_unescaped, match["double"]), variables)
        else:
            value = _filled(_REMARK.sub("", match["plain"]).strip(), variables)
        variables[match["name"]] = value
    return variables


def _unescaped(match: re.Match[str]) -> str:
    return match[0] if match[1] == "$" else _ESCAPES.get(match[1], match[1])


def _filled(text: str, variables: Mapping[str, str]) -> str:
    """References replaced; a name that is not set here stays as written, since the shell around compose may know it."""

    def value(match: re.Match[str]) -> str:
        if match[0] == "\\$":
            return "$"
        name = match[1] or match[3]
        return variables.get(name) or (match[2] if match[2] is not None else match[0])

    return _REFERENCE.sub(value, text)
