"""Reads what nccl-tests' `all_reduce_perf` prints, and makes an AllReduce curve of it.

Format: NVIDIA/nccl-tests src/common.cu. Rows are `size count type redop [root]` and, out of place then in place, `time
algbw busbw #wrong`; everything else is a comment, a header or another program's noise. One file may hold several runs.
The JSON that `-J` writes is read as the text that the same run prints.
"""

import math
import re
from dataclasses import dataclass, field

from hwmodel.allreduce_curve import AllReduceCurve, Provenance, curve_from_points
from hwmodel.errors import InputError
from hwmodel.units import US
from simulator.nccl_json import printed

_MAX_CHARS = 4_000_000  # a full sweep is 6 kB: anything larger is another kind of file
_OPERATION = "all_reduce"
_OTHER_OPERATION = re.compile(
    r"\b(all_gather|reduce_scatter|alltoallv?|all_to_allv?|broadcast|reduce|sendrecv|scatter|gather|hypercube)_perf\b"
)
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_LAUNCHER_PREFIX = re.compile(r"^\s*(?:\[\d+,\d+\]<std(?:out|err)>:|\d+:(?=\s))")  # mpirun --tag-output, srun -l
_RANK = re.compile(r"^#\s*Rank\s+(\d+)\s.*?\bdevice\s+\d+\s*(?:\[[^\]]*\])?\s*(.*)$")
_OLD_RANK = re.compile(r"^#\s*Rank\s+(\d+)\b")
_GROUP = re.compile(r"\bGroup\s+(\d+)\b")  # NCCL_TESTS_SPLIT: each group is a communicator of its own
_HOST = re.compile(r"\bPid\s+\d+ on\s+(\S+)")
_SETTINGS = re.compile(r"^#\s*nThreads?\b")
_FAILED = re.compile(
    r"Test (?:NCCL|CUDA)? ?failure|NCCL failure|Out of bounds values\s*:\s*\d+\s+FAILED", re.IGNORECASE
)
_FOOTER = re.compile(r"^#\s*Avg bus bandwidth\b")
_COUNT_OF_WRONG = re.compile(r"^\d+(?:\.\d+)?(?:e[+-]?\d+)?$")  # %g: a million is printed as 1e+06
_VALUE = r"(?:[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|N/A)"
_ROW = re.compile(
    rf"^\s*(?P<size>\d+)\s+(?P<count>\d+)\s+(?P<type>[a-z][a-z0-9_]*)\s+(?P<redop>[a-z]+)\s+(?:(?P<root>-?\d+)\s+)?"
    rf"(?P<time>{_VALUE})\s+(?P<algbw>{_VALUE})\s+(?P<busbw>{_VALUE})\s+(?P<wrong>\S+)"
    rf"(?:\s+(?P<time2>{_VALUE})\s+{_VALUE}\s+{_VALUE}\s+(?P<wrong2>\S+)(?P<more>\s+\S.*)?)?\s*$"
)
_ROW_START = re.compile(r"^\s*\d+\s+\d+\s+[a-z][a-z0-9_]*\s+[a-z]+\b")
_BANDWIDTH_TOLERANCE = 0.05  # algbw and busbw are printed with two decimals; rows below carry three digits or more
_MIN_ALGBW_GB_PER_S = 1.0


@dataclass(frozen=True)
class NcclTests:
    """One file's AllReduce times: out of place where printed, repeated sizes averaged, sizes increasing."""

    num_gpus: int
    sizes_bytes: tuple[int, ...]
    times_s: tuple[float, ...]
    gpus: tuple[str, ...]  # distinct device names of the header, possibly none
    source: str
    num_hosts: int = 1  # that the GPUs of one communicator are in, as far as the header tells

    def curve(self) -> AllReduceCurve:
        """The operator's own curve."""
        device = f"{self.num_gpus}x {', '.join(self.gpus)}" if self.gpus else f"{self.num_gpus} GPUs"
        points = dict(zip(self.sizes_bytes, self.times_s, strict=True))
        about = Provenance(f"nccl-tests {self.source} on {device}", "user", self.num_gpus)
        return curve_from_points(points, "nccl", about)


@dataclass
class _Run:
    """What one header and the rows under it say."""

    ranks: dict[int, str] = field(default_factory=dict)
    groups: dict[int, str] = field(default_factory=dict)  # rank -> group; empty in releases that print none
    hosts: dict[int, str] = field(default_factory=dict)
    rows: list[re.Match[str]] = field(default_factory=list)
    has_header: bool = False
    has_footer: bool = False
    counts_wrong: bool = True  # "#wrong" column; releases before 2.12 print the largest "error" instead
    has_more: bool = False  # columns after the known ones: timestamp (-S 1), #iters


