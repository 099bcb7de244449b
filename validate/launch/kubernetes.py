"""Launches of Kubernetes manifests, bare container fragments, and chart values with engine arguments."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from validate.launch.compose_words import split_command
from validate.launch.containers import container_launches, item_text, looks_like_vllm_arguments, not_a_text
from validate.launch.findings import ERROR, WARNING, Finding, Launch
from validate.launch.program import engine_call, image_engine, image_version
from validate.launch.vllm_options import KINDS, VALUE

_REFERENCE = re.compile(r"\$(\$|\(([^)]*)\))")
_LEFT = re.compile(r"\$\(([A-Za-z_][\w.\-]*)\)")
_KSERVE_OPTIONS = re.compile(r"--model[_-](id|name)(?==|$)")  # KServe's names for --model and --served-model-name
# Variables that a controller or the cluster itself adds to every container.
_CONTROLLER_PREFIXES = ("LWS_", "KUBERNETES_", "JOB_", "POD_", "NODE_", "RAY_", "NVIDIA_")
_MAX_CONTAINERS = 200
UNRESOLVED = "unresolved-variable"


@dataclass(slots=True)
class _Container:
    """A container found in a manifest: its content, the name to show, and whether Kubernetes itself reads it.

    Other tools keep mappings of the same shape; those may take a command as one text. `model` and
    `version` are what the mapping around it says.
    """

    name: str
    content: Mapping[str, Any]
    is_native: bool = True
    model: str | None = None
    version: str | None = None
    parallelism: Mapping[str, Any] = field(default_factory=dict)  # KServe's LLMInferenceService


@dataclass(slots=True)
class _Maps:
    """The ConfigMaps of the same file, by name: where `configMapRef` and `configMapKeyRef` lead, and mounted files."""

    data: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def files(self) -> dict[str, str]:
        """The texts that may be mounted as files, by file name; the first map of a name counts."""
        texts = [(key, value) for data in self.data.values() for key, value in data.items() if isinstance(value, str)]
        return {key: str(value) for key, value in reversed(texts)}


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
        containers = list(_containers(document, _Owner(_object_name(document), _is_native(document)), 0))
        for container in containers[:_MAX_CONTAINERS]:
            launches += _Reader(container, maps, folder).launches()
    return launches


def _object_name(document: Any) -> str:
    metadata = document.get("metadata") if isinstance(document, dict) else None
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return str(name) if isinstance(name, str) else ""


@dataclass(frozen=True, slots=True)
class _Owner:
    """What stands around a container: the name of its object, whether Kubernetes reads it, the model named there."""

    name: str
    is_native: bool
    model: str | None = None
    version: str | None = None  # of the engine, by the tag of a chart's values
    parallelism: Mapping[str, Any] = field(default_factory=dict)

    def inside(self, value: Mapping[str, Any]) -> "_Owner":
        """The owner of what stands inside the mapping."""
        model = value.get("modelURL") or value.get("model") or value.get("modelArtifacts")
        uri = model.get("uri") if isinstance(model, dict) else model  # KServe, llm-d: one level further down
        url = value.get("url")  # KubeAI
        uri = url if uri is None and isinstance(url, str) and url.startswith("hf://") else uri
        named = str(uri).removeprefix("hf://") if isinstance(uri, str) else self.model
        name = _object_name(value) or (str(value.get("name") or "") if "modelURL" in value else "") or self.name
        given = value.get("parallelism")
        return _Owner(
            name,
            self.is_native or _is_object(value),
            named,
            _chart_version(value) or self.version,
            given if isinstance(given, dict) else self.parallelism,
        )


def _chart_version(values: Mapping[str, Any]) -> str | None:
    """Version of the engine that `repository` and `tag` of a chart's values name, side by side or under `image`."""
    image = values.get("image")
    named = image if isinstance(image, dict) else values
    repository, tag = named.get("repository"), named.get("tag")
    return image_version(f"{repository}:{tag}") if isinstance(repository, str) and tag is not None else None


def _is_native(document: Any) -> bool:
    """Whether Kubernetes reads it: an object, or a bare fragment that is a container itself."""
    if isinstance(document, list):
        return any(_is_native(item) for item in document)
    return isinstance(document, dict) and (_is_object(document) or _is_container(document))


def _is_object(value: Mapping[str, Any]) -> bool:
    return "apiVersion" in value or "kind" in value


def _containers(value: Any, owner: _Owner, depth: int) -> Iterator[_Container]:
    """Every mapping that starts a container, wherever the kind keeps it."""
    if isinstance(value, list):
        for item in value:
            yield from _containers(item, owner, depth + 1)
    elif isinstance(value, dict):
        owner = owner.inside(value)
        if _is_container(value):
            own = value.get("name")
            name = "/".join(part for part in (owner.name, own if isinstance(own, str) else "") if part)
            yield _Container(name, value, owner.is_native, owner.model, owner.version, owner.parallelism)
            return
        for key, item in value.items():
            if key != "initContainers":
                yield from _containers(item, owner, depth + 1)


