"""What was written for a shell where no shell runs: variables that nobody replaces, operators that become arguments.

Sources: systemd.service(5) "Command lines"; Kubernetes, "Define dependent environment variables"; Dockerfile reference,
exec form.
"""

import re

from validate.launch.findings import ERROR, Finding, Launch

_OPERATORS = frozenset(("&&", "||", "|", ">", ">>", "<", "&", ";", "2>&1", "&>", "2>"))
_INSIDE_WORD = re.compile(r"(?<=[^$])\$([A-Za-z_]\w*)")
_ANYWHERE = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")
_WITHOUT_SHELL = frozenset(("systemd", "kubernetes", "compose", "dockerfile"))


def unshelled_findings(launch: Launch) -> list[Finding]:
    """Findings on a launch whose words no shell reads; none for scripts and `sh -c`."""
    if launch.in_text or launch.kind not in _WITHOUT_SHELL:
        return []
    found = [finding for word in launch.argv for finding in _variables(launch.kind, word)]
    operators = [word for word in launch.argv if word in _OPERATORS]
    if operators:
        text = f"no shell runs here: {operators[0]} and what follows reach the engine as arguments, and it stops"
        found.append(Finding(ERROR, "shell-operator", text, "/bin/sh -c '...' around the whole command"))
    return found


def _variables(kind: str, word: str) -> list[Finding]:
    """References that reach the engine as they are written."""
    if kind == "systemd":
        names = _INSIDE_WORD.findall(word)
        return [_literal(f"${name}", "inside a word systemd replaces ${NAME} only", f"${{{name}}}") for name in names]
    names = [braced or bare for braced, bare in _ANYWHERE.findall(word)]
    if kind == "kubernetes":
        return [_literal(f"${name}", "Kubernetes replaces $(NAME) only", f"$({name})") for name in names]
    if kind == "dockerfile":
        shell_form = "the shell form: CMD without [ ]"
        return [_literal(f"${name}", "the exec form of a Dockerfile runs no shell", shell_form) for name in names]
    return []


def _literal(written: str, rule: str, fix: str) -> Finding:
    return Finding(ERROR, "variable-not-expanded", f"{written} reaches the engine as this very text: {rule}", fix)
