"""What a server understands is found out by one request, and everything else still works without it."""

import pytest
from fault_server import MODEL, FaultServer

from hwmodel.errors import InputError
from validate.client.connection import Connection
from validate.client.faults import FaultError
from validate.client.target import Target
from validate.measure.dialect import CHAT, COMPLETIONS, Dialect, find_dialect
from validate.measure.prompts import Prompt
from validate.measure.settings import Load

TEXT = Prompt(text="p", kind="k")
MESSAGES = Prompt(messages=({"role": "system", "content": "s"}, {"role": "user", "content": "u"}))


@pytest.fixture
def server():
    with FaultServer(k=1, tokens_per_step=2) as running:
        yield running


def found(server, prompt=TEXT, model=MODEL, **load):
    return find_dialect(Connection(Target(server.url)), model, Load(**load), prompt, "u1")


def test_a_server_that_knows_everything_is_asked_for_token_ids_and_salted_as_a_chat(server):
    dialect, answer, notes = found(server)
    assert (dialect.path, dialect.token_ids, dialect.prefix) == (CHAT, True, "salt")
    assert not dialect.continuous_usage  # token ids tell more
    assert answer.counted_by == "token_ids"
    assert notes == []
    body = dialect.body(TEXT, "u2")
    assert body["messages"] == [{"role": "user", "content": "p"}]
    assert (body["cache_salt"], body["max_tokens"], body["stream"]) == ("u2", 256, True)
    assert "temperature" not in body


def test_without_a_chat_template_texts_go_as_they_are(server):
    server.has_chat = False
    dialect, _, notes = found(server)
    assert dialect.path == COMPLETIONS
    assert dialect.body(TEXT, "u2")["prompt"] == "p"
    assert "no chat template" in notes[0]
    with pytest.raises(FaultError, match="no chat template"):
        found(server, MESSAGES)  # a recorded chat is not made into something else
    with pytest.raises(FaultError, match="no chat template"):
        found(server, api="chat")


@pytest.mark.parametrize(
    ("refused", "counted_by", "prefix"),
    [
        (("cache_salt",), "token_ids", "random text"),
        (("return_token_ids",), "usage", "salt"),
        (("return_token_ids", "continuous_usage_stats"), "final usage", "salt"),
        (("return_token_ids", "cache_salt", "stream_options"), "nothing", "random text"),
    ],
)
def test_what_a_server_refuses_is_left_out_and_said(server, refused, counted_by, prefix):
    server.refused_fields = refused
    dialect, answer, notes = found(server)
    assert (answer.counted_by, dialect.prefix) == (counted_by, prefix)
    assert len(notes) == len([name for name in refused if name != "stream_options"]) + ("stream_options" in refused)
    body = dialect.body(TEXT, "u2")
    assert not [name for name in refused if name in str(body)]


def test_a_server_that_ignores_token_ids_is_asked_for_usage_in_every_chunk(server):
    server.ids = False
    dialect, answer, _ = found(server)
    assert answer.counted_by == "usage"
    assert dialect.body(TEXT, "u")["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}


def test_a_refusal_for_another_reason_ends_with_the_servers_word(server):
    server.always = "400"
    with pytest.raises(FaultError, match="HTTP 400: status 400"):
        found(server)
    assert len(server.bodies) < 10


def test_a_wrong_model_ends_at_once_with_the_servers_word(server):
    with pytest.raises(FaultError, match=r"HTTP 404, .* The model `other` does not exist"):
        found(server, model="other")


def test_a_random_word_stands_before_the_first_message_or_the_text():
    load = Load(prefix_cache="avoid")
    chat = Dialect(CHAT, "m", load, salt=False)
    assert chat.body(MESSAGES, "u")["messages"][0] == {"role": "system", "content": "[u]\ns"}
    assert MESSAGES.messages[0]["content"] == "s"
    assert Dialect(COMPLETIONS, "m", load, salt=False).body(TEXT, "u")["prompt"] == "[u]\np"
    allowed = Dialect(CHAT, "m", Load(prefix_cache="allow"), salt=True)
    assert "cache_salt" not in allowed.body(TEXT, "u")
    assert allowed.prefix == "none"


def test_token_ids_go_as_a_completion_and_cannot_be_a_chat(server):
    ids = Prompt(token_ids=(1, 2))
    dialect, _, _ = found(server, ids)
    assert dialect.body(ids, "u")["prompt"] == [1, 2]
    with pytest.raises(InputError, match="allowed: --api completions"):
        found(server, ids, api="chat")


def test_options_of_the_load_stand_in_the_request():
    dialect = Dialect(COMPLETIONS, "m", Load(temperature=0.0, ignore_eos=True))
    body = dialect.body(Prompt(text="p", max_tokens=9), "u")
    assert (body["temperature"], body["ignore_eos"], body["max_tokens"]) == (0.0, True, 9)
    assert Dialect(COMPLETIONS, "m", Load(output_tokens=5)).body(Prompt(text="p", max_tokens=9), "u")["max_tokens"] == 5


def test_a_chat_as_a_completion_is_its_messages_below_each_other():
    assert Dialect(COMPLETIONS, "m", Load()).body(MESSAGES, "u")["prompt"] == "system: s\n\nuser: u"
