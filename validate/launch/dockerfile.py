"""Launches of a Dockerfile: ENTRYPOINT and CMD of its last stage, exec form (a JSON array) or shell form."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from validate.launch.containers import container_launches
from validate.launch.findings import Launch, MalformedSourceError
from validate.launch.program import text_version
from validate.launch.shell_words import literal_words
from validate.launch.systemd_words import excerpt

_INSTRUCTION = re.compile(r"\s*(FROM|ENV|ARG|ENTRYPOINT|CMD)\s+(.*)", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Built:
    """The image that a Dockerfile's last stage makes: what it starts from, and what a container of it starts."""

    image: str | None
    environment: dict[str, str]
    entrypoint: list[str] | None
    command: list[str] | None
    version: str | None  # of vLLM, where the text installs one


def built_image(text: str) -> Built:
    """What the last stage of a Dockerfile's text makes."""
    image: str | None = None
    environment: dict[str, str] = {}
    parts: dict[str, list[str] | None] = {"ENTRYPOINT": None, "CMD": None}
    for line in re.sub(r"(?m)^\s*#.*\n?", "", text).replace("\\\n", " ").split("\n"):
        match = _INSTRUCTION.match(line)
        if match is None:
            continue
        name, value = match[1].upper(), match[2].strip()
        if name == "FROM":
            image = next((word for word in value.split() if not word.startswith("--")), None)
            parts = {"ENTRYPOINT": None, "CMD": None}
        elif name in parts:
            parts[name] = _words(name, value)
        else:
            environment |= _variables(value)
    return Built(image, environment, parts["ENTRYPOINT"], parts["CMD"], text_version(text, "vllm"))


def read_dockerfile(text: str, folder: Path | None = None) -> list[Launch]:
    """The engine launches of the last stage."""
    built = built_image(text)
    launch = Launch(
        "dockerfile", "dockerfile", (), built.environment, image=built.image, version=built.version, folder=folder
    )
    return container_launches(launch, built.entrypoint, built.command)


def _words(name: str, value: str) -> list[str]:
    if not value.startswith("["):
        return ["/bin/sh", "-c", value]
    try:
        words = json.loads(value)
    except (ValueError, RecursionError):
        # Docker then takes the text as shell form, where the brackets become part of the command.
        raise MalformedSourceError(
            "dockerfile-not-json", f"{name} is no JSON array of texts: {excerpt(value)}"
        ) from None
    if not all(isinstance(word, str) for word in words):
        raise MalformedSourceError("dockerfile-not-json", f"{name} must hold texts only: {excerpt(value)}")
    return list(words)


def _variables(value: str) -> dict[str, str]:
    words = literal_words(value)
    if words and "=" not in words[0]:  # the old form: ENV NAME value
        return {words[0]: " ".join(words[1:])}
    return {name: text for name, equals, text in (word.partition("=") for word in words) if equals}
