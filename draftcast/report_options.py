"""`--report` and `--plots`, the same for every command that has something to draw.

A command takes the decorator `report_options` and shows its result with `draftcast.output.show`; nothing else. The
destinations are checked before the command runs and kept in click's context until its result is there.
"""

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import click

from hwmodel.errors import InputError

_KEY = "draftcast.report"


class Destinations(NamedTuple):
    """Where the page and the plots go; None: not written."""

    report: str | None
    plots: str | None


_Decorator = Callable[[Callable[..., None]], Callable[..., None]]
_REPORT = click.option("--report", metavar="FILE.html", help="Write a page with charts that opens offline and prints.")
_PLOTS = click.option("--plots", metavar="DIR", help="Write every chart into this folder, as PNG and SVG.")


def report_options(command: Callable[..., None], *, page: _Decorator = _REPORT) -> Callable[..., None]:
    """Adds --report and --plots; stands above all other options, since files that these name are not overwritten.

    `page` is the option of the argument `report`, for a command that is all about the page.
    """

    @functools.wraps(command)
    def with_report(report: str | None, plots: str | None, **arguments: Any) -> None:
        if report is not None or plots is not None:
            _check(Destinations(report, plots), list(_texts(arguments.values())))
        command(**arguments)

    return page(_PLOTS(with_report))


def destinations() -> Destinations | None:
    """What the running command was asked to write; None without --report and --plots."""
    context = click.get_current_context(silent=True)
    found = None if context is None else context.meta.get(_KEY)
    assert found is None or isinstance(found, Destinations)
    return found


def keep(asked: Destinations) -> None:
    """Keeps the destinations for when the result is shown."""
    click.get_current_context().meta[_KEY] = asked


def _check(asked: Destinations, others: list[str]) -> None:
    from pathlib import Path

    from validate.report.write import check_destinations

    check_destinations(asked.report, asked.plots, others)
    place = None if asked.report is None else Path(asked.report).resolve()
    for other in others:
        if place is not None and "\0" not in other and "\n" not in other and Path(other).resolve() == place:
            raise InputError(
                f"the report: {asked.report} is named for something else as well; allowed: a file of its own"
            )
    keep(asked)


def _texts(values: Iterable[object]) -> Iterator[str]:
    """The texts among arguments, those in lists included: each may be the path of a file."""
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, tuple):
            yield from _texts(value)
