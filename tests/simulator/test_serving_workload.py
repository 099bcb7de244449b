"""What clients ask for: arrivals, lengths, recorded traces, and files that are wrong."""

import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodel.errors import InputError
from simulator.deployment.tables import Workload
from simulator.serving.clients import parse_outage
from simulator.serving.traces import read_lengths, read_trace
from simulator.serving.workload import Arrivals, parse_arrivals, requests

MOONCAKE = (
    '{"timestamp": 500, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47]}\n'
    '{"timestamp": 3500, "input_length": 6472, "output_length": 26, "hash_ids": [46, 2]}\n'
)
BURST_GPT = (
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,ChatGPT,472,18,490,Conversation log\n"
    "45,ChatGPT,1087,0,1087,API log\n"
)


def gaps(text: str, count: int = 20_000) -> Any:
    """Gaps between the arrivals of a description."""
    times = [spec.arrival_s for spec in requests(parse_arrivals(text), Workload(), count, seed=1)]
    return np.diff([0.0, *times])


def stated_error(action: Callable[[], object]) -> str | None:
    """The text of the InputError that an action raises, if any."""
    try:
        action()
    except InputError as error:
        return str(error)
    return None


@pytest.mark.parametrize("text", ["closed:64", "closed:8:2.5", "poisson:2.5", "gamma:2.5:0.5", "trace:a:b.csv"])
def test_arrivals_are_written_as_they_are_read(text: str) -> None:
    assert str(parse_arrivals(text)) == text


def test_a_gamma_without_a_shape_is_poisson() -> None:
    assert parse_arrivals("gamma:2") == Arrivals("gamma", rate_per_s=2.0, shape=1.0)


@pytest.mark.parametrize(
    "text",
    [
        "", "closed", "closed:", "closed:0", "closed:1.5", "closed:-4", "closed:nan", "closed:1e9", "closed:4:x",
        "closed:4:-1", "closed:4:1:2", "poisson:0", "poisson:-1", "poisson:inf", "poisson:nan", "poisson:1:2",
        "gamma:1:0", "gamma:1:nan", "gamma", "trace:", "uniform:3", "closed\n:4", "x" * 10_000,
    ],
)  # fmt: skip
def test_arrivals_that_cannot_be_are_one_line(text: str) -> None:
    with pytest.raises(InputError, match=r"arrivals: got .*allowed") as error:
        parse_arrivals(text)
    assert len(str(error.value)) < 300
    assert "\n" not in str(error.value)


@given(st.text(max_size=30))
def test_any_text_is_arrivals_or_a_stated_error(text: str) -> None:
    message = stated_error(lambda: parse_arrivals(text))
    assert message is None or "\n" not in message


def test_poisson_gaps_are_exponential() -> None:
    drawn = gaps("poisson:4")
    assert drawn.mean() == pytest.approx(0.25, rel=0.03)
    assert drawn.std() == pytest.approx(0.25, rel=0.03)


def test_bursty_gaps_vary_as_the_shape_says() -> None:
    # Gamma: coefficient of variation 1 / sqrt(shape).
    drawn = gaps("gamma:4:0.25")
    assert drawn.mean() == pytest.approx(0.25, rel=0.05)
    assert drawn.std() / drawn.mean() == pytest.approx(2.0, rel=0.05)


def test_the_same_seed_asks_for_the_same_requests() -> None:
    arrivals, workload = parse_arrivals("poisson:1"), Workload(length_distribution="lognormal")
    assert list(requests(arrivals, workload, 3000, 5)) == list(requests(arrivals, workload, 3000, 5))
    assert list(requests(arrivals, workload, 10, 5)) != list(requests(arrivals, workload, 10, 6))


def test_lengths_do_not_depend_on_the_arrivals() -> None:
    workload = Workload(length_distribution="lognormal")
    ours, theirs = (list(requests(parse_arrivals(a), workload, 2000, 5)) for a in ("poisson:1", "closed:7"))
    assert [(x.input_tokens, x.output_tokens) for x in ours] == [(x.input_tokens, x.output_tokens) for x in theirs]


def test_lognormal_lengths_keep_the_mean() -> None:
    workload = Workload(input_tokens=500, output_tokens=200, length_distribution="lognormal", length_log_sd=0.5)
    specs = list(requests(parse_arrivals("closed:1"), workload, 20_000, 0))
    assert np.mean([x.input_tokens for x in specs]) == pytest.approx(500, rel=0.02)
    outputs = np.log([x.output_tokens for x in specs])
    assert outputs.std() == pytest.approx(0.5, rel=0.03)
    assert min(x.input_tokens for x in specs) >= 1


def test_lengths_of_a_file_are_drawn_row_by_row(tmp_path: Path) -> None:
    path = tmp_path / "lengths.csv"
    path.write_text("input_tokens,output_tokens\n10,1\n20,2\n", encoding="utf-8")
    workload = Workload(length_distribution=str(path))
    pairs = {(x.input_tokens, x.output_tokens) for x in requests(parse_arrivals("closed:1"), workload, 100, 0)}
    assert pairs == {(10, 1), (20, 2)}


