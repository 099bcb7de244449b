"""The step on the ranks against `hwmodel`, and sampled routing against theory and published counts.

Right: every line says PASS. Step: within 2 % of the formula without jitter, where ranks wait for nobody. Coupon
collector: the mean of the samples within four standard errors of the exact value. Published counts: within 3 %.
Rank imbalance: within 3 % of another Monte-Carlo run (docs/ranks.md).
"""

import sys
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np

from hwmodel.moe import Routing, Runs, expert_load, uniform_distinct
from simulator.deployment import load_deployment
from simulator.ranks.routing_samples import RoutingPoint, distinct, sample_layer
from simulator.ranks.step import StepQuestion, step
from verification.checks import Check, report

STEP_TOLERANCE = 0.02
ROUTING_TOLERANCE = 0.03
STANDARD_ERRORS = 4.0
NO_MEMORY = 1e6
# DeepSeek-V4.1-Flash, 384 experts, top 6, consecutive tokens of one sequence (J-M-Recipes).
PUBLISHED_COUNTS = {1: 6.0, 2: 10.1, 3: 13.7, 4: 16.8, 6: 22.5, 8: 27.4}
# Busiest of 8 ranks over the mean, 384 experts, top 8, uniform and independent: a Monte-Carlo run of another program.
KNOWN_IMBALANCE = {1: 2.59, 4: 1.74, 6: 1.59, 16: 1.33, 64: 1.11, 128: 1.05}

WORKLOAD = {"input_tokens": 1000, "output_tokens": 1000}
DEPLOYMENTS: dict[str, Any] = {
    "Kimi-K2.5, 8x RTX PRO 6000, two sockets, n-gram": "examples/kimi-k2.5-8x-rtx-pro-6000.toml",
    "Kimi-K2.6, 8x RTX PRO 6000 on switches, EAGLE-3": "examples/kimi-k2.6-8x-rtx-pro-6000-switch.toml",
    "DeepSeek-V3, 8x H200, MTP": ("deepseek-v3-fp8", "h200", 8, {"tensor_parallel_size": 8}, {"method": "mtp"}),
    "the same with expert parallelism": (
        "deepseek-v3-fp8",
        "h200",
        8,
        {"tensor_parallel_size": 8, "expert_parallel": True},
        {"method": "mtp"},
    ),
    "the same, data-parallel attention": (
        "deepseek-v3-fp8",
        "h200",
        8,
        {"tensor_parallel_size": 1, "data_parallel_size": 8, "expert_parallel": True},
        {"method": "mtp"},
    ),
    "Llama-3.1-8B, 8x L40S, EAGLE-3": (
        "llama-3.1-8b-bf16",
        "l40s",
        8,
        {"tensor_parallel_size": 8},
        {"method": "eagle3"},
    ),
    "Llama-3.1-70B, 4x H100, draft model": (
        "llama-3.1-70b-bf16",
        "h100-sxm",
        4,
        {"tensor_parallel_size": 4},
        {"method": "draft_model", "draft_model": "llama-3.2-1b-bf16"},
    ),
}


def main() -> int:
    """Exit code: 1 when any check fails."""
    return report("rank_step", chain(steps(), coupons(), published_counts(), imbalance(), formula()))


def steps() -> Iterator[Check]:
    """The whole step without jitter against the sum of hwmodel's parts without skew."""
    for name, source in DEPLOYMENTS.items():
        if isinstance(source, str):
            deployment = load_deployment(source)
        else:
            model, gpu, num_gpus, engine, speculation = source
            deployment = load_deployment(
                {
                    "model": {"config": model},
                    "hardware": {"gpu": gpu, "num_gpus": num_gpus},
                    "engine": {"name": "vllm", "version": "0.24.0", **engine},
                    "speculation": {"num_speculative_tokens": 3, **speculation},
                    "workload": WORKLOAD | {"concurrency": [1]},
                }
            )
        for k, concurrency in ((0, 1), (3, 1), (3, 16)):
            question = StepQuestion(num_speculative_tokens=k, concurrency=concurrency, jitter=False, steps=2)
            ratio = step(deployment, question).closed_form["simulated_over_expected"]
            text = f"step, {name}, k={k}, C={concurrency}: simulated / formula {ratio:.4f}"
            yield Check(text, ratio - 1.0, STEP_TOLERANCE)


