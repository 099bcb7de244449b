"""Recordings from files: every shape by hand, real captures, and files that are broken in every way."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration.replay.ngram import Lookup
from calibration.replay.recording import Recording
from calibration.replay.run import Settings, replay
from calibration.replay.sources.answers import Answer, BadRecordError
from calibration.replay.sources.files import Reading
from calibration.replay.sources.records import answers_in
from calibration.replay.sources.texts import FileTokenizer
from calibration.replay.versions import EngineRules
from hwmodel.errors import InputError

DATA = Path(__file__).parent.parent.parent / "data" / "replay"


class Letters:
    """A tokenizer with one id per letter; 1 before a prompt, 2 before every message."""

    def output_ids(self, text: str) -> list[int]:
        return [ord(letter) for letter in text]

    def prompt_ids(self, text: str) -> list[int]:
        return [1, *self.output_ids(text)]

    def chat_ids(self, messages: Sequence[Mapping[str, Any]], tools: Any) -> tuple[list[int], bool]:
        return [token for message in messages for token in (2, *self.output_ids(str(message["content"])))], True


def lines(path: Path, *records: Any) -> str:
    """A file with one JSON record a line; text goes in as it is."""
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in records), encoding="utf-8")
    return str(path)


def read(tmp_path: Path, *records: Any, **options: Any) -> tuple[list[Recording], Reading]:
    reading = Reading(**({"tokenizer": Letters()} | options))
    return list(reading.recordings([lines(tmp_path / "log.jsonl", *records)])), reading


def texts(recordings: list[Recording]) -> list[tuple[str, str]]:
    """Prompt and output as letters; the marks of the tokenizer as < and |."""
    names = {1: "<", 2: "|"}
    return [
        tuple("".join(names.get(token, chr(token)) for token in part.tolist()) for part in (item.prompt, item.output))  # type: ignore[misc]
        for item in recordings
    ]


def test_token_ids_are_taken_as_they_are_whatever_else_the_line_holds(tmp_path: Path) -> None:
    junk = {"prompt": 7, "messages": "x", "choices": 3, "text": None, "response": {"choices": []}}
    found, reading = read(tmp_path, {"prompt_token_ids": [1, 2], "token_ids": [3, 4], **junk}, tokenizer=None)
    assert [(item.prompt.tolist(), item.output.tolist(), item.has_prompt) for item in found] == [([1, 2], [3, 4], True)]
    assert not reading.notes()


def test_a_missing_prompt_is_known_to_be_missing(tmp_path: Path) -> None:
    found, _ = read(tmp_path, {"token_ids": [3, 4]}, {"prompt_token_ids": [], "token_ids": [5]}, tokenizer=None)
    assert [item.has_prompt for item in found] == [False, True]


CHAT = {"messages": [{"role": "user", "content": "hi"}], "temperature": 0.6, "max_tokens": 9}
ANSWER = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "yes"}}]}


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"prompt": "ab", "text": "cd"}, ("<ab", "cd")),
        ({"prompt": "ab", "output": "cd"}, ("<ab", "cd")),
        ({"prompt": "ab", "response": "cd"}, ("<ab", "cd")),
        ({"prompt": "ab", "response": {"role": "assistant", "content": "cd"}}, ("<ab", "cd")),
        ({"messages": CHAT["messages"], "output": "cd"}, ("|hi", "cd")),
        ({"prompt": [97, 98], "text": "cd"}, ("ab", "cd")),
        ({"text": "cd"}, ("", "cd")),
        ({"request": CHAT, "response": ANSWER}, ("|hi", "yes")),
        ({"input": CHAT, "output": ANSWER}, ("|hi", "yes")),
        ({"request": json.dumps(CHAT), "response": json.dumps(ANSWER)}, ("|hi", "yes")),
        (
            {"custom_id": "1", "request": {"body": CHAT}, "response": {"status_code": 200, "body": ANSWER}},
            ("|hi", "yes"),
        ),
        ({**CHAT, **ANSWER}, ("|hi", "yes")),
        ({"request": {"prompt": "ab"}, "response": {"choices": [{"text": "cd"}]}}, ("<ab", "cd")),
        ({"prompt_token_ids": [97], "outputs": [{"token_ids": [99, 100]}]}, ("a", "cd")),
        ({"prompt": "ab", "outputs": [{"text": "cd", "index": 0}]}, ("<ab", "cd")),
        ({"messages": [*CHAT["messages"], {"role": "assistant", "content": "ok"}]}, ("|hi", "ok")),
        ({"conversations": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "ok"}]}, ("|hi", "ok")),
        ({"prompt_token_ids": [97], "choices": [{"token_ids": [99], "message": {"content": "zz"}}]}, ("a", "c")),
        ({"choices": [{"prompt_token_ids": [97], "token_ids": [99], "text": "zz"}]}, ("a", "c")),
    ],
)
def test_every_shape_of_record(tmp_path: Path, record: dict[str, Any], expected: tuple[str, str]) -> None:
    assert texts(read(tmp_path, record)[0]) == [expected]


def test_reasoning_comes_first_and_counts_once_under_two_names_and_tool_calls_count() -> None:
    message = {
        "role": "assistant",
        "reasoning_content": "why ",
        "reasoning": "why ",
        "content": "so ",
        "tool_calls": [{"function": {"name": "f", "arguments": '{"x":1}'}}],
    }
    assert answers_in({"choices": [{"message": message}]})[0].text == 'why so f{"x":1}'
    only_new = {"reasoning": "why ", "content": None}
    assert answers_in({"choices": [{"message": only_new}]})[0].text == "why "
    parts = {"content": [{"type": "text", "text": "a"}, {"type": "image_url"}, {"type": "text", "text": "b"}]}
    assert answers_in({"choices": [{"message": parts}]})[0].text == "ab"


def test_every_choice_is_an_output_of_the_same_prompt(tmp_path: Path) -> None:
    found, _ = read(tmp_path, {"prompt": "p", "choices": [{"text": "a"}, {"text": "b"}, {"text": ""}]})
    assert texts(found) == [("<p", "a"), ("<p", "b")]
    found, _ = read(
        tmp_path, {"request": {"prompt": ["p", "q"]}, "response": {"choices": [{"text": "a"}, {"text": "b"}]}}
    )
    assert texts(found) == [("<p", "a"), ("<q", "b")]


def test_sampling_parameters_are_kept(tmp_path: Path) -> None:
    found, _ = read(tmp_path, {"request": {**CHAT, "presence_penalty": 0.5}, "response": ANSWER})
    assert (found[0].temperature, found[0].max_tokens, found[0].undraftable) == (0.6, 9, "presence_penalty")
    found, _ = read(
        tmp_path, {"request": {**CHAT, "repetition_penalty": 1.0, "min_p": 0, "logprobs": False}, "response": ANSWER}
    )
    assert found[0].undraftable is None


def chunk(name: str, *choices: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"id": name, "object": "chat.completion.chunk", "choices": list(choices), **more}


def data(record: Any) -> str:
    return f"data: {json.dumps(record)}\n"


def test_streams_that_interleave_are_told_apart_by_their_ids(tmp_path: Path) -> None:
    events = [
        chunk("a", {"index": 0, "delta": {"role": "assistant", "content": ""}}, prompt_token_ids=[5]),
        chunk("b", {"index": 0, "delta": {"content": "x"}, "token_ids": [7]}),
        chunk(
            "a",
            {"index": 0, "delta": {"content": "y"}, "token_ids": [1, 2]},
            {"index": 1, "delta": {}, "token_ids": [9]},
        ),
        chunk("b", {"index": 0, "delta": {"content": "z"}, "token_ids": [8]}),
        chunk("a", usage={"completion_tokens": 3}),
    ]
    found, _ = read(tmp_path, ": keep-alive", "event: message", *map(data, events), "data: [DONE]", tokenizer=None)
    assert [(item.prompt.tolist(), item.output.tolist()) for item in found] == [([5], [1, 2]), ([5], [9]), ([], [7, 8])]


def test_a_stream_without_ids_is_its_text_with_the_reasoning_first(tmp_path: Path) -> None:
    events = [
        chunk("a", {"index": 0, "delta": {"reasoning": "why "}, "token_ids": None}),
        chunk("a", {"index": 0, "delta": {"content": "so"}}),
        chunk("a", {"index": 0, "delta": {"tool_calls": [{"function": {"name": "f", "arguments": ""}}]}}),
        chunk("a", {"index": 0, "delta": {"tool_calls": [{"function": {"arguments": "{}"}}]}}),
    ]
    assert texts(read(tmp_path, *map(data, events))[0]) == [("", "why sof{}")]
    assert texts(read(tmp_path, *events)[0]) == [("", "why sof{}")]
    assert texts(read(tmp_path, {"request": CHAT, "response": events})[0]) == [("|hi", "why sof{}")]


def test_files_may_mix_streams_and_records_and_hold_headers(tmp_path: Path) -> None:
    stream, second, third = (data(chunk(name, {"index": 0, "delta": {"content": "x"}})) for name in "abc")
    head = "HTTP/1.1 200 OK\ncontent-type: text/event-stream\n"
    found, _ = read(tmp_path, head, stream, "data: [DONE]", {"text": "y"}, second, {"text": "z"}, third)
    assert [output for _, output in texts(found)] == ["x", "y", "x", "z", "x"]


def test_a_file_given_twice_counts_once_under_any_name(tmp_path: Path) -> None:
    first, second = (lines(tmp_path / name, {"text": "ab"}, {"text": "cd"}) for name in ("a.jsonl", "b.jsonl"))
    reading = Reading(Letters())
    assert len(list(reading.recordings([first, first, second]))) == 2
    notes = reading.notes()
    assert [note.split(" is the same file as ")[0][-7:] for note in notes if "counted once" in note] == [
        "a.jsonl",
        "b.jsonl",
    ]


def test_a_request_in_two_files_counts_once_if_id_prompt_and_output_are_the_same(tmp_path: Path) -> None:
    def log(name: str, output: str) -> dict[str, Any]:
        return {"request": CHAT, "response": {"id": name, "choices": [{"message": {"content": output}}]}}

    first = lines(tmp_path / "a.jsonl", log("r1", "x"), log("r2", "y"))
    second = lines(
        tmp_path / "b.jsonl", log("r1", "x"), log("r2", "other"), log("r3", "x"), {"text": "x"}, {"text": "x"}
    )
    reading = Reading(Letters())
    found = [output for _, output in texts(list(reading.recordings([first, second])))]
    assert found == ["x", "y", "other", "x", "x", "x"]  # without an id nothing is certain
    assert reading.notes()[0] == "requests recorded twice (same id, prompt and output), counted once: 1"


def test_answers_that_measure_cut_short_count_only_where_that_is_asked_for(tmp_path: Path) -> None:
    path = lines(tmp_path / "a.jsonl", {"text": "xyz", "shortened": False}, {"text": "x", "shortened": True})
    reading = Reading(Letters())
    assert texts(list(reading.recordings([path]))) == [("", "xyz")]
    assert reading.notes()[0].startswith("1 answers that measure had cut short")
    assert len(list(Reading(Letters(), keep_shortened=True).recordings([path]))) == 2


def test_equal_choices_of_one_request_are_two_outputs(tmp_path: Path) -> None:
    choice = {"message": {"content": "x"}}
    found, _ = read(tmp_path, {"request": CHAT, "response": {"id": "r", "choices": [choice, choice]}})
    assert len(found) == 2


def test_a_document_of_several_lines_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    for document in (json.dumps({"text": "ab"}, indent=2), json.dumps([{"text": "ab"}], indent=2)):
        path.write_text(document, encoding="utf-8")
        assert texts(list(Reading(Letters()).recordings([str(path)]))) == [("", "ab")]


@pytest.mark.parametrize("name", ["vllm_0.32_chat_stream_ids.sse", "vllm_0.32_completion_stream_ids.sse"])
def test_a_real_capture_replays_to_the_steps_that_the_server_took(name: str) -> None:
    """vLLM 0.32 with n-gram k = 5, matches of 4 tokens: each chunk of the stream was one engine step."""
    sizes = []
    for line in (DATA / name).read_text(encoding="utf-8").splitlines():
        event = json.loads(line.removeprefix("data: ")) if line.startswith("data: {") else {"choices": []}
        sizes += [len(choice["token_ids"]) for choice in event["choices"] if choice.get("token_ids")]
    recordings = list(Reading().recordings([str(DATA / name)]))
    tally = replay(recordings, Settings(Lookup("lps", 4, 4), (5,), EngineRules())).tallies[0]
    steps, drafts, *_, last = tally.requests.sum(axis=0).tolist()
    assert steps == len(sizes) - 1
    assert last == sizes.count(6)
    assert drafts == 5  # the server's own counter: 30 drafts in six such requests


def test_a_real_response_is_the_same_as_its_stream() -> None:
    whole, stream = (
        next(iter(Reading().recordings([str(DATA / name)])))
        for name in ("vllm_0.32_completion.json", "vllm_0.32_completion_stream_ids.sse")
    )
    assert whole.prompt.tolist() == stream.prompt.tolist()
    assert whole.output.tolist() == stream.output.tolist()


def test_failed_requests_and_empty_outputs_are_noted_and_left_out(tmp_path: Path) -> None:
    failed = {"request": CHAT, "response": {"error": {"message": "too long"}}}
    found, reading = read(
        tmp_path, failed, {"request": CHAT, "response": None, "error": "gone"}, {"text": ""}, {"text": "a"}
    )
    assert len(found) == 1
    assert any("2 failed requests" in note for note in reading.notes())
    assert any("1 empty outputs" in note for note in reading.notes())


def test_text_that_counts_otherwise_than_the_server_did_is_noted(tmp_path: Path) -> None:
    _, reading = read(tmp_path, {**CHAT, **ANSWER, "usage": {"completion_tokens": 6}})
    assert any("-50 % against the servers' own counts" in note for note in reading.notes())
    _, reading = read(tmp_path, {**CHAT, **ANSWER, "usage": {"completion_tokens": 3}})
    assert not any("servers' own" in note for note in reading.notes())


def test_text_without_a_tokenizer_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"log.jsonl line 2: holds text without token ids; allowed with --tokenizer FILE"
    ):
        read(tmp_path, {"token_ids": [1]}, {"text": "a"}, tokenizer=None, skip_bad=True)
    with pytest.raises(InputError, match="holds a prompt as text"):
        read(tmp_path, {"prompt": "a", "token_ids": [1]}, tokenizer=None)


BAD = [
    ('{"token_ids": [1, 2', "no JSON"),
    ("nonsense", "no JSON"),
    ("[" * 100_000, "nested too deeply"),
    ('"text"', "allowed: a JSON object"),
    ("{}", "no output among no keys"),
    ('{"prompt": "x"}', "no output among prompt"),
    ('{"token_ids": [1, true]}', "allowed: a list of token ids"),
    ('{"token_ids": [1.5]}', "allowed: a list of token ids"),
    ('{"token_ids": [1, -2]}', "outside 0 to 2147483647"),
    ('{"token_ids": [99999999999999999999999]}', "outside 0 to"),
    ('{"token_ids": "12"}', "allowed: a list of token ids"),
    ('{"prompt_token_ids": [null], "token_ids": [1]}', "prompt_token_ids is [None]"),
    ('{"choices": [3]}', "a choice is 3"),
    ("data: {broken", "no JSON"),
    ("data: 5", "an event holds 5"),
    ('{"messages": ["x"], "text": "a"}', "messages is ['x']"),
]


@pytest.mark.parametrize(("line", "said"), BAD)
def test_a_bad_line_is_named_with_its_number(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, {"token_ids": [1, 2]}, line, {"token_ids": [3]})
    assert "log.jsonl line 2: " in str(caught.value)
    assert said in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("line", [line for line, _ in BAD])
def test_bad_lines_are_skipped_and_counted_when_asked(tmp_path: Path, line: str) -> None:
    for records in ((line, {"token_ids": [3]}), ({"token_ids": [3]}, line)):
        found, reading = read(tmp_path, *records, skip_bad=True)
        assert [item.output.tolist() for item in found] == [[3]]
        assert reading.num_bad == 1
        assert any("1 bad lines left out" in note for note in reading.notes())


def test_a_file_that_is_absent_or_a_folder_is_one_line(tmp_path: Path) -> None:
    for path in (tmp_path / "absent", tmp_path):
        with pytest.raises(InputError, match="cannot read"):
            list(Reading().recordings([str(path)]))


@given(st.binary(max_size=300))
@settings(max_examples=200)
def test_any_bytes_are_read_or_refused_in_one_line(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("any") / "log"
    path.write_bytes(content)
    with suppress(InputError):  # anything else would be a trace
        list(Reading(Letters(), skip_bad=True).recordings([str(path)]))


_json = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 2**40), st.floats(allow_nan=False), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.sampled_from(
                ["token_ids", "prompt_token_ids", "prompt", "messages", "choices", "delta", "message", "text", "usage",
                 "content", "role", "outputs", "response", "request", "error", "tool_calls", "function", "index", "id"]
            ),
            inner,
            max_size=5,
        ),
    ),
    max_leaves=25,
)  # fmt: skip


@given(_json)
@settings(max_examples=400)
def test_any_json_is_understood_or_refused(record: Any) -> None:
    answers: list[Answer] = []
    with suppress(BadRecordError):  # anything else would be a trace
        answers = answers_in(record)
    assert all(answer.ids is not None or isinstance(answer.text, str) for answer in answers)


@pytest.fixture
def tokenizer_file(tmp_path: Path) -> Path:
    tokenizers = pytest.importorskip("tokenizers")
    words = {"[UNK]": 0, "the": 1, "cat": 2, "sat": 3, "[CLS]": 4}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.post_processor = tokenizers.processors.TemplateProcessing(single="[CLS] $A", special_tokens=[("[CLS]", 4)])
    made.save(str(tmp_path / "tokenizer.json"))
    return tmp_path / "tokenizer.json"


def test_a_tokenizer_file_or_its_folder_turns_text_into_ids(tokenizer_file: Path, tmp_path: Path) -> None:
    record = {"prompt": "the cat", "text": "sat the"}
    for path in (tokenizer_file, tokenizer_file.parent):
        found, _ = read(tmp_path, record, tokenizer=FileTokenizer(str(path)))
        assert found[0].prompt.tolist() == [4, 1, 2]
        assert found[0].output.tolist() == [3, 1]


def test_a_chat_prompt_under_a_tokenizer_file_is_approximate_and_said_so(tokenizer_file: Path, tmp_path: Path) -> None:
    messages = [{"role": "system", "content": "the"}, {"role": "user", "content": "cat"}]
    found, reading = read(tmp_path, {"messages": messages, "text": "sat"}, tokenizer=FileTokenizer(str(tokenizer_file)))
    assert found[0].prompt.tolist() == [1, 2]
    assert any("1 chat prompts are approximated" in note for note in reading.notes())


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\xfe", b"[1]"])
def test_a_broken_tokenizer_file_is_one_line(tmp_path: Path, content: bytes) -> None:
    pytest.importorskip("tokenizers")
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"--tokenizer: .* is no tokenizer"):
        FileTokenizer(str(path))
    with pytest.raises(InputError, match="--tokenizer: cannot read"):
        FileTokenizer(str(tmp_path / "absent.json"))


RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "output": [
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "think "}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hello "}]},
        {"type": "function_call", "name": "look", "arguments": "{}"},
    ],
    "usage": {"output_tokens": 7},
}
ASKED = {
    "model": "m",
    "instructions": "be short",
    "input": [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}, {"type": "reasoning"}],
}


def test_the_responses_api_is_read_with_its_reasoning_calls_and_prompt() -> None:
    found = answers_in({"request": ASKED, "response": RESPONSE})
    assert [(one.text, one.counted_tokens) for one in found] == [("think hello look{}", 7)]
    assert [(m["role"], m["content"]) for m in found[0].prompt.messages or ()] == [
        ("system", "be short"),
        ("user", "hi"),
    ]


@pytest.mark.parametrize("prefix", ["data: ", ""])
def test_a_stream_of_the_responses_api_counts_once_by_its_closing_event(tmp_path: Path, prefix: str) -> None:
    whole = {**RESPONSE, "output": [{"type": "message", "content": [{"type": "output_text", "text": "a b c d e"}]}]}
    events = [
        {"type": "response.created", "response": {**RESPONSE, "output": []}},
        {"type": "response.output_text.delta", "delta": "a b "},
        {"type": "response.completed", "response": whole},
    ]
    path = tmp_path / "stream.log"
    path.write_text("".join(f"event: {event['type']}\n{prefix}{json.dumps(event)}\n\n" for event in events))
    reading = Reading(tokenizer=Letters())
    assert [len(one.output) for one in reading.recordings([str(path)])] == [9]
    assert not any("failed" in note for note in reading.notes())


def test_a_record_with_input_and_output_as_texts_is_no_response_of_that_api() -> None:
    assert [one.text for one in answers_in({"input": "hi", "output": "there"})] == ["there"]


@pytest.mark.parametrize(("counted", "told"), [(4, False), (40, True)])
def test_ids_that_are_not_all_that_the_server_counted_are_told(tmp_path: Path, counted: int, told: bool) -> None:
    choice = {"index": 0, "text": "abcd", "token_ids": [1, 2, 1, 2]}
    path = lines(tmp_path / "log.jsonl", {"choices": [choice], "usage": {"completion_tokens": counted}})
    reading = Reading()
    assert len(list(reading.recordings([path]))) == 1
    assert any("-90 % against the servers' own counts" in note for note in reading.notes()) == told
