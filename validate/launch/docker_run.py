"""Read `docker run` (also podman, nerdctl) command lines into image, environment and the container's argument list."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from validate.launch.files import read_beside
from validate.launch.program import image_entrypoint

_ENGINES = frozenset(("docker", "podman", "nerdctl"))
# Every other option of `docker run` takes a value. Source: docker run --help (28.2), podman-run(1).
_FLAGS = frozenset(
    (
        "--detach", "--disable-content-trust", "--init", "--interactive", "--no-healthcheck", "--oom-kill-disable",
        "--privileged", "--publish-all", "--quiet", "--read-only", "--replace", "--rm", "--rmi", "--sig-proxy",
        "--tty", "--use-api-socket", "--tls-verify", "--no-hosts", "--no-hostname", "--read-only-tmpfs",
        "--env-host", "--http-proxy", "--help",
    )
)  # fmt: skip
_SHORT_FLAGS = frozenset("ditPq")
_GLOBAL_OPTIONS_WITH_VALUE = frozenset(("-H", "--host", "-c", "--context", "-l", "--log-level", "--config"))


@dataclass(slots=True)
class Container:
    """What a container would start: `argv` is entrypoint plus command, () when the image's own cannot be known."""

    image: str = ""
    name: str = ""
    argv: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)


def is_docker_run(argv: Sequence[str]) -> bool:
    """Whether the words are a `docker run` or `docker create`."""
    return _run_position(argv) is not None


def _run_position(argv: Sequence[str]) -> int | None:
    if not argv or argv[0].rsplit("/", 1)[-1] not in _ENGINES:
        return None
    position = 1
    while position < len(argv) and argv[position].startswith("-"):
        position += 2 if argv[position] in _GLOBAL_OPTIONS_WITH_VALUE else 1
    position += 1 if list(argv[position : position + 1]) == ["container"] else 0
    return position + 1 if position < len(argv) and argv[position] in ("run", "create") else None


def read_docker_run(argv: Sequence[str], environment: dict[str, str], folder: Path | None) -> Container:
    """The container of a `docker run`; `-e NAME` without a value takes it from the caller's environment."""
    container = Container()
    entrypoint: str | None = None
    position = _run_position(argv) or len(argv)
    while position < len(argv) and argv[position].startswith("-") and argv[position] != "-":
        option, value, position = _option(argv, position)
        if option in ("-e", "--env"):
            name, equals, text = value.partition("=")
            container.environment[name] = text if equals else environment.get(name, "")
        elif option == "--env-file":
            container.environment |= env_file(read_beside(value, folder) or "")
        elif option == "--entrypoint":
            entrypoint = value
        elif option == "--name":
            container.name = value
    container.image = argv[position] if position < len(argv) else ""
    command = tuple(argv[position + 1 :])
    if entrypoint is None:
        container.argv = (*image_entrypoint(container.image), *command)
    else:
        container.argv = (*((entrypoint,) if entrypoint else ()), *command)
    return container


def _option(argv: Sequence[str], position: int) -> tuple[str, str, int]:
    """(option, value, position after it); clusters such as -it and attached values such as -p8000:80 included."""
    word = argv[position]
    following = argv[position + 1] if position + 1 < len(argv) else ""
    if word.startswith("--"):
        option, equals, value = word.partition("=")
        if equals or option in _FLAGS:
            return option, value, position + 1
        return option, following, position + 2
    letters = word[1:]
    while letters and letters[0] in _SHORT_FLAGS:
        letters = letters[1:]
    if not letters:
        return word, "", position + 1
    if len(letters) > 1:
        return "-" + letters[0], letters[1:].removeprefix("="), position + 1
    return "-" + letters, following, position + 2


def env_file(text: str) -> dict[str, str]:
    """The variables of a docker --env-file: NAME=VALUE lines taken literally, quotes included."""
    variables: dict[str, str] = {}
    for line in text.split("\n"):
        match = re.match(r"\s*([^#=\s][^=]*)=(.*)", line)
        if match:
            variables[match[1].strip()] = match[2]
    return variables
