"""Measurements made from known parameters with the simulator's closed form: what a perfect run would have given."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from calibration.records import MeasuredCell
from hwmodel.parameters import Parameters
from simulator.closed_form import (
    Load,
    PrefillCost,
    arm,
    baseline_step,
    prefill_cost,
    speculative_step,
)
from simulator.deployment import Deployment
from simulator.system import System, build_system

LOADS = (1, 2, 4, 8, 16, 32, 64)


def parameters_at(system: System, moved: Mapping[str, float]) -> Parameters:
    """The priors' medians with some parameters moved, in prior standard deviations."""
    z = np.zeros((1, len(system.priors.priors)))
    for name, value in moved.items():
        z[0, [prior.name for prior in system.priors.priors].index(name)] = value
    return system.priors.parameters(z)


def measured_cells(
    deployment: Deployment,
    moved: Mapping[str, float] | None = None,
    loads: Sequence[int] = LOADS,
    *,
    drafts: tuple[int, float] = (0, 1.0),
    factor: Callable[[float], float] = lambda rows: 1.0,
    noise: tuple[float, int] = (0.0, 0),
    **fields: Any,
) -> tuple[MeasuredCell, ...]:
    """One cell per load with its TPOT.

    `drafts` is (draft length, tokens per step), `factor` of the rows lengthens steps, `noise` is (relative, seed).
    """
    k, tokens = drafts
    system = build_system(deployment)
    p = parameters_at(system, moved or {})
    workload, rng = deployment.workload, np.random.default_rng(noise[1])
    found = []
    for c in loads:
        requests = np.array([float(c)])
        base = baseline_step(system, p, requests, system.context_tokens)
        step = base
        if k:
            step = speculative_step(system, p, np.array([k]), requests, np.ones((1, 1)))
        prefill = prefill_cost(system, p, requests, base.total_s)
        if c == 1:
            prefill = PrefillCost(np.zeros((1, 1)), np.zeros(1))
        result = arm(system, step, prefill, tokens, Load(requests, requests, ("concurrency",)))
        tpot_s = float(result.tpot_s[0, 0]) * factor(c * (k + 1.0)) * np.exp(noise[0] * rng.standard_normal())
        found.append(
            MeasuredCell(
                source=f"run.json {c}",
                concurrency=float(c),
                num_speculative_tokens=k,
                method=deployment.speculation.method if k else None,
                tpot_s=float(tpot_s),
                tokens_per_step=tokens,
                relative_noise=max(noise[0], 0.01),
                input_tokens=float(workload.input_tokens),
                output_tokens=float(workload.output_tokens),
                **fields,
            )
        )
    return tuple(found)
