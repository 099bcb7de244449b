"""`draftcast step`: one engine step on the ranks, event by event."""

from typing import Any

import click

from draftcast.manual import Command
from draftcast.options import Request, concurrency_option, deployment_options, draft_length_option, method_option
from draftcast.output import show


@click.command("step", cls=Command)
@draft_length_option
@concurrency_option
@method_option
@click.option("--topology", metavar="FILE", help="Text of `nvidia-smi topo -m`: the links of this box.")
@click.option(
    "--algorithm", default="auto", show_default=True, help="auto, ring, tree, one-shot, two-shot, hierarchical."
)
@click.option(
    "--protocol", default="auto", show_default=True, help="NCCL's, for ring and tree: auto, ll, ll128, simple."
)
@click.option("--jitter/--no-jitter", default=True, show_default=True, help="Whether ranks differ and wait.")
@click.option("--steps", type=click.IntRange(min=1), default=1, show_default=True, help="Steps to take the mean of.")
@click.option("--trace", metavar="OUT", help="Write a trace of the first step for ui.perfetto.dev.")
@deployment_options
def command(request: Request, trace: str | None, **options: Any) -> None:
    """One engine step on the ranks: layers, AllReduce on the links of the box, experts as drawn.

    DEPLOYMENT is a TOML file, or a launch: a command in quotes, a systemd unit, a compose file, a manifest.
    """
    from simulator.files import check_outputs
    from simulator.ranks.step import StepQuestion, step

    check_outputs({"trace": trace}, [request.source])
    method = options.pop("method")
    question = StepQuestion(num_draws=request.num_draws, seed=request.seed, **options)
    show(step(request.load(method), question, trace=trace).to_dict(), as_json=request.as_json, view="step")
