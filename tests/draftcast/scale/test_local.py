"""Sweeps in local processes: same answers in the same order, faults kept to the cell that has them."""

import fcntl
import json
import os
import pty
import signal
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from sweep_cells import (
    Fault,
    die,
    die_while_answering,
    fail_once,
    fail_there,
    one_thread_settings,
    refuse,
    square,
    where,
)

from draftcast.scale.chunks import chunks
from draftcast.scale.drive import DIED
from draftcast.scale.local import Processes, jobs_that_pay_off
from simulator.sweeps import Outcome, in_this_process

Run = Callable[..., Result]
PROGRAM = Path(sys.executable).parent / "draftcast"
CHECKOUT = Path(__file__).parent.parent.parent.parent
LENGTHS = ",".join(str(n) for n in range(100, 1300, 100))


@pytest.mark.parametrize("jobs", [1, 2, 3, None])
def test_outcomes_come_in_the_order_of_the_cells_for_any_number_of_processes(jobs: int | None) -> None:
    told: list[tuple[int, int]] = []
    swept = Processes(jobs)(square, range(40), lambda done, total: told.append((done, total)))
    assert [outcome.value for outcome in swept.outcomes if outcome] == [n * n for n in range(40)]
    assert swept == in_this_process(square, range(40))
    assert told[-1] == (40, 40)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_two_processes_are_really_others() -> None:
    swept = Processes(2)(where, range(8))
    assert os.getpid() not in {outcome.value for outcome in swept.outcomes if outcome}


def test_workers_have_one_thread_for_linear_algebra_whatever_the_user_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    swept = Processes(2)(one_thread_settings, range(4))
    assert {outcome.value for outcome in swept.outcomes if outcome} == {("1", "1")}
    assert os.environ["OMP_NUM_THREADS"] == "7"


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_cell_that_fails_twice_has_its_reason_and_the_others_their_values(jobs: int) -> None:
    swept = Processes(jobs)(fail_there, range(10))
    assert swept.outcomes[7] == Outcome(None, "ZeroDivisionError: 7 cannot be")
    assert [o.value for o in swept.outcomes if o and o.failed_reason is None] == [n for n in range(10) if n != 7]


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_cell_that_fails_once_is_tried_again(jobs: int, tmp_path: Path) -> None:
    swept = Processes(jobs)(Fault(fail_once, str(tmp_path)), range(6))
    assert [outcome.value for outcome in swept.outcomes if outcome] == list(range(6))
    assert len(list(tmp_path.iterdir())) == 1


def test_a_stated_error_is_the_reason_in_its_own_words_and_is_not_tried_again() -> None:
    assert in_this_process(refuse, [3]).outcomes == [Outcome(None, "cell: got 3, allowed: none")]


@pytest.mark.parametrize("kind", [die, die_while_answering])
def test_a_process_killed_once_costs_nothing(kind: Callable[[], None], tmp_path: Path) -> None:
    swept = Processes(2)(Fault(kind, str(tmp_path), times=1), range(20))
    assert [outcome.value for outcome in swept.outcomes if outcome] == list(range(20))


def test_a_cell_that_always_kills_its_process_is_found_and_no_other_is_blamed(tmp_path: Path) -> None:
    swept = Processes(2)(Fault(die, str(tmp_path), times=9), range(12))
    assert swept.outcomes[5] == Outcome(None, DIED)
    assert [o.value for o in swept.outcomes if o and o.failed_reason is None] == [n for n in range(12) if n != 5]


def test_one_process_where_the_rest_is_short_and_never_more_than_there_are_cpus() -> None:
    assert jobs_that_pay_off(1.0, 25, 75, cpus=16) == 1
    assert jobs_that_pay_off(1.0, 25, 250, cpus=16) == 5
    assert jobs_that_pay_off(1.0, 25, 100_000, cpus=16) == 16


