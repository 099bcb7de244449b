import json
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodel.engine.flags import PLACEHOLDER, Flag, SpeculativeChoice, schedule_refusal, speculative_flag
from hwmodel.engine.keys import accepted_keys
from hwmodel.engine.methods import MODEL_METHODS, method_names
from hwmodel.engine.versions import parse_version
from hwmodel.errors import InputError

NGRAM = SpeculativeChoice("ngram", 5, prompt_lookup_min=2, prompt_lookup_max=4)


def flag(choice: SpeculativeChoice, version: str = "0.16.0", engine: str = "vllm") -> Flag:
    return speculative_flag(engine, parse_version(version), choice)


def config(choice: SpeculativeChoice, version: str = "0.16.0") -> dict[str, object]:
    words = shlex.split(flag(choice, version).text)
    assert words[0] == "--speculative-config"
    assert len(words) == 2
    parsed = json.loads(words[1])
    assert isinstance(parsed, dict)
    return parsed


def test_ngram_text_is_ready_to_paste() -> None:
    assert flag(NGRAM).text == (
        '--speculative-config \'{"method": "ngram", "num_speculative_tokens": 5, '
        '"prompt_lookup_min": 2, "prompt_lookup_max": 4}\''
    )


@pytest.mark.parametrize(
    ("low", "high", "written"), [(None, None, (5, 5)), (None, 4, (4, 4)), (3, None, (3, 3)), (1, 4, (1, 4))]
)
def test_lookup_lengths_are_written_out_as_the_engine_takes_them(
    low: int | None, high: int | None, written: tuple[int, int]
) -> None:
    result = config(SpeculativeChoice("ngram", 5, prompt_lookup_min=low, prompt_lookup_max=high))
    assert (result["prompt_lookup_min"], result["prompt_lookup_max"]) == written


def test_the_lookup_trap_is_said_when_only_the_maximum_is_given() -> None:
    assert any("4-token matches" in note for note in flag(SpeculativeChoice("ngram", 5, prompt_lookup_max=4)).notes)
    assert not any("matches" in note for note in flag(NGRAM).notes)


@pytest.mark.parametrize(
    ("low", "high", "match"), [(5, 4, "got 5, allowed is at most"), (0, 4, "got 0"), (1, -2, "got -2")]
)
def test_impossible_lookup_lengths_are_refused(low: int, high: int, match: str) -> None:
    with pytest.raises(InputError, match=match):
        flag(SpeculativeChoice("ngram", 5, prompt_lookup_min=low, prompt_lookup_max=high))


@pytest.mark.parametrize("choice", [SpeculativeChoice("none", 5), SpeculativeChoice("ngram", 0)])
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_no_speculation_is_no_flag(choice: SpeculativeChoice, engine: str) -> None:
    assert flag(choice, "0.16.0", engine).text == ""


def test_options_before_0_8_2_are_separate() -> None:
    assert flag(NGRAM, "0.8.1").text == (
        "--speculative-model '[ngram]' --num-speculative-tokens 5 --ngram-prompt-lookup-max 4 "
        "--ngram-prompt-lookup-min 2"
    )
    assert flag(NGRAM, "0.8.2").text.startswith("--speculative-config ")


def test_legacy_draft_model_with_its_tensor_parallel_size() -> None:
    choice = SpeculativeChoice("draft_model", 3, draft_model="org/small", draft_tensor_parallel_size=1)
    assert flag(choice, "0.7.3").text == (
        "--speculative-model org/small --num-speculative-tokens 3 --speculative-draft-tensor-parallel-size 1"
    )


@pytest.mark.parametrize("method", sorted(MODEL_METHODS))
def test_a_missing_draft_model_is_a_placeholder_that_is_said(method: str) -> None:
    version = "0.32.0"
    result = flag(SpeculativeChoice(method, 3), version)
    assert config(SpeculativeChoice(method, 3), version)["model"] == PLACEHOLDER
    assert any(PLACEHOLDER in note for note in result.notes)
    given_model = flag(SpeculativeChoice(method, 3, draft_model="org/head"), version)
    assert PLACEHOLDER not in given_model.text + "".join(given_model.notes)


@pytest.mark.parametrize("method", ["ngram", "suffix", "mtp"])
def test_methods_without_a_model_name_none(method: str) -> None:
    assert "model" not in config(SpeculativeChoice(method, 3))


def test_mtp_takes_a_model_when_one_is_given() -> None:
    assert config(SpeculativeChoice("mtp", 1, draft_model="org/mtp"))["model"] == "org/mtp"


