"""`draftcast list`: the vocabularies."""

from typing import Any

import click

from draftcast.manual import Command
from draftcast.options import json_option
from draftcast.output import show

KINDS = ("gpus", "models", "methods", "drafters", "interconnects", "keys", "parameters")


@click.command("list", cls=Command)
@click.argument("kind", type=click.Choice(KINDS))
@json_option
def command(kind: str, as_json: bool) -> None:
    """The names that files and options take.

    gpus and models are cards; a path to a card or config.json does as well. drafters are the published heads whose
    acceptance is known. keys are those of the deployment file, which --set and --vary reach too; parameters those of
    its table [parameters], which the model has priors for.
    """
    show({"kind": kind, "items": _items(kind)}, as_json=as_json, view="list")


def _items(kind: str) -> list[dict[str, Any]]:
    if kind == "gpus":
        return _gpus()
    if kind == "models":
        from hwmodel.models import model_names

        return [{"name": name} for name in model_names()]
    if kind == "drafters":
        from simulator.published_drafters import listed

        return listed()
    if kind == "keys":
        from dataclasses import asdict

        from simulator.deployment import known_keys

        return [asdict(key) for key in known_keys()]
    return [{"name": name, "meaning": meaning} for name, meaning in _meanings(kind).items()]


def _gpus() -> list[dict[str, Any]]:
    from hwmodel.gpus import gpu_names, load_gpu

    fields = ("name", "title", "memory_bytes", "interconnect")
    return [{field: getattr(gpu, field) for field in fields} for gpu in map(load_gpu, gpu_names())]


def _meanings(kind: str) -> dict[str, str]:
    if kind == "parameters":
        from hwmodel.parameters import prior_table

        return {name: row["meaning"] for name, row in prior_table().items()}
    if kind == "methods":
        from hwmodel.engine.methods import method_names

        return method_names()
    from hwmodel.collectives import interconnect_names

    return interconnect_names()
