"""`draftcast experiments`: what each possible measurement is worth before the decision."""

import click

from draftcast.manual import Command
from draftcast.options import Request, deployment_options, draft_lengths_option, weighted_loads_option
from draftcast.output import show
from simulator.defaults import HORIZON_DAYS


@click.command("experiments", cls=Command)
@click.option("--methods", metavar="NAMES", default="", help="Further methods to choose among, such as ngram,eagle3.")
@draft_lengths_option
@weighted_loads_option
@click.option(
    "--horizon-days",
    type=click.FloatRange(0.0, 3650.0, min_open=True),
    default=HORIZON_DAYS,
    show_default=True,
    help="How long the choice will be in use, for the net value.",
)
@deployment_options
def command(
    request: Request,
    methods: str,
    num_speculative_tokens: tuple[int, ...] | None,
    concurrency: tuple[int, ...] | None,
    horizon_days: float,
) -> None:
    """What to measure next: expected regret saved, minutes, outage, net value.

    Expected regret is what the best choice by present knowledge forgoes on average against the best choice with
    certainty. A measurement is worth what it takes off that, before it is made.
    """
    from simulator.experiments import experiments

    found = experiments(
        request.load(),
        methods=[name.strip() for name in methods.split(",") if name.strip()],
        num_speculative_tokens=num_speculative_tokens,
        concurrency=concurrency,
        horizon_days=horizon_days,
        num_draws=request.num_draws,
        seed=request.seed,
    )
    show(found.to_dict(), as_json=request.as_json, view="experiments")
