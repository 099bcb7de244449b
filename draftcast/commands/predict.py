"""`draftcast predict`: one configuration against its baseline."""

import click

from draftcast.options import Request, deployment_options
from draftcast.output import show


@click.command("predict")
@click.option(
    "-k", "--num-speculative-tokens", type=click.IntRange(min=0), metavar="N", help="Draft tokens; default: the file's."
)
@click.option(
    "-c", "--concurrency", type=click.IntRange(min=1), metavar="N", help="Requests at once; default: the file's first."
)
@click.option("--method", metavar="NAME", help="Another method than the file's; `draftcast list methods`.")
@deployment_options
def command(request: Request, num_speculative_tokens: int | None, concurrency: int | None, method: str | None) -> None:
    """One speculative configuration against its baseline, part by part.

    DEPLOYMENT is a TOML file, or a launch: a command in quotes, a systemd unit, a compose file, a manifest.
    """
    from draftcast import api

    prediction = api.predict(
        request.load(method),
        num_speculative_tokens=num_speculative_tokens,
        concurrency=concurrency,
        num_draws=request.num_draws,
        seed=request.seed,
    )
    show(prediction.to_dict(), as_json=request.as_json, view="predict")
