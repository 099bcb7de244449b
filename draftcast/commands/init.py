"""`draftcast init`: a first deployment file."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from draftcast.manual import Command
from draftcast.options import KEY_OPTIONS, Request, is_count, json_option, method_option
from draftcast.output import show
from hwmodel.errors import InputError

if TYPE_CHECKING:
    from simulator.deployment import Deployment

REFERENCE_CASE = Path(__file__).parent.parent / "data" / "reference-case.toml"
_METHOD = "speculation.method"
_FIRST_METHOD = "ngram"  # the one that needs no drafter: `choose` answers at once, `options` compares all
_IN_PLACE_OF_A_PATH = "FILE"


def _key_options(command: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(KEY_OPTIONS):
        command = option(command)
    return command


@click.command("init", cls=Command)
@click.argument("source", metavar="[DEPLOYMENT]", required=False)
@_key_options
@method_option
@click.option("-o", "--output", metavar="FILE", help="The file to write; default: shown on stdout.")
@click.option("--force", is_flag=True, help="Write over FILE.")
@click.option("--every-key", is_flag=True, help="Name the keys that hardly anybody needs as well.")
@json_option
def command(
    source: str | None, method: str | None, output: str | None, force: bool, every_key: bool, as_json: bool, **keys: Any
) -> None:
    """A first deployment file, every key explained, from a launch or from names.

    DEPLOYMENT is a launch (a command in quotes, a systemd unit, a compose file, a manifest, the URL of a running
    server) or another deployment file. Without one, --model and --gpu describe it; without anything, it is the
    reference case. A launch without drafts is asked about ngram, which needs no drafter.
    """
    request = Request(source or "", profile=None, num_draws=0, seed=0, as_json=as_json, **keys)
    if output is not None and not force and Path(output).is_file():
        raise InputError(f"{output} is there already; allowed: another -o FILE, or --force to write over it")
    deployment = _deployment(request, source, method)
    from simulator.deployment.commented import commented

    text = commented(deployment, _head(output), every_key=every_key)
    if output is not None:
        from simulator.files import write_whole

        write_whole(output, text.encode())
    inputs = {"source": source, **keys, "method": method}
    result = {"inputs": inputs, "output": output, "deployment": deployment.to_dict(stated_only=True), "text": text}
    show({**result, "notes": deployment.notes}, as_json=as_json, view="init")


def _deployment(request: Request, source: str | None, method: str | None) -> Deployment:
    """The checked deployment behind the arguments, its paths absolute: the file may be written anywhere."""
    from draftcast.expand import stated
    from hwmodel.models import load_model
    from simulator.deployment import load_deployment
    from simulator.deployment.load import resolve_paths
    from simulator.deployment.write import stated_tables

    overrides = (*request.named_overrides(method), *request.overrides)
    if source is not None:
        deployment = request.load(method or _asked_method(request, stated(overrides, _METHOD)))
    elif not overrides:
        deployment = load_deployment(REFERENCE_CASE)
    else:
        deployment = load_deployment(_from_names(overrides), overrides)
    load_model(deployment.model.config)  # an unknown name is said now, not when the file is used
    tables = stated_tables(deployment)
    resolve_paths(tables, os.getcwd())
    return load_deployment(tables, notes=deployment.notes)


def _asked_method(request: Request, stated_method: str | None) -> str | None:
    """The method to ask about where neither the options nor the source name one."""
    return _FIRST_METHOD if stated_method is None and request.load().speculation.method == "none" else None


def _from_names(overrides: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The tables behind the options alone; `InputError` where they lack the model or the GPU."""
    from draftcast.expand import stated

    for key, option, names in (("model.config", "--model", "models"), ("hardware.gpu", "--gpu", "gpus")):
        if stated(overrides, key) is None:
            raise InputError(
                f"{key}: got nothing; allowed: {option} NAME (`draftcast list {names}`), or a launch in quotes,"
                ' such as draftcast init "vllm serve MODEL --tensor-parallel-size 8" --gpu NAME'
            )
    num_gpus = stated(overrides, "hardware.num_gpus")
    tensor = int(num_gpus) if num_gpus and is_count(num_gpus) else 1
    return {"engine": {"tensor_parallel_size": tensor}, "speculation": {"method": _FIRST_METHOD}}


def _head(output: str | None) -> list[str]:
    """What stands above the first table: what the file is, and what to type next."""
    import shlex

    path = shlex.quote(output or _IN_PLACE_OF_A_PATH)
    return [
        "What is served, on what, how it would draft, and under which load. Change what is not so; a line that starts"
        " with # is not read: take the # away where you know better. All keys: draftcast list keys.",
        f"  draftcast choose {path}     which draft length, at which load, and how sure\n"
        f"  draftcast options {path}    every method side by side\n"
        f"  draftcast predict {path}    one draft length part by part, and why",
    ]
