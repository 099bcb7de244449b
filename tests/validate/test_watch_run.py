"""Every look at a live /metrics gives one record with one reason, whatever the server does, and the watch goes on."""

import json
import time

import pytest
from fault_server import MODEL, FaultServer

from hwmodel.errors import InputError
from simulator.deployment import load_deployment
from validate.client.faults import FaultError
from validate.client.target import Target
from validate.watch import run
from validate.watch.advice import Asked
from validate.watch.run import Watch, WatchPlan
from validate.watch.steady import Rule

POOR, GOOD = (0.45, 0.3, 0.25, 0.2, 0.2), (0.93, 0.92, 0.91, 0.9, 0.9)
EAGLE = {
    "model": {"config": "qwen3-30b-a3b-bf16"},
    "hardware": {"gpu": "h200"},
    "engine": {"version": "0.32.0"},
    "speculation": {"method": "eagle3"},
}


def watching(server, deployment=EAGLE, interval_s=60.0, **plan):
    asked = Asked(num_draws=200)
    given = {"rule": Rule(0.9, 0.03, 2)} | plan
    return Watch(
        WatchPlan(Target(server.url), lambda: load_deployment(deployment), interval_s=interval_s, asked=asked, **given)
    )


@pytest.fixture
def server():
    with FaultServer(k=5) as running:
        running.work(conditional=GOOD, steps=200)
        yield running


@pytest.fixture
def watch(server):
    found = watching(server)
    assert found.start() is None
    return found


def after(server, watch, **work):
    server.work(**({"conditional": POOR, "step_s": 0.02} | work))
    return watch.look()


def test_the_window_alone_counts_and_not_what_was_before_it(server, watch):
    record = after(server, watch)
    assert record.status == "ok"
    assert record.traffic.per_position == pytest.approx((0.45, 0.135, 0.034, 0.007, 0.001), abs=0.005)
    assert record.traffic.concurrency == 8
    assert record.traffic.step_s == pytest.approx(0.02)
    assert (record.deployed, record.traffic.input_tokens, record.traffic.output_tokens) == (5, 500, 200)


def test_a_step_count_that_two_others_contradict_is_not_believed(server, watch):
    server.extra_running = 8
    record = after(server, watch, batch=2)  # its gaps are those of hundreds of requests in a few milliseconds
    assert record.traffic.concurrency == 8
    assert any("by the count of steps" in note for note in record.traffic.notes)
    server.extra_running = 0
    assert after(server, watch, batch=2).traffic.concurrency == 8  # the gauge at the other end


def test_poor_acceptance_makes_a_shorter_length_best_and_it_is_announced_once(server, watch):
    records = [after(server, watch) for _ in range(4)]
    assert [record.changed for record in records] == [False, True, False, False]
    assert records[0].best == 5
    assert records[1].best < 5
    figures = records[1].to_dict()
    assert figures["speedup"]["p50"] > 1.03
    assert figures["speedup"]["p05"] < figures["speedup"]["p50"] < figures["speedup"]["p95"]
    assert figures["probability_better"] >= 0.9
    assert "now k=" in records[1].reason
    assert "still k=" in records[2].reason


def test_good_acceptance_keeps_the_deployed_length_above_the_shorter_ones(server, watch):
    record = after(server, watch, conditional=GOOD)
    rows = {row["num_speculative_tokens"]: row["speedup"]["p50"] for row in record.to_dict()["grid"]}
    assert rows[0] < rows[1] < rows[3] < rows[5] == 1.0


def test_few_drafts_take_the_acceptance_since_the_start_and_few_steps_no_verdict(server, watch):
    record = after(server, watch, draft_share=0.02)
    assert record.to_dict()["traffic"]["acceptance_of"] == "start"
    few = after(server, watch, batch=1, steps=30)
    assert (few.status, few.traffic) == ("few", None)


def test_an_interval_without_traffic_is_idle_and_counts_for_nothing(server, watch):
    after(server, watch)
    assert watch.look().status == "idle"
    assert after(server, watch).changed  # two in a row, the idle one between them left out


def test_counters_that_stand_still_under_load_are_frozen(server, watch):
    server.extra_running = 3
    watch.look()
    record = watch.look()
    assert record.status == "frozen"
    assert "3 requests run" in record.reason


@pytest.mark.parametrize(
    ("metrics", "words"),
    [("absent", "404"), ("half", "cut short"), ("other", "no counters of vLLM"), ("twice", "more than once")],
)
def test_a_broken_answer_loses_its_interval_and_the_next_good_one_is_whole(server, watch, metrics, words):
    server.metrics = metrics
    server.work(conditional=POOR, step_s=0.02)
    record = watch.look()
    assert record.status == "lost"
    assert words in record.reason
    assert "\n" not in record.reason
    server.metrics = "ok"
    assert after(server, watch).traffic.steps == pytest.approx(1600, rel=0.01)  # both: it was one process all the time


