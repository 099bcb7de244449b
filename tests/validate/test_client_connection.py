"""Single requests to a server that misbehaves: each fault ends in one line that says what happened."""

import socket
import threading
import time
import traceback

import pytest
import requests
from fault_server import FaultServer
from loopback import cut_short, endless, redirect, serving, silent

from validate.client import connection as connection_module
from validate.client.connection import Connection
from validate.client.faults import FaultError
from validate.client.target import Target

SECRET = "sk-verysecretkey123456"
BODY = {"model": "toy", "prompt": "p", "max_tokens": 8, "stream": True, "return_token_ids": True,
        "stream_options": {"include_usage": True}}  # fmt: skip


@pytest.fixture
def server():
    with FaultServer() as running:
        yield running


def ask(server, body=BODY, **options):
    connection = Connection(Target(server.url, options.pop("key", None)), silence_s=options.pop("silence_s", 20.0))
    return connection.stream("/v1/completions", body, **options)


def fault_of(server, **options):
    with pytest.raises(FaultError) as error:
        ask(server, **options)
    assert "\n" not in str(error.value)
    return error.value.fault


def test_a_whole_answer_has_its_tokens_and_times(server):
    answer = ask(server, keep=True)
    assert answer.output_tokens == 8
    assert answer.chunk_tokens == [1] * 8
    assert answer.chunk_times_s == sorted(answer.chunk_times_s)
    assert answer.start_s < answer.chunk_times_s[0] < answer.end_s
    assert "".join(answer.text) == " wört" * 8


def test_a_connection_is_kept_for_the_next_request(server):
    connection = Connection(Target(server.url))
    for _ in range(3):
        assert connection.stream("/v1/completions", BODY).output_tokens == 8
    assert server.connections == 1


def test_a_kept_connection_that_the_server_has_closed_is_opened_again(server):
    connection = Connection(Target(server.url))
    connection.stream("/v1/completions", BODY)
    server.faults.append("drop")  # closes without a word, as after an idle time
    assert connection.stream("/v1/completions", BODY).output_tokens == 8
    assert server.connections == 2


@pytest.mark.parametrize("fault", ["garbage", "huge", "bytes", "no_done"])
def test_what_does_not_spoil_an_answer_is_read_over(server, fault):
    server.faults.append(fault)
    answer = ask(server, keep=True)
    assert answer.output_tokens == 8
    assert answer.num_garbage == {"garbage": 3, "huge": 1}.get(fault, 0)
    assert "".join(answer.text) == " wört" * 8


@pytest.mark.parametrize("fault", ["cut", "cut_utf8", "reset"])
def test_a_stream_that_is_cut_says_after_how_much(server, fault):
    server.faults.append(fault)
    found = fault_of(server)
    assert found.kind == "broken"
    assert found.message.startswith("the stream was cut after 2 chunks")


def test_an_error_event_ends_the_answer_with_the_servers_word(server):
    server.faults.append("error")
    found = fault_of(server)
    assert found.kind == "broken"
    assert "the engine died" in found.message


def test_a_silent_stream_is_given_up(server):
    server.faults.append("stall")
    found = fault_of(server, silence_s=0.2)
    assert found.kind == "broken"
    assert "no word from the server for 0.2 s" in found.message


def test_an_answer_is_given_up_when_its_time_is_over(server):
    server.pace_s = 0.01
    assert fault_of(server, until_s=0.0).kind == "stopped"


def test_another_thread_ends_a_silent_request(server):
    server.faults.append("stall")
    connection, stop = Connection(Target(server.url)), threading.Event()

    def give_up():
        while not server.bodies or server.counters.values["generation_tokens_total"] < 3:
            stop.wait(0.01)
        stop.set()
        connection.abort()

    thread = threading.Thread(target=give_up)
    thread.start()
    with pytest.raises(FaultError) as error:
        connection.stream("/v1/completions", BODY, stop=stop)
    thread.join()
    assert error.value.fault.kind == "stopped"


