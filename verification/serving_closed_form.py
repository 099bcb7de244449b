"""The simulated serving run against the closed form that `predict` and `choose` use.

Closed loop, fixed lengths, at least 20 requests a user. Right: throughput within 1 % where prompts take no time, within
3 % with prompts. The last lines show where the closed form is known to be off, and by how much; they judge nothing.
"""

import sys
from collections.abc import Iterator
from typing import Any

from hwmodel.percent import percent
from simulator.deployment import load_deployment
from simulator.predict import predict
from simulator.serving.run import simulate
from verification.checks import Check, report, strictest

DECODE, PROMPTS = 0.01, 0.03
REQUESTS_PER_USER, FEWEST = 30, 600
FIXED = {"input_tokens": 1, "output_tokens": 500}
LONG = {"input_tokens": 1000, "output_tokens": 1000}
ALIKE = 1e6  # requests that do not differ: the sampling error of a short run is then small

TABLES: dict[str, dict[str, Any]] = {
    "Llama-3.2-1B, H100, EAGLE-3": {
        "model": {"config": "llama-3.2-1b-bf16"},
        "hardware": {"gpu": "h100-sxm"},
        "engine": {"version": "0.16.0"},
        "speculation": {"method": "eagle3", "acceptance": {"conditional": [0.7], "heterogeneity": ALIKE}},
    },
    "Qwen3-30B-A3B, 4x RTX PRO 6000, EAGLE-3": {
        "model": {"config": "qwen3-30b-a3b-bf16"},
        "hardware": {"gpu": "rtx-pro-6000-blackwell-server", "interconnect": "pcie-switch"},
        "engine": {"version": "0.16.0", "tensor_parallel_size": 4},
        "speculation": {"method": "eagle3", "acceptance": {"conditional": [0.6], "heterogeneity": ALIKE}},
    },
    "Kimi-K2.6, 8x RTX PRO 6000 on switches, EAGLE-3": {
        "model": {"config": "kimi-k2.6-int4"},
        "hardware": {"gpu": "rtx-pro-6000-blackwell-server", "interconnect": "pcie-switch"},
        "engine": {"version": "0.31.0", "tensor_parallel_size": 8, "attention_backend": "TRITON_MLA",
                   "gpu_memory_utilization": 0.95},
        "speculation": {"method": "eagle3", "acceptance": {"rate": 0.37, "measured_at_k": 3, "heterogeneity": ALIKE}},
    },
    "Kimi-K2.5, 8x RTX PRO 6000, two sockets, n-gram": {
        "model": {"config": "kimi-k2.5-int4"},
        "hardware": {"gpu": "rtx-pro-6000-blackwell-server", "interconnect": "pcie-dual-socket"},
        "engine": {"version": "0.16.0", "tensor_parallel_size": 8, "gpu_memory_utilization": 0.95},
        "speculation": {
            "method": "ngram",
            "acceptance": {"per_position": [0.57, 0.39, 0.3], "draft_probability": 0.15, "heterogeneity": ALIKE},
        },
    },
}  # fmt: skip
KNOWN: dict[str, dict[str, Any]] = {
    "n-gram at concurrency 1 with full graphs: a drafted step replays one": {
        **TABLES["Llama-3.2-1B, H100, EAGLE-3"],
        "speculation": {
            "method": "ngram",
            "acceptance": {"per_position": [0.6, 0.5, 0.4], "draft_probability": 0.3, "heterogeneity": ALIKE},
        },
        "workload": FIXED,
    },
    "KV cache full: preempted requests are computed again": {
        **TABLES["Llama-3.2-1B, H100, EAGLE-3"],
        "engine": {"version": "0.16.0", "max_model_len": 2100},
        "workload": LONG,
        "measured": [{"concurrency": 1, "kv_cache_tokens": 60_000}],
    },
}


def differences(table: dict[str, Any], users: int, count: int) -> tuple[float, float, str]:
    """How far the simulated throughput is from the closed form in both arms, relative."""
    deployment = load_deployment(table)
    found = simulate(deployment, arrivals=f"closed:{users}", num_requests=count, num_speculative_tokens=3)
    expected = predict(deployment, num_speculative_tokens=3, concurrency=users)
    assert found.baseline is not None
    assert found.speculative is not None
    ratios = [
        (ours.throughput_tokens_per_s or 0.0) / theirs.throughput_tokens_per_s - 1.0
        for ours, theirs in ((found.baseline, expected.baseline), (found.speculative, expected.speculative))
    ]
    return (
        ratios[0],
        ratios[1],
        f"baseline {percent(ratios[0], 2, signed=True)}, with drafts {percent(ratios[1], 2, signed=True)}",
    )


def checks() -> Iterator[Check]:
    """Every deployment at several loads, without and with prompts."""
    for name, table in TABLES.items():
        for lengths, bound in ((FIXED, DECODE), (LONG, PROMPTS)):
            for users in (1, 8, 64):
                count = max(REQUESTS_PER_USER * users, FEWEST)
                base, spec, text = differences({**table, "workload": lengths}, users, count)
                text = f"{name}, {lengths['input_tokens']} tokens in, {users} users: {text} (allowed {percent(bound)})"
                yield strictest(text, (base, bound), (spec, bound))
    for name, table in KNOWN.items():
        users = 1 if "concurrency 1" in name else 64
        yield Check(f"{name}: {differences(table, users, 1200)[2]}", None, PROMPTS)


def main() -> int:
    """1 when a check fails."""
    return report("serving_closed_form", checks())


if __name__ == "__main__":
    sys.exit(main())