def parse_nccl_tests(text: str, source: str, expected_ranks: int | None = None) -> AllReduceCurve:
    """The operator's AllReduce curve; with `expected_ranks`, a file of another number of GPUs is an `InputError`."""
    record = read_nccl_tests(text, source)
    if expected_ranks is not None and expected_ranks != record.num_gpus:
        raise _error(
            source,
            f"a run on {record.num_gpus} GPUs, but the deployment reduces over {expected_ranks}",
            f"all_reduce_perf on {expected_ranks} ranks",
        )
    return record.curve()


def read_nccl_tests(text: str, source: str) -> NcclTests:
    """The record of `all_reduce_perf` output; anything else, cut short or with wrong results, is an `InputError`."""
    records = read_nccl_runs(text, source)
    if len(records) > 1:
        got = " and ".join(str(record.num_gpus) for record in records)
        raise _error(source, f"runs on {got} GPUs in one file", "runs on one number of GPUs")
    return records[0]


def read_nccl_runs(text: str, source: str) -> tuple[NcclTests, ...]:
    """One record per number of GPUs in the file, fewest first; runs on the same number are averaged by size."""
    if len(text) > _MAX_CHARS:
        raise _error(source, f"{len(text)} characters", f"the text of a run, at most {_MAX_CHARS}")
    runs = [run for run in _runs(printed(text), source) if run.rows or run.has_header]
    if not any(run.rows for run in runs):
        what = "a header without a result row" if runs else "no result row"
        raise _error(source, what, "the whole output of all_reduce_perf")
    by_number: dict[int, list[_Run]] = {}
    for run in runs:
        _check_run(run, source)
        if run.rows:
            by_number.setdefault(_num_gpus(run, source), []).append(run)
    return tuple(_record(number, by_number[number], source) for number in sorted(by_number))


def _record(num_gpus: int, runs: list[_Run], source: str) -> NcclTests:
    times: dict[int, list[float]] = {}
    for row in (row for run in runs for row in run.rows):
        size, time_s = _size_and_time(row, source)
        if size > 0:  # with fewer bytes than ranks a row of size 0 is printed
            times.setdefault(size, []).append(time_s)
    if not times:
        raise _error(source, "only rows of size 0", "rows of 1 byte or more")
    sizes = sorted(times)
    means = tuple(math.fsum(times[size]) / len(times[size]) for size in sizes)
    gpus = sorted({name for run in runs for name in run.ranks.values() if name})
    num_hosts = max(len({run.hosts.get(rank) for rank in group}) for run in runs for group in _groups(run))
    return NcclTests(num_gpus, tuple(sizes), means, tuple(gpus), source, num_hosts)


def _runs(text: str, source: str) -> list[_Run]:
    runs = [_Run()]
    for number, raw in enumerate(text.splitlines(), start=1):
        line = _LAUNCHER_PREFIX.sub("", _ANSI.sub("", raw)).rstrip()
        _refuse_failures(line, source)
        if _SETTINGS.match(line):
            runs.append(_Run(has_header=True))
        _read_line(line, runs[-1], source, number)
    return runs


def _refuse_failures(line: str, source: str) -> None:
    if _FAILED.search(line):
        raise _error(source, f"a failed run: '{_shortened(line)}'", "a run without errors")
    other = _OTHER_OPERATION.search(line)
    if other and _OPERATION not in line:
        raise _error(source, f"a run of {other.group(0)}", "all_reduce_perf")


def _read_line(line: str, run: _Run, source: str, number: int) -> None:
    if rank := _OLD_RANK.match(line):
        _read_rank(line, int(rank.group(1)), run)
    elif line.startswith("#"):
        run.has_footer = run.has_footer or bool(_FOOTER.match(line))
        if "redop" in line and "time" in line:
            _read_columns(line, run, source)
    elif (row := _ROW.match(line)) and (run.has_more or not row["more"]):
        run.rows.append(row)
    elif _ROW_START.match(line):
        raise _error(source, f"line {number} cut short: '{_shortened(line)}'", "the whole output of all_reduce_perf")


def _read_rank(line: str, rank: int, run: _Run) -> None:
    named, group, host = _RANK.match(line), _GROUP.search(line), _HOST.search(line)
    run.ranks[rank] = named.group(2).strip() if named else ""
    if group:
        run.groups[rank] = group.group(1)
    if host:
        run.hosts[rank] = host.group(1)


