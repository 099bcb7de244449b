"""Published training runs and the priors of what a deployment does not say (data/training.toml)."""

import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.deployment.tables import Costs

Array = NDArray[np.float64]

_FILE = Path(__file__).parent.parent / "data" / "training.toml"
_STREAM = 11  # apart from the streams of a study, which are spawned
_NAMES = ("samples", "epochs", "mfu", "busy")  # a fixed order: each has its own draws whatever else is stated
_SHARES = ("mfu", "busy")  # at most 1


@functools.cache
def training_facts() -> Mapping[str, Any]:
    """The tables of data/training.toml."""
    return tomllib.loads(_FILE.read_text(encoding="utf-8"))


class Recipe(NamedTuple):
    """What is uncertain about a run, as draws `(num_draws,)` in mirrored pairs; stated values are constant."""

    samples: Array
    epochs: Array
    mfu: Array
    busy: Array


def recipe(costs: Costs, output_tokens: float, num_draws: int, seed: int) -> Recipe:
    """The draws of a training run; `output_tokens` is the mean answer, by which stated tokens become samples."""
    rng = np.random.default_rng([seed, _STREAM])
    half = rng.standard_normal(((num_draws + 1) // 2, len(_NAMES)))
    normals = np.concatenate([half, -half])[:num_draws]
    stated = {"epochs": costs.epochs, "mfu": costs.mfu}
    if costs.training_tokens is not None:
        stated["samples"] = costs.training_tokens / output_tokens
    return Recipe(*(_drawn(name, stated.get(name), normals[:, i]) for i, name in enumerate(_NAMES)))


def _drawn(name: str, stated: float | None, normals: Array) -> Array:
    if stated is not None:
        return np.full(len(normals), float(stated))
    prior = training_facts()["prior"][name]
    values = prior["median"] * np.exp(prior["log_sd"] * normals)
    return np.minimum(values, 1.0) if name in _SHARES else np.asarray(values)
