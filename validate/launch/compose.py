"""Launches of a docker compose file: interpolation, string or list commands, entrypoints, environment."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from validate.launch.compose_merge import Service, included_files, parsed, variables_of, whole_services
from validate.launch.compose_words import interpolate, split_command
from validate.launch.containers import container_launches, item_text, not_a_text
from validate.launch.dockerfile import Built, built_image
from validate.launch.dotenv import read_dotenv
from validate.launch.files import read_beside
from validate.launch.findings import ERROR, WARNING, Finding, Launch
from validate.launch.redaction import is_secret_variable
from validate.launch.systemd_words import excerpt


def read_compose(content: Mapping[str, Any], path: Path | None = None, depth: int = 0) -> list[Launch]:
    """The engine launches of a parsed compose file, one or more per service; `.env` beside it feeds interpolation."""
    folder = path.parent if path else None
    variables = read_dotenv(read_beside(".env", folder) or "") if folder else {}
    launches: list[Launch] = []
    for name, service in whole_services(content, path).items():
        launches += _Service(name, service, variables, folder).launches()
    if folder is not None and depth < _MAX_INCLUDES:
        for file in included_files(content):
            text = read_beside(file, folder)
            launches += read_compose(parsed(text), folder / file, depth + 1) if text is not None else []
    return launches


_MAX_INCLUDES = 4  # files that include files


class _Service:
    """One service while it is read: collects findings."""

    def __init__(self, name: str, service: Service, variables: Mapping[str, str], folder: Path | None) -> None:
        self.name = name
        self.content = service.content
        self.notes = tuple(service.notes)
        self.variables = variables
        self.folder = folder
        self.findings = list(service.findings)
        self.unset: list[str] = []

    def launches(self) -> list[Launch]:
        image = self.content.get("image")
        entrypoint = self._command("entrypoint")
        command = self._command("command")
        built = self._built()
        if built is not None and entrypoint is None:  # an entrypoint of the service drops the image's command too
            entrypoint, command = built.entrypoint, built.command if command is None else command
        environment = self._environment()
        launch = Launch(
            self.name,
            "compose",
            (),
            environment if built is None else built.environment | environment,
            image=built.image if built is not None else self._text(image) if isinstance(image, str) else None,
            version=None if built is None else built.version,
            folder=self.folder,
            in_text=isinstance(self.content.get("command"), str),
            findings=(*self.findings, *(_unset(name) for name in dict.fromkeys(self.unset))),
            notes=self.notes,
        )
        return container_launches(launch, entrypoint, command)

    def _built(self) -> Built | None:
        """The image that the service builds itself, where its Dockerfile can be read."""
        given = self.content.get("build")
        build = given if isinstance(given, dict) else {"context": given}
        context, inline = build.get("context", "."), build.get("dockerfile_inline")
        if isinstance(inline, str):
            return built_image(str(inline))
        if not isinstance(context, str) or self.folder is None:
            return None
        text = read_beside(f"{self._text(context)}/{build.get('dockerfile', 'Dockerfile')}", self.folder)
        return None if text is None else built_image(text)

    def _text(self, value: str) -> str:
        return interpolate(value, self.variables, self.unset)

    def _command(self, key: str) -> list[str] | None:
        """The words of `command` or `entrypoint`: a list word for word, a text split; None when not given."""
        value = self.content.get(key)
        if value is None:
            return None
        if isinstance(value, str):
            words, dropped = split_command(self._text(value))
            if dropped:
                message = f"compose runs no shell: everything from {excerpt(dropped)!r} on is dropped from {key}"
                self.findings.append(Finding(ERROR, "compose-command-cut", message, f"{key}: [sh, -c, '...']"))
            return words
        if not isinstance(value, list):
            self.findings.append(not_a_text(f"{self.name}.{key}", value))
            return []
        return [self._item(key, item) for item in value]

    def _item(self, key: str, item: Any) -> str:
        if not isinstance(item, str) or type(item) is not str:
            self.findings.append(not_a_text(f"{self.name}.{key}", item))
        return self._text(item) if isinstance(item, str) else item_text(item)

    def _environment(self) -> dict[str, str]:
        variables: dict[str, str] = {}
        files = self.content.get("env_file") or []
        for file in [files] if isinstance(files, str | dict) else files:
            path = file.get("path") if isinstance(file, dict) else file
            text = read_beside(path, self.folder) if isinstance(path, str) else None
            variables |= read_dotenv(text) if text is not None else {}
        given = variables_of(self.content.get("environment"))
        pairs = [(key, value) for key, value in given.items() if value is not None]
        return variables | {key: self._text(str(value)) for key, value in pairs}


def _unset(name: str) -> Finding:
    message = (
        f"${name} has no default and is not in .env: compose takes it from its own environment, or puts an empty text"
    )
    fix = None if is_secret_variable(name) else f"${{{name}:-default}}"
    return Finding(WARNING, "unresolved-variable", message, fix)
