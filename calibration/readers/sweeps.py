"""Results of `vllm bench serve` and of `vllm bench sweep`, many at once: duplicates dropped, repeated runs pooled.

A sweep writes `SERVE-...-BENCH-.../run=N.json`, the same again in `summary.json` (a list) and in one `summary.csv`,
each with the parameters of its combination as further keys and `run_number`; -1 is the warm-up run.
Format: vLLM vllm/benchmarks/sweep/serve.py (0.11.2 to 0.33).
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calibration.readers.bench_serve import read_result
from calibration.readers.repeats import pooled
from calibration.readers.values import mapping, number, text
from calibration.records import Evidence, MeasuredCell, Refused
from simulator.deployment.keys import short

_SAME_RUN = ("date", "duration", "total_input_tokens", "total_output_tokens", "mean_tpot_ms", "run_number")
# What a run yields; everything else in a result is a setting.
_MEASURED = re.compile(
    r"(mean|median|std|p[\d.]+)_\w+|(total|spec_decode|probe|diffusion)_\w+|\w*_?throughput|request_goodput:?"
    r"|max_output_tokens_per_s|max_concurrent_requests|date|duration|completed|failed|run_number|rtfx|rps_change_events"
)


@dataclass(frozen=True, slots=True)
class Result:
    """One result as it stands in a file; `place` is a list index or line within it, None for the whole file."""

    record: Mapping[str, Any]
    path: str
    place: str | None = None
    from_table: bool = False  # a row of summary.csv, where empty and null are one

    @property
    def source(self) -> str:
        """File and place."""
        return self.path if self.place is None else f"{self.path} {self.place}"


def is_failure(record: Any) -> bool:
    """Whether `record` is what a sweep writes for a run that failed."""
    found = mapping(record)
    return "error_type" in found and ("serve_overrides" in found or "bench_overrides" in found)


def read_results(results: Sequence[Result]) -> Evidence:
    """Cells of `results`, one per setting of a sweep, one per result otherwise."""
    evidence = Evidence()
    groups: dict[tuple[Any, ...], list[Result]] = {}
    seen: set[tuple[Any, ...]] = set()
    for index, result in enumerate(sorted(results, key=lambda item: item.from_table)):
        refused = _not_a_measurement(result)
        identity = tuple(_known(result.record.get(name)) for name in _SAME_RUN)
        if refused:
            evidence += Evidence(refused=(refused,))
        elif identity not in seen or not any(identity):
            seen.add(identity)
            groups.setdefault(_setting(result) or (index,), []).append(result)
    for group in groups.values():
        evidence += _read_group(group)
    return evidence


def _not_a_measurement(result: Result) -> Refused | None:
    if is_failure(result.record):
        what = text(result.record.get("error")) or text(result.record.get("error_type")) or "no reason given"
        return Refused(result.source, f"the sweep's run failed: {what}")
    if _run_number(result.record) == -1:
        return Refused(result.source, "the sweep's warm-up run")
    return None


def _run_number(record: Mapping[str, Any]) -> float | None:
    value = record.get("run_number")
    return -1.0 if value in (-1, "-1") else number(value)


def _known(value: Any) -> str | None:
    found = number(value)
    return repr(found) if found is not None else text(value)


def _setting(result: Result) -> tuple[Any, ...] | None:
    """What tells the settings of a sweep apart: its folder and every key that is no measurement; None outside one."""
    if _run_number(result.record) is None:
        return None
    keys = sorted(
        key
        for key, value in result.record.items()
        if isinstance(key, str) and not _MEASURED.fullmatch(key) and not isinstance(value, list)
    )
    named = tuple((key, json.dumps(result.record[key], sort_keys=True, default=str)) for key in keys)
    return (os.path.dirname(result.path), named)


def _read_group(group: Sequence[Result]) -> Evidence:
    evidence, cells = Evidence(), list[MeasuredCell]()
    for result in group:
        found = read_result(result.record, result.source)
        cells += found.cells
        evidence += Evidence(refused=found.refused, notes=found.notes)
    if not cells:
        return evidence
    source = (
        cells[0].source if len(cells) == 1 else f"{short(os.path.dirname(group[0].path) or group[0].path)} (pooled)"
    )
    return evidence + Evidence(cells=(pooled(cells, source),))
