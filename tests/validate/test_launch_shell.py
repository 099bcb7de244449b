import shlex
import string
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validate.launch.findings import Launch, MalformedSourceError
from validate.launch.shell import script_invocations
from validate.launch.shell_words import literal_words
from validate.launch.unwrap import launches_of_script

PLAIN = st.text(string.ascii_letters + string.digits + " '\"\\{}:,.-_/=\t", max_size=15)


def error_text(call: Callable[[], object]) -> str:
    """The message of the stated error that the call ends with, or an empty text."""
    try:
        call()
    except MalformedSourceError as error:
        return str(error)
    return ""


def words(text: str, **environment: str) -> list[list[str]]:
    """The words that `e` gets, for every call of it."""
    return [list(call.argv[1:]) for call in script_invocations(text, environment) if call.argv[0] == "e"]


def launches(text: str) -> list[Launch]:
    return launches_of_script(Launch("script", "shell", ()), text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("""e '{"a": 1}'""", ['{"a": 1}']),
        (r'''e "{\"a\":1}"''', ['{"a":1}']),
        (r"""e '{\"a\":1}'""", [r"{\"a\":1}"]),
        ("""e {"method":"mtp"}""", ["{method:mtp}"]),
        ("""e {"method":"ngram","k":5}""", ["method:ngram", "k:5"]),
        ("""e --x={"m":"n","k":5}""", ["--x=m:n", "--x=k:5"]),
        ("""e {"m": "n", "k": 5}""", ["{m:", "n,", "k:", "5}"]),
        (r"e \{\"a\":1\}", ['{"a":1}']),
        ("e a\\\n  b # remark", ["a", "b"]),
        ("""e 'it'"'"'s' "" '' x""", ["it's", "", "", "x"]),
        (r"e $'a\tb' a#b", ["a\tb", "a#b"]),
        ("e x > log 2>&1 &", ["x"]),
    ],
)
def test_a_command_line_splits_as_in_bash(text: str, expected: list[str]) -> None:
    assert words(text) == [expected]


def test_a_plain_sh_does_not_expand_braces() -> None:
    assert words('#!/bin/sh\ne {"m":"n","k":5}') == [["{m:n,k:5}"]]


def test_unquoted_variables_split_at_blanks_and_keep_stored_quotes() -> None:
    script = """S='{"a": "b"}'\nE="--x '{\\"k\\":1}'"\ne $S\ne "$S"\ne $E"""
    assert words(script) == [['{"a":', '"b"}'], ['{"a": "b"}'], ["--x", "'{\"k\":1}'"]]


def test_eval_reads_the_stored_quotes() -> None:
    assert words("""E="--x '{\\"k\\":1}'"\neval e $E""") == [["--x", '{"k":1}']]


def test_arrays_keep_their_words() -> None:
    script = """A=(--sc '{"a": 1}')\nA+=(--port 1)\ne "${A[@]}"\ne ${A[@]}\ne "${B[@]}" x"""
    assert words(script) == [["--sc", '{"a": 1}', "--port", "1"], ["--sc", '{"a":', "1}", "--port", "1"], ["x"]]


def test_defaults_apply_to_unset_variables() -> None:
    assert words('K=${K:-3}; e ${K} "${J:-{\\"a\\":1}}" ${U:+x} "${K:+y z}"') == [["3", '{"a":1}', "y z"]]


def test_a_default_with_braces_appends_a_brace_when_the_variable_is_set_as_in_bash() -> None:
    assert words('e "${J:-{}}"', J="1") == [["1}"]]


def test_substitutions_that_only_print_are_followed_and_others_stay() -> None:
    assert words("e $(echo a) \"$(printf '%s-%d' b 2)\" `echo c` $((2 * 3))") == [["a", "b-2", "c", "6"]]
    call = script_invocations("e $(nvidia-smi -L)", {})[0]
    assert call.argv == ("e", "$(nvidia-smi -L)")
    assert call.unresolved == ("$(nvidia-smi -L)",)


def test_a_here_document_is_data_and_can_feed_a_variable() -> None:
    script = 'S=$(cat <<\'END\'\n{"a": "$x"}\nEND\n)\ne "$S"\ncat > f <<END\ne not a command\nEND\ne z'
    assert words(script) == [['{"a": "$x"}'], ["z"]]


def test_an_unset_variable_stays_as_written_and_is_reported() -> None:
    call = script_invocations('e "$TARGET" $OTHER', {})[0]
    assert call.argv == ("e", "${TARGET}", "${OTHER}")
    assert call.unresolved == ("OTHER", "TARGET")


def test_decidable_conditions_are_decided() -> None:
    script = 'X=1; if [ "$X" = 1 ]; then A=yes; else A=no; fi; [ -z "$X" ] && A=never; e $A'
    assert words(script) == [["yes"]]


