"""Folders of `vllm bench sweep serve`: repeated runs pooled, warm-ups and failures named, nothing counted twice."""

import csv
import json

import pytest
from recorded import RESULT

from calibration.readers.read import read_evidence
from hwmodel.errors import InputError


@pytest.fixture
def sweep(tmp_path):
    """Two settings with three runs each; the summary repeats them, as the tool writes it."""
    every = []
    for users in (4, 8):
        folder = tmp_path / "exp" / f"SERVE--k=0-BENCH--c={users}"
        folder.mkdir(parents=True)
        runs = []
        for number, tpot in enumerate((9.8, 10.0, 10.2)):
            run = RESULT | {"max_concurrency": users, "duration": 42.0 / users, "mean_tpot_ms": tpot}
            run |= {"date": f"2026-{users}-{number}", "run_number": number, "speculative_config": None}
            (folder / f"run={number}.json").write_text(json.dumps(run))
            runs.append(run)
        (folder / "summary.json").write_text(json.dumps(runs))
        every += runs
    with (tmp_path / "exp" / "summary.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["", *every[0]])
        writer.writeheader()
        writer.writerows({"": index, **run} for index, run in enumerate(every))
    return tmp_path / "exp"


def test_runs_of_one_setting_become_one_cell_with_their_scatter(sweep):
    evidence = read_evidence([sweep])
    assert [cell.concurrency for cell in evidence.cells] == [4, 8]
    assert all(cell.tpot_s == pytest.approx(0.010) for cell in evidence.cells)
    assert all(cell.num_requests == 120 for cell in evidence.cells)
    assert all(cell.num_speculative_tokens == 0 for cell in evidence.cells)
    assert any("mean of 3 runs that scatter by 2.0 %" in note for note in evidence.cells[0].notes)


def test_the_summary_alone_says_the_same(sweep):
    for name in ("SERVE--k=0-BENCH--c=4/summary.json", "summary.csv"):
        evidence = read_evidence([sweep / name])
        assert evidence.cells[0].tpot_s == pytest.approx(0.010)
        assert evidence.cells[0].num_requests == 120


def test_noise_falls_with_the_number_of_runs_and_never_to_nothing(sweep):
    pooled = read_evidence([sweep]).cells[0].relative_noise
    single = read_evidence([sweep / "SERVE--k=0-BENCH--c=4" / "run=1.json"]).cells[0].relative_noise
    assert 0.015 <= pooled < single


def test_warm_up_and_failures_are_named(sweep):
    folder = sweep / "SERVE--k=0-BENCH--c=4"
    (folder / "warmup.json").write_text(json.dumps(RESULT | {"run_number": -1, "date": "w"}))
    failure = {"run_number": 3, "error_type": "TimeoutError", "error": "no answer", "serve_overrides": {}}
    (folder / "run=3.failure.json").write_text(json.dumps(failure))
    reasons = [item.reason for item in read_evidence([sweep]).refused]
    assert "the sweep's warm-up run" in reasons
    assert any("failed: no answer" in reason for reason in reasons)


def test_other_files_in_the_folder_are_told_and_left_alone(sweep):
    (sweep / "notes.md").write_text("# what we tried\n")
    evidence = read_evidence([sweep])
    assert any("1 files of no known format left alone (notes.md)" in note for note in evidence.notes)


def test_a_folder_without_a_measurement_is_an_error(tmp_path):
    with pytest.raises(InputError, match="an empty folder"):
        read_evidence([tmp_path])
    (tmp_path / "a.txt").write_text("hello\n")
    with pytest.raises(InputError, match="no known format"):
        read_evidence([tmp_path])