@pytest.mark.parametrize(
    ("fault", "kind", "words", "wait_s"),
    [
        ("401", "fatal", "wants an API key", None),
        ("403", "fatal", "refuses this API key", None),
        ("404", "fatal", "no such model or address", None),
        ("429:7", "later", "too many requests", 7.0),
        ("503", "later", "not ready", None),
        ("503:Wed, 21 Oct 2015 07:28:00 GMT", "later", "not ready", 0.0),
        ("503:soon", "later", "not ready", None),
        ("429:nan", "later", "too many", None),
        ("429:999999999", "later", "too many", 3600.0),
        ("400", "skip", "status 400", None),
        ("413", "skip", "status 413", None),
        ("500", "broken", "status 500", None),
        ("502", "broken", "status 502", None),
    ],
)
def test_every_status_is_sorted_by_what_to_do_about_it(server, fault, kind, words, wait_s):
    server.faults.append(fault)
    found = fault_of(server)
    assert (found.kind, found.retry_after_s) == (kind, wait_s)
    assert words in found.message
    assert found.message.startswith(f"HTTP {fault[:3]}")


def test_the_key_goes_into_the_header_and_nowhere_else(server):
    server.key = SECRET
    assert ask(server, key=SECRET).output_tokens == 8
    found = fault_of(server, key=SECRET + "wrong")  # the server repeats what it got
    assert found.status == 401
    assert SECRET not in found.message
    assert "***" in found.message


def test_the_key_is_not_in_the_trace_of_a_fault(server):
    server.faults.append("reset")
    with pytest.raises(FaultError) as error:
        ask(server, key=SECRET)
    assert SECRET not in "".join(traceback.format_exception(error.value))


def test_a_redirect_is_not_followed_with_the_key(server):
    with FaultServer() as other:
        server.faults.append("302")
        assert fault_of(server, key=SECRET).status == 302
        assert other.headers == []


def test_no_server_and_no_such_host_are_told_apart():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    found = Connection(Target(url)).get("/v1/models").fault
    assert found.kind == "broken"
    assert "refuses the connection" in found.message
    nowhere = Connection(Target("http://no-such-host.invalid")).get("/v1/models").fault
    assert "no such host" in nowhere.message


def test_an_answer_that_is_no_http_is_a_broken_connection():
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer():
            client, _ = listener.accept()
            client.recv(1000)
            client.sendall(b"SSH-2.0-OpenSSH\r\n" * 3)
            client.close()

        threading.Thread(target=answer, daemon=True).start()
        found = Connection(Target(f"http://127.0.0.1:{listener.getsockname()[1]}")).get("/v1/models").fault
    assert found.kind == "broken"


def test_a_page_in_place_of_a_stream_is_named():
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer():
            client, _ = listener.accept()
            client.recv(10_000)
            client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\n<html><body>hello</body></html")
            client.close()

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(FaultError, match="no stream of server-sent events"):
            Connection(Target(f"http://127.0.0.1:{listener.getsockname()[1]}")).stream("/v1/completions", BODY)


def test_a_stream_without_chunked_encoding_is_read_as_it_comes():
    """Until the connection closes, as some proxies send it."""
    event = b'data: {"choices": [{"index": 0, "text": "a", "token_ids": [1]}]}\n\n'
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer():
            client, _ = listener.accept()
            client.recv(10_000)
            client.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n" + event)
            time.sleep(1.0)
            client.sendall(event + b"data: [DONE]\n\n")
            client.close()

        threading.Thread(target=answer, daemon=True).start()
        found = Connection(Target(f"http://127.0.0.1:{listener.getsockname()[1]}")).stream("/v1/completions", BODY)
    assert found.output_tokens == 2
    assert found.chunk_times_s[1] > found.chunk_times_s[0]