def test_undecidable_conditions_keep_both_branches_and_say_so() -> None:
    script = 'if [ "$X" = 1 ]; then\nvllm serve a\nelse\nvllm serve b\nfi\n'
    found = launches(script)
    assert [launch.argv[-1] for launch in found] == ["a", "b"]
    assert all("condition" in launch.notes[0] for launch in found)
    assert [launch.name for launch in found] == ["line-2", "line-4"]


@pytest.mark.parametrize(
    "command",
    [
        "exec vllm serve m",
        "CUDA_VISIBLE_DEVICES=0 nohup vllm serve m",
        "sudo -E env A=b numactl --cpunodebind=0 --membind=0 vllm serve m",
        "uv run --with vllm==0.10.2 vllm serve m",
        """bash -c "vllm serve m" """,
        "timeout 30 bash -lc 'cd /x && exec vllm serve m'",
        "docker exec -it box vllm serve m",
        "start() {\n  vllm serve m\n}\nstart",
    ],
)
def test_wrappers_are_taken_off(command: str) -> None:
    assert [launch.argv for launch in launches(command)] == [("vllm", "serve", "m")]


@pytest.mark.parametrize("text", ["echo vllm serve m", "pip install vllm", "grep 'vllm serve' log", "vllm bench serve"])
def test_other_commands_are_no_launches(text: str) -> None:
    assert launches(text) == []


def test_the_version_is_taken_from_pip_and_from_paths() -> None:
    assert launches("pip install 'vllm==0.11.0'\nvllm serve m")[0].version == "0.11.0"
    assert launches("/opt/vllm-0.16.0/bin/vllm serve m")[0].version == "0.16.0"


def test_variables_before_the_command_reach_its_environment_only() -> None:
    found = launches("export B=2\nVLLM_USE_V2_MODEL_RUNNER=1 vllm serve m\nvllm serve n")
    assert [launch.environment.get("VLLM_USE_V2_MODEL_RUNNER") for launch in found] == ["1", None]
    assert found[1].environment["B"] == "2"


def test_a_script_beside_the_source_is_followed(tmp_path: Path) -> None:
    (tmp_path / "serve.sh").write_text("#!/bin/bash\nvllm serve m --port $PORT\n")
    found = launches_of_script(Launch("s", "shell", (), folder=tmp_path), "export PORT=9\n./serve.sh")
    assert found[0].argv == ("vllm", "serve", "m", "--port", "9")


def test_docker_run_gives_the_entrypoint_of_the_image_by_version() -> None:
    base = "docker run --gpus all -it --rm -p8000:8000 -e HF_HOME=/x -v a:b --ipc=host vllm/vllm-openai:{} --model m"
    old, new, newest = (launches(base.format(tag))[0] for tag in ("v0.11.0", "v0.20.2", "v0.33.0"))
    assert old.argv == ("python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "m")
    assert new.argv == ("vllm", "serve", "--model", "m")
    assert newest.argv == ("/usr/local/bin/vllm-nonroot-entrypoint.sh", "--model", "m")
    assert old.environment == {"HF_HOME": "/x"}
    assert new.kind == "docker run"


def test_docker_entrypoint_and_name_are_honoured() -> None:
    found = launches("""docker run --name llm --entrypoint /bin/bash img -c "vllm serve m -tp 2" """)
    assert (found[0].name, found[0].argv) == ("llm", ("vllm", "serve", "m", "-tp", "2"))


def codes(text: str) -> list[str]:
    return [finding.code for launch in launches(text) for finding in launch.findings]


@pytest.mark.parametrize(
    "text",
    [
        "vllm serve m \\\n  # a remark\n  --speculative-config x \\\n  --port 1\n",
        "vllm serve m \\ \n  --port 1\n",
        "vllm serve m\n  --port 1\n",
    ],
)
def test_lines_that_a_command_lost_are_an_error(text: str) -> None:
    assert codes(text) == ["lost-continuation"]
    assert "line" in launches(text)[0].findings[0].message
    assert codes("vllm serve m \\\n  --port 1\n") == []


def test_the_arguments_of_a_function_reach_the_command_in_it() -> None:
    found = launches('start() {\n  exec vllm serve "$@" --port 1\n}\nM=late\nstart "$M" --max-num-seqs 8\n')
    assert [launch.argv for launch in found] == [("vllm", "serve", "late", "--max-num-seqs", "8", "--port", "1")]


def test_a_function_that_nobody_calls_here_is_read_with_a_note() -> None:
    found = launches("start() {\n  vllm serve m\n}\n")
    assert found[0].argv == ("vllm", "serve", "m")
    assert any("only under a condition" in note for note in found[0].notes)


def test_a_function_that_calls_itself_ends() -> None:
    assert len(launches("f() {\n  f\n  vllm serve m\n}\nf\n")) == 1


def test_a_loop_starts_one_engine_for_each_item() -> None:
    found = launches("for k in 1 3; do\n  vllm serve m --port 800$k &\ndone\n")
    assert [launch.argv[-1] for launch in found] == ["8001", "8003"]


def test_the_matching_branch_of_a_case_is_taken() -> None:
    text = 'M=qwen-8b\ncase "$M" in\n  llama*) A=1 ;;\n  qwen*|glm*) A=2 ;;\n  *) A=3 ;;\nesac\nvllm serve m -tp $A\n'
    assert launches(text)[0].argv[-1] == "2"


def test_an_unknown_case_keeps_all_branches_and_says_so() -> None:
    found = launches('case "$1" in\n  a) vllm serve a ;;\n  *) vllm serve b ;;\nesac\n')
    assert [launch.argv[-1] for launch in found] == ["a", "b"]
    assert all(any("condition" in note for note in launch.notes) for launch in found)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("""ssh -p 22 h vllm serve m --speculative-config '{"method":"mtp"}'""", "{method:mtp}"),
        ("""ssh h "vllm serve m --speculative-config '{\\"method\\":\\"mtp\\"}'" """, '{"method":"mtp"}'),
        ("""tmux new -d -s v "vllm serve m --speculative-config '{\\"a\\":1}'" """, '{"a":1}'),
        ("""su - llm -c "vllm serve m --speculative-config '{\\"a\\":1}'" """, '{"a":1}'),
    ],
)
def test_a_shell_behind_a_wrapper_reads_the_words_once_more(text: str, value: str) -> None:
    assert launches(text)[0].argv[-1] == value


