"""Model shapes: a shipped card by name, or a user's `config.json`, directory or TOML card by path."""

import functools
import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hwmodel.config_name import CONFIG_FILE, config_name
from hwmodel.errors import InputError, UnknownNameError
from hwmodel.files import open_regular
from hwmodel.hf.fields import one_line, shown
from hwmodel.hf.shape import shape_from_config
from hwmodel.names import did_you_mean, nearest, vocabulary
from hwmodel.specs import ModelShape, Moe

__all__ = ["attention_kind", "load_model", "model_names", "published", "repository_of_card", "shape_from_config"]

_CARDS = Path(__file__).parent / "data" / "models"
_MAX_CONFIG_BYTES = 20_000_000  # the largest config.json met has some 100 kB
_MAX_NAME_CHARS = 100
_SOURCE_REPOSITORY = re.compile(r"Hugging Face ([\w.-]+/[\w.-]+),")  # how a card's source begins
_CARD_TABLES = ("config", "published", "source")
# What to give instead of an unknown name.
A_CONFIG = f"the path of its {CONFIG_FILE} (in the model's folder, or among the files of its Hugging Face page)"
_OLDER_QUANTIZATION_FILE = "hf_quant_config.json"  # ModelOpt wrote it beside config.json until 2025


def model_names() -> tuple[str, ...]:
    """Names of the shipped cards, sorted."""
    return tuple(sorted(path.stem for path in _CARDS.glob("*.toml")))


def load_model(name_or_path: str) -> ModelShape:
    """The shape of a model: a shipped card's name, a `config.json`, a directory that holds one, or a TOML card.

    An unknown name raises `UnknownNameError` with the closest ones and where all stand, a file that cannot be read
    `InputError`; both messages are one line.
    """
    name = name_or_path.strip()
    if len(name) <= _MAX_NAME_CHARS and name.replace("-", "").replace(".", "").isalnum():
        shipped = _CARDS / f"{name.lower()}.toml"
        if shipped.is_file():
            return _shipped(shipped, name.lower())
    path = Path(name)
    try:
        is_directory, is_file, exists = path.is_dir(), path.is_file(), path.exists()
    except (OSError, ValueError):  # a name too long for a path, or one with a NUL
        is_directory, is_file, exists = False, False, False
    if is_directory and name:
        return _from_directory(path)
    if not is_file and exists:
        raise _bad(f"file {path}: not a regular file; allowed: a {CONFIG_FILE}, its directory, or a TOML card")
    if not is_file:
        raise _unknown(name)
    if path.suffix == ".toml":
        return _from_card(path, path.stem)
    config = _json(path)
    return shape_from_config(_with_older_quantization(config, path.parent), config_name(path, config), str(path))


def nearest_model(name: str) -> str | None:
    """The shipped card whose name looks most like `name`, a repository's or a person's; None where none does."""
    return next(iter(_nearest_models(name)), None)


def _nearest_models(name: str) -> list[str]:
    return nearest(name.rstrip("/").rsplit("/", 1)[-1], model_names(), likeness=0.4)


def attention_kind(shape: ModelShape) -> str:
    """`mla`, `gqa`, `hybrid` or `sparse`, as engine modes distinguish them."""
    kinds = {x.attention.kind for x in shape.layers}
    if "linear" in kinds:
        return "hybrid"
    if any(x.attention.indexer_elements_per_token or x.attention.selected_tokens for x in shape.layers):
        return "sparse"
    return "mla" if "mla" in kinds else "gqa"


def published(name: str) -> Mapping[str, Any]:
    """The `[published]` table of a shipped card: total and active parameters in billions, and where they stand."""
    return _published(_toml(_CARDS / f"{name}.toml"), name)


def repository_of_card(name: str) -> str | None:
    """The repository that a shipped card was read from, as engines load it; None for any other name.

    >>> repository_of_card("qwen3-0.6b-bf16"), repository_of_card("org/other")
    ('Qwen/Qwen3-0.6B', None)
    """
    if name.lower() not in model_names():
        return None
    found = _SOURCE_REPOSITORY.match(load_model(name).source)
    return found.group(1) if found else None


