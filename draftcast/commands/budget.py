"""`draftcast budget`: an expert budget in verification (MoE-Spec) on one deployment."""

import click

from draftcast.manual import Command
from draftcast.options import (
    IntList,
    Request,
    deployment_options,
    draft_length_option,
    method_option,
    weighted_loads_option,
)
from draftcast.output import show


@click.command("budget", cls=Command)
@click.option("--budgets", type=IntList(), metavar="LIST", help="Experts per layer that verification may read at most.")
@weighted_loads_option
@click.option(
    "--policy",
    type=click.Choice(["substitute", "truncate"]),
    default="substitute",
    show_default=True,
    help="What a token does whose expert is dropped: takes the next best kept one, or none.",
)
@draft_length_option
@method_option
@deployment_options
def command(
    request: Request,
    budgets: tuple[int, ...] | None,
    concurrency: tuple[int, ...] | None,
    policy: str,
    num_speculative_tokens: int | None,
    method: str | None,
) -> None:
    """What reading fewer experts in verification (MoE-Spec) is worth, and what it may cost.

    Speed by budget and load is computed; what is lost in acceptance is a scenario, and answers change. The ceiling of
    what any budget can gain comes first.
    """
    from simulator.expert_budget import expert_budgets

    found = expert_budgets(
        request.load(method),
        budgets=budgets,
        num_speculative_tokens=num_speculative_tokens,
        concurrency=concurrency,
        substitute=policy == "substitute",
        num_draws=request.num_draws,
        seed=request.seed,
    )
    show(found.to_dict(), as_json=request.as_json, view="budget")
