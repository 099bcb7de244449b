"""Where results go: one JSON object or a table on stdout, notes on stderr."""

import importlib
import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import click

from draftcast.report_options import Destinations, destinations
from draftcast.text import MAX_TEXT_WIDTH, MIN_WIDTH, one_line, wrapped

MOST_NOTES = 5  # before a reader stops; the order is that of their weight


def show(
    result: Mapping[str, Any], *, as_json: bool, view: str, details: Callable[[], Mapping[str, Any]] | None = None
) -> None:
    """Prints `result`: as strict JSON, or by the `render` function of `draftcast.render.<view>`.

    The view is imported only for a human reader, since the tables' library costs more start-up time than a prediction.
    With --report or --plots the charts of `validate.report.<view>` are written as well, also where whoever reads the
    output has gone (`| head`); `details` yields what they draw beyond the result.
    """
    asked = destinations()
    try:
        _print(result, as_json=as_json, view=view)
    except BrokenPipeError:
        if asked is not None:
            _write(result, view, details, asked)
        raise
    if asked is not None:
        _write(result, view, details, asked)


def _print(result: Mapping[str, Any], *, as_json: bool, view: str) -> None:
    if as_json:
        click.echo(to_json(result))
    else:
        from draftcast.render.page import Page

        importlib.import_module(f"draftcast.render.{view}").render(result, Page())
    show_notes(result.get("notes", ()))


def _write(
    result: Mapping[str, Any], view: str, details: Callable[[], Mapping[str, Any]] | None, asked: Destinations
) -> None:
    from draftcast.reporting import write_report

    write_report(result, view, {} if details is None else details(), asked)


def show_notes(notes: Iterable[str]) -> None:
    """The notes on stderr, each once, wrapped; of many the first ones, which matter most."""
    said = list(dict.fromkeys(one_line(note) for note in notes))
    width = min(max(shutil.get_terminal_size((MIN_WIDTH, 24)).columns, MIN_WIDTH), MAX_TEXT_WIDTH)
    shown = said if len(said) <= MOST_NOTES + 1 else said[:MOST_NOTES]
    for note in shown:
        click.echo(wrapped(note, width, "note: ", "  "), err=True)
    if len(said) > len(shown):
        click.echo(f"note: {len(said) - len(shown)} more, which --json has", err=True)


def write_json(result: Mapping[str, Any], path: str) -> None:
    """Writes `result` as one JSON object; the file appears under its name only when it is complete."""
    from simulator.files import WholeFile

    file = WholeFile(path)
    try:
        file.file.write(to_json(result) + "\n")
        file.complete()
    except BaseException:
        file.discard()
        raise


def to_json(result: Mapping[str, Any]) -> str:
    """`result` as one JSON object in one line of ASCII; NaN and infinity are a bug and raise ValueError."""
    return json.dumps(result, allow_nan=False)
