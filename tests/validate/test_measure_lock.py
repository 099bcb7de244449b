"""Two runs never write one file: the second is refused in one line, and nothing of a lock is left behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hwmodel.errors import InputError
from validate.measure.lock import locked

CHECKOUT = Path(__file__).parents[2]
HOLD = "import sys, time; from validate.measure.lock import locked\nwith locked(sys.argv[1]): print('held', flush=True); time.sleep(60)"  # noqa: E501


def holder(path):
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], cwd=CHECKOUT, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    return process


def test_another_process_is_refused_until_the_first_has_ended(tmp_path):
    path = tmp_path / "run.json"
    first = holder(path)
    try:
        with (
            pytest.raises(InputError, match=r"run.json is being written by another draftcast measure"),
            locked(str(path)),
        ):
            pass
    finally:
        first.kill()
        first.wait()
    with locked(str(path)):  # kill -9 holds nobody up
        pass
    assert list(tmp_path.iterdir()) == []


def test_another_name_of_the_same_file_is_the_same_file(tmp_path):
    path = tmp_path / "run.json"
    (tmp_path / "other.json").symlink_to(path)
    with (
        locked(str(path)),
        pytest.raises(InputError, match="another draftcast measure"),
        locked(str(tmp_path / "other.json")),
    ):
        pass


def test_two_files_of_one_run_and_no_file_at_all_are_fine(tmp_path):
    with locked(str(tmp_path / "a"), None, str(tmp_path / "b")):
        assert sorted(path.name for path in tmp_path.iterdir()) == ["a.lock", "b.lock"]
    with locked(None):
        assert list(tmp_path.iterdir()) == []


def test_the_lock_is_gone_after_an_error(tmp_path):
    with pytest.raises(ValueError, match="x"), locked(str(tmp_path / "a")):
        raise ValueError("x")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    with pytest.raises(InputError, match=r"cannot write .*; allowed:"), locked(str(tmp_path / "no" / "run.json")):
        pass


def test_a_link_in_place_of_the_lock_is_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("kept")
    (tmp_path / "run.json.lock").symlink_to(victim)
    with pytest.raises(InputError, match="cannot write"), locked(str(tmp_path / "run.json")):
        pass
    assert victim.read_text() == "kept"


def test_ctrl_c_takes_the_lock_file_away(tmp_path):
    process = holder(tmp_path / "run.json")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert os.listdir(tmp_path) == []
