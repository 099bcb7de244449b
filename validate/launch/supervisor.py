"""Launches of a supervisord configuration: `command` and `environment` of its programs.

Source: supervisord.org, "Configuration File": the command is split as a shell would, without running one.
"""

import re
from pathlib import Path

from validate.launch.findings import Launch
from validate.launch.shell_words import literal_words
from validate.launch.unwrap import resolve

_PROGRAM = re.compile(r"^\s*\[program:([^\]\n]+)\]\s*$")
_SETTING = re.compile(r"^([A-Za-z_]+)\s*=\s*(.*)$")
_VARIABLE = re.compile(r'([A-Za-z_]\w*)=(?:"([^"]*)"|\'([^\']*)\'|([^,]*))')
_REMARK = re.compile(r"\s+;.*$")


def looks_like_supervisor(text: str) -> bool:
    """Whether a text is such a configuration."""
    return re.search(r"(?m)^\s*\[program:[^\]\n]+\]\s*$", text) is not None


def read_supervisor(text: str, folder: Path | None = None) -> list[Launch]:
    """The engine launches of its programs."""
    programs: list[tuple[str, dict[str, str]]] = []
    key = ""
    for line in text.split("\n"):
        program, setting = _PROGRAM.match(line), _SETTING.match(line)
        if program or line.lstrip().startswith("["):
            programs.append((program[1] if program else "", {}))
            key = ""
        elif line.lstrip().startswith((";", "#")) or not programs:
            continue
        elif setting:
            key = setting[1].lower()
            programs[-1][1][key] = _REMARK.sub("", setting[2])
        elif key and line[:1] in (" ", "\t"):
            programs[-1][1][key] += " " + _REMARK.sub("", line).strip()
    return [launch for name, settings in programs if name for launch in _launches(name, settings, folder)]


def _launches(name: str, settings: dict[str, str], folder: Path | None) -> list[Launch]:
    environment = {
        match[1]: next(value for value in (match[2], match[3], match[4]) if value is not None)
        for match in _VARIABLE.finditer(settings.get("environment", ""))
    }
    text = settings.get("command", "")
    for variable, value in environment.items():
        text = text.replace(f"%(ENV_{variable})s", value)
    words = tuple(literal_words(text.replace("%%", "%")))
    return resolve(Launch(name, "supervisor", words, environment, folder=folder))
