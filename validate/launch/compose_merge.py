"""What a compose file takes from other files: `extends`, `include`, and the override file that compose adds itself.

Source: compose specification, "Merge", "extends" and "include"; `docker compose` reads an override file beside a file
of a default name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from validate.launch.files import read_beside
from validate.launch.findings import WARNING, Finding, MalformedSourceError
from validate.launch.systemd_words import excerpt
from validate.launch.yaml_text import parse_document

_DEFAULT_NAMES = frozenset(("compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml"))
_OVERRIDE_NAMES = (
    "compose.override.yml", "compose.override.yaml", "docker-compose.override.yml", "docker-compose.override.yaml",
)  # fmt: skip
_MAX_DEPTH = 8
_REPLACED = frozenset(("command", "entrypoint"))  # lists that the later file replaces; others are appended


@dataclass(slots=True)
class Service:
    """A service with everything that it extends, what could not be read for it, and the files that were merged."""

    content: dict[str, Any]
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def whole_services(content: Mapping[str, Any], path: Path | None) -> dict[str, Service]:
    """Every service of a parsed compose file, by name, as compose sees it before interpolation."""
    folder = path.parent if path else None
    siblings, services = _named_services(content), dict[str, Service]()
    for name, own in siblings.items():
        service = Service({})
        service.content = _extended(name, own, siblings, (folder, Path()), service, 0)
        services[name] = service
    override, overridden = _override(path)
    for name, later in overridden.items():
        service = services.setdefault(name, Service({}))
        service.content = merge(service.content, later)
        service.notes.append(f"{override} beside it is merged, as docker compose does")
    return services


def included_files(content: Mapping[str, Any]) -> list[str]:
    """The files that `include` names, in order; a list of paths in one item is one merged project, read one by one."""
    given = content.get("include")
    items = given if isinstance(given, list) else []
    paths = [item.get("path") if isinstance(item, dict) else item for item in items]
    flat = [path for item in paths for path in (item if isinstance(item, list) else [item])]
    return [path for path in flat if type(path) is str]


def parsed(text: str) -> Mapping[str, Any]:
    """The mapping of a compose file's text, {} when it is none."""
    document = parse_document(text)
    return document if isinstance(document, dict) else {}


def _named_services(content: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    services = content.get("services")
    items = services.items() if isinstance(services, dict) else ()
    return {str(name): service for name, service in items if isinstance(service, dict)}


def _override(path: Path | None) -> tuple[str, dict[str, dict[str, Any]]]:
    """(name, services) of the override file beside a compose file of a default name; no services without one."""
    if path is not None and path.name in _DEFAULT_NAMES:
        for name in _OVERRIDE_NAMES:
            text = read_beside(name, path.parent)
            if text is not None:
                return name, _named_services(parsed(text))
    return "", {}


def _extended(
    name: str,
    own: Mapping[str, Any],
    siblings: Mapping[str, Mapping[str, Any]],
    place: tuple[Path | None, Path],
    service: Service,
    depth: int,
) -> dict[str, Any]:
    """The service laid over what it extends; `place`: folder of the first file, and this file's below it."""
    if depth > _MAX_DEPTH:
        raise MalformedSourceError("nested-too-deep", f"service {excerpt(name)} extends itself, or too many others")
    given = own.get("extends")
    content = _paths_below(own, place[1])
    if given is None:
        return content
    base_name, file = (given.get("service"), given.get("file")) if isinstance(given, dict) else (given, None)
    within, below = (siblings, place[1]) if file is None else _services_of(str(file), place)
    base = within.get(str(base_name)) if within is not None else None
    if base is None or within is None:
        where = f"{file}: {base_name}" if file else str(base_name)
        text = f"what service {excerpt(name)} extends ({excerpt(where)}) cannot be read here: what it sets is unknown"
        service.findings.append(Finding(WARNING, "extends-unreadable", text))
        return content
    return merge(_extended(str(base_name), base, within, (place[0], below), service, depth + 1), content)


def _services_of(file: str, place: tuple[Path | None, Path]) -> tuple[dict[str, dict[str, Any]] | None, Path]:
    """(the services of a file named in `extends`, None where it cannot be read; its folder below the first file's)."""
    folder, below = place
    wanted = below / file
    text = read_beside(str(wanted), folder) if folder is not None else None
    return (None if text is None else _named_services(parsed(text))), wanted.parent


def _paths_below(own: Mapping[str, Any], below: Path) -> dict[str, Any]:
    """The service with the paths of its env_file seen from the folder of the first file, as a list."""
    content = {key: value for key, value in own.items() if key != "extends"}
    files = content.get("env_file")
    if files:
        content["env_file"] = [_moved(file, below) for file in (files if isinstance(files, list) else [files])]
    return content


def _moved(file: Any, below: Path) -> Any:
    if isinstance(file, dict):
        return {**file, "path": str(below / file["path"])} if isinstance(file.get("path"), str) else file
    return str(below / file) if isinstance(file, str) else file


def merge(base: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
    """The mapping `base` with `later` laid over it as compose does.

    >>> merge({"command": ["a"], "environment": ["A=1", "B=2"]}, {"command": ["b"], "environment": {"B": "3"}})
    {'command': ['b'], 'environment': {'A': '1', 'B': '3'}}
    """
    merged = dict(base)
    for key, value in later.items():
        before = merged.get(key)
        if key == "environment":
            merged[key] = {**variables_of(before), **variables_of(value)}
        elif isinstance(value, dict) and isinstance(before, dict):
            merged[key] = merge(before, value)
        elif isinstance(value, list) and isinstance(before, list) and key not in _REPLACED:
            merged[key] = [*before, *value]
        else:
            merged[key] = value
    return merged


def variables_of(given: Any) -> dict[str, Any]:
    """`environment` as a mapping, whether it was written as one or as a list of NAME=VALUE; None where no value is."""
    if isinstance(given, dict):
        return dict(given)
    pairs = [item.partition("=") for item in (given if isinstance(given, list) else []) if isinstance(item, str)]
    return {name: value if equals else None for name, equals, value in pairs}
