"""`draftcast ledger`: every prediction that was recorded, and how it turned out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from draftcast.manual import Group
from draftcast.options import json_option, ledger_option
from draftcast.output import show, to_json

if TYPE_CHECKING:
    from validate.ledger.store import Ledger

_DEFAULT_LAST = 20


@click.group("ledger", cls=Group)
def command() -> None:
    """Every prediction that was recorded, and how it turned out.

    `predict` and `choose` add to it with --record, `validate` adds the outcome; nothing is ever changed or removed.
    Without --ledger it is the file that DRAFTCAST_LEDGER names, else that of the nearest folder .draftcast here or
    above, else the user's own.
    """


@command.command("list")
@click.option(
    "-n",
    "--last",
    type=click.IntRange(min=0),
    default=_DEFAULT_LAST,
    show_default=True,
    metavar="N",
    help="The newest so many; 0 for all.",
)
@ledger_option
@json_option
def list_command(last: int, ledger: str | None, as_json: bool) -> None:
    """The recorded predictions, newest first, their outcomes, and the track record."""
    from validate.ledger.listing import listed

    with _opened(ledger) as opened:
        show(listed(opened, last), as_json=as_json, view="ledger")


@command.command("show")
@click.argument("prediction_id", metavar="ID")
@ledger_option
@json_option
def show_command(prediction_id: str, ledger: str | None, as_json: bool) -> None:
    """One prediction with all its cells, and its outcomes; ID may be cut short."""
    from validate.ledger.listing import found

    with _opened(ledger) as opened:
        show(found(opened, prediction_id), as_json=as_json, view="ledger_entry")


@command.command("export")
@click.option(
    "--format",
    "kind",
    type=click.Choice(["json", "csv"]),
    default=None,
    help="Default: as the file's name ends, else json.",
)
@click.option("-o", "--output", metavar="FILE", help="Write to a file instead of standard output.")
@ledger_option
@json_option
def export_command(kind: str | None, output: str | None, ledger: str | None, as_json: bool) -> None:
    """Everything, for other tools: entries as JSON, or a CSV row for each predicted cell."""
    from simulator.files import check_outputs
    from validate.ledger.export import as_csv, exported

    if as_json and kind == "csv" and output is None:
        raise click.UsageError("--json and --format csv both want standard output; allowed: -o FILE with --json")
    named_csv = output is not None and output.lower().endswith(".csv")
    chosen = kind or ("csv" if named_csv else "json")
    with _opened(ledger) as opened:
        check_outputs({"output": output}, [str(opened.path)])
        text = as_csv(opened) if chosen == "csv" else to_json(exported(opened)) + "\n"
        path, num_entries = str(opened.path), len(opened.rows())
    if output is None:
        click.echo(text, nl=False)
        return
    _write(text, output)
    result = {"ledger": path, "written": output, "format": chosen, "entries": num_entries}
    if as_json:
        click.echo(to_json(result))
    else:
        click.echo(f"note: {num_entries} entries written to {output}", err=True)


def _opened(named: str | None) -> Ledger:
    from validate.ledger.places import ledger_path
    from validate.ledger.store import Ledger

    return Ledger(ledger_path(named))


def _write(text: str, path: str) -> None:
    from simulator.files import WholeFile

    file = WholeFile(path)
    try:
        file.file.write(text)
        file.complete()
    except BaseException:
        file.discard()
        raise
