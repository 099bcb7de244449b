"""What is wrong with a launch, and how to write it instead."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hwmodel.errors import InputError

ERROR = "error"  # the engine will refuse, or silently not do what was written
WARNING = "warning"  # works, but costs performance or surprises
INFO = "info"
UNREAD = "option-not-read"  # code of an option whose name is not known here: it may matter and is passed over


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to know about a launch: severity, a stable kebab-case code, a sentence, the corrected text if any."""

    severity: str
    code: str
    message: str
    fix: str | None = None

    def __post_init__(self) -> None:
        """Both texts quote what stood in a launch: they stay one printable line each."""
        object.__setattr__(self, "message", one_line(self.message))
        object.__setattr__(self, "fix", None if self.fix is None else one_line(self.fix))


def one_line(text: str) -> str:
    """The text in one line, without characters that drive a terminal."""
    return "".join(char if char.isprintable() else " " for char in text)


class MalformedSourceError(InputError):
    """A launch text that can be read but not parsed (open quote, YAML error); `code` names the kind of fault."""

    def __init__(self, code: str, message: str) -> None:
        """Keep the code apart from the one-line message."""
        super().__init__(" ".join(message.split()))
        self.code = code

    def finding(self) -> Finding:
        """The same fault as a finding, for reports that must go on."""
        return Finding(ERROR, self.code, str(self))


@dataclass(frozen=True, slots=True)
class Place:
    """Where an option stands, which decides how a correction of it is written: the source's kind, and whether the words
    stand in one text that is split as a shell does (a script, `sh -c`, a compose command as one string).
    """

    kind: str
    in_text: bool = False


SHELL = Place("shell")


@dataclass(frozen=True, slots=True)
class Launch:
    """One start of an engine as a source states it: the exact argument list, program first, and what is around it.

    `kind` is one of "systemd", "compose", "kubernetes", "shell", "docker run", "dockerfile", "config", "value",
    "command", "process", "nix", "ray", "variables", "supervisor", "log".
    """

    name: str
    kind: str
    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    image: str | None = None
    version: str | None = None  # where the source names it outside argv and image (pip install, virtual environment)
    folder: Path | None = None  # where relative paths are looked up; None for pasted text
    root: Path | None = None  # where absolute paths start, for a process in a container
    files: Mapping[str, str] = field(default_factory=dict)  # texts of files that the source itself writes, by name
    in_text: bool = False  # as in `Place`
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()  # credentials that the source holds outside argv: also hidden in every text about it

    @property
    def place(self) -> Place:
        """Where its options stand."""
        return Place(self.kind, self.in_text)


def first_error(findings: Iterable[Finding]) -> Finding | None:
    """The first finding of severity "error", or None."""
    return next((finding for finding in findings if finding.severity == ERROR), None)
