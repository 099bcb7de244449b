"""Rows of published measurements as tests write them: one plain server, and what differs from it."""

from collections.abc import Mapping
from typing import Any

from calibration.published.rows import PublishedRow, rows_of

PLAIN: Mapping[str, str] = {
    "set_id": "SET",
    "engine": "vLLM",
    "engine_version": "0.20.0",
    "model": "Qwen3-30B-A3B",
    "quantization": "BF16",
    "gpu": "H100 80GB",
    "gpu_count": "1",
    "tp": "1",
    "method": "EAGLE-3",
    "k": "3",
    "concurrency": "8",
    "metric": "aggregate output tok/s",
    "baseline": "1000",
    "spec": "1500",
    "speedup": "1.5",
    "mean_accepted_len": "2.4",
}


def records(*changes: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One record of cells for each of the changes to the plain one."""
    return [{**PLAIN, **change} for change in changes]


def rows(*changes: Mapping[str, Any]) -> list[PublishedRow]:
    """One row for each of the changes to the plain one."""
    return rows_of(records(*changes), "a test")


def row(**changes: Any) -> PublishedRow:
    """The plain row with some cells changed."""
    return rows(changes)[0]


def sweep(concurrencies: tuple[int, ...] = (1, 8, 32), **changes: Any) -> list[dict[str, Any]]:
    """Changes that make a sweep of loads of an 8B model: its baseline step takes 7 ms and 0.05 ms a request more."""
    found = []
    for c in concurrencies:
        baseline = c / (0.007 + 0.00005 * c)
        cells = {"concurrency": str(c), "baseline": f"{baseline:.1f}", "spec": f"{1.4 * baseline:.1f}"}
        found.append({"model": "Qwen3-8B", **cells, **changes})
    return found
