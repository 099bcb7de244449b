from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validate.launch.compose_words import interpolate, split_command
from validate.launch.findings import Launch, MalformedSourceError
from validate.launch.program import image_engine, image_version
from validate.launch.sources import Launches, find_launches


def error_text(call: Callable[[], object]) -> str:
    """The message of the stated error that the call ends with, or an empty text."""
    try:
        call()
    except MalformedSourceError as error:
        return str(error)
    return ""


def found(text: str) -> Launches:
    return find_launches(text)


def only(text: str) -> Launch:
    launches = found(text).launches
    assert len(launches) == 1
    return launches[0]


def compose(*lines: str, image: str = "vllm/vllm-openai:v0.20.2") -> str:
    body = "\n".join("    " + line for line in lines)
    return f"services:\n  s:\n    image: {image}\n{body}\n"


def container(*lines: str, image: str = "vllm/vllm-openai:v0.18.1") -> str:
    body = "\n".join("  " + line for line in lines)
    return f"- name: c\n  image: {image}\n{body}\n"


def codes(launch: Launch) -> list[str]:
    return [finding.code for finding in launch.findings]


def test_a_compose_list_is_taken_word_for_word() -> None:
    launch = only(compose("command:", "  - org/m", """  - '--speculative-config={"method":"mtp"}'"""))
    assert launch.argv == ("vllm", "serve", "org/m", '--speculative-config={"method":"mtp"}')
    assert launch.findings == ()


def test_a_compose_string_is_split_with_quotes_but_without_expansion() -> None:
    launch = only(compose("command: >", """  org/m --sc '{"a": 1}' --d {"b":2} "x y" --e $$HOME"""))
    assert launch.argv[2:] == ("org/m", "--sc", '{"a": 1}', "--d", "{b:2}", "x y", "--e", "$HOME")


def test_a_folded_string_joins_lines_and_a_shell_backslash_leaves_an_escaped_blank() -> None:
    launch = only(compose("command: >", "  --model m \\", "  --port 1"))
    assert launch.argv[2:] == ("--model", "m", " --port", "1")


def test_compose_drops_what_follows_a_shell_operator() -> None:
    assert split_command("a b && c") == (["a", "b"], "&& c")
    launch = only(compose("command: org/m --port 1 && echo done"))
    assert launch.argv[-1] == "1"
    assert codes(launch) == ["compose-command-cut"]


def test_compose_interpolates_before_it_splits() -> None:
    unset: list[str] = []
    text = "${A} $B ${C:-d e} ${D-x} ${A:+y} ${E:-${A}} $$F ${G}"
    assert interpolate(text, {"A": "1", "B": "2", "C": "", "D": ""}, unset) == "1 2 d e  y 1 $F ${G}"
    assert unset == ["G"]


def test_a_lone_dollar_is_refused_as_compose_does() -> None:
    assert found(compose("command: org/m --x $(cat y)")).findings[0].code == "compose-interpolation"


