"""`draftcast backtest`: the model scored on published measurements."""

from typing import TYPE_CHECKING

import click

from draftcast.manual import Command
from draftcast.output import show
from draftcast.report_options import report_options

if TYPE_CHECKING:
    from calibration.published.rows import PublishedRow


@click.command("backtest", cls=Command)
@report_options
@click.argument("csv_path", metavar="[CSV]", required=False)
@click.option(
    "--protocol",
    type=click.Choice(["informed", "cold", "anchored"]),
    default="informed",
    show_default=True,
    help="What may be seen of a group: its baseline; nothing but datasheets; one speculative row besides.",
)
@click.option(
    "--sets",
    "sets_path",
    metavar="FILE",
    help="CSV with the columns set_id and role: only sets whose role is `usable` are scored. Without it, and without a "
    "column role in CSV, sets that ship with draftcast keep their role and all others are scored.",
)
@click.option("--rows", "with_rows", is_flag=True, help="With --json: every scored row as well.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def command(csv_path: str | None, protocol: str, sets_path: str | None, with_rows: bool, as_json: bool) -> None:
    """The model scored on published measurements.

    CSV has one row a measurement (columns: docs/accuracy.md); without it, the measurements that ship with draftcast.
    """
    from calibration.published.rows import read_published
    from calibration.published.tables import shipped_rows
    from draftcast.progress import RowProgress
    from validate.backtest.protocol import read_roles, with_roles
    from validate.backtest.run import backtest

    rows = read_published(csv_path) if csv_path else shipped_rows()
    notes = []
    if sets_path:
        roles = read_roles(sets_path)
        rows = with_roles(rows, roles)
        notes = _not_listed({row.text["set_id"] for row in rows} - set(roles))
    elif csv_path and not any(row.text["role"] for row in rows):
        rows, notes = _with_shipped_roles(rows)
    progress = RowProgress()
    try:
        result = backtest(rows, protocol, progress)
    finally:
        progress.close()
    found = result.to_dict(with_rows=with_rows)
    found["inputs"] = {"csv": csv_path, "sets": sets_path, "protocol": protocol}
    found["notes"] = notes
    show(found, as_json=as_json, view="backtest", details=lambda: {"rows": result.to_dict(with_rows=True)["rows"]})


def _with_shipped_roles(rows: "list[PublishedRow]") -> "tuple[list[PublishedRow], list[str]]":
    """The rows with the roles of the sets that ship, and a sentence on those that are therefore not scored."""
    from calibration.published.tables import shipped_roles
    from validate.backtest.protocol import USABLE_ROLE, with_roles

    roles = shipped_roles()
    names = sorted({row.text["set_id"] for row in rows if roles.get(row.text["set_id"], USABLE_ROLE) != USABLE_ROLE})
    if not names:
        return rows, []
    note = (
        f"{len(names)} set(s) have a known defect and are not scored, such as {names[0]}; --sets FILE decides otherwise"
    )
    return with_roles(rows, roles), [note]


def _not_listed(names: set[str]) -> list[str]:
    """A sentence on sets that the file of sets does not list."""
    if not names:
        return []
    first = sorted(names)[0]
    return [f"{len(names)} set(s) are not in the file of sets and keep their own role, such as {first}"]
