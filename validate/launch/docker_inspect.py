"""Launches in the output of `docker inspect` and `podman inspect`: entrypoint, command and environment as they run."""

import json
import re
from pathlib import Path
from typing import Any

from validate.launch.findings import Launch, MalformedSourceError
from validate.launch.unwrap import resolve

_SHAPE = re.compile(r"\s*\[\s*\{")


def looks_like_docker_inspect(text: str) -> bool:
    """Whether a text is such an output."""
    return _SHAPE.match(text) is not None and '"Config"' in text and ('"Cmd"' in text or '"Entrypoint"' in text)


def read_docker_inspect(text: str, folder: Path | None = None) -> list[Launch]:
    """The engine launches of the containers."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MalformedSourceError("json-text", f"the output of docker inspect is no JSON: {error}") from None
    launches: list[Launch] = []
    for number, item in enumerate(content if isinstance(content, list) else []):
        config = item.get("Config") if isinstance(item, dict) else None
        if isinstance(config, dict):
            launches += resolve(_launch(item, config, number, folder))
    return launches


def _launch(item: dict[str, Any], config: dict[str, Any], number: int, folder: Path | None) -> Launch:
    name, image = item.get("Name"), config.get("Image")
    pairs = (text.partition("=") for text in _texts(config.get("Env")))
    return Launch(
        name.lstrip("/") if isinstance(name, str) else f"container-{number + 1}",
        "docker run",
        (*_texts(config.get("Entrypoint")), *_texts(config.get("Cmd"))),
        {key: value for key, equals, value in pairs if equals},
        image=image if isinstance(image, str) else None,
        folder=folder,
    )


def _texts(value: Any) -> tuple[str, ...]:
    """The words of a list, or the one word that podman may print in its place."""
    if isinstance(value, str):
        return (value,) if value else ()
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()
