"""Torch profiler traces: kernels on GPU streams only, overlaps once, prefill left out, ranks averaged."""

import gzip
import json

import pytest

from calibration.readers.kernel_classes import class_of
from calibration.readers.read import read_evidence
from hwmodel.errors import InputError

ALLREDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
MOE, ATTENTION, GEMM = "fused_moe_kernel", "flash_fwd_splitkv_mla_kernel", "nvjet_tst_64x8_64x16"


def _kernel(name, start_us, length_us, *, stream=7, correlation=None):
    args = {"device": 0, "stream": stream, "correlation": correlation}
    return {
        "ph": "X",
        "cat": "kernel",
        "name": name,
        "pid": 0,
        "tid": stream,
        "ts": start_us,
        "dur": length_us,
        "args": args,
    }


def _mark(name, start_us, length_us, category="gpu_user_annotation"):
    return {"ph": "X", "cat": category, "name": name, "pid": 0, "tid": 7, "ts": start_us, "dur": length_us}


def _decode(number=4, tokens=None):
    return f"execute_context_0(0)_generation_{number}({tokens or number})"


def _step(start_us, name=None, allreduce_us=50.0, category="gpu_user_annotation"):
    """A step of 100 us: AllReduce, MoE, attention and GEMM one after the other; 100 us of idling follow."""
    rest = (100.0 - allreduce_us) / 3
    events = [_mark(name or _decode(), start_us, 100, category), _kernel(ALLREDUCE, start_us, allreduce_us)]
    for index, kernel in enumerate((MOE, ATTENTION, GEMM)):
        events.append(_kernel(kernel, start_us + allreduce_us + index * rest, rest))
    return events


def _steps(count=4, **options):
    return [event for index in range(count) for event in _step(200.0 * index, **options)]


def _write(path, events, rank=None, world=8):
    trace = {"schemaVersion": 1, "deviceProperties": [{"name": "GPU"}], "traceEvents": events}
    if rank is not None:
        trace["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": world}
    data = json.dumps(trace).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def _read(tmp_path, events):
    return read_evidence([_write(tmp_path / "rank0.pt.trace.json.gz", events)])


def _cell(tmp_path, events):
    return _read(tmp_path, events).cells[0]


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (ALLREDUCE, "allreduce"),
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)", "allreduce"),
        ("void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport", "allreduce"),
        ("ncclDevKernel_AllGather_RING_LL", "communication"),
        ("void vllm::moe::topkGating<8, 256>(float const*)", "moe"),
        ("marlin_moe_wna16::Marlin<...>", "moe"),
        ("void marlin::Marlin<...>", "gemm"),
        ("flash_fwd_splitkv_mla_kernel", "attention"),
        ("reshape_and_cache_flash_kernel", "attention"),
        ("void at::native::reduce_kernel<512, ArgMaxOps<float>>", "sampling"),
        ("nvjet_hsh_64x8_64x16_2x1_v_bz_TNT", "gemm"),
        ("Memcpy DtoD (Device -> Device)", "other"),
        ("void at::native::vectorized_elementwise_kernel", "other"),
    ],
)
def test_kernels_are_told_by_their_names(kernel, expected):
    assert class_of(kernel) == expected


def test_the_share_is_of_the_time_in_which_a_kernel_ran(tmp_path):
    evidence = _read(tmp_path, _steps(allreduce_us=51.5))
    cell, kernels = evidence.cells[0], evidence.kernels[0]
    assert cell.allreduce_share == pytest.approx(0.515)
    assert cell.concurrency == 4
    assert cell.step_s is None  # a profiled step is no step time
    assert any("profiler slows the host down" in item.reason for item in evidence.refused)
    assert kernels.busy_s == pytest.approx(100e-6)
    assert kernels.num_steps == 4
    assert 0.4 < kernels.idle_share < 0.5  # 100 of every 200 us, the last step without its pause
    assert dict(kernels.shares)["moe"] == pytest.approx(0.485 / 3)


