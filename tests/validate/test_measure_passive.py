"""Watching without load: windows of one load add up, restarts cost a window, and the tables are a deployment's."""

import json
import threading
import time
import tomllib

import pytest
from fault_server import FaultServer

from calibration.readers.prometheus_text import scrapes_of
from calibration.readers.read import read_evidence
from hwmodel.errors import InputError
from simulator.deployment import load_deployment
from validate.client.connection import Connection
from validate.client.faults import FaultError
from validate.client.scrapes import Counted, window_between
from validate.client.target import Target
from validate.measure.passive import PassivePlan, PassiveRun
from validate.measure.passive_tables import deployment_tables
from validate.measure.traffic import Traffic

HEAD = {"model": {"config": "qwen3-30b-a3b-bf16"}, "hardware": {"gpu": "h200"}}


class Engine:
    """Counters of a server whose every second has `batch` requests decoding in steps of `step_s`."""

    def __init__(self, k=0, per_step=1.0):
        self.k, self.per_step = k, per_step
        self.time_s, self.pairs, self.steps, self.tokens, self.itl_s, self.requests = (0.0,) * 6
        self.batch, self.start_s = 0, 1000.0

    def run(self, seconds, batch, step_s):
        steps = seconds / step_s if batch else 0.0
        self.time_s, self.batch = self.time_s + seconds, batch
        self.steps, self.pairs = self.steps + steps, self.pairs + steps * batch
        self.itl_s += steps * batch * step_s
        self.tokens += steps * batch * self.per_step
        self.requests += steps * batch * self.per_step / 100
        return self.scrape()

    def scrape(self):
        labels = 'engine="0",model_name="m"'
        values = {
            "generation_tokens_total": self.tokens + self.requests,
            "time_to_first_token_seconds_count": self.requests,
            "time_to_first_token_seconds_sum": self.requests * 0.2,
            "inter_token_latency_seconds_count": self.pairs,
            "inter_token_latency_seconds_sum": self.itl_s,
            "iteration_tokens_total_count": self.steps,
            "request_success_total": self.requests,
            "request_prompt_tokens_count": self.requests,
            "request_prompt_tokens_sum": self.requests * 300,
            "request_generation_tokens_count": self.requests,
            "request_generation_tokens_sum": self.requests * 101,
            "prefix_cache_queries_total": self.requests * 300,
            "prefix_cache_hits_total": self.requests * 75,
            "num_requests_running": self.batch,
        }
        lines = [f"process_start_time_seconds {self.start_s}"]
        lines += [f"vllm:{name}{{{labels}}} {value}" for name, value in values.items()]
        if self.k:
            spec = {"num_drafts": self.pairs, "num_draft_tokens": self.pairs * self.k,
                    "num_accepted_tokens": self.pairs * (self.per_step - 1)}  # fmt: skip
            lines += [f"vllm:spec_decode_{name}_total{{{labels}}} {value}" for name, value in spec.items()]
            share = (self.per_step - 1) / self.k
            lines += [
                f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{{labels},position="{i}"}} {self.pairs * share}'
                for i in range(self.k)
            ]
        (scrape,) = scrapes_of("\n".join(lines) + "\n", "/metrics")
        scrape.time_s = self.time_s
        return Counted(self.time_s, scrape)


def watched(engine, windows):
    """A run that has seen the engine for each (seconds, batch, step time) of `windows`."""
    run = PassiveRun(PassivePlan(Target("http://127.0.0.1:9"), 1.0))
    for window in windows:
        engine.batch = window[1]  # the load has just changed
        before = engine.scrape()
        found, reason = window_between(before, engine.run(*window))
        assert found is not None, reason
        run.traffic.add(found)
    return run


def test_windows_of_one_load_are_one_cell_with_the_mean_of_their_steps():
    run = watched(Engine(), [(10, 4, 0.02), (10, 16, 0.05), (10, 4, 0.03), (10, 4, 0.02)])
    cells = {round(cell["concurrency"]): cell for cell in run.result()["cells"]}
    assert set(cells) == {4, 16}
    pairs = (10 / 0.02 * 2 + 10 / 0.03) * 4
    assert cells[4]["step_s"] == pytest.approx(30 * 4 / pairs)
    assert (cells[4]["windows"], cells[4]["duration_s"]) == (3, 30)
    assert cells[4]["throughput_tokens_per_s"] == pytest.approx(pairs * 1.01 / 30)
    assert sum(cell["share_of_tokens"] for cell in cells.values()) == pytest.approx(1.0)


def test_scatter_between_windows_is_in_the_noise():
    even = watched(Engine(), [(10, 4, 0.02)] * 4).result()["cells"][0]["relative_noise"]
    uneven = watched(Engine(), [(10, 4, 0.02), (10, 4, 0.05), (10, 4, 0.02), (10, 4, 0.05)]).result()["cells"][0]
    assert uneven["relative_noise"] > 0.15 > even


def test_idle_and_changing_windows_belong_to_no_load():
    engine = Engine()
    run = watched(engine, [(10, 0, 0.02), (10, 4, 0.02)])
    assert run.traffic.idle_s == 10
    before = engine.scrape()
    engine.run(5, 4, 0.02)
    found, _ = window_between(before, engine.run(5, 30, 0.02))
    run.traffic.add(found)
    assert run.traffic.uneven_s == 10
    assert [round(cell["concurrency"]) for cell in run.result()["cells"]] == [4]


