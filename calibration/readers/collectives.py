"""nccl-tests output as AllReduce timings; the parser is `simulator.nccl_tests`, which the deployment file uses too."""

import re

from calibration.records import CollectivePoint, Evidence
from simulator.nccl_tests import read_nccl_runs

_MARKS = re.compile(
    r"^[ \t]*#[ \t]*nThreads?\b|^[ \t]*#[ \t]+size[ \t]+(?:count|\(B\))|\b\w+_perf\b|#[ \t]*Avg bus bandwidth|"
    r"^[ \t]*\d+[ \t]+\d+[ \t]+(?:float|half|bfloat16|double|u?int(?:8|32|64)|fp8_\w+|f8e\w+)[ \t]+\w+[ \t]",
    re.MULTILINE,
)


def is_nccl_tests(head: str) -> bool:
    """Whether a text is what one of the nccl-tests (or rccl-tests) programs printed."""
    return _MARKS.search(head) is not None


def read_collectives(content: str, path: str) -> Evidence:
    """Every size of every run; repeated sizes on the same number of GPUs are averaged."""
    records = read_nccl_runs(content, path)
    points = [
        CollectivePoint(path, float(size), time_s, record.num_gpus, record.gpus)
        for record in records
        for size, time_s in zip(record.sizes_bytes, record.times_s, strict=True)
    ]
    notes = tuple(
        f"{path}: AllReduce over {record.num_hosts} hosts ({record.num_gpus} GPUs): the network between them is in"
        " its times; for a server on one host run nccl-tests there"
        for record in records
        if record.num_hosts > 1
    )
    return Evidence(collectives=tuple(points), notes=notes)
