"""Find the engine's own command behind wrappers: env, numactl, `bash -c`, script files, `docker run`."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from validate.launch.container_run import image_reference, read_container, starts_container
from validate.launch.files import read_beside
from validate.launch.findings import ERROR, WARNING, Finding, Launch, MalformedSourceError
from validate.launch.program import VLLM, engine_call, image_version, text_version
from validate.launch.shell import Invocation, script_invocations
from validate.launch.systemd_words import excerpt

# Programs that start the rest of their command line. Their own options are skipped by looking for the engine's command.
_WRAPPERS = frozenset(
    (
        "env", "exec", "command", "nohup", "nice", "ionice", "numactl", "taskset", "chrt", "sudo", "time", "timeout",
        "stdbuf", "setsid", "unbuffer", "uv", "uvx", "poetry", "pipenv", "conda", "mamba", "micromamba", "pixi",
        "pdm", "hatch", "srun", "mpirun", "apptainer", "singularity", "nsys", "ncu", "perf", "strace", "gdb", "tini",
        "dumb-init", "gosu", "su-exec", "runuser", "setpriv", "systemd-run", "screen", "xvfb-run", "chroot",
        "unshare", "flock", "docker", "podman", "nerdctl", "kubectl", "catchsegv", "ld.so", "prlimit", "hpc-launch",
        "oc", "rlwrap", "doas", "ssh", "tmux", "su", "parallel", "torchrun", "xargs",
        "start-stop-daemon", "cgexec", "runsv", "s6-setuidgid", "s6-envdir", "systemd-inhibit",
        "nixGL",
    )
)  # fmt: skip
_SHELLS = frozenset(("sh", "bash", "dash", "ash", "zsh", "ksh"))
_SHELL_OPTIONS_WITH_VALUE = frozenset(("-o", "+o", "-O", "+O", "--rcfile", "--init-file"))
_SSH_OPTIONS_WITH_VALUE = frozenset(f"-{letter}" for letter in "BbcDEeFIiJLlmOoPpQRSWw")
_ENGINE_IN_TEXT = re.compile(
    r"(?s)(?=.*\s)(?:.*\bvllm\s+serve\b|.*\bvllm\.entrypoints\.|.*\bsglang[.\s]+(?:launch_server|serve)\b)"
)
_ENVIRONMENT_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_MAX_NESTING = 8
MAX_LAUNCHES = 200


def resolve(launch: Launch, depth: int = 0) -> list[Launch]:
    """The engine launches that the given command leads to: itself, several from a script, or none."""
    if depth > _MAX_NESTING:
        raise MalformedSourceError("nested-too-deep", f"commands wrapped more than {_MAX_NESTING} times")
    if not launch.argv:
        return []
    if engine_call(launch.argv):
        return [_with_version(launch)]
    program = launch.argv[0].rsplit("/", 1)[-1]
    if program in _SHELLS or _is_script_file(launch.argv[0]):
        return _from_shell(launch, program, depth)
    if starts_container(launch.argv):
        return _from_container(launch, depth)
    if program in _WRAPPERS:
        return _behind_wrapper(launch, depth)
    return []


def _with_version(launch: Launch) -> Launch:
    call = engine_call(launch.argv)
    if call is None or launch.version is not None:
        return launch
    return replace(launch, version=text_version(" ".join(launch.argv[: call.program_words]), call.engine))


def _is_script_file(program: str) -> bool:
    return program.endswith((".sh", ".bash"))


def _from_shell(launch: Launch, program: str, depth: int) -> list[Launch]:
    """The launches inside `bash -c TEXT` or a script file that can be read beside the source."""
    if _is_script_file(launch.argv[0]):
        return _from_script_file(launch, launch.argv[0], launch.argv[1:], depth)
    position = 1
    while position < len(launch.argv) and launch.argv[position][:1] in ("-", "+"):
        option = launch.argv[position]
        if option.startswith("-") and not option.startswith("--") and "c" in option and position + 1 < len(launch.argv):
            while launch.argv[position + 1].startswith("-") and position + 2 < len(launch.argv):
                position += 1  # bash -c -e TEXT
            return _from_script_text(launch, launch.argv[position + 1], launch.argv[position + 3 :], program, depth)
        position += 2 if option in _SHELL_OPTIONS_WITH_VALUE else 1
    if position >= len(launch.argv):
        return []
    return _from_script_file(launch, launch.argv[position], launch.argv[position + 1 :], depth)


def _from_script_text(launch: Launch, text: str, arguments: Sequence[str], program: str, depth: int) -> list[Launch]:
    shebang = "" if program in ("bash", "zsh", "ksh") else "#!/bin/sh\n"
    return launches_of_script(replace(launch, argv=()), shebang + text, depth, arguments)


def read_named(name: str, launch: Launch) -> str | None:
    """The text of a file that the launch names: written by the source itself, or lying where it says or beside it."""
    written = launch.files.get(name.rsplit("/", 1)[-1])
    return read_beside(name, launch.folder, launch.root) if written is None else written


def _from_script_file(launch: Launch, name: str, arguments: Sequence[str], depth: int) -> list[Launch]:
    text = read_named(name, launch)
    if text is None or "\0" in text:
        return []
    return launches_of_script(replace(launch, argv=()), text, depth, arguments)


def launches_of_script(
    launch: Launch, text: str, depth: int = 0, arguments: Sequence[str] | None = None
) -> list[Launch]:
    """The launches of a script's text; `launch` gives everything but argv. Numbered by line when there are several.

    `arguments` are what the script is started with, None where nothing tells it.
    """
    found: list[Launch] = []
    for invocation in script_invocations(text, launch.environment, launch.folder, launch.files, arguments):
        inner = replace(
            launch,
            argv=invocation.argv,
            environment=invocation.environment,
            findings=(*launch.findings, *_unresolved(invocation), *_lost(invocation)),
            notes=(*launch.notes, *_conditional(invocation)),
            folder=invocation.folder,
            files=invocation.files,
            in_text=True,
        )
        found += [_named(item, launch, invocation.line) for item in resolve(inner, depth + 1)]
        if len(found) > MAX_LAUNCHES:
            raise MalformedSourceError("too-many-launches", f"more than {MAX_LAUNCHES} launches in one source")
    pinned = {engine: text_version(text, engine) for engine in ("vllm", "sglang")}
    calls = [engine_call(item.argv) for item in found]
    found = [
        replace(item, version=item.version or pinned[call.engine]) if call and item.image is None else item
        for item, call in zip(found, calls, strict=True)
    ]
    alone = len(found) == 1 and re.search(r"(?:^|:)line-\d+$", found[0].name) is not None
    return [replace(found[0], name=launch.name)] if alone else found


def _named(found: Launch, outer: Launch, line: int) -> Launch:
    """Named by line, after the unit or service around the script; a name from further in (docker --name) stays."""
    if found.name != outer.name:
        return found
    return replace(found, name=f"line-{line}" if outer.kind in ("shell", "command") else f"{outer.name}:line-{line}")


def _unresolved(invocation: Invocation) -> list[Finding]:
    return [
        Finding(
            WARNING,
            "unresolved-variable",
            f"{name if name.startswith('$') else '$' + name} is not set in this text; what it "
            "holds where the command runs is unknown",
        )
        for name in invocation.unresolved
    ]


def _lost(invocation: Invocation) -> list[Finding]:
    return [
        Finding(
            ERROR,
            "lost-continuation",
            f"line {line} is no part of the command above it, so it never reaches the engine: {excerpt(text)}",
            "end every line but the last with a backslash and nothing after it, and put no remark in between",
        )
        for line, text in invocation.lost
    ]


def _conditional(invocation: Invocation) -> list[str]:
    return (
        [f"line {invocation.line} runs only under a condition that depends on the environment"]
        if invocation.conditional
        else []
    )


def _from_container(launch: Launch, depth: int) -> list[Launch]:
    container = read_container(launch.argv, dict(launch.environment), launch.folder)
    kind = "docker run" if launch.kind in ("shell", "command") else launch.kind
    inner = replace(
        launch, kind=kind, argv=container.argv, environment=container.environment, image=container.image or None
    )
    return resolve(replace(inner, name=container.name or launch.name), depth + 1)


def _behind_wrapper(launch: Launch, depth: int) -> list[Launch]:
    """The command after a wrapper's own options and NAME=VALUE words: the first position where one begins."""
    if launch.argv[0].rsplit("/", 1)[-1] == "ssh":
        return _over_ssh(launch, depth)
    environment: Mapping[str, str] = launch.environment
    for position in range(1, len(launch.argv)):
        word = launch.argv[position]
        rest = launch.argv[position:]
        inner = replace(launch, argv=rest, environment=environment)
        assignment = _ENVIRONMENT_ASSIGNMENT.fullmatch(word)
        if _ENGINE_IN_TEXT.search(word):  # one word that a shell will split: tmux, su -c
            found = launches_of_script(replace(inner, argv=()), word, depth + 1)
        else:
            found = resolve(inner, depth + 1) if not assignment and _may_start(rest) else []
        if found:
            before = " ".join(launch.argv[: position + 1])
            return [replace(item, version=item.version or _version_before(before, item)) for item in found]
        if assignment:
            environment = {**environment, assignment[1]: assignment[2]}
    return []


def _version_before(text: str, launch: Launch) -> str | None:
    """The version that the words in front of an engine's command tell: a pinned package, an image, an image's file."""
    call = engine_call(launch.argv)
    engine = call.engine if call else VLLM
    images = [image_version(image_reference(word.rsplit("=", 1)[-1])) for word in text.split()]
    return text_version(text, engine) or next((version for version in images if version), None)


def _may_start(words: Sequence[str]) -> bool:
    base = words[0].rsplit("/", 1)[-1]
    return bool(
        engine_call(words)
        or base in _SHELLS
        or base in _WRAPPERS
        or _is_script_file(words[0])
        or starts_container(words)
    )


def _over_ssh(launch: Launch, depth: int) -> list[Launch]:
    """ssh joins its words with blanks, and the shell over there splits them again: one level of quotes is lost."""
    position = 1
    while position < len(launch.argv) and launch.argv[position].startswith("-"):
        position += 2 if launch.argv[position] in _SSH_OPTIONS_WITH_VALUE else 1
    text = " ".join(launch.argv[position + 1 :])
    return launches_of_script(replace(launch, argv=(), environment={}), text, depth + 1) if text else []
