"""The deployment that --model and --gpu describe without any file or launch: what `draftcast init` writes for them."""

import shlex
from collections.abc import Sequence
from typing import Any

from draftcast.expand import Expanded, stated
from hwmodel.errors import InputError

FIRST_METHOD = "ngram"  # the one that needs no drafter: `choose` answers at once, `options` compares all
_METHOD = "speculation.method"
_OPTIONS = {"model.config": "--model", "hardware.gpu": "--gpu", "hardware.num_gpus": "--num-gpus", _METHOD: "--method"}
_NAMES = (("model.config", "--model", "models"), ("hardware.gpu", "--gpu", "gpus"))


def names_any(overrides: Sequence[str]) -> bool:
    """Whether `overrides` name a model or a GPU, so that they are meant to describe a deployment."""
    return any(stated(overrides, key) is not None for key, _, _ in _NAMES)


def of_names(overrides: Sequence[str]) -> Expanded:
    """The tables behind the options alone; `InputError` for what is wrong with them, then for what they lack."""
    _check(overrides)
    for key, option, names in _NAMES:
        if stated(overrides, key) is None:
            raise InputError(
                f"{key}: got nothing; allowed: {option} NAME (`draftcast list {names}`), or a launch in quotes,"
                ' such as "vllm serve MODEL --tensor-parallel-size 8" --gpu NAME'
            )
    num_gpus = stated(overrides, "hardware.num_gpus")
    tensor = int(num_gpus) if num_gpus and num_gpus.isascii() and num_gpus.isdigit() and len(num_gpus) < 10 else 1
    tables: dict[str, Any] = {"engine": {"tensor_parallel_size": tensor}, "speculation": {"method": FIRST_METHOD}}
    own = note_of_own_layers(stated(overrides, "model.config")) if stated(overrides, _METHOD) is None else ()
    return Expanded("", tables, own, "names")


def note_of_names(overrides: Sequence[str]) -> str:
    """What was taken for granted where no DEPLOYMENT was given, and how to get it as a file."""
    method = "" if stated(overrides, _METHOD) else f"method {FIRST_METHOD}, "
    return (
        f"no DEPLOYMENT is given: {method}the newest engine and the usual load are assumed where nothing is stated;"
        f" `{_init_command(overrides)}` writes them down, to be made exact"
    )


def _init_command(overrides: Sequence[str]) -> str:
    """The `draftcast init` that takes the same options."""
    words = ["draftcast", "init"]
    for text in dict.fromkeys(overrides):
        key, _, value = text.partition("=")
        words += [_OPTIONS[key], value] if key in _OPTIONS else ["--set", text]
    return shlex.join([*words, "-o", "FILE"])


def note_of_own_layers(model: str | None) -> tuple[str, ...]:
    """That the model drafts with layers of its own, for an answer about the method that was chosen here."""
    from hwmodel.models import load_model

    if model is None or not load_model(model).mtp_layers:
        return ()
    return ("the model has layers of its own that draft (multi-token prediction): --method mtp asks about them",)


def asked_about(expanded: Expanded, overrides: Sequence[str]) -> tuple[str, ...]:
    """The method to lay over a launch that has none, for the commands that compare draft lengths: nothing elsewhere."""
    is_file = expanded.tables is None or expanded.path.endswith(".toml")  # its own word stands, also on having none
    if is_file or stated(overrides, _METHOD) is not None:
        return ()
    speculation = (expanded.tables or {}).get("speculation") or {"method": "none"}
    if speculation != {"method": "none"}:
        return ()
    return (f"{_METHOD}={FIRST_METHOD}",)


def notes_of_method(expanded: Expanded, overrides: Sequence[str]) -> tuple[str, ...]:
    """That the method was chosen here, and where to see others."""
    tables = expanded.tables or {}
    model = stated(overrides, "model.config") or tables.get("model", {}).get("config")
    return (
        f"the {expanded.kind} names no speculation method: asked about {FIRST_METHOD}, which needs no drafter;"
        " --method NAME asks about another, `draftcast options` sets all side by side",
        *note_of_own_layers(model),
    )


def _check(overrides: Sequence[str]) -> None:
    """Names and keys that do not exist are said before anything that is missing."""
    from hwmodel.gpus import load_gpu
    from hwmodel.models import load_model
    from simulator.deployment.overrides import check_keys

    check_keys(overrides)
    gpu, model = stated(overrides, "hardware.gpu"), stated(overrides, "model.config")
    if gpu is not None:
        load_gpu(gpu)
    if model is not None:
        load_model(model)
