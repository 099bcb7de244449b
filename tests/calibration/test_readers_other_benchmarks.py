"""SGLang, GuideLLM and AIPerf: the same run told by three tools, each with its own words for a token's time."""

import json

import pytest
from recorded import RESULT

from calibration.readers.read import read_evidence
from hwmodel.errors import InputError

SGLANG = {
    "tag": None,
    "backend": "sglang",
    "dataset_name": "random",
    "request_rate": float("inf"),
    "max_concurrency": 4,
    "server_info": {
        "version": "0.5.5",
        "model_path": "org/m",
        "speculative_algorithm": "EAGLE3",
        "speculative_num_steps": 3,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": 4,
    },
    "duration": 10.5,
    "completed": 40,
    "total_input_tokens": 4000,
    "total_output_tokens": 4040,
    "output_throughput": 384.8,
    "mean_e2e_latency_ms": 1050.0,
    "mean_ttft_ms": 50.0,
    "mean_tpot_ms": 10.0,
    "median_tpot_ms": 10.0,
    "std_tpot_ms": 0.5,
    "mean_itl_ms": 10.0,  # per token: the native backend divides by the tokens of a chunk
    "median_itl_ms": 3.0,
    "concurrency": 4.0,
    "accept_length": 2.8,
}


def _statistics(mean, **more):
    part = {"mean": mean, "median": mean, "std_dev": mean / 20, "count": 40, **more}
    return {"successful": part, "total": part, "errored": {"mean": 0}, "incomplete": {"mean": 0}}


GUIDELLM = {
    "metadata": {"version": 2, "guidellm_version": "0.8.1"},
    "config": {},
    "benchmarks": [
        {
            "type_": "generative_benchmark",
            "config": {"strategy": {"type_": "concurrent", "streams": 4}, "backend": {"model": "org/m"}},
            "duration": 10.5,
            "metrics": {
                "request_totals": {"successful": 40, "errored": 0, "incomplete": 4, "total": 44},
                "request_concurrency": _statistics(3.98),
                "request_latency": _statistics(1.05),
                "prompt_token_count": _statistics(100.0),
                "output_token_count": _statistics(101.0),
                "time_to_first_token_ms": _statistics(50.0),
                "time_per_output_token_ms": _statistics(10.4),  # 1050 / 101: the first token's time is in it
                "inter_token_latency_ms": _statistics(10.0),
                "output_tokens_per_second": _statistics(384.8),
                "iter_tokens_per_iteration": _statistics(2.5),
            },
        }
    ],
}


def _metric(unit, avg, **more):
    return {"unit": unit, "avg": avg, "p50": avg, "std": avg / 20, **more}


AIPERF = {
    "schema_version": "1.4",
    "aiperf_version": "0.13.0",
    "request_count": {"unit": "requests", "avg": 40.0},
    "request_throughput": {"unit": "requests/sec", "avg": 3.81},
    "request_latency": _metric("ms", 1050.0, count=40),
    "time_to_first_token": _metric("ms", 50.0),
    "inter_token_latency": _metric("ms", 10.0),
    "inter_chunk_latency": _metric("ms", 25.0),
    "output_sequence_length": _metric("tokens", 101.0),
    "input_sequence_length": _metric("tokens", 100.0),
    "output_token_throughput": {"unit": "tokens/sec", "avg": 384.8},
    "benchmark_duration": {"unit": "sec", "avg": 10.5},
    "input_config": {
        "models": {"items": [{"name": "org/m"}]},
        "phases": [
            {"name": "warmup", "concurrency": 2, "exclude_from_results": True},
            {"name": "profiling", "type": "concurrency", "concurrency": 4},
        ],
    },
    "was_cancelled": False,
}


def _read(tmp_path, record, name="x.json"):
    path = tmp_path / name
    path.write_text(json.dumps(record))
    return read_evidence([path])


@pytest.mark.parametrize("record", [SGLANG, GUIDELLM, AIPERF], ids=["sglang", "guidellm", "aiperf"])
def test_every_tool_gives_the_same_cell(tmp_path, record):
    evidence = _read(tmp_path, record)
    assert not evidence.refused
    cell = evidence.cells[0]
    assert cell.concurrency == 4
    assert cell.tpot_s == pytest.approx(0.010)
    assert cell.ttft_s == pytest.approx(0.050)
    assert (cell.input_tokens, cell.output_tokens) == (100, 101)
    assert cell.num_requests == 40
    assert cell.model == "org/m"
    assert cell.throughput_tokens_per_s == pytest.approx(384.8)


