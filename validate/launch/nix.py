"""Launches of a NixOS module: `ExecStart`, `script` and container commands, with Nix's own string rules undone.

Source: Nix manual, "String": "..." with backslash escapes, ''...'' with stripped indentation and '' escapes.
"""

import bisect
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from validate.launch.containers import container_launches
from validate.launch.findings import Launch, MalformedSourceError
from validate.launch.systemd import read_systemd
from validate.launch.systemd_words import excerpt
from validate.launch.unwrap import launches_of_script, resolve

_MODULE = re.compile(
    r"(?m)(?:^|[{;])\s*(?:systemd\.(?:user\.)?services|virtualisation\.oci-containers|serviceConfig)\b[^\n]*="
)
_ATTRIBUTE = re.compile(
    r"\b(?P<name>ExecStart|script|cmd|command|entrypoint|image)\s*=\s*(?P<call>[\w.]*(?:\s+(?:\"[^\"\n]*\"|[\w.]+))*\s*)"
    r"(?P<open>\"|''|\[)"
)
_SERVICE = re.compile(r"(?:services|oci-containers\.containers)\.(?:\"([^\"]+)\"|([\w\-]+))")
_MAX_ATTRIBUTES = 1_000
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}
_INDENTED_ESCAPE = re.compile(r"'''|''\$|''\\(.)", re.DOTALL)
_INDENTED_END = re.compile(r"''(?!['$\\])")


def looks_like_nix(text: str, suffix: str) -> bool:
    """Whether a text is a Nix module."""
    return suffix == ".nix" or (_MODULE.search(text) is not None and "[Service]" not in text)


def read_nix(text: str, folder: Path | None = None) -> list[Launch]:
    """The engine launches of a module, in order."""
    launches: list[Launch] = []
    images: dict[str, str] = {}
    entrypoints: dict[str, list[str]] = {}
    commands: list[tuple[str, list[str]]] = []
    for name, service, value in _attributes(text):
        outer = Launch(service, "nix", (), folder=folder)
        if name == "image":
            images[service] = "".join(value)
        elif name == "entrypoint":
            entrypoints[service] = value if isinstance(value, list) else [value]
        elif name == "cmd" and isinstance(value, list):
            commands.append((service, value))
        elif name == "script" and isinstance(value, str):
            launches += launches_of_script(outer, value)
        elif name == "ExecStart":
            launches += _exec_start(outer, value)
    for service, words in commands:
        container = Launch(service, "nix", (), image=images.get(service), folder=folder)
        launches += container_launches(container, entrypoints.get(service), words)
    return launches


def _exec_start(outer: Launch, value: str | list[str]) -> list[Launch]:
    """A text is what the unit will hold, so systemd's rules apply to it; a list was quoted by a function of Nix."""
    if isinstance(value, list):
        return resolve(replace(outer, argv=tuple(value)))
    command = " ".join(line.strip().removesuffix("\\") for line in value.strip().split("\n"))
    units = read_systemd(f"[Service]\nExecStart={command}\n")
    return [item for unit in units for item in resolve(replace(unit, name=outer.name, folder=outer.folder))]


def _attributes(text: str) -> Iterator[tuple[str, str, str | list[str]]]:
    """(attribute, service around it, value) of every attribute that matters."""
    plain = re.sub(r"(?m)^[ \t]*#[^\n]*", "", text)
    services = [(found.start(), found[1] or found[2]) for found in _SERVICE.finditer(plain)]
    position = count = 0
    while match := _ATTRIBUTE.search(plain, position):
        count += 1
        if count > _MAX_ATTRIBUTES:
            raise MalformedSourceError("too-many-launches", f"more than {_MAX_ATTRIBUTES} attributes in a Nix text")
        before = bisect.bisect_left(services, (match.start(),))
        service = services[before - 1][1] if before else "service"
        if match["open"] == "[":
            items, position = _list(plain, match.end())
            value: str | list[str] = " ".join(items) if "concatStringsSep" in match["call"] else items
        else:
            value, position = _string(plain, match.end(), match["open"])
        yield match["name"], service, value


def _list(text: str, position: int) -> tuple[list[str], int]:
    """(items up to the closing bracket, position after it); what is no string stays as `${...}`."""
    items: list[str] = []
    token = re.compile(r"\s*(?:(?P<open>\"|'')|(?P<end>\])|(?P<other>[^\s\"'\]]+|'))")
    while match := token.match(text, position):
        position = match.end()
        if match["end"]:
            return items, position
        if match["open"]:
            item, position = _string(text, position, match["open"])
            items.append(item)
        else:
            items.append("${" + match["other"] + "}")
    raise MalformedSourceError("unbalanced-quote", f"a [ is never closed in the Nix text: {excerpt(text[-80:])}")


def _string(text: str, position: int, quote: str) -> tuple[str, int]:
    """(value, position after the closing quote) of the string that starts at the position."""
    if quote == "''":
        end = _INDENTED_END.search(text, position)
        if end is None:
            raise MalformedSourceError("unbalanced-quote", f"a '' is never closed in: {excerpt(text[position:])}")
        return _INDENTED_ESCAPE.sub(_indented, text[position : end.start()]), end.end()
    pieces: list[str] = []
    while position < len(text):
        char = text[position]
        if char == '"':
            return "".join(pieces), position + 1
        if char == "\\":
            position += 1
            char = _ESCAPES.get(text[position : position + 1], text[position : position + 1])
        pieces.append(char)
        position += 1
    raise MalformedSourceError("unbalanced-quote", f'a " is never closed in: {excerpt(text[-80:])}')


def _indented(match: re.Match[str]) -> str:
    if match[1] is not None:
        return _ESCAPES.get(match[1], match[1])
    return "''" if match[0] == "'''" else "$"
