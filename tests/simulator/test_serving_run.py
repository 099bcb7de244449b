"""Whole runs of both arms: agreement with the closed form, what is asked for and said, partial and golden results."""

import ast
import hashlib
import json
import time
from pathlib import Path
from typing import Any

import pytest

import simulator.serving
from hwmodel.errors import InputError
from simulator.deployment import load_deployment
from simulator.predict import predict
from simulator.serving.report import Simulation
from simulator.serving.run import Outputs, simulate

Tables = dict[str, Any]

DENSE: Tables = {
    "model": {"config": "llama-3.2-1b-bf16"},
    "hardware": {"gpu": "h100-sxm"},
    "engine": {"version": "0.16.0"},
    "speculation": {"method": "eagle3", "acceptance": {"conditional": [0.7], "heterogeneity": 1e6}},
    "workload": {"input_tokens": 1, "output_tokens": 500},
}
NOISY: Tables = {"method": "eagle3", "num_speculative_tokens": 3, "acceptance": {"conditional": [0.7]}}


def tables(base: Tables = DENSE, **changes: Any) -> Tables:
    """The base with keys of its tables laid over."""
    return {**base, **{name: {**base.get(name, {}), **table} for name, table in changes.items()}}


def run(source: Tables = DENSE, **options: Any) -> Simulation:
    """A simulation of a deployment with drafts of 3 tokens."""
    options = {"num_speculative_tokens": 3, "arrivals": "closed:4", "num_requests": 80, **options}
    return simulate(load_deployment(source), **options)


def strict(result: Simulation) -> dict[str, Any]:
    """The JSON of a result; NaN and infinity are refused."""
    loaded: dict[str, Any] = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    return loaded


@pytest.mark.parametrize(("users", "count"), [(1, 250), (8, 400)])
def test_a_closed_loop_of_decode_agrees_with_the_closed_form_within_1_percent(users: int, count: int) -> None:
    found = run(arrivals=f"closed:{users}", num_requests=count)
    expected = predict(load_deployment(DENSE), num_speculative_tokens=3, concurrency=users)
    assert found.baseline is not None
    assert found.speculative is not None
    assert found.baseline.throughput_tokens_per_s == pytest.approx(expected.baseline.throughput_tokens_per_s, rel=0.01)
    assert found.speculative.throughput_tokens_per_s == pytest.approx(
        expected.speculative.throughput_tokens_per_s, rel=0.01
    )
    assert found.speculative.metrics.tokens_per_step == pytest.approx(expected.speculative.tokens_per_step, rel=0.01)


def test_a_closed_loop_with_prompts_agrees_within_3_percent() -> None:
    source = tables(workload={"input_tokens": 2000, "output_tokens": 500})
    found = run(source, arrivals="closed:16", num_requests=400)
    expected = predict(load_deployment(source), num_speculative_tokens=3, concurrency=16)
    for ours, theirs in ((found.baseline, expected.baseline), (found.speculative, expected.speculative)):
        assert ours is not None
        assert ours.throughput_tokens_per_s == pytest.approx(theirs.throughput_tokens_per_s, rel=0.03)
        assert ours.metrics.tpot.mean_s == pytest.approx(theirs.tpot_s, rel=0.03)


def test_unlike_requests_pool_to_the_closed_forms_tokens_per_step() -> None:
    source = tables(speculation=NOISY)
    found = run(source, arrivals="closed:16", num_requests=480)
    expected = predict(load_deployment(source), num_speculative_tokens=3, concurrency=16)
    assert found.speculative is not None
    assert found.speculative.metrics.tokens_per_step == pytest.approx(expected.speculative.tokens_per_step, rel=0.01)
    tpot = found.speculative.metrics.tpot
    p50, p99 = tpot.percentile_s(50), tpot.percentile_s(99)
    assert p50 is not None
    assert p99 is not None
    assert p99 > 1.3 * p50  # and some users see much less of it


