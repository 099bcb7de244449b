"""nccl-tests output as AllReduce timings; the parser is `simulator.nccl_tests`, which the deployment file uses too."""

import re

from calibration.records import CollectivePoint, Evidence
from simulator.nccl_tests import read_nccl_runs

_MARKS = re.compile(
    r"^\s*#\s*nThreads?\b|^\s*#\s+size\s+(?:count|\(B\))|\b\w+_perf\b|#\s*Avg bus bandwidth|"
    r"^\s*\d+\s+\d+\s+(?:float|half|bfloat16|double|int8|uint8|int32|uint32|int64|uint64|fp8_\w+|f8e\w+)\s+\w+\s",
    re.MULTILINE,
)


def is_nccl_tests(head: str) -> bool:
    """Whether a text is what one of the nccl-tests (or rccl-tests) programs printed."""
    return _MARKS.search(head) is not None


def read_collectives(content: str, path: str) -> Evidence:
    """Every size of every run; repeated sizes on the same number of GPUs are averaged."""
    points = [
        CollectivePoint(path, float(size), time_s, record.num_gpus)
        for record in read_nccl_runs(content, path)
        for size, time_s in zip(record.sizes_bytes, record.times_s, strict=True)
    ]
    return Evidence(collectives=tuple(points))
