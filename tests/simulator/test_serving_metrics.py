"""Figures and files: histograms, series, windows, intervals, records and traces."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodel.errors import InputError
from simulator.perfetto import TraceWriter
from simulator.serving.histogram import Histogram, TimeSeries
from simulator.serving.metrics import NUM_BATCHES, ArmMetrics, Counting, Slo, spread
from simulator.serving.output_files import OutputFiles
from simulator.serving.records import COLUMNS
from simulator.serving.report import batch_interval, mean_tpot_ratio
from simulator.serving.request import Request

ALL = Counting(0, 1000, until_closed=False)


def finished(number: int = 0, **changes: Any) -> Request:
    """A request of 11 tokens: first after 1 s, then ten at 0.1 s."""
    request = Request(number, 0.0, 100, 11, start_s=0.2, first_token_s=1.0, finish_s=2.0, generated=11, from_prefill=1)
    request.steps = 10
    for name, value in changes.items():
        setattr(request, name, value)
    return request


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=200), st.sampled_from([1, 50, 95, 99, 100]))
def test_percentiles_are_exact_within_the_width_of_a_bin(values: list[float], percent: int) -> None:
    histogram = Histogram()
    for value in values:
        histogram.add_one(value)
    rank = max(int(np.ceil(percent / 100 * len(values))), 1)
    assert histogram.percentile_s(percent) == pytest.approx(sorted(values)[rank - 1], rel=1.1e-3)
    assert histogram.mean_s == pytest.approx(np.mean(values))
    assert histogram.count == len(values)


def test_weights_count_values_several_times() -> None:
    histogram = Histogram()
    histogram.add(np.array([1.0]), 99)
    histogram.add(np.array([10.0, 20.0]), 1)
    assert histogram.percentile_s(50) == pytest.approx(1.0, rel=1e-3)
    assert histogram.percentile_s(99) == pytest.approx(10.0, rel=1e-3)
    assert histogram.mean_s == pytest.approx((99 + 30) / 101)


def test_a_histogram_without_values_has_no_figures() -> None:
    assert spread(Histogram()) == {"p50": None, "p95": None, "p99": None, "mean": None}


def test_a_series_averages_over_time_and_joins_bins_as_the_run_grows() -> None:
    series = TimeSeries(("running",))
    series.add(0.0, 0.5, (4.0,))
    series.add(0.5, 0.5, (2.0,))
    assert series.to_dict() == {"time_s": [0.5], "running": [3.0]}
    for second in range(1, 1000):
        series.add(float(second), 1.0, (3.0,))
    joined = series.to_dict()
    assert len(joined["time_s"]) <= 256
    assert joined["running"] == pytest.approx([3.0] * len(joined["running"]))


def test_steps_longer_than_a_bin_are_in_all_the_bins_that_they_reach() -> None:
    series = TimeSeries(("running",))
    series.add(0.5, 3.0, (2.0,))
    series.add(5.0, 0.5, (4.0,))
    assert series.to_dict()["running"] == [2.0, 2.0, 2.0, 2.0, 0.0, 4.0]


@given(st.lists(st.tuples(st.floats(0.01, 400.0), st.floats(0.0, 9.0)), min_size=1, max_size=30))
def test_a_series_keeps_its_integral_and_has_no_gap_where_the_engine_was_at_work(
    steps: list[tuple[float, float]],
) -> None:
    series, now_s = TimeSeries(("running",)), 0.0
    for duration_s, value in steps:
        series.add(now_s, duration_s, (value + 1.0,))
        now_s += duration_s
    told = series.to_dict()
    assert min(told["running"]) >= 1.0 - 1e-9
    widths = [series.width_s] * (len(told["time_s"]) - 1)
    last = now_s - sum(widths)
    total = sum(w * v for w, v in zip([*widths, last], told["running"], strict=True))
    assert total == pytest.approx(sum(d * (v + 1.0) for d, v in steps), rel=1e-6)


def test_tokens_count_only_while_the_window_is_open() -> None:
    metrics = ArmMetrics(Slo(), ALL, open_s=1.0, close_s=2.0)
    # Steps end at 0.5, 1.5, 2.5 with 4 tokens each: only the second is inside.
    metrics.emitted_until(np.array([0.5, 1.5, 2.5]), np.array([4, 8, 12]), 0)
    metrics.emitted_at(1.7, 1)
    metrics.emitted_at(2.7, 1)
    assert metrics.window_tokens == 5
    metrics.emitted_until(np.array([1.8, 1.9]), np.array([4, 8]), 3)
    assert metrics.window_tokens == 10
    assert metrics.window_s(5.0) == pytest.approx(1.0)


def test_a_closed_loop_counts_requests_that_finish_in_the_window() -> None:
    metrics = ArmMetrics(Slo(), Counting(2, 8, until_closed=True), open_s=1.0, close_s=3.0)
    for number, now in enumerate((0.5, 1.5, 3.5)):
        metrics.finished(finished(number), now)
    assert metrics.counted == 1
    assert metrics.totals.finished == 3


def test_open_loop_counts_by_number_whenever_the_request_ends() -> None:
    metrics = ArmMetrics(Slo(), Counting(1, 3, until_closed=False), open_s=1.0, close_s=2.0)
    for number in range(4):
        metrics.finished(finished(number), 9.0)
    assert metrics.counted == 2


@pytest.mark.parametrize(
    ("slo", "kept"),
    [
        (Slo(), True),
        (Slo(ttft_s_max=1.0), True),
        (Slo(ttft_s_max=0.99), False),
        (Slo(tpot_s_max=0.1001), True),
        (Slo(tpot_s_max=0.099), False),
        (Slo(ttft_s_max=2.0, tpot_s_max=0.05), False),
    ],
)
def test_limits_apply_to_ttft_and_tpot(slo: Slo, kept: bool) -> None:
    assert slo.kept(finished()) is kept


def test_a_single_token_has_no_time_per_token_and_keeps_that_limit() -> None:
    assert Slo(tpot_s_max=1e-9).kept(finished(output_tokens=1))


def test_rejected_requests_are_not_within_the_limits() -> None:
    metrics = ArmMetrics(Slo(ttft_s_max=5.0), ALL)
    metrics.finished(finished(), 1.0)
    metrics.rejected(finished(1, rejected="too long"))
    assert metrics.attainment == pytest.approx(0.5)


def two_arms(ratio: float, noise: float, count: int = 10) -> tuple[ArmMetrics, ArmMetrics]:
    """Metrics of two arms whose requests take `ratio` times as long in the first."""
    arms = (
        ArmMetrics(Slo(), Counting(0, NUM_BATCHES * count, False)),
        ArmMetrics(Slo(), Counting(0, NUM_BATCHES * count, False)),
    )
    rng = np.random.default_rng(0)
    for number in range(NUM_BATCHES * count):
        own = float(np.exp(rng.normal(0.0, 0.5)))  # of the request: the same in both arms
        slower = ratio * float(np.exp(rng.normal(0.0, noise)))
        for metrics, factor in zip(arms, (slower, 1.0), strict=True):
            metrics.finished(finished(number, finish_s=1.0 + own * factor, first_token_s=0.5), 1.0)
    return arms


def test_the_interval_is_tight_because_both_arms_have_the_same_requests() -> None:
    result = batch_interval(1.25, *two_arms(1.25, 0.0), closed=False)
    assert result["speedup"]["p50"] == 1.25
    assert result["speedup"]["p95"] - result["speedup"]["p05"] < 0.25  # the requests themselves differ by 50 %
    assert result["speedup"]["p05"] < 1.25 < result["speedup"]["p95"]


def test_the_interval_grows_with_the_noise_between_requests() -> None:
    widths = []
    for noise in (0.02, 0.2):
        found = batch_interval(1.25, *two_arms(1.25, noise), closed=True)["speedup"]
        widths.append(found["p95"] - found["p05"])
    assert widths[1] > widths[0]


def test_too_few_requests_have_a_ratio_and_no_interval() -> None:
    result = batch_interval(1.25, *two_arms(1.25, 0.1, count=1), closed=True)
    assert result["speedup"] == {"p05": None, "p50": 1.25, "p95": None}
    assert "too few requests" in result["speedup_reason"]


def test_without_any_ratio_the_reason_is_said() -> None:
    result = batch_interval(None, *two_arms(1.0, 0.0), closed=True)
    assert result["speedup"]["p50"] is None
    assert result["speedup_reason"]


def test_the_speedup_of_open_arrivals_is_the_ratio_of_mean_tpot() -> None:
    slow, fast = ArmMetrics(Slo(), ALL), ArmMetrics(Slo(), ALL)
    slow.finished(finished(finish_s=3.0), 3.0)
    fast.finished(finished(finish_s=2.0), 2.0)
    assert mean_tpot_ratio(slow, fast) == pytest.approx(2.0)
    assert mean_tpot_ratio(ArmMetrics(Slo(), ALL), fast) is None


def write_records(path: Path, arm: str = "baseline") -> None:
    """One finished and one rejected request."""
    with OutputFiles(str(path), None, None) as files:
        (writer,) = files.observers(arm, 2)
        writer.request_done(finished(0))
        writer.request_done(Request(1, 0.5, 10, 10, rejected="too long"))


def test_records_are_one_flat_row_a_request(tmp_path: Path) -> None:
    write_records(tmp_path / "r.csv")
    rows = list(csv.DictReader((tmp_path / "r.csv").open(encoding="utf-8")))
    assert tuple(rows[0]) == COLUMNS
    assert rows[0]["status"] == "finished"
    assert float(rows[0]["ttft_s"]) == 1.0
    assert float(rows[0]["tpot_s"]) == pytest.approx(0.1)
    assert (rows[1]["status"], rows[1]["reason"], rows[1]["finish_s"]) == ("rejected", "too long", "")


def test_records_are_json_lines_where_the_name_says_so(tmp_path: Path) -> None:
    write_records(tmp_path / "r.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "r.jsonl").read_text(encoding="utf-8").splitlines()]
    assert rows[0]["e2e_s"] == 2.0
    assert rows[1]["e2e_s"] is None
    assert set(rows[0]) == set(COLUMNS)


def test_a_file_appears_when_it_is_complete_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    files = OutputFiles(str(path), str(tmp_path / "t.json"), None)
    assert not path.exists()
    files.discard()
    with pytest.raises(RuntimeError), OutputFiles(str(path), None, None):
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    for path in (str(tmp_path / "no" / "folder.csv"), str(tmp_path / "a\0b")):
        with pytest.raises(InputError, match="cannot write"):
            OutputFiles(path, None, None)
    with pytest.raises(InputError, match="cannot write"):
        OutputFiles(str(tmp_path / "r.csv"), str(tmp_path / "no" / "t.json"), None)
    assert list(tmp_path.iterdir()) == []


def test_a_trace_holds_steps_counters_and_the_phases_of_requests(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    with OutputFiles(None, str(path), None) as files:
        (observer,) = files.observers("baseline", 1)
        facts = {"decode": 2, "prompt_tokens": 0, "waiting": 1, "blocks": 7}
        observer.steps(np.array([0.0, 0.01]), np.array([0.01, 0.02]), facts)
        observer.request_done(finished(3))
    events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    assert [(s["ts"], s["dur"], s["name"]) for s in slices] == [
        (0.0, 10_000.0, "decode"),
        (10_000.0, 10_000.0, "decode"),
    ]
    begun = {event["name"]: event["ts"] for event in events if event["ph"] == "b"}
    assert begun == {"queue": 0.0, "prefill": 200_000.0, "decode": 1_000_000.0}
    assert sum(event["ph"] == "e" for event in events) == 3
    assert {event["name"] for event in events if event["ph"] == "C"} == {"requests", "KV blocks"}
    names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert names == ["baseline"]


def test_an_empty_trace_is_json_too(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    with path.open("w", encoding="utf-8") as file:
        TraceWriter(file).close()
    assert json.loads(path.read_text(encoding="utf-8"))["traceEvents"] == []
