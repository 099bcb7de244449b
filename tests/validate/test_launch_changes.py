import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validate.launch.changes import Change, all_changes
from validate.launch.comparison import Comparison, compare
from validate.launch.inspection import accounts_of
from validate.launch.known import Known

BASE = "vllm serve org/m --tensor-parallel-size 8 --max-num-seqs 64"
NGRAM = {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4}


def compared(old: str, new: str, version: str | None = "0.16.0") -> Comparison:
    return compare(lambda known: accounts_of(old, known), lambda known: accounts_of(new, known), Known(version))


def changes(old: str, new: str, version: str | None = "0.16.0") -> dict[str, Change]:
    found = compared(old, new, version).changes
    assert found is not None
    return {change.key: change for change in found}


def speculating(config: object, base: str = BASE) -> str:
    return f"{base} --speculative-config '{json.dumps(config)}'"


@pytest.mark.parametrize(
    "other",
    [
        "vllm serve --max_num_seqs=64 -tp 8 org/m",
        "python3 -m vllm.entrypoints.openai.api_server --model org/m -tp=8 --max-num-seqs 64",
        f"{BASE} --pipeline-parallel-size 1 --no-enforce-eager --kv-cache-dtype auto",
        f"{BASE} --gpu-memory-utilization 0.9",
        "services:\n  a:\n    image: vllm/vllm-openai:v0.16.0\n"
        "    command: [--model, org/m, -tp, '8', --max-num-seqs, '64']\n",
        f"[Service]\nExecStart=/opt/{BASE.replace('vllm serve', 'bin/vllm serve')}\n",
    ],
)
def test_spelling_order_and_wrapping_are_no_changes(other: str) -> None:
    assert changes(BASE, other) == {}
    assert "changes nothing" in compared(BASE, other).verdict


@pytest.mark.parametrize(("version", "default"), [("0.20.2", 0.9), ("0.21.0", 0.92), (None, 0.92)])
def test_the_share_of_memory_left_out_is_the_default_of_the_version(version: str | None, default: float) -> None:
    assert changes(BASE, f"{BASE} --gpu-memory-utilization {default}", version) == {}
    other = changes(BASE, f"{BASE} --gpu-memory-utilization 0.8", version)["gpu_memory_utilization"]
    assert (other.old, other.new) == (default, 0.8)


@pytest.mark.parametrize(
    ("old", "new", "is_change"),
    [
        ("0.32.0", "v0.32.0", False), ("0.32.0+cpu", "0.32.0", False), ("0.32.0", "v0.32.0+cu129", False),
        ("0.32.0+cpu", "0.32.0+cu129", True), ("0.32.0", "0.32.1", True), ("0.32.0rc1", "0.32.0", True),
    ],
)  # fmt: skip
def test_one_release_has_several_texts(old: str, new: str, is_change: bool) -> None:
    before, after = (accounts_of(BASE, Known(version)).accounts for version in (old, new))
    assert ("version" in {change.key for change in all_changes(before, after)}) is is_change


@pytest.mark.parametrize(
    "other",
    [
        f"{BASE} --speculative-config.method ngram --speculative-config.num_speculative_tokens 5 "
        "--speculative-config.prompt_lookup_max=4",
        speculating({"prompt_lookup_max": 4, "num_speculative_tokens": 5, "method": "ngram"}),
        speculating({**NGRAM, "prompt_lookup_min": 4}),  # what the engine fills in anyway
    ],
)
def test_the_same_speculation_written_otherwise_is_no_change(other: str) -> None:
    assert changes(speculating(NGRAM), other) == {}


def test_switching_speculation_on_is_named_with_what_follows() -> None:
    found = changes(BASE, speculating(NGRAM))
    assert found["speculative_config"].new["prompt_lookup_min"] == 4
    assert (found["async_scheduling"].old, found["async_scheduling"].new) == (True, False)
    assert found["async_scheduling"].is_consequence
    verdict = compared(BASE, speculating(NGRAM)).verdict
    assert "switches speculation on (ngram, 5 draft tokens)" in verdict
    assert "Nothing else is changed by hand; async_scheduling follows" in verdict


def test_switching_it_off_is_named() -> None:
    assert "switches speculation off" in compared(speculating(NGRAM), BASE).verdict
    assert changes(speculating(NGRAM), BASE)["speculative_config"].new is None


def test_a_changed_key_of_the_speculation_is_named_alone() -> None:
    found = changes(speculating(NGRAM), speculating({**NGRAM, "num_speculative_tokens": 3}))
    assert list(found) == ["speculative_config.num_speculative_tokens"]
    change = found["speculative_config.num_speculative_tokens"]
    assert (change.old, change.new, change.is_consequence) == (5, 3, False)


def test_a_default_that_follows_a_changed_key_is_a_consequence() -> None:
    found = changes(speculating(NGRAM), speculating({**NGRAM, "prompt_lookup_max": 8}))
    assert not found["speculative_config.prompt_lookup_max"].is_consequence
    assert found["speculative_config.prompt_lookup_min"].is_consequence