def test_users_beyond_max_num_seqs_wait_as_the_closed_form_says() -> None:
    source = tables(engine={"max_num_seqs": 4})
    found = run(source, arrivals="closed:16", num_requests=400)
    expected = predict(load_deployment(source), num_speculative_tokens=3, concurrency=16)
    assert found.baseline is not None
    assert found.baseline.throughput_tokens_per_s == pytest.approx(expected.baseline.throughput_tokens_per_s, rel=0.02)
    assert found.baseline.metrics.ttft.mean_s == pytest.approx(expected.baseline.ttft_s, rel=0.05)


def test_replicas_share_the_load_and_add_up() -> None:
    alone = run(arrivals="closed:4", num_requests=120)
    two = run(tables(engine={"data_parallel_size": 2}), arrivals="closed:8", num_requests=120)
    assert alone.baseline is not None
    assert two.baseline is not None
    assert two.baseline.throughput_tokens_per_s == pytest.approx(2 * alone.baseline.throughput_tokens_per_s, rel=0.02)
    assert any("one of 2 engines" in note for note in two.notes)
    series, of_one = strict(two)["baseline"]["series"], two.baseline.metrics.series.to_dict()
    for name in ("running", "waiting", "tokens_per_s"):
        assert series[name] == pytest.approx([2 * value for value in of_one[name]])
    assert series["kv_usage"] == of_one["kv_usage"]


def test_the_result_has_the_keys_of_the_contract() -> None:
    result = strict(run())
    for arm in ("baseline", "speculative"):
        names = "requests throughput_tokens_per_s ttft_s tpot_s itl_s step_s tokens_per_step preemptions kv_usage"
        assert set(names.split()) <= set(result[arm])
        assert {"p50", "p95", "p99"} <= set(result[arm]["ttft_s"])
        assert result[arm]["requests"] == 80
    assert set(result["speedup"]) == {"p05", "p50", "p95"}
    assert result["speedup"]["p05"] < result["speedup"]["p50"] < result["speedup"]["p95"]
    assert result["inputs"]["arrivals"] == "closed:4"
    assert result["partial"] is False
    assert "reason" in result["goodput"]


def test_without_a_method_the_arm_is_the_baseline_and_the_speedup_one() -> None:
    for options in ({"num_speculative_tokens": 0}, {"method": "none", "num_speculative_tokens": None}):
        result = strict(run(num_requests=8, **options))
        assert result["speedup"] == {"p05": 1.0, "p50": 1.0, "p95": 1.0}
        assert result["baseline"] == result["speculative"]


def test_open_arrivals_compare_the_time_per_token() -> None:
    result = run(arrivals="poisson:5", num_requests=120)
    assert result.baseline is not None
    assert result.speculative is not None
    expected = result.baseline.metrics.tpot.mean_s / result.speculative.metrics.tpot.mean_s
    assert result.speedup["speedup"]["p50"] == pytest.approx(expected)


def test_a_rate_that_can_never_be_served_is_said() -> None:
    found = run(arrivals="poisson:500", num_requests=300)
    assert any("the queue grows as long as requests arrive" in note for note in found.notes)
    calm = run(arrivals="poisson:0.5", num_requests=20)
    assert not any("the queue grows" in note for note in calm.notes)


def test_limits_give_goodput_and_the_highest_rate_that_keeps_them() -> None:
    source = tables(objective={"tpot_ms_max": 2.2, "ttft_ms_max": 100.0}, workload={"output_tokens": 100})
    result = strict(run(source, arrivals="poisson:2", num_requests=150, find_rate=True))
    goodput = result["goodput"]
    assert goodput["slo"] == {"ttft_s_max": 0.1, "tpot_s_max": pytest.approx(0.0022), "percentile": 95.0}
    for arm in ("baseline", "speculative"):
        assert 0.0 <= goodput[arm]["attainment"] <= 1.0
    rate = goodput["baseline"]["max_rate_requests_per_s"]
    kept = strict(run(source, arrivals=f"poisson:{rate}", num_requests=150))["goodput"]["baseline"]["attainment"]
    lost = strict(run(source, arrivals=f"poisson:{1.5 * rate}", num_requests=150))["goodput"]["baseline"]["attainment"]
    assert kept >= 0.95 > lost


