"""Launches of a systemd unit: drop-ins, environment files, specifiers, continuations, as systemd reads them."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from validate.launch.files import read_beside, read_source
from validate.launch.findings import ERROR, INFO, WARNING, Finding, Launch, MalformedSourceError
from validate.launch.systemd_words import excerpt, expand_variables, split_environment_file, split_words

_COMMENT = ("#", ";")
_EXECUTABLE_PREFIXES = "@-:+!|"
_WHOLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# systemd.unit(5), "Specifiers": those with one value for a system service; others depend on the host, stay as written.
_DIRECTORY_SPECIFIERS = {
    "t": "/run",
    "S": "/var/lib",
    "C": "/var/cache",
    "L": "/var/log",
    "E": "/etc",
    "T": "/tmp",
    "V": "/var/tmp",
}
_HOST_SPECIFIERS = frozenset("mbHlqvaABMowW")


@dataclass(slots=True)
class _Service:
    """The `[Service]` settings that matter, collected over unit and drop-ins in order."""

    commands: list[tuple[str, str]] = field(default_factory=list)  # (setting name, value)
    environment: list[str] = field(default_factory=list)
    environment_files: list[str] = field(default_factory=list)
    unset: list[str] = field(default_factory=list)
    passed: list[str] = field(default_factory=list)  # names taken over from the manager, whose values are unknown
    kind: str = "simple"
    user: str = ""
    directory: str = ""
    findings: list[Finding] = field(default_factory=list)


def read_systemd(text: str, path: Path | None = None) -> list[Launch]:
    """The launches of a unit's text (or of `systemctl cat`), with the drop-ins beside the file when it has one."""
    service = _Service()
    for piece in unit_pieces(text, path):
        for section, key, value in unit_settings(piece, service.findings):
            if section in ("Service", ""):
                _apply(service, key, value)
    unit = _unit_name(text, path)
    return [_launch(service, command, unit, path) for command in _commands(service)]


def unit_pieces(text: str, path: Path | None) -> list[str]:
    """The unit's text and those of `NAME.service.d/*.conf` beside it, in systemd's order; also from one drop-in."""
    if path is None:
        return [text]
    unit = _unit_path(path)
    main = text if unit == path or not unit.is_file() else read_source(unit)
    folder = unit.with_name(unit.name + ".d")
    return [main, *(read_source(drop_in) for drop_in in sorted(folder.glob("*.conf")) if drop_in.is_file())]


def _unit_path(path: Path) -> Path:
    is_drop_in = path.suffix == ".conf" and path.parent.suffix == ".d"
    return path.parent.with_suffix("") if is_drop_in else path


def _unit_name(text: str, path: Path | None) -> str:
    if path is not None:
        return _unit_path(path).name
    shown = re.search(r"(?m)^# /\S*/([\w@.\-\\]+\.service)\s*$", text)  # the header lines of `systemctl cat`
    return shown[1] if shown else "unit"


def unit_settings(text: str, findings: list[Finding]) -> Iterator[tuple[str, str, str]]:
    """(section, key, value) of every setting, continuation lines joined by a blank and comments inside them skipped."""
    section = ""
    pending = ""
    for raw in text.lstrip("\ufeff").split("\n"):
        line = raw.rstrip("\r").lstrip(" \t")
        if line.startswith(_COMMENT) or (not line and not pending):
            continue
        joined = pending + line
        if _continues(line):
            pending = joined[:-1] + " "
            continue
        pending = ""
        if joined.startswith("["):
            section = joined.strip().strip("[]")
        elif "=" in joined and not joined.startswith("-"):
            key, _, value = joined.partition("=")
            if value.rstrip() != value and value.rstrip().endswith("\\"):
                findings.append(_lost_line("a blank after the backslash ends the command there", value))
            yield section, key.strip(), value.strip()
        elif joined.strip():
            findings.append(_lost_line("systemd ignores a line that is no setting", joined))
    if pending:
        key, _, value = pending.partition("=")
        yield section, key.strip(), value.strip()


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _lost_line(reason: str, text: str) -> Finding:
    return Finding(
        ERROR,
        "lost-continuation",
        f"{reason}, so what follows never reaches the engine: {excerpt(text[-80:])}",
        "end every line but the last with a backslash and nothing after it",
    )


def _apply(service: _Service, key: str, value: str) -> None:
    """Add one setting; an empty value resets a list, as drop-ins need it."""
    lists = {
        "Environment": service.environment,
        "EnvironmentFile": service.environment_files,
        "UnsetEnvironment": service.unset,
        "PassEnvironment": service.passed,
    }
    if key == "ExecStart":
        if value:
            service.commands.append((key, value))
        else:
            service.commands.clear()
    elif key in lists:
        if value:
            lists[key].append(value)
        else:
            lists[key].clear()
    elif key == "Type":
        service.kind = value
    elif key == "User":
        service.user = value
    elif key == "WorkingDirectory":
        service.directory = value


def _commands(service: _Service) -> list[str]:
    """The commands that start; more than one is refused unless Type=oneshot."""
    commands = [value for _, value in service.commands]
    if len(commands) > 1 and service.kind != "oneshot":
        service.findings.append(
            Finding(
                ERROR,
                "execstart-not-reset",
                f"{len(commands)} ExecStart= lines: systemd refuses the unit unless "
                "Type=oneshot; a drop-in adds to the list",
                "put an empty line 'ExecStart=' before the new ExecStart= in the drop-in",
            )
        )
        return commands[-1:]
    return commands


