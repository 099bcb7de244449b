"""The ledger for other tools: everything as JSON, or a table with one row for each cell of each prediction."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from calibration.readers.values import count, mapping
from validate.ledger.listing import outcomes_by_prediction
from validate.ledger.store import PREDICTION, Ledger, Row
from validate.ledger.track import track_record

JsonObject = dict[str, Any]

FORMAT = "draftcast ledger 1"
_QUANTITIES = ("speedup", "throughput_tokens_per_s", "tpot_s", "step_s", "tokens_per_step")
_BAND = ("p05", "p50", "p95")
COLUMNS = (
    "sequence",
    "recorded",
    "prediction_id",
    "command",
    "draftcast_version",
    "model",
    "gpu",
    "num_gpus",
    "engine",
    "engine_version",
    "method",
    "num_speculative_tokens",
    "concurrency",
    "probability_faster",
    *(f"{name}_{end}" for name in _QUANTITIES for end in _BAND),
    *(f"measured_{name}" for name in _QUANTITIES),
    *(f"inside_{name}" for name in _QUANTITIES),
    "validated",
    "blind",
)
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")


def exported(ledger: Ledger) -> JsonObject:
    """Every entry with its body, oldest first, and the track record."""
    rows = ledger.rows()
    entries = [
        {
            "sequence": row.sequence,
            "kind": row.kind,
            "prediction_id": row.prediction_id,
            "created": row.created,
            "summary": row.summary,
            **ledger.body(row.sequence),
        }
        for row in rows
    ]
    return {"format": FORMAT, "ledger": str(ledger.path), "entries": entries, "summary": track_record(rows)}


def as_csv(ledger: Ledger) -> str:
    """A row for each cell of each prediction, with what was measured of it, newest outcome of each; SI units.

    A text that a spreadsheet would take for a formula gets an apostrophe in front.
    """
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    rows = ledger.rows()
    outcomes = outcomes_by_prediction(rows)
    for row in rows:
        if row.kind == PREDICTION:
            for line in _lines(row, ledger.body(row.sequence), _measured(outcomes.get(row.sequence, []))):
                writer.writerow([safe(line.get(column)) for column in COLUMNS])
    return file.getvalue()


def safe(value: Any) -> Any:
    """A cell that no spreadsheet executes; numbers stay numbers.

    >>> safe("=1+1"), safe(" @x"), safe(-0.5), safe(None)
    ("'=1+1", "' @x", -0.5, '')
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return value
    text = str(value)
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA_STARTS) else text


def _lines(
    row: Row, body: Mapping[str, Any], outcomes: Mapping[tuple[object, object], JsonObject]
) -> Iterator[JsonObject]:
    named = ("command", "model", "gpu", "num_gpus", "engine", "engine_version", "method")
    common = {"sequence": row.sequence, "recorded": row.created, "prediction_id": row.prediction_id}
    common |= {name: row.summary.get(name) for name in named}
    common["draftcast_version"] = body.get("draftcast_version")
    cells = body.get("cells")
    for cell in map(mapping, cells if isinstance(cells, list) else []):
        place = (count(cell.get("num_speculative_tokens")), count(cell.get("concurrency")))
        line = common | {"num_speculative_tokens": place[0], "concurrency": place[1]}
        line["probability_faster"] = cell.get("probability_faster")
        intervals = mapping(mapping(cell.get("speculative")).get("intervals"))
        for name in _QUANTITIES:
            band = mapping(cell.get("speedup") if name == "speedup" else intervals.get(name))
            line |= {f"{name}_{end}": band.get(end) for end in _BAND}
        yield line | outcomes.get(place, {})


def _measured(outcomes: Sequence[Row]) -> dict[tuple[object, object], JsonObject]:
    """What was measured of the cells of one prediction entry, by (draft length, concurrency); the newest counts."""
    found: dict[tuple[object, object], JsonObject] = {}
    for row in outcomes:
        scores = row.summary.get("scores")
        for item in map(mapping, scores if isinstance(scores, list) else []):
            place = (count(item.get("num_speculative_tokens")), count(item.get("concurrency")))
            cell = found.setdefault(place, {})
            cell |= {"validated": row.created, "blind": row.summary.get("blind")}
            cell |= {f"measured_{item.get('quantity')}": item.get("measured")}
            cell |= {f"inside_{item.get('quantity')}": item.get("inside")}
    return found
