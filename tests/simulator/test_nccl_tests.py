"""nccl-tests text: every layout that releases print, and everything that must be refused in one line."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodel.errors import InputError
from hwmodel.units import KIB, US
from simulator.nccl_tests import parse_nccl_tests, read_nccl_tests

SAMPLES = Path(__file__).parents[1] / "data" / "nccl"
EIGHT = (SAMPLES / "nccl_allreduce_rtxpro6000_server_8gpu_pcie5.txt").read_text()
FOUR = (SAMPLES / "nccl_allreduce_rtxpro6000_server_4gpu_pcie5.txt").read_text()

COLUMNS = "#   size   count   type   redop   root   time   algbw   busbw #wrong   time   algbw   busbw #wrong"
FOOTER = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 12.3\n#"


def _text(*rows, num_ranks=8, columns=COLUMNS, footer=FOOTER):
    ranks = [f"#  Rank {n:2} Group  0 Pid 1211{n} on moons device {n:2} [0x4{n}] NVIDIA L40S" for n in range(num_ranks)]
    head = "# nThread 1 nGpus 8 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1"
    return "\n".join([head, "#", "# Using devices", *ranks, "#", columns, *rows, footer])


def _row(size=1048576, us=100.0, kind="float", num_ranks=8, tail="0"):
    algbw = size / us / 1e3
    busbw = algbw * 2 * (num_ranks - 1) / num_ranks
    return f" {size} {size // 4} {kind} sum -1 {us:.2f} {algbw:.2f} {busbw:.2f} {tail}"


def _points_us(text):
    record = read_nccl_tests(text, "x.txt")
    return dict(zip(record.sizes_bytes, [time / US for time in record.times_s], strict=True))


def _refused(text, match, **options):
    with pytest.raises(InputError, match=match) as caught:
        parse_nccl_tests(text, "x.txt", **options)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith("nccl-tests x.txt: got ")
    assert "; allowed: " in message


def test_a_published_run_becomes_a_curve_with_its_rows():
    curve = parse_nccl_tests(EIGHT, "run.txt", expected_ranks=8)
    assert curve.kind == "user"
    assert curve.num_gpus == 8
    assert curve.source == "nccl-tests run.txt on 8x NVIDIA RTX PRO 6000 Blackwell Server Edition"
    for size_kib, expected_us in {8: 26.67, 16: 27.04, 128: 47.75, 256: 84.79, 2048: 221.24}.items():
        assert float(curve.time_s(size_kib * KIB)) / US == pytest.approx(expected_us)
    assert curve.algorithm_at(8 * KIB) == "nccl"


def test_the_record_keeps_every_row_as_printed():
    points = _points_us(EIGHT)
    assert len(points) == 21
    assert points[524288] == pytest.approx(156.11)
    assert points[1048576] == pytest.approx(131.52)


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("nccl_allreduce_*.txt")), ids=lambda path: path.stem)
def test_every_sample_is_read(path):
    record = read_nccl_tests(path.read_text(), path.name)
    assert f"_{record.num_gpus}gpu_" in path.name
    assert list(record.sizes_bytes) == sorted(record.sizes_bytes)


def test_a_run_on_another_number_of_gpus_is_refused_with_both_numbers():
    _refused(FOUR, "a run on 4 GPUs, but the deployment reduces over 8", expected_ranks=8)


def test_the_out_of_place_time_is_preferred():
    row = "  1048576  262144  float  sum  -1  100.00  10.49  18.35  0  90.00  11.65  20.39  0"
    assert _points_us(_text(row)) == {1048576: pytest.approx(100.0)}


def test_the_in_place_time_serves_where_the_other_was_not_run():
    row = "  1048576  262144  float  sum  -1  N/A  N/A  N/A  N/A  90.00  11.65  20.39  0"
    assert _points_us(_text(row)) == {1048576: pytest.approx(90.0)}


def test_in_place_columns_of_not_available_are_read():
    row = "  1048576  262144  half  sum  -1  100.00  10.49  18.35  N/A  N/A  N/A  N/A  N/A"
    assert _points_us(_text(row)) == {1048576: pytest.approx(100.0)}


def test_the_layout_of_old_releases_is_read():
    columns = (
        "#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error"
    )
    rows = (
        "     1048576        262144   float     sum    100.0   10.49   18.35  4e-07    99.10   10.58   18.52  4e-07",
        "  1073741824     268435456   float     sum    27802   38.62   67.59  4e-07    27810   38.61   67.57  4e-07",
    )
    assert _points_us(_text(*rows, columns=columns)) == {
        1048576: pytest.approx(100.0),
        1073741824: pytest.approx(27802.0),
    }


def test_repeated_sizes_are_averaged_over_types_and_runs():
    text = _text(_row(us=100.0), _row(us=110.0, kind="half")) + "\n" + _text(_row(us=120.0, kind="bfloat16"))
    assert _points_us(text) == {1048576: pytest.approx(110.0)}


def test_rows_of_no_bytes_are_left_out():
    zero = "           0             0     float     sum      -1     5.91    0.00    0.00      0"
    assert list(_points_us(_text(zero, _row()))) == [1048576]


def test_noise_of_launchers_terminals_and_nccl_is_ignored():
    text = _text(
        "node1:39155:39155 [0] NCCL INFO Using network IB", "node1:1:1 [0] NCCL WARN Call to ibv failed", _row()
    )
    tagged = "\n".join(f"[1,0]<stdout>:{line}" for line in text.splitlines())
    srun = "\n".join(f" 0: {line}" for line in text.splitlines())
    coloured = text.replace("# Avg", "\x1b[1m# Avg").replace("\n", "\x1b[0m\r\n")
    assert _points_us(tagged) == _points_us(srun) == _points_us(coloured) == {1048576: pytest.approx(100.0)}


def test_bare_rows_tell_the_number_of_gpus_by_their_bandwidths():
    record = read_nccl_tests("\n".join([_row(num_ranks=4), _row(size=8192, us=20.0, num_ranks=4)]), "rows.txt")
    assert record.num_gpus == 4
    assert record.gpus == ()
    assert parse_nccl_tests(_row(num_ranks=4), "rows.txt").source == "nccl-tests rows.txt on 4 GPUs"


@pytest.mark.parametrize("wrong", ["7", "0  99.00  10.59  18.53  3"])
def test_wrong_results_are_refused(wrong):
    _refused(_text(_row(tail=wrong)), "wrong results at 1048576 bytes")


def test_unchecked_results_are_accepted():
    assert _points_us(_text(_row(tail="N/A"))) == {1048576: pytest.approx(100.0)}


@pytest.mark.parametrize(
    "text", ["", "   \n\n", "hello\nworld", "\x00\x01\x02", (SAMPLES / "nccl_graph_fragment.txt").read_text()]
)
def test_text_without_a_result_is_refused(text):
    _refused(text, "no result row")


def test_a_header_alone_is_refused():
    _refused(_text(footer=""), "a header without a result row")


def test_a_run_without_its_closing_line_is_refused():
    _refused(_text(_row(), footer=""), "cut short")


def test_a_row_that_ends_early_is_refused():
    _refused(_text(_row(), "  2097152   524288   float  sum  -1   19"), "line 15 cut short")


@pytest.mark.parametrize(
    "line",
    [
        "node1: Test NCCL failure common.cu:1005 'unhandled cuda error'",
        "node1: Test CUDA failure common.cu:892 'out of memory'",
        " .. node1 pid 17: Test failure common.cu:401",
        "# Out of bounds values : 12 FAILED",
    ],
)
def test_a_failed_run_is_refused(line):
    _refused(_text(_row(), line), "a failed run")


@pytest.mark.parametrize(
    "name", ["all_gather_perf", "reduce_scatter_perf", "alltoall_perf", "reduce_perf", "broadcast_perf"]
)
def test_another_collective_is_refused_by_name(name):
    _refused(f"# Collective test starting: {name}\n" + _text(_row()), f"a run of {name}")


def test_the_collectives_own_name_is_fine():
    assert _points_us("# Collective test starting: all_reduce_perf\n$ mpirun ./all_reduce_perf -b 8\n" + _text(_row()))


def test_another_collective_is_refused_by_its_columns():
    _refused(_text(" 1048576 262144 float none -1 100.00 10.49 9.18 0"), "another collective")
    _refused(_text(" 1048576 262144 float sum 0 100.00 10.49 10.49 0"), "another collective")


def test_another_collective_is_refused_by_its_bandwidth_factor():
    # reduce_scatter prints the same columns, with busbw / algbw = (n - 1) / n.
    _refused(_text(" 1048576 262144 float sum -1 100.00 10.49 9.18 0"), r"busbw / algbw = 0\.88")
    _refused(" 1048576 262144 float sum -1 100.00 10.49 9.18 0", r"busbw / algbw = 0\.88")


def test_runs_on_different_numbers_of_gpus_are_refused():
    _refused(EIGHT + "\n" + FOUR, "runs on 4 and 8 GPUs in one file")


@pytest.mark.parametrize("time", ["0.00", "1e400"])
def test_a_time_that_is_none_is_refused(time):
    _refused(_text(f" 1048576 262144 float sum -1 {time} 10.49 18.35 0"), "at 1048576 bytes")


def test_a_run_on_one_gpu_is_refused():
    _refused(_text(" 1048576 262144 float sum -1 100.00 10.49 0.00 0", num_ranks=1), "a run on 1 GPU")


def test_a_huge_file_is_refused_before_it_is_read():
    _refused("#" * 4_000_001, "4000001 characters")


@given(st.integers(0, len(EIGHT)))
def test_a_file_cut_anywhere_is_refused_or_whole(position):
    cut = EIGHT[:position]
    try:
        record = read_nccl_tests(cut, "cut.txt")
    except InputError as error:
        message = str(error)
    else:
        message = ""
        assert len(record.sizes_bytes) == 21
    assert "\n" not in message


@given(st.text(max_size=300))
def test_any_text_is_refused_or_read_without_a_traceback(text):
    try:
        read_nccl_tests(_text(_row(), text), "any.txt")
    except InputError as error:
        message = str(error)
    else:
        message = ""
    assert "\n" not in message


def test_times_of_the_cpu_are_refused():
    columns = COLUMNS.replace("time", "cputime")
    _refused(_text(_row(), columns=columns), "times of the CPU")


@pytest.mark.parametrize("tail", ["1.31072e+06", "0 100.00 10.49 18.35 5.2e+07"])
def test_wrong_results_in_millions_are_refused_as_single_ones_are(tail):
    _refused(_text(_row(tail=tail)), "wrong results at 1048576 bytes")


@pytest.mark.parametrize(("name", "value"), [("timestamp", "2025-11-20 10:11:12"), ("#iters", "20")])
def test_columns_behind_the_known_ones_are_left_out(name, value):
    row = _row(tail=f"0 101.00 10.38 18.17 0   {value}")
    assert _points_us(_text(row, columns=f"{COLUMNS} {name}")) == {1048576: pytest.approx(100.0)}


def test_columns_between_the_known_ones_are_refused():
    columns = COLUMNS.replace("#wrong   time", "#wrong esttime time")
    _refused(_text(_row(), columns=columns), "esttime")


def test_groups_of_a_split_run_count_as_the_gpus_of_one_group():
    rows = (_row(size=1024, us=20.0, num_ranks=4), _row(num_ranks=4))
    text = _text(*rows)
    for rank in range(8):
        text = text.replace(f"Rank {rank:2} Group  0", f"Rank {rank:2} Group {rank % 2:2}")
    assert read_nccl_tests(text, "x.txt").num_gpus == 4
    _refused(text.replace("Rank  1 Group  1", "Rank  1 Group  0"), r"groups of \[3, 5\] GPUs")


def test_hosts_of_the_header_are_counted():
    text = _text(_row())
    assert read_nccl_tests(text, "x.txt").num_hosts == 1
    assert read_nccl_tests(text.replace("12111 on moons", "12111 on stars"), "x.txt").num_hosts == 2


def _json(wrong=0.0, time="time", program="./all_reduce_perf", processes=1, gpus=8):
    block = {time: 100.0, "alg_bw": 10.48576, "bus_bw": 18.35008, "nwrong": wrong}
    row = {"size": 1048576, "count": 262144, "type": "float", "redop": "sum", "root": "    -1"}
    device = {"rank": 0, "group": 0, "hostname": "moons", "device": 0, "device_info": "NVIDIA L40S"}
    return {
        "version": 1,
        "args": [program, "-b", "8"],
        "env": ["TOKEN=secret"],
        "nccl_version": 22807,
        "config": {"nthreads": 1, "ngpus": gpus, "devices": [device] * processes},
        "results": [{**row, "out_of_place": block, "in_place": block}],
        "out_of_bounds": {"count": 0, "okay": "true"},
    }


@pytest.mark.parametrize(("processes", "gpus"), [(1, 8), (8, 1)])
def test_the_json_of_a_run_says_what_its_text_says(processes, gpus):
    record = read_nccl_tests(json.dumps(_json(processes=processes, gpus=gpus)), "x.json")
    assert (record.num_gpus, record.gpus) == (8, ("NVIDIA L40S",))
    assert record.times_s == pytest.approx((100e-6,))
    assert read_nccl_tests(json.dumps(_json(wrong=None)), "x.json").num_gpus == 8


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"wrong": 3.0}, "wrong results"),
        ({"time": "cpu_time"}, "times of the CPU"),
        ({"program": "/opt/all_gather_perf"}, "all_gather_perf"),
        ({"gpus": 4}, "busbw / algbw"),
    ],
)
def test_the_json_of_a_run_is_refused_where_its_text_is(change, match):
    _refused(json.dumps(_json(**change)), match)


def test_json_of_a_run_that_was_killed_is_refused():
    record = _json()
    del record["out_of_bounds"]
    _refused(json.dumps(record), "cut short")
