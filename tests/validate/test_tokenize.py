"""Token ids from a server: against a small server on the loopback, well behaved and not."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from hwmodel.errors import InputError
from validate.tokenize import ServerTokenizer

Answer = Callable[[dict[str, Any]], tuple[int, bytes]]


class Server:
    """Answers /tokenize with what `answer` says and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.answer: Answer = lambda body: (200, json.dumps({"count": 2, "tokens": [len(str(body)), 7]}).encode())
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.asked.append((self.path, dict(self.headers), body))
                status, content = outer.answer(body)
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", "http://127.0.0.1:1/elsewhere")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                pass

        self.http = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    thread = threading.Thread(target=made.http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.http.shutdown()
    thread.join()
    made.http.server_close()


def test_outputs_get_no_special_tokens_prompts_do_and_chats_get_the_template(server: Server) -> None:
    tokenizer = ServerTokenizer(server.url)
    assert tokenizer.output_ids("") == []
    assert tokenizer.output_ids("ab")[1] == 7
    tokenizer.prompt_ids("ab")
    ids, is_exact = tokenizer.chat_ids([{"role": "user", "content": "x"}], [{"type": "function"}])
    assert is_exact
    assert ids[1] == 7
    bodies = [body for _, _, body in server.asked]
    assert [body.get("add_special_tokens") for body in bodies] == [False, True, None]
    assert bodies[2]["messages"] == [{"role": "user", "content": "x"}]
    assert bodies[2]["add_generation_prompt"] is True
    assert bodies[2]["tools"] == [{"type": "function"}]


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/", "/tokenize"])
def test_the_root_the_api_and_the_endpoint_are_all_understood(server: Server, path: str) -> None:
    ServerTokenizer(server.url + path).output_ids("a")
    assert server.asked[0][0] == "/tokenize"


def test_the_key_comes_from_the_environment_and_is_never_told(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-very-secret")
    tokenizer = ServerTokenizer(server.url, "MY_KEY")
    tokenizer.output_ids("a")
    assert server.asked[0][1]["Authorization"] == "Bearer sk-very-secret"
    server.answer = lambda _: (401, b"no")
    with pytest.raises(InputError) as caught:
        tokenizer.output_ids("a")
    assert "secret" not in str(caught.value)
    with pytest.raises(InputError, match="no environment variable ABSENT_KEY"):
        ServerTokenizer(server.url, "ABSENT_KEY")
    monkeypatch.setenv("MY_KEY", "two\nlines")
    with pytest.raises(InputError, match="MY_KEY holds no key"):
        ServerTokenizer(server.url, "MY_KEY")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((404, b'{"error": "no such\n model"}'), "answered 404"),
        ((302, b""), "answered 302"),
        ((200, b"<html>"), "answered no JSON"),
        ((200, b"[1, 2]"), "answered without tokens"),
        ((200, b'{"tokens": null}'), "answered without tokens"),
    ],
)
def test_a_server_that_answers_otherwise_is_one_line(server: Server, answer: tuple[int, bytes], said: str) -> None:
    server.answer = lambda _: answer
    with pytest.raises(InputError) as caught:
        ServerTokenizer(server.url).output_ids("a")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_server_that_is_not_there_is_one_line() -> None:
    with pytest.raises(InputError, match=r"no answer from http://127.0.0.1:1/tokenize: ConnectionError"):
        ServerTokenizer("http://127.0.0.1:1").output_ids("a")


@pytest.mark.parametrize(
    "url", ["", "localhost:8000", "ftp://x", "http://", "http://user:word@host", "http://x:port", "http://["]
)
def test_addresses_that_cannot_be_are_refused_without_repeating_a_password(url: str) -> None:
    with pytest.raises(InputError) as caught:
        ServerTokenizer(url)
    assert "word@" not in str(caught.value)