def test_host_side_events_of_the_same_name_do_not_count(tmp_path):
    host = [
        {"ph": "X", "cat": "cpu_op", "name": "c10d::allreduce_", "pid": 9, "tid": 9, "ts": 0, "dur": 1e6},
        _mark("nccl:all_reduce", 0, 1e6),
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 9, "ts": 0, "dur": 1e6},
    ]
    assert _cell(tmp_path, host + _steps()).allreduce_share == pytest.approx(0.5)


def test_streams_that_overlap_are_counted_once(tmp_path):
    events = _steps()
    events += [_kernel("ncclDevKernel_AllReduce_x", 200.0 * index + 10, 40, stream=20) for index in range(4)]
    assert _cell(tmp_path, events).allreduce_share == pytest.approx(0.5)


def test_an_annotation_projected_onto_two_streams_is_one_step(tmp_path):
    events = _steps()
    events += [_mark(_decode(), 200.0 * index + 5, 90) for index in range(4)]
    assert _read(tmp_path, events).kernels[0].num_steps == 4


def test_prefill_steps_are_left_out(tmp_path):
    prefill = _step(10_000.0, name="execute_context_1(512)_generation_3(3)", allreduce_us=99.0)
    assert _cell(tmp_path, _steps() + prefill).allreduce_share == pytest.approx(0.5)


def test_drafts_in_the_annotation_tell_k(tmp_path):
    cell = _cell(tmp_path, _steps(name=_decode(4, 16)))
    assert (cell.concurrency, cell.num_speculative_tokens) == (4, 3)


def test_sglangs_annotations_tell_decode_from_extend(tmp_path):
    events = _steps(name="step[DECODE bs=4]") + _step(9_000.0, name="step[EXTEND bs=1 toks=900]", allreduce_us=99.0)
    cell = _cell(tmp_path, events)
    assert (cell.concurrency, cell.allreduce_share) == (4, pytest.approx(0.5))


def test_host_annotations_reach_the_kernels_by_their_launches(tmp_path):
    events = []
    for index in range(4):
        launch_us = 50.0 * index  # the host runs ahead of the GPU
        events.append(_mark(_decode(), launch_us, 40, "user_annotation"))
        for number, event in enumerate(_step(1000 + 200.0 * index)[1:]):
            correlation = 10 * index + number
            event["args"]["correlation"] = correlation
            events.append(event)
            events.append(
                {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": launch_us + number, "dur": 1,
                 "args": {"correlation": correlation}}
            )  # fmt: skip
    evidence = _read(tmp_path, events)
    assert evidence.kernels[0].num_steps == 4
    assert evidence.cells[0].allreduce_share == pytest.approx(0.5)


def test_without_annotations_sampling_ends_a_step_and_prefill_stands_out(tmp_path):
    events = []
    for index in range(6):
        scale = 50.0 if index == 0 else 1.0
        start = 20_000.0 * index
        events += [_kernel(ALLREDUCE, start, 50 * scale * (1.8 if index == 0 else 1))]
        events += [_kernel(MOE, start + 100 * scale, 49 * scale), _kernel("argmax_kernel", start + 150 * scale, 1)]
    cell = _cell(tmp_path, events)
    assert cell.allreduce_share == pytest.approx(0.5)
    assert cell.concurrency is None
    assert any("no step annotations" in note for note in cell.notes)


def test_ranks_of_one_run_are_averaged_and_their_spread_is_told(tmp_path):
    paths = [
        _write(tmp_path / f"r{rank}.json", _steps(allreduce_us=share), rank=rank)
        for rank, share in enumerate((40.0, 60.0))
    ]
    evidence = read_evidence(paths)
    assert len(evidence.cells) == 1
    assert evidence.cells[0].allreduce_share == pytest.approx(0.5)
    assert evidence.kernels[0].num_ranks == 2
    assert any("from 40.0 % to 60.0 % by rank" in note for note in evidence.cells[0].notes)


