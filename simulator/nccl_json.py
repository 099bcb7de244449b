"""The JSON file of nccl-tests (`-J FILE`, 2.17 and later) as the text that the same run prints.

Format: NVIDIA/nccl-tests src/util.cu, JSON_FILE_VERSION 1. `devices` has one entry per process where the text has one
line per GPU, so the number of ranks is processes * threads * GPUs per thread. `env` is not looked at: it holds secrets.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

_BLOCKS = ("out_of_place", "in_place")
_VALUES = ("time", "alg_bw", "bus_bw", "nwrong")
_MAX_RANKS = 100_000


def is_nccl_json(record: Any) -> bool:
    """Whether `record` is what nccl-tests writes with `-J`."""
    return isinstance(record, dict) and "nccl_version" in record and isinstance(record.get("results"), list)


def printed(content: str) -> str:
    """The printed form of a run that `content` holds as JSON; any other text as it is."""
    if not content.lstrip("\ufeff \t\r\n").startswith("{"):
        return content
    try:
        record = json.loads(content.lstrip("\ufeff"))
    except (ValueError, RecursionError):
        return content
    return "\n".join(_lines(record)) if is_nccl_json(record) else content


def _lines(record: Mapping[str, Any]) -> Iterator[str]:
    yield "# nThread (of JSON)"
    yield f"# Collective test starting: {_program(record)}"
    yield from _ranks(_object(record.get("config")))
    results = [_object(item) for item in record["results"]]
    kind = "cputime" if any("cpu_time" in _object(item.get(block)) for item in results for block in _BLOCKS) else "time"
    yield f"# size count type redop root {kind} algbw busbw #wrong {kind} algbw busbw #wrong"
    yield from (_row(item) for item in results)
    wrong = _object(record.get("out_of_bounds"))
    if wrong:
        okay = "OK" if wrong.get("okay") == "true" else "FAILED"
        yield f"# Out of bounds values : {_word(wrong.get('count'))} {okay}"
        yield "# Avg bus bandwidth : written with the results"


def _program(record: Mapping[str, Any]) -> str:
    """The program's name, of the command line: the last part of its path."""
    words = record.get("args")
    return _word(words[0]).rpartition("/")[2] if isinstance(words, list) and words else "all_reduce_perf"


def _ranks(config: Mapping[str, Any]) -> Iterator[str]:
    devices = config.get("devices")
    processes = [_object(item) for item in devices] if isinstance(devices, list) else []
    per_process = _count(config.get("nthreads")) * _count(config.get("ngpus"))
    if len(processes) * per_process > _MAX_RANKS:
        return
    for index in range(len(processes) * per_process):
        item = processes[index // per_process]
        host, group, gpu = (_word(item.get(name)) for name in ("hostname", "group", "device_info"))
        yield f"# Rank {index} Group {group} Pid 0 on {host} device 0 [0] {gpu.replace('_', ' ')}"


def _row(item: Mapping[str, Any]) -> str:
    parts = [_word(item.get(name)) for name in ("size", "count", "type", "redop", "root")]
    for block in (_object(item.get(name)) for name in _BLOCKS):
        parts += [_word(block.get(name)) for name in _VALUES]
    return " ".join(parts)


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 1


def _word(value: Any) -> str:
    """`value` as one word of a row; N/A where there is none."""
    return "_".join(str(value).split()) if value not in (None, "") else "N/A"
