"""`draftcast experts`: how many experts one layer reads."""

import math
from typing import TYPE_CHECKING, Any

import click

from draftcast.options import IntList, json_option
from draftcast.output import show
from hwmodel.errors import InputError

if TYPE_CHECKING:
    from hwmodel.specs import ModelShape, Moe

MAX_SIGMA = 5.0  # at 5, one expert in a thousand takes almost everything
MAX_MEMORY = 1e6  # far beyond any effect: a request has no favourites
ROUTING = ("popularity_sigma", "stickiness", "routing_memory")


@click.command("experts")
@click.argument("model", metavar="MODEL")
@click.option("-t", "--tokens", type=IntList(), required=True, help="Tokens in the step, such as 1,2,4-8.")
@click.option("--popularity-sigma", type=click.FloatRange(0.0, MAX_SIGMA), help="Log-sd of how often experts are used.")
@click.option("--stickiness", type=click.FloatRange(0.0, 1.0), help="How often a token repeats the experts before it.")
@click.option(
    "--routing-memory",
    type=click.FloatRange(0.0, MAX_MEMORY, min_open=True),
    help="How evenly one request uses experts; small is loyal to few.",
)
@click.option("--requests", type=click.IntRange(min=1), default=1, show_default=True, help="Requests that share them.")
@json_option
def command(model: str, tokens: tuple[int, ...], requests: int, as_json: bool, **routing: float | None) -> None:
    """How many experts a layer reads, by the number of tokens in a step.

    The reason why drafts cost a mixture of experts more than a dense model: each further token reads further experts.
    """
    from hwmodel.experts_report import default_routing, experts_curve
    from hwmodel.models import load_model

    _check(tokens, routing)
    shape = load_model(model)
    block = _experts_of(shape)
    used = default_routing(*(routing[name] for name in ROUTING))
    inputs: dict[str, Any] = {
        "model": shape.name,
        "num_experts": block.num_experts,
        "num_experts_per_tok": block.num_experts_per_tok,
        "tokens": list(tokens),
        "requests": requests,
        **{name: getattr(used, name) for name in ROUTING},
        "priors": [name for name in ROUTING if routing[name] is None],
    }
    curve = experts_curve(block.num_experts, block.num_experts_per_tok, tokens, used, requests)
    show({"inputs": inputs, "curve": curve}, as_json=as_json, view="experts")


def _check(tokens: tuple[int, ...], routing: dict[str, float | None]) -> None:
    """`InputError` for values that click's ranges let through."""
    if 0 in tokens:
        raise InputError("--tokens: 0 is no step; allowed: whole numbers from 1")
    for name, value in routing.items():
        if value is not None and math.isnan(value):
            raise InputError(f"--{name.replace('_', '-')}: got nan; allowed: a number")


def _experts_of(shape: "ModelShape") -> "Moe":
    """The model's most frequent mixture-of-experts block."""
    layers = [layer for layer in shape.layers if layer.moe is not None]
    if not layers:
        raise InputError(f"model {shape.name} has no experts; allowed: a mixture of experts")
    block = max(layers, key=lambda layer: layer.count).moe
    assert block is not None
    return block