@pytest.mark.parametrize(("cells", "workers"), [(1, 8), (7, 2), (100, 3), (5000, 2)])
def test_chunks_hold_every_cell_once_and_leave_work_for_all(cells: int, workers: int) -> None:
    found = chunks(square, range(cells), workers)
    assert [place for chunk in found for place in chunk.places] == list(range(cells))
    assert [cell for chunk in found for cell in chunk.cells] == list(range(cells))
    assert len(found) >= min(cells, workers)


def test_whatif_is_the_same_bit_for_bit_in_any_number_of_processes(run: Run, reference_case: Path) -> None:
    question = ("whatif", reference_case, "--vary", f"workload.input_tokens={LENGTHS}", "--draws", 100, "--json")
    one, two = (run(*question, "--jobs", jobs) for jobs in (1, 2))
    assert one.exit_code == two.exit_code == 0
    assert one.stdout == two.stdout
    answer = json.loads(one.stdout)
    assert (answer["complete"], answer["rows_done"], answer["rows_total"]) == (True, 12, 12)


@pytest.mark.skipif(not PROGRAM.exists(), reason="draftcast is not installed beside this Python")
def test_a_folder_with_the_name_of_a_room_in_the_working_folder_is_not_taken_for_it(
    reference_case: Path, tmp_path: Path
) -> None:
    for room in ("draftcast", "simulator"):
        (tmp_path / room).mkdir()
        (tmp_path / room / "__init__.py").write_text("")
    question = ["whatif", reference_case, "--vary", "workload.input_tokens=500,1000", "--draws", "100", "--jobs", "2"]
    done = subprocess.run([PROGRAM, *question], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, "failed" in done.stdout) == (0, False), done.stderr


