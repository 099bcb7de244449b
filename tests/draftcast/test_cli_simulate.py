"""`draftcast simulate` from the outside: JSON, page, files, errors, Ctrl-C."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from strict_json import strict

import draftcast

Run = Callable[..., Result]

CHECKOUT = Path(__file__).parent.parent.parent


def test_json_is_one_object_and_the_first_concurrency_is_the_default(run: Run, small: Path) -> None:
    result = run("simulate", small, "--requests", 60, "--json")
    assert result.exit_code == 0
    assert result.stdout.count("\n") == 1
    answer = strict(result.stdout)
    assert answer["inputs"]["arrivals"] == "closed:4"
    assert answer["baseline"]["requests"] == 60
    assert answer["speedup"]["p50"] > 0


def test_the_page_names_speedup_percentiles_and_engine_and_fits_80_columns(run: Run, small: Path) -> None:
    page = run("simulate", small, "--requests", 60, "--set", "objective.ttft_ms_max=50").stdout
    assert "x as fast (90 % interval" in " ".join(page.split())
    for words in ("time to first token", "p99", "output tokens per second", "preemptions", "goodput"):
        assert words in page
    assert max(map(len, page.splitlines())) <= 80


def test_every_option_reaches_the_simulation(run: Run, small: Path, tmp_path: Path) -> None:
    records, trace = tmp_path / "r.csv", tmp_path / "t.json"
    options = ("-k", 2, "--arrivals", "poisson:20", "--requests", 40, "--seed", 3, "--draws", 2, "--outage",
               "at=0.5,duration=1", "--records", records, "--trace", trace, "--json")  # fmt: skip
    answer = strict(run("simulate", small, *options).stdout)
    inputs = answer["inputs"]
    assert (inputs["num_speculative_tokens"], inputs["arrivals"], inputs["seed"]) == (2, "poisson:20", 3)
    assert answer["speedup_basis"] == "parameter draws"
    assert answer["outage"]["baseline"]["happened"]
    assert len(records.read_text(encoding="utf-8").splitlines()) == 1 + 2 * 40
    assert strict(trace.read_text(encoding="utf-8"))["traceEvents"]


def test_the_page_of_an_outage_says_what_it_cost(run: Run, small: Path) -> None:
    page = run("simulate", small, "--arrivals", "poisson:20", "--requests", 40, "--outage", "at=0.5,duration=1").stdout
    words = " ".join(page.split())
    assert "lost and sent again" in words
    assert "in the queue at the restart" in words


def test_the_same_command_prints_the_same_bytes(run: Run, small: Path) -> None:
    first, second = (run("simulate", small, "--requests", 40, "--json").stdout for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--arrivals", "poisson:-1"), 1),
        (("--arrivals", "trace:absent.csv"), 1),
        (("--outage", "soon"), 1),
        (("--records", "/absent/folder/r.csv"), 1),
        (("--acceptance-steps", "absent.jsonl"), 1),
        (("--requests", "0"), 2),
        (("--draws", "-1"), 2),
        (("--method", "egale3"), 1),
    ],
)
def test_bad_options_are_one_line_and_an_exit_code(run: Run, small: Path, options: tuple[str, ...], code: int) -> None:
    result = run("simulate", small, *options)
    assert result.exit_code == code
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert result.stderr.strip().count("\n") <= (0 if code == 1 else 4)


def test_the_facade_has_simulate(small: Path) -> None:
    answer = draftcast.simulate(draftcast.load(small), num_requests=20).to_dict()
    assert answer["baseline"]["requests"] == 20


def test_predict_does_not_load_the_event_kernel() -> None:
    code = "import sys; import draftcast.api; print(sorted(m for m in sys.modules if m.startswith(('simpy', 'scipy'))))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=CHECKOUT)
    assert done.stdout.strip() == "[]"


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_ctrl_c_prints_the_partial_result_and_leaves_no_file(small: Path, tmp_path: Path) -> None:
    records = tmp_path / "records.csv"
    command = [sys.executable, "-c", "from draftcast.cli import main; import sys; sys.exit(main())"]
    options = ["simulate", str(small), "--requests", "1000000", "--records", str(records), "--json"]
    process = subprocess.Popen(
        [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=CHECKOUT, env=os.environ
    )
    part = Path(f"{records}.part")
    for _ in range(600):  # until it writes: the run has begun
        if part.exists() and part.stat().st_size > 0:
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    answer = strict(stdout)
    assert answer["partial"] is True
    assert answer["baseline"]["requests"] > 0
    assert "Traceback" not in stderr
    assert not records.exists()
    assert not part.exists()
