"""`draftcast train-cost`: what training a draft head costs, here and rented, and when it has paid."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from draftcast.manual import Command
from draftcast.options import Request, deployment_options, loads_option
from draftcast.output import show
from hwmodel.errors import InputError

if TYPE_CHECKING:
    from simulator.training.sites import Node

_MAX_GPUS = 16_384
_MAX_PRICE = 1_000_000.0


@click.command("train-cost", cls=Command)
@loads_option
@click.option("--rent", "rented", metavar="GPU[:N]", multiple=True,
              help="A machine to rent, by its GPU card; default: 8 of h200, b200, b300.")  # fmt: skip
@click.option("--price", "priced", metavar="GPU=PRICE", multiple=True,
              help="Price of one GPU for one hour, by its card.")  # fmt: skip
@deployment_options
def command(
    request: Request, concurrency: tuple[int, ...] | None, rented: tuple[str, ...], priced: tuple[str, ...]
) -> None:
    """What training a draft head costs, here and on rented machines, and when its gain has paid.

    Data volume, epochs and MFU are costs.training_tokens, costs.epochs and costs.mfu; without them published runs say.
    """
    from simulator.training.report import train_cost

    nodes = dict(_node(text) for text in rented)
    prices = dict(price_of(text) for text in priced)
    deployment = request.load()
    result = train_cost(
        deployment, concurrency=concurrency, rent=nodes, prices=prices, num_draws=request.num_draws, seed=request.seed
    ).to_dict()
    show(result, as_json=request.as_json, view="train_cost")


def _node(text: str) -> tuple[str, Node]:
    from hwmodel.gpus import load_gpu
    from simulator.training.sites import NODE_GPUS, Node

    name, colon, count = text.strip().partition(":")
    if colon and not (count.isascii() and count.isdigit() and 0 < int(count[:9]) <= _MAX_GPUS):
        raise InputError(f"--rent: got {text!r}; allowed: GPU or GPU:N, N from 1 to {_MAX_GPUS}, such as b200:8")
    load_gpu(name)
    node = Node(name, int(count) if colon else NODE_GPUS)
    return (text.strip() if colon else name), node


def price_of(text: str) -> tuple[str, float]:
    """The card and the price of one `--price GPU=PRICE`."""
    from hwmodel.gpus import load_gpu

    name, equals, amount = text.partition("=")
    try:
        price = float(amount)
    except ValueError:
        price = -1.0
    if not equals or not 0.0 <= price <= _MAX_PRICE:
        raise InputError(f"--price: got {text!r}; allowed: GPU=PRICE, 0 to {_MAX_PRICE:g}, such as h200=3.5")
    load_gpu(name.strip())
    return name.strip(), price
