"""What stands behind an answer, over load: both arms step by step, acceptance by position, experts, AllReduce."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from hwmodel.allreduce_report import allreduce_report
from hwmodel.step import allreduce_time_s
from simulator import explain
from simulator.answers import checked_concurrency, collected_notes, draft_length, recorded_inputs
from simulator.closed_form import Cell
from simulator.defaults import DEFAULT_DRAWS
from simulator.deployment import Deployment, with_method
from simulator.predict import arm_point
from simulator.results import JsonObject
from simulator.study import Study, build_study
from simulator.summary import quantile_rows, quantiles, share_above

_SHOWN = ("p05", "p25", "p50", "p75", "p95")
_ACTIVATION_BYTES = 2  # BF16, as in hwmodel.step
_MAX_LOADS = 64
_EXPERT_FIGURES = ("concurrency", "requests", "tokens", "baseline", "speculative", "uniform")
_CURVE_SIZES = [2**power for power in range(10, 27)]  # bytes: 1 KiB to 64 MiB, what decode and prefill send


def curves(
    deployment: Deployment,
    *,
    num_speculative_tokens: int | None = None,
    concurrency: Sequence[int] | None = None,
    method: str | None = None,
    num_draws: int = DEFAULT_DRAWS,
    seed: int = 0,
) -> JsonObject:
    """One draft length over load, with what explains it; default loads: the deployment's and the powers of two between.

    `cells` has both arms of every load; `acceptance`, `experts` and `allreduce` are null where there is nothing of the
    kind, with the reason in `..._reason`.
    """
    deployment, notes = with_method(deployment, method) if method else (deployment, ())
    k, more = draft_length(deployment, num_speculative_tokens)
    asked = between(deployment.workload.concurrency) if concurrency is None else concurrency
    loads = sorted({checked_concurrency(load) for load in asked})[:_MAX_LOADS]
    study = build_study(deployment, k_max=k, num_draws=num_draws, seed=seed)
    cells = [Cell(k, load) for load in loads]
    settings = {"num_speculative_tokens": k, "concurrency": loads, "num_draws": num_draws, "seed": seed}
    return {
        "inputs": recorded_inputs(study, settings),
        "num_speculative_tokens": k,
        "cells": _cells(study, cells),
        **_acceptance(study, k),
        **_experts(study, cells),
        **_allreduce(study, cells),
        "notes": list(collected_notes(study, k, (*notes, *more))),
    }


def between(loads: Sequence[int]) -> list[int]:
    """The loads and the powers of two between them.

    >>> between((1, 3, 10))
    [1, 2, 3, 4, 8, 10]
    """
    low, high = min(loads), max(loads)
    powers = [1 << bit for bit in range(high.bit_length()) if low <= 1 << bit <= high]
    return sorted({*loads, *powers})


def _cells(study: Study, cells: Sequence[Cell]) -> list[JsonObject]:
    """Both arms of every cell at the posterior median, the speedup from the draws."""
    point, grid = study.grid(cells, point=True), study.grid(cells, point=False)
    speedup = study.with_model_error(grid)
    drafting = cells[0].num_speculative_tokens > 0
    return [
        {
            "num_speculative_tokens": cell.num_speculative_tokens,
            "concurrency": cell.concurrency,
            "speedup": quantiles(speedup[:, i]),
            "probability_faster": share_above(speedup[:, i], 1.0) if drafting else 0.0,
            "baseline": arm_point(point.baseline, i, grid.baseline, study.model_error_factor).to_dict(
                speculative=False
            ),
            "speculative": arm_point(point.speculative, i, grid.speculative, study.model_error_factor).to_dict(
                speculative=True
            ),
        }
        for i, cell in enumerate(cells)
    ]


def _acceptance(study: Study, k: int) -> JsonObject:
    """The share of drafts whose i-th token is accepted, unconditional, and the share of steps that carry a draft."""
    if k == 0:
        return {"acceptance": None, "acceptance_reason": "nothing is drafted"}
    drawn = study.acceptance.for_length(k)
    rows = quantile_rows(drawn.survival[:, :k])
    shown = [{name: row[name] for name in _SHOWN} for row in rows]
    probability = quantiles(drawn.draft_probability[:, 0])
    return {
        "acceptance": {
            "per_position": [
                {"position": i + 1, "rate": float(drawn.median_survival[0, i]), **row} for i, row in enumerate(shown)
            ],
            "draft_probability": {name: probability[name] for name in _SHOWN},
            "source": drawn.source,
            "is_prior": drawn.is_prior,
        }
    }


def _experts(study: Study, cells: Sequence[Cell]) -> JsonObject:
    """Distinct experts of a layer and step in both arms, by the tokens of the step."""
    if not study.system.work.moe:
        return {"experts": None, "experts_reason": f"{study.system.shape.name} has no experts"}
    rows = []
    for cell in cells:
        found = explain.distinct_experts(study, cell)
        assert found is not None, "the model has experts"
        requests = found["tokens"] // (cell.num_speculative_tokens + 1)
        rows.append({"concurrency": cell.concurrency, "requests": requests, **found})
    first = rows[0]
    return {
        "experts": {
            "num_experts": first["num_experts"],
            "routing_model": first["routing_model"],
            "points": [{name: row[name] for name in _EXPERT_FIGURES} for row in rows],
        }
    }


def _allreduce(study: Study, cells: Sequence[Cell]) -> JsonObject:
    """The AllReduce curve as this deployment's parameters have it, and the messages of the steps in question.

    A message holds the rows that carry work, before an engine pads them to a captured graph.
    """
    machine, work = study.system.machine, study.system.work
    if study.system.parallel.tensor == 1:
        return {"allreduce": None, "allreduce_reason": "one GPU to a replica: there is nothing to reduce"}
    found = allreduce_report(machine.allreduce, _CURVE_SIZES)
    row_bytes = work.hidden_size * _ACTIVATION_BYTES
    point = study.grid(cells, point=True)
    points = []
    for arm, tokens_each, running in (
        ("baseline", 1, point.baseline.running),
        ("speculative", cells[0].num_speculative_tokens + 1, point.speculative.running),
    ):
        for cell, requests in zip(cells, running, strict=True):
            rows = max(int(requests) // study.system.batch_divisor, 1) * tokens_each
            size = rows * row_bytes
            points.append({"arm": arm, "concurrency": cell.concurrency, "bytes": size, "time_s": _time_s(study, size)})
    return {
        "allreduce": {
            "curve": [
                {"bytes": row["bytes"], "time_s": _time_s(study, row["bytes"]), "algorithm": row["algorithm"]}
                for row in found["curve"]
            ],
            "points": points,
            "skew_s": float(np.ravel(study.point_parameters.allreduce_skew_s)[0]),
            "allreduces_per_step": float(work.num_collectives),
            "kind": found["kind"],
            "source": found["source"],
        }
    }


def _time_s(study: Study, size_bytes: float) -> float:
    """Seconds of one AllReduce of that size at the median of the parameters, without waiting for the slowest rank."""
    value: Any = allreduce_time_s(study.system.machine, np.array([float(size_bytes)]), study.point_parameters)
    return float(np.ravel(value)[0])
