import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validate.launch.arguments import Arguments, human_readable_int, parse_vllm
from validate.launch.findings import Place
from validate.launch.json_value import corrected, read_value
from validate.launch.settings import vllm_settings
from validate.launch.sglang_arguments import parse_sglang, sglang_settings, sglang_speculation
from validate.launch.shell_words import literal_words
from validate.launch.systemd_words import split_words

NEWEST = (0, 33, 0)
JSON = '{"method":"mtp","num_speculative_tokens":2}'


def parsed(*words: str, version: tuple[int, int, int] = NEWEST, is_serve: bool = True) -> Arguments:
    return parse_vllm(words, version, is_serve=is_serve)


def codes(arguments: Arguments) -> list[str]:
    return [finding.code for finding in arguments.findings]


@pytest.mark.parametrize(
    "words",
    [
        ("--speculative-config", JSON),
        ("--speculative_config", JSON),
        (f"--speculative-config={JSON}",),
        (f"--speculative_config={JSON}",),
        ("-sc", JSON),
        (f"-sc={JSON}",),
        ("--speculative", JSON),
    ],
)
def test_every_spelling_of_the_option_is_the_same_option(words: tuple[str, ...]) -> None:
    arguments = parsed("m", *words)
    assert arguments.options == {"speculative-config": JSON}
    assert arguments.findings == []


def test_dotted_arguments_become_one_json_at_the_end() -> None:
    arguments = parsed("m", "--speculative_config.method", "mtp", "--speculative-config.num_speculative_tokens=2")
    assert json.loads(arguments.options["speculative-config"]) == {"method": "mtp", "num_speculative_tokens": 2}


def test_dotted_values_are_json_then_human_readable_numbers_then_text() -> None:
    arguments = parsed("-sc.a", "1k", "-sc.b", "1K", "-sc.c", "true", "-sc.d.e", "x", "-sc.l+", "1,2", "-sc.l+=3")
    assert json.loads(arguments.options["speculative-config"]) == {
        "a": 1000, "b": 1024, "c": True, "d": {"e": "x"}, "l": ["1", "2", "3"],
    }  # fmt: skip


def test_dotted_arguments_discard_the_json_wherever_it_stands() -> None:
    arguments = parsed("m", "--speculative-config.num_speculative_tokens", "3", "-sc", JSON)
    assert json.loads(arguments.options["speculative-config"]) == {"num_speculative_tokens": 3}
    assert codes(arguments) == ["json-discarded-by-dotted"]
    assert arguments.findings[0].fix == """--speculative-config '{"method": "mtp", "num_speculative_tokens": 3}'"""


def test_two_spellings_of_dotted_arguments_are_two_groups_and_the_last_wins() -> None:
    arguments = parsed("m", "-sc.method", "mtp", "--speculative-config.num_speculative_tokens", "2")
    assert json.loads(arguments.options["speculative-config"]) == {"num_speculative_tokens": 2}
    assert codes(arguments) == ["dotted-groups-conflict"]


def test_a_dot_in_a_value_is_no_dotted_argument() -> None:
    assert parsed('--speculative-config={"a":0.5}').options == {"speculative-config": '{"a":0.5}'}


@pytest.mark.parametrize(
    ("words", "version"),
    [
        (("-sc", JSON), (0, 18, 1)),
        (("--spec-method", "mtp"), (0, 21, 0)),
        (("--speculative-config", JSON), (0, 8, 0)),
        (("--speculative-config.method", "mtp"), (0, 8, 5)),
    ],
)
def test_options_that_the_version_does_not_have_yet_are_errors(
    words: tuple[str, ...], version: tuple[int, int, int]
) -> None:
    assert any(
        code in ("option-not-in-version", "dotted-not-in-version")
        for code in codes(parsed("m", *words, version=version))
    )
    assert codes(parsed("m", *words)) == []


