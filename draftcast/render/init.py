"""`draftcast init` for a human reader."""

import shlex
from collections.abc import Mapping
from typing import Any

import click

from draftcast.render.page import Page


def render(result: Mapping[str, Any], page: Page) -> None:
    """The file itself where it was not written; else where it stands and what to type next."""
    path = result["output"]
    if path is None:
        click.echo(result["text"], nl=False)
        return
    page.text(f"Wrote {path}. Look through it, then:")
    page.lines([f"  draftcast choose {shlex.quote(path)}", f"  draftcast options {shlex.quote(path)}"])
