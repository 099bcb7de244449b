"""`draftcast model`: a model's sizes, from its card or its config.json."""

import click

from draftcast.manual import Command
from draftcast.options import json_option
from draftcast.output import show

MAX_TENSOR_PARALLEL_SIZE = 1024  # above any machine's; a typing error would divide the model into nothing


@click.command("model", cls=Command)
@click.argument("model", metavar="MODEL")
@click.option(
    "--tp",
    "tensor_parallel_size",
    type=click.IntRange(1, MAX_TENSOR_PARALLEL_SIZE),
    default=1,
    show_default=True,
    metavar="N",
    help="Tensor-parallel size, for the share of one rank.",
)
@json_option
def command(model: str, tensor_parallel_size: int, as_json: bool) -> None:
    """A model's parameters, weight bytes and KV cache bytes.

    MODEL is a shipped card (`draftcast list models`), a repository's name that one stands for, or the path
    of a Hugging Face config.json or its directory.
    """
    from draftcast.expand import known_model
    from hwmodel.model_report import model_report
    from hwmodel.models import load_model

    shape = load_model(known_model(model))
    if tensor_parallel_size > 1:
        from hwmodel.rank import Parallelism  # numpy: only where there is something to check
        from simulator.system import check_layout

        check_layout(shape, Parallelism(tensor=tensor_parallel_size))
    inputs = {"model": shape.name, "tensor_parallel_size": tensor_parallel_size}
    report = {"inputs": inputs, **model_report(shape, tensor_parallel_size)}
    show(report, as_json=as_json, view="model")
