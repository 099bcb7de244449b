"""What to call a model that is given by the path of its configuration: its repository, else the folder's name."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CONFIG_FILE = "config.json"
_CACHED = re.compile(r"models--([\w.-]+?)--([\w.-]+)")  # a repository's folder in the cache of huggingface_hub
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
_HASH = re.compile(r"[0-9a-f]{7,64}")  # a commit or a blob
_TELLING = re.compile(r"(?=.*[A-Za-z])(?=.*\d)")  # a family and a size or version: Qwen3-8B, llama-3.1


def config_name(path: Path, config: Mapping[str, Any]) -> str:
    """The name of the model whose `config` was read from `path`, a file or the folder that holds it.

    The repository where the path is one of the Hugging Face cache. A folder's name unless it is a hash or only the
    place where the user stands; then the name that the configuration states of itself, else its family and its layers.
    """
    if path.suffix and path.name != CONFIG_FILE and not path.is_dir():
        return path.stem
    whole = Path.cwd() / path  # links are kept: in the cache they lead to a folder of blobs
    folder = whole.parent if whole.name == CONFIG_FILE else whole
    cached = [found for part in folder.parts if (found := _CACHED.fullmatch(part))]
    if cached:
        return "/".join(cached[-1].groups())
    name = folder.resolve().name
    stated = config.get("_name_or_path")
    if _is_telling(folder.resolve()):
        return name
    if isinstance(stated, str) and _REPOSITORY.fullmatch(stated):
        return stated
    return _family(config) or name or CONFIG_FILE


def _is_telling(folder: Path) -> bool:
    """Whether a folder's name says which model it holds."""
    if _HASH.fullmatch(folder.name):
        return False
    return bool(_TELLING.match(folder.name)) or not Path.cwd().is_relative_to(folder)


def _family(config: Mapping[str, Any]) -> str | None:
    """`llama-32-layers`: what a nameless configuration says of itself."""
    inner = next((config[key] for key in ("text_config", "llm_config") if isinstance(config.get(key), Mapping)), config)
    family, layers = config.get("model_type") or inner.get("model_type"), inner.get("num_hidden_layers")
    if not isinstance(family, str) or not re.fullmatch(r"[\w.-]{1,60}", family):
        return None
    return f"{family}-{layers}-layers" if isinstance(layers, int) and 0 < layers < 10**6 else family
