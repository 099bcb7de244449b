"""Answers out of real and synthetic streams: tokens counted by ids, else usage, never by chunks."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validate.client.answers import DONE, AnswerReader, message_of
from validate.client.sse import SseDecoder

STREAMS = Path(__file__).parents[1] / "data" / "stream"


def read(events, keep=False):
    """The answer to events one second apart; JSON values or bytes."""
    reader = AnswerReader(0.0, keep=keep)
    for index, event in enumerate(events, start=1):
        reader.event(event if isinstance(event, bytes) else json.dumps(event).encode(), float(index))
    return reader.finish(float(len(events))), reader


def recorded(name):
    return SseDecoder().feed((STREAMS / name).read_bytes())


def text_chunk(text="a", ids=None, usage=None, **choice):
    found = {"choices": [{"index": 0, "text": text, "finish_reason": None, **choice}]}
    found["choices"][0] |= {} if ids is None else {"token_ids": ids}
    return found | ({} if usage is None else {"usage": {"prompt_tokens": 3, "completion_tokens": usage}})


def chat_chunk(delta, **more):
    return {"choices": [{"index": 0, "delta": delta, **more}]}


# 40 tokens each, k = 5; the ids of a chat's role chunk are those of the prompt. Recorded from vLLM 0.32.
@pytest.mark.parametrize("name", ["qwen_k5_completion_stream_usage_ids.sse", "qwen_k5_chat_stream_usage_ids.sse"])
def test_a_real_stream_with_ids_tells_the_tokens_of_every_step(name):
    answer, reader = read(recorded(name), keep=True)
    assert reader.is_done
    assert answer.counted_by == "token_ids"
    assert answer.output_tokens == sum(answer.chunk_tokens) == len(answer.token_ids) == 40
    assert answer.chunk_tokens[0] == 1
    assert max(answer.chunk_tokens) == 6
    assert not answer.counts_differ
    assert answer.finish_reason == "length"
    assert answer.prompt_tokens == len(answer.prompt_token_ids)
    assert answer.fingerprint.startswith("vllm-0.32.0")


def test_ids_and_usage_on_every_chunk_tell_the_same_steps():
    events = recorded("qwen_k5_completion_stream_usage_ids.sse")
    with_ids, _ = read(events)
    without = []
    for event in events:
        if event != DONE:
            chunk = json.loads(event)
            for choice in chunk["choices"]:
                choice.pop("token_ids", None)
            without.append(chunk)
    by_usage, _ = read([*without, DONE])
    assert by_usage.counted_by == "usage"
    assert by_usage.chunk_tokens == with_ids.chunk_tokens
    assert by_usage.chunk_times_s == with_ids.chunk_times_s


def test_a_real_stream_with_usage_at_its_end_ends_with_its_last_token_though_that_has_no_text():
    events = recorded("qwen_k5_completion_stream.sse")
    assert json.loads(events[-3])["choices"][0]["text"] == ""
    answer, _ = read(events)
    assert answer.counted_by == "final usage"
    assert answer.output_tokens == 40
    assert answer.chunk_times_s[-1] == len(events) - 2


def test_a_real_stream_without_ids_and_usage_has_no_count():
    events = recorded("qwen_k5_completion_stream.sse")
    answer, reader = read([event for event in events if b"usage" not in event])
    assert reader.is_done
    assert answer.counted_by == "nothing"
    assert answer.output_tokens is None
    assert answer.tpot_s is None
    assert answer.ttft_s > 0


def test_a_real_chat_begins_with_its_first_text_and_not_with_the_role():
    events = recorded("qwen_k0_chat_stream.sse")
    assert json.loads(events[0])["choices"][0]["delta"]["role"] == "assistant"
    answer, _ = read(events)
    assert answer.ttft_s == 2.0


def test_reasoning_is_counted_and_a_chunk_without_text_too():
    answer, _ = read(recorded("chat_spec_return_token_ids.sse"))
    assert answer.has_reasoning
    assert answer.chunk_tokens == [1, 3, 1, 3]
    assert answer.output_tokens == 8
    assert answer.acceptance_histogram == (1, 0, 2, 0)


def test_tpot_is_the_time_after_the_first_chunk_over_the_tokens_after_it():
    answer, _ = read([text_chunk(ids=[1]), text_chunk(ids=[2, 3, 4]), text_chunk(ids=[5, 6]), DONE])
    assert answer.output_tokens == 6
    assert answer.tpot_s == pytest.approx(2.0 / 5)
    joined, _ = read([text_chunk(ids=[1, 2, 3]), text_chunk(ids=[4, 5]), DONE])
    assert joined.tpot_s == pytest.approx(1.0 / 2)


def test_final_usage_alone_gives_the_sum_and_the_mean_time():
    answer, _ = read(
        [text_chunk(), text_chunk(), text_chunk(), {"choices": [], "usage": {"completion_tokens": 9}}, DONE]
    )
    assert answer.counted_by == "final usage"
    assert answer.chunk_tokens == []
    assert answer.tpot_s == pytest.approx(2.0 / 8)


def test_ids_that_differ_from_usage_are_used_and_said():
    answer, _ = read(
        [text_chunk(ids=[1]), text_chunk(ids=[2]), {"choices": [], "usage": {"completion_tokens": 3}}, DONE]
    )
    assert answer.output_tokens == 2
    assert answer.counts_differ


def test_text_that_was_held_back_comes_in_a_chunk_without_ids_and_is_no_step():
    answer, _ = read([text_chunk(ids=[1]), text_chunk(ids=[2]), text_chunk("held", ids=[]),
                      {"choices": [], "usage": {"completion_tokens": 2}}, DONE])  # fmt: skip
    assert answer.counted_by == "token_ids"
    assert answer.chunk_tokens == [1, 1]
    assert answer.chunk_times_s == [1.0, 2.0]


@pytest.mark.parametrize(
    "delta",
    [
        {"reasoning": "x"},
        {"reasoning_content": "x"},
        {"tool_calls": [{"function": {"arguments": "{"}}]},
        {"content": "x"},
    ],
)
def test_every_kind_of_first_word_is_the_first_token(delta):
    answer, _ = read([chat_chunk({"role": "assistant", "content": ""}), chat_chunk({}), chat_chunk(delta), DONE])
    assert answer.chunk_times_s == [3.0]
    assert answer.has_reasoning == any("reasoning" in name for name in delta)
    assert answer.has_tool_calls == ("tool_calls" in delta)


def test_both_names_of_reasoning_in_one_chunk_are_one_text():
    answer, _ = read([chat_chunk({"reasoning": "why", "reasoning_content": "why"}), DONE], keep=True)
    assert answer.text == ["why"]


def test_garbage_is_counted_and_left_out():
    answer, reader = read([b"{no", b"[1]", b"\xff", text_chunk(ids=[1]), b"12", DONE])
    assert answer.num_garbage == 4
    assert answer.output_tokens == 1
    assert reader.error is None


def test_events_that_a_server_did_not_part_are_read_one_by_one():
    both = json.dumps(text_chunk(ids=[1])).encode() + b"\n" + json.dumps(text_chunk(ids=[2, 3])).encode() + b"\n[DONE]"
    answer, reader = read([both])
    assert answer.output_tokens == 3
    assert reader.is_done


def test_an_error_in_the_stream_is_the_servers_word():
    _, reader = read([text_chunk(ids=[1]), {"error": {"message": "engine\ndied", "code": 500}}])
    assert reader.error == "engine died"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"error": {"message": "m"}}, "m"),
        ({"object": "error", "message": "m"}, "m"),
        ({"detail": [{"msg": "m"}]}, "m"),
        ({"detail": "m"}, "m"),
        ({"error": "m"}, "m"),
        ({}, "an error without words"),
        ([], "[]"),
        ({"error": {"message": {"deep": 1}}}, "an error without words"),
    ],
)
def test_the_words_of_an_error_in_every_servers_shape(body, words):
    assert message_of(body) == words


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["choices", "delta", "text", "usage", "token_ids", "completion_tokens", "metrics", "error",
                         "content", "speculative_decoding", "acceptance_histogram", "finish_reason", "tool_calls"]),
        inner, max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


@given(st.lists(_JSON, max_size=6))
def test_no_stream_of_json_breaks_the_reader(values):
    answer, _ = read([*values, DONE])
    assert answer.output_tokens is None or answer.output_tokens >= 0
    assert len(answer.chunk_tokens) in (0, len(answer.chunk_times_s))
