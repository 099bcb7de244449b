"""Malformed, truncated, mixed-up and adversarial files: one clear line for each, and the good ones are still used."""

import gzip
import json
import os
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recorded import RESULT, SPECULATIVE

from calibration.readers.describe import describe
from calibration.readers.read import read_evidence
from hwmodel.errors import InputError

DATA = Path(__file__).parents[1] / "data"
SAMPLES = [*sorted((DATA / "measurements").iterdir()), *sorted((DATA / "nccl").glob("nccl_allreduce*"))]
TRACE = {"traceEvents": [{"ph": "X", "cat": "kernel", "name": "gemm", "ts": 1, "dur": 2, "args": {"device": 0}}]}
TABLE = "concurrency,tpot_ms\n1,13.6\n4,15\n"


def _one_line(error):
    message = str(error)
    assert message
    assert "\n" not in message
    assert len(message) < 2000


def _tried(paths, **options):
    """Evidence or None; an `InputError` of one line is the only way to fail."""
    try:
        evidence = read_evidence(paths, **options)
    except InputError as error:
        _one_line(error)
        return None
    for sentence in describe(evidence):
        assert "\n" not in sentence
    return evidence


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "an empty file"),
        (b"  \n\n", "an empty file"),
        (b"hello\n", "looks like text that begins 'hello'"),
        (b"\x00" * 100, "no text file"),
        (b"PK\x03\x04" + b"x" * 50, "no text file"),
        (b"\x1f\x8bjunk", "damaged or cut gzip"),
        (b"{", "cut short JSON"),
        (b'{"a": 1,} ' + b" " * 9, "JSON ("),
        (b"[]", "an empty JSON list"),
        (b"{}", "an empty JSON object"),
        (b"[1, 2]", "a JSON int ([0])"),
        (b'{"foo": 1, "bar": 2}', "the keys foo, bar"),
        (b"[" * 100_000, "nested"),
        (b'{"a": ' + b"9" * 10_000 + b"}", "too long"),
        (b"============ Serving Benchmark Result ============\n", "--save-result"),
        (b"Metric,avg,min,max,p99\nTime to First Token (ms),1,1,1,1\n", "the JSON export beside it"),
        (b"<html><body>502 Bad Gateway</body></html>", "a web page"),
        (b"set_id,rows\na,1\n", "backtest"),
        (b'{"traceEvents": []}', "without GPU kernels"),
        (b'{"results": [{"steps": 1}]}', "acceptance.replay"),
        (json.dumps(RESULT).encode() + b"\n" + b'{"completed": 3, "dura', "line 2 is no JSON"),
    ],
    ids=str,
)
def test_what_a_file_looks_like_is_said_in_one_line(tmp_path, content, words):
    path = tmp_path / "given.bin"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_evidence([path])
    _one_line(caught.value)
    assert words in str(caught.value)
    assert "given.bin" in str(caught.value)


def test_an_unknown_file_names_the_formats_that_are_known(tmp_path):
    (tmp_path / "x").write_text("hello\n")
    with pytest.raises(InputError, match=r"known formats: vllm bench serve .* GuideLLM .* nccl-tests"):
        read_evidence([tmp_path / "x"])


def test_files_that_cannot_be_opened_are_one_line(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "missing", tmp_path / "pipe", "/dev/zero", "", "a\0b"):
        with pytest.raises(InputError) as caught:
            read_evidence([path])
        _one_line(caught.value)


def test_one_bad_file_among_many_is_named_and_the_rest_is_used(tmp_path):
    good, bad, missing = tmp_path / "good.csv", tmp_path / "bad.json", tmp_path / "missing"
    good.write_text(TABLE)
    bad.write_text('{"completed": 3')
    with pytest.raises(InputError, match=r"bad\.json"):
        read_evidence([good, bad, missing])
    evidence = read_evidence([good, bad, missing], skip_bad=True)
    assert len(evidence.cells) == 2
    assert [item.source for item in evidence.refused] == [str(bad), str(missing)]
    assert all(item.reason.startswith("the file was left out: ") for item in evidence.refused)


def test_when_every_file_is_bad_skipping_is_an_error_too(tmp_path):
    (tmp_path / "bad").write_text("hello\n")
    with pytest.raises(InputError, match="looks like"):
        read_evidence([tmp_path / "bad"], skip_bad=True)


def test_the_name_of_a_file_says_nothing(tmp_path):
    names = {"a.json": TABLE, "b.csv": json.dumps(RESULT), "c.png": (SAMPLES[0]).read_text()}
    for name, content in names.items():
        (tmp_path / name).write_text(content)
        assert _tried([tmp_path / name]) is not None


def test_mixed_formats_in_one_call_are_all_used():
    evidence = read_evidence(SAMPLES, skip_bad=False)
    assert {file.format for file in evidence.files} >= {"vllm bench serve result", "nccl-tests output"}
    assert evidence.cells
    assert evidence.collectives
    assert len(evidence.files) == len(SAMPLES)


def test_the_same_bytes_twice_count_once(tmp_path):
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text(TABLE)
    evidence = read_evidence([tmp_path])
    assert len(evidence.cells) == 2
    assert any("counted once" in note for note in evidence.notes)


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_every_cut_of_a_sample_is_read_or_refused(tmp_path, path):
    content = path.read_bytes()
    source = random.Random(path.name)
    target = tmp_path / "cut"
    for _ in range(12):
        target.write_bytes(content[: source.randrange(len(content))])
        _tried([target])


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_every_damaged_sample_is_read_or_refused(tmp_path, path):
    content = path.read_bytes()
    source = random.Random(path.name)
    target = tmp_path / "damaged"
    for _ in range(12):
        data = bytearray(content)
        for _ in range(source.randrange(1, 30)):
            data[source.randrange(len(data))] = source.randrange(256)
        target.write_bytes(bytes(data))
        _tried([target])