def test_sglangs_itl_is_per_token_so_the_step_comes_from_the_accept_length(tmp_path):
    cell = _read(tmp_path, SGLANG).cells[0]
    assert cell.tokens_per_step == pytest.approx(2.8)
    assert cell.step_s == pytest.approx(0.028)
    assert (cell.num_speculative_tokens, cell.method, cell.engine_version) == (3, "eagle3", "0.5.5")
    assert cell.prefill_share is None  # its median gap is of tokens, too
    assert any("since its start" in note for note in cell.notes)


def test_a_tree_of_drafts_has_no_k(tmp_path):
    server = SGLANG["server_info"] | {"speculative_eagle_topk": 4}
    cell = _read(tmp_path, SGLANG | {"server_info": server}).cells[0]
    assert cell.num_speculative_tokens is None


def test_sglang_without_speculation_steps_a_token_at_a_time(tmp_path):
    plain = SGLANG | {"server_info": {"speculative_algorithm": None}, "accept_length": None}
    cell = _read(tmp_path, plain).cells[0]
    assert (cell.num_speculative_tokens, cell.tokens_per_step) == (0, 1.0)
    assert cell.step_s == cell.tpot_s == pytest.approx(0.010)


def test_sglangs_benchmark_of_a_vllm_server_has_gaps_per_chunk(tmp_path):
    other = SGLANG | {"backend": "vllm-chat", "server_info": None, "accept_length": None}
    cell = _read(tmp_path, other | {"mean_itl_ms": 25.0, "median_itl_ms": 25.0}).cells[0]
    assert cell.engine == "vllm"
    assert cell.step_s == pytest.approx(0.025)


def test_lines_of_sglang_are_one_cell_each(tmp_path):
    path = tmp_path / "out.jsonl"
    lines = [SGLANG, SGLANG | {"max_concurrency": 8, "concurrency": 7.9}]
    path.write_text("\n".join(json.dumps(line) for line in lines) + "\n")
    assert [cell.concurrency for cell in read_evidence([path]).cells] == [4, 8]


@pytest.mark.parametrize(
    "load",
    [{"concurrency": 4}, {"perf_analyzer": {"stimulus": {"concurrency": 4}}}, {"loadgen": {"concurrency": 4}}],
)
def test_genai_perf_tells_its_users_and_by_its_rate_the_time_it_took(tmp_path, load):
    record = {**AIPERF, "input_config": {"model": ["org/m"], **load}}
    del record["benchmark_duration"]
    cell = _read(tmp_path, record).cells[0]
    assert cell.concurrency == 4
    assert cell.duration_s == pytest.approx(40 / 3.81)
    record["input_config"] = json.loads(json.dumps(load).replace("4", "16"))
    assert "asked for 16 at once" in _read(tmp_path, record).refused[0].reason


@pytest.mark.parametrize("record", [SGLANG, AIPERF], ids=["sglang", "aiperf"])
def test_a_tpot_that_would_need_more_requests_than_the_users_is_refused(tmp_path, record):
    wrong = json.loads(json.dumps(record))
    for name in ("mean_tpot_ms", "median_tpot_ms"):
        wrong.update({name: 1000.0 * wrong[name]} if name in wrong else {})
    for name in ("avg", "p50"):
        if "inter_token_latency" in wrong:
            wrong["inter_token_latency"][name] *= 1000.0
    evidence = _read(tmp_path, wrong)
    assert not evidence.cells
    assert "more than the 4 users: TPOT or the duration is of another unit" in evidence.refused[0].reason


def test_guidellms_time_per_output_token_is_not_tpot(tmp_path):
    cell = _read(tmp_path, GUIDELLM).cells[0]
    assert cell.tpot_s == pytest.approx(0.010)  # not 10.4 ms
    assert cell.step_s == pytest.approx(0.025)
    assert cell.tokens_per_step == pytest.approx(2.5)


def test_guidellm_without_itl_takes_the_first_token_out(tmp_path):
    report = json.loads(json.dumps(GUIDELLM))
    metrics = report["benchmarks"][0]["metrics"]
    del metrics["inter_token_latency_ms"]
    metrics["time_per_output_token_ms"] = _statistics(1050 / 101)
    assert _read(tmp_path, report).cells[0].tpot_s == pytest.approx(0.010)


@pytest.mark.parametrize(
    ("strategy", "concurrency"),
    [
        ({"type_": "synchronous"}, 1.0),
        ({"type_": "constant", "rate": 3.8}, 3.98),
        ({"type_": "poisson", "rate": 3.8}, 3.98),
        ({"type_": "throughput", "max_concurrency": None}, 40 * 100 * 0.010 / 10.5),
    ],
)
def test_guidellms_strategies_tell_the_load(tmp_path, strategy, concurrency):
    report = json.loads(json.dumps(GUIDELLM))
    report["benchmarks"][0]["config"]["strategy"] = strategy
    if strategy["type_"] == "synchronous":
        report["benchmarks"][0]["duration"] *= 4.0  # one after the other takes four times as long
    assert _read(tmp_path, report).cells[0].concurrency == pytest.approx(concurrency)


