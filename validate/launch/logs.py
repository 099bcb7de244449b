"""Launches in an engine's log: the arguments that vLLM prints at start, and the value that its parser refused.

Source: vllm/entrypoints/utils.py `log_non_default_args` (a Python dict), argparse's message of 0.8.5 ... 0.33.
"""

import ast
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from validate.launch.findings import Launch
from validate.launch.vllm_options import FLAG, KINDS

_ARGUMENTS = re.compile(r"non-default args: (\{.*\})")
_REFUSED = re.compile(
    r"argument --speculative-config(?:/-sc)?: (?:Value (.*) cannot be converted to|invalid \S+ value: '(.*)')"
)
_VERSION = re.compile(r"vLLM API server version v?(\d+\.\d+\.\d+\S*)|LLM engine \(v(\d+\.\d+\.\d+[^)]*)\)")
_MAX_LITERAL_CHARACTERS = 20_000
_NOTE = "read from the engine's log: options that have their default are not in it"
_VALUE_NOTE = "the value that the engine's parser refused, as it reached the engine"


def looks_like_log(text: str) -> bool:
    """Whether a text is a log that shows how the engine was started."""
    return _ARGUMENTS.search(text) is not None or _REFUSED.search(text) is not None


def read_log(text: str, folder: Path | None = None) -> list[Launch]:
    """The last start that the log shows; a refused value where that came last."""
    version: str | None = None
    found: Launch | None = None
    for line in text.split("\n"):
        told, refused, arguments = (pattern.search(line) for pattern in (_VERSION, _REFUSED, _ARGUMENTS))
        if told and told[1]:
            version = told[1]
        elif told and found is not None:  # the engine's own line, which follows the arguments
            found = replace(found, version=told[2])
        if refused:
            argv = ("vllm", "serve", "--speculative-config", refused[1] or refused[2] or "")
            found = Launch("refused", "value", argv, version=version, notes=(_VALUE_NOTE,))
        elif arguments:
            values = _literal(arguments[1]) or {}
            words = tuple(_words(values))
            started = Launch("log", "log", ("vllm", "serve", *words), version=version, folder=folder, notes=(_NOTE,))
            found = started if words else found
    return [] if found is None else [found]


def _literal(text: str) -> Mapping[str, Any] | None:
    """The dict that Python printed, read as a literal and never run; None where it is none."""
    if len(text) > _MAX_LITERAL_CHARACTERS:
        return None
    try:
        value = ast.literal_eval(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return value if isinstance(value, dict) else None


def _words(values: Mapping[str, Any]) -> Iterator[str]:
    """The command-line words that stand for the printed values."""
    model = values.get("model_tag") or values.get("model")
    if isinstance(model, str):
        yield model
    for name, value in values.items():
        option = str(name).replace("_", "-")
        if option in ("model", "model-tag") or (option not in KINDS and not isinstance(value, str | int | float)):
            continue
        if isinstance(value, bool):
            yield f"--{option}" if value else f"--no-{option}"
        elif isinstance(value, dict):
            yield from (f"--{option}", json.dumps(value, default=str))
        elif isinstance(value, list | tuple):
            yield from (f"--{option}", *(str(item) for item in value))
        elif value is not None and KINDS.get(option) != FLAG:
            yield f"--{option}={value}"