def test_a_packed_sample_says_what_the_plain_one_says(tmp_path):
    path = DATA / "measurements" / "bench_serve_result_example.json"
    packed = tmp_path / "x.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    plain, unpacked = read_evidence([path]).cells[0], read_evidence([packed]).cells[0]
    assert (plain.tpot_s, plain.acceptance) == (unpacked.tpot_s, unpacked.acceptance)


ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.one_of(st.floats(), st.none(), st.text(max_size=3)), max_size=4),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)
EXTREME = st.sampled_from(
    [0, -1, 1e-300, 1e300, 1e400, 10**400, float("nan"), "", "inf", "NaN", "1e5", [], {}, [[]], True]
)


def _mutated(draw, record):
    """`record` with some of its values replaced at any depth, some keys gone."""
    if isinstance(record, dict):
        return {
            key: draw(st.one_of(ODD, EXTREME)) if draw(st.integers(0, 9)) == 0 else _mutated(draw, value)
            for key, value in record.items()
            if draw(st.integers(0, 19))
        }
    if isinstance(record, list):
        return [_mutated(draw, item) for item in record]
    return record


DETAILED = (
    RESULT
    | SPECULATIVE
    | {
        "input_lens": [10, 10],
        "output_lens": [20, 20],
        "ttfts": [0.1, 0.1],
        "itls": [[0.01] * 19, [0.01] * 19],
        "start_times": [0.0, 0.1],
        "latencies": [0.3, 0.3],
    }
)
RUN = {
    "cells": [{"concurrency": 4, "tpot_s": {"mean": 0.01}, "acceptance": {"drafts": 5}}],
    "server": {"engine": "vllm"},
}
GUIDELLM = {
    "benchmarks": [
        {
            "config": {"strategy": {"type_": "concurrent", "streams": 4}},
            "duration": 10.0,
            "metrics": {
                name: {"successful": {"mean": 20.0, "median": 20.0, "count": 40}, "total": {"mean": 4.0}}
                for name in ("inter_token_latency_ms", "output_token_count", "request_concurrency", "request_latency")
            },
            "requests": {"successful": [{"inter_token_latency_ms": 10.0}]},
        }
    ]
}
AIPERF = {
    name: {"unit": unit, "avg": 20.0, "p50": 20.0, "std": 1.0, "count": 40}
    for name, unit in (
        ("request_latency", "ms"),
        ("inter_token_latency", "ms"),
        ("inter_chunk_latency", "ms"),
        ("time_to_first_token", "ms"),
        ("output_sequence_length", "tokens"),
        ("request_count", "requests"),
        ("benchmark_duration", "sec"),
    )
} | {"pooled_spec_decode_acceptance_histogram": {"0": 5, "2": 5}, "input_config": {"phases": [{"concurrency": 4}]}}
SGLANG = RESULT | {
    "mean_e2e_latency_ms": 1000.0,
    "accept_length": 2.0,
    "server_info": {"speculative_algorithm": "EAGLE"},
}


RECORDS = {"vllm": DETAILED, "run": RUN, "guidellm": GUIDELLM, "aiperf": AIPERF, "sglang": SGLANG, "trace": TRACE}


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_odd_values_anywhere_in_a_record_are_read_or_refused(tmp_path, record, data):
    path = tmp_path / "odd.json"
    path.write_text(json.dumps(_mutated(data.draw, record)))
    _tried([path])


LINES = st.lists(
    st.one_of(
        st.text(max_size=30),
        st.sampled_from(
            [
                "# nThread 1 nGpus 8",
                "  1048576 262144 float sum -1 100.0 10.5 18.4 0",
                "concurrency,tpot_ms",
                "1,13.6",
                'vllm:generation_tokens_total{engine="0"} 5',
                'vllm:inter_token_latency_seconds_count{engine="0"} 1e308',
                "SpecDecoding metrics: Mean acceptance length: nan, Accepted: 0 tokens, Drafted: 5 tokens, "
                "Per-position acceptance rate: 0.0",
                "Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 9.0 tokens/s, Running: 1 reqs, "
                "Waiting: 0 reqs",
                "Iteration(1): 0 context requests, 0 context tokens, 0 generation requests, 0 generation tokens, "
                "iteration elapsed time: 0.00 ms",
                "GPU KV cache size: , tokens",
                "non-default args: {'a': " + "(" * 300,
            ]
        ),
    ),
    max_size=12,
)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=LINES)
def test_lines_of_all_tools_in_any_order_are_read_or_refused(tmp_path, lines):
    path = tmp_path / "lines.txt"
    path.write_text("\n".join(lines), encoding="utf-8", errors="replace")
    _tried([path])


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=300))
def test_no_bytes_break_the_readers(tmp_path, content):
    path = tmp_path / "bytes"
    path.write_bytes(content)
    _tried([path])


def test_no_value_that_was_read_is_infinite_or_negative():
    for cell in read_evidence(SAMPLES).cells:
        for name in ("tpot_s", "step_s", "concurrency", "tokens_per_step", "relative_noise", "throughput_tokens_per_s"):
            value = getattr(cell, name)
            assert value is None or 0 < value < 1e12