def test_an_ambiguous_prefix_is_refused_where_the_aliases_exist() -> None:
    assert codes(parsed("m", "--spec", JSON)) == ["ambiguous-option"]
    assert parsed("m", "--spec", JSON, version=(0, 20, 2)).options == {"speculative-config": JSON}


def test_misspelt_options_are_named() -> None:
    assert codes(parsed("m", "--speculative-cfg", JSON)) == ["unrecognized-option"]
    typo = parsed("m", "--tensor-paralel-size", "2")
    assert (codes(typo), typo.findings[0].fix) == (["unknown-option"], "--tensor-parallel-size")


def test_the_model_is_the_first_positional_of_the_serve_command_only() -> None:
    assert parsed("org/m", "--port", "1").positionals == ["org/m"]
    assert parsed("--trust-remote-code", "org/m").positionals == ["org/m"]
    assert codes(parsed("org/m", is_serve=False)) == ["unrecognized-argument"]
    assert codes(parsed("a", "--port", "1", "b")) == ["unrecognized-argument"]


def test_flag_and_value_in_one_item_are_not_recognised() -> None:
    arguments = parsed("m", f"--speculative-config {JSON}")
    assert codes(arguments) == ["flag-and-value-in-one-item"]
    assert arguments.findings[0].fix == f"--speculative-config='{JSON}'"


def test_an_option_with_a_leading_blank_is_no_option() -> None:
    assert "escaped-blank" in codes(parsed("--model", "m", " --speculative-config", JSON))


def test_words_behind_the_value_are_kept_as_pieces_of_split_json() -> None:
    assert parsed("m", "-sc", '{"a":', "1}").after_speculative == ["1}"]


def test_the_last_value_wins_and_repetition_is_said() -> None:
    arguments = parsed("m", "-tp", "2", "--tensor-parallel-size", "4")
    assert (arguments.options["tensor-parallel-size"], codes(arguments)) == ("4", ["option-repeated"])


def test_flags_have_a_negative_form_and_lists_take_several_words() -> None:
    options = parsed(
        "m", "--no-async-scheduling", "-ep", "--cudagraph-capture-sizes", "1", "2", "4", "--port", "1"
    ).options
    assert options == {
        "async-scheduling": False, "enable-expert-parallel": True, "port": "1",
        "cudagraph-capture-sizes": ["1", "2", "4"],
    }  # fmt: skip


def test_a_missing_value_is_an_error() -> None:
    assert codes(parsed("m", "--speculative-config", "--port", "1")) == ["value-missing"]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("128k", 128_000),
        ("128K", 131_072),
        ("8192", 8192),
        ("1.5m", 1_500_000),
        ("1.5M", None),
        ("x", None),
        ("", None),
    ],
)
def test_human_readable_numbers(text: str, number: int | None) -> None:
    assert human_readable_int(text) == number


def test_settings_of_a_full_command_line() -> None:
    words = [
        "org/m",
        "-tp",
        "8",
        "-pp=2",
        "--data-parallel-size",
        "2",
        "-dcp",
        "4",
        "-ep",
        "--max-model-len",
        "128k",
        "--max-num-seqs",
        "64",
        "--block-size",
        "16",
        "--max-num-batched-tokens",
        "8K",
        "--gpu-memory-utilization",
        "0.95",
        "--kv-cache-dtype",
        "fp8",
        "--enforce-eager",
    ]
    compilation = '{"cudagraph_mode":"PIECEWISE","cudagraph_capture_sizes":[4,1,2]}'
    arguments = parsed(*words, "--compilation-config", compilation, "--attention-config.backend", "FLASHINFER")
    settings = vllm_settings(arguments, {"VLLM_USE_V2_MODEL_RUNNER": "1"})
    assert settings.findings == []
    assert (settings.tensor_parallel_size, settings.pipeline_parallel_size, settings.data_parallel_size) == (8, 2, 2)
    assert (settings.decode_context_parallel_size, settings.expert_parallel, settings.enforce_eager) == (4, True, True)
    assert (settings.max_model_len, settings.max_num_seqs, settings.max_num_batched_tokens) == (128_000, 64, 8192)
    assert (settings.gpu_memory_utilization, settings.block_size, settings.kv_cache_dtype) == (0.95, 16, "fp8")
    assert (settings.cudagraph_mode, settings.cudagraph_capture_sizes) == ("PIECEWISE", [1, 2, 4])
    assert (settings.model_runner, settings.attention_backend, settings.model) == ("v2", "FLASHINFER", "org/m")