def test_two_files_of_one_rank_are_two_runs(tmp_path):
    paths = [
        _write(tmp_path / f"{name}.json", _steps(allreduce_us=us), rank=0) for name, us in (("a", 40.0), ("b", 60.0))
    ]
    assert len(read_evidence(paths).cells) == 2


def test_loads_of_one_trace_are_kept_apart(tmp_path):
    events = _steps(allreduce_us=40.0)
    events += [event for index in range(3) for event in _step(5_000 + 200.0 * index, _decode(8), allreduce_us=60.0)]
    shares = {cell.concurrency: cell.allreduce_share for cell in _read(tmp_path, events).cells}
    assert shares == {4: pytest.approx(0.4), 8: pytest.approx(0.6)}


def test_a_trace_that_ends_early_is_used_up_to_there(tmp_path):
    whole = json.dumps({"traceEvents": _steps(8)})
    path = tmp_path / "cut.json"
    path.write_text(whole[: int(len(whole) * 0.8)])
    cell = read_evidence([path]).cells[0]
    assert cell.allreduce_share == pytest.approx(0.5)
    assert any("cut short" in note for note in cell.notes)


def test_the_bare_array_of_chromes_format_is_read(tmp_path):
    path = tmp_path / "array.json"
    path.write_text(json.dumps(_steps(), indent=1))
    assert read_evidence([path]).cells[0].allreduce_share == pytest.approx(0.5)


def test_a_trace_of_the_host_alone_is_an_error(tmp_path):
    with pytest.raises(InputError, match="without GPU kernels"):
        _read(tmp_path, [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 0, "dur": 1}])


def test_a_damaged_archive_is_one_line(tmp_path):
    path = _write(tmp_path / "x.json.gz", _steps())
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(InputError, match="damaged or cut gzip file") as caught:
        read_evidence([path])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["decode bs=8", "my_forward (batch_size: 8)", "step num_reqs_8"])
def test_a_batch_size_in_ones_own_annotation_is_the_load(tmp_path, name):
    cell = _cell(tmp_path, _steps(name=name, allreduce_us=40.0))
    assert (cell.concurrency, cell.allreduce_share) == (8, pytest.approx(0.4))


def test_steps_of_ones_own_with_prompts_are_left_out(tmp_path):
    events = _steps(name="decode bs=8") + [
        event for index in range(4) for event in _step(2000.0 + 200.0 * index, "forward prefill bs=8", 10.0)
    ]
    assert _cell(tmp_path, events).allreduce_share == pytest.approx(0.5)


def test_a_trace_that_does_not_tell_its_load_takes_the_stated_one(tmp_path):
    unmarked = [event for event in _steps() if event["cat"] == "kernel"]
    path = _write(tmp_path / "rank0.pt.trace.json", unmarked)
    assert read_evidence([path]).cells[0].concurrency is None
    assert read_evidence([f"{path}@concurrency=8"]).cells[0].concurrency == 8.0
    marked = _write(tmp_path / "marked.pt.trace.json", _steps())
    assert read_evidence([f"{marked}@concurrency=8"]).cells[0].concurrency == 4.0  # the trace's own word counts


@pytest.mark.parametrize(
    ("suffix", "words"),
    [("@concurrency=0", "allowed: 1 to 100,000"), ("@concurrency=x", "allowed: 1 to"), ("@concurrency=", "allowed")],
)
def test_a_stated_load_that_is_none_is_refused(tmp_path, suffix, words):
    path = _write(tmp_path / "rank0.pt.trace.json", _steps())
    with pytest.raises(InputError, match=words):
        read_evidence([f"{path}{suffix}"])


def test_a_load_stated_for_a_table_is_refused(tmp_path):
    table = tmp_path / "sweep.csv"
    table.write_text("concurrency,tpot_ms\n1,9\n")
    with pytest.raises(InputError, match="a file that tells its loads itself; allowed: for a profiler trace"):
        read_evidence([f"{table}@concurrency=8"])
