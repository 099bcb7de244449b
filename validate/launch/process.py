"""The launch of a running process, from /proc: its argument list as the kernel keeps it, from the launcher's entry.

Engine cores and workers overwrite their own command line (`VLLM::EngineCore`), so the walk goes up to the process that
was launched; from a wrapper it goes down to the engine. Source: proc(5); vllm/utils/system_utils.py, set_process_title.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hwmodel.errors import InputError
from validate.launch.findings import Launch
from validate.launch.program import engine_call
from validate.launch.unwrap import resolve

PROC = Path("/proc")
_MAX_ANCESTORS = 50
_MAX_PROCESSES = 100_000
_MAX_BYTES = 4_000_000  # more than the kernel accepts as one command line and environment
_PARENT = re.compile(r"^\d+ \(.*\) \S (\d+) ", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Process:
    """One process: its argument list and its parent."""

    pid: int
    parent: int
    argv: tuple[str, ...]

    @property
    def title(self) -> str:
        """What it calls itself, for messages."""
        return " ".join(self.argv)[:60] or "no command line"


def launch_of_process(pid: int, proc: Path = PROC) -> Launch:
    """The engine launch that the process belongs to; InputError where there is none or it cannot be read."""
    if not (proc / "self").exists():
        raise InputError(f"--pid: {proc} holds no processes; allowed on Linux only")
    process = _read(pid, proc)
    if process is None:
        raise InputError(f"--pid: no process {pid}; allowed: the id of a running engine or of one of its children")
    found = _upwards(process, proc) or _downwards(process, proc)
    if found is None:
        raise InputError(
            f"--pid: process {pid} ({process.title}) and those around it start neither vllm nor sglang; allowed: the "
            "id of an engine"
        )
    return _launch(found, pid, proc)


def _upwards(process: _Process, proc: Path) -> _Process | None:
    """The process itself or the nearest one above it that starts an engine."""
    current: _Process | None = process
    for _ in range(_MAX_ANCESTORS):
        if current is None:
            return None
        if engine_call(current.argv):
            return current
        current = _read(current.parent, proc) if current.parent > 0 else None
    return None


def _downwards(process: _Process, proc: Path) -> _Process | None:
    """The engine that a wrapper started: the nearest one below it, by lowest id where there are several."""
    children: dict[int, list[int]] = {}
    for child in sorted(_pids(proc)):
        children.setdefault(_parent(child, proc), []).append(child)
    level = [process.pid]
    seen = {process.pid}
    while level:
        level = [child for parent in level for child in children.get(parent, ()) if child not in seen]
        seen |= set(level)
        for child in level:
            candidate = _read(child, proc)
            if candidate is not None and engine_call(candidate.argv):
                return candidate
    return None


def _pids(proc: Path) -> list[int]:
    try:
        names = [entry.name for entry in proc.iterdir()]
    except OSError:
        return []
    return [int(name) for name in names if name.isascii() and name.isdigit()][:_MAX_PROCESSES]


def _parent(pid: int, proc: Path) -> int:
    match = _PARENT.match(_bytes(proc / str(pid) / "stat").decode(errors="replace"))
    return int(match[1]) if match else 0


def _read(pid: int, proc: Path) -> _Process | None:
    """The process, or None where it has ended."""
    if not (proc / str(pid) / "stat").exists():
        return None
    words = _bytes(proc / str(pid) / "cmdline").decode(errors="backslashreplace").rstrip("\0").split("\0")
    return _Process(pid, _parent(pid, proc), tuple(words) if words != [""] else ())


def _bytes(path: Path) -> bytes:
    """What a file of /proc holds; nothing where it has gone or may not be read."""
    try:
        with path.open("rb") as file:
            return file.read(_MAX_BYTES)
    except OSError:
        return b""


def _launch(process: _Process, pid: int, proc: Path) -> Launch:
    home = proc / str(process.pid)
    environment, notes = _environment(home)
    if process.pid != pid:
        notes.append(f"process {pid} belongs to the launch of process {process.pid}")
    root = home / "root"
    launch = Launch(
        f"pid-{process.pid}",
        "process",
        process.argv,
        environment,
        version=_installed_version(process.argv, root),
        folder=home / "cwd",
        root=root,
        notes=tuple(notes),
    )
    resolved = resolve(launch)
    return replace(resolved[0], name=launch.name) if resolved else launch


def _environment(home: Path) -> tuple[Mapping[str, str], list[str]]:
    """(variables, notes): only the owner of a process and root may read them."""
    content = _bytes(home / "environ").decode(errors="backslashreplace")
    pairs = (item.partition("=") for item in content.split("\0"))
    variables = {name: value for name, equals, value in pairs if equals}
    missing = "its environment cannot be read (another user's process, or it has none): variables are unknown"
    return variables, [] if variables else [missing]


def _installed_version(argv: Sequence[str], root: Path) -> str | None:
    """The engine's version by the name of its metadata folder beside the program that runs, or None."""
    call = engine_call(argv)
    if call is None:
        return None
    for program in argv[: call.program_words]:
        if not program.startswith("/"):
            continue
        prefix = root / Path(program).parent.parent.relative_to("/")
        try:
            found = sorted(prefix.glob(f"lib/python3*/*-packages/{call.engine}-*.dist-info"))
        except (OSError, ValueError):
            continue
        versions = [
            match[1] for path in found if (match := re.match(rf"{call.engine}-(\d[^-]*)\.dist-info", path.name))
        ]
        if versions:
            return versions[0]
    return None
