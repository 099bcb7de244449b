"""Server-sent events: the same events however the bytes are cut, and nothing lost by what is no event."""

from hypothesis import given
from hypothesis import strategies as st

from validate.client.sse import SseDecoder

EVENTS = [b'{"text": "w\xc3\xb6rt"}', b'{"emoji": "\xf0\x9f\x99\x82"}', b"[DONE]"]


def pieces(data, cuts):
    places = sorted({min(cut, len(data)) for cut in cuts})
    return [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]


def events_of(data, cuts=()):
    decoder = SseDecoder()
    return [event for piece in pieces(data, cuts) for event in decoder.feed(piece)], decoder


@given(st.lists(st.integers(0, 80)), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_events_do_not_depend_on_where_the_network_cuts(cuts, end):
    data = b"".join(b"data: " + event + end + end for event in EVENTS)
    found, decoder = events_of(data, cuts)
    assert found == EVENTS
    assert not decoder.is_inside


@given(st.lists(st.sampled_from([b": comment", b"event: x", b"id: 7", b"retry: 10", b"nonsense", b"\xff\xfe", b"dat"])))
def test_lines_that_are_no_data_are_left_out(lines):
    data = b"\n".join([*lines, b"data: a", b"", b"data:b", b"", b""])
    assert events_of(data)[0] == [b"a", b"b"]


def test_data_lines_of_one_event_are_joined_and_one_space_is_taken_off():
    assert events_of(b"data:  a\ndata:b\n\n")[0] == [b" a\nb"]


def test_empty_lines_alone_are_no_events():
    assert events_of(b"\n\n\r\n: ping\n\n")[0] == []


def test_a_line_that_is_too_long_is_dropped_and_counted_and_the_next_is_read():
    decoder = SseDecoder(max_line_bytes=100)
    found = [decoder.feed(piece) for piece in (b"data: " + b"x" * 90, b"x" * 90, b"x\n\ndata: ok\n\n")]
    assert [event for events in found for event in events] == [b"ok"]
    assert decoder.num_oversized == 1


def test_a_stream_that_stops_inside_an_event_says_so():
    for data in (b"data: {", b"data: {}\n", b"data: w\xc3"):
        assert events_of(data)[1].is_inside


def test_memory_does_not_grow_with_a_line_that_never_ends():
    decoder = SseDecoder(max_line_bytes=1000)
    for _ in range(10_000):
        assert decoder.feed(b"x" * 1000) == []
    assert decoder.num_oversized == 1
    assert not decoder.is_inside