def test_a_failed_row_is_reported_and_the_command_ends_with_1(
    run: Run, reference_case: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import simulator.predict as module

    good = module.predict

    def fragile(deployment, **settings):  # type: ignore[no-untyped-def]
        if deployment.workload.input_tokens == 200:
            raise MemoryError("too little")
        return good(deployment, **settings)

    monkeypatch.setattr(module, "predict", fragile)
    question = ("whatif", reference_case, "--vary", "workload.input_tokens=100,200", "--draws", 100, "--jobs", 1)
    result = run(*question, "--json")
    assert result.exit_code == 1
    first, second = json.loads(result.stdout)["rows"]
    assert second == {"vary": {"workload.input_tokens": 200}, "failed_reason": "MemoryError: too little"}
    assert first["speedup"]["p50"] > 0
    assert result.stderr.splitlines()[-1] == "Error: 1 row failed, after a retry; the others are kept"
    assert "MemoryError: too little" in run(*question).stdout


def said_by(program: str, folder: Path, *arguments: Path) -> tuple[str, str]:
    """What a program that sweeps prints, and its errors; it ends well, and within a minute."""
    script = folder / "interrupted.py"
    script.write_text(program)
    process = subprocess.run(
        [sys.executable, script, *arguments],
        env={**os.environ, "PYTHONPATH": f"{CHECKOUT}:{CHECKOUT / 'tests'}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return process.stdout, process.stderr


HALF_AN_ANSWER = """
import sys, time
import sweep_cells
from draftcast.scale.local import Processes

def interrupt(done, total):
    time.sleep(1)  # until the other process has sent the first half
    raise KeyboardInterrupt

if __name__ == "__main__":
    swept = Processes(2)(sweep_cells.Fault(sweep_cells.stop_while_answering, sys.argv[1]), range(6), interrupt)
    print(swept.stopped)
"""


def test_ctrl_c_ends_the_program_though_a_process_has_sent_half_of_its_answer(tmp_path: Path) -> None:
    (tmp_path / "faults").mkdir()
    assert said_by(HALF_AN_ANSWER, tmp_path, tmp_path / "faults") == ("interrupted\n", "")


TELLING = """
import sys
from draftcast.progress import RowProgress
RowProgress.__call__ = lambda self, done, total: print("row", file=sys.stderr, flush=True)
from draftcast.start import main
raise SystemExit(main())
"""


def sweep_arguments(deployment: Path, jobs: int) -> list[str]:
    """2500 rows, a minute of work."""
    keys = [f"workload.{name}_tokens={','.join(map(str, range(100, 5100, 100)))}" for name in ("input", "output")]
    vary = [text for key in keys for text in ("--vary", key)]
    return [sys.executable, "-c", TELLING, "whatif", str(deployment), *vary, "--jobs", str(jobs), "--json"]


IN_A_LOCK = """
import os, signal, threading
import sweep_cells
from draftcast.scale.local import Processes

told = []

def take_back(self, state):
    if told and threading.current_thread() is threading.main_thread():
        os.kill(os.getpid(), signal.SIGINT)
    self._lock.acquire()

threading.Condition._acquire_restore = take_back
if __name__ == "__main__":
    swept = Processes(2)(sweep_cells.square, range(4000), lambda done, total: told.append(done))
    print(swept.stopped, 0 < swept.done < 4000)
"""


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_to_end_keeps_the_rows_that_are_done(
    jobs: int, number: signal.Signals, code: int, reference_case: Path
) -> None:
    process = subprocess.Popen(
        sweep_arguments(reference_case, jobs),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=CHECKOUT,
        start_new_session=True,
    )
    assert process.stderr is not None
    assert process.stderr.readline() == b"row\n"
    os.killpg(process.pid, number)  # as a terminal does: the workers get it as well
    out, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert b"Traceback" not in err
    answer = json.loads(out)
    assert answer["complete"] is False
    assert answer["stopped_reason"] == "interrupted"
    assert answer["rows_total"] == 2500
    assert 0 < answer["rows_done"] == len(answer["rows"]) < 2500


def test_closing_the_terminal_keeps_what_goes_to_a_file(reference_case: Path, tmp_path: Path) -> None:
    def own_terminal() -> None:
        fcntl.ioctl(2, termios.TIOCSCTTY, 0)

    ours, theirs = pty.openpty()
    with (tmp_path / "rows.json").open("wb") as file:
        process = subprocess.Popen(
            sweep_arguments(reference_case, 2),
            stdin=theirs,
            stdout=file,
            stderr=theirs,
            cwd=CHECKOUT,
            start_new_session=True,
            preexec_fn=own_terminal,
        )
    os.close(theirs)
    assert os.read(ours, 3) == b"row"
    os.close(ours)
    assert process.wait(60) == 129
    assert json.loads((tmp_path / "rows.json").read_text())["rows_done"] > 0


def test_no_process_outlives_a_program_that_is_killed(reference_case: Path) -> None:
    process = subprocess.Popen(
        sweep_arguments(reference_case, 2), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=CHECKOUT
    )
    assert process.stderr is not None
    assert process.stderr.readline() == b"row\n"
    process.kill()
    process.communicate(timeout=60)  # until no process has its stderr open


def test_ctrl_c_while_a_lock_is_taken_back_is_as_at_any_other_moment(tmp_path: Path) -> None:
    assert said_by(IN_A_LOCK, tmp_path) == ("interrupted True\n", "")


def test_jobs_takes_a_count(run: Run, reference_case: Path) -> None:
    result = run("whatif", reference_case, "--vary", "workload.input_tokens=1", "--jobs", 0)
    assert result.exit_code == 2
    assert "0 is not in the range" in result.stderr


def test_simulate_is_the_same_bit_for_bit_in_any_number_of_processes(run: Run, small: Path) -> None:
    question = ("simulate", small, "--requests", 60, "--runs", 4, "--draws", 5, "--json")
    one, two = (run(*question, "--jobs", jobs) for jobs in (1, 2))
    assert one.exit_code == two.exit_code == 0
    assert one.stdout == two.stdout
    assert json.loads(one.stdout)["runs"]["done"] == 4


def test_the_page_says_how_much_the_speedup_depends_on_the_seed(run: Run, small: Path) -> None:
    page = run("simulate", small, "--requests", 60, "--runs", 3).stdout
    assert "in the median of 3 of 3 runs" in page
