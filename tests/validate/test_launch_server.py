import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loopback import Answer, Misbehaviour, cut_short, serving, silent

from hwmodel.engine.versions import Version
from hwmodel.errors import InputError
from validate.launch.account import Account
from validate.launch.changes import all_changes
from validate.launch.counters import LOOKUP, MODEL, drafting_of, inferred_speculation, metrics_of
from validate.launch.inspection import Accounts, accounts_of, launch_dict, report
from validate.launch.known import Known
from validate.launch.server import account_of_server
from validate.launch.server_info import sglang_told, vllm_told
from validate.launch.server_keys import deployment_from_server

DATA = Path(__file__).parent.parent / "data"
Answers = dict[str, Answer | Misbehaviour]


def recorded(name: str) -> str:
    return (DATA / name).read_text()


def vllm_answers(metrics: str = "measurements/qwen_k5_metrics_after.txt", version: str = "") -> Answers:
    """What the recorded server answers: vLLM 0.32.0 with a small model."""
    said = json.dumps({"version": version}) if version else recorded("server/qwen_k5_version.json")
    return {
        "/version": (200, said),
        "/v1/models": (200, recorded("server/qwen_k5_models.json")),
        "/metrics": (200, recorded(metrics)),
    }


def account(answers: Answers, key: str | None = None) -> Account:
    with serving(answers) as url:
        return account_of_server(url, key)


def test_a_recorded_server_tells_version_model_and_draft_length() -> None:
    found = account(vllm_answers())
    assert (found.engine, found.version, found.settings.model) == ("vllm", "0.32.0", "models/qwc")
    assert found.settings.max_model_len == 2048
    assert found.speculation is not None
    assert found.speculation["num_speculative_tokens"] == 5
    assert found.inferred["speculative_config.num_speculative_tokens"] == "1 + the highest position that is counted"
    assert found.argv == []


def test_the_state_of_the_server_is_told() -> None:
    state = account(vllm_answers()).server
    assert state is not None
    assert state["acceptance_counters"]["num_accepted_tokens_per_pos"] == [30.0] * 5
    assert state["mean_accepted_length"] == 6.0
    assert state["kv_cache_tokens"] == 87296


def test_a_server_without_series_about_drafts_does_not_speculate() -> None:
    found = account(vllm_answers("measurements/qwen_k0_metrics_after.txt"))
    assert found.speculation is None
    assert found.inferred["speculative_config"].startswith("off:")


def test_without_metrics_speculation_is_unknown_and_said_to_be() -> None:
    answers = vllm_answers()
    del answers["/metrics"]
    found = account(answers)
    assert found.inferred["speculative_config"].startswith("unknown:")
    assert any("/metrics is not there (HTTP 404)" in note for note in found.notes)
    shown = launch_dict(found)
    assert (shown["tensor_parallel_size"], shown["tensor_parallel_size_reason"]) == (None, "the server does not tell")


@pytest.mark.parametrize(
    ("metrics", "version", "family"),
    [
        ("measurements/metrics_v0.20.2_ngram_k5_sparse.txt", (0, 20, 2), LOOKUP),
        ("measurements/metrics_v0.20.2_ngram_k5_sparse.txt", (0, 24, 0), f"{LOOKUP}, or a schedule by batch size"),
    ],
)
def test_steps_without_drafts_tell_the_family_of_the_method(metrics: str, version: Version, family: str) -> None:
    config, reasons = inferred_speculation(drafting_of(metrics_of(recorded(metrics), "u")), version)
    assert config is not None
    assert config["method_family"] == family
    assert "1242 of 3675 decode steps" in reasons["speculative_config.method_family"]


