"""Find the launches in a text, a file or an argument list: decide what kind it is by content first, by name second."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hwmodel.errors import InputError
from validate.launch.docker_inspect import looks_like_docker_inspect, read_docker_inspect
from validate.launch.dockerfile import read_dockerfile
from validate.launch.files import check_text, read_source
from validate.launch.findings import Finding, Launch, MalformedSourceError
from validate.launch.logs import looks_like_log, read_log
from validate.launch.nix import looks_like_nix, read_nix
from validate.launch.program import engine_call
from validate.launch.quadlet import read_quadlet
from validate.launch.supervisor import looks_like_supervisor, read_supervisor
from validate.launch.systemd import read_systemd
from validate.launch.systemd_words import excerpt
from validate.launch.unwrap import MAX_LAUNCHES, launches_of_script, resolve
from validate.launch.variables import looks_like_variables, read_variables

_UNIT = re.compile(r"(?m)^\s*(?:\[(?:Unit|Service|Install)\]|ExecStart\s*=)")
_SUFFIXES = (".service", ".yml", ".yaml", ".sh", ".conf", ".container", ".nix")
_MANIFEST = re.compile(r'"(?:kind|services|containers|args|command)"\s*:')
_QUADLET = re.compile(r"(?m)^\s*\[Container\]\s*$")
_EXEC_START = re.compile(r"(?m)^\s*ExecStart\s*=")
_SHEBANG = re.compile(r"#!.*\b(?:sh|bash|dash|zsh|ksh)\b")
_DOCKERFILE = re.compile(r"(?m)^FROM\s+\S+")
_YAML_KEY = re.compile(r"(?m)^(?:- )?[A-Za-z_][\w.\-]*:(?:\s|$)")
_ENGINE_WORD = re.compile(r"\b(?:vllm|sglang)\b")
_BARE_JSON = re.compile(r"\s*\\?\{")
_VALUE_AND_REMARK = re.compile(r"(.*?\})(?:\s{2,}.*)?")
_DESCRIPTION = (
    "a launch is a systemd unit, compose file, Kubernetes manifest, shell script, vLLM --config file, or a command"
)


class SourceText(str):
    """A text that is never the name of a file, whatever it looks like: what came on standard input."""

    __slots__ = ()


@dataclass(slots=True)
class Launches:
    """What a source holds: the launches, and the faults of pieces that could not be parsed."""

    launches: list[Launch] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def looks_like_launch(text_or_path: str) -> bool:
    """Whether this is a launch text or file rather than a deployment file: cheap, without parsing YAML."""
    path = existing_file(text_or_path)
    if path is None:
        return _looks_like_launch_text(text_or_path) if _is_text(text_or_path) else False
    if path.suffix == ".toml":
        return False
    try:
        text = read_source(path)
    except InputError:
        return path.suffix in _SUFFIXES
    if path.suffix == ".json":
        return looks_like_docker_inspect(text) or (_MANIFEST.search(text) and _ENGINE_WORD.search(text)) is not None
    return (
        path.suffix in _SUFFIXES or _looks_like_launch_text(text) or looks_like_variables(text) or looks_like_log(text)
    )


def _looks_like_launch_text(text: str) -> bool:
    if re.search(r"(?m)^\s*\[(?:model|engine|hardware|speculation|workload)\]\s*(?:#.*)?$", text):
        return False
    return bool(
        _UNIT.search(text) or _ENGINE_WORD.search(text) or re.search(r"--speculative|--spec-|(?m:^services:)", text)
    )


def existing_file(text_or_path: str) -> Path | None:
    """The path, if the text names a file or folder that exists; texts of several lines never do."""
    if not text_or_path or "\n" in text_or_path or "\0" in text_or_path:
        return None
    try:
        path = Path(text_or_path).expanduser()
        return path if path.exists() else None
    except (OSError, RuntimeError, ValueError):
        return None


def _is_text(text: str) -> bool:
    return bool(re.search(r"\s", text.strip())) or bool(_BARE_JSON.match(text))


def find_launches(source: str | Path | Sequence[str]) -> Launches:
    """The launches of a path, a text, or an argument list. Unreadable raises; malformed is a finding."""
    if isinstance(source, Path):
        return _from_file(source)
    if isinstance(source, SourceText):
        return _guarded(lambda found: _read_text(found, check_text(source.replace("\r\n", "\n"), "the text"), None))
    if not isinstance(source, str):
        return _guarded(lambda found: found.launches.extend(_from_words([str(word) for word in source])))
    path = existing_file(source)
    if path is not None:
        return _from_file(path)
    if not _is_text(source):
        raise InputError(f"no file '{excerpt(source)}', and no launch text either: {_DESCRIPTION}")
    text = check_text(source.replace("\r\n", "\n"), "the launch text")
    return _guarded(lambda found: _read_text(found, text, None))


def _from_file(path: Path) -> Launches:
    text = read_source(path)
    return _guarded(lambda found: _read_text(found, text, path))


def _guarded(read: Callable[[Launches], None]) -> Launches:
    found = Launches()
    try:
        read(found)
    except MalformedSourceError as error:
        found.findings.append(error.finding())
    except RecursionError:
        found.findings.append(MalformedSourceError("nested-too-deep", "the launch text is nested too deeply").finding())
    found.launches = _unique_names(found.launches)
    return found


def _unique_names(launches: list[Launch]) -> list[Launch]:
    seen: dict[str, int] = {}
    named: list[Launch] = []
    for launch in launches:
        seen[launch.name] = seen.get(launch.name, 0) + 1
        number = seen[launch.name]
        named.append(launch if number == 1 else replace(launch, name=f"{launch.name}-{number}"))
    return named


def _from_words(words: list[str]) -> list[Launch]:
    for word in words:
        check_text(word, "the command")
    return resolve(Launch("command", "command", tuple(words), folder=Path()))


def _read_text(found: Launches, text: str, path: Path | None) -> None:
    """Add the launches of a text to `found`, by the kind that its content shows."""
    folder = path.parent if path else None
    suffix = path.suffix if path else ""
    script = Launch(path.name if path else "command", "shell" if path else "command", (), folder=folder)
    kind = _kind(text, suffix)
    if kind == "systemd":
        found.launches += [item for launch in read_systemd(text, path) for item in resolve(launch)]
    elif kind == "braces":
        _read_braces(found, text, path)
    elif kind == "yaml":
        _read_yaml(found, text, path)
    elif kind in _READERS:
        found.launches += _READERS[kind](text, path)
    else:
        found.launches += launches_of_script(replace(script, kind="shell") if kind == "script" else script, text)


def _kind(text: str, suffix: str) -> str:
    """The format of a text, by its content first; "" is a command line or a script without a first line."""
    tests = (
        ("script", _SHEBANG.match(text) is not None or suffix in (".sh", ".bash")),
        ("docker inspect", looks_like_docker_inspect(text)),
        ("log", looks_like_log(text)),
        ("nix", looks_like_nix(text, suffix)),
        ("supervisor", looks_like_supervisor(text)),
        ("quadlet", _QUADLET.search(text) is not None and _EXEC_START.search(text) is None),
        ("systemd", _UNIT.search(text) is not None or suffix == ".service"),
        ("variables", looks_like_variables(text)),
        ("dockerfile", _DOCKERFILE.search(text) is not None),
        ("braces", _BARE_JSON.match(text) is not None),
        ("yaml", suffix in (".yml", ".yaml") or _is_yaml(text)),
    )
    return next((kind for kind, applies in tests if applies), "")


def _folder(path: Path | None) -> Path | None:
    return path.parent if path else None


_READERS: dict[str, Callable[[str, Path | None], list[Launch]]] = {
    "docker inspect": lambda text, path: read_docker_inspect(text, _folder(path)),
    "log": lambda text, path: read_log(text, _folder(path)),
    "nix": lambda text, path: read_nix(text, _folder(path)),
    "quadlet": read_quadlet,
    "supervisor": lambda text, path: read_supervisor(text, _folder(path)),
    "variables": lambda text, path: read_variables(text, _folder(path), path.name if path else "environment"),
    "dockerfile": lambda text, path: read_dockerfile(text, _folder(path)),
}


def _is_yaml(text: str) -> bool:
    first = next((line for line in text.split("\n") if line.strip() and not line.lstrip().startswith("#")), "")
    return bool(_YAML_KEY.match(first) or first.startswith(("---", "- ")))


def _read_yaml(found: Launches, text: str, path: Path | None) -> None:
    # Imported here alone: PyYAML costs start-up time, and most sources need none.
    from validate.launch.yaml_sources import read_yaml

    read_yaml(found.launches, found.findings, text, path)


def _read_braces(found: Launches, text: str, path: Path | None) -> None:
    """A text that starts with a brace: a JSON manifest, or bare values of --speculative-config, one a line."""
    if _MANIFEST.search(text):
        _read_yaml(found, text, path)
        return
    for number, line in enumerate(text.split("\n"), start=1):
        match = _VALUE_AND_REMARK.fullmatch(line.strip())
        if match:
            if len(found.launches) >= MAX_LAUNCHES:
                raise MalformedSourceError("too-many-launches", f"more than {MAX_LAUNCHES} launches in one source")
            argv = ("vllm", "serve", "--speculative-config", match[1])
            note = (
                "only the value of --speculative-config was given; it is read as if it reached the engine as it stands"
            )
            found.launches.append(Launch(f"line-{number}", "value", argv, notes=(note,)))


def names_of(launches: Sequence[Launch]) -> str:
    """The launch names for an error message."""
    return ", ".join(launch.name for launch in launches)


def is_engine_argv(argv: Sequence[str]) -> bool:
    """Whether the argument list starts an engine."""
    return engine_call(argv) is not None
