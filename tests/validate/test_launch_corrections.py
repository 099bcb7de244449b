"""Corrections are checked by putting them where they are meant to stand, and reading the result again."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validate.launch.findings import Finding, Place
from validate.launch.inspection import accounts_of, inspect_launch
from validate.launch.json_value import corrected, is_unresolved, read_value, references

CONFIG = {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4, "prompt_lookup_min": 2}
BARE = "{method:ngram,num_speculative_tokens:5,prompt_lookup_max:4,prompt_lookup_min:2}"
LOST = BARE.replace("{", '{"').replace(":ngram", '":"ngram"').replace(",", ',"').replace("s:5", 's":5')
LOST = LOST.replace("x:4", 'x":4').replace("n:2", 'n":2')  # as people write it: nothing protects the quotes


def findings(text: str) -> dict[str, Finding]:
    return {finding.code: finding for finding in accounts_of(text).all_findings}


def config_of(text: str) -> dict[str, Any]:
    report = inspect_launch(text)
    assert [f["code"] for f in report["findings"] if f["severity"] == "error"] == []
    config: dict[str, Any] = report["speculative_config"]
    return config


UNIT = "[Service]\nExecStart=/bin/vllm serve m {}\n"
UNIT_SHELL = "[Service]\nExecStart=/bin/bash -c 'exec vllm serve m {}'\n"
UNIT_SHELL_DOUBLE = '[Service]\nExecStart=/bin/bash -c "exec vllm serve m {}"\n'
COMPOSE_TEXT = "services:\n  a:\n    image: vllm/vllm-openai:v0.20.2\n    command: >-\n      --model m {}\n"
COMPOSE_LIST = "services:\n  a:\n    image: vllm/vllm-openai:v0.20.2\n    command:\n    - --model=m\n    {}\n"
CONTAINER = "kind: Pod\nspec:\n  containers:\n  - image: vllm/vllm-openai:v0.20.2\n    name: c\n"
MANIFEST = CONTAINER + "    args:\n    - --model=m\n    {}\n"
MANIFEST_SHELL = CONTAINER + "    command: [sh, -c]\n    args:\n    - |\n      exec vllm serve m {}\n"
DOCKERFILE = 'FROM vllm/vllm-openai:v0.20.2\nCMD ["--model", "m", {}]\n'
SCRIPT = "#!/bin/bash\nvllm serve m {}\n"
NIX = (
    'virtualisation.oci-containers.containers.a = {{ image = "vllm/vllm-openai:v0.20.2"; '
    'cmd = [ "--model" "m" {} ]; }};\n'
)


@pytest.mark.parametrize(
    ("place", "frame", "broken"),
    [
        (Place("systemd"), UNIT, f"--speculative-config {LOST}"),
        (Place("systemd", True), UNIT_SHELL, f"--speculative-config {LOST}"),
        (Place("systemd", True), UNIT_SHELL_DOUBLE, None),
        (Place("compose", True), COMPOSE_TEXT, f"--speculative-config {LOST}"),
        (Place("compose"), COMPOSE_LIST, f"- \"--speculative-config='{json.dumps(CONFIG)}'\"".replace('{"', "{'")),
        (Place("kubernetes"), MANIFEST, None),
        (Place("kubernetes", True), MANIFEST_SHELL, f"--speculative-config {LOST}"),
        (Place("dockerfile"), DOCKERFILE, None),
        (Place("shell", True), SCRIPT, f"--speculative-config {LOST}"),
        (Place("nix"), NIX, None),
    ],
)
def test_a_correction_put_in_its_place_reaches_the_engine(place: Place, frame: str, broken: str | None) -> None:
    assert config_of(frame.format(corrected(place, CONFIG))).items() >= CONFIG.items()
    if broken is not None and "'{" not in broken:
        fix = findings(frame.format(broken))["json-quotes-lost"].fix
        assert fix is not None
        assert config_of(frame.format(fix)).items() >= CONFIG.items()


SAFE = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF, exclude_characters="\x7f"), max_size=12)


@given(st.dictionaries(st.sampled_from(["model", "revision", "quantization"]), SAFE, min_size=1))
@pytest.mark.parametrize(
    ("place", "frame"),
    [
        (Place("systemd"), UNIT),
        (Place("systemd", True), UNIT_SHELL),
        (Place("compose"), COMPOSE_LIST),
        (Place("kubernetes"), MANIFEST),
        (Place("dockerfile"), DOCKERFILE),
        (Place("shell", True), SCRIPT),
    ],
)
def test_no_text_in_a_configuration_is_damaged_by_its_correction(
    place: Place, frame: str, config: dict[str, str]
) -> None:
    account = accounts_of(frame.format(corrected(place, config))).accounts[0]
    words = [word for word in account.argv if word.startswith(("--speculative-config=", "{"))]
    assert json.loads(words[0].removeprefix("--speculative-config=")) == config


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ('{"method":"ngram","num_speculative_tokens":5', "json-incomplete"),
        ('{"method":', "json-word-split"),
        ('{"a":[1,2', "json-incomplete"),
    ],
)
def test_an_open_bracket_is_told_from_a_split_at_a_blank(value: str, code: str) -> None:
    assert read_value(value).code == code


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("$A", True),
        ("${A:-{}}", True),
        ("$(jq '{a: $b(c)}' x)", True),
        ("$(a)b", False),
        ("$(open", False),
        ("a$", False),
        ("", False),
        ("${A}${B}", False),
    ],
)
def test_references_are_told_by_their_balanced_brackets(text: str, whole: bool) -> None:
    assert is_unresolved(text) is whole


@given(st.text("${}() ab\"'", max_size=40))
def test_references_never_overlap(text: str) -> None:
    spans = references(text)
    assert all(start < end for start, end in spans)
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))


def test_what_stands_in_a_script_of_an_unknown_value_is_no_error() -> None:
    report = inspect_launch("""vllm serve m --speculative-config="$(python3 -c 'print(f(g("x")))')" """)
    assert report["speculative_config"] is None
    assert report["speculative_config_reason"].startswith("unknown")
    assert not [finding for finding in report["findings"] if finding["severity"] == "error"]


def test_a_broken_value_is_null_with_the_reason() -> None:
    report = inspect_launch(f"vllm serve m --speculative-config {BARE}")
    assert (report["speculative_config"], report["speculative_config_reason"][:8]) == (None, "unusable")
    assert "speculative_config_reason" not in inspect_launch("vllm serve m")


@pytest.mark.parametrize(
    ("text", "code", "fix"),
    [
        (UNIT.format("--x '{\"k\":$K}'"), "variable-not-expanded", "${K}"),
        (UNIT.format("&& echo done"), "shell-operator", "/bin/sh -c '...' around the whole command"),
        (MANIFEST.format("- --port=$P"), "variable-not-expanded", "$(P)"),
        (MANIFEST.format("- --port=${P}"), "variable-not-expanded", "$(P)"),
        (DOCKERFILE.format('"--port", "$P"'), "variable-not-expanded", "the shell form: CMD without [ ]"),
        (COMPOSE_LIST.format("- '|'"), "shell-operator", "/bin/sh -c '...' around the whole command"),
    ],
)
def test_what_is_written_for_a_shell_where_none_runs_is_an_error(text: str, code: str, fix: str) -> None:
    finding = findings(text)[code]
    assert (finding.severity, finding.fix) == ("error", fix)


@pytest.mark.parametrize(
    "text", [UNIT_SHELL.format("--port $P"), MANIFEST_SHELL.format("--port $P && true"), SCRIPT.format("$P")]
)
def test_where_a_shell_runs_it_is_none(text: str) -> None:
    assert {"variable-not-expanded", "shell-operator"}.isdisjoint(findings(text))


def test_a_braced_variable_with_several_options_is_one_word_for_systemd() -> None:
    text = "[Service]\nEnvironment='ARGS=--port 1 --seed 2'\nExecStart=/bin/vllm serve m ${ARGS}\n"
    assert findings(text)["variable-one-word"].fix == "$ARGS"
    assert "variable-one-word" not in findings(text.replace("${ARGS}", "$ARGS"))


def test_environment_files_may_be_named_by_specifiers_and_patterns(tmp_path: Path) -> None:
    (tmp_path / "qwen.env").write_text("TP=4\n")
    (tmp_path / "10-a.conf.env").write_text("N=1\n")
    (tmp_path / "20-b.conf.env").write_text("N=2\n")
    unit = tmp_path / "vllm@qwen.service"
    unit.write_text(
        f"[Service]\nEnvironmentFile=/etc/vllm/%i.env\nEnvironmentFile={tmp_path}/*.conf.env\n"
        "ExecStart=/bin/vllm serve m -tp ${TP} --max-num-seqs ${N}\n"
    )
    report = inspect_launch(unit)
    assert (report["tensor_parallel_size"], report["max_num_seqs"]) == (4, 2)


def test_variables_passed_on_by_the_manager_are_unknown_not_empty() -> None:
    report = inspect_launch("[Service]\nPassEnvironment=TP\nExecStart=/bin/vllm serve m -tp ${TP}\n")
    assert report["tensor_parallel_size"] is None
    assert report["argv"][-1] == "${TP}"


def test_the_model_may_follow_the_speculative_config() -> None:
    report = inspect_launch("""vllm serve -sc '{"method": "mtp", "num_speculative_tokens": 1}' org/m""")
    assert report["model"] == "org/m"
    assert report["speculative_config"]["method"] == "mtp"


def test_words_that_belong_to_nothing_are_one_finding() -> None:
    found = findings("vllm serve m --port 1 a b c")
    assert "a b c" in found["unrecognized-argument"].message
    module = findings("python -m vllm.entrypoints.openai.api_server org/m")
    assert module["unrecognized-argument"].fix == "--model org/m"


def test_numbers_beyond_all_bounds_stay_text() -> None:
    value = '{"method": "mtp", "num_speculative_tokens": NaN, "posterior_alpha": 1e999}'
    report = inspect_launch(f"vllm serve m --speculative-config '{value}'")
    json.dumps(report, allow_nan=False)
    assert "invalid-value" in [finding["code"] for finding in report["findings"]]


def test_links_beside_the_source_do_not_lead_out_of_its_folder(tmp_path: Path) -> None:
    secret, folder = tmp_path / "secret.env", tmp_path / "unit"
    secret.write_text("TP=4\n")
    folder.mkdir()
    (folder / "a.env").symlink_to(secret)
    (folder / "b.env").symlink_to(folder / "c.env")
    (folder / "c.env").write_text("N=3\n")
    unit = folder / "x.service"
    unit.write_text(
        "[Service]\nEnvironmentFile=a.env\nEnvironmentFile=b.env\n"
        "ExecStart=/bin/vllm serve m --seed ${TP} --max-num-seqs ${N}\n"
    )
    report = inspect_launch(unit)
    assert report["max_num_seqs"] == 3
    assert "${TP}" in report["argv"]
    assert "environment-file-unreadable" in [finding["code"] for finding in report["findings"]]


def test_config_files_are_named_as_vllm_wants_them(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("port: 1\n")
    (tmp_path / "c.json").write_text("{}")
    script = tmp_path / "s.sh"
    for words, code in (("--config c.json", "config-file-ending"), ("--config", "config-file-missing"),
                        ("--config c.yaml --config c.yaml", "config-file-repeated")):  # fmt: skip
        script.write_text(f"vllm serve m {words}\n")
        errors = [f["code"] for f in inspect_launch(script)["findings"] if f["severity"] == "error"]
        assert code in errors


@pytest.mark.parametrize(
    ("frame", "item"),
    [
        (MANIFEST, "- \"--speculative-config '{}'\""),
        (MANIFEST, '- "--speculative-config {}"'),
        (COMPOSE_LIST, '- "--speculative-config {}"'),
        (DOCKERFILE, '"--speculative-config {}"'),
        (UNIT, "'--speculative-config {}'"),
        (SCRIPT, "'--speculative-config {}'"),
    ],
)
def test_a_flag_and_its_value_in_one_item_are_corrected_for_the_place(frame: str, item: str) -> None:
    text = json.dumps(CONFIG)
    inside = text if "'--spec" in item[:8] else text.replace('"', '\\"')
    finding = findings(frame.format(item.format(inside)))["flag-and-value-in-one-item"]
    assert config_of(frame.format(finding.fix)).items() >= CONFIG.items()


@pytest.mark.parametrize("key", ["disable_by_batch_size", "tensor_parallel_size"])
def test_a_correction_leaves_out_the_keys_that_the_version_refuses(key: str) -> None:
    config = json.dumps({"method": "ngram", "num_speculative_tokens": 5, key: 2})
    fix = findings(f"uv run --with vllm==0.20.2 vllm serve m --speculative-config '{config}'")[
        "prompt-lookup-defaulted"
    ].fix
    corrected_config = {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_min": 2, "prompt_lookup_max": 5}
    assert config_of(f"uv run --with vllm==0.20.2 vllm serve m {fix}").items() >= corrected_config.items()


def test_lookups_in_the_wrong_order_are_exchanged() -> None:
    config = '{"method":"ngram","num_speculative_tokens":5,"prompt_lookup_max":2,"prompt_lookup_min":4}'
    fix = findings(f"vllm serve m --speculative-config '{config}'")["prompt-lookup-order"].fix
    assert config_of(f"vllm serve m {fix}").items() >= CONFIG.items()
