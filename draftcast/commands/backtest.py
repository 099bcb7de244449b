"""`draftcast backtest`: the model scored on published measurements."""

import click

from draftcast.output import show


@click.command("backtest")
@click.argument("csv_path", metavar="[CSV]", required=False)
@click.option(
    "--protocol",
    type=click.Choice(["informed", "cold", "anchored"]),
    default="informed",
    show_default=True,
    help="What may be seen of a group: its baseline; nothing but datasheets; one speculative row besides.",
)
@click.option("--rows", "with_rows", is_flag=True, help="With --json: every scored row as well.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def command(csv_path: str | None, protocol: str, with_rows: bool, as_json: bool) -> None:
    """The model scored on published measurements.

    CSV has one row a measurement (columns: docs/accuracy.md); without it, the measurements that ship with draftcast.
    """
    from calibration.published.rows import read_published
    from calibration.published.tables import shipped_rows
    from draftcast.progress import RowProgress
    from validate.backtest.run import backtest

    rows = read_published(csv_path) if csv_path else shipped_rows()
    progress = RowProgress()
    try:
        result = backtest(rows, protocol, progress)
    finally:
        progress.close()
    found = result.to_dict(with_rows=with_rows)
    found["inputs"] = {"csv": csv_path, "protocol": protocol}
    show(found, as_json=as_json, view="backtest")