def coupons() -> Iterator[Check]:
    """Independent tokens, equally likely experts: the coupon collector's count, exact for draws of k at a time."""
    rng = np.random.default_rng(1)
    for num_experts, top_k, tokens in ((384, 8, 6), (128, 8, 16), (64, 4, 8), (256, 8, 64)):
        samples = _samples(num_experts, top_k, [1] * tokens, RoutingPoint(0.0, 0.0, NO_MEMORY), rng, 1000)
        exact = uniform_distinct(num_experts, top_k, tokens)
        error = samples.std() / np.sqrt(len(samples))
        off = (samples.mean() - exact) / error
        counts = f"{samples.mean():.2f} drawn, {exact:.2f} exact ({off:+.1f} s.e.)"
        yield Check(f"coupons, {num_experts}/{top_k}, T={tokens}: {counts}", float(off), STANDARD_ERRORS)


def published_counts() -> Iterator[Check]:
    """One sequence at the prior's routing: experts that consecutive tokens touch."""
    rng = np.random.default_rng(2)
    for tokens, published in PUBLISHED_COUNTS.items():
        mean = float(_samples(384, 6, [tokens], RoutingPoint(0.9, 0.20, 6.5), rng, 2000).mean())
        text = f"counts, 384/6, T={tokens}: {mean:.2f} drawn, {published} published"
        yield Check(text, mean / published - 1, ROUTING_TOLERANCE)


def imbalance() -> Iterator[Check]:
    """Distinct experts of the busiest of eight ranks over the mean."""
    rng = np.random.default_rng(3)
    for tokens, known in KNOWN_IMBALANCE.items():
        ratios = []
        for _ in range(400):
            sample = sample_layer(384, 8, [1] * tokens, RoutingPoint(0.0, 0.0, NO_MEMORY), rng)
            ranks = [distinct(sample.of_rank(rank, 8)) for rank in range(8)]
            ratios.append((max(ranks), sum(ranks) / 8))
        ratio = sum(a for a, _ in ratios) / sum(b for _, b in ratios)
        text = f"busiest of 8 ranks over the mean, 384/8, T={tokens}: {ratio:.2f} drawn, {known} known"
        yield Check(text, ratio / known - 1.0, ROUTING_TOLERANCE)


def formula() -> Iterator[Check]:
    """Slots drawn one by one against the formula of `hwmodel.moe`."""
    rng = np.random.default_rng(4)
    routing = RoutingPoint(0.9, 0.20, 6.5)
    for num_experts, top_k, requests, tokens in ((384, 8, 1, 6), (384, 8, 16, 4), (128, 8, 4, 4), (64, 8, 4, 4)):
        runs = [Runs((float(tokens),), (np.array([float(requests)]),))]
        expected = float(expert_load(num_experts, top_k, runs, Routing(0.9, 0.20, 6.5)).distinct[0, 0])
        mean = float(_samples(num_experts, top_k, [tokens] * requests, routing, rng, 600).mean())
        text = f"slots, {num_experts}/{top_k}, {requests}x{tokens}: {mean:.2f} drawn, {expected:.2f} by formula"
        yield Check(text, mean / expected - 1.0, ROUTING_TOLERANCE)


def _samples(
    num_experts: int, top_k: int, runs: list[int], routing: RoutingPoint, rng: np.random.Generator, count: int
) -> np.ndarray:
    return np.array([sample_layer(num_experts, top_k, runs, routing, rng).distinct for _ in range(count)])


if __name__ == "__main__":
    sys.exit(main())
