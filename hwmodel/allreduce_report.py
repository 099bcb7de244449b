"""The AllReduce curve as the `allreduce` command prints it."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from hwmodel.allreduce_curve import AllReduceCurve
from hwmodel.errors import InputError


def allreduce_report(curve: AllReduceCurve, sizes_bytes: Sequence[int] | None = None) -> dict[str, Any]:
    """JSON-ready record of `curve` at `sizes_bytes` (default: the curve's own points), times in seconds.

    `busbw_bytes_per_s` is nccl-tests' busbw, null where it has no meaning (one GPU, or an unknown number of them).
    """
    sizes = curve.sizes_bytes if sizes_bytes is None else np.array(_checked(sizes_bytes), dtype=np.float64)
    times, bandwidths = curve.time_s(sizes), curve.bus_bandwidth_bytes_per_s(sizes)
    rows = [
        {
            "bytes": round(float(size)),
            "time_s": float(time),
            "algorithm": curve.algorithm_at(float(size)),
            "busbw_bytes_per_s": float(bandwidth) or None,
        }
        for size, time, bandwidth in zip(sizes, times, bandwidths, strict=True)
    ]
    return {
        "curve": rows,
        "num_gpus": curve.num_gpus or None,
        "kind": curve.kind,
        "latency_s": curve.latency_s,
        "source": curve.source,
    }


def _checked(sizes_bytes: Sequence[int]) -> Sequence[int]:
    wrong = [size for size in sizes_bytes if size < 1]
    if wrong or not sizes_bytes:
        raise InputError(
            f"message sizes: got {wrong[0] if wrong else 'none'}, allowed: one or more sizes of 1 byte or more"
        )
    return sizes_bytes