def _published(card: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = card.get("published", {})
    if not isinstance(table, Mapping):
        raise _bad(f"card {name}: published is {shown(table)}; allowed: a table")
    return table


@functools.lru_cache(maxsize=64)
def _shipped(path: Path, name: str) -> ModelShape:
    """A shipped card, whose file does not change: reading it takes a tenth of an answer, and each names it thrice."""
    return _from_card(path, name)


def _from_card(path: Path, name: str) -> ModelShape:
    card = _toml(path)
    for key in card:
        if key not in _CARD_TABLES:
            raise _bad(f"card {path.name}: unknown key {shown(key)}; allowed: {', '.join(_CARD_TABLES)}")
    config = card.get("config")
    if not isinstance(config, Mapping):
        raise _bad(f"card {path.name}: no table [config]; needed: the keys of a config.json")
    source = card.get("source", "")
    return shape_from_config(config, name, source if isinstance(source, str) else "")


def _from_directory(path: Path) -> ModelShape:
    file = path / CONFIG_FILE
    if not file.is_file():
        raise _bad(f"directory {path}: no {CONFIG_FILE} in it; needed: a Hugging Face {CONFIG_FILE}")
    config = _json(file)
    return shape_from_config(_with_older_quantization(config, path), config_name(path, config), str(file))


def _with_older_quantization(config: Mapping[str, Any], directory: Path) -> Mapping[str, Any]:
    beside = directory / _OLDER_QUANTIZATION_FILE
    if config.get("quantization_config") or not beside.is_file():
        return config
    return {**config, "quantization_config": {"quant_method": "modelopt", **_json(beside)}}


def _bad(message: str) -> InputError:
    return InputError(one_line(f"model {message}"))


def _unknown(name: str) -> InputError:
    if Path(name).suffix in {".json", ".toml"} or name.startswith((".", "/", "~")):
        return _bad(f"{shown(name)}: no such file; allowed: a {CONFIG_FILE}, its directory, or a TOML card")
    listed = vocabulary("cards", model_names(), "list models")
    return UnknownNameError(
        f"no model {shown(name)}{did_you_mean(_nearest_models(name))} allowed: {A_CONFIG}, or a card ({listed})"
    )


def _read(path: Path) -> str:
    try:
        with open_regular(path) as file:
            raw = file.read(_MAX_CONFIG_BYTES + 1)
    except OSError as error:
        raise _bad(f"file {path}: {error.strerror}; allowed: a readable JSON or TOML file") from None
    if len(raw) > _MAX_CONFIG_BYTES:
        raise _bad(f"file {path}: over {_MAX_CONFIG_BYTES} bytes; allowed: a configuration, not weights")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _bad(f"file {path}: not text; allowed: a UTF-8 JSON or TOML file") from None


def _json(path: Path) -> Mapping[str, Any]:
    text = _read(path)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _bad(
            f"file {path}: not JSON ({str(error).splitlines()[0]}); allowed: a Hugging Face {CONFIG_FILE}"
        ) from None
    if not isinstance(content, dict):
        raise _bad(f"file {path}: holds a {type(content).__name__}; allowed: an object of keys")
    return content


def _toml(path: Path) -> Mapping[str, Any]:
    text = _read(path)
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise _bad(f"file {path}: not TOML ({str(error).splitlines()[0]})") from None


def moe_block(shape: ModelShape) -> Moe:
    """The model's most frequent mixture-of-experts block; `InputError` for a dense model."""
    layers = [layer for layer in shape.layers if layer.moe is not None]
    if not layers:
        raise InputError(f"model {shape.name} has no experts; allowed: a mixture of experts")
    block = max(layers, key=lambda layer: layer.count).moe
    assert block is not None
    return block
