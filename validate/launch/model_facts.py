"""What the model's own config.json says about a launch: its shape, MTP layers, and speculation that it brings along."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hwmodel.errors import InputError
from hwmodel.models import load_model
from hwmodel.specs import ModelShape
from validate.launch.files import read_source
from validate.launch.model_names import card_for, local_config


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What is known about the model: `shape` by its card or config.json, `config` where the file itself was read."""

    shape: ModelShape | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""

    @property
    def num_mtp_layers(self) -> int | None:
        """MTP layers of the checkpoint; None where the shape is not known."""
        return None if self.shape is None else len(self.shape.mtp_layers)


@dataclass(frozen=True, slots=True)
class Bundled:
    """Speculation that a model repository switches on by itself: the configuration, and the model that is served."""

    config: dict[str, Any]
    verifier: str


def model_facts(
    name: str | None,
    stated: str | None = None,
    folder: Path | None = None,
    root: Path | None = None,
    *,
    is_local: bool = True,
) -> ModelFacts:
    """Facts on the model that a launch names: from the card or path that the user states, its folder, or a card.

    Folders are looked at only where the launch is of this machine (`is_local`). A stated one that cannot be read raises
    InputError; what the launch names is taken where it can be had.
    """
    if stated is not None:
        path = Path(stated) / "config.json" if Path(stated).is_dir() else Path(stated)
        return ModelFacts(_shape(stated, required=path.suffix != ".json"), _config(path), stated)
    if name is None:
        return ModelFacts()
    local = local_config(name, folder, root) if is_local else None
    if local is not None:
        try:
            return ModelFacts(_shape(local), _config(Path(local)), local)
        except InputError:
            return ModelFacts()
    card = card_for(name)
    return ModelFacts() if card is None else ModelFacts(_shape(card), {}, f"the card {card}")


def _shape(name: str, *, required: bool = False) -> ModelShape | None:
    """The shape; None for a config.json that is readable but of no kind known here, as a draft head's is."""
    try:
        return load_model(name)
    except InputError:
        if required:
            raise
        return None


def _config(path: Path) -> Mapping[str, Any]:
    if path.suffix != ".json":
        return {}
    try:
        content = json.loads(read_source(path))
    except (ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"file '{path}' is not JSON; allowed: a Hugging Face config.json") from None
    return content if isinstance(content, dict) else {}


def bundled_speculation(config: Mapping[str, Any], name: str) -> Bundled | None:
    """The speculation that `speculators_config` in a config.json switches on, or None.

    Source: vllm/transformers_utils/config.py `maybe_override_with_speculators`, configs/speculators/base.py.
    """
    table = config.get("speculators_config")
    methods = table.get("proposal_methods") if isinstance(table, dict) else None
    verifier = table.get("verifier") if isinstance(table, dict) else None
    first = methods[0] if isinstance(methods, list) and methods else None
    target = verifier.get("name_or_path") if isinstance(verifier, dict) else None
    length = first.get("speculative_tokens") if isinstance(first, dict) else None
    method = config.get("speculators_model_type")
    if not isinstance(method, str) or not isinstance(target, str) or not isinstance(length, int):
        return None
    result = {"method": method, "model": name, "num_speculative_tokens": length}
    if method == "peagle":
        result |= {"method": "eagle3", "parallel_drafting": True}
    return Bundled(result, target)
