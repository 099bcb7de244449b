"""What is written down about a prediction: the question, the whole answer, and every figure with its interval."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from simulator.closed_form import Cell
from simulator.deployment import Deployment
from simulator.forecast import forecast_cells
from simulator.identity import identity_of
from simulator.study import build_study
from validate.launch.redaction import HIDDEN, is_secret_variable, redact
from validate.ledger.store import PREDICTION, Entry

JsonObject = dict[str, Any]

FORMAT = "draftcast prediction 1"


def prediction_entry(
    command: str, version: str, source: str, deployment: Deployment, result: Mapping[str, Any]
) -> Entry:
    """The entry for an answer of `predict` or `choose`, given as its JSON object.

    The figures are computed once more from the same seed, so they are those of the answer, now with an interval for
    every quantity that the restart can measure. Credentials are hidden, whatever key they stand under.
    """
    inputs = result["inputs"]
    lengths, loads = _listed(inputs["num_speculative_tokens"]), _listed(inputs["concurrency"])
    study = build_study(deployment, k_max=max(lengths), num_draws=inputs["num_draws"], seed=inputs["seed"])
    cells = forecast_cells(study, [Cell(k, load) for k in lengths for load in loads])
    identity = identity_of(study.system)
    body = {
        "format": FORMAT,
        "draftcast_version": version,
        "model_version": inputs["model_version"],
        "command": command,
        "source": shown_source(source),
        "deployment": deployment.to_dict(stated_only=True),
        "identity": {name: _plain(getattr(identity, name)) for name in identity.__slots__},
        "method": inputs["method"],
        "resolved": inputs["resolved"],
        "seed": inputs["seed"],
        "num_draws": inputs["num_draws"],
        "profile": inputs.get("profile"),
        "cells": cells,
        "result": dict(result),
    }
    summary = {
        "command": command,
        "model": identity.model,
        "gpu": identity.gpu,
        "num_gpus": deployment.num_gpus,
        "engine": identity.engine,
        "engine_version": identity.engine_version,
        "method": inputs["method"],
        "concurrency": loads,
        **_headline(result, lengths),
    }
    return Entry(PREDICTION, result["prediction_id"], clean(summary), clean(body))


def _headline(result: Mapping[str, Any], lengths: Sequence[int]) -> JsonObject:
    """The draft length and the speedup that stand for the entry: of a choice, those of what it recommends."""
    if "recommendation" not in result:
        return {
            "num_speculative_tokens": lengths[0],
            "compared": lengths,
            "speedup": {name: result["speedup"][name] for name in ("p05", "p50", "p95")},
            "probability_faster": result["probability_faster"],
        }
    picked = result["recommendation"]
    return {
        "num_speculative_tokens": picked["num_speculative_tokens"] or picked["best_if_enabled"],
        "compared": lengths,
        "recommended": picked["num_speculative_tokens"],
        "speedup": dict(picked["gain"]),
        "probability_faster": picked["probability_better"],
    }


def shown_source(source: str) -> str:
    """The file's path or the server's address; a launch text may hold anything, so only that it was one."""
    if source.startswith(("http://", "https://")) or _is_file(source):
        return source
    return "a launch text"


def _is_file(source: str) -> bool:
    try:
        return "\n" not in source and Path(source).is_file()
    except (OSError, ValueError):
        return False


def clean(value: Any) -> Any:
    """`value` without credentials: by their shape, and by the name of the key that they stand under."""
    return redact(_without_secret_keys(value))


def _without_secret_keys(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            str(key): HIDDEN if isinstance(item, str) and is_secret_variable(str(key)) else _without_secret_keys(item)
            for key, item in value.items()
        }
    return [_without_secret_keys(item) for item in value] if isinstance(value, list | tuple) else value


def _listed(value: Any) -> list[int]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else os.fspath(value) if isinstance(value, os.PathLike) else value
