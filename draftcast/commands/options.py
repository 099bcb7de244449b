"""`draftcast options`: all ways to faster decoding side by side."""

import click

from draftcast.commands.train_cost import price_of
from draftcast.manual import Command
from draftcast.options import Request, deployment_options, loads_option
from draftcast.output import show
from draftcast.report_options import report_options


@click.command("options", cls=Command)
@report_options
@loads_option
@click.option("--acceptance", "replays", metavar="FILE", multiple=True,
              help="What `draftcast replay -o` wrote: measured acceptance of n-gram or suffix.")  # fmt: skip
@click.option("--price", "priced", metavar="GPU=PRICE", multiple=True,
              help="Price of one GPU for one hour, by its card.")  # fmt: skip
@click.option("--all", "everything", is_flag=True, help="Also what is not expected to gain (--json has it anyway).")
@deployment_options
def command(
    request: Request,
    concurrency: tuple[int, ...] | None,
    replays: tuple[str, ...],
    priced: tuple[str, ...],
    everything: bool,
) -> None:
    """All ways to faster decoding side by side: what each gains, takes and risks.

    Drafters, a trained head, engine settings, communication, layout, memory, number format and other machines; each
    against the deployment as it runs without speculation, and each with the best drafter after it.
    """
    from simulator.options.compare import compare_options

    prices = dict(price_of(text) for text in priced)
    result = compare_options(
        request.load(),
        concurrency=concurrency,
        replays=replays,
        prices=prices,
        num_draws=request.num_draws,
        seed=request.seed,
    )
    found = result.to_dict()
    show(found if request.as_json else {**found, "all_options": everything}, as_json=request.as_json, view="options")