def test_limits_that_nothing_keeps_have_no_rate_and_a_reason() -> None:
    source = tables(objective={"tpot_ms_max": 0.001}, workload={"output_tokens": 20})
    goodput = strict(run(source, num_requests=20, find_rate=True))["goodput"]
    assert goodput["baseline"]["max_rate_requests_per_s"] is None
    assert "even at" in goodput["baseline"]["max_rate_reason"]


def test_an_outage_is_reported_for_both_arms() -> None:
    result = strict(run(arrivals="poisson:4", num_requests=80, outage=(5.0, 10.0)))
    for arm in ("baseline", "speculative"):
        outage = result["outage"][arm]
        assert outage["happened"]
        assert outage["queue_at_restart"] >= outage["arrived_meanwhile"] > 0
        assert result[arm]["requests"] == 80
    late = strict(run(num_requests=8, outage=(1e6, 10.0)))["outage"]["baseline"]
    assert not late["happened"]


def test_parameter_draws_widen_the_interval() -> None:
    result = strict(run(num_requests=40, num_draws=6))
    assert result["speedup_basis"] == "parameter draws"
    assert result["speedup"]["p05"] < result["speedup"]["p95"]


def test_the_policies_of_the_file_are_followed() -> None:
    chat = {**NOISY, "schedule": [[1, 2, 3], [3, 64, 0]]}
    scheduled = run(tables(speculation=chat), num_speculative_tokens=None)
    assert scheduled.speculative is not None
    totals = scheduled.speculative.metrics.totals
    assert 0 < totals.drafts < 0.5 * totals.decode_steps
    best = run(tables(speculation={**NOISY, "policy": "optimal"}), num_speculative_tokens=None)
    static = run(tables(speculation=NOISY), num_speculative_tokens=None)
    assert best.speculative is not None
    assert static.speculative is not None
    assert best.speculative.throughput_tokens_per_s >= 0.99 * static.speculative.throughput_tokens_per_s
    adaptive = run(
        tables(speculation={**NOISY, "policy": "sglang-adaptive"}, engine={"name": "sglang", "version": "0.5.5"}),
        num_speculative_tokens=None,
    )
    assert adaptive.inputs["num_speculative_tokens"] == 7
    assert not any("predicted as a static draft length" in note for note in adaptive.notes)