def _launch(service: _Service, command: str, unit: str, path: Path | None) -> Launch:
    """The launch of one ExecStart= value: words split, specifiers and variables expanded."""
    if re.match(r"\{\s*path=", command):
        raise MalformedSourceError(
            "lossy-source", "`systemctl show` joins the words with blanks: where one ends is lost; give `systemctl cat`"
        )
    findings = list(service.findings)
    notes: list[str] = []
    split = split_words(command)
    findings += [
        Finding(WARNING, "unknown-escape", f"systemd does not know the escape {escape} and keeps it as it stands")
        for escape in dict.fromkeys(split.unknown_escapes)
    ]
    words = list(split.words)
    prefix = words[0][: len(words[0]) - len(words[0].lstrip(_EXECUTABLE_PREFIXES))] if words else ""
    words[:1] = [words[0][len(prefix) :]] if words else []
    if "@" in prefix:  # the second word only names the process
        del words[1:2]
    words = words[: words.index(";")] if ";" in words else words
    expanded = tuple(
        _specifiers(word.replace("\\;", ";") if word == "\\;" else word, unit, service, notes) for word in words
    )
    environment, complete = _environment(service, unit, path, findings)
    findings += _one_word(expanded, environment)
    argv, unset = (list(expanded), []) if ":" in prefix else expand_variables(expanded, environment, complete=complete)
    findings += [_unset(name, complete) for name in dict.fromkeys(unset)]
    folder = path.parent if path else None
    return Launch(
        unit, "systemd", tuple(argv), environment, folder=folder, findings=tuple(findings), notes=tuple(notes)
    )


def _one_word(words: tuple[str, ...], environment: Mapping[str, str]) -> list[Finding]:
    """Findings on `${ARGS}` where the variable holds several options: braces make one word of them."""
    names = [match[1] for word in words if (match := _WHOLE.fullmatch(word))]
    return [
        Finding(ERROR, "variable-one-word", f"${{{name}}} is one word for systemd, blanks and all", f"${name}")
        for name in dict.fromkeys(names)
        if re.match(r"\s*-.*\s", environment.get(name, ""))
    ]


def _unset(name: str, complete: bool) -> Finding:
    if complete:
        text = f"${name} is set nowhere in the unit: systemd puts nothing in its place"
        return Finding(WARNING, "unset-variable", text, f"Environment={name}=...")
    return Finding(
        WARNING, "unset-variable", f"${name} is not set by what could be read here; the environment file may set it"
    )


def _environment(
    service: _Service, unit: str, path: Path | None, findings: list[Finding]
) -> tuple[dict[str, str], bool]:
    """(variables, whether every environment file could be read); files override Environment=."""
    variables: dict[str, str] = {}
    notes: list[str] = []
    for line in service.environment:
        for item in split_words(line).words:
            name, equals, value = _specifiers(item, unit, service, notes).partition("=")
            if equals and _VARIABLE.fullmatch(name):
                variables[name] = value
            else:
                message = f"systemd ignores {excerpt(item)!r} in Environment=: no assignment; quote the whole item"
                findings.append(Finding(WARNING, "environment-ignored", message, f"Environment={_quoted_item(line)}"))
    complete = True
    for written in service.environment_files:
        file = _specifiers(written.removeprefix("-"), unit, service, notes)
        texts = _environment_texts(file, path.parent if path else None)
        if not texts:
            complete = False
            message = f"the environment file {file} cannot be read here, so its variables are unknown"
            severity = INFO if written.startswith("-") else WARNING
            findings.append(Finding(severity, "environment-file-unreadable", message))
        for text in texts:
            variables |= split_environment_file(text)
    complete = complete and not service.passed
    for name in " ".join(service.unset).split():
        variables.pop(name.split("=")[0], None)
    return variables, complete


def _environment_texts(name: str, folder: Path | None) -> list[str]:
    """The texts of an EnvironmentFile=: one, or several in order of their names where it is a pattern."""
    if not re.search(r"[*?\[]", name):
        text = read_beside(name, folder)
        return [] if text is None else [text]
    wanted = Path(name)
    for place in [wanted.parent, *([folder] if folder else [])]:
        try:
            texts = [read_beside(file.name, place) for file in sorted(place.glob(wanted.name))]
        except (OSError, ValueError):
            continue
        if texts:
            return [text for text in texts if text is not None]
    return []


def _quoted_item(line: str) -> str:
    return "'" + line.replace("'", "\\'") + "'"


def _specifiers(word: str, unit: str, service: _Service, notes: list[str]) -> str:
    """The word with `%` specifiers expanded; those that depend on the host stay, with a note."""
    stem = unit.rsplit(".", 1)[0]
    prefix, _, instance = stem.partition("@")
    home = f"/home/{service.user}" if service.user and service.user != "root" else "/root"
    values = _DIRECTORY_SPECIFIERS | {
        "%": "%",
        "n": unit,
        "N": stem,
        "p": prefix,
        "h": home,
        "u": service.user or "root",
    }
    if instance:
        values |= {"i": instance, "I": instance.replace("-", "/")}

    def value(match: re.Match[str]) -> str:
        letter = match[1]
        if letter in values:
            return values[letter]
        if letter in _HOST_SPECIFIERS or letter in "iIjJ":
            notes.append(f"%{letter} depends on the host or the unit's instance and is left as written")
        return match[0]

    return re.sub(r"%(.)", value, word, flags=re.DOTALL)
