"""/metrics of a live server: whole answers are used, all others told; windows between two of them."""

import json
import time
from pathlib import Path

import pytest
from fault_server import MODEL, FaultServer
from loopback import serving, silent

from hwmodel.errors import InputError
from validate.client import connection as connection_module
from validate.client.connection import Connection
from validate.client.faults import FaultError
from validate.client.scrapes import Counters, window_between
from validate.client.server_facts import ServerFacts, read_facts
from validate.client.target import Target
from validate.measure.server_side import acceptance_dict, server_side, worth_saying


@pytest.fixture
def server():
    with FaultServer(k=2) as running:
        yield running


@pytest.fixture
def counters(server):
    return Counters(Connection(Target(server.url)))


def facts_of(server, model=None):
    connection = Connection(Target(server.url))
    return read_facts(connection, Counters(connection).take(), model)


def test_a_scrape_has_its_gauges_and_its_moment(server, counters):
    server.extra_running = 3
    first, second = counters.take(), counters.take()
    assert first.engine == "vllm"
    assert (first.running, first.waiting, first.generated) == (3.0, 0.0, 0.0)
    assert first.time_s < second.time_s


def test_the_window_between_two_scrapes_is_what_was_done_in_it(server, counters):
    before = counters.take()
    server.foreign(requests=2, tokens=30)
    window, reason = window_between(before, counters.take())
    assert reason is None
    assert window.delta("vllm:generation_tokens_total") == 30
    assert window.elapsed_s > 0


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("absent", "not there"),
        ("half", "cut short"),
        ("other", "no counters of vLLM or SGLang"),
        ("twice", "more than"),
    ],
)
def test_an_answer_that_is_none_is_told_and_not_used(server, counters, how, words):
    before = counters.take()
    server.metrics = how
    taken = counters.take()
    assert taken.scrape is None
    assert words in taken.reason
    assert window_between(before, taken) == (None, taken.reason)
    server.metrics = "ok"
    assert counters.take().scrape is not None


def test_an_answer_cut_at_the_end_of_a_line_lacks_what_was_there_before(server, counters, monkeypatch):
    counters.take()
    whole = server.metrics_text()
    lines = whole.splitlines(keepends=True)
    monkeypatch.setattr(server, "metrics_text", lambda: "".join(lines[: len(lines) // 2]))
    assert "cut short" in counters.take().reason


def test_a_restart_gives_no_window_and_says_so(server, counters):
    server.foreign(tokens=50)
    before = counters.take()
    server.restart()
    window, reason = window_between(before, counters.take())
    assert window is None
    assert "restarted" in reason


def test_counters_that_were_reset_in_one_process_give_no_window(server, counters):
    server.foreign(tokens=50)
    before = counters.take()
    server.counters.values["generation_tokens_total"] = 1.0
    window, reason = window_between(before, counters.take())
    assert window is None
    assert "reset" in reason


def test_what_a_server_tells_about_itself(server):
    facts = facts_of(server)
    assert facts.model == MODEL
    assert (facts.engine, facts.engine_version, facts.num_speculative_tokens) == ("vllm", "0.32.0", 2)
    assert (facts.max_model_len, facts.kv_cache_tokens) == (4096, 16000.0)
    assert facts.start_time_s == server.counters.start_s
    assert json.dumps(facts.to_dict(), allow_nan=False)


def test_a_server_without_speculation_says_so_and_one_without_counters_does_not():
    with FaultServer() as plain:
        facts = facts_of(plain)
        assert (facts.num_speculative_tokens, facts.method) == (0, "none")
        plain.metrics = "absent"
        facts = facts_of(plain)
        assert facts.num_speculative_tokens is None
        assert "not there" in facts.metrics_reason


def test_a_model_that_is_not_served_lists_those_that_are(server):
    with pytest.raises(InputError, match=f"got 'other', the server has: {MODEL}"):
        facts_of(server, "other")


def test_a_server_that_still_loads_is_no_server_yet(server):
    server.ready = False
    with pytest.raises(FaultError, match="not ready to serve: loading the model"):
        facts_of(server)


def test_two_servers_differ_in_what_matters_and_in_nothing_unknown():
    mine = ServerFacts("u", "m", engine="vllm", engine_version="0.32.0", num_speculative_tokens=3)
    assert mine.differences({"engine": "vllm", "model": "m", "url": "elsewhere", "engine_version": None}) == []
    assert mine.differences({"num_speculative_tokens": 5}) == ["num_speculative_tokens was 5, is 3"]


DATA = Path(__file__).parents[1] / "data" / "measurements"


def test_a_real_servers_counters_between_two_looks(server, counters):
    server.pages["/metrics"] = (DATA / "qwen_k5_metrics_before.txt").read_text()
    before = counters.take()
    server.pages["/metrics"] = (DATA / "qwen_k5_metrics_after.txt").read_text()
    window, reason = window_between(before, counters.take())
    assert reason is None
    totals = server_side(window).totals
    assert totals.finished == totals.first_tokens == 6
    assert (totals.generated_tokens, totals.steps) == (240, 114)  # six answers of 40 tokens, k = 5
    assert acceptance_dict(server_side(window))["steps"] == totals.steps
    assert worth_saying(None) == []


def test_sglang_tells_its_settings_and_its_ranks_count_once(server):
    labels = 'engine_type="unified",model_name="org/m",pp_rank="0",tp_rank="{}"'
    lines = [f"sglang:num_running_reqs{{{labels.format(rank)}}} 4.0" for rank in range(4)]
    server.pages = {
        "/v1/models": {"data": [{"id": "org/m", "owned_by": "sglang", "max_model_len": 100}]},
        "/version": {"detail": "none"},
        "/get_server_info": {"version": "0.5.5", "tp_size": 4, "speculative_algorithm": "EAGLE3",
                             "speculative_num_steps": 3, "speculative_eagle_topk": 1},
        "/metrics": "\n".join(lines) + "\n",
    }  # fmt: skip
    facts = facts_of(server)
    assert (facts.engine, facts.engine_version, facts.method) == ("sglang", "0.5.5", "eagle3")
    assert facts.num_speculative_tokens == 3
    assert Counters(Connection(Target(server.url))).take().running == 4.0
    server.pages["/get_server_info"]["speculative_eagle_topk"] = 4
    assert facts_of(server).num_speculative_tokens is None  # a tree has no k


def test_adapters_are_not_taken_for_the_model(server):
    server.pages["/v1/models"] = {"data": [{"id": "lora", "parent": "base"}, {"id": "base", "parent": None}]}
    assert facts_of(server).model == "base"
    assert facts_of(server, "lora").model == "lora"


@pytest.mark.parametrize("answer", [{}, {"data": []}, {"data": [{"id": 3}]}, [], "<html>"])
def test_a_server_without_models_asks_for_the_name(server, answer):
    server.pages["/v1/models"] = answer
    with pytest.raises(InputError, match="allowed: a server with /v1/models, or --served-model NAME"):
        facts_of(server)
    assert facts_of(server, "m").model == "m"


def test_a_silent_server_is_not_asked_twice_in_one_look(monkeypatch):
    monkeypatch.setattr(connection_module, "GET_TIMEOUT_S", 0.2)
    with serving({"/metrics": silent}) as url:
        start_s = time.monotonic()
        taken = Counters(Connection(Target(url))).take(tries=50)
        assert time.monotonic() - start_s < 5
    assert "no word from the server for 0.2 s" in taken.reason