def test_mtp_before_0_11_uses_the_alias() -> None:
    assert config(SpeculativeChoice("mtp", 1), "0.10.2")["method"] == "deepseek_mtp"
    assert config(SpeculativeChoice("mtp", 1), "0.11.0")["method"] == "mtp"


def test_p_eagle_is_eagle3_with_parallel_drafting() -> None:
    result = config(SpeculativeChoice("p_eagle", 5, draft_model="org/p"))
    assert (result["method"], result["parallel_drafting"]) == ("eagle3", True)
    with pytest.raises(InputError, match="cannot use p_eagle"):
        flag(SpeculativeChoice("p_eagle", 5), "0.15.1")


def test_parallel_drafting_of_a_draft_model_needs_0_16() -> None:
    choice = SpeculativeChoice("draft_model", 5, draft_model="org/p", parallel_drafting=True)
    assert config(choice)["parallel_drafting"] is True
    with pytest.raises(InputError, match="parallel_drafting"):
        flag(SpeculativeChoice("eagle3", 5, draft_model="org/p", parallel_drafting=True), "0.15.1")


def test_draft_tensor_parallel_size_only_where_it_is_used() -> None:
    options = {"draft_tensor_parallel_size": 1, "tensor_parallel_size": 8}
    assert config(SpeculativeChoice("eagle3", 3, draft_model="m", **options))["draft_tensor_parallel_size"] == 1
    assert "draft_tensor_parallel_size" not in config(SpeculativeChoice("ngram", 3, **options))
    assert "draft_tensor_parallel_size" not in config(
        SpeculativeChoice("mlp_speculator", 3, draft_model="m", **options)
    )
    with pytest.raises(InputError, match="allowed are 1 and the target's 8"):
        flag(SpeculativeChoice("eagle3", 3, draft_model="m", tensor_parallel_size=8, draft_tensor_parallel_size=2))


@pytest.mark.parametrize(("method", "version"), [("suffix", "0.11.0"), ("draft_model", "0.12.0"), ("medusa", "0.33.0")])
def test_a_method_that_the_version_lacks_has_no_flag(method: str, version: str) -> None:
    with pytest.raises(InputError, match=f"vLLM {version} cannot use {method}"):
        flag(SpeculativeChoice(method, 3), version)


# --- schedule ---

SCHEDULE = ((1, 64, 3), (65, 128, 1), (129, 512, 0))


def scheduled(**changes: object) -> SpeculativeChoice:
    return SpeculativeChoice(**({"method": "mtp", "num_speculative_tokens": 3, "schedule": SCHEDULE} | changes))  # type: ignore[arg-type]


def test_schedule_came_with_0_24() -> None:
    key = "num_speculative_tokens_per_batch_size"
    assert config(scheduled(), "0.24.0")[key] == [[1, 64, 3], [65, 128, 1], [129, 512, 0]]
    assert key not in config(scheduled(), "0.23.0")
    assert any("left out" in note for note in flag(scheduled(), "0.23.0").notes)


def test_schedule_is_clamped_to_the_draft_length() -> None:
    result = config(scheduled(num_speculative_tokens=2), "0.33.0")
    assert result["num_speculative_tokens_per_batch_size"] == [[1, 64, 2], [65, 128, 1], [129, 512, 0]]


def test_schedule_is_left_out_with_data_parallelism() -> None:
    assert "num_speculative_tokens_per_batch_size" not in config(scheduled(data_parallel_size=2), "0.33.0")


def test_schedule_is_left_out_where_runner_v1_ignores_it() -> None:
    assert "num_speculative_tokens_per_batch_size" not in config(
        scheduled(method="suffix", model_runner="v1"), "0.33.0"
    )
    choice = scheduled(method="dspark", draft_model="m", model_runner="v2")
    assert "num_speculative_tokens_per_batch_size" in config(choice, "0.33.0")


@pytest.mark.parametrize(
    ("version", "runner", "said"),
    [("0.24.0", "v2", True), ("0.25.0", "v2", False), ("0.33.0", "v1", True), ("0.33.0", "v2", False)],
)
def test_schedule_on_runner_v1_costs_the_full_graphs(version: str, runner: str, said: bool) -> None:
    notes = flag(scheduled(model_runner=runner), version).notes
    assert any("piecewise" in note for note in notes) is said


