"""A run as `draftcast measure` wrote it: each cell with its figures, or with the reason why it must not be scored."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from calibration.readers.files import text_of
from calibration.readers.run_file import is_run_file, read_run_file
from calibration.readers.values import load_json, mapping, positive, shown, text
from calibration.records import Evidence, MeasuredCell, SourceFile
from hwmodel.errors import InputError

JsonObject = dict[str, Any]

_NEARLY_WHOLE = 0.03  # relative distance of a mean load to the whole one that it is compared at
UNKNOWN_NOISE = 0.03  # relative standard error of a time whose source tells none, as in `calibrate`


@dataclass(frozen=True, slots=True)
class RunCell:
    """One cell: the record as written, and its figures; `measured` is None where `refused` says why."""

    record: Mapping[str, Any]
    concurrency: int  # as asked for
    measured: MeasuredCell | None
    refused: str | None
    started: datetime | None
    is_dated: bool = True  # the run tells when it was measured; else `started` is at best its file's time

    @property
    def noise(self) -> float:
        """Relative standard error of the times: as the run tells it, else what such a figure usually has."""
        stated = self.measured.relative_noise if self.measured is not None else None
        return stated if stated else UNKNOWN_NOISE

    @property
    def is_whole(self) -> bool:
        """Whether the load was a whole number of requests: a mean over real traffic seldom is, and throughput depends
        on it more than a time does."""
        asked = positive(self.record.get("concurrency")) or 0.0
        return abs(asked - self.concurrency) <= _NEARLY_WHOLE * self.concurrency

    @property
    def requests(self) -> list[Mapping[str, Any]]:
        """The records of the requests of the window, where each chunk of an answer is a step of the engine."""
        listed = self.record.get("requests")
        if not isinstance(listed, list) or self.record.get("joined_chunks"):
            return []
        return [item for item in map(mapping, listed) if item.get("in_window") is True]


@dataclass(frozen=True, slots=True)
class Run:
    """A run, and what it tells of its server and its load."""

    source: str  # path, or address of the server
    sha256: str
    server: Mapping[str, Any]
    load: Mapping[str, Any]
    cells: tuple[RunCell, ...]
    started: datetime | None
    evidence: Evidence

    @property
    def usable(self) -> tuple[RunCell, ...]:
        """The cells that may be scored."""
        return tuple(cell for cell in self.cells if cell.measured is not None)

    @property
    def engine_version(self) -> str | None:
        """As the server tells it."""
        return text(self.server.get("engine_version")) or text(self.server.get("version"))


def read_run(path: str) -> Run:
    """The run in a file; an `InputError` for anything else."""
    content = text_of(path)
    record = load_json(content, path)
    if not is_run_file(record):
        raise InputError(f"{shown(path)} is no run file; allowed: what draftcast measure -o wrote")
    run = run_of(record, path)
    if run.started is not None:
        return run
    modified = _modified(path)
    cells = [cell if cell.started else replace(cell, started=modified, is_dated=False) for cell in run.cells]
    return replace(run, cells=tuple(cells))


def run_of(record: Mapping[str, Any], source: str) -> Run:
    """The run in a record of `measure`; `source` is its path, or the server's address."""
    if not record["cells"]:
        raise InputError(f"{shown(source)}: a run without a cell; allowed: a run with at least one")
    text_form = json.dumps(record, sort_keys=True, default=str)
    sha256 = hashlib.sha256(text_form.encode()).hexdigest()
    server, evidence = mapping(record.get("server")), Evidence(files=(SourceFile(source, "run", sha256),))
    started = moment(mapping(record.get("provenance")).get("started"))
    cells = []
    for item, found in _cells(record, source):
        evidence += found
        cells.append(_run_cell(item, found, started))
    return Run(source, sha256, server, mapping(record.get("load")), tuple(cells), started, evidence)


def _cells(record: Mapping[str, Any], source: str) -> Iterator[tuple[Mapping[str, Any], Evidence]]:
    """Every cell with what the reader of run files makes of it."""
    for index, item in enumerate(record["cells"]):
        cell, place = mapping(item), f"{source} cells[{index}]"
        found = read_run_file({**record, "cells": [cell]}, source)
        cells = tuple(replace(measured, source=place) for measured in found.cells)
        yield cell, replace(found, cells=cells, refused=tuple(replace(r, source=place) for r in found.refused))


def _run_cell(item: Mapping[str, Any], found: Evidence, started: datetime | None) -> RunCell:
    asked = positive(item.get("concurrency"))
    measured = found.cells[0] if found.cells else None
    reason = None if measured is not None else next((r.reason for r in found.refused), "it tells no time")
    if measured is not None and asked is None:
        measured, reason = None, "no concurrency"
    users = max(1, round(asked)) if asked is not None else 0
    return RunCell(item, users, measured, reason, moment(item.get("started")) or started)


def release(version: str) -> tuple[int, ...]:
    """The numbers of a release, tags of builds and pre-releases cut.

    >>> release("0.32.0+cpu"), release("v0.9.2rc1.dev3"), release("main")
    ((0, 32, 0), (0, 9, 2), ())
    """
    parts: list[int] = []
    for part in version.strip().lstrip("v").split("+", 1)[0].split(".")[:3]:
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits.isascii() or not digits:
            break
        parts.append(int(digits[:9]))
    return tuple(parts)


def moment(value: Any) -> datetime | None:
    """A time that a file tells, in UTC; None for anything else. One without a zone is taken as UTC."""
    try:
        found = datetime.fromisoformat(text(value) or "")
    except ValueError:
        return None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def _modified(path: str) -> datetime | None:
    try:
        return datetime.fromtimestamp(Path(path).stat().st_mtime, UTC)
    except (OSError, ValueError, OverflowError):
        return None
