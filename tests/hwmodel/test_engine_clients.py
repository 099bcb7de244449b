import pytest

from hwmodel.engine.clients import client_effects
from hwmodel.engine.methods import method_names
from hwmodel.engine.versions import parse_version
from hwmodel.errors import UnknownNameError


def effects(version: str, method: str = "ngram", runner: str = "v1", engine: str = "vllm") -> str:
    return "\n".join(client_effects(engine, parse_version(version), method, runner))


def test_the_baseline_changes_nothing() -> None:
    assert effects("0.33.0", "none") == ""


@pytest.mark.parametrize(("version", "text"), [("0.13.0", "min_p and logit_bias are ignored"), ("0.14.0", "HTTP 400")])
def test_min_p_and_logit_bias(version: str, text: str) -> None:
    sentence = next(line for line in effects(version).splitlines() if "logit_bias" in line)
    assert text in sentence


@pytest.mark.parametrize(
    ("version", "text"), [("0.13.0", "min_tokens is ignored"), ("0.14.1", "min_tokens above 1 are refused")]
)
def test_min_tokens(version: str, text: str) -> None:
    assert text in effects(version)


def test_min_tokens_is_served_since_0_17() -> None:
    assert "min_tokens above 1 are refused" in effects("0.16.0")
    assert "min_tokens" not in effects("0.17.0")


def test_undrafted_requests_up_to_0_13_for_matching_methods() -> None:
    assert "silently get no drafts" in effects("0.13.0", "suffix")
    assert "silently get no drafts" not in effects("0.13.0", "eagle3")
    assert "silently get no drafts" not in effects("0.14.0", "ngram")


def test_prefix_cache_loses_a_block_with_eagle_until_0_33() -> None:
    assert "prefix-cache" in effects("0.32.0", "mtp")
    assert "prefix-cache" not in effects("0.33.0", "mtp")
    assert "prefix-cache" not in effects("0.32.0", "ngram")


def test_async_scheduling_goes_off_for_matching_methods_on_runner_v1() -> None:
    assert "async scheduling goes off" in effects("0.14.0")
    assert "async scheduling goes off" not in effects("0.13.0")
    assert "async scheduling goes off" not in effects("0.32.0", runner="v2")
    assert "async scheduling goes off" not in effects("0.16.0", "eagle3")


def test_response_metrics_since_0_29() -> None:
    assert "per-request-spec-decode-metrics" in effects("0.29.0")
    assert "per-request-spec-decode-metrics" not in effects("0.28.0")


def test_v0_engine_drops_logprobs() -> None:
    assert "logprobs are not computed" in effects("0.8.5", runner="v0")


@pytest.mark.parametrize("method", [name for name in method_names() if name != "none"])
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_every_effect_is_one_plain_sentence(method: str, engine: str) -> None:
    lines = client_effects(engine, (0, 16, 0), method, "v1")
    assert any("streamed chunk" in line for line in lines)
    assert len(set(lines)) == len(lines)
    assert all(line and "\n" not in line for line in lines)


def test_unknown_method_is_refused() -> None:
    with pytest.raises(UnknownNameError):
        client_effects("vllm", (0, 16, 0), "magic", "v1")