def counters(drafts: int, tokens: int, steps: int, k: int = 3) -> str:
    lines = [
        f"vllm:spec_decode_num_drafts_total {drafts}",
        f"vllm:spec_decode_num_draft_tokens_total {tokens}",
        "vllm:spec_decode_num_accepted_tokens_total 0",
        *(f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{position="{i}"}} 0' for i in range(k)),
        f"vllm:inter_token_latency_seconds_count {steps}",
    ]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("drafts", "tokens", "steps", "version", "family"),
    [
        (100, 300, 100, (0, 16, 0), MODEL),
        (100, 300, 100, (0, 32, 0), f"{MODEL}, or ngram (which always drafts k tokens from 0.32 on)"),
        (100, 250, 100, (0, 16, 0), LOOKUP),
        (50, 150, 100, (0, 16, 0), LOOKUP),
        (0, 0, 100, (0, 16, 0), "not known"),
    ],
)
def test_the_family_follows_from_drafts_tokens_and_steps(
    drafts: int, tokens: int, steps: int, version: Version, family: str
) -> None:
    config, _ = inferred_speculation(drafting_of(metrics_of(counters(drafts, tokens, steps), "u")), version)
    assert config is not None
    assert (config["method_family"], config["num_speculative_tokens"]) == (family, 3)


def test_engines_of_data_parallelism_are_counted_and_summed() -> None:
    text = "\n".join(
        f'vllm:num_requests_running{{engine="{i}"}} 1\nvllm:spec_decode_num_drafts_total{{engine="{i}"}} 10'
        for i in range(4)
    )
    found = account(vllm_answers() | {"/metrics": (200, text)})
    assert found.settings.data_parallel_size == 4
    assert "4 engines" in found.inferred["data_parallel_size"]
    assert drafting_of(metrics_of(text, "u")).num_drafts == 40


def test_the_first_engines_gauges_say_that_it_speculates_but_not_how_far() -> None:
    text = "vllm:spec_decode_draft_acceptance_rate 0.5\nvllm:num_requests_running 0\n"
    found = account(vllm_answers(version="0.8.5") | {"/metrics": (200, text)})
    assert found.speculation is not None
    assert found.speculation["num_speculative_tokens"] is None
    assert found.inferred["speculative_config.num_speculative_tokens"].startswith("unknown")


VLLM_CONFIG: dict[str, Any] = {
    "model_config": {"model": "org/m", "max_model_len": 4096, "enforce_eager": False},
    "parallel_config": {"tensor_parallel_size": 8, "pipeline_parallel_size": 1, "enable_expert_parallel": True},
    "scheduler_config": {"max_num_seqs": 64, "max_num_batched_tokens": 8192, "async_scheduling": False},
    "cache_config": {"gpu_memory_utilization": 0.9, "cache_dtype": "fp8"},
    "compilation_config": {"cudagraph_mode": [2, 1], "cudagraph_capture_sizes": [1, 2, 4]},
    "attention_config": {"backend": "vllm.v1.attention.backends.flash_attn.FlashAttentionBackend"},
    "speculative_config": {
        "method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4, "prompt_lookup_min": 4,
        "target_model_config": {"model": "org/m"}, "quantization": None,
    },
}  # fmt: skip


def test_a_server_in_development_mode_tells_its_configuration() -> None:
    info = {"vllm_config": VLLM_CONFIG, "vllm_env": {"VLLM_API_KEY": "s3cr3t-value"}, "system_env": {}}
    answers = vllm_answers() | {"/server_info?config_format=json": (200, json.dumps(info))}
    found = account(answers)
    assert found.speculation == {
        "method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4, "prompt_lookup_min": 4,
    }  # fmt: skip
    assert (found.settings.tensor_parallel_size, found.settings.expert_parallel) == (8, True)
    assert (found.settings.cudagraph_mode, found.settings.attention_backend) == ("FULL_AND_PIECEWISE", None)
    assert "speculative_config.method_family" not in found.inferred
    assert "s3cr3t-value" not in json.dumps(report(Accounts([found])))


def test_the_text_form_of_the_configuration_is_read() -> None:
    text = (
        "model='org/m', speculative_config=SpeculativeConfig(method='mtp', model='org/m', num_spec_tokens=3), "
        "tokenizer='org/m', max_seq_len=4096, tensor_parallel_size=8, pipeline_parallel_size=1, enforce_eager=True"
    )
    told = vllm_told({"vllm_config": text})
    assert told.speculation == {"method": "mtp", "model": "org/m", "num_speculative_tokens": 3}
    assert (told.settings.tensor_parallel_size, told.settings.max_model_len, told.settings.enforce_eager) == (
        8,
        4096,
        True,
    )
    off = vllm_told({"vllm_config": "model='m', speculative_config=None, tensor_parallel_size=2"})
    assert (off.speculation, off.has_speculation) == (None, True)