@pytest.mark.parametrize(
    "schedule",
    [((2, 4, 1),), ((1, 4, 1), (4, 8, 0)), ((1, 4, -1),), ((1, 0, 1),), ((1, 9, 1), (5, 20, 0))],
)
def test_malformed_schedules_are_refused(schedule: tuple[tuple[int, int, int], ...]) -> None:
    with pytest.raises(InputError, match="schedule: got"):
        flag(scheduled(schedule=schedule), "0.33.0")


@pytest.mark.parametrize(
    ("engine", "version", "method", "runner", "data_parallel_size", "reason"),
    [
        ("vllm", "0.24.0", "mtp", None, 1, None),
        ("vllm", "0.33.0", "suffix", "v2", 1, None),
        ("vllm", "0.23.0", "mtp", "v2", 1, "came with 0.24"),
        ("vllm", "0.33.0", "mtp", "v2", 2, "data parallelism"),
        ("vllm", "0.24.0", "suffix", "v2", 1, "suffix on the V1 model runner"),
        ("vllm", "0.33.0", "suffix", None, 1, "suffix on the V1 model runner"),
        ("sglang", "0.5.23", "eagle", None, 1, "--speculative-adaptive changes the length by itself"),
    ],
)
def test_what_ignores_a_schedule_says_why(
    engine: str, version: str, method: str, runner: str | None, data_parallel_size: int, reason: str | None
) -> None:
    refusal = schedule_refusal(engine, parse_version(version), method, runner, data_parallel_size)
    assert (refusal is None) is (reason is None)
    assert (reason or "") in (refusal or "")


# --- what the launch said ---


def launched(**launch_config: object) -> SpeculativeChoice:
    return SpeculativeChoice("eagle3", 3, launch_config=launch_config)


def test_the_launchs_drafter_and_its_other_keys_are_kept() -> None:
    choice = launched(
        method="eagle3", model="/models/my-eagle3", num_speculative_tokens=5, draft_sample_method="probabilistic"
    )
    assert config(choice, "0.24.0") == {
        "method": "eagle3",
        "model": "/models/my-eagle3",
        "num_speculative_tokens": 3,
        "draft_sample_method": "probabilistic",
    }


def test_a_drafter_that_was_chosen_wins_over_the_launchs() -> None:
    choice = SpeculativeChoice("eagle3", 3, draft_model="org/head", launch_config={"model": "/models/my-eagle3"})
    assert config(choice)["model"] == "org/head"


def test_a_key_of_the_launch_that_the_version_lacks_is_left_out_with_a_note() -> None:
    choice = launched(model="m", draft_sample_method="probabilistic", no_such_key=1)
    assert set(config(choice, "0.20.2")) == {"method", "model", "num_speculative_tokens"}
    assert any("draft_sample_method, no_such_key; vLLM 0.20.2" in note for note in flag(choice, "0.20.2").notes)


def test_what_the_choice_decides_never_comes_back_from_the_launch() -> None:
    kept = config(
        launched(model="m", prompt_lookup_max=4, draft_tensor_parallel_size=1, parallel_drafting=False,
                 num_speculative_tokens_per_batch_size=[[1, 8, 3]]),
        "0.33.0",
    )  # fmt: skip
    assert kept == {"method": "eagle3", "model": "m", "num_speculative_tokens": 3}


def test_a_drafter_that_the_launch_lets_draft_in_parallel_goes_on_doing_so() -> None:
    choice = SpeculativeChoice("draft_model", 3, launch_config={"model": "m", "parallel_drafting": True})
    assert config(choice, "0.16.0")["parallel_drafting"] is True
    assert "parallel_drafting" not in config(launched(model="m", parallel_drafting=True), "0.15.1")


def test_options_before_0_8_2_say_which_of_the_launchs_are_left_out() -> None:
    choice = SpeculativeChoice("draft_model", 3, launch_config={"model": "org/small", "max_model_len": 4096})
    result = flag(choice, "0.7.3")
    assert "--speculative-model org/small" in result.text
    assert any("max_model_len" in note for note in result.notes)


@pytest.mark.parametrize("name", ["--trust-remote-code", "a\nb"])
def test_a_launchs_drafter_that_could_break_the_command_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="draft model: got"):
        flag(launched(model=name))


# --- SGLang ---


def test_sglang_takes_the_launchs_drafter() -> None:
    text = flag(launched(model="/models/my eagle"), "0.5.23", "sglang").text
    assert "--speculative-draft-model-path '/models/my eagle'" in text


