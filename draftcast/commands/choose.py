"""`draftcast choose`: the grid, and what to deploy."""

from collections.abc import Mapping
from typing import Any

import click

from draftcast.manual import Command
from draftcast.options import (
    Request,
    deployment_options,
    draft_lengths_option,
    loads_option,
    method_option,
    recording_options,
)
from draftcast.recording import Recording, show_and_record
from draftcast.report_options import report_options


@click.command("choose", cls=Command)
@report_options
@draft_lengths_option
@loads_option
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

    deployment = request.load(method, needs_method=True)
    choice = api.choose(
        deployment,
        num_speculative_tokens=num_speculative_tokens,
        concurrency=concurrency,
        num_draws=request.num_draws,
        seed=request.seed,
    )
    result = choice.to_dict()
    show_and_record(result, request, deployment, recording, "choose", details=lambda: _details(result))


def _details(result: Mapping[str, Any]) -> dict[str, Any]:
    """What the report page draws beyond the result."""
    from draftcast.render.choose import shown_draft_length

    return {"shown": shown_draft_length(result)}
