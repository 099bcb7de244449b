"""The Python API: what the commands call, and what `import draftcast` offers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from draftcast.expand import expand, known_model, stated
from simulator.choose import choose
from simulator.deployment import Deployment, load_deployment
from simulator.deployment.load import with_profile
from simulator.predict import predict, whatif
from simulator.results import Choice, Prediction, WhatIf

__all__ = ["Choice", "Deployment", "Prediction", "WhatIf", "choose", "load", "predict", "whatif"]


def load(
    source: str | Path | Mapping[str, Any],
    overrides: Sequence[str] = (),
    *,
    gpu: str | None = None,
    model: str | None = None,
    profile: str | Path | None = None,
) -> Deployment:
    """A checked deployment from a TOML file, a launch command or file, a server's URL, or a mapping of the same tables.

    `overrides` are texts like "hardware.num_gpus=4"; `gpu` and `model` fill what a launch text does not say; `profile`
    is what `calibrate` wrote. Raises `InputError` with one line that says what, what was given, and what is allowed.
    """
    deployment = _loaded(source, overrides, gpu, model)
    if profile is None:
        return deployment
    from simulator.profile import read_profile  # only where there is one: start-up time

    return with_profile(deployment, read_profile(profile))


def _loaded(
    source: str | Path | Mapping[str, Any], overrides: Sequence[str], gpu: str | None, model: str | None
) -> Deployment:
    if isinstance(source, Mapping):
        return load_deployment(source, overrides)
    given = {"hardware.gpu": gpu, "model.config": model and known_model(model)}
    named = [f"{key}={value}" for key, value in given.items() if value is not None]
    expanded = expand(str(source), version=stated(overrides, "engine.version"))
    expanded.require_method(stated(overrides, "speculation.method") is not None)
    stated_keys = (*named, *overrides)
    return load_deployment(expanded.source, stated_keys, expanded.notes_beside(stated_keys))
