"""What a file says, in sentences: every kind of evidence has one, and nothing that was left out is silent."""

from pathlib import Path

import pytest

from calibration.readers.describe import describe
from calibration.readers.read import read_evidence
from calibration.records import Evidence, KernelShares, MeasuredCell, StepSample

DATA = Path(__file__).parents[1] / "data"


def test_a_benchmark_in_one_sentence():
    (sentence,) = describe(read_evidence([DATA / "measurements" / "bench_serve_result_example.json"]))
    for words in (
        "4 users, speculation with k = 5",
        "TPOT 9.05 ms +/- 4.6 %, step 15.06 ms, 1.66 tokens per step",
        "24 requests of 512 + 256 tokens",
        "acceptance 0.604 0.465 0.376 0.297 0.240 by position over 1242 drafts",
        "a draft on 34 % of the decode steps only",
    ):
        assert words in sentence


def test_a_curve_in_one_sentence():
    (sentence,) = describe(read_evidence([DATA / "nccl" / "nccl_allreduce_rtxpro6000_server_8gpu_pcie5.txt"]))
    assert "AllReduce on 8 GPUs, 21 sizes, 512 B in 24.57 us to 512 MiB in 38073 us" in sentence


def test_steps_and_profiles_have_sentences():
    evidence = Evidence(
        steps=(StepSample("log", 16, 4, 0, 0.015, count=9), StepSample("log", 216, 4, 200, 0.030)),
        kernels=(KernelShares("trace", (("allreduce", 0.515), ("moe", 0.2)), 0.010, idle_share=0.25, num_steps=12),),
    )
    steps, profile = describe(evidence)
    assert steps == "log: 10 engine steps of 2 sizes, 1 of them without prefill; most often 16 tokens in 15 ms"
    assert "allreduce 51.5 %, moe 20.0 %; GPU idle 25 % of the profiled time" in profile


def test_refusals_and_notes_are_told_with_their_source(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("concurrency,tpot_ms,colour\n1,13.6,red\n4,,blue\n")
    sentences = describe(read_evidence([path]))
    assert any(sentence.startswith("note: ") and "columns not used: colour" in sentence for sentence in sentences)
    assert any(sentence.startswith("not used: ") and "line 3: no time" in sentence for sentence in sentences)


@pytest.mark.parametrize("concurrency", [1.0, 3.81, 64.0])
def test_users_are_counted_in_words(concurrency):
    (sentence,) = describe(Evidence(cells=(MeasuredCell("x", concurrency=concurrency),)))
    assert sentence == f"x: {concurrency:.4g} {'user' if concurrency == 1 else 'users'}"