def test_a_gap_too_long_is_lost_since_its_load_is_not_known(server, monkeypatch):
    monkeypatch.setattr(run, "_GRACE_S", 0.0)
    watch = watching(server, interval_s=0.01)
    watch.start()
    time.sleep(0.05)
    record = after(server, watch)
    assert record.status == "lost"
    assert "not known" in record.reason


def test_a_restart_is_said_with_what_changed_and_the_announcement_starts_anew(server, watch):
    assert [after(server, watch).changed for _ in range(2)] == [False, True]
    server.k = 3
    server.restart()
    record = watch.look()
    assert record.status == "restarted"
    assert "num_speculative_tokens was 5, is 3" in record.reason
    assert (record.deployed, record.best) == (3, 3)
    assert after(server, watch).deployed == 3


def test_a_server_that_goes_and_comes_back_is_unreachable_in_between(server):
    watch = watching(server)
    watch.start()
    server.ready = False
    record = watch.look()
    assert record.status == "unreachable"
    assert "503" in record.reason
    server.ready = True
    assert after(server, watch).status == "ok"


def test_a_server_that_is_not_there_yet_is_waited_for():
    with FaultServer(k=5) as server:
        server.ready = False
        watch = watching(server)
        assert "503" in watch.start()
        assert watch.look().status == "unreachable"
        server.ready = True
        server.work(conditional=GOOD)
        assert watch.look().status == "restarted"
        assert after(server, watch).status == "ok"


def test_what_waiting_cannot_mend_is_raised_at_the_start(server):
    server.metrics = "absent"
    with pytest.raises(InputError, match=r"/metrics is not there"):
        watching(server).start()
    server.metrics, server.key = "ok", "other"
    with pytest.raises(FaultError, match="API key"):
        watching(server).start()


def test_a_model_that_is_not_served_is_refused_at_the_start(server):
    with pytest.raises(InputError, match=f"the server has: {MODEL}"):
        watching(server, served_model="another").start()


def test_a_baseline_without_a_method_says_what_would_be_needed():
    with FaultServer(k=0) as server:
        watch = watching(server, EAGLE | {"speculation": {"method": "none"}})
        watch.start()
        record = after(server, watch)
    assert record.status == "unknown"
    assert "--method" in record.reason
    assert "replay" in record.reason
    assert (record.deployed, record.best, record.traffic.tokens_per_step) == (0, 0, 1.0)


@pytest.mark.parametrize(("positions", "best_is_on"), [([0.9, 0.8, 0.7], True), ([0.05, 0.01, 0.0], False)])
def test_a_baseline_is_compared_by_the_acceptance_that_the_deployment_states(positions, best_is_on):
    stated = {"speculation": {"method": "eagle3", "acceptance": {"per_position": positions, "num_requests": 500}}}
    with FaultServer(k=0) as server:
        watch = watching(server, EAGLE | stated)
        watch.start()
        records = [after(server, watch, step_s=0.011) for _ in range(2)]
    assert records[0].advice.acceptance_source == "the deployment's (per_position)"
    assert (records[1].best > 0) is best_is_on
    assert records[1].changed is best_is_on


def test_a_baseline_without_any_acceptance_is_told_to_rest_on_a_prior():
    with FaultServer(k=0) as server:
        watch = watching(server)
        watch.start()
        record = after(server, watch, step_s=0.011)
    assert "prior" in record.advice.acceptance_source
    wide = record.to_dict()["grid"][-1]["speedup"]
    assert wide["p95"] > 1.2 * wide["p05"]


def test_a_step_that_the_machine_cannot_have_is_said_with_the_question_that_it_raises(server, watch):
    record = after(server, watch, step_s=0.5)
    assert any("is the deployment" in note for note in record.notes)


def test_lengths_are_those_asked_for_with_none_and_the_deployed_one(server):
    watch = watching(server)
    object.__setattr__(watch.plan, "asked", Asked((2, 4), 200))
    watch.start()
    assert [row["num_speculative_tokens"] for row in after(server, watch).to_dict()["grid"]] == [0, 2, 4, 5]


def test_the_loop_gives_as_many_records_as_asked_and_a_summary(server):
    watch = watching(server, interval_s=0.02)
    watch.start()
    records = []
    watch.run(3, records.append)
    assert len(records) == 3
    assert watch.summary.intervals == 3
    assert sum(watch.summary.by_status.values()) == 3


def test_records_are_strict_json_with_every_key_always_there(server, watch):
    full = after(server, watch).to_dict()
    empty = watch.look().to_dict()
    assert set(full) == set(empty)
    json.dumps([full, empty], allow_nan=False)
    assert empty["speedup"] is None
    assert empty["speedup_reason"] == "no traffic"


def test_a_hostile_metrics_page_cannot_break_a_reason(server, watch):
    server.pages["/metrics"] = (
        'vllm:generation_tokens_total{model_name="a\\nb\x1b[31m"} NaN\n' + "vllm:x " * 5000 + "\n"
    )
    record = watch.look()
    assert record.reason.isprintable()
    assert record.traffic is None
