"""`draftcast predict`: one configuration against its baseline."""

import click

from draftcast.options import Request, concurrency_option, deployment_options, draft_length_option, method_option
from draftcast.output import show


@click.command("predict")
@draft_length_option
@concurrency_option
@method_option
@deployment_options
def command(request: Request, num_speculative_tokens: int | None, concurrency: int | None, method: str | None) -> None:
    """One speculative configuration against its baseline, part by part.

    DEPLOYMENT is a TOML file, or a launch: a command in quotes, a systemd unit, a compose file, a manifest, or the URL
    of a running server, whose key is taken from the environment variable DRAFTCAST_API_KEY.
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
