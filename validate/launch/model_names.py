"""Which shipped card a repository or folder name stands for, and where a local checkpoint keeps its config.json."""

import re
from collections.abc import Sequence
from pathlib import Path

from hwmodel.models import model_names

# How a checkpoint's name says its quantization, as the cards' names do; tried in this order after the name itself.
_QUANTIZATIONS = ("fp8", "nvfp4", "int4", "mxfp4", "int8", "bf16")
_NAME_MARKS = {"awq": "int4", "gptq": "int4", "w4a16": "int4", "fp4": "nvfp4"}
# Tuned variants and release months share the shape of their base model.
_VARIANT = re.compile(r"-(?:instruct|thinking|chat|base|it|hf|\d{4})(?=-|$)")
# Families whose plain repository name holds 16-bit weights, with the quantized ones named apart.
_PLAIN_FAMILIES = ("qwen", "llama", "meta-llama", "mixtral", "glm-4", "deepseek-v2")


def card_for(name: str) -> str | None:
    """The shipped card for a repository or folder name such as moonshotai/Kimi-K2.5, or None.

    >>> card_for("no/such-model") is None
    True
    """
    base = name.rstrip("/").rsplit("/", 1)[-1].lower()
    known = set(model_names())
    marked = next((label for mark, label in _NAME_MARKS.items() if f"-{mark}" in base), None)
    stems = [base]
    for mark in (*_NAME_MARKS, *_QUANTIZATIONS):
        stems += [base.replace(f"-{mark}", "")] if f"-{mark}" in base else []
    stems += [_VARIANT.sub("", stem) for stem in list(stems)]
    suffixes = (
        [marked] if marked else [label for label in _QUANTIZATIONS if f"-{label}" in base] or list(_native_first(stems))
    )
    return next(
        (found for stem in stems for found in (stem, *(f"{stem}-{suffix}" for suffix in suffixes)) if found in known),
        None,
    )


def _native_first(stems: Sequence[str]) -> Sequence[str]:
    """Suffixes to try when the name states none: the formats that models are published in come first."""
    return (
        ("bf16", "fp8", "int4", "mxfp4")
        if any(stem.startswith(_PLAIN_FAMILIES) for stem in stems)
        else ("fp8", "int4", "mxfp4", "bf16")
    )


def local_config(name: str, folder: Path | None, root: Path | None = None) -> str | None:
    """The path of the config.json of a checkpoint on this machine, or None; `root` is where absolute paths start."""
    if "$" in name or "\0" in name:
        return None
    path = Path(name)
    if path.is_absolute():
        places = [path if root is None else root / path.relative_to(path.anchor)]
    else:
        places = [path] if folder is None else [folder / path, path]
    for place in places:
        try:
            if (place / "config.json").is_file():
                return str(place / "config.json")
        except OSError:
            continue
    return None
