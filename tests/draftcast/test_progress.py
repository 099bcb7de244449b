import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from draftcast import load, whatif
from draftcast.progress import Progress, RowProgress


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


def test_rows_say_nothing_where_stderr_is_no_terminal(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    on_a_terminal(monkeypatch, False)
    progress = RowProgress()
    clock.now_s += 60
    progress(50, 100)
    progress.close()
    assert capsys.readouterr() == ("", "")


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


@pytest.mark.parametrize("kind", [Progress, RowProgress])
def test_a_closed_stderr_is_no_trace(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    kind().close()


def test_whatif_counts_every_row_also_those_that_cannot_be(reference_case: Path) -> None:
    calls: list[tuple[int, int]] = []
    vary = {"engine.tensor_parallel_size": [8, 3]}
    whatif(load(reference_case), vary, num_draws=100, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(1, 2), (2, 2)]
