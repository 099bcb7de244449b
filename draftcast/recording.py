"""`--record` of `predict` and `choose`: the answer is shown first and then written down, so no ledger can lose it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from draftcast.output import show
from hwmodel.records import dataclass

if TYPE_CHECKING:
    from draftcast.options import Request
    from simulator.deployment import Deployment

_VARIABLE = "DRAFTCAST_LEDGER"  # validate.ledger.places; not imported where nothing is recorded


@dataclass(frozen=True, slots=True)
class Recording:
    """Whether to record, and where: as the options say, else because DRAFTCAST_LEDGER names a file."""

    record: bool | None
    ledger: str | None

    @property
    def is_on(self) -> bool:
        """Recording was asked for, by either option or by the environment, and not refused."""
        if self.record is not None:
            return self.record
        return self.ledger is not None or bool(os.environ.get(_VARIABLE))


def show_and_record(
    result: Mapping[str, Any],
    request: Request,
    deployment: Deployment,
    recording: Recording,
    command: str,
    details: Callable[[], Mapping[str, Any]] | None = None,
) -> None:
    """Prints the answer and, where asked for, adds it to the ledger; an `InputError` where that fails."""
    try:
        show(result, as_json=request.as_json, view=command, details=details)
    finally:  # also where the reader of the answer has gone, or the page failed: the prediction was made all the same
        if recording.is_on:
            place = _record(result, request, deployment, recording, command)
            click.echo(f"note: {place}", err=True)


def _record(
    result: Mapping[str, Any], request: Request, deployment: Deployment, recording: Recording, command: str
) -> str:
    from draftcast import __version__
    from draftcast.text import one_line
    from validate.ledger.entries import prediction_entry
    from validate.ledger.places import ledger_path
    from validate.ledger.store import Ledger

    path = ledger_path(recording.ledger)
    entry = prediction_entry(command, __version__, request.source, deployment, result)
    with Ledger(path, writable=True) as ledger:
        row = ledger.append(entry)
    return one_line(f"recorded as {row.prediction_id} (entry {row.sequence}) in {path}")