def tree(num_speculative_tokens: int, topk: int, nodes: int | None) -> str:
    choice = SpeculativeChoice("eagle", num_speculative_tokens, "m", sglang_topk=topk, sglang_num_draft_tokens=nodes)
    return flag(choice, "0.5.23", "sglang").text


def test_sglang_trees_are_written_as_trees() -> None:
    assert tree(5, 4, 8).endswith(
        "--speculative-num-steps 5 --speculative-eagle-topk 4 --speculative-num-draft-tokens 8"
    )
    assert tree(5, 1, 8).endswith("--speculative-eagle-topk 1 --speculative-num-draft-tokens 6")


def test_a_shallow_tree_has_no_more_nodes_than_it_can_grow() -> None:
    assert tree(1, 4, 8).endswith("--speculative-num-draft-tokens 5")  # the root and four branches
    assert tree(2, 4, 64).endswith("--speculative-num-draft-tokens 21")  # and four of each of those


def test_a_tree_without_its_number_of_nodes_is_refused() -> None:
    with pytest.raises(InputError, match="sglang_num_draft_tokens: missing"):
        tree(5, 4, None)


@pytest.mark.parametrize(
    ("choice", "text"),
    [
        (
            SpeculativeChoice("eagle3", 3, draft_model="org/head"),
            "--speculative-algorithm EAGLE3 --speculative-draft-model-path org/head --speculative-num-steps 3 "
            "--speculative-eagle-topk 1 --speculative-num-draft-tokens 4",
        ),
        (
            SpeculativeChoice("mtp", 1),
            "--speculative-algorithm NEXTN --speculative-num-steps 1 --speculative-eagle-topk 1 "
            "--speculative-num-draft-tokens 2",
        ),
        (SpeculativeChoice("ngram", 5), "--speculative-algorithm NGRAM --speculative-num-draft-tokens 6"),
        (
            SpeculativeChoice("dflash", 7, draft_model="m"),
            "--speculative-algorithm DFLASH --speculative-draft-model-path m --speculative-num-draft-tokens 8",
        ),
    ],
)
def test_sglang_options(choice: SpeculativeChoice, text: str) -> None:
    assert flag(choice, "0.5.23", "sglang").text == text


# --- properties ---

VERSIONS = ["0.8.2", "0.8.5", "0.9.2", "0.11.0", "0.16.0", "0.20.2", "0.24.0", "0.28.0", "0.33.0"]


CHOICES = st.builds(
    SpeculativeChoice,
    method=st.sampled_from(list(method_names())),
    num_speculative_tokens=st.integers(1, 12),
    draft_model=st.none() | st.text(min_size=1, max_size=30) | st.just("it's a path/$(x)"),
    prompt_lookup_max=st.none() | st.integers(1, 8),
    draft_tensor_parallel_size=st.sampled_from([None, 1, 8]),
    tensor_parallel_size=st.just(8),
    schedule=st.sampled_from([(), SCHEDULE]),
    data_parallel_size=st.integers(1, 2),
    model_runner=st.sampled_from([None, "v1", "v2"]),
)


@given(version=st.sampled_from(VERSIONS), choice=CHOICES)
def test_every_flag_parses_back_and_holds_only_keys_of_its_version(version: str, choice: SpeculativeChoice) -> None:
    try:
        text = flag(choice, version).text
    except InputError:
        return
    if choice.method == "none":
        assert text == ""
        return
    assert "\n" not in text
    words = shlex.split(text)
    parsed = json.loads(words[1])
    assert len(words) == 2
    assert set(parsed) <= accepted_keys(parse_version(version))
    assert "disable_by_batch_size" not in parsed
    assert parsed["num_speculative_tokens"] == choice.num_speculative_tokens
    assert parsed.get("model") in {None, choice.draft_model, PLACEHOLDER}


@given(version=st.sampled_from(["0.5.5", "0.5.23"]), choice=CHOICES)
def test_every_sglang_flag_verifies_one_token_more_than_it_drafts(version: str, choice: SpeculativeChoice) -> None:
    try:
        words = shlex.split(flag(choice, version, "sglang").text)
    except InputError:
        return
    if choice.method == "none":
        assert words == []
        return
    assert words[words.index("--speculative-num-draft-tokens") + 1] == str(choice.num_speculative_tokens + 1)


@pytest.mark.parametrize("name", ["--trust-remote-code", "a\nb", "a\x1b[0m"])
def test_a_draft_model_that_could_break_the_command_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="draft model: got"):
        flag(SpeculativeChoice("eagle3", 3, draft_model=name))


