"""What the engine's version decides: the search, the scheduler's trim, requests that get no drafts, the defaults."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibration.replay.recording import Batch, Recording, recording
from calibration.replay.sources.files import Reading
from calibration.replay.suffix import SuffixSettings
from calibration.replay.task import Options, replay_files
from calibration.replay.versions import EngineRules, engine_version, variant_of
from hwmodel.errors import InputError


@pytest.mark.parametrize(
    ("method", "version", "variant"),
    [
        ("ngram", "0.8.5", "kmp"),
        ("ngram", "0.9.2", "kmp"),
        ("ngram", "0.10.0", "kmp"),
        ("ngram", "0.10.1", "lps"),
        ("ngram", "0.10.2", "lps"),
        ("ngram", "0.16.0", "lps"),
        ("ngram", "0.31.0", "lps"),
        ("ngram", "0.32.0", "mrv2"),
        ("ngram", "0.33.0", "mrv2"),
        ("ngram_gpu", "0.18.1", "gpu_v1"),
        ("ngram_gpu", "0.32.0", "mrv2"),
        ("ngram", None, "lps"),
        ("ngram_gpu", None, "gpu_v1"),
        ("suffix", "0.16.0", None),
    ],
)
def test_the_version_decides_the_search(method: str, version: str | None, variant: str | None) -> None:
    parsed, _ = engine_version("vllm", version)
    assert variant_of(method, parsed)[0] == variant


def test_what_is_assumed_about_a_version_is_noted() -> None:
    for text, words in (("0.10.1", "not established"), ("0.8.5", "VLLM_USE_V1=1")):
        version, _ = engine_version("vllm", text)
        assert any(words in note for note in variant_of("ngram", version)[1])


@pytest.mark.parametrize(("method", "version"), [("ngram_gpu", "0.16.0"), ("suffix", "0.10.2")])
def test_a_version_without_the_method_is_refused(method: str, version: str) -> None:
    parsed, _ = engine_version("vllm", version)
    with pytest.raises(InputError, match=f"vLLM {version} has no {method}; allowed: .* and later, or ngram"):
        variant_of(method, parsed)


def test_another_engine_is_refused_with_the_reason() -> None:
    with pytest.raises(InputError, match="got sglang, whose n-gram drafts are trees"):
        engine_version("sglang", None)


def room(version: str, max_model_len: int | None, max_tokens: int | None = None) -> list[int] | None:
    """What the scheduler takes at the decode positions of 3 prompt and 4 output tokens (contexts 4, 5, 6)."""
    request = Recording(np.arange(3), np.arange(4), max_tokens=max_tokens)
    parsed, _ = engine_version("vllm", version)
    found = EngineRules(parsed, max_model_len).room(Batch((request,)))
    return None if found is None else found.tolist()


def test_the_scheduler_keeps_one_token_of_the_window_free_but_in_0_8() -> None:
    # At context L, L - 1 tokens are computed: 0.16 schedules max_model_len - 1 - (L - 1) tokens, one is not a draft.
    assert room("0.16.0", 7) == [2, 1, 0]
    assert room("0.8.5", 7) == [3, 2, 1]
    assert room("0.16.0", 5) == [0, 0, 0]
    assert room("0.16.0", None) is None


def test_0_11_2_alone_drafts_nothing_past_max_tokens() -> None:
    assert room("0.11.2", None, max_tokens=4) == [2, 1, 0]
    assert room("0.11.0", None, max_tokens=4) is None
    assert room("0.11.2", 6, max_tokens=100) == [1, 0, 0]
    assert EngineRules(None, 5).room(Batch((recording([1], [2, 3]),))) is None


def run(tmp_path: Path, records: list[dict[str, Any]], **options: Any) -> dict[str, Any]:
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return replay_files([str(path)], Reading(), Options(**options))


REPEATING = {"prompt_token_ids": [1, 2, 3, 4, 1, 2], "token_ids": [3, 4, 1, 2, 3, 4, 1, 2]}


def test_penalties_turn_drafts_off_up_to_0_13(tmp_path: Path) -> None:
    penalised = {**REPEATING, "presence_penalty": 0.5}
    for version, drafts in (("0.13.0", False), ("0.14.1", True)):
        result = run(tmp_path, [penalised], engine_version=version, prompt_lookup_max=2)
        assert (result["results"][0]["drafts"] > 0) is drafts
        assert any("presence_penalty" in note for note in result["notes"]) is not drafts


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, (5, 5)),
        ({"prompt_lookup_max": 4}, (4, 4)),
        ({"prompt_lookup_min": 3}, (3, 3)),
        ({"prompt_lookup_min": 2, "prompt_lookup_max": 4}, (2, 4)),
    ],
)
def test_lookup_bounds_are_filled_in_as_vllm_does(
    tmp_path: Path, options: dict[str, int], expected: tuple[int, int]
) -> None:
    inputs = run(tmp_path, [REPEATING], **options)["inputs"]
    assert (inputs["prompt_lookup_min"], inputs["prompt_lookup_max"]) == expected


def test_the_variant_wins_over_the_version(tmp_path: Path) -> None:
    inputs = run(tmp_path, [REPEATING], engine_version="0.33.0", variant="kmp")["inputs"]
    assert (inputs["variant"], inputs["engine_version"]) == ("kmp", "0.33.0")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"method": "eagle3"}, "'eagle3' cannot be replayed; known: ngram, ngram_gpu, suffix"),
        ({"variant": "best"}, "no search 'best'; known: kmp, lps, gpu_v1, mrv2"),
        ({"prompt_lookup_min": 5, "prompt_lookup_max": 3}, "--prompt-lookup-min: got 5, allowed: up to"),
        ({"num_speculative_tokens": (65,)}, "-k: got 65, allowed: 1 to 64"),
        ({"num_speculative_tokens": (0,)}, "-k: got 0"),
        ({"method": "suffix", "variant": "lps"}, "--variant: got it for suffix"),
        ({"method": "suffix", "suffix": SuffixSettings(min_token_prob=float("nan"))}, "got nan"),
        ({"engine_version": "new"}, "engine version: got 'new'"),
    ],
)
def test_options_that_cannot_be_are_one_line(tmp_path: Path, options: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as caught:
        run(tmp_path, [REPEATING], **options)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_without_any_output_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no recorded output in 1 file"):
        run(tmp_path, [])


def test_k_zero_is_left_out_with_a_note(tmp_path: Path) -> None:
    result = run(tmp_path, [REPEATING], num_speculative_tokens=(0, 2))
    assert [row["num_speculative_tokens"] for row in result["results"]] == [2]
    assert any("k = 0" in note for note in result["notes"])


def test_suffix_reports_its_settings(tmp_path: Path) -> None:
    result = run(tmp_path, [REPEATING], method="suffix", suffix=SuffixSettings(max_tree_depth=8))
    assert result["inputs"]["suffix_max_tree_depth"] == 8
    assert result["results"][-1]["accepted_tokens"] > 0
