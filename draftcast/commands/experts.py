"""`draftcast experts`: how many experts one layer reads."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from draftcast.manual import Command
from draftcast.options import IntList, json_option
from draftcast.output import show
from hwmodel.errors import InputError

if TYPE_CHECKING:
    from hwmodel.specs import Moe

MAX_SIGMA = 5.0  # at 5, one expert in a thousand takes almost everything
MAX_MEMORY = 1e6  # far beyond any effect: a request has no favourites
MAX_SHARPNESS = 10.0  # the best expert has all of the gates
MAX_SAMPLED_TOKENS = 4096
ROUTING = ("popularity_sigma", "stickiness", "routing_memory")


@click.command("experts", cls=Command)
@click.argument("model", metavar="MODEL")
@click.option(
    "-t",
    "--tokens",
    type=IntList(),
    default="1,2,4,8,16,32,64",
    show_default=True,
    help="Tokens in the step, such as 1,2,4-8.",
)
@click.option("--popularity-sigma", type=click.FloatRange(0.0, MAX_SIGMA), help="Log-sd of how often experts are used.")
@click.option("--stickiness", type=click.FloatRange(0.0, 1.0), help="How often a token repeats the experts before it.")
@click.option(
    "--routing-memory",
    type=click.FloatRange(0.0, MAX_MEMORY, min_open=True),
    help="How evenly one request uses experts; small is loyal to few.",
)
@click.option("--requests", type=click.IntRange(min=1), default=1, show_default=True, help="Requests that share them.")
@click.option(
    "--counted",
    type=click.Path(),
    metavar="FILE.csv",
    help="Experts counted on your own traffic (tokens, requests, distinct_experts): fits the three parameters.",
)
@click.option("--budget", type=IntList(), help="Experts kept at most (MoE-Spec): what that leaves of the gates.")
@click.option(
    "--gate-sharpness",
    type=click.FloatRange(0.0, MAX_SHARPNESS),
    help="How unequal a token's gates are; 0: all equal. Needs --budget.",
)
@json_option
def command(
    model: str,
    tokens: tuple[int, ...],
    requests: int,
    counted: str | None,
    budget: tuple[int, ...] | None,
    as_json: bool,
    **numbers: float | None,
) -> None:
    """How many experts a layer reads, by the number of tokens in a step.

    The reason why drafts cost a mixture of experts more than a dense model: each further token reads further experts.
    With --counted: the parameters of the routing fitted to your own counts, for the deployment file. With --budget: the
    experts with the most gate mass are kept, and how much of each token's gates that leaves.
    """
    from draftcast.expand import known_model
    from hwmodel.experts_report import default_routing, experts_curve
    from hwmodel.models import load_model, moe_block

    _check(tokens, numbers)
    routing, gate_sharpness = {name: numbers[name] for name in ROUTING}, numbers["gate_sharpness"]
    if gate_sharpness is not None and budget is None:
        raise InputError("--gate-sharpness: got a value, but it only matters with --budget")
    shape = load_model(known_model(model))
    block = moe_block(shape)
    fitted = _fitted(counted, block, routing) if counted is not None else None
    if fitted is not None:
        routing = {name: fitted["parameters"][name]["value"] for name in ROUTING}
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
    result = {"inputs": inputs, "curve": curve, **({"fitted": fitted} if fitted is not None else {})}
    if budget is not None:
        inputs["budgets"] = list(budget)
        result["budgets"] = _budgets(block, inputs, gate_sharpness)
    show(result, as_json=as_json, view="experts")


def _fitted(path: str, block: "Moe", stated: Mapping[str, float | None]) -> dict[str, Any]:
    """The parameters fitted to the counts of a file, each row's count as fitted, and the table for the deployment."""
    from calibration.routing_counts import fit_routing, read_expert_counts

    given = [f"--{name.replace('_', '-')}" for name, value in stated.items() if value is not None]
    if given:
        raise InputError(f"--counted: got {given[0]} too, which it fits; allowed: one of them")
    layer = block.num_experts, block.num_experts_per_tok
    counts = read_expert_counts(path, *layer)
    found = fit_routing(*layer, counts)
    lines = [f"{name} = {round(found.value[name], 3):g}" for name in ROUTING if name not in found.undetermined]
    return {
        "parameters": {
            name: {"value": found.value[name], "determined": name not in found.undetermined} for name in ROUTING
        },
        "rows": [
            {"tokens": c.tokens, "requests": c.requests, "counted": c.distinct_experts, "fitted": value}
            for c, value in zip(counts, found.fitted, strict=True)
        ],
        "deployment_toml": "\n".join(["[parameters]", *lines]) if lines else None,
    }


def _budgets(block: "Moe", inputs: dict[str, Any], gate_sharpness: float | None) -> list[dict[str, Any]]:
    """What each budget keeps at each number of tokens: rows of the JSON; completes the `inputs`."""
    from simulator.ranks.gates import GATE_SHARPNESS, kept_by_budgets
    from simulator.ranks.routing_samples import RoutingPoint

    if 0 in inputs["budgets"] or max(inputs["tokens"]) > MAX_SAMPLED_TOKENS:
        raise InputError(f"--budget: allowed: experts from 1 on, and --tokens up to {MAX_SAMPLED_TOKENS}")
    inputs["gate_sharpness"] = GATE_SHARPNESS if gate_sharpness is None else gate_sharpness
    layer = block.num_experts, block.num_experts_per_tok
    routing = RoutingPoint(*(float(inputs[name]) for name in ROUTING))
    spread = [(count, min(inputs["requests"], count)) for count in inputs["tokens"]]
    return [
        {"tokens": count, **row}
        for count, requests in spread
        for row in kept_by_budgets(layer, count, requests, routing, inputs["budgets"], inputs["gate_sharpness"])
    ]


def _check(tokens: tuple[int, ...], numbers: dict[str, float | None]) -> None:
    """`InputError` for values that click's ranges let through."""
    if 0 in tokens:
        raise InputError("--tokens: 0 is no step; allowed: whole numbers from 1")
    for name, value in numbers.items():
        if value is not None and math.isnan(value):
            raise InputError(f"--{name.replace('_', '-')}: got nan; allowed: a number")