def test_env_files_and_dot_env_are_read_beside_the_compose_file(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("PORT=9\n")
    (tmp_path / "v.env").write_text("VLLM_USE_V2_MODEL_RUNNER=1\n")
    path = tmp_path / "compose.yml"
    path.write_text(compose("env_file: v.env", "environment: [A=b]", "command: org/m --port ${PORT}"))
    launch = find_launches(path).launches[0]
    assert launch.argv[-1] == "9"
    assert launch.environment == {"VLLM_USE_V2_MODEL_RUNNER": "1", "A": "b"}


def test_an_entrypoint_replaces_that_of_the_image() -> None:
    launch = only(compose("entrypoint: python3 -m vllm.entrypoints.openai.api_server", "command: [--model, m]"))
    assert launch.argv == ("python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "m")
    shell = only(compose("entrypoint: [bash, -c]", """command: ["vllm serve m -tp 2"]"""))
    assert shell.argv == ("vllm", "serve", "m", "-tp", "2")


@pytest.mark.parametrize("command", ["[vllm, serve, m]", "[bash, -c, 'vllm serve m']"])
def test_a_whole_command_behind_the_images_entrypoint_is_an_error(command: str) -> None:
    launch = only(compose(f"command: {command}"))
    assert launch.argv[:2] == ("vllm", "serve")
    assert "entrypoint-precedes-command" in codes(launch)


def test_an_image_of_somebody_else_has_no_known_entrypoint() -> None:
    assert only(compose("command: [vllm, serve, m]", image="rocm/vllm:v0.11.0")).argv == ("vllm", "serve", "m")


def test_anchors_and_merge_keys_are_followed() -> None:
    text = "x: &b {image: 'vllm/vllm-openai:v0.20.2'}\nservices:\n  a: {<<: *b, command: [m]}\n"
    assert only(text).argv == ("vllm", "serve", "m")


def test_numbers_in_a_command_list_are_errors() -> None:
    assert codes(only(compose("command: [m, --port, 8000]"))) == ["yaml-item-not-a-text"]


def test_references_of_the_kubelet_are_expanded_and_dollars_are_not() -> None:
    launch = only(
        container("env: [{name: K, value: '5'}, {name: J, value: '<$(K)>'}]", "args: [m, $(K), $(J), $$(K), $K, a$$b]")
    )
    assert launch.argv[3:] == ("5", "<5>", "$(K)", "$K", "a$b")


def test_an_unknown_reference_stays_and_is_an_error_only_if_nothing_else_could_set_it() -> None:
    alone = only(container("args: [m, $(X)]"))
    assert (alone.argv[-1], codes(alone)) == ("$(X)", ["unresolved-reference"])
    outside = only(container("envFrom: [{secretRef: {name: s}}]", "args: [m, $(X)]"))
    assert codes(outside) == ["unresolved-variable"]


def test_config_maps_of_the_same_file_set_variables() -> None:
    text = (
        "kind: ConfigMap\nmetadata: {name: cm}\ndata: {K: '3'}\n---\nkind: Pod\nspec:\n  containers:\n  - name: c\n"
        "    image: vllm/vllm-openai:v0.18.1\n    envFrom: [{configMapRef: {name: cm}}]\n    args: [m, $(K)]\n"
    )
    assert only(text).argv == ("vllm", "serve", "m", "3")


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet", "Job"])
def test_containers_are_found_in_every_kind(kind: str) -> None:
    text = (
        f"apiVersion: apps/v1\nkind: {kind}\nmetadata: {{name: x}}\nspec:\n  template:\n    spec:\n      containers:\n"
        "      - {name: c, image: 'vllm/vllm-openai:v0.18.1', args: [m]}\n"
    )
    launch = only(text)
    assert (launch.name, launch.argv) == ("x/c", ("vllm", "serve", "m"))


def test_a_shell_in_a_container_is_followed_with_the_containers_variables() -> None:
    launch = only(
        container(
            "env: [{name: K, value: '2'}]", "command: [/bin/sh, -c]", """args: ["exec vllm serve m -tp $K -x {a,b}"]"""
        )
    )
    assert launch.argv == ("vllm", "serve", "m", "-tp", "2", "-x", "{a,b}")


def test_a_bare_fragment_without_image_is_read_as_vllm_arguments() -> None:
    assert only("args:\n- --model=m\n- --max-num-seqs=4\n").argv == ("vllm", "serve", "--model=m", "--max-num-seqs=4")


def test_json_as_a_yaml_mapping_is_an_error() -> None:
    launch = only(container("args:", "- m", "- --speculative-config", """- {"method": "ngram"}"""))
    assert codes(launch) == ["yaml-item-not-a-text"]


def test_json_with_a_colon_and_blank_in_a_plain_item_is_a_yaml_error() -> None:
    result = found('args:\n- --speculative-config={"method": "ngram"}\n')
    assert result.launches == []
    assert result.findings[0].code == "yaml-error"


def test_args_as_one_text_and_numbers_as_env_values_are_refused() -> None:
    assert codes(only(container("args: m --port 1"))) == ["args-not-a-list"]
    assert codes(only(container("env: [{name: K, value: 5}]", "args: [m]"))) == ["env-value-not-a-text"]


def test_a_broken_document_does_not_hide_the_others() -> None:
    result = found(
        "kind: Pod\nspec: [\n---\n"
        + "kind: Pod\nspec: {containers: [{name: c, image: 'vllm/vllm-openai:v0.18.1', args: [m]}]}\n"
    )
    assert [launch.argv[-1] for launch in result.launches] == ["m"]
    assert [finding.severity for finding in result.findings] == ["error"]


def test_alias_bombs_and_deep_nesting_are_refused() -> None:
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{new}: &{new} [{','.join(['*' + old] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
    )
    assert found("services:\n  s: {}\n" + bomb).findings[0].code == "yaml-too-large"
    assert found("args: " + "[" * 5000).findings[0].severity == "error"
    assert found("args: " + "[ " * 150 + "]" * 150).findings[0].severity == "error"


def test_a_dockerfile_in_exec_form_is_read() -> None:
    text = """FROM vllm/vllm-openai:v0.16.0\nENV A=b\nCMD ["--model", "m", \\\n  "-tp", "2"]\n"""
    assert only(text).argv == ("vllm", "serve", "--model", "m", "-tp", "2")
    assert only('FROM x\nENTRYPOINT ["vllm", "serve"]\nCMD ["m"]\n').argv == ("vllm", "serve", "m")
    assert found("FROM x\nCMD [\"vllm\", 'serve']\n").findings[0].code == "dockerfile-not-json"


@pytest.mark.parametrize(
    ("image", "engine", "version"),
    [
        ("vllm/vllm-openai:v0.20.2", "vllm", "0.20.2"),
        ("vllm/vllm-openai:latest", "vllm", None),
        ("registry:5000/vllm/vllm-openai", "vllm", None),
        ("rocm/vllm:rocm6.4.1_vllm_0.10.1_20250909", "vllm", "0.10.1"),
        ("nvcr.io/nvidia/vllm:25.09-py3", "vllm", None),
        ("lmsysorg/sglang:v0.5.5-cu126", "sglang", "0.5.5"),
        ("nginx:1.27.0", None, None),
        ("vllm/vllm-openai@sha256:0123", "vllm", None),
    ],
)
def test_engine_and_version_are_read_from_the_image(image: str, engine: str | None, version: str | None) -> None:
    assert (image_engine(image), image_version(image)) == (engine, version)


@given(st.text(max_size=80))
def test_no_text_breaks_compose_strings(text: str) -> None:
    assert "\n" not in error_text(lambda: split_command(interpolate(text, {}, [])))


@given(st.lists(st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF), max_size=12), max_size=5))
def test_single_quoted_words_of_a_compose_string_come_back(values: list[str]) -> None:
    quoted = " ".join("'" + value.replace("'", "'\"'\"'") + "'" for value in values)
    assert split_command(quoted) == (values, "") or "'" in "".join(values)
