"""`read_evidence`: any number of files and folders, of any known tool, as one body of evidence.

Each file is recognised by its content. What belongs together is read together: snapshots of /metrics in pairs, results
of a sweep, traces of several ranks, AIPerf's summary with its request records.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from calibration.readers import (
    aiperf,
    detect,
    guidellm,
    run_file,
    sglang_bench,
    sglang_metrics,
    sweeps,
    tpot_csv,
    vllm_log,
    vllm_metrics,
)
from calibration.readers.collectives import read_collectives
from calibration.readers.files import (
    FoundFile,
    decode,
    expand,
    head_of,
    sha256_of,
    stated_concurrency,
    text_of,
)
from calibration.readers.metrics_pairs import windows_of
from calibration.readers.prometheus_text import Scrape, scrapes_of
from calibration.readers.trace_events import Trace, read_trace
from calibration.readers.traces import read_traces
from calibration.readers.values import shown
from calibration.records import Evidence, Refused, SourceFile
from hwmodel.errors import InputError
from simulator.deployment.keys import short

_MANY_ALIKE = 3  # refusals with one reason; more are told as a number


@dataclass(slots=True)
class _Collected:
    """What the files held, until all of them are read."""

    evidence: Evidence = field(default_factory=Evidence)
    results: list[sweeps.Result] = field(default_factory=list)
    scrapes: list[Scrape] = field(default_factory=list)
    traces: list[Trace] = field(default_factory=list)
    exports: list[sweeps.Result] = field(default_factory=list)
    requests: dict[str, list[sweeps.Result]] = field(default_factory=dict)  # by folder
    bad: list[tuple[str, InputError]] = field(default_factory=list)
    unknown: dict[str, list[str]] = field(default_factory=dict)  # folder the user named -> files of no known format
    hashes: dict[str, str] = field(default_factory=dict)  # of the bytes -> path


def read_evidence(paths: Sequence[str | os.PathLike[str]], *, skip_bad: bool = False) -> Evidence:
    """Everything that the files and folders at `paths` say.

    A file that cannot be used is an `InputError` that names it; with `skip_bad` it stands in `refused`, and the others
    are used. Files of unknown format inside a folder are told in a note: folders hold other things, too.
    """
    collected = _Collected()
    for found in _found(paths, collected, skip_bad=skip_bad):
        try:
            _collect(found, collected)
        except detect.UnknownFormatError as error:
            if found.folder is None:
                _bad(found.path, error, collected, skip_bad=skip_bad)
            else:
                collected.unknown.setdefault(found.folder, []).append(found.path)
        except InputError as error:
            _bad(found.path, error, collected, skip_bad=skip_bad)
    evidence = collected.evidence + _together(collected) + _left_out(collected)
    if not (evidence.cells or evidence.steps or evidence.collectives or evidence.kernels) and collected.bad:
        raise collected.bad[0][1]
    return _fewer_refusals(evidence)


def _found(paths: Sequence[str | os.PathLike[str]], collected: _Collected, *, skip_bad: bool) -> list[FoundFile]:
    found: list[FoundFile] = []
    for path in paths:
        try:
            named, concurrency = stated_concurrency(os.fspath(path))
            inside = [replace(item, concurrency=concurrency) for item in expand([named])]
            if not inside:
                raise InputError(f"{shown(os.fspath(path))}: an empty folder; allowed: a folder of measurements")
            found += inside
        except InputError as error:
            _bad(os.fspath(path), error, collected, skip_bad=skip_bad)
    return found


def _bad(path: str, error: InputError, collected: _Collected, *, skip_bad: bool) -> None:
    if not skip_bad:
        raise error
    collected.bad.append((path, error))
    collected.evidence += Evidence(refused=(Refused(path, f"the file was left out: {error}"),), num_bad=1)


def _collect(found: FoundFile, collected: _Collected) -> None:
    """Reads one file into `collected`."""
    path = found.path
    digest = sha256_of(path)
    if digest in collected.hashes:
        note = f"{path} is the same file as {collected.hashes[digest]}: counted once"
        collected.evidence += Evidence(notes=(note,))
        return
    name = _collect_trace(found, collected)
    if name is None and found.concurrency is not None and found.folder is None:
        raise InputError(
            f"{shown(path)}@concurrency: a file that tells its loads itself; allowed: for a profiler trace"
        )
    name = name or _collect_text(path, collected)
    collected.hashes[digest] = path
    collected.evidence += Evidence(files=(SourceFile(path, name, digest),))


def _collect_trace(found: FoundFile, collected: _Collected) -> str | None:
    """The trace, streamed; None where the file is none."""
    path = found.path
    head = head_of(path)
    if not head.strip():
        raise InputError(f"{shown(path)}: an empty file; allowed: a file that a tool wrote")
    if not detect.is_trace_head(decode(head, path)):
        return None
    collected.traces.append(replace(read_trace(path), stated_requests=found.concurrency))
    return detect.TRACE


def _collect_text(path: str, collected: _Collected) -> str:
    content = text_of(path)
    if detect.is_json(content) and not detect.is_json_log(content):
        return _collect_json(content, path, collected)
    name = detect.LOG if detect.is_json(content) else detect.format_of_text(content, path)
    if name == detect.METRICS:
        collected.scrapes += scrapes_of(content, path)
    elif name == detect.BENCH:
        collected.results += [
            sweeps.Result(row, path, place, from_table=True) for place, row in detect.rows_of(content)
        ]
    elif name == detect.TABLE:
        collected.evidence += tpot_csv.read_table(content, path)
    elif name == detect.NCCL:
        collected.evidence += read_collectives(content, path)
    else:
        collected.evidence += vllm_log.read_log(content, path)
    return name


def _collect_json(content: str, path: str, collected: _Collected) -> str:
    """All records of a JSON file; the first unknown one is an error, told by what it looks like."""
    kinds: list[str] = []
    found = list(detect.records_of(content, path))
    parsed: list[tuple[str, sweeps.Result]] = []
    for place, record in found:
        kind = detect.format_of_record(record)
        if kind is None:
            what = detect.shape_of(record) + (f" ({place})" if place and len(found) > 1 else "")
            raise detect.unknown(path, what)
        parsed.append((kind, sweeps.Result(record, path, place if len(found) > 1 else None)))
    if not parsed:
        raise detect.unknown(path, "an empty JSON list")
    for kind, result in parsed:
        kinds.append(kind)
        _keep(kind, result, collected)
    return ", ".join(dict.fromkeys(kinds))


def _keep(kind: str, result: sweeps.Result, collected: _Collected) -> None:
    record: Any = result.record
    if kind == detect.BENCH:
        collected.results.append(result)
    elif kind == detect.SGLANG:
        collected.evidence += sglang_bench.read_result(record, result.source)
    elif kind == detect.GUIDELLM:
        collected.evidence += guidellm.read_report(record, result.source)
    elif kind == detect.RUN_FILE:
        collected.evidence += run_file.read_run_file(record, result.source)
    elif kind == detect.AIPERF:
        collected.exports.append(result)
    elif kind == detect.NCCL:
        collected.evidence += read_collectives(json.dumps(record), result.source)
    else:
        collected.requests.setdefault(os.path.dirname(result.path), []).append(result)


def _together(collected: _Collected) -> Evidence:
    """What is read across files."""
    evidence = sweeps.read_results(collected.results) + _read_aiperf(collected)
    windows, refused = windows_of(collected.scrapes)
    for window in windows:
        reader = vllm_metrics if window.engine == "vllm" else sglang_metrics
        evidence += reader.read_window(window)
    return evidence + Evidence(refused=tuple(refused)) + read_traces(collected.traces)


def _read_aiperf(collected: _Collected) -> Evidence:
    """Summaries, each with the request records of its folder; records alone where there is no summary."""
    evidence = Evidence()
    requests = dict(collected.requests)
    for export in collected.exports:
        beside = requests.pop(os.path.dirname(export.path), [])
        evidence += aiperf.read_export(export.record, export.source, [item.record for item in beside])
    for items in requests.values():
        evidence += aiperf.read_requests([item.record for item in items], items[0].path)
    return evidence


def _left_out(collected: _Collected) -> Evidence:
    """A note per folder on its files of unknown format; a folder with nothing else is an error."""
    notes = []
    for folder, files in collected.unknown.items():
        prefix = os.path.join(folder, "")
        if not any(item.path.startswith(prefix) for item in collected.evidence.files) and not collected.bad:
            raise detect.unknown(folder, f"a folder of {len(files)} files of no known format, {shown(files[0])} first")
        few = ", ".join(short(os.path.relpath(path, folder), 40) for path in files[:_MANY_ALIKE])
        notes.append(f"{folder}: {len(files)} files of no known format left alone ({few})")
    return Evidence(notes=tuple(notes))


def _fewer_refusals(evidence: Evidence) -> Evidence:
    """Many refusals for one reason as one: a log of a day has thousands of idle minutes."""
    by_reason: dict[str, list[Refused]] = {}
    for item in evidence.refused:
        by_reason.setdefault(item.reason, []).append(item)
    refused = []
    for reason, items in by_reason.items():
        if len(items) > _MANY_ALIKE:
            items = [Refused(f"{items[0].source} and {len(items) - 1} more", reason)]
        refused += items
    return Evidence(
        evidence.cells,
        evidence.steps,
        evidence.collectives,
        tuple(refused),
        evidence.notes,
        evidence.kernels,
        evidence.files,
        evidence.num_bad,
    )