@pytest.mark.parametrize(
    "words", [("-tp", "eight"), ("-tp", "0"), ("--gpu-memory-utilization", "90"), ("-cc", "{a:b}")]
)
def test_impossible_settings_are_errors(words: tuple[str, ...]) -> None:
    assert [finding.severity for finding in vllm_settings(parsed("m", *words), {}).findings] == ["error"]


def test_settings_that_depend_on_the_environment_are_left_out() -> None:
    settings = vllm_settings(parsed("m", "-tp", "${TP}", "--max-model-len", "auto"), {})
    assert (settings.tensor_parallel_size, settings.max_model_len, settings.findings) == (None, None, [])


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("{method:ngram,num_speculative_tokens:5}", "json-quotes-lost"),
        ("method:ngram", "json-quotes-lost"),
        ("""'{"method":"ngram","num_speculative_tokens":5}'""", "json-literal-quotes"),
        ("{'method':'ngram','num_speculative_tokens':5}", "json-python-quotes"),
        ("{“method”:“ngram”,“num_speculative_tokens”:5}", "json-smart-quotes"),
        ('{"method":"ngram","num_speculative_tokens":5,}', "json-trailing-comma"),
        ('{"method":"ngram","num_speculative_tokens":5,"enforce_eager":True}', "json-python-literal"),
        (r"\{\"method\":\"ngram\"\,\"num_speculative_tokens\":5\}", "json-double-escaped"),
        ('{{"method":"ngram","num_speculative_tokens":5}}', "json-template-braces"),
        ('{"method":', "json-word-split"),
        ('"{\\"method\\":\\"ngram\\"}"', "json-double-encoded"),
        ("[1]", "json-not-an-object"),
        ("5", "json-not-an-object"),
        ('{"method" "ngram"}', "json-invalid"),
    ],
)
def test_the_cause_of_broken_json_is_named(value: str, code: str) -> None:
    reading = read_value(value)
    assert (reading.content, reading.code) == (None, code)


@pytest.mark.parametrize(
    "value",
    [
        "{method:ngram,num_speculative_tokens:5}",
        "{method: ngram, num_speculative_tokens: 5}",
        "{'method':'ngram','num_speculative_tokens':5}",
        "{“method”:“ngram”,“num_speculative_tokens”:5}",
        '{"method":"ngram","num_speculative_tokens":5,}',
        r"\{\"method\":\"ngram\"\,\"num_speculative_tokens\":5\}",
        '{{"method":"ngram","num_speculative_tokens":5}}',
        """'{"method":"ngram","num_speculative_tokens":5}'""",
    ],
)
def test_what_was_meant_is_recovered_for_the_correction(value: str) -> None:
    assert read_value(value).meant == {"method": "ngram", "num_speculative_tokens": 5}


def test_split_json_is_put_together_again() -> None:
    assert read_value('{"method":', ['"ngram",', '"k":', "5}"]).meant == {"method": "ngram", "k": 5}


def test_a_variable_inside_json_leaves_only_that_value_unknown() -> None:
    reading = read_value('{"method":"mtp","num_speculative_tokens":${K}}')
    assert reading.unresolved
    assert reading.content is not None
    assert reading.content["method"] == "mtp"


CONFIGS = st.dictionaries(
    st.sampled_from(["method", "model", "revision"]),
    st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF), max_size=15),
    min_size=1,
)


@given(CONFIGS)
def test_a_correction_reaches_the_engine_unchanged(config: dict[str, str]) -> None:
    shell = literal_words(corrected(Place("shell"), config))
    assert json.loads(shell[1]) == config
    systemd = split_words(corrected(Place("systemd"), config).replace("%%", "%").replace("$$", "$")).words
    assert json.loads(systemd[1]) == config


