"""Hand-made tables, nccl-tests output and draftcast's own run file."""

import json
from pathlib import Path

import pytest

from calibration.readers.read import read_evidence
from hwmodel.errors import InputError

NCCL = Path(__file__).parents[1] / "data" / "nccl"


def _table(tmp_path, text, encoding="utf-8"):
    path = tmp_path / "table.csv"
    path.write_bytes(text.encode(encoding))
    return read_evidence([path])


@pytest.mark.parametrize(
    "text",
    [
        "concurrency,tpot_ms\n1,13.6\n4,15\n",
        "concurrency;tpot_ms\n1;13,6\n4;15\n",
        "Concurrency\tTPOT (ms)\n1\t13.6\n4\t15\n",
        "concurrency,tpot_s\n1,0.0136\n4,0.015\n",
        "\ufeff# measured on Monday\n\n users , mean_tpot_ms \n 1 , 13.6 # warm\n4,15\n",
        'concurrency,tpot_us\r\n"1","13600"\r\n4,15000\r\n',
    ],
)
def test_units_separators_and_noise_around_the_rows(tmp_path, text):
    cells = _table(tmp_path, text).cells
    assert [(cell.concurrency, cell.tpot_s) for cell in cells] == [
        (1, pytest.approx(0.0136)),
        (4, pytest.approx(0.015)),
    ]


def test_a_table_of_powershell_is_read(tmp_path):
    assert len(_table(tmp_path, "concurrency,tpot_ms\r\n1,13.6\r\n", "utf-16").cells) == 1


def test_every_column_has_its_place(tmp_path):
    header = (
        "concurrency,tpot_ms,step_ms,throughput_tokens_per_s,num_speculative_tokens,method,context_tokens,"
        "relative_noise,allreduce_share,gpu"
    )
    evidence = _table(tmp_path, f"{header}\n4,10,25,390,3,mtp,1500,0.02,51.5%,H200\n")
    cell = evidence.cells[0]
    assert (cell.tpot_s, cell.step_s) == (pytest.approx(0.010), pytest.approx(0.025))
    assert cell.tokens_per_step == pytest.approx(2.5)
    assert (cell.num_speculative_tokens, cell.method, cell.context_tokens) == (3, "mtp", 1500)
    assert (cell.relative_noise, cell.allreduce_share) == (0.02, pytest.approx(0.515))
    assert any("columns not used: gpu" in note for note in evidence.notes)


def test_a_step_time_without_speculation_is_the_time_per_token(tmp_path):
    cell = _table(tmp_path, "concurrency,step_ms,k\n4,12,0\n").cells[0]
    assert cell.tpot_s == cell.step_s == pytest.approx(0.012)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("concurrency,tpot\n1,13\n", "column 'tpot' without a unit"),
        ("concurrency,throughput\n1,13\n", "column 'throughput' without a unit"),
        ("concurrency,tpot_ms\n", "a header without a row"),
        ("concurrency,tpot_ms\n1,fast\n", "tpot_ms = 'fast'"),
        ("concurrency,tpot_ms\n0,13\n", "concurrency 0"),
        ("concurrency,tpot_ms\n,13\n", "concurrency missing"),
        ("concurrency,tpot_ms,tpot_s\n1,13,0.013\n", "for one value"),
        ("concurrency,tpot_ms\n1,13,6\n", "3 values for 2 columns"),
        ("concurrency,tpot_ms,k\n1,13,2.5\n", "num_speculative_tokens"),
        ("concurrency,allreduce_share\n1,51.5\n", "a share from 0 to 1"),
        ("concurrency,tpot_ms\n1,-13\n", "a number from 0"),
    ],
)
def test_what_cannot_be_meant_is_one_line_with_its_place(tmp_path, text, words):
    with pytest.raises(InputError) as caught:
        _table(tmp_path, text)
    assert words in str(caught.value)
    assert "table.csv" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("row", "words"),
    [("4,13.6,9000", "one of the two is wrong"), ("4,,", "no time"), ("4,900000,", "another unit?")],
)
def test_rows_that_contradict_themselves_are_refused_alone(tmp_path, row, words):
    evidence = _table(tmp_path, f"concurrency,tpot_ms,throughput_tokens_per_s\n1,13.6,73\n{row}\n")
    assert len(evidence.cells) == 1
    assert words in evidence.refused[0].reason
    assert evidence.refused[0].source.endswith("line 3")


@pytest.mark.parametrize(
    ("text", "tokens_per_s"),
    [
        ('concurrency,tpot_ms,tok_s\n1,13.6,73\n64,39.4,"1,600"\n', 1600.0),
        ('concurrency,tok_s\n1,73.5\n64,"1,600.5"\n', 1600.5),
        ("concurrency;tpot_ms;tok_s\n1;13,6;73\n64;39,4;1.600\n", 1600.0),
        ("concurrency;tok_s\n1;73,5\n64;1.600,5\n", 1600.5),
        ("concurrency;tok_s\n1;73,612\n64;1600,125\n", 1600.125),
        ('concurrency,tok_s\n1,73\n64,"1,234,567"\n', 1234567.0),
        ("concurrency;tok_s\n1;73\n64;1600.125\n", 1600.125),
    ],
)
def test_marks_of_decimals_and_thousands_are_told_by_the_other_cells(tmp_path, text, tokens_per_s):
    assert _table(tmp_path, text).cells[1].throughput_tokens_per_s == tokens_per_s