COMMON = (
    "method model num_speculative_tokens draft_tensor_parallel_size quantization max_model_len revision code_revision "
    "prompt_lookup_max prompt_lookup_min "
)
V0_ONLY = "acceptance_method posterior_threshold posterior_alpha disable_mqa_scorer "
UP_TO_0_11 = "disable_logprobs disable_log_stats enable_chunked_prefill "
SUFFIX = (
    "suffix_decoding_max_tree_depth suffix_decoding_max_cached_requests suffix_decoding_max_spec_factor "
    "suffix_decoding_min_token_prob "
)
EAGER = "enforce_eager disable_padded_drafter_batch "
SINCE_0_17 = "parallel_drafting use_local_argmax_reduction draft_load_config "
SINCE_0_21 = (
    "rejection_sample_method moe_backend synthetic_acceptance_rates synthetic_acceptance_length draft_sample_method "
    "attention_backend "
)
NEWEST = (
    "num_speculative_tokens_per_batch_size use_heterogeneous_vocab kv_cache_dtype enable_adaptive_verification "
    "dspark_draft_topk index_share_for_mtp_iteration disable_eagle_block_drop disable_lookahead_block_hashes "
    "draft_lm_head_quantization xpress_topc fly_window_size fly_entropy_threshold fly_entropy_top_k "
)


@pytest.mark.parametrize(
    ("version", "keys"),
    [
        ("0.8.5", COMMON + V0_ONLY + UP_TO_0_11 + "disable_by_batch_size"),
        ("0.9.2", COMMON + V0_ONLY + UP_TO_0_11 + "disable_by_batch_size speculative_token_tree"),
        ("0.10.0", COMMON + UP_TO_0_11 + "disable_by_batch_size speculative_token_tree"),
        ("0.11.0", COMMON + UP_TO_0_11 + EAGER + "disable_by_batch_size speculative_token_tree"),
        ("0.11.2", COMMON + EAGER + SUFFIX + "disable_by_batch_size speculative_token_tree"),
        ("0.16.0", COMMON + EAGER + SUFFIX + "parallel_drafting disable_by_batch_size speculative_token_tree"),
        ("0.17.0", COMMON + EAGER + SUFFIX + SINCE_0_17 + "speculative_token_tree"),
        ("0.23.0", COMMON + EAGER + SUFFIX + SINCE_0_17 + SINCE_0_21),
        ("0.33.0", COMMON + EAGER + SUFFIX + SINCE_0_17 + SINCE_0_21 + NEWEST),
    ],
)
def test_every_key_of_a_version(version: str, keys: str) -> None:
    assert accepted_keys(parse_version(version)) == set(keys.split())


@pytest.mark.parametrize(
    ("key", "lacking", "having"),
    [
        ("parallel_drafting", "0.15.1", "0.16.0"),
        ("num_speculative_tokens_per_batch_size", "0.23.0", "0.24.0"),
        ("disable_by_batch_size", "0.17.0", "0.16.0"),
        ("speculative_token_tree", "0.21.0", "0.20.2"),
        ("synthetic_acceptance_rate", "0.20.0", "0.19.0"),
        ("synthetic_acceptance_rates", "0.19.0", "0.20.0"),
        ("draft_sample_method", "0.20.2", "0.21.0"),
        ("enable_adaptive_verification", "0.27.0", "0.28.0"),
        ("disable_logprobs", "0.11.2", "0.11.0"),
        ("rejection_sample_method", "0.17.0", "0.18.0"),
        ("moe_backend", "0.18.0", "0.19.0"),
        ("synthetic_acceptance_length", "0.19.0", "0.20.0"),
        ("attention_backend", "0.20.2", "0.21.0"),
        ("use_heterogeneous_vocab", "0.24.0", "0.25.0"),
        ("kv_cache_dtype", "0.25.0", "0.26.0"),
        ("dspark_draft_topk", "0.27.0", "0.28.0"),
        ("index_share_for_mtp_iteration", "0.28.0", "0.29.0"),
        ("disable_eagle_block_drop", "0.29.0", "0.30.0"),
        ("xpress_topc", "0.32.0", "0.33.0"),
        ("suffix_decoding_max_tree_depth", "0.11.0", "0.11.2"),
    ],
)
def test_keys_by_version(key: str, lacking: str, having: str) -> None:
    assert key not in accepted_keys(parse_version(lacking))
    assert key in accepted_keys(parse_version(having))
