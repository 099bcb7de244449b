"""The engines' own `--config file.yaml`: its entries become command-line words before those already there.

Source: vLLM 0.33 `utils/argparse_utils.py`, `load_config_file` and `_pull_args_from_config`. Imports PyYAML.
"""

import json
from collections.abc import Mapping
from typing import Any

from validate.launch.findings import ERROR, Finding
from validate.launch.yaml_text import Plain, json_like, parse_document

_FIRST_NESTED = (0, 16, 0)  # before, a nested mapping was passed as Python's text of the dict


def config_words(text: str, version: tuple[int, int, int] | None) -> tuple[list[str], list[Finding]]:
    """The words that a `--config` file adds, and what is wrong with it. A list follows its option."""
    content = parse_document(text)
    if content is None:
        return [], []
    if not isinstance(content, dict):
        return [], [
            Finding(ERROR, "config-not-a-mapping", "the --config file must be a YAML mapping of option names to values")
        ]
    words: list[str] = []
    findings: list[Finding] = []
    for key, value in content.items():
        words += _entry(key, value, version, findings)
    return words, findings


def sglang_config_words(text: str) -> tuple[list[str], list[Finding]]:
    """The words that SGLang's `--config` file adds: flags for true, nothing for false, texts as they are."""
    content = parse_document(text)
    if content is not None and not isinstance(content, dict):
        return [], [Finding(ERROR, "config-not-a-mapping", "the --config file must be a YAML mapping of option names")]
    words: list[str] = []
    for key, value in (content or {}).items():
        option = "--" + key.replace("_", "-")
        if isinstance(value, Plain) and value.tag == "bool":
            words += [option] if value.value() else []
        elif isinstance(value, list):
            words += [option, *(_text(item) for item in value)] if value else []
        elif value is not None:
            words += [option, json.dumps(json_like(value)) if isinstance(value, dict) else _text(value)]
    return words, []


def is_engine_options(document: Any) -> bool:
    """Whether a mapping is a set of vLLM's options rather than a manifest: it holds a key that only they have."""
    if not isinstance(document, dict) or not _OTHER_KEYS.isdisjoint(document):
        return False
    return any(key.replace("_", "-") in _OPTION_KEYS for key in document)


def option_words(options: Mapping[str, Any]) -> list[str]:
    """The command-line words that mean the same as a mapping of options, as far as the newest version reads it."""
    findings: list[Finding] = []
    return [word for key, value in options.items() for word in _entry(key, value, None, findings)]


# Keys that only a set of engine options has, and those of manifests.
_OPTION_KEYS = frozenset(
    (
        "model", "speculative-config", "tensor-parallel-size", "max-model-len", "gpu-memory-utilization",
        "max-num-seqs", "served-model-name", "pipeline-parallel-size", "data-parallel-size",
        "max-num-batched-tokens", "kv-cache-dtype",
    )
)  # fmt: skip
_OTHER_KEYS = frozenset(("kind", "apiVersion", "image", "args", "command", "containers"))


def _entry(key: str, value: Any, version: tuple[int, int, int] | None, findings: list[Finding]) -> list[str]:
    option = "--" + key
    if isinstance(value, Plain) and value.tag == "bool":
        # 0.33 writes --no-KEY where such an option exists; the option table of `arguments` knows the same pairs.
        return [option] if value.value() else ["--no-" + key] if key.replace("_", "-") in _PAIRED else []
    if isinstance(value, list):
        return [option, *(_text(item) for item in value)] if value else []
    if isinstance(value, dict):
        if version is not None and version < _FIRST_NESTED:
            shown = ".".join(str(part) for part in version)
            message = f"{key} is a nested mapping: --config accepts only flat values before 0.16.0, and this is {shown}"
            fix = f"{key}: '" + json.dumps(json_like(value)).replace("'", "''") + "'"
            findings.append(Finding(ERROR, "config-nested-mapping", message, fix))
            return [option, str(json_like(value))]
        return [option, json.dumps(json_like(value))]
    return [option, "None" if value is None else _text(value)]


def _text(value: Any) -> str:
    """What Python's str() makes of the YAML value, as vLLM passes it on."""
    return str(json_like(value))


_PAIRED = frozenset(
    ("async-scheduling", "enforce-eager", "enable-expert-parallel", "enable-prefix-caching", "enable-chunked-prefill")
)
