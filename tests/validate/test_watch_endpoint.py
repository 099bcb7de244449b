"""The Prometheus endpoint: text that the grammar of the format takes, two pages, bounded, gone when closed."""

import re
import socket
import threading
import time
import urllib.error
import urllib.request

import pytest
from fault_server import FaultServer
from hypothesis import given
from hypothesis import strategies as st
from loopback import answered

from hwmodel.errors import InputError
from simulator.deployment import load_deployment
from validate.client.server_facts import ServerFacts
from validate.client.target import Target
from validate.watch.advice import Asked
from validate.watch.endpoint import Endpoint
from validate.watch.exposition import CONTENT_TYPE, Family, Figures
from validate.watch.record import Record
from validate.watch.run import Watch, WatchPlan
from validate.web import server
from validate.web.server import Address, address_of

LOOPBACK = Address("127.0.0.1", 0)
LABELS = r'\{(?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\\\|\\"|\\n)*",?)*\}'
SAMPLE = re.compile(rf"[a-zA-Z_:][a-zA-Z0-9_:]*(?:{LABELS})? (?:NaN|[+-]Inf|-?[0-9.]+(?:e[+-]?[0-9]+)?)")
HELP = re.compile(r"# HELP [a-zA-Z_:][a-zA-Z0-9_:]* (?:[^\\\n]|\\\\|\\n)*")
TYPE = re.compile(r"# TYPE [a-zA-Z_:][a-zA-Z0-9_:]* (?:gauge|counter)")


def parsed(text):
    """{series: value}, after checking every line and their order: HELP, TYPE, then the samples of that metric alone."""
    assert text.endswith("\n")
    found, named = {}, None
    for line in text.splitlines():
        if line.startswith("# HELP "):
            assert HELP.fullmatch(line), line
            named = line.split()[2]
            assert not any(series.partition("{")[0] == named for series in found)
        elif line.startswith("# TYPE "):
            assert TYPE.fullmatch(line), line
            assert line.split()[2] == named
        else:
            assert SAMPLE.fullmatch(line), line
            series, _, value = line.rpartition(" ")
            assert series.partition("{")[0] == named
            assert series not in found
            found[series] = float(value)
    return found


def get(url):
    with urllib.request.urlopen(url, timeout=5) as reply:
        return reply.status, reply.headers, reply.read().decode()


def status(url, **options):
    try:
        return get(urllib.request.Request(url, **options))[0]
    except urllib.error.HTTPError as error:
        return error.code


def watched():
    """Figures after one interval that was compared, and after one that was not."""
    deployment = {"model": {"config": "qwen3-30b-a3b-bf16"}, "hardware": {"gpu": "h200"},
                  "speculation": {"method": "eagle3"}}  # fmt: skip
    with FaultServer(k=2) as server:
        watch = Watch(WatchPlan(Target(server.url), lambda: load_deployment(deployment), asked=Asked((0, 1, 2), 200)))
        watch.start()
        server.work(conditional=(0.8, 0.5), step_s=0.02)
        full, idle = watch.look(), watch.look()
    return watch.facts, full, idle


def test_every_figure_of_a_compared_interval_is_a_series():
    facts, record, _ = watched()
    figures = Figures("http://h:8000", 30.0)
    figures.take(record, facts, 1000.0)
    found = parsed(figures.published())
    assert found['draftcast_watch_info{url="http://h:8000",model="toy",engine="vllm",version="0.32.0"}'] == 1
    assert found["draftcast_watch_deployed_num_speculative_tokens"] == 2
    assert found['draftcast_watch_acceptance{position="1"}'] == pytest.approx(0.4)
    assert found["draftcast_watch_step_seconds"] == pytest.approx(0.02)
    assert found["draftcast_watch_concurrency"] == 8
    assert found["draftcast_watch_tokens_per_step"] == pytest.approx(2.2)
    assert found["draftcast_watch_last_scrape_timestamp_seconds"] == 1000
    assert found['draftcast_watch_length_speedup{num_speculative_tokens="2"}'] == 1
    assert {f'draftcast_watch_speedup{{quantile="{q}"}}' for q in ("0.05", "0.5", "0.95")} <= set(found)
    assert {"draftcast_watch_probability_better", "draftcast_watch_best_num_speculative_tokens"} <= set(found)


def test_what_the_last_interval_did_not_tell_is_absent_and_not_repeated():
    facts, full, idle = watched()
    figures = Figures("http://h:8000", 30.0)
    figures.take(full, facts, 1000.0)
    figures.take(idle, facts, 1030.0)
    found = parsed(figures.published())
    assert "draftcast_watch_step_seconds" not in found
    assert found["draftcast_watch_best_num_speculative_tokens"] == 2
    assert found["draftcast_watch_last_scrape_timestamp_seconds"] == 1030


def test_errors_are_counted_and_leave_the_time_of_the_last_good_look():
    figures = Figures("http://h:8000", 30.0)
    for state, time_s in (("idle", 1.0), ("unreachable", 2.0), ("lost", 3.0)):
        figures.take(Record("t", state, "why"), None, time_s)
    found = parsed(figures.published())
    assert found["draftcast_watch_scrapes_total"] == 3
    assert found["draftcast_watch_scrape_errors_total"] == 2
    assert found["draftcast_watch_last_scrape_timestamp_seconds"] == 1
    assert found["draftcast_watch_up"] == 0
    assert found['draftcast_watch_intervals_total{status="unreachable"}'] == 1


