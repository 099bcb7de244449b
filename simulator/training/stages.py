"""How long each stage of a training run takes on one set of GPUs: answers, hidden states, training."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwmodel.parameters import Parameters
from simulator.closed_form import Cell, capacity, prefill_cost
from simulator.study import Study
from simulator.system import System
from simulator.training.facts import Recipe
from simulator.training.head import Head

Array = NDArray[np.float64]

STAGES = ("regeneration", "extraction", "training")


class Rates(NamedTuple):
    """Tokens a second of all replicas, `(num_draws,)` each, and the concurrency of one replica that is best."""

    generated_tokens_per_s: Array
    read_tokens_per_s: Array
    concurrency: int


class Volume(NamedTuple):
    """Tokens of the data, `(num_draws,)`: answers, and answers with their prompts."""

    output_tokens: Array
    total_tokens: Array


def volume(study: Study, recipe: Recipe) -> Volume:
    """The data of a run over requests like the workload's."""
    workload = study.deployment.workload
    output = recipe.samples * float(workload.output_tokens)
    return Volume(output, recipe.samples * float(workload.output_tokens + workload.input_tokens))


def rates(study: Study, replicas: int) -> Rates:
    """How fast the target writes answers at its best concurrency, and reads text for its hidden states."""
    best = best_concurrency(study)
    written = study.grid([Cell(0, best)], point=False).baseline.throughput_tokens_per_s[:, 0]
    error = study.model_error_factor[:, 0]
    read = read_tokens_per_s(study.system, study.parameters)
    return Rates(replicas * written * error, replicas * read * error, best)


def best_concurrency(study: Study) -> int:
    """The number of requests at once that writes most tokens a second, of the powers of two and all that fit."""
    most = max(capacity(study.system, 0, study.kv_cache_tokens).max_running, 1)
    candidates = sorted({2**i for i in range(most.bit_length()) if 2**i <= most} | {most})
    cells = [Cell(0, c) for c in candidates]
    speed = study.grid(cells, point=True).baseline.throughput_tokens_per_s[0]
    return candidates[int(np.argmax(speed))]


def read_tokens_per_s(system: System, parameters: Parameters) -> Array:
    """Prompt tokens a second of one engine that does nothing else, `(num_draws,)` (docs/options.md, eq. T2).

    Ranks of data parallelism and pipeline micro-batches read each their own, as in a step's prompt side (eq. S1).
    Shorter texts are packed into full steps, so no text counts as shorter than a step's token budget.
    """
    workload, mode = system.deployment.workload, system.mode(0)
    tokens = max(workload.input_tokens + workload.output_tokens, mode.max_num_batched_tokens - 1)
    reading = workload.changed(input_tokens=tokens, prefix_cache_hit_share=0.0)
    alone = replace(system, deployment=system.deployment.changed(workload=reading))
    cost = prefill_cost(alone, parameters, np.ones(1), np.zeros(1))
    return np.asarray(system.batch_divisor * tokens / cost.added_s[:, 0])


def stage_seconds(data: Volume, recipe: Recipe, rate: Rates, head: Head, flop_per_s: float) -> dict[str, Array]:
    """Seconds of every stage, `(num_draws,)`, one after the other on the same GPUs (docs/options.md, eq. T1).

    `flop_per_s` is the dense BF16 peak of all GPUs together.
    """
    trained = data.total_tokens * recipe.epochs * head.flop_per_token
    ideal: Sequence[Array] = (
        data.output_tokens / rate.generated_tokens_per_s,
        data.total_tokens / rate.read_tokens_per_s,
        trained / (flop_per_s * recipe.mfu),
    )
    return {name: seconds / recipe.busy for name, seconds in zip(STAGES, ideal, strict=True)}