def written(tmp_path: Path, text: str | bytes) -> str:
    """A trace file."""
    path = tmp_path / "trace.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def test_the_mooncake_layout_counts_milliseconds_from_its_first_request(tmp_path: Path) -> None:
    specs = list(read_trace(written(tmp_path, MOONCAKE)))
    assert [(x.number, x.arrival_s, x.input_tokens, x.output_tokens) for x in specs] == [
        (0, 0.0, 6955, 52),
        (1, 3.0, 6472, 26),
    ]


def test_the_burstgpt_layout_counts_seconds_and_failures_take_one_token(tmp_path: Path) -> None:
    specs = list(read_trace(written(tmp_path, BURST_GPT)))
    assert [(x.arrival_s, x.input_tokens, x.output_tokens) for x in specs] == [(0.0, 472, 18), (40.0, 1087, 1)]


@pytest.mark.parametrize(
    "text",
    [
        "arrival_s,input_tokens,output_tokens\n0.5,10,2\n2,11,3\n",
        "\ufeffinput_tokens, output_tokens, arrival_s\n10,2,0.5\n\n11,3,2\n",
        '{"arrival_s": 0.5, "input_tokens": 10, "output_tokens": 2, "x": [1]}\n'
        '{"arrival_s": 2, "input_tokens": 11, "output_tokens": 3}',
    ],
)
def test_the_own_layout_is_read_from_csv_and_jsonl(tmp_path: Path, text: str) -> None:
    specs = list(read_trace(written(tmp_path, text)))
    assert [(x.arrival_s, x.input_tokens, x.output_tokens) for x in specs] == [(0.0, 10, 2), (1.5, 11, 3)]


HEAD = "arrival_s,input_tokens,output_tokens\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (HEAD + "-1,10,2\n", "line 2: arrival_s is -1"),
        (HEAD + "nan,10,2\n", "line 2: arrival_s is nan"),
        (HEAD + "inf,10,2\n", "line 2: arrival_s is inf"),
        (HEAD + "0,10\n", "line 2: 2 cells"),
        (HEAD + "0,x,2\n", "line 2: input_tokens is x"),
        (HEAD + "0,1e12,2\n", "line 2: input_tokens is 1e12"),
        (HEAD + "5,10,2\n4,10,2\n", "line 3: arrival_s goes back"),
        (HEAD, "no request"),
        ("", "no request"),
        ("input_tokens,output_tokens\n1,2\n", "line 1: columns"),
        ("a\n", "line 1: columns"),
        (",".join(map(str, range(100_000))) + "\n", "columns, allowed"),
        ("x," * 600_000 + "\n", "a line longer than"),
        ('{"timestamp": 1}\n', "line 1: columns"),
        ('{"timestamp": null, "input_length": 1, "output_length": 1}\n', "line 1: timestamp"),
        ('{"timestamp": true, "input_length": 1, "output_length": 1}\n', "line 1: timestamp"),
        ('{"timestamp": 1, "input_length": 1, "output_length": [1]}\n', "line 1: output_length"),
        (MOONCAKE + "{broken\n", "line 3: not a JSON object"),
        (MOONCAKE + "[1]\n", "line 3: not a JSON object"),
        ('{"timestamp": ' + "9" * 5000 + "}\n", "line 1: not a JSON object"),
        (b"\xff\xfe\x00", "not UTF-8"),
        ('a,b\n"x', "line 1: columns"),
    ],
)
def test_a_bad_trace_is_one_line_that_says_where(tmp_path: Path, text: str | bytes, problem: str) -> None:
    with pytest.raises(InputError) as error:
        list(read_trace(written(tmp_path, text)))
    assert problem in str(error.value)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 500


@given(st.lists(st.text(max_size=20), max_size=5))
def test_any_row_is_read_or_a_stated_error(tmp_path_factory: pytest.TempPathFactory, cells: list[str]) -> None:
    path = tmp_path_factory.mktemp("rows") / "trace.csv"
    path.write_text(HEAD + ",".join(cells) + "\n" + json.dumps(cells) + "\n", encoding="utf-8", errors="replace")
    message = stated_error(lambda: list(read_trace(str(path))))
    assert message is None or "\n" not in message


def test_a_trace_is_read_as_it_is_needed(tmp_path: Path) -> None:
    text = HEAD + "0,10,2\n1,10,2\nbroken\n"
    assert len(list(islice(read_trace(written(tmp_path, text)), 2))) == 2


def test_a_trace_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    for path in (str(tmp_path / "absent.csv"), str(tmp_path), "a\0b"):
        with pytest.raises(InputError, match="cannot read"):
            list(read_trace(path))


def test_lengths_need_no_times(tmp_path: Path) -> None:
    prompts, outputs = read_lengths(written(tmp_path, "input_length,output_length\n5,6\n"))
    assert (prompts.tolist(), outputs.tolist()) == ([5], [6])


def test_an_outage_is_two_times() -> None:
    assert parse_outage("at=600,duration=1800") == (600.0, 1800.0)
    assert parse_outage("duration=5, at=0") == (0.0, 5.0)


@pytest.mark.parametrize("text", ["", "600", "at=1", "at=1,duration=x", "at=-1,duration=2", "at=nan,duration=1",
                                  "at=1,duration=inf", "at=1,duration=2,for=3"])  # fmt: skip
def test_a_bad_outage_is_one_line(text: str) -> None:
    with pytest.raises(InputError, match=r"outage: got .*allowed: at=SECONDS,duration=SECONDS"):
        parse_outage(text)
