"""`draftcast adaptive`: static length, schedule, adaptive controllers, and the bound of them all."""

import click

from draftcast.manual import Command
from draftcast.options import (
    IntList,
    Request,
    deployment_options,
    draft_lengths_option,
    method_option,
    weighted_loads_option,
)
from draftcast.output import show


@click.command("adaptive", cls=Command)
@draft_lengths_option
@weighted_loads_option
@click.option(
    "--contexts", type=IntList(), metavar="LIST", help="Contexts to compare, in tokens; default: from [workload]."
)
@method_option
@deployment_options
def command(
    request: Request,
    num_speculative_tokens: tuple[int, ...] | None,
    concurrency: tuple[int, ...] | None,
    contexts: tuple[int, ...] | None,
    method: str | None,
) -> None:
    """What deciding the draft length at run time is worth: schedule, adaptive, bound.

    Compares no speculation, the best static length, vLLM's length by batch size (ready to paste), SGLang's adaptive
    controller, and the most that any controller could reach; and says whether contexts want different lengths.
    """
    from simulator.adaptive import adaptive

    found = adaptive(
        request.load(method, needs_method=True),
        num_speculative_tokens=num_speculative_tokens,
        concurrency=concurrency,
        contexts=contexts,
        num_draws=request.num_draws,
        seed=request.seed,
    )
    show(found.to_dict(), as_json=request.as_json, view="adaptive")