def test_a_server_that_never_closes_the_body_is_not_waited_for(server):
    """[DONE] has come: what follows is no part of the answer."""
    done = b'data: {"choices": [{"text": "a", "token_ids": [1], "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
    with socket.create_server(("127.0.0.1", 0)) as listener:
        held = []

        def answer():
            client, _ = listener.accept()
            held.append(client)
            client.recv(10_000)
            client.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n" % (len(done), done))

        threading.Thread(target=answer, daemon=True).start()
        connection = Connection(Target(f"http://127.0.0.1:{listener.getsockname()[1]}"), silence_s=60.0)
        found = connection.stream("/v1/completions", BODY)
    assert found.output_tokens == 1
    assert found.end_s - found.chunk_times_s[0] < 30.0


def test_a_get_answers_with_json_text_or_the_fault():
    with serving({"/a": (200, '{"x": 1}'), "/b": (200, "no json"), "/deep": (200, "[" * 200_000)}) as url:
        connection = Connection(Target(url))
        assert connection.get("/a").json() == {"x": 1}
        assert (connection.get("/b").json(), connection.get("/b").text) == (None, "no json")
        assert connection.get("/deep").json() is None
        missing = connection.get("/c")
        assert (missing.is_ok, missing.status, missing.text) == (False, 404, "")


def test_a_get_with_the_key_goes_to_the_server_alone():
    seen = []

    def elsewhere(handler):
        seen.append(handler.headers.get("Authorization"))

    with serving({"/": elsewhere}) as other, serving({"/a": redirect(other + "/"), "/b": (200, "ok")}, "k3y") as url:
        assert Connection(Target(url, "k3y")).get("/b").is_ok
        assert Connection(Target(url)).get("/b").is_unauthorized
        assert Connection(Target(url, "k3y")).get("/a").status == 302
    assert seen == []


def test_an_endless_answer_to_a_get_is_cut_by_its_length_and_by_its_time(monkeypatch):
    with serving({"/a": endless}) as url:
        monkeypatch.setattr(connection_module, "MAX_GET_BYTES", 1_000_000)
        reply = Connection(Target(url)).get("/a")
        assert (reply.is_ok, reply.body) == (False, b"")
        assert "longer than 1000000 bytes" in reply.fault.message
        monkeypatch.setattr(connection_module, "MAX_GET_BYTES", 10**12)
        assert "does not end" in Connection(Target(url)).get("/a", timeout_s=0.05).fault.message


@pytest.mark.parametrize(("answer", "words"), [(silent, "no word from the server for 0.1 s"), (cut_short, "broke")])
def test_a_get_that_gets_no_whole_answer_says_why(answer, words):
    with serving({"/a": answer}) as url:
        reply = Connection(Target(url)).get("/a", timeout_s=0.1)
    assert (reply.is_ok, reply.body) == (False, b"")
    assert words in reply.fault.message


def test_a_server_without_tls_that_is_asked_by_https_is_told_as_such(server, monkeypatch):
    for name in ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)
    reply = Connection(Target(server.url.replace("http:", "https:"))).get("/version")
    assert "does not speak TLS" in reply.fault.message


def test_certificates_to_trust_that_are_not_there_are_told_as_such(server, monkeypatch, tmp_path):
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "gone.pem"))
    reply = Connection(Target(server.url.replace("http:", "https:"))).get("/version")
    assert "REQUESTS_CA_BUNDLE" in reply.fault.message


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("certificate verify failed: self-signed certificate (_ssl.c:1016)", "not trusted"),
        ("certificate verify failed: unable to get local issuer certificate", "not trusted"),
        ("certificate verify failed: Hostname mismatch, certificate is not valid for 'a'", "another name"),
        ("certificate verify failed: certificate has expired", "expired"),
        ("[SSL: WRONG_VERSION_NUMBER] wrong version number", "does not speak TLS"),
    ],
)
def test_a_failed_tls_connection_says_what_to_do(words, said):
    fault = Connection(Target("https://h"))._fault(requests.exceptions.SSLError(words), 1.0)
    assert said in fault.message
