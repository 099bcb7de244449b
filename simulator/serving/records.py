"""One flat record per request, written as the run goes: CSV, or JSONL where the name ends so."""

import csv
import json
from collections.abc import Callable
from typing import IO, Any

from numpy.typing import NDArray

from simulator.serving.request import NEVER, Request

COLUMNS = (
    "arm",
    "request",
    "status",
    "reason",
    "arrival_s",
    "start_s",
    "first_token_s",
    "finish_s",
    "ttft_s",
    "tpot_s",
    "e2e_s",
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "steps",
    "drafts",
    "draft_tokens",
    "accepted_tokens",
    "wasted_tokens",
    "preemptions",
    "attempts",
)


class RecordWriter:
    """Writes the records of every arm into one file; an observer for each arm comes from `of`."""

    def __init__(self, file: IO[str], *, as_json: bool) -> None:
        """CSV with a head, or JSON lines."""
        self._file = file
        self._csv = None if as_json else csv.writer(file, lineterminator="\n")
        if self._csv is not None:
            self._csv.writerow(COLUMNS)

    def of(self, arm: str) -> "_ArmRecords":
        """The observer that writes this arm's requests."""
        return _ArmRecords(arm, self._write)

    def _write(self, values: tuple[Any, ...]) -> None:
        if self._csv is not None:
            self._csv.writerow(["" if value is None else value for value in values])
        else:
            self._file.write(json.dumps(dict(zip(COLUMNS, values, strict=True)), allow_nan=False) + "\n")


class _ArmRecords:
    """Turns the requests of one arm into records."""

    def __init__(self, arm: str, write: Callable[[tuple[Any, ...]], None]) -> None:
        """Every record starts with `arm`."""
        self._arm, self._write = arm, write

    def steps(self, starts_s: NDArray[Any], ends_s: NDArray[Any], facts: dict[str, int]) -> None:
        """Steps are not recorded."""

    def request_done(self, request: Request) -> None:
        """One record."""
        self._write((self._arm, *record(request)))


def record(request: Request) -> tuple[Any, ...]:
    """The columns after `arm`; what never happened is None."""
    done = request.finish_s != NEVER
    return (
        request.number,
        "rejected" if request.rejected else "finished",
        request.rejected or None,
        request.arrival_s,
        request.start_s if done else None,
        request.first_token_s if done else None,
        request.finish_s if done else None,
        request.ttft_s if done else None,
        request.tpot_s if done else None,
        request.e2e_s if done else None,
        request.input_tokens,
        request.output_tokens,
        request.cached,
        request.steps,
        request.drafts,
        request.draft_tokens,
        request.accepted_tokens if done else 0,
        request.wasted,
        request.preemptions,
        request.attempts,
    )
