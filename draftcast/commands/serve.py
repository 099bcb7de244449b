"""`draftcast serve`: a local page whose controls are keys of the deployment."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import click

from draftcast.manual import Command
from draftcast.options import Request, deployment_options, method_option
from draftcast.output import show_notes
from draftcast.signals import sigterm_as_ctrl_c

if TYPE_CHECKING:
    from draftcast.serve.site import Site

DEFAULT_PORT = 8577
MAX_PORT = 65535


@click.command("serve", cls=Command)
@click.option("--port", type=click.IntRange(0, MAX_PORT), default=DEFAULT_PORT, show_default=True, metavar="N",
              help="Where to listen; 0: any free port.")  # fmt: skip
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS",
              help="On which address; another than loopback lets the network ask.")  # fmt: skip
@click.option("--open/--no-open", "opens", default=False, show_default=True, help="Open the page in the browser.")
@method_option
@deployment_options
def command(request: Request, port: int, host: str, opens: bool, method: str | None) -> None:
    """A local page: move keys of the deployment, and see the answer change at once.

    The answers are those of choose and predict, with the same draws; the address of the page holds the settings, and a
    link on it the deployment file. DEPLOYMENT is read once. Ctrl-C ends it.
    """
    from draftcast.output import to_json
    from draftcast.serve.site import is_reachable_from_elsewhere, listen, wait
    from validate.web.server import Address

    listener = listen(_site(request, method, host), Address(host, port))
    with contextlib.closing(listener), sigterm_as_ctrl_c():
        if is_reachable_from_elsewhere(host):
            click.echo("note: any machine that reaches this address can ask, without a password", err=True)
        url = f"{listener.url}/"
        click.echo(to_json({"url": url}) if request.as_json else url)
        if opens:
            _open(url)
        with contextlib.suppress(KeyboardInterrupt):
            wait()


def _site(request: Request, method: str | None, host: str) -> Site:
    from draftcast.reporting import subject_of
    from draftcast.serve.answer import Answers
    from draftcast.serve.site import Site, own_names
    from draftcast.serve.source import Source

    source = Source(request, method)
    show_notes(source.base.notes)
    inputs = {"deployment": source.base.to_dict()}
    return Site(Answers(source), source.method, own_names(host), subject_of({"inputs": inputs}))


def _open(url: str) -> None:
    import webbrowser

    if not webbrowser.open(url):
        click.echo("note: no browser was found to open the page in", err=True)
