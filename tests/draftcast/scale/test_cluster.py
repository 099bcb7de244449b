"""Sweeps on a real Dask cluster of processes on this machine."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from sweep_cells import Fault, die, fail_there, square

from draftcast.scale import chunks as chunks_module
from draftcast.scale.cluster import Cluster
from hwmodel.errors import InputError
from simulator.sweeps import Outcome

Run = Callable[..., Result]
NEEDED = "distributed is not installed: pip install 'draftcast[dask]'"
TESTS = Path(__file__).parent.parent.parent
LENGTHS = ",".join(str(n) for n in range(100, 2500, 100))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Scheduler and two worker processes, each watched over by a nanny that starts it again."""
    distributed = pytest.importorskip("distributed", reason=NEEDED)
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = f"{TESTS}{os.pathsep}{TESTS.parent}"  # of the workers, as if it were installed there
    try:
        with distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", host="127.0.0.1"
        ) as started:
            yield started
    finally:
        del os.environ["PYTHONPATH"]
        if before is not None:
            os.environ["PYTHONPATH"] = before


def worker_pids(cluster: Any) -> list[int]:
    return [worker.process.pid for worker in cluster.workers.values() if worker.process is not None]


def test_outcomes_come_in_order_with_the_faults_where_they_are(cluster: Any) -> None:
    told: list[int] = []
    swept = Cluster(cluster.scheduler_address)(fail_there, range(50), lambda done, _: told.append(done))
    assert swept.stopped is None
    assert swept.outcomes[7] == Outcome(None, "ZeroDivisionError: 7 cannot be")
    assert [o.value for o in swept.outcomes if o and o.failed_reason is None] == [n for n in range(50) if n != 7]
    assert told[-1] == 50


def test_a_cell_that_kills_its_worker_once_is_computed_by_another(cluster: Any, tmp_path: Path) -> None:
    swept = Cluster(cluster.scheduler_address)(Fault(die, str(tmp_path), times=1), range(40))
    assert [outcome.value for outcome in swept.outcomes if outcome] == list(range(40))
    assert len(list(tmp_path.iterdir())) == 1


def test_whatif_with_a_worker_killed_on_the_way_is_the_same_bit_for_bit(
    run: Run, cluster: Any, reference_case: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from draftcast.progress import RowProgress

    question = ("whatif", reference_case, "--vary", f"workload.input_tokens={LENGTHS}", "--draws", 100, "--json")
    here = run(*question, "--jobs", 1)
    killed: list[int] = []

    def kill(progress: RowProgress, done: int, total: int) -> None:
        if not killed:
            killed.append(worker_pids(cluster)[0])
            os.kill(killed[0], signal.SIGKILL)

    monkeypatch.setattr(RowProgress, "__call__", kill)
    there = run(*question, "--dask", cluster.scheduler_address)
    assert killed
    assert there.exit_code == here.exit_code == 0
    assert there.stdout == here.stdout


def test_simulate_on_the_cluster_is_the_same_bit_for_bit(run: Run, cluster: Any, small: Path) -> None:
    question = ("simulate", small, "--requests", 60, "--runs", 3, "--draws", 4, "--json")
    assert run(*question, "--dask", cluster.scheduler_address).stdout == run(*question, "--jobs", 1).stdout


def test_workers_with_another_draftcast_are_one_line(
    cluster: Any, run: Run, reference_case: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks_module, "program", lambda: "0.0.9 (0123456789ab)")
    vary = ("--vary", "workload.input_tokens=100,200")
    result = run("whatif", reference_case, *vary, "--dask", cluster.scheduler_address)
    assert result.exit_code == 1
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("Error")]
    assert line.startswith("Error: a worker has draftcast 0.1.0 (")
    assert line.endswith("here is 0.0.9 (0123456789ab); allowed: the same on both sides")


def test_ctrl_c_keeps_what_the_cluster_has_done_and_leaves_the_cluster(cluster: Any) -> None:
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    swept = Cluster(cluster.scheduler_address)(square, range(100), interrupt)
    assert swept.stopped == "interrupted"
    assert 0 < swept.done < 100
    assert Cluster(cluster.scheduler_address)(square, [3]).outcomes == [Outcome(9)]


def test_a_scheduler_that_ends_leaves_what_was_done() -> None:
    distributed = pytest.importorskip("distributed", reason=NEEDED)
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=True, dashboard_address=":0", host="127.0.0.1"
    ) as short_lived:
        ended = threading.Event()

        def end(done: int, total: int) -> None:
            if not ended.is_set():
                ended.set()
                short_lived.close()

        swept = Cluster(short_lived.scheduler_address)(square, range(2000), end)
    assert swept.stopped is not None
    assert 0 < swept.done < 2000


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "nonsense://x", "", "127.0.0.1:notaport"])
def test_nobody_at_the_address_is_one_line(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed", reason=NEEDED)
    monkeypatch.setattr("draftcast.scale.cluster.CONNECT_S", 1.0)
    with pytest.raises(InputError, match="--dask: no scheduler at"):
        Cluster(address)(square, [1])


def test_without_the_package_the_next_step_is_named(
    run: Run, reference_case: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    result = run("whatif", reference_case, "--vary", "workload.input_tokens=1,2", "--dask", "tcp://127.0.0.1:1")
    assert result.exit_code == 1
    assert "--dask needs the package distributed, which is not installed; next: pip install 'draftcast[dask]'" in (
        result.stderr
    )
    assert "pipx inject draftcast distributed" in result.stderr


def test_jobs_and_dask_are_one_or_the_other(run: Run, reference_case: Path) -> None:
    result = run("whatif", reference_case, "--vary", "workload.input_tokens=1", "--dask", "x", "--jobs", 2)
    assert result.exit_code == 2
    assert "one of the two" in result.stderr


def test_distributed_is_imported_only_for_a_cluster(reference_case: Path) -> None:
    code = (
        "import sys, json; from draftcast.cli import cli\n"
        f"cli.main(['whatif', {str(reference_case)!r}, '--vary', 'workload.input_tokens=1', '--json'],"
        " standalone_mode=False)\n"
        "print(json.dumps('distributed' in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=TESTS.parent)
    assert json.loads(done.stdout.splitlines()[-1]) is False
