from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validate.launch.findings import MalformedSourceError
from validate.launch.systemd import read_systemd
from validate.launch.systemd_words import expand_variables, split_environment_file, split_words

WORD = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF, exclude_characters="\x7f"), max_size=20)


def error_text(call: Callable[[], object]) -> str:
    """The message of the stated error that the call ends with, or an empty text."""
    try:
        call()
    except MalformedSourceError as error:
        return str(error)
    return ""


def argv(text: str, path: Path | None = None) -> list[str]:
    return list(read_systemd(text, path)[0].argv)


def unit(command: str, *settings: str) -> str:
    return "\n".join(["[Service]", *settings, f"ExecStart={command}"]) + "\n"


def test_bare_json_loses_its_double_quotes() -> None:
    assert split_words('{"method":"ngram","k":5}').words == ("{method:ngram,k:5}",)


def test_single_quotes_protect_json_even_in_the_middle_of_a_word() -> None:
    assert split_words("""--x='{"a":1}' b""").words == ('--x={"a":1}', "b")


def test_escapes_are_processed_inside_single_quotes_unlike_in_a_shell() -> None:
    assert split_words(r"""'{\"a\":1}' "x\x20y" a\sb \101""").words == ('{"a":1}', "x y", "a b", "A")


def test_an_unknown_escape_is_kept_and_reported() -> None:
    result = split_words(r"a\qb")
    assert result.words == (r"a\qb",)
    assert result.unknown_escapes == (r"\q",)


def test_an_open_quote_refuses_the_unit() -> None:
    with pytest.raises(MalformedSourceError, match="unbalanced"):
        read_systemd(unit("/bin/vllm serve m --x '{"))


def test_continuation_lines_join_and_comments_inside_are_skipped() -> None:
    text = "[Service]\nExecStart=/bin/vllm serve m \\\n  # a remark\n  ; another\n  --port 1\n"
    assert argv(text) == ["/bin/vllm", "serve", "m", "--port", "1"]


def test_a_blank_after_the_backslash_loses_the_rest_and_is_an_error() -> None:
    launch = read_systemd("[Service]\nExecStart=/bin/vllm serve m \\ \n  --port 1\n")[0]
    assert "--port" not in launch.argv
    assert ("error", "lost-continuation") in [(f.severity, f.code) for f in launch.findings]


def test_a_variable_alone_splits_and_a_braced_one_does_not() -> None:
    environment = {"A": "--x '{\"k\": 1}' y"}
    assert expand_variables(("$A", "${A}", "z$A", "$$A"), environment)[0] == [
        "--x", '{"k": 1}', "y", environment["A"], "z$A", "$A",
    ]  # fmt: skip


def test_an_unset_variable_leaves_no_word_but_an_empty_text_when_braced() -> None:
    assert expand_variables(("a", "$X", "-k=${X}"), {}) == (["a", "-k="], ["X", "X"])


def test_unset_variables_stay_when_an_environment_file_is_missing() -> None:
    launch = read_systemd(unit("/bin/vllm serve m $ARGS", "EnvironmentFile=/no/such/file.env"))[0]
    assert launch.argv[-1] == "$ARGS"
    assert {f.code for f in launch.findings} == {"environment-file-unreadable", "unset-variable"}


def test_environment_items_are_quoted_as_a_whole() -> None:
    text = unit("/bin/vllm serve m --c ${J} ${K}", 'Environment=\'J={"a":1}\' K={"b":2}')
    assert argv(text)[-2:] == ['{"a":1}', "{b:2}"]


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ('A={"m":"n g"}', '{"m":"n g"}'),
        ("A='{\"m\":1}'", '{"m":1}'),
        (r'A="{\"m\":1}"', '{"m":1}'),
        ('A="a\\nb"', "a\\nb"),
        (r"A=a\"b", 'a"b'),
        ("A=  x y  ", "x y"),
        ("A='x''y'", "xy"),
    ],
)
def test_environment_file_values_follow_their_own_quoting(line: str, value: str) -> None:
    assert split_environment_file(f"# remark\n\n{line}\nB=1\n") == {"A": value, "B": "1"}


def test_environment_file_beside_the_unit_is_read_and_wins(tmp_path: Path) -> None:
    (tmp_path / "llm.env").write_text("""ARGS=--sc '{"method":"ngram"}'\nTP=4\n""")
    path = tmp_path / "llm.service"
    text = unit("/bin/vllm serve m -tp ${TP} $ARGS", "Environment=TP=2", "EnvironmentFile=-/etc/default/llm.env")
    assert argv(text, path) == ["/bin/vllm", "serve", "m", "-tp", "4", "--sc", '{"method":"ngram"}']


def test_an_environment_value_wholly_in_single_quotes_loses_the_json_quotes_at_the_split(tmp_path: Path) -> None:
    (tmp_path / "e").write_text("""A='--sc {"m":"n"}'\n""")
    path = tmp_path / "llm.service"
    assert argv(unit("/bin/vllm serve m $A", "EnvironmentFile=e"), path)[-1] == "{m:n}"


def test_drop_ins_replace_the_command_only_after_an_empty_one(tmp_path: Path) -> None:
    path = tmp_path / "llm.service"
    path.write_text(unit("/bin/vllm serve old"))
    folder = tmp_path / "llm.service.d"
    folder.mkdir()
    (folder / "10.conf").write_text("[Service]\nExecStart=\nExecStart=/bin/vllm serve new\n")
    assert argv(path.read_text(), path)[-1] == "new"
    assert argv((folder / "10.conf").read_text(), folder / "10.conf")[-1] == "new"
    (folder / "20.conf").write_text("[Service]\nExecStart=/bin/vllm serve newer\n")
    launch = read_systemd(path.read_text(), path)[0]
    assert [f.code for f in launch.findings] == ["execstart-not-reset"]


def test_specifiers_expand_and_a_doubled_percent_is_one() -> None:
    path = Path("vllm@qwen.service")
    assert argv(unit("/bin/vllm serve /models/%i --a 100%% %(x)s %h", "User=llm"), path)[2:] == [
        "/models/qwen", "--a", "100%", "%(x)s", "/home/llm",
    ]  # fmt: skip


def test_executable_prefixes_and_command_separators_are_understood() -> None:
    assert argv(unit("-/bin/vllm serve m ; /bin/true")) == ["/bin/vllm", "serve", "m"]
    assert argv(unit(":/bin/vllm serve $M")) == ["/bin/vllm", "serve", "$M"]
    assert argv(unit("@/bin/vllm name serve m")) == ["/bin/vllm", "serve", "m"]


@given(st.text(max_size=200))
def test_no_text_breaks_the_unit_reader(text: str) -> None:
    assert "\n" not in error_text(lambda: read_systemd(text))
    assert "\n" not in error_text(lambda: read_systemd(unit(text)))


@given(st.text(max_size=100))
def test_no_text_breaks_the_environment_file_reader(text: str) -> None:
    assert all(isinstance(value, str) for value in split_environment_file(text).values())


@given(st.lists(WORD, max_size=6), st.sampled_from("'\""))
def test_quoted_words_come_back_as_they_were(words: list[str], quote: str) -> None:
    quoted = [quote + word.replace("\\", "\\\\").replace(quote, "\\" + quote) + quote for word in words]
    assert list(split_words(" ".join(quoted)).words) == words