@given(st.text(max_size=40), st.floats(), st.text(max_size=40).filter(lambda text: "\r" not in text))
def test_any_label_text_and_value_keeps_the_grammar_and_comes_back(word, value, helped):
    words = word.replace("\r", "").replace("\x85", "").replace("\u2028", "").replace("\u2029", "")
    lines = list(Family("x", "gauge", "h", (({"l": words}, value),)).lines())
    assert len(lines) == 3
    body = lines[2].removeprefix('draftcast_watch_x{l="').rpartition('"} ')[0]
    assert "\n" not in lines[2]
    back = re.sub(r"\\(.)", lambda part: {"n": "\n"}.get(part[1], part[1]), body)
    assert back == words
    assert "\n" not in next(iter(Family("x", "gauge", helped, (({}, 1.0),)).lines()))


def test_a_model_name_with_quotes_and_line_feeds_stays_one_label():
    figures = Figures("http://h", 1.0)
    figures.take(Record("t", "idle", "no traffic"), ServerFacts("http://h", 'a"b\\c\nd'), 1.0)
    assert 'model="a\\"b\\\\c\\nd"' in figures.published()
    parsed(figures.published())


@pytest.fixture
def served():
    wrong = [None]
    running = Endpoint(LOOPBACK, lambda: "x 1\n", lambda: wrong[0])
    yield running.url, wrong
    running.close()


def test_metrics_and_health_are_served_and_nothing_else(served):
    url, wrong = served
    code, headers, text = get(f"{url}/metrics?a=b")
    assert (code, headers["Content-Type"], text) == (200, CONTENT_TYPE, "x 1\n")
    assert get(f"{url}/healthz")[2] == "ok\n"
    wrong[0] = "no look for 90 s"
    assert status(f"{url}/healthz") == 503
    assert [status(f"{url}{path}") for path in ("/", "/metrics/", "/..%2f", "/etc/passwd")] == [404] * 4
    assert [status(f"{url}/metrics", method=name) for name in ("POST", "PUT", "DELETE", "FOO")] == [405] * 4


def test_a_request_that_is_none_is_answered_shortly_and_repeats_nothing(served):
    for sent in (b"<script>\r\n\r\n", b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\r\n\r\n"):
        answer = answered(served[0], sent)
        assert len(answer) < 500
        assert b"script" not in answer


def test_connections_are_bounded_and_slow_ones_are_cut_off(monkeypatch):
    monkeypatch.setattr(server, "REQUEST_S", 0.5)
    running = Endpoint(LOOPBACK, lambda: "x 1\n", lambda: None)
    host, port = running.url.removeprefix("http://").split(":")
    held = [socket.create_connection((host, int(port)), timeout=5) for _ in range(server.MAX_CLIENTS)]
    try:
        time.sleep(0.2)
        with socket.create_connection((host, int(port)), timeout=5) as refused:
            assert refused.recv(10) == b""  # hung up on
        assert [sock.recv(10) for sock in held] == [b""] * len(held)  # after half a second, whatever they sent
        assert get(f"{running.url}/healthz")[0] == 200
    finally:
        running.close()
        for sock in held:
            sock.close()


def test_closing_ends_the_threads_and_frees_the_port():
    before = threading.active_count()
    running = Endpoint(LOOPBACK, lambda: "x 1\n", lambda: None)
    port = int(running.url.rpartition(":")[2])
    idle = socket.create_connection(("127.0.0.1", port), timeout=5)
    get(f"{running.url}/metrics")
    running.close()
    assert idle.recv(10) == b""
    idle.close()
    until = time.monotonic() + 5
    while threading.active_count() > before:
        assert time.monotonic() < until
        time.sleep(0.01)
    Endpoint(Address("127.0.0.1", port), lambda: "", lambda: None).close()


def test_a_port_in_use_and_a_host_of_others_are_refused_in_one_line():
    running = Endpoint(LOOPBACK, lambda: "", lambda: None)
    port = int(running.url.rpartition(":")[2])
    with pytest.raises(InputError, match=r"cannot listen on 127.0.0.1:\d+: address already in use"):
        Endpoint(Address("127.0.0.1", port), lambda: "", lambda: None)
    running.close()
    with pytest.raises(InputError, match=r"cannot listen on 192.0.2.1"):
        Endpoint(Address("192.0.2.1", 0), lambda: "", lambda: None)


@pytest.mark.parametrize(
    ("text", "found"),
    [("9109", ("127.0.0.1", 9109)), (":9109", ("127.0.0.1", 9109)), ("0.0.0.0:80", ("0.0.0.0", 80)),
     ("[::1]:9109", ("::1", 9109)), ("localhost:1", ("localhost", 1))],
)  # fmt: skip
def test_an_address_is_a_port_or_a_host_and_a_port(text, found):
    assert address_of(text) == found


@pytest.mark.parametrize("text", ["", "host", "1:2:3", "a:99999", "http://x:1", "x:-1", "x:1/", "::1:80", "a b:1"])
def test_what_is_no_address_is_refused_in_one_line(text):
    with pytest.raises(InputError, match=r"allowed: HOST:PORT"):
        address_of(text)
