"""The page and the plots of one result: its charts, the text that its view writes, and where they go."""

import datetime
import importlib
import os
from collections.abc import Mapping, Sequence
from time import time as time_s
from typing import Any

import click

from draftcast import __version__
from draftcast.render.facts import facts
from draftcast.render.report_page import ReportPage
from draftcast.report_options import Destinations
from draftcast.text import one_line
from hwmodel.errors import InputError
from validate.report.chart import Block, Chart, Document
from validate.report.write import write_page, write_plots

Json = Mapping[str, Any]


def write_report(result: Json, view: str, details: Json, asked: Destinations) -> None:
    """Writes what was asked for; where it went is said on stderr."""
    charts: list[Chart] = importlib.import_module(f"validate.report.{view}").charts(result, details)
    if asked.plots is not None:
        paths = write_plots(charts, asked.plots, view)
        click.echo(f"note: {len(paths)} plots in {one_line(asked.plots)}", err=True)
    if asked.report is not None:
        write_page(document(result, view, charts), asked.report)
        click.echo(f"note: report in {one_line(asked.report)}", err=True)


def document(result: Json, view: str, charts: Sequence[Chart]) -> Document:
    """The page of a result: what its view writes on a terminal, with the charts between the answer and the rest."""
    page = ReportPage()
    importlib.import_module(f"draftcast.render.{view}").render(result, page)
    notes = tuple(one_line(note) for note in result.get("notes", ()))
    blocks = [*page.blocks, *([Block("heading", "Notes"), Block("bullets", items=notes)] if notes else [])]
    subject = subject_of(result)
    return Document(
        title=f"draftcast {view}" + (f": {subject}" if subject else ""),
        subtitle=f"draftcast {view}" + (f" · {subject}" if subject else ""),
        facts=tuple(facts(result, view)),
        charts=tuple(charts),
        blocks=tuple(blocks),
        result=result,
        made_at=_now(),
        program=f"draftcast {__version__}",
    )


def subject_of(result: Json) -> str:
    """What was asked about, in a few words: model, machine, engine, method."""
    deployment = result.get("inputs", {}).get("deployment")
    if not deployment:
        return ""
    hardware, engine = deployment["hardware"], deployment["engine"]
    method = result["inputs"].get("method") or deployment["speculation"].get("method")
    parts = [
        deployment["model"]["config"],
        f"{hardware.get('num_gpus', 1)} x {hardware['gpu']}",
        " ".join(str(part) for part in (engine.get("name"), engine.get("version")) if part),
        method if method and method != "none" else "",
    ]
    return one_line(" · ".join(str(part) for part in parts if part))


def _now() -> str:
    """The time in UTC, or that of SOURCE_DATE_EPOCH (reproducible-builds.org), with which pages can be equal."""
    stated = os.environ.get("SOURCE_DATE_EPOCH")
    try:
        time = datetime.datetime.fromtimestamp(int(stated) if stated else time_s(), datetime.UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise InputError(f"SOURCE_DATE_EPOCH: got {stated!r}, allowed: seconds since 1970") from error
    return f"{time:%Y-%m-%d %H:%M} UTC"
