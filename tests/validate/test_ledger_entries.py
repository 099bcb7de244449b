import json
from pathlib import Path

import pytest

from simulator.choose import choose
from simulator.deployment import load_deployment
from simulator.predict import predict
from validate.ledger.entries import clean, prediction_entry, shown_source

REFERENCE = Path(__file__).parent.parent.parent / "examples" / "kimi-k2.5-8x-rtx-pro-6000.toml"


def test_an_entry_holds_the_question_the_answer_and_every_interval() -> None:
    deployment = load_deployment(REFERENCE)
    answer = predict(deployment, num_draws=200, seed=3).to_dict()
    entry = prediction_entry("predict", "1.2.3", str(REFERENCE), deployment, answer)
    body = entry.body
    assert (entry.kind, entry.prediction_id) == ("prediction", answer["prediction_id"])
    assert (body["draftcast_version"], body["seed"], body["num_draws"]) == ("1.2.3", 3, 200)
    assert body["deployment"]["measured"][0]["tpot_ms"] == 13.6
    assert "objective" not in body["deployment"], "stated tables only"
    assert body["result"] == json.loads(json.dumps(answer))
    assert body["cells"][0]["speedup"] == {name: answer["speedup"][name] for name in ("p05", "p50", "p95")}
    assert body["cells"][0]["speculative"]["parts_s"] == answer["speculative"]["parts_s"]
    assert entry.summary["speedup"] == body["cells"][0]["speedup"]
    assert (entry.summary["model"], entry.summary["num_gpus"]) == ("kimi-k2.5-int4", 8)


def test_a_choices_entry_has_every_cell_and_stands_for_what_it_recommends() -> None:
    deployment = load_deployment(REFERENCE)
    answer = choose(deployment, num_speculative_tokens=(0, 2, 5), concurrency=(1, 64), num_draws=200).to_dict()
    entry = prediction_entry("choose", "1", "x", deployment, answer)
    found = [(cell["num_speculative_tokens"], cell["concurrency"]) for cell in entry.body["cells"]]
    assert found == [(0, 1), (0, 64), (2, 1), (2, 64), (5, 1), (5, 64)]
    for cell, grid in zip(entry.body["cells"], answer["grid"], strict=True):
        assert cell["speedup"] == {name: grid["speedup"][name] for name in ("p05", "p50", "p95")}
        assert cell["speculative"]["tpot_s"] == grid["tpot_s"]
    assert entry.summary["num_speculative_tokens"] == answer["recommendation"]["best_if_enabled"]
    assert entry.summary["recommended"] == answer["recommendation"]["num_speculative_tokens"]


def test_no_credential_reaches_an_entry() -> None:
    secret = "hf_abcdefghijklmnop"
    config = {"method": "ngram", "api_key": "plainword", "model": f"x?token={secret}"}
    deployment = load_deployment(REFERENCE, ["speculation.launch_config=" + toml(config)])
    answer = predict(deployment, num_draws=100).to_dict()
    written = json.dumps(prediction_entry("predict", "1", "vllm serve m --api-key plainword", deployment, answer).body)
    assert secret not in written
    assert "plainword" not in written


def toml(config: dict[str, str]) -> str:
    return "{" + ", ".join(f"{key} = {json.dumps(value)}" for key, value in config.items()) + "}"


@pytest.mark.parametrize(
    ("value", "cleaned"),
    [
        ({"api_key": "a", "num_keys": "b", "max_tokens": 5}, {"api_key": "***", "num_keys": "***", "max_tokens": 5}),
        ([{"hf_token": "x"}], [{"hf_token": "***"}]),
        ("curl -H 'Authorization: Bearer abc'", "curl -H 'Authorization: Bearer ***'"),
        ({"speedup": {"p05": 1.0}, "k": None}, {"speedup": {"p05": 1.0}, "k": None}),
    ],
)
def test_credentials_are_hidden_by_shape_and_by_key(value: object, cleaned: object) -> None:
    assert clean(value) == cleaned


def test_a_launch_text_is_not_quoted_as_the_source() -> None:
    assert shown_source(str(REFERENCE)) == str(REFERENCE)
    assert shown_source("http://host:8000") == "http://host:8000"
    assert shown_source("vllm serve m --api-key x") == "a launch text"
    assert shown_source("a\nb" * 10_000) == "a launch text"