SGLANG_INFO = {
    "model_path": "org/m", "tp_size": 8, "dp_size": 1, "speculative_algorithm": "EAGLE", "speculative_num_steps": 3,
    "speculative_eagle_topk": 1, "speculative_num_draft_tokens": 4, "api_key": "topsecret99", "version": "0.5.5",
    "max_running_requests": 48, "disable_cuda_graph": False, "internal_states": [{"avg_spec_accept_length": 2.8}],
}  # fmt: skip
SGLANG_ANSWERS: Answers = {
    "/v1/models": (200, '{"data": [{"id": "org/m", "owned_by": "sglang", "root": "org/m", "max_model_len": 4096}]}'),
    "/metrics": (200, recorded("measurements/sglang_metrics.txt")),
}


@pytest.mark.parametrize("path", ["/get_server_info", "/server_info?config_format=json"])
def test_sglang_tells_its_arguments(path: str) -> None:
    found = account(SGLANG_ANSWERS | {path: (200, json.dumps(SGLANG_INFO))})
    assert (found.engine, found.version, found.settings.tensor_parallel_size) == ("sglang", "0.5.5", 8)
    assert found.speculation is not None
    assert found.speculation.items() >= {"method": "eagle", "num_speculative_tokens": 3, "num_draft_tokens": 4}.items()
    assert "topsecret99" not in json.dumps(report(Accounts([found])))


def test_sglangs_gauges_tell_its_steps_where_it_keeps_its_arguments() -> None:
    found = account(SGLANG_ANSWERS)
    assert found.engine == "sglang"
    assert found.speculation is not None
    assert found.speculation["num_speculative_tokens"] == 3


def test_a_server_that_asks_for_a_key_gets_it_or_says_so() -> None:
    with serving(vllm_answers(), "k3y") as url:
        assert account_of_server(url, "k3y").version == "0.32.0"
        for key in (None, "wrong"):
            with pytest.raises(InputError, match="DRAFTCAST_API_KEY"):
                account_of_server(url, key)


@pytest.mark.parametrize(
    "answers",
    [
        {},
        {"/v1/models": (200, "<html>"), "/metrics": (200, "<html>")},
        {"/v1/models": (200, '{"data": [{"id": "gpt", "owned_by": "somebody"}]}')},
    ],
)
def test_other_servers_are_told_apart(answers: Answers) -> None:
    with pytest.raises(InputError, match="neither vLLM nor SGLang"):
        account(answers)


@pytest.mark.parametrize(
    ("status", "words"),
    [(500, "HTTP 500"), (503, "not ready to serve"), (429, "too many requests"), (302, "not followed")],
)
def test_a_server_that_answers_only_with_a_refusal_is_told_by_it(status: int, words: str) -> None:
    with pytest.raises(InputError, match=words):
        account({path: (status, "") for path in ("/v1/models", "/version", "/metrics")})


def test_a_server_that_is_gone_is_one_line() -> None:
    with serving({}) as url:
        pass
    with pytest.raises(InputError, match=r"refuses the connection: .*; allowed: the base URL"):
        account_of_server(url)


@pytest.mark.parametrize("misbehaviour", [cut_short, silent])
@pytest.mark.parametrize("path", ["/metrics", "/version"])
def test_one_answer_that_fails_leaves_the_others(
    misbehaviour: Misbehaviour, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("validate.client.connection.GET_TIMEOUT_S", 1.0)  # "silent" is so for 2 s
    found = account(vllm_answers() | {path: misbehaviour})
    assert found.settings.max_model_len == 2048
    assert (found.version is None) is (path == "/version")


@pytest.mark.parametrize("version", ['{"version": 7}', '{"version": "abc"}', "[]", '"0.20.2"'])
def test_a_version_that_is_none_is_unknown(version: str) -> None:
    assert account(vllm_answers() | {"/version": (200, version)}).version is None


def outcome(url: str) -> str:
    """What the reader says about a server, as one JSON text or one line."""
    try:
        return json.dumps(report(Accounts([account_of_server(url)])))
    except InputError as error:
        return str(error)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)