@given(st.text(max_size=80))
def test_no_value_breaks_the_diagnosis(value: str) -> None:
    reading = read_value(value)
    assert (reading.content is None) == bool(reading.code)
    assert "\n" not in reading.explanation


@given(st.lists(st.text(max_size=25), max_size=8))
def test_no_words_break_the_parsers(words: list[str]) -> None:
    vllm_settings(parsed(*words), {})
    arguments = parse_sglang(words)
    sglang_speculation(arguments, sglang_settings(arguments))


def sglang(*words: str) -> tuple[dict[str, object] | None, list[str], object]:
    arguments = parse_sglang(words)
    settings = sglang_settings(arguments)
    config = sglang_speculation(arguments, settings)
    return config, [finding.code for finding in arguments.findings], settings


def test_sglang_options_and_aliases_are_understood() -> None:
    words = [
        "--model-path",
        "org/m",
        "--tp",
        "8",
        "--mem-fraction-static=0.85",
        "--context-length",
        "8192",
        "--max-running-requests",
        "48",
        "--dp-size",
        "2",
    ]
    settings = sglang_settings(parse_sglang(words))
    assert (settings.model, settings.tensor_parallel_size, settings.data_parallel_size) == ("org/m", 8, 2)
    assert (settings.gpu_memory_utilization, settings.max_model_len, settings.max_num_seqs) == (0.85, 8192, 48)


def test_sglang_steps_become_draft_tokens() -> None:
    config, found, _ = sglang(
        *[
            "--model-path",
            "m",
            "--speculative-algorithm",
            "EAGLE",
            "--speculative-num-steps",
            "3",
            "--speculative-eagle-topk",
            "1",
        ],
        *["--speculative-num-draft-tokens", "6", "--speculative-draft-model-path", "d"],
    )
    assert config == {
        "method": "eagle", "algorithm": "EAGLE", "model": "d", "num_steps": 3, "eagle_topk": 1, "num_draft_tokens": 4,
        "num_speculative_tokens": 3,
    }  # fmt: skip
    assert found == ["num-draft-tokens-forced", "running-requests-lowered"]


@pytest.mark.parametrize(
    ("model", "algorithm", "expected"),
    [
        ("meta-llama/Llama-3.1-8B", "EAGLE", (5, 4, 8)),
        ("deepseek-ai/DeepSeek-V3", "NEXTN", (3, 1, 4)),
        ("openai/gpt-oss-120b", "EAGLE3", (3, 1, 4)),
        ("org/other", "STANDALONE", (3, 1, 4)),
        ("org/other", "EAGLE", (5, 4, 8)),
    ],
)
def test_sglang_fills_unset_steps_by_the_models_family(
    model: str, algorithm: str, expected: tuple[int, int, int]
) -> None:
    config, _, _ = sglang("--model-path", model, "--speculative-algorithm", algorithm)
    assert config is not None
    assert (config["num_steps"], config["eagle_topk"], config["num_draft_tokens"]) == expected


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("--speculative-num-steps 3", "speculative-algorithm-missing"),
        ("--speculative-algorithm EAGEL", "unknown-method"),
        ("--speculative-algorithm EAGLE3", "draft-model-missing"),
        ("--speculative-config {}", "unrecognized-option"),
    ],
)
def test_sglang_mistakes_are_errors(words: str, code: str) -> None:
    assert code in sglang("--model-path", "m", *words.split())[1]


def test_a_model_given_twice_leaves_the_positional_over() -> None:
    arguments = parsed("a/b", "--model", "c/d")
    assert codes(arguments) == ["unrecognized-argument"]
    assert "a/b" in arguments.findings[0].message
    assert arguments.options["model"] == "c/d"
    assert codes(parsed("--model", "c/d", "--enforce-eager", "true")) == ["unrecognized-argument"]