def _is_container(value: Mapping[str, Any]) -> bool:
    if "commands" in value:
        return False  # a job file of another tool (dstack): its commands are lines of a shell
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
        self.is_native = container.is_native
        self.model = container.model
        self.version = container.version
        self.parallelism = container.parallelism
        self.maps = maps
        self.folder = folder
        self.findings: list[Finding] = []
        self.unknown: set[str] = set()  # names in $(NAME) that nothing in the file sets
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
            version=None if isinstance(image, str) else self.version,
            folder=self.folder,
            files=self.maps.files(),
        )
        if extra and not command and not arguments:
            arguments = [*([self.model] if self.model else []), *_camel_case_options(self.content), *extra]
        if not command and not arguments:
            arguments = self._from_environment(environment)
        if self.model and not command and (self.content.get("modelCommand") == "vllmServe" or self._is_kubeai()):
            arguments = [self.model, *_parallel_options(self.parallelism), *(arguments or [])]
        if isinstance(self.content.get("modelFormat"), dict):
            arguments = [_KSERVE_OPTIONS.sub(_kserve_option, word) for word in arguments or []]
        if command and engine_call([*command, *(arguments or [])]) is None and command[0].startswith("-"):
            found = container_launches(launch, None, [*command, *(arguments or [])])
        else:
            found = container_launches(launch, command or None, arguments)
        return [replace(item, findings=self._all_findings(item)) for item in found]

    def _all_findings(self, launch: Launch) -> tuple[Finding, ...]:
        """The container's findings in front of the launch's; what a shell says of an unknown $(NAME) is said once."""
        known = self._references(launch)
        said = {finding.message.split(" ")[0] for finding in known}
        rest = [item for item in launch.findings if item.code != UNRESOLVED or item.message.split(" ")[0] not in said]
        return (*self.findings, *known, *rest)

    def _is_kubeai(self) -> bool:
        """KubeAI's operator starts `vllm serve` with the model of `url` and the `args` behind it."""
        return self.content.get("engine") == "VLLM" and "url" in self.content

    def _from_environment(self, environment: Mapping[str, str]) -> list[str] | None:
        """KServe's own templates start `vllm serve MODEL` and append what stands in VLLM_ADDITIONAL_ARGS."""
        added = environment.get("VLLM_ADDITIONAL_ARGS")
        if added is None and self.model is None:
            return None
        parallel = _parallel_options(self.parallelism)
        return [*([self.model] if self.model else []), *parallel, *(split_command(added)[0] if added else [])]

    def _references(self, launch: Launch) -> list[Finding]:
        """Findings on `$(NAME)` that reach the engine as written: in a script they may be meant for the shell."""
        names = dict.fromkeys(match[1] for word in launch.argv for match in _LEFT.finditer(word))
        return [self._unresolved(name) for name in names if name in self.unknown]

    def _words(self, key: str, environment: Mapping[str, str]) -> list[str] | None:
        value = self.content.get(key)
        if value is None:
            return None
        if isinstance(value, str) and not self.is_native:
            return split_command(value)[0]
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
        return self._expand(item, environment)

    def _expand(self, text: str, environment: Mapping[str, str]) -> str:
        """`$(NAME)` replaced, `$$` a dollar; an unknown name stays as written, as the kubelet leaves it."""

        def value(match: re.Match[str]) -> str:
            if match[1] == "$":
                return "$"
            if match[2] in environment:
                return environment[match[2]]
            self.unknown.add(match[2])
            return match[0]

        return _REFERENCE.sub(value, text)

    def _unresolved(self, name: str) -> Finding:
        if self.complete and not name.startswith(_CONTROLLER_PREFIXES):
            message = f"$({name}) is no variable of the container: the kubelet passes the text $({name}) on"
            return Finding(ERROR, "unresolved-reference", message, f"env: [{{name: {name}, value: '...'}}]")
        return Finding(WARNING, UNRESOLVED, f"$({name}) comes from outside this file, so its value is unknown here")

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


def _kserve_option(match: re.Match[str]) -> str:
    return "--model" if match[1] == "id" else "--served-model-name"


def _parallel_options(parallelism: Mapping[str, Any]) -> list[str]:
    """What KServe's templates make of `spec.parallelism`. Source: kserve config/llmisvcconfig/config-llm-*.yaml."""
    sizes = [[option, str(parallelism[key])] for key, option in _KSERVE_PARALLEL.items() if parallelism.get(key)]
    expert = ["--enable-expert-parallel"] if str(parallelism.get("expert")).lower() == "true" else []
    return [word for words in sizes for word in words] + expert


_KSERVE_PARALLEL = {
    "tensor": "--tensor-parallel-size", "pipeline": "--pipeline-parallel-size", "data": "--data-parallel-size",
}  # fmt: skip


def _camel_case_options(values: Mapping[str, Any]) -> list[str]:
    """A chart's own names for engine options (`maxModelLen: 4096`) as the options that its templates make of them."""
    words: list[str] = []
    for key, value in values.items():
        option = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", key).lower()
        if isinstance(value, str) and KINDS.get(option) == VALUE:
            words += ["--" + option, str(value)]
    return words


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