def test_eval_is_counted_by_the_line_it_stands_on() -> None:
    found = launches("A='vllm serve m'\n\neval $A\nvllm serve n\n")
    assert [launch.name for launch in found] == ["line-3", "line-4"]


def test_a_default_in_quotes_stays_one_word() -> None:
    text = """vllm serve m --speculative-config ${SPEC:-'{"method": "mtp", "num_speculative_tokens": 1}'}"""
    assert launches(text)[0].argv[-1] == '{"method": "mtp", "num_speculative_tokens": 1}'


def test_hostile_scripts_are_stopped() -> None:
    for text, what in (
        ("e " + "{a,b}" * 10_000, "brace"),
        ("f() { g; g; }\ng() { h; h; }\nh() { :; :; }\n" + "f\n" * 9_000, "commands"),
        ("for a in 1 2 3 4 5 6 7 8 9; do " * 9 + "e" + "; done" * 9, "commands"),
        ("case a in a) " * 200, "conditions"),
    ):
        with pytest.raises(MalformedSourceError, match=what):
            script_invocations(text, {})


@pytest.mark.parametrize(
    "text",
    ["e 'open", 'e "open', "e $(open", "e ${open", "e `open", "A=(open", "e $'open", "$(" * 50, '"${a:-' * 50],
)
def test_open_quotes_are_one_line_errors(text: str) -> None:
    with pytest.raises(MalformedSourceError) as caught:
        script_invocations(text, {})
    assert "\n" not in str(caught.value)


def test_growing_variables_are_stopped() -> None:
    script = "A=0123456789\n" + "A=$A$A\n" * 40
    with pytest.raises(MalformedSourceError, match="characters"):
        script_invocations(script, {})
    with pytest.raises(MalformedSourceError, match="words"):
        script_invocations("A=(a b)\n" + 'A+=("${A[@]}")\n' * 40, {})
    with pytest.raises(MalformedSourceError, match="brace"):
        script_invocations("e " + "{a,b}" * 40, {})


@given(st.text(max_size=150))
def test_no_text_breaks_the_script_reader(text: str) -> None:
    assert "\n" not in error_text(lambda: script_invocations(text, {"X": "a b"}))


@given(st.text("$(){}[]<>|&;'\"`\\ \n=+#ab1@*:-", max_size=60))
def test_no_punctuation_breaks_the_script_reader(text: str) -> None:
    assert "\n" not in error_text(lambda: script_invocations(text, {"a": "a b"}))


@given(st.lists(PLAIN, max_size=6))
def test_quoted_words_come_back(values: list[str]) -> None:
    assert words("e " + " ".join(shlex.quote(value) for value in values)) == [values]


@given(st.text("ab '\"\\{}:", max_size=30))
def test_splitting_agrees_with_shlex_where_that_accepts_the_text(text: str) -> None:
    try:
        expected = shlex.split(text)
    except ValueError:
        return
    assert literal_words(text) == expected