def test_everything_that_was_changed_by_hand_beside_it_is_listed() -> None:
    new = speculating(NGRAM, "vllm serve org/m -tp 4 --max-num-seqs 32 --enable-expert-parallel --quantization fp8")
    found = changes(BASE, new)
    assert {"tensor_parallel_size", "max_num_seqs", "expert_parallel", "--quantization"} <= set(found)
    assert "It also changes tensor_parallel_size, expert_parallel, max_num_seqs, --quantization" in (
        compared(BASE, new).verdict
    )


def test_json_options_are_compared_by_what_they_say() -> None:
    old = f"""{BASE} --kv-transfer-config '{{"a": 1, "b": 2}}'"""
    assert changes(old, f"""{BASE} --kv-transfer-config '{{"b":2,"a":1}}'""") == {}
    assert list(changes(old, f"""{BASE} --kv-transfer-config '{{"a": 1}}'""")) == ["--kv-transfer-config"]


def test_variables_that_matter_are_compared_and_others_are_not() -> None:
    found = changes(f"VLLM_USE_V2_MODEL_RUNNER=0 A=1 {BASE}", f"VLLM_USE_V2_MODEL_RUNNER=1 A=2 {BASE}")
    assert {key for key, change in found.items() if change.group == "environment"} == {"VLLM_USE_V2_MODEL_RUNNER"}


def test_a_new_launch_that_stops_at_start_is_said_first() -> None:
    result = compared(BASE, f"{BASE} --speculative-config {{method:ngram}}")
    assert result.verdict.startswith("The restart does not do what is written: [json-quotes-lost]")


def test_a_fault_of_the_old_launch_is_remarked() -> None:
    assert "old launch did not do what was written either: [json-quotes-lost]" in (
        compared(f"{BASE} --speculative-config {{method:ngram}}", speculating(NGRAM)).verdict
    )


def test_the_version_of_one_side_holds_for_both_where_the_other_tells_none() -> None:
    result = compared(BASE, f"pip install vllm==0.16.0\n{speculating(NGRAM)}", None)
    assert {account.version for account in (*result.old.accounts, *result.new.accounts)} == {"0.16.0"}
    assert "0.16.0 is taken for both" in result.note
    versions = changes(f"pip install vllm==0.14.1\n{BASE}", f"pip install vllm==0.16.0\n{BASE}", None)
    assert (versions["version"].old, versions["version"].new) == ("0.14.1", "0.16.0")


def test_a_change_of_engine_is_a_change() -> None:
    found = changes("vllm serve org/m", "python -m sglang.launch_server --model-path org/m", None)
    assert (found["engine"].old, found["engine"].new) == ("vllm", "sglang")


COMPOSE = "services:\n{}"
SERVICE = "  {}:\n    image: vllm/vllm-openai:v0.16.0\n    command: --model org/m --max-num-seqs {}\n"


def test_several_launches_are_matched_by_name() -> None:
    old = accounts_of(COMPOSE.format(SERVICE.format("a", 1) + SERVICE.format("b", 2)))
    new = accounts_of(COMPOSE.format(SERVICE.format("b", 3) + SERVICE.format("a", 1)))
    assert [(change.launch, change.key) for change in all_changes(old.accounts, new.accounts)] == [
        ("b", "max_num_seqs")
    ]


def test_launches_that_come_and_go_are_changes() -> None:
    old = accounts_of(COMPOSE.format(SERVICE.format("a", 1) + SERVICE.format("b", 2)))
    new = accounts_of(COMPOSE.format(SERVICE.format("a", 1) + SERVICE.format("c", 2) + SERVICE.format("d", 2)))
    found = all_changes(old.accounts, new.accounts)
    assert [(change.launch, change.old is None) for change in found] == [("b", False), ("c", True), ("d", True)]


def test_a_source_without_launch_cannot_be_compared_and_says_why() -> None:
    result = compared(BASE, "vllm serve m --x '").to_dict()
    assert result["changes"] is None
    assert "never closed" in result["changes_reason"]


OPTIONS = st.dictionaries(
    st.sampled_from(
        ["--max-num-seqs", "--max-model-len", "--tensor-parallel-size", "--quantization", "--seed", "--port"]
    ),
    st.integers(1, 4096),
    max_size=5,
)


def written(options: dict[str, int], order: int) -> str:
    items: list[tuple[str, int]] = sorted(options.items(), key=lambda item: hash((item, order)))
    return " ".join(
        ["vllm serve org/m", *(f"{name}={value}" if order % 2 else f"{name} {value}" for name, value in items)]
    )


@given(OPTIONS, st.integers(0, 9), st.integers(0, 9))
def test_a_launch_never_differs_from_itself(options: dict[str, int], one: int, two: int) -> None:
    assert changes(written(options, one), written(options, two)) == {}


@given(OPTIONS, OPTIONS)
def test_the_way_back_holds_the_same_changes_turned_round(old: dict[str, int], new: dict[str, int]) -> None:
    there, back = changes(written(old, 0), written(new, 0)), changes(written(new, 0), written(old, 0))

    def pairs(found: dict[str, Change]) -> dict[str, tuple[Any, Any]]:
        return {key: (change.old, change.new) for key, change in found.items()}

    assert pairs(there) == {key: (after, before) for key, (before, after) in pairs(back).items()}
