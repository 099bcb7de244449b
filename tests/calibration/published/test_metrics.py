"""Every kind of metric: which way is faster, and what it says of one decode step."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.published.metrics import decode_step_s, is_a_time, oriented_ratio

TIMES = [
    "TPOT ms",
    "mean TPOT ms",
    "median ITL (ms)",
    "inter-token latency ms",
    "time per output token s",
    "mean request latency s",
    "E2E latency (s)",
    "step time us",
    "TTFT ms",
    "ms/token",
    "E2E runtime ratio",
]
RATES = [
    "aggregate output tok/s",
    "output tok/s",
    "tok/s/user",
    "output tokens/sec",
    "tokens per second",
    "output throughput (tok/s)",
    "output throughput ratio",
    "TPS",
    "t/s",
    "req/s",
    "QPS",
    "decode speed ratio",
    "tokens per step",
    "ratio",
    "",
]


@pytest.mark.parametrize("metric", TIMES)
def test_less_of_a_time_is_better(metric: str) -> None:
    assert is_a_time(metric)
    assert oriented_ratio(metric, 10.0, 5.0) == 2.0


@pytest.mark.parametrize("metric", RATES)
def test_more_of_a_rate_is_better(metric: str) -> None:
    assert not is_a_time(metric)
    assert oriented_ratio(metric, 10.0, 5.0) == 0.5


@pytest.mark.parametrize(
    ("metric", "baseline", "step_s"),
    [
        ("aggregate output tok/s", 400.0, 0.02),  # 8 requests
        ("output tok/s", 400.0, 0.02),
        ("total output tokens/s", 400.0, 0.02),
        ("decode t/s", 400.0, 0.02),
        ("output ktok/s", 0.4, 0.02),
        ("tok/s/user", 50.0, 0.02),
        ("output tok/s per user", 50.0, 0.02),
        ("tok/s per request", 50.0, 0.02),
        ("output tok/s/GPU", 100.0, 0.02),  # 4 GPUs
        ("tok/s per GPU", 100.0, 0.02),
        ("TPOT ms", 20.0, 0.02),
        ("median inter-token latency (ms)", 20.0, 0.02),
        ("time per output token s", 0.02, 0.02),
        ("step time us", 20_000.0, 0.02),
        ("ms/token", 20.0, 0.02),
    ],
)
def test_metrics_of_decoding_tell_the_step(metric: str, baseline: float, step_s: float) -> None:
    assert decode_step_s(metric, baseline, requests=8.0, num_gpus=4.0) == pytest.approx(step_s)


@pytest.mark.parametrize(
    "metric",
    [
        "ratio",
        "token throughput ratio",
        "relative throughput",
        "normalized tok/s",
        "speedup",
        "req/s",
        "requests per second",
        "QPS",
        "total tok/s",
        "input tok/s",
        "prefill tok/s",
        "mean request latency s",
        "E2E latency ms",
        "TTFT ms",
        "TPOT",
        "",
    ],
)
def test_other_metrics_do_not(metric: str) -> None:
    assert decode_step_s(metric, 20.0, requests=8.0, num_gpus=4.0) is None


def test_a_sum_over_what_is_not_counted_tells_nothing() -> None:
    assert decode_step_s("output tok/s", 400.0, requests=None, num_gpus=4.0) is None
    assert decode_step_s("tok/s/GPU", 400.0, requests=8.0, num_gpus=None) is None
    assert decode_step_s("tok/s/user", 50.0, requests=None, num_gpus=None) == 0.02


def test_a_step_of_hours_or_nanoseconds_is_a_slip_of_unit() -> None:
    assert decode_step_s("TPOT ms", 1e7, 8.0, 4.0) is None
    assert decode_step_s("output tok/s", 1e12, 8.0, 4.0) is None


@given(st.text(max_size=40), st.floats(1e-12, 1e12), st.floats(1.0, 1e6))
def test_any_metric_gives_a_sensible_step_or_none(metric: str, baseline: float, requests: float) -> None:
    step_s = decode_step_s(metric, baseline, requests, 8.0)
    assert step_s is None or (math.isfinite(step_s) and 0.0 < step_s < 1000.0)


@given(st.sampled_from(TIMES + RATES), st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_turning_the_two_runs_round_turns_the_ratio_round(metric: str, a: float, b: float) -> None:
    assert oriented_ratio(metric, a, b) * oriented_ratio(metric, b, a) == pytest.approx(1.0)