def _read_columns(line: str, run: _Run, source: str) -> None:
    """What the header of the rows says of their columns; the CPU's time of a call is no time of an AllReduce."""
    if "cputime" in line:
        raise _error(source, "times of the CPU (-C 1)", "a run without -C: times of the GPUs")
    run.counts_wrong = "#wrong" in line
    names = line.strip("# ").split()
    run.has_more = names.count("time") == 2 and names[-1] not in ("#wrong", "error")
    between = {"time", "algbw", "busbw", "#wrong", "error"}
    blocks = names[names.index("time") :] if "time" in names else []
    if any(name not in between for name in blocks[:8]):
        raise _error(source, f"columns '{_shortened(' '.join(blocks))}'", "time, algbw, busbw and #wrong, twice")


def _groups(run: _Run) -> list[list[int]]:
    """The ranks of each communicator; all in one where no groups are printed."""
    found: dict[str, list[int]] = {}
    for rank in run.ranks:
        found.setdefault(run.groups.get(rank, ""), []).append(rank)
    return list(found.values()) or [[]]


def _check_run(run: _Run, source: str) -> None:
    if run.has_header and not run.has_footer:
        raise _error(source, "a run without its closing '# Avg bus bandwidth' line: cut short", "the whole output")
    for row in run.rows:
        wrong = [row["wrong"], row["wrong2"] or "N/A"]
        if run.counts_wrong and any(_COUNT_OF_WRONG.match(value) and float(value) > 0 for value in wrong):
            raise _error(source, f"wrong results at {row['size']} bytes (#wrong above 0)", "a run with correct results")
        if row["redop"] == "none" or int(row["root"] or -1) >= 0:
            operation = f"redop {row['redop']}, root {row['root'] or 'none'}"
            raise _error(source, f"rows of another collective ({operation})", "all_reduce_perf")


def _num_gpus(run: _Run, source: str) -> int:
    """Ranks of the header, else those that busbw / algbw = 2 (n - 1) / n implies; no other collective prints that."""
    ratio = _bandwidth_ratio(run)
    sizes = {len(group) for group in _groups(run)}
    if len(sizes) > 1:
        raise _error(source, f"groups of {sorted(sizes)} GPUs in one run (NCCL_TESTS_SPLIT)", "groups of one size")
    ranks = sizes.pop()
    if not ranks:
        if ratio is None or not 0 < ratio < 2:
            raise _error(source, "no '# Rank' lines and no large row to tell the number of GPUs", "the whole output")
        ranks = round(2 / (2 - ratio))
    if ranks < 2:
        raise _error(source, "a run on 1 GPU", "2 or more")
    expected = 2 * (ranks - 1) / ranks
    if ratio is not None and abs(ratio / expected - 1) > _BANDWIDTH_TOLERANCE:
        got = f"busbw / algbw = {ratio:.2f}, but all_reduce on {ranks} GPUs gives {expected:.2f}"
        raise _error(source, got, "all_reduce_perf output with all its '# Rank' lines")
    return ranks


def _bandwidth_ratio(run: _Run) -> float | None:
    """busbw / algbw of the row with the largest algbw, where rounding matters least; None without a large row."""
    pairs = [
        (float(row["algbw"]), float(row["busbw"])) for row in run.rows if "N/A" not in (row["algbw"], row["busbw"])
    ]
    algbw, busbw = max(pairs, default=(0.0, 0.0))
    return busbw / algbw if algbw >= _MIN_ALGBW_GB_PER_S else None


def _size_and_time(row: re.Match[str], source: str) -> tuple[int, float]:
    """(bytes, seconds): the out-of-place time, or the in-place one where the former is N/A."""
    text = row["time"] if row["time"] != "N/A" else row["time2"] or "N/A"
    size, time_us = int(row["size"]), float("nan" if text == "N/A" else text)
    if not (math.isfinite(time_us) and time_us > 0) or not math.isfinite(float(size)):
        raise _error(source, f"time {text} us at {row['size']} bytes", "times above 0")
    return size, time_us * US


def _shortened(line: str) -> str:
    most = 60  # enough to find the line again
    clean = " ".join("".join(char for char in line if char.isprintable()).split())
    return clean if len(clean) <= most else clean[:most] + "..."


def _error(source: str, got: str, allowed: str) -> InputError:
    return InputError(f"nccl-tests {source}: got {got}; allowed: {allowed}")