def test_recorded_steps_replace_sampled_acceptance(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    path.write_text('{"draft_tokens": [3, 0], "accepted_tokens": [1, 0]}\n', encoding="utf-8")
    result = run(acceptance_steps=str(path))
    assert result.speculative is not None
    assert result.speculative.metrics.tokens_per_step == pytest.approx(1.5, rel=0.01)


def test_both_arms_serve_the_same_requests(tmp_path: Path) -> None:
    source = tables(workload={"input_tokens": 50, "output_tokens": 40, "length_distribution": "lognormal"})
    path = tmp_path / "records.jsonl"
    run(source, arrivals="poisson:20", num_requests=50, outputs=Outputs(records=str(path)))
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    lengths = [
        sorted((r["request"], r["arrival_s"], r["input_tokens"], r["output_tokens"]) for r in rows if r["arm"] == arm)
        for arm in ("baseline", "speculative")
    ]
    assert len(lengths[0]) == 50
    assert lengths[0] == lengths[1]


def test_the_same_seed_gives_the_same_bytes_whatever_the_wall_clock(tmp_path: Path) -> None:
    def bytes_of(name: str, seed: int, pause_s: float) -> str:
        path = tmp_path / name
        outputs = Outputs(
            records=str(path), trace=str(tmp_path / f"{name}.json"), progress=lambda *_: time.sleep(pause_s)
        )
        result = run(arrivals="gamma:20:0.5", num_requests=30, seed=seed, outputs=outputs)
        files = path.read_bytes() + (tmp_path / f"{name}.json").read_bytes()
        return hashlib.sha256(json.dumps(result.to_dict()).encode() + files).hexdigest()

    assert bytes_of("a.csv", 7, 0.0) == bytes_of("b.csv", 7, 0.001)
    assert bytes_of("c.csv", 8, 0.0) != bytes_of("d.csv", 7, 0.0)


def test_no_module_of_the_simulation_reads_the_clock_or_a_global_seed() -> None:
    forbidden = {"time", "datetime", "random", "os.urandom"}
    for path in Path(simulator.serving.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not forbidden & set(names), path.name


def test_an_interrupted_run_says_what_was_done_and_leaves_no_file(tmp_path: Path) -> None:
    def interrupt(arm: str, done: int, total: int) -> None:
        if arm == "speculative" and done == 20:
            raise KeyboardInterrupt

    outputs = Outputs(records=str(tmp_path / "r.csv"), trace=str(tmp_path / "t.json"), progress=interrupt)
    result = strict(run(outputs=outputs))
    assert result["partial"] is True
    assert result["baseline"]["requests"] == 80
    assert 19 <= result["speculative"]["requests"] <= 21
    assert result["speculative"]["requests_unfinished"] > 0
    assert result["notes"][0].startswith("interrupted")
    assert list(tmp_path.iterdir()) == []


def test_a_run_interrupted_in_its_first_arm_has_no_second(tmp_path: Path) -> None:
    def interrupt(arm: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    result = strict(run(outputs=Outputs(progress=interrupt)))
    assert result["partial"] is True
    assert result["speculative"] is None
    assert result["speedup"]["p50"] is None


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"arrivals": "closed:0"}, "arrivals: got"),
        ({"num_requests": 0}, "requests: got 0"),
        ({"num_draws": 5000}, "draws: got 5000"),
        ({"outage": (-1.0, 2.0)}, "outage: got"),
        ({"num_speculative_tokens": 65}, "num_speculative_tokens: got 65"),
        ({"acceptance_steps": "absent.jsonl"}, "cannot read"),
        ({"arrivals": "trace:absent.csv"}, "cannot read"),
    ],
)
def test_bad_questions_are_one_line(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError) as error:
        run(**options)
    assert problem in str(error.value)
    assert "\n" not in str(error.value)


def test_an_arm_that_does_not_fit_is_named() -> None:
    source = tables(model={"config": "kimi-k2.5-int4"})
    with pytest.raises(InputError, match="the baseline arm would not start"):
        run(source, num_speculative_tokens=0)


def test_requests_longer_than_the_window_are_rejected_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("arrival_s,input_tokens,output_tokens\n0,10,5\n1,5000,10\n2,10,5\n", encoding="utf-8")
    source = tables(engine={"max_model_len": 1000})
    result = strict(run(source, arrivals=f"trace:{path}", num_requests=3))
    assert result["baseline"]["requests_rejected"] == 1
    assert result["baseline"]["rejections"] == {"longer than max_model_len = 1000 tokens": 1}
    assert any("1 of 3 requests rejected" in note for note in result["notes"])
    assert result["baseline"]["requests"] == 2


def test_a_trace_is_simulated_as_far_as_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    rows = "".join(f"{0.05 * i},20,10\n" for i in range(60))
    path.write_text("arrival_s,input_tokens,output_tokens\n" + rows, encoding="utf-8")
    for asked, expected in ((None, 60), (1000, 60), (45, 45)):
        result = strict(run(arrivals=f"trace:{path}", num_requests=asked))
        assert result["baseline"]["requests"] == expected
        assert result["speedup"]["p05"] is not None or asked == 45
