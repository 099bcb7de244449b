"""`draftcast choose`: the grid, and what to deploy."""

import click

from draftcast.options import IntList, Request, deployment_options, method_option, recording_options
from draftcast.recording import Recording, show_and_record


@click.command("choose")
@click.option(
    "-k",
    "--num-speculative-tokens",
    type=IntList(),
    help="Draft lengths to compare; default: 0-8 and the file's own.",
)
@click.option("-c", "--concurrency", type=IntList(), help="Requests at once; default: the file's.")
@method_option
@recording_options
@deployment_options
def command(
    request: Request,
    recording: Recording,
    num_speculative_tokens: tuple[int, ...] | None,
    concurrency: tuple[int, ...] | None,
    method: str | None,
) -> None:
    """The grid of draft lengths and concurrencies, and what to deploy.

    DEPLOYMENT is a TOML file, or a launch: a command in quotes, a systemd unit, a compose file, a manifest, or the URL
    of a running server, whose key is taken from the environment variable DRAFTCAST_API_KEY.
    """
    from draftcast import api

    deployment = request.load(method)
    choice = api.choose(
        deployment,
        num_speculative_tokens=num_speculative_tokens,
        concurrency=concurrency,
        num_draws=request.num_draws,
        seed=request.seed,
    )
    show_and_record(choice.to_dict(), request, deployment, recording, "choose")
