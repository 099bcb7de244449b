"""The outcome as it goes into the ledger: one entry for each prediction that was scored."""

from collections.abc import Mapping, Sequence
from typing import Any

from validate.ledger.entries import clean, shown_source
from validate.ledger.store import OUTCOME, Entry
from validate.outcome.scored import Scored
from validate.outcome.validation import Validation

JsonObject = dict[str, Any]

FORMAT = "draftcast outcome 1"


def outcome_entries(validation: Validation, result: Mapping[str, Any], version: str) -> list[Entry]:
    """One entry for each prediction that was scored: what the track record counts, and the whole result."""
    groups: dict[int | None, list[Scored]] = {}
    for cell in validation.scored:
        entry = cell.predicted.entry
        groups.setdefault(None if entry is None else entry.sequence, []).append(cell)
    return [_outcome(sequence, cells, validation, result, version) for sequence, cells in groups.items()]


def _outcome(
    sequence: int | None, cells: Sequence[Scored], validation: Validation, result: Mapping[str, Any], version: str
) -> Entry:
    first = cells[0]
    entry = first.predicted.entry
    speedups = [cell.figures["speedup"].measured for cell in cells if "speedup" in cell.figures]
    study = validation.studies.of(first.question.method)
    summary = {
        "prediction_sequence": sequence,
        "blind": all(cell.predicted.blind for cell in cells),
        "run": shown_source(validation.run.source),
        "run_sha256": validation.run.sha256,
        "model": study.system.shape.name,
        "method": first.question.method,
        "verdict": result["verdict"],
        "cells_scored": len(cells),
        "cells_inside": sum(cell.headline.inside for cell in cells),
        "measured_speedup": speedups[0] if len(speedups) == 1 else None,
        "scores": [_score(cell, name) for cell in cells for name in cell.figures],
    }
    body = {"format": FORMAT, "draftcast_version": version, "blind": summary["blind"], **result}
    return Entry(OUTCOME, "" if entry is None else entry.prediction_id, clean(summary), clean(body))


def _score(cell: Scored, name: str) -> JsonObject:
    figure = cell.figures[name]
    return {
        "num_speculative_tokens": cell.question.num_speculative_tokens,
        "concurrency": cell.concurrency,
        "quantity": name,
        "predicted": {"p05": figure.low, "p50": figure.middle, "p95": figure.high},
        "measured": figure.measured,
        "inside": figure.inside,
    }
