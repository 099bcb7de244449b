"""The ledger as lists and single entries: what `draftcast ledger list` and `show` answer."""

from collections.abc import Sequence
from typing import Any

from calibration.readers.values import mapping
from validate.ledger.store import OUTCOME, PREDICTION, Ledger, Row
from validate.ledger.track import track_record

JsonObject = dict[str, Any]

_OUTCOME_KEYS = ("verdict", "blind", "cells_scored", "cells_inside", "run", "measured_speedup")


def listed(ledger: Ledger, last: int) -> JsonObject:
    """The newest `last` predictions, newest first (0: all), each with its newest outcome; and the track record."""
    rows = ledger.rows()
    predictions, outcomes = [row for row in reversed(rows) if row.kind == PREDICTION], outcomes_by_prediction(rows)
    shown = predictions[:last] if last else predictions
    return {
        "ledger": str(ledger.path),
        "rows": [_line(row, outcomes.get(row.sequence, [])) for row in shown],
        "total": len(predictions),
        "summary": track_record(rows),
    }


def _line(row: Row, outcomes: Sequence[Row]) -> JsonObject:
    return {
        "sequence": row.sequence,
        "recorded": row.created,
        "prediction_id": row.prediction_id,
        **row.summary,
        "outcome": _outcome(outcomes[-1]) if outcomes else None,
    }


def outcomes_by_prediction(rows: Sequence[Row]) -> dict[object, list[Row]]:
    """Outcomes by the sequence number of the entry that they were scored against, oldest first."""
    found: dict[object, list[Row]] = {}
    for row in rows:
        if row.kind == OUTCOME and isinstance(row.summary.get("prediction_sequence"), int):
            found.setdefault(row.summary["prediction_sequence"], []).append(row)
    return found


def _outcome(row: Row) -> JsonObject:
    return {"validated": row.created, **{name: row.summary.get(name) for name in _OUTCOME_KEYS}}


def found(ledger: Ledger, prefix: str) -> JsonObject:
    """The newest entry of the prediction whose id begins with `prefix`, when else it was recorded, and its outcomes."""
    identity = ledger.identity(prefix)
    rows = [row for row in ledger.rows() if row.prediction_id == identity]
    predictions = [row for row in rows if row.kind == PREDICTION]
    outcomes = [{"created": row.created, **ledger.body(row.sequence)} for row in rows if row.kind == OUTCOME]
    shown: JsonObject = {"ledger": str(ledger.path), "prediction_id": identity}
    if predictions:
        newest = predictions[-1]
        shown |= {
            "sequence": newest.sequence,
            "recorded": newest.created,
            "recorded_before": [row.created for row in predictions[:-1]],
            "summary": newest.summary,
            **ledger.body(newest.sequence),
        }
    cells = shown.get("cells")
    shown["cells"] = [dict(mapping(cell)) for cell in cells] if isinstance(cells, list) else []
    return shown | {"outcomes": outcomes}
