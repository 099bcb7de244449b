import re
import tomllib
from typing import Any

import pytest

from simulator.deployment import known_keys, load_deployment
from simulator.deployment.commented import commented

WHOLE: dict[str, Any] = {
    "model": {"config": "qwen3-8b-bf16", "weights_gb": 16.5},
    "hardware": {"gpu": "h100-sxm", "num_gpus": 2, "interconnect": "nvswitch"},
    "engine": {"name": "vllm", "version": "0.16.0", "tensor_parallel_size": 2, "enforce_eager": True},
    "speculation": {
        "method": "eagle3",
        "num_speculative_tokens": 3,
        "schedule": [[1, 8, 3], [9, 64, 1]],
        "launch_config": {"method": "eagle3", "model": 'a "b"\\c'},
        "acceptance": {"mean_length": 2.6, "measured_at_k": 3},
    },
    "workload": {"concurrency": [1, 8], "weights": [1.0, 2.0], "temperature": 0.0},
    "objective": {"min_probability_faster": 0.9},
    "restart": {"outage_min": 5.0},
    "parameters": {"token_overhead_us": {"median": 3.0, "log_sd": 0.2}},
    "costs": {"gpu_hour_price": 2.5},
    "measured": [{"concurrency": 1, "tpot_ms": 6.0}, {"concurrency": 8, "tpot_ms": 8.0}],
}
LEAST: dict[str, Any] = {"model": {"config": "qwen3-8b-bf16"}, "hardware": {"gpu": "h100-sxm"}}


def uncommented(text: str) -> str:
    """The text with every offered key taken: its leading # away."""
    return re.sub(r"^#(?=[a-z\[])", "", text, flags=re.MULTILINE)


@pytest.mark.parametrize("every_key", [False, True])
@pytest.mark.parametrize("tables", [WHOLE, LEAST], ids=["whole", "least"])
def test_the_text_states_what_the_deployment_states(tables: dict[str, Any], every_key: bool) -> None:
    deployment = load_deployment(tables)
    read = tomllib.loads(commented(deployment, ["A head."], every_key=every_key))
    assert load_deployment(read).to_dict() == deployment.to_dict()
    stated = deployment.to_dict(stated_only=True)
    assert {name: read[name] for name in stated if name != "workload"} == {
        name: stated[name] for name in stated if name != "workload"
    }


def test_the_load_that_is_assumed_stands_in_the_file() -> None:
    read = tomllib.loads(commented(load_deployment(LEAST)))
    assert read["workload"] == {
        "concurrency": [1, 4, 16, 64],
        "input_tokens": 1000,
        "output_tokens": 1000,
        "kind": "mixed",
    }


def test_every_key_that_is_offered_is_accepted_with_its_example() -> None:
    text = uncommented(commented(load_deployment({**LEAST, "speculation": {"method": "eagle3"}})))
    text = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("topology"))
    offered = load_deployment(tomllib.loads(text))
    assert offered.hardware.interconnect == "nvswitch"  # what the card has, not another machine's
    assert offered.hardware.num_gpus == 1
    assert offered.measured[0].tpot_ms == 13.6


def test_with_every_key_each_one_is_named() -> None:
    text = commented(load_deployment(LEAST), every_key=True)
    for info in known_keys():
        table, _, name = info.key.partition(".")
        if "." not in name and table != "parameters":
            assert re.search(rf"^(# ?|){name}\b", text, re.MULTILINE), info.key


def test_no_line_is_wider_than_100_columns() -> None:
    text = commented(load_deployment(LEAST), ["word " * 60], every_key=True)
    assert max(map(len, text.splitlines())) <= 100
