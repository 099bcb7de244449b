"""`draftcast experts`: how many experts one layer reads."""

import math
from typing import Any

import click

from draftcast.options import IntList, json_option
from draftcast.output import show
from hwmodel.errors import InputError

MAX_SIGMA = 5.0  # at 5, one expert in a thousand takes almost everything


@click.command("experts")
@click.argument("model", metavar="MODEL")
@click.option("-t", "--tokens", type=IntList(), required=True, help="Tokens in the step, such as 1,2,4-8.")
@click.option("--popularity-sigma", type=click.FloatRange(0.0, MAX_SIGMA), help="Log-sd of how often experts are used.")
@click.option("--stickiness", type=click.FloatRange(0.0, 1.0), help="How often a token repeats the experts before it.")
@click.option("--requests", type=click.IntRange(min=1), default=1, show_default=True, help="Requests that share them.")
@json_option
def command(model: str, tokens: tuple[int, ...], as_json: bool, **routing: Any) -> None:
    """How many experts a layer reads, by the number of tokens in a step.

    The reason why drafts cost a mixture of experts more than a dense model: each further token reads further experts.
    """
    from hwmodel import moe
    from hwmodel.models import load_model

    for name in ("popularity_sigma", "stickiness"):
        if routing[name] is not None and math.isnan(routing[name]):
            raise InputError(f"--{name.replace('_', '-')}: got nan; allowed: a number")
    if 0 in tokens:
        raise InputError("--tokens: 0 is no step; allowed: whole numbers from 1")
    shape = load_model(model)
    layers = [layer for layer in shape.layers if layer.moe is not None]
    if not layers:
        raise InputError(f"model {shape.name} has no experts; allowed: a mixture of experts")
    block = max(layers, key=lambda layer: layer.count).moe
    assert block is not None
    stated = {name: value for name, value in routing.items() if value is not None}
    curve = moe.experts_curve(block.num_experts, block.num_experts_per_tok, tokens, **stated)
    inputs = {"model": shape.name, "num_experts": block.num_experts, "num_experts_per_tok": block.num_experts_per_tok}
    show({"inputs": inputs | {"tokens": list(tokens)} | routing, "curve": curve}, as_json=as_json, view="experts")
