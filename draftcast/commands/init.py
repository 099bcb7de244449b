"""`draftcast init`: a first deployment file."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from draftcast.manual import Command
from draftcast.options import KEY_OPTIONS, Request, json_option, method_option
from draftcast.output import show
from hwmodel.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from simulator.deployment import Deployment

REFERENCE_CASE = Path(__file__).parent.parent / "data" / "reference-case.toml"
_AS_REFERENCE = "neither --model nor --gpu is named: this is the reference case with the given keys laid over it"
_IN_PLACE_OF_A_PATH = "FILE"
_NEEDS_NO_DRAFTER = ("ngram", "ngram_gpu", "suffix")


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
    server) or another deployment file. Without one, --model and --gpu describe it. Without these either, it is the
    reference case (`examples/kimi-k2.5-8x-rtx-pro-6000.toml`), with what --set says laid over it. A launch without
    drafts is asked about ngram, which needs no drafter.
    """
    request = Request(source or "", profile=None, num_draws=0, seed=0, as_json=as_json, **keys)
    if output is not None and not force and Path(output).is_file():
        raise InputError(f"{output} is there already; allowed: another -o FILE, or --force to write over it")
    deployment = _deployment(request, source, method)
    from simulator.deployment.commented import commented

    text = commented(deployment, [*_head(output), *_own_layers(deployment)], every_key=every_key)
    if output is not None:
        from simulator.files import write_whole

        write_whole(output, text.encode())
    inputs = {"source": source, **keys, "method": method}
    result = {"inputs": inputs, "output": output, "deployment": deployment.to_dict(stated_only=True), "text": text}
    show({**result, "notes": deployment.notes}, as_json=as_json, view="init")


def _deployment(request: Request, source: str | None, method: str | None) -> Deployment:
    """The checked deployment behind the arguments, its paths absolute: the file may be written anywhere."""
    from draftcast.named import names_any, of_names
    from hwmodel.models import load_model
    from simulator.deployment import load_deployment
    from simulator.deployment.load import resolve_paths
    from simulator.deployment.write import stated_tables

    overrides = (*request.named_overrides(method), *request.overrides)
    if source is not None:
        deployment = request.load(method or _asked_method(request))
    elif names_any(overrides):
        deployment = load_deployment(of_names(overrides).source, overrides)
    else:
        deployment = _reference_case(overrides)
    load_model(deployment.model.config)  # an unknown name is said now, not when the file is used
    tables = stated_tables(deployment)
    resolve_paths(tables, os.getcwd())
    return load_deployment(tables, notes=deployment.notes)


def _reference_case(overrides: Sequence[str]) -> Deployment:
    """The reference case with `overrides` laid over it; where they do not fit it, the error says what it is about."""
    from simulator.deployment import load_deployment

    try:
        return load_deployment(REFERENCE_CASE, overrides, (_AS_REFERENCE,) if overrides else ())
    except UnknownNameError:
        raise
    except InputError as error:
        raise InputError(f"{error}; {_AS_REFERENCE}") from error


def _asked_method(request: Request) -> str | None:
    """The method to ask about where neither the options nor the source name one."""
    from draftcast.expand import stated
    from draftcast.named import FIRST_METHOD

    if stated(request.overrides, "speculation.method") is not None:
        return None
    return FIRST_METHOD if request.load().speculation.method == "none" else None


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


def _own_layers(deployment: Deployment) -> list[str]:
    """That the model brings a drafter of its own, where it does and another one is asked about."""
    from hwmodel.models import load_model

    method, model = deployment.speculation.method, deployment.model.config
    if method not in _NEEDS_NO_DRAFTER or not load_model(model).mtp_layers:
        return []
    return [
        f"{Path(model).name} has layers of its own that draft (multi-token prediction):"
        f' method = "mtp" in [speculation], or --method mtp, asks about them in place of {method}.'
    ]
