"""What a cell of a sweep costs, what processes and a Dask cluster add to it, and how both scale.

Prints, for 1, 2, 4 ... processes up to the CPUs: seconds, cells per second and the speedup over one process, start-up
included; the CPU time of one cell; and the same sweep on a local Dask cluster where `distributed` is installed.
"""

import argparse
import contextlib
import importlib.util
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from draftcast import load, simulate, whatif
from draftcast.scale.cluster import Cluster
from draftcast.scale.local import Processes, usable_cpus
from simulator.sweeps import Sweep, in_this_process

EXAMPLE = "examples/kimi-k2.5-8x-rtx-pro-6000.toml"
LINE = "{:<28}{:>10.1f}{:>12.1f}{:>10.2f}"


def seconds(run: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def cell_cpu_s(run: Callable[[], object], cells: int) -> float:
    """CPU time of a cell in this process."""
    start = time.process_time()
    run()
    return (time.process_time() - start) / cells


def compare(title: str, ask: Callable[[Sweep], object], cells: int, cluster: str | None) -> None:
    """One table: the same sweep everywhere."""
    cpu_s = cell_cpu_s(partial(ask, in_this_process), cells)
    print(f"{title}: {cells} cells, {cpu_s * 1e3:.0f} ms of CPU time each")
    print(f"{'':<28}{'s':>10}{'cells/s':>12}{'speedup':>10}")
    one_s = seconds(partial(ask, Processes(1)))
    print(LINE.format("1 process", one_s, cells / one_s, 1.0))
    jobs = 2
    while jobs <= usable_cpus():
        took_s = seconds(partial(ask, Processes(jobs)))
        print(LINE.format(f"{jobs} processes", took_s, cells / took_s, one_s / took_s))
        jobs *= 2
    if cluster is not None:
        took_s = seconds(partial(ask, Cluster(cluster)))
        print(LINE.format(f"Dask, {usable_cpus()} workers", took_s, cells / took_s, one_s / took_s))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", type=int, default=20, help="whatif varies two keys with so many values each")
    parser.add_argument("--runs", type=int, default=24, help="runs of simulate")
    asked = parser.parse_args()
    deployment = load(EXAMPLE)
    vary = {f"workload.{name}_tokens": list(range(100, 100 * asked.side + 1, 100)) for name in ("input", "output")}
    with contextlib.ExitStack() as stack:
        address: str | None = None
        if importlib.util.find_spec("distributed") is not None:
            import distributed

            local: Any = distributed.LocalCluster  # untyped
            cluster = local(n_workers=usable_cpus(), threads_per_worker=1, dashboard_address=":0")
            address = stack.enter_context(cluster).scheduler_address
        compare("whatif", lambda sweep: whatif(deployment, vary, sweep=sweep), asked.side**2, address)
        runs = partial(simulate, deployment, num_requests=400, num_runs=asked.runs)
        compare("simulate", lambda sweep: runs(sweep=sweep), asked.runs, address)


if __name__ == "__main__":
    main()