@pytest.mark.parametrize(
    "text",
    [
        'concurrency,tok_s\n1,73\n64,"1,600"\n',
        "concurrency\ttok_s\n1\t73\n64\t1,600\n",
        "concurrency;tpot_ms\n1;39.4\n64;13,612\n",
        'concurrency,tpot_ms,tok_s\n1,13.6,"73,5"\n64,39.4,"1,600"\n',
    ],
)
def test_a_mark_that_may_mean_either_is_refused(tmp_path, text):
    with pytest.raises(InputError, match=r"line 3.*without a mark between thousands"):
        _table(tmp_path, text)


def test_nccl_tests_are_points_of_their_ranks(tmp_path):
    path = NCCL / "nccl_allreduce_rtxpro6000_server_8gpu_pcie5.txt"
    points = {point.num_bytes: point for point in read_evidence([path]).collectives}
    assert points[524288].time_s == pytest.approx(156.11e-6)
    assert {point.num_ranks for point in points.values()} == {8}


def test_runs_on_several_numbers_of_gpus_in_one_file_are_kept_apart(tmp_path):
    path = tmp_path / "all.txt"
    names = ("nccl_allreduce_rtxpro6000_server_8gpu_pcie5.txt", "nccl_allreduce_rtxpro6000_server_4gpu_pcie5.txt")
    path.write_text("".join((NCCL / name).read_text() for name in names))
    points = read_evidence([path]).collectives
    times = {point.num_ranks: point.time_s for point in points if point.num_bytes == 524288}
    assert times == {8: pytest.approx(156.11e-6), 4: pytest.approx(78.08e-6)}


def test_a_collective_over_several_hosts_is_told(tmp_path):
    path = tmp_path / "two-hosts.txt"
    text = (NCCL / "nccl_allreduce_rtxpro6000_server_8gpu_pcie5.txt").read_text()
    for rank in range(8):
        text = text.replace(f"Rank  {rank} Group  0 ", f"Rank  {rank} Group  0 Pid 7 on host{rank // 4} ")
    path.write_text(text)
    evidence = read_evidence([path])
    assert {point.num_ranks for point in evidence.collectives} == {8}
    assert any("over 2 hosts (8 GPUs)" in note for note in evidence.notes)


def test_nccl_tests_json_is_recognised(tmp_path):
    path = tmp_path / "run.json"
    block = {"time": 100.0, "alg_bw": 10.48576, "bus_bw": 18.35008, "nwrong": 0.0}
    row = {"size": 1048576, "count": 262144, "type": "float", "redop": "sum", "root": "-1", "out_of_place": block}
    config = {"nthreads": 1, "ngpus": 8, "devices": [{"group": 0, "hostname": "a", "device_info": "NVIDIA L40S"}]}
    out_of_bounds = {"count": 0, "okay": "true"}
    path.write_text(
        json.dumps({"nccl_version": 22807, "config": config, "results": [row], "out_of_bounds": out_of_bounds})
    )
    (point,) = read_evidence([path]).collectives
    assert (point.num_bytes, point.num_ranks, point.gpus) == (1048576, 8, ("NVIDIA L40S",))
    assert point.time_s == pytest.approx(100e-6)


RUN = {
    "cells": [
        {
            "concurrency": 4,
            "num_speculative_tokens": 3,
            "tpot_s": {"mean": 0.010, "p50": 0.0099, "stderr": 0.0002},
            "step_s": 0.025,
            "tokens_per_step": 2.5,
            "throughput_tokens_per_s": 390.0,
            "ttft_s": {"p50": 0.05},
            "acceptance": {"drafts": 1000, "accepted_per_position": [700, 500, 300], "accepted_tokens": 1500},
            "something_new": [1, 2],
        },
        {"concurrency": 8, "error": "connection lost"},
    ],
    "server": {"engine": "vllm", "version": "0.20.2", "model": "org/m", "kv_cache_tokens": 1000, "added": 1},
}


def _run(tmp_path, record):
    path = tmp_path / "run.json"
    path.write_text(json.dumps(record))
    return read_evidence([path])


def test_our_own_run_file_is_read_with_added_keys(tmp_path):
    evidence = _run(tmp_path, RUN)
    cell = evidence.cells[0]
    assert (cell.concurrency, cell.tpot_s, cell.step_s, cell.tokens_per_step) == (4, 0.010, 0.025, 2.5)
    assert cell.relative_noise == pytest.approx(0.02)
    assert (cell.engine, cell.engine_version, cell.model) == ("vllm", "0.20.2", "org/m")
    assert cell.acceptance.accepted_per_position == (700, 500, 300)
    assert evidence.refused[0].reason == "connection lost"


def test_a_run_files_counters_are_checked_too(tmp_path):
    record = json.loads(json.dumps(RUN))
    record["cells"][0]["acceptance"]["accepted_tokens"] = 400
    evidence = _run(tmp_path, record)
    assert evidence.cells[0].acceptance is None
    assert any("both are one number" in item.reason for item in evidence.refused)


def test_a_baselines_step_is_its_time_per_token(tmp_path):
    record = {"cells": [{"concurrency": 1, "tpot_s": 0.0136, "num_speculative_tokens": 0}], "server": {}}
    cell = _run(tmp_path, record).cells[0]
    assert (cell.step_s, cell.tokens_per_step) == (0.0136, 1.0)
