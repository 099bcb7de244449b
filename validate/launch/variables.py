"""Launches that environment variables alone describe: worker images that read `MODEL_NAME`, `SPECULATIVE_CONFIG` ...

Such images (RunPod's worker-vllm) take each engine option from the variable of the same name in capitals.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from validate.launch.findings import INFO, Finding, Launch
from validate.launch.redaction import is_secret_variable
from validate.launch.vllm_options import FLAG, KINDS, LEGACY

_LINE = re.compile(r"(?:export\s+)?([A-Za-z_]\w*)=(.*)")
_TELLING = frozenset(("MODEL_NAME", "SPECULATIVE_CONFIG", "SPECULATIVE_MODEL", "NUM_SPECULATIVE_TOKENS"))
_WORKER_IMAGE = re.compile(r"(?:^|/)worker-(?:v\d+-)?vllm\b")
_NAMES = {
    "MODEL_NAME": "model",
    "TOKENIZER_NAME": "tokenizer",
    "OPENAI_SERVED_MODEL_NAME_OVERRIDE": "served-model-name",
}
_NOTE = "the image reads engine options from environment variables; they are shown as the options of the same names"


def is_worker_image(image: str | None) -> bool:
    """Whether an image's own start program takes its options from environment variables."""
    return image is not None and _WORKER_IMAGE.search(image) is not None


def looks_like_variables(text: str) -> bool:
    """Whether a text is nothing but variables, and one of them is an engine's."""
    lines = [line.strip() for line in text.split("\n") if line.strip() and not line.lstrip().startswith("#")]
    matches = [_LINE.fullmatch(line) for line in lines]
    return all(matches) and any(match is not None and match[1] in _TELLING for match in matches)


def read_variables(text: str, folder: Path | None = None, name: str = "environment") -> list[Launch]:
    """The launch that a file of variables describes."""
    variables: dict[str, str] = {}
    findings: list[Finding] = []
    for line in text.split("\n"):
        match = _LINE.fullmatch(line.strip())
        if match:
            variables[match[1]] = _unquoted(match[1], match[2].strip(), findings)
    return [worker_launch(Launch(name, "variables", (), variables, folder=folder, findings=tuple(findings)))]


def _unquoted(name: str, value: str, findings: list[Finding]) -> str:
    if len(value) < 2 or value[0] not in "'\"" or value[-1] != value[0]:
        return value
    message = f"the quotes around {name} are taken off here; docker --env-file and web forms keep them, and JSON fails"
    if value[1:2] in ("{", "["):
        findings.append(Finding(INFO, "quotes-around-value", message, f"{name}={value[1:-1]}"))
    return value[1:-1].replace('\\"', '"') if value[0] == '"' else value[1:-1]


def worker_launch(launch: Launch) -> Launch:
    """The launch with the options that its environment stands for."""
    return Launch(
        launch.name,
        launch.kind,
        ("vllm", "serve", *_words(launch.environment)),
        launch.environment,
        image=launch.image,
        version=launch.version,
        folder=launch.folder,
        findings=launch.findings,
        notes=(*launch.notes, _NOTE),
    )


def _words(variables: Mapping[str, str]) -> list[str]:
    words: list[str] = []
    for name, value in variables.items():
        option = _NAMES.get(name) or name.lower().replace("_", "-")
        if name != name.upper() or not value or (option not in KINDS and option not in LEGACY):
            continue
        if is_secret_variable(name):
            continue  # stays in the environment
        if KINDS.get(option) != FLAG:
            words.append(f"--{option}={value}")
        elif value.lower() in ("true", "1"):
            words.append(f"--{option}")
    return words