PARTS = st.dictionaries(
    st.sampled_from(sorted(VLLM_CONFIG)),
    st.dictionaries(st.sampled_from(sorted({key for part in VLLM_CONFIG.values() for key in part})), JSON) | JSON,
)


@given(PARTS)
def test_no_configuration_of_a_server_breaks_the_reader(config: dict[str, Any]) -> None:
    told = vllm_told({"vllm_config": config})
    json.dumps(told.speculation)


@given(st.dictionaries(st.sampled_from(sorted(SGLANG_INFO)), JSON))
def test_no_arguments_of_sglang_break_the_reader(content: dict[str, Any]) -> None:
    json.dumps(sglang_told(content).speculation)


@settings(max_examples=25, deadline=None)
@given(st.binary(max_size=200), st.binary(max_size=200), st.binary(max_size=200))
def test_no_bytes_from_a_server_break_the_account(models: bytes, version: bytes, metrics: bytes) -> None:
    answers: Answers = {"/v1/models": (200, models), "/version": (200, version), "/metrics": (200, metrics)}
    with serving(answers | {"/get_server_info": (200, models)}) as url:
        assert "\n" not in outcome(url)


def test_a_server_is_a_deployment_with_its_own_acceptance() -> None:
    with serving(vllm_answers("measurements/metrics_v0.20.2_ngram_k5_sparse.txt", "0.20.2")) as url:
        keys = deployment_from_server(url)
    assert keys.tables["engine"].items() >= {"name": "vllm", "version": "0.20.2", "max_model_len": 2048}.items()
    speculation = keys.tables["speculation"]
    assert "method" not in speculation
    assert speculation["num_speculative_tokens"] == 5
    assert speculation["acceptance"]["counters"]["num_drafts"] == 1242.0  # type: ignore[index]
    assert any(note.startswith("inferred: speculative_config.method_family") for note in keys.notes)
    assert any("TP 1 is assumed" in note for note in keys.notes)


def test_what_speculation_did_to_the_server_is_not_held_against_its_baseline() -> None:
    info = {"vllm_config": VLLM_CONFIG}
    with serving(vllm_answers() | {"/server_info?config_format=json": (200, json.dumps(info))}) as url:
        engine = deployment_from_server(url).tables["engine"]
    assert engine["tensor_parallel_size"] == 8
    assert not {"async_scheduling", "cudagraph_mode", "cudagraph_capture_sizes"} & set(engine)


def test_counters_that_contradict_each_other_are_left_out_with_a_note() -> None:
    text = recorded("measurements/metrics_v0.20.2_ngram_k5_sparse.txt").replace(
        'position="4"} 298', 'position="4"} 900'
    )
    with serving(vllm_answers() | {"/metrics": (200, text)}) as url:
        keys = deployment_from_server(url)
    assert "acceptance" not in keys.tables["speculation"]
    assert any("counters are not used" in note for note in keys.notes)


def test_graphs_and_scheduling_follow_only_from_settings_that_the_server_tells() -> None:
    assert account(vllm_answers()).facts is None
    info = {"/server_info?config_format=json": (200, json.dumps({"vllm_config": VLLM_CONFIG}))}
    told = account(vllm_answers() | info)
    assert told.facts is not None
    assert told.facts.async_scheduling is False


def test_a_running_server_is_compared_with_a_launch_only_in_what_it_tells() -> None:
    found = account(vllm_answers())
    same = accounts_of("vllm serve models/qwc --max-model-len 2048 --gpu-memory-utilization 0.92 --port 1 -tp 2 "
                       """-sc '{"method": "ngram", "num_speculative_tokens": 5}'""", Known("0.32.0"))  # fmt: skip
    assert all_changes([found], same.accounts) == []
    graphless = accounts_of("vllm serve models/qwc --max-model-len 2048 --gpu-memory-utilization 0.92 --enforce-eager "
                            """-sc '{"method": "ngram", "num_speculative_tokens": 5}'""", Known("0.32.0"))  # fmt: skip
    assert all_changes([found], graphless.accounts) == []
    other = accounts_of("vllm serve models/qwc --max-model-len 2048 --gpu-memory-utilization 0.92", Known("0.32.0"))
    assert [change.key for change in all_changes([found], other.accounts)] == ["speculative_config"]