def test_a_load_that_was_seen_too_seldom_is_told_and_not_used():
    result = watched(Engine(), [(10, 4, 0.02)] * 2).result()
    assert result["cells"][0]["refused_reason"] == "this load was seen in 2 windows only, allowed: from 3"
    assert result["deployment_toml"] is None
    assert "watch for longer" in result["deployment_reason"]


def test_the_tables_of_a_baseline_are_those_of_a_deployment_file():
    result = watched(Engine(), [(10, 4, 0.02)] * 3 + [(10, 16, 0.05)] * 5).result()
    tables = tomllib.loads(result["deployment_toml"])
    deployment = load_deployment({**HEAD, **tables})
    assert deployment.workload.concurrency == (4, 16)
    assert deployment.workload.input_tokens == 300
    assert deployment.workload.output_tokens == 101
    assert deployment.workload.prefix_cache_hit_share == 0.25
    tokens = [3 * 4 / 0.02, 5 * 16 / 0.05]
    assert deployment.workload.weights == pytest.approx([share / sum(tokens) for share in tokens], rel=1e-3)
    assert [fact.concurrency for fact in deployment.measured] == [4, 16]
    assert [fact.tpot_ms for fact in deployment.measured] == pytest.approx([20.0, 50.0])
    assert [fact.context_tokens for fact in deployment.measured] == [350, 350]
    assert all(0 < fact.relative_noise < 0.2 for fact in deployment.measured)


def test_a_server_that_speculates_gives_its_counters_and_no_baseline():
    result = watched(Engine(k=3, per_step=2.5), [(10, 8, 0.03)] * 4).result()
    cell = result["cells"][0]
    assert cell["tokens_per_step"] == pytest.approx(2.5)
    assert cell["tpot_s"]["mean"] == pytest.approx(0.03 / 2.5)
    tables = tomllib.loads(result["deployment_toml"])
    assert "measured" not in tables
    assert any("no baseline" in note for note in result["notes"])
    tables["speculation"]["method"] = "mtp"
    loaded = load_deployment({**HEAD, **tables}).speculation
    assert loaded.num_speculative_tokens == 3
    assert loaded.acceptance.counters["num_accepted_tokens_per_pos"] == [round(4 * 10 / 0.03 * 8 / 2)] * 3


def test_two_draft_lengths_are_kept_apart():
    first, second = Engine(), Engine(k=2, per_step=1.5)
    traffic = Traffic()
    for engine in (first, second):
        for _ in range(3):
            before = engine.scrape()
            traffic.add(window_between(before, engine.run(10, 4, 0.02))[0])
            engine.batch = 4
    assert sorted(key[0] for key in traffic.groups) == [0, 2]


def test_without_traffic_there_are_no_tables():
    assert deployment_tables([], None, None).text is None


def test_the_run_of_a_live_server_agrees_with_its_load_and_is_read_as_evidence(tmp_path):
    path = tmp_path / "run.json"
    with FaultServer(pace_s=0.004) as server:
        stop = threading.Event()

        def user():
            connection = Connection(Target(server.url))
            body = {"model": "toy", "prompt": "p", "max_tokens": 40, "return_token_ids": True}
            while not stop.is_set():
                connection.stream("/v1/completions", body)

        threads = [threading.Thread(target=user) for _ in range(2)]
        for thread in threads:
            thread.start()
        run = PassiveRun(PassivePlan(Target(server.url), 2.5 / 60, 0.4, run_path=str(path)))
        try:
            run.run()
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    result = json.loads(path.read_text())
    assert len(server.bodies) > 5
    assert all(body["prompt"] == "p" for body in server.bodies)  # nothing was sent by the watch
    assert result["traffic"]["scrapes"] >= 3
    assert result["traffic"]["busy_s"] > 0
    evidence = read_evidence([path])
    assert len(evidence.cells) + len(evidence.refused) >= len(result["cells"]) >= 1
    with pytest.raises(InputError, match="holds an earlier run"):
        PassiveRun(PassivePlan(Target(server.url), 0.1, run_path=str(path))).run()


def test_restarts_and_lost_scrapes_cost_their_windows_and_are_told():
    with FaultServer() as server:
        run = PassiveRun(PassivePlan(Target(server.url), 2.0 / 60, 0.2))
        thread = threading.Thread(target=run.run)
        thread.start()
        for how in ("ok", "absent", "half", "ok"):
            server.metrics = how
            server.foreign(tokens=100)
            time.sleep(0.3)
        server.restart()
        thread.join()
    notes = " ".join(run.result()["notes"])
    assert "restarted" in notes
    assert "cut short" in notes
    assert "not there" in notes


def test_without_counters_there_is_nothing_to_watch():
    with FaultServer() as server:
        server.metrics = "absent"
        with pytest.raises(FaultError, match="allowed: a server whose /metrics can be read"):
            PassiveRun(PassivePlan(Target(server.url), 0.1)).run()
