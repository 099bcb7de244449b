"""Scripts with arguments of their own: loops over them, `shift`, maps, and what calls a script gives it."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validate.launch.inspection import inspect_launch
from validate.launch.shell_parameters import changed_text
from validate.launch.sources import find_launches

LOOP = """#!/bin/bash
TP=2
MODEL=org/m
while [[ $# -gt 0 ]]; do
  case "$1" in
    --tp) TP="$2"; shift 2 ;;
    --model) MODEL="$2"; shift 2 ;;
    -h|--help) echo usage; exit 1 ;;
    *) break ;;
  esac
done
exec vllm serve "$MODEL" -tp "$TP"
"""


def argv(text: str) -> list[tuple[str, ...]]:
    found = find_launches(text)
    assert found.findings == []
    return [launch.argv[2:] for launch in found.launches]


def only(text: str) -> tuple[str, ...]:
    (words,) = argv(text)
    return words


def test_a_script_whose_arguments_nothing_tells_is_read_as_started_without() -> None:
    assert only(LOOP) == ("org/m", "-tp", "2")


@pytest.mark.parametrize(
    "head", ["while (( $# )); do", "while [ $# -gt 0 ]; do", 'while [ "$1" != "" ]; do', 'while [[ -n "$1" ]]; do']
)
def test_loops_over_the_scripts_own_arguments_are_known_in_their_usual_forms(head: str) -> None:
    assert only(LOOP.replace("while [[ $# -gt 0 ]]; do", head)) == ("org/m", "-tp", "2")


def test_getopts_without_arguments_sets_nothing() -> None:
    text = "while getopts 'm:' o; do case $o in m) M=$OPTARG;; esac; done\nvllm serve ${M:-org/m}\n"
    assert only(text) == ("org/m",)


def test_a_unit_gives_its_words_to_the_script_that_it_starts(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(LOOP)
    (tmp_path / "more.sh").write_text('#!/bin/sh\nexec vllm serve org/m "$@"\n')
    for start, words in (
        ("/opt/run.sh --tp 8 --model org/n", ("org/n", "-tp", "8")),
        ("/bin/bash /opt/run.sh --tp 4", ("org/m", "-tp", "4")),
        ("/opt/run.sh", ("org/m", "-tp", "2")),
        ("/opt/more.sh --max-num-seqs 12", ("org/m", "--max-num-seqs", "12")),
    ):
        unit = tmp_path / "a.service"
        unit.write_text(f"[Service]\nExecStart={start}\n")
        (launch,) = find_launches(unit).launches
        assert launch.argv[2:] == words


def test_shift_takes_as_many_as_it_says() -> None:
    text = 'run() {\n  local model=$1 tp=$2; shift 2\n  vllm serve "$model" -tp "$tp" "$@"\n}\nrun org/m 4 --port 1\n'
    assert only(text) == ("org/m", "-tp", "4", "--port", "1")


def test_a_loop_that_counts_starts_one_engine_a_round_and_one_that_restarts_a_single_one() -> None:
    counted = "i=0\nwhile [ $i -lt 3 ]; do\n  vllm serve org/m --port $((8000 + i)) &\n  i=$((i + 1))\ndone\n"
    assert [words[2] for words in argv(counted)] == ["8000", "8001", "8002"]
    assert argv("while [ 1 ]; do\n  vllm serve org/m\n  sleep 5\ndone\n") == [("org/m",)]
    assert argv("until [ 1 ]; do vllm serve org/a; done\nvllm serve org/m\n") == [("org/m",)]


def test_a_map_gives_the_value_of_its_key() -> None:
    text = (
        "declare -A M=([small]=org/s [big]=org/b)\nM[huge]=org/h\nsize=${SIZE:-big}\n"
        'vllm serve "${M[$size]}" --x "${M[small]}" --y ${M[huge]}\n'
    )
    assert only(text) == ("org/b", "--x", "org/s", "--y", "org/h")


def test_items_of_an_array_are_set_and_read_by_number() -> None:
    assert only("A=(a b c)\nA[1]=org/m\ni=0\nvllm serve ${A[$((i + 1))]} --x ${A[-1]}\n") == ("org/m", "--x", "c")


def test_printf_may_write_into_a_variable() -> None:
    text = """printf -v S '{"method":"ngram","num_speculative_tokens":%d}' 6\nvllm serve m -sc "$S"\n"""
    assert only(text) == ("m", "-sc", '{"method":"ngram","num_speculative_tokens":6}')


def test_arithmetic_shifts_and_what_is_not_known_stays_one_word() -> None:
    assert only("N=$(( 1 << 3 ))\nvllm serve m -tp $N") == ("m", "-tp", "8")
    assert only("G=$(nvidia-smi -L | wc -l)\nN=$(( G / 2 ))\nvllm serve m -tp $N --x $G") == (
        "m", "-tp", "$(( G / 2 ))", "--x", "$(nvidia-smi -L | wc -l)",
    )  # fmt: skip
    assert only("vllm serve m -tp $(( 1 << 5000000 ))") == ("m", "-tp", "$(( 1 << 5000000 ))")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("D=0,1\nIFS=',' read -r -a A <<< \"${X:-$D}\"\nvllm serve m -tp ${#A[@]} ${A[1]}", ("m", "-tp", "2", "1")),
        ("read -r M T <<< 'org/m 4 more'\nvllm serve $M -tp $T", ("org/m", "-tp", "4", "more")),
        ("f() { vllm serve \"$1\" \"${@:3}\"; }\nf m x --port 1", ("m", "--port", "1")),
        ("A=(m a b c)\nvllm serve ${A[0]} \"${A[@]:2}\"", ("m", "b", "c")),
        ("M=/d/org/m-8b.gguf\nN=${M##*/}\nvllm serve $M --served-model-name ${N%.*}",
         ("/d/org/m-8b.gguf", "--served-model-name", "m-8b")),
        ("M=org/m\nvllm serve $M --x ${M//\\//_} ${M^^} ${M:0:3} ${M/org/o}",
         ("org/m", "--x", "org_m", "ORG/M", "org", "o/m")),
        ("mapfile -t A < list\nvllm serve m -tp ${#A[@]}", ("m", "-tp", "${#A[@]}")),
    ],
)  # fmt: skip
def test_arguments_are_cut_sliced_and_read_from_texts(text: str, words: tuple[str, ...]) -> None:
    assert only(text) == words


def test_json_with_escaped_quotes_in_unprotected_braces_is_put_together_again() -> None:
    text = 'vllm serve m --speculative-config {\\"method\\":\\"ngram\\",\\"num_speculative_tokens\\":3}'
    (finding,) = [item for item in inspect_launch(text)["findings"] if item["severity"] == "error"]
    assert finding["code"] == "json-quotes-lost"
    assert finding["fix"] == """--speculative-config '{"method": "ngram", "num_speculative_tokens": 3}'"""


@given(st.text(alphabet="a/.*?[]-!#%\\", max_size=12), st.text(alphabet="a/.*?[]-!#%\\^,:0", max_size=12))
def test_any_operator_on_any_value_ends_and_raises_nothing_else(value: str, rest: str) -> None:
    changed = changed_text(value, rest, str)
    assert changed is None or len(changed) <= (len(value) + 1) * (len(rest) + 1)
