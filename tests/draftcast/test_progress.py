import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from draftcast import load, whatif
from draftcast.progress import LoadProgress, Progress, RowProgress
from validate.measure.cell_run import Progress as CellProgress
from validate.measure.load_run import RunProgress


class Clock:
    """Seconds that pass only when told to."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    """The clock that the module under test reads."""
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    return clock


def on_a_terminal(monkeypatch: pytest.MonkeyPatch, answer: bool) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: answer, raising=False)


def test_rows_say_what_is_done_and_what_is_left_after_two_seconds(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    on_a_terminal(monkeypatch, True)
    progress = RowProgress()
    clock.now_s += 1.9
    progress(19, 100)
    assert capsys.readouterr().err == ""
    clock.now_s += 0.6
    progress(25, 100)
    progress(26, 100)  # not again so soon
    progress.close()
    captured = capsys.readouterr()
    assert captured.err.split() == ["25", "of", "100", "rows,", "about", "8", "s", "left"]
    assert captured.out == ""


def test_rows_say_a_line_a_minute_where_stderr_is_a_file(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    on_a_terminal(monkeypatch, False)
    progress = RowProgress()
    for done in (10, 25, 30, 50):
        clock.now_s += 40
        progress(done, 100)
    progress.close()
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(",")[0] for line in lines] == ["25 of 100 rows", "50 of 100 rows"]


def test_requests_are_said_in_lines_where_stderr_is_a_file(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    on_a_terminal(monkeypatch, False)
    progress = Progress()
    clock.now_s += 3
    progress("baseline", 1000, 2000)
    clock.now_s += 3
    progress("baseline", 1500, 2000)
    progress.close()
    assert capsys.readouterr().err == "baseline: 1,000 of 2,000 requests\n"


def of_load(half_width: float | None, left_s: float | None, run_left_s: float | None) -> RunProgress:
    return RunProgress(CellProgress(4, "measuring", 1234, half_width, left_s), 0, 3, run_left_s)


def test_a_cell_under_load_says_its_interval_and_the_time_left_for_it_and_for_all(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    on_a_terminal(monkeypatch, False)
    progress = LoadProgress()
    for half_width, left_s, run_left_s in ((0.041, 40.0, 200.0), (None, 40.0, 40.0), (None, None, None)):
        clock.now_s += 20
        progress(of_load(half_width, left_s, run_left_s))
    progress(of_load(0.5, 1.0, 1.0))  # not again so soon
    progress.close()
    assert capsys.readouterr().err.splitlines() == [
        "concurrency 4, measuring: 1,234 requests, +-4 %, 40 s left, 3 min in all",
        "concurrency 4, measuring: 1,234 requests, 40 s left",
        "concurrency 4, measuring: 1,234 requests",
    ]


def test_a_shorter_line_covers_the_longer_one_before_it_on_a_terminal(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    on_a_terminal(monkeypatch, True)
    progress = LoadProgress()
    clock.now_s += 3
    progress(of_load(0.041, 40.0, 200.0))
    clock.now_s += 3
    progress.watching(1.0, 3.0, 5.0)
    lines = capsys.readouterr().err.split("\r")
    assert len(lines[2]) == len(lines[1])
    assert lines[2].startswith("watching: 5 tokens so far, 2 s left ")


@pytest.mark.parametrize("kind", [Progress, RowProgress, LoadProgress])
def test_a_closed_stderr_is_no_trace(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    kind().close()


def test_whatif_counts_every_row_also_those_that_cannot_be(reference_case: Path) -> None:
    calls: list[tuple[int, int]] = []
    vary = {"engine.tensor_parallel_size": [8, 3]}
    whatif(load(reference_case), vary, num_draws=100, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(1, 2), (2, 2)]
