"""`draftcast predict`: one configuration against its baseline."""

import click

from draftcast.manual import Command
from draftcast.options import (
    Request,
    concurrency_option,
    deployment_options,
    draft_length_option,
    method_option,
    recording_options,
)
from draftcast.recording import Recording, show_and_record


@click.command("predict", cls=Command)
@draft_length_option
@concurrency_option
@method_option
@recording_options
@deployment_options
def command(
    request: Request,
    recording: Recording,
    num_speculative_tokens: int | None,
    concurrency: int | None,
    method: str | None,
) -> None:
    """One speculative configuration against its baseline, part by part.

    DEPLOYMENT is a TOML file, or a launch: a command in quotes, a systemd unit, a compose file, a manifest, or the URL
    of a running server, whose key is taken from the environment variable DRAFTCAST_API_KEY.
    """
    from draftcast import api

    deployment = request.load(method)
    prediction = api.predict(
        deployment,
        num_speculative_tokens=num_speculative_tokens,
        concurrency=concurrency,
        num_draws=request.num_draws,
        seed=request.seed,
    )
    show_and_record(prediction.to_dict(), request, deployment, recording, "predict")
