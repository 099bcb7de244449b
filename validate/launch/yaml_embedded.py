"""Launches inside YAML of other tools: scripts under any key (job files, recipes), engine options, Ray Serve's kwargs.

Read only where no compose file, manifest or option file was found: then whatever starts an engine is what was meant.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from validate.launch.compose_merge import variables_of
from validate.launch.findings import Launch, MalformedSourceError
from validate.launch.unwrap import launches_of_script
from validate.launch.vllm_config import is_engine_options, option_words
from validate.launch.yaml_text import parse_document

_COMMAND = re.compile(
    r"\bvllm\s+serve\b|\bvllm\.entrypoints\.|\bsglang[.\s]+(?:launch_server|serve)\b|\bdynamo\.vllm\b"
)
_NESTED_YAML = re.compile(r"(?m)^\s*(?:-\s*)?(?:engine_kwargs|vllm|[\w\-]*speculative[_-]config):")
_MAX_TEXTS = 3  # YAML inside YAML inside YAML
_RAY = "Ray Serve builds the engine from engine_kwargs; they are shown as the command-line options that mean the same"


def read_embedded(document: Any, launch: Launch) -> list[Launch]:
    """The engine launches anywhere in a parsed document; `launch` gives folder and name."""
    return list(_walk(document, launch, (), 0))


def _walk(value: Any, launch: Launch, path: tuple[str, ...], texts: int) -> Iterator[Launch]:
    if isinstance(value, dict):
        yield from _mapping(value, launch, path, texts)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _walk(item, launch, (*path, _item_name(item, number)), texts)
    elif isinstance(value, str) and _COMMAND.search(value):
        yield from launches_of_script(_named(launch, path, kind="shell"), str(value))
    elif isinstance(value, str) and _NESTED_YAML.search(value) and texts < _MAX_TEXTS:
        try:
            inner = parse_document(str(value))
        except MalformedSourceError:
            return  # some other text
        if isinstance(inner, dict | list):
            yield from _walk(inner, launch, path, texts + 1)


def _mapping(value: Mapping[str, Any], launch: Launch, path: tuple[str, ...], texts: int) -> Iterator[Launch]:
    if isinstance(value.get("engine_kwargs"), dict):
        yield _ray(value, _named(launch, path, kind="ray"))
    elif is_engine_options(value):
        yield replace(_named(launch, path, kind="config"), argv=("vllm", "serve", *option_words(value)))
    else:
        image = value.get("image")
        inner = replace(
            launch,
            environment={**launch.environment, **_variables(value)},
            image=str(image) if isinstance(image, str) else launch.image,
        )
        for key, item in value.items():
            yield from _walk(item, inner, (*path, key), texts)


def _variables(value: Mapping[str, Any]) -> dict[str, str]:
    """The variables that job files set beside their scripts, under `env` or `envs`, as a mapping or NAME=VALUE."""
    tables = [variables_of(value.get(key)) for key in ("env", "envs")]
    return {name: str(text) for table in tables for name, text in table.items() if isinstance(text, str)}


def _ray(value: Mapping[str, Any], launch: Launch) -> Launch:
    loading = value.get("model_loading_config")
    names = [loading.get(key) for key in ("model_source", "model_id")] if isinstance(loading, dict) else []
    model = next((str(name) for name in names if isinstance(name, str)), None)
    words = option_words({key: item for key, item in value["engine_kwargs"].items() if item is not None})
    return replace(launch, argv=("vllm", "serve", *([model] if model else []), *words), notes=(*launch.notes, _RAY))


def _item_name(item: Any, number: int) -> str:
    name = item.get("name") if isinstance(item, dict) else None
    return str(name) if isinstance(name, str) and name else str(number)


def _named(launch: Launch, path: tuple[str, ...], *, kind: str) -> Launch:
    return replace(launch, kind=kind, name="/".join(path) or launch.name)
