import time
from http.server import BaseHTTPRequestHandler

import pytest
from loopback import cut_short, endless, redirect, serving, silent

import validate.fetch as fetch
from hwmodel.errors import InputError
from validate.fetch import Fetcher, base_url, shown_url


@pytest.mark.parametrize(
    ("given", "base"),
    [
        ("http://h:1", "http://h:1"),
        ("http://h:1/", "http://h:1"),
        ("http://h:1/v1", "http://h:1"),
        ("https://h/llm/v1/?x=1#y", "https://h/llm"),
        (" http://h ", "http://h"),
    ],
)
def test_the_servers_own_url_is_what_clients_are_given_without_v1(given: str, base: str) -> None:
    assert base_url(given) == base


@pytest.mark.parametrize(
    "given", ["", "h:1", "ftp://h", "http://", "http://h:x", "http://h:0", "http://[", "file:///x"]
)
def test_what_is_no_url_is_one_line(given: str) -> None:
    with pytest.raises(InputError, match="URL: got"):
        base_url(given)


def test_user_and_password_are_not_shown() -> None:
    assert shown_url("http://me:secret@h:1/x") == "http://h:1/x"


def test_an_answer_and_a_missing_page() -> None:
    with serving({"/a": (200, '{"x": 1}'), "/b": (200, "no json")}) as url:
        fetcher = Fetcher(url)
        assert fetcher.get("/a").json() == {"x": 1}
        assert fetcher.get("/b").json() is None
        assert fetcher.get("/b").text() == "no json"
        assert (fetcher.get("/c").is_ok, fetcher.get("/c").status) == (False, 404)


def test_a_closed_port_is_a_refused_connection() -> None:
    with serving({}) as url:
        pass
    assert Fetcher(url).get("/a") == fetch.Reply(0, fault="connection refused")


def test_the_key_goes_to_the_server_alone() -> None:
    seen: list[str | None] = []

    def elsewhere(handler: BaseHTTPRequestHandler) -> None:
        seen.append(handler.headers.get("Authorization"))
        handler.send_response(200)
        handler.send_header("Content-Length", "2")
        handler.end_headers()
        handler.wfile.write(b"{}")

    with serving({"/": elsewhere}) as other, serving({"/a": redirect(other + "/"), "/b": (200, "ok")}, "k3y") as url:
        assert Fetcher(url, "k3y").get("/b").is_ok
        assert Fetcher(url).get("/b").is_unauthorized
        assert Fetcher(url, "k3y").get("/a").status == 302
    assert seen == []


@pytest.mark.parametrize("key", ["a\nb", "a\rX: y", "schlüssel", "\0"])
def test_a_key_that_no_header_can_carry_is_one_line_without_the_key(key: str) -> None:
    with pytest.raises(InputError) as caught:
        Fetcher("http://h", key)
    assert key not in str(caught.value)


def test_an_endless_answer_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "MAX_BYTES", 1_000_000)
    with serving({"/a": endless}) as url:
        reply = Fetcher(url).get("/a")
    assert (reply.is_ok, reply.body) == (False, b"")
    assert "longer than 1000000 bytes" in reply.fault


def test_an_endless_answer_in_time_is_cut_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "TOTAL_TIMEOUT_S", 0.0)
    with serving({"/a": endless}) as url:
        assert "took longer" in Fetcher(url).get("/a").fault


def test_a_silent_server_is_given_up() -> None:
    with serving({"/a": silent}) as url:
        started = time.monotonic()
        reply = Fetcher(url).get("/a", read_timeout_s=0.1)
        assert time.monotonic() - started < 2
    assert reply == fetch.Reply(0, fault="no answer within 0.1 s")


def test_an_answer_that_ends_too_early_is_a_fault() -> None:
    with serving({"/a": cut_short}) as url:
        assert not Fetcher(url).get("/a").is_ok


def test_deep_json_is_none() -> None:
    with serving({"/a": (200, "[" * 200_000)}) as url:
        assert Fetcher(url).get("/a").json() is None