@pytest.mark.parametrize("place", ["args", "scheduler"])  # 0.2 and 0.3; 0.4
def test_guidellm_of_before_the_config_key_is_read_too(tmp_path, place):
    report = json.loads(json.dumps(GUIDELLM))
    benchmark = report["benchmarks"][0]
    benchmark[place] = benchmark.pop("config")
    benchmark["start_time"], benchmark["end_time"] = 1000.0, 1010.5
    del benchmark["duration"]
    cell = _read(tmp_path, report).cells[0]
    assert (cell.concurrency, cell.duration_s) == (4, 10.5)


def test_guidellms_streams_that_never_ran_are_refused(tmp_path):
    report = json.loads(json.dumps(GUIDELLM))
    report["benchmarks"][0]["config"]["strategy"]["streams"] = 64
    evidence = _read(tmp_path, report)
    assert not evidence.cells
    assert "asked for 64 at once" in evidence.refused[0].reason


def test_aiperfs_chunk_gap_is_the_step(tmp_path):
    cell = _read(tmp_path, AIPERF).cells[0]
    assert cell.step_s == pytest.approx(0.025)
    assert cell.tokens_per_step == pytest.approx(2.5)


def test_aiperfs_pooled_histogram_is_acceptance_by_position(tmp_path):
    histogram = {"0": 400, "1": 600, "3": 600}
    more = {
        "pooled_spec_decode_acceptance_histogram": histogram,
        "total_accepted_draft_tokens": {"unit": "tokens", "avg": 2400.0},
        "total_draft_tokens": {"unit": "tokens", "avg": 6400.0},
    }
    cell = _read(tmp_path, AIPERF | more).cells[0]
    assert cell.acceptance.drafts == 1600
    assert cell.acceptance.accepted_per_position == (1200, 600, 600, 0)  # four tokens a draft
    assert cell.num_speculative_tokens == 4


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"was_cancelled": True}, "not complete"),
        ({"is_complete": False, "incomplete_reason": "stalled"}, "stalled"),
        ({"error_request_count": {"unit": "requests", "avg": 20.0}}, "20 of 60 requests failed"),
    ],
)
def test_aiperfs_broken_runs_are_refused(tmp_path, changes, words):
    evidence = _read(tmp_path, AIPERF | changes)
    assert not evidence.cells
    assert words in evidence.refused[0].reason


def _record(index, tpot_ms=10.0, error=None):
    start_ns = 10**18 + round((index // 4) * 1.05e9)
    return {
        "metadata": {"request_start_ns": start_ns, "benchmark_phase": "profiling"},
        "metrics": {
            "time_to_first_token": {"value": 50.0, "unit": "ms"},
            "request_latency": {"value": 50.0 + 100 * tpot_ms, "unit": "ms"},
            "output_sequence_length": {"value": 101, "unit": "tokens"},
            "input_sequence_length": {"value": 100, "unit": "tokens"},
            "inter_chunk_latency": {"value": [2 * tpot_ms] * 50, "unit": "ms"},
        },
        "error": error,
    }


def test_aiperfs_request_records_refine_the_summary_beside_them(tmp_path):
    (tmp_path / "profile_export_aiperf.json").write_text(json.dumps(AIPERF))
    records = "\n".join(json.dumps(_record(index)) for index in range(40))
    (tmp_path / "profile_export.jsonl").write_text(records)
    cells = read_evidence([tmp_path]).cells
    assert len(cells) == 1
    assert cells[0].tokens_per_step == 2.0  # counted, where the summary has means only


def test_aiperfs_request_records_alone_give_the_load_that_was_in_flight(tmp_path):
    path = tmp_path / "records.jsonl"
    path.write_text("\n".join(json.dumps(_record(index)) for index in range(40)))
    cell = read_evidence([path]).cells[0]
    assert cell.tpot_s == pytest.approx(0.010)
    assert cell.concurrency == pytest.approx(4 / 1.05)


def test_a_torch_benchmark_file_beside_a_result_is_told_apart(tmp_path):
    with pytest.raises(InputError, match="looks like"):
        _read(tmp_path, [{"benchmark": {"name": "x"}, "metric": {"name": "mean_tpot_ms"}}])
    assert _read(tmp_path, RESULT).cells
