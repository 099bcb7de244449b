"""Launches of Kubernetes manifests, bare container fragments, and chart values with engine arguments."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from validate.launch.containers import container_launches, item_text, looks_like_vllm_arguments, not_a_text
from validate.launch.findings import ERROR, WARNING, Finding, Launch
from validate.launch.program import engine_call, image_engine

_REFERENCE = re.compile(r"\$(\$|\(([^)]*)\))")
_COMMAND_KEYS = ("command", "args", "extraArgs")
_MAX_CONTAINERS = 200


@dataclass(slots=True)
class _Container:
    """A container found in a manifest: its content and the name to show."""

    name: str
    content: Mapping[str, Any]


@dataclass(slots=True)
class _Maps:
    """The ConfigMaps of the same file, by name: where `configMapRef` and `configMapKeyRef` lead."""

    data: dict[str, Mapping[str, Any]] = field(default_factory=dict)


def read_kubernetes(documents: Sequence[Any], folder: Path | None = None) -> list[Launch]:
    """The engine launches of parsed documents, in order."""
    maps = _Maps()
    for document in documents:
        if (
            isinstance(document, dict)
            and document.get("kind") == "ConfigMap"
            and isinstance(document.get("data"), dict)
        ):
            maps.data[_object_name(document)] = document["data"]
    launches: list[Launch] = []
    for document in documents:
        containers = list(_containers(document, _object_name(document), 0))
        for container in containers[:_MAX_CONTAINERS]:
            launches += _Reader(container, maps, folder).launches()
    return launches


def _object_name(document: Any) -> str:
    metadata = document.get("metadata") if isinstance(document, dict) else None
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return str(name) if isinstance(name, str) else ""


def _containers(value: Any, owner: str, depth: int) -> Iterator[_Container]:
    """Every mapping that starts a container, wherever the kind keeps it."""
    if isinstance(value, list):
        for item in value:
            yield from _containers(item, owner, depth + 1)
    elif isinstance(value, dict):
        owner = _object_name(value) or owner
        if _is_container(value):
            own = value.get("name")
            yield _Container("/".join(part for part in (owner, own if isinstance(own, str) else "") if part), value)
            return
        for key, item in value.items():
            if key != "initContainers":
                yield from _containers(item, owner, depth + 1)


def _is_container(value: Mapping[str, Any]) -> bool:
    if any(key in value for key in ("command", "args")) and not isinstance(value.get("args"), dict):
        return True
    if isinstance(value.get("extraArgs"), list):
        return looks_like_vllm_arguments([item for item in value["extraArgs"] if isinstance(item, str)])
    return isinstance(value.get("image"), str) and image_engine(value["image"]) is not None and "name" in value


class _Reader:
    """One container while it is read: collects findings."""

    def __init__(self, container: _Container, maps: _Maps, folder: Path | None) -> None:
        self.name = container.name or "container"
        self.content = container.content
        self.maps = maps
        self.folder = folder
        self.findings: list[Finding] = []
        self.complete = True  # every variable's value is in the file

    def launches(self) -> list[Launch]:
        environment = self._environment()
        command = self._words("command", environment)
        arguments = self._words("args", environment)
        extra = self._words("extraArgs", environment)
        image = self.content.get("image")
        launch = Launch(
            self.name,
            "kubernetes",
            (),
            environment,
            image=image if isinstance(image, str) else None,
            folder=self.folder,
            findings=tuple(self.findings),
        )
        if extra and not command and not arguments:
            model = self.content.get("modelURL") or self.content.get("model")
            arguments = [*([model] if isinstance(model, str) else []), *extra]
        if command and engine_call([*command, *(arguments or [])]) is None and command[0].startswith("-"):
            return container_launches(launch, None, [*command, *(arguments or [])])
        return container_launches(launch, command or None, arguments)

    def _words(self, key: str, environment: Mapping[str, str]) -> list[str] | None:
        value = self.content.get(key)
        if value is None:
            return None
        if isinstance(value, str):
            self.findings.append(
                Finding(
                    ERROR,
                    f"{key}-not-a-list",
                    f"{self.name}: {key} must be a list of texts, Kubernetes refuses one text",
                    f"{key}: [...]",
                )
            )
            return value.split()
        return [self._item(key, item, environment) for item in value] if isinstance(value, list) else None

    def _item(self, key: str, item: Any, environment: Mapping[str, str]) -> str:
        if not isinstance(item, str) or type(item) is not str:
            self.findings.append(not_a_text(f"{self.name}.{key}", item))
            return item_text(item)
        return self._expand(item, environment, report=True)

    def _expand(self, text: str, environment: Mapping[str, str], *, report: bool = False) -> str:
        """`$(NAME)` replaced, `$$` a dollar; an unknown name stays as written, as the kubelet leaves it."""

        def value(match: re.Match[str]) -> str:
            if match[1] == "$":
                return "$"
            if match[2] in environment:
                return environment[match[2]]
            if report and re.fullmatch(r"[A-Za-z_][\w.\-]*", match[2]):
                self.findings.append(self._unresolved(match[2]))
            return match[0]

        return _REFERENCE.sub(value, text)

    def _unresolved(self, name: str) -> Finding:
        if self.complete:
            message = f"$({name}) is no variable of the container: the kubelet passes the text $({name}) on"
            return Finding(ERROR, "unresolved-reference", message, f"env: [{{name: {name}, value: '...'}}]")
        return Finding(
            WARNING, "unresolved-variable", f"$({name}) comes from outside this file, so its value is unknown here"
        )

    def _environment(self) -> dict[str, str]:
        variables: dict[str, str] = {}
        for source in _list(self.content.get("envFrom")):
            reference = source.get("configMapRef") if isinstance(source, dict) else None
            name = reference.get("name") if isinstance(reference, dict) else None
            prefix = source.get("prefix") if isinstance(source, dict) else None
            if isinstance(name, str) and name in self.maps.data:
                variables |= {
                    f"{prefix or ''}{key}": str(value)
                    for key, value in self.maps.data[name].items()
                    if value is not None
                }
            else:
                self.complete = False
        for item in _list(self.content.get("env")):
            if isinstance(item, dict) and isinstance(item.get("name"), str):
                self._variable(item, variables)
        return variables

    def _variable(self, item: Mapping[str, Any], variables: dict[str, str]) -> None:
        name, value = str(item["name"]), item.get("value")
        if isinstance(value, str):
            if type(value) is not str:
                message = f"{self.name}: the value of {name} is {value!r}, not a text; Kubernetes refuses the manifest"
                self.findings.append(Finding(ERROR, "env-value-not-a-text", message, f'value: "{value}"'))
            variables[name] = self._expand(str(value), variables)
            return
        if isinstance(value, dict | list):
            self.findings.append(not_a_text(f"{self.name}.env.{name}", value))
            return
        reference = item.get("valueFrom")
        key_reference = reference.get("configMapKeyRef") if isinstance(reference, dict) else None
        if isinstance(key_reference, dict):
            found = self.maps.data.get(str(key_reference.get("name")), {}).get(str(key_reference.get("key")))
            if isinstance(found, str):
                variables[name] = str(found)
                return
        if reference is None:
            variables[name] = ""
        else:
            self.complete = False


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
