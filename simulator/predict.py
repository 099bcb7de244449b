"""One configuration against its baseline, and variants of a deployment side by side."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwmodel.errors import DraftcastError, InputError
from simulator import explain
from simulator.answers import (
    INTERVAL,
    checked_concurrency,
    collected_notes,
    draft_length,
    effects_on_clients,
    memory_report,
    plateau,
    plateau_sentence,
    prediction_identity,
    recorded_inputs,
)
from simulator.closed_form import ArmResult, Cell, capacity
from simulator.defaults import DEFAULT_DRAWS
from simulator.deployment import Deployment, apply_overrides, with_method
from simulator.results import ArmPoint, JsonObject, Prediction, WhatIf, WhatIfRow
from simulator.study import Study, build_study
from simulator.summary import quantiles, share_above
from simulator.sweeps import INTERRUPTED, Sweep, in_this_process

Array = NDArray[np.float64]

_MAX_VARIANTS = 100_000


def predict(
    deployment: Deployment,
    *,
    num_speculative_tokens: int | None = None,
    concurrency: int | None = None,
    method: str | None = None,
    num_draws: int = DEFAULT_DRAWS,
    seed: int = 0,
) -> Prediction:
    """One configuration against its baseline; defaults are the file's draft length and its first concurrency."""
    deployment, notes = with_method(deployment, method) if method else (deployment, ())
    load = checked_concurrency(deployment.workload.concurrency[0] if concurrency is None else concurrency)
    k, more = draft_length(deployment, num_speculative_tokens, load)
    cell = Cell(k, load)
    study = build_study(deployment, k_max=k, num_draws=num_draws, seed=seed)
    return _prediction(study, cell, (*notes, *more), {"num_draws": num_draws, "seed": seed})


def _prediction(study: Study, cell: Cell, notes: Sequence[str], settings: JsonObject) -> Prediction:
    point = study.grid([cell], point=True)
    grid = study.grid([cell], point=False)
    drafting = cell.num_speculative_tokens > 0
    speedup = study.with_model_error(grid)[:, 0]
    cap = capacity(study.system, 0, study.kv_cache_tokens)
    inputs = recorded_inputs(
        study, {"num_speculative_tokens": cell.num_speculative_tokens, "concurrency": cell.concurrency, **settings}
    )
    why = explain.explain_cell(study, cell, point, 0)
    level = plateau(study, cap)
    why += [plateau_sentence(level)]
    if drafting:
        why += [
            explain.gain_end_sentence(study, cell.num_speculative_tokens),
            f"Drafter: {study.system.drafter.description}.",
        ]
    why += explain.settling_observations(study, cell.num_speculative_tokens)
    return Prediction(
        inputs=inputs,
        speedup=quantiles(speedup),
        probability_faster=share_above(speedup, 1.0) if drafting else 0.0,
        break_even_tokens_per_step=float(point.speculative.step_s[0, 0] / point.baseline.step_s[0, 0]),
        baseline=arm_point(point.baseline, 0, grid.baseline, study.model_error_factor),
        speculative=arm_point(point.speculative, 0, grid.speculative, study.model_error_factor),
        plateau=level,
        distinct_experts_per_layer=explain.distinct_experts(study, cell),
        memory=memory_report(study, cell.num_speculative_tokens),
        why=tuple(why),
        notes=collected_notes(study, cell.num_speculative_tokens, notes),
        client_effects=effects_on_clients(study, cell.num_speculative_tokens),
        prediction_id=prediction_identity(inputs),
    )


def arm_point(point: ArmResult, column: int, draws: ArmResult, error: Array) -> ArmPoint:
    """One arm of a cell at the posterior median, its throughput with the interval of the draws."""
    interval = quantiles(draws.throughput_tokens_per_s[:, column] * error[:, 0])
    return ArmPoint(
        step_s=float(point.step_s[0, column]),
        tpot_s=float(point.tpot_s[0, column]),
        ttft_s=float(point.ttft_s[0, column]),
        throughput_tokens_per_s=float(point.throughput_tokens_per_s[0, column]),
        tokens_per_step=float(point.tokens_per_step[0, column]),
        running_requests=int(point.running[column]),
        limited_by=point.limited_by[column],
        parts_s=explain.parts_at(point.parts_s, column),
        throughput_interval={name: interval[name] for name in INTERVAL},
    )


def whatif(
    deployment: Deployment,
    vary: Mapping[str, Sequence[Any]],
    *,
    num_draws: int = DEFAULT_DRAWS,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
    sweep: Sweep = in_this_process,
) -> WhatIf:
    """Every combination of the varied keys; one that cannot be built has an `error` and does not stop the rest.

    `progress` is called with the rows done and those in all; `sweep` runs the rows, here or elsewhere. A row whose
    computation failed twice has a `failed_reason`; a sweep that was stopped gives the rows that were done.
    """
    if not vary:
        raise InputError("whatif: got nothing to vary; allowed: one or more KEY=V1,V2")
    count = prod(len(values) for values in vary.values())
    if count > _MAX_VARIANTS:
        raise InputError(f"whatif: got {count} combinations, allowed at most {_MAX_VARIANTS}")
    combinations = [dict(zip(vary, values, strict=True)) for values in product(*vary.values())]
    swept = sweep(partial(_row, deployment, num_draws, seed), combinations, progress)
    if not swept.done and swept.stopped == INTERRUPTED:
        raise KeyboardInterrupt
    rows = [
        outcome.value if outcome.failed_reason is None else WhatIfRow(named, None, failed_reason=outcome.failed_reason)
        for named, outcome in zip(combinations, swept.outcomes, strict=True)
        if outcome is not None
    ]
    if swept.stopped is None and all(row.error is not None for row in rows):
        raise InputError(f"whatif: no variant can be built; the first: {rows[0].error}")
    inputs = {
        "deployment": deployment.to_dict(),
        "vary": {key: list(values) for key, values in vary.items()},
        "num_draws": num_draws,
        "seed": seed,
    }
    notes = (*_misfit_notes(deployment, rows), *_unfelt_notes(vary, rows))
    return WhatIf(inputs, tuple(rows), notes, len(combinations), swept.stopped)


def _row(deployment: Deployment, num_draws: int, seed: int, named: JsonObject) -> WhatIfRow:
    """One combination: the prediction of the deployment with these keys."""
    try:
        varied = apply_overrides(deployment, [f"{key}={_toml(value)}" for key, value in named.items()])
        return WhatIfRow(named, predict(varied, num_draws=num_draws, seed=seed))
    except DraftcastError as error:
        return WhatIfRow(named, None, str(error))


def _misfit_notes(deployment: Deployment, rows: Sequence[WhatIfRow]) -> tuple[str, ...]:
    """What the profile's measurements missed, where that holds for a row."""
    misfit = deployment.profile.misfit if deployment.profile else None
    said = {note for row in rows if row.prediction for note in row.prediction.notes}
    return (misfit.sentence(),) if misfit and misfit.sentence() in said else ()


def _unfelt_notes(vary: Mapping[str, Sequence[Any]], rows: Sequence[WhatIfRow]) -> tuple[str, ...]:
    """Keys whose values leave every figure as it is, and what the notes of a row with its last value add."""
    notes: list[str] = []
    for key in vary:
        groups: dict[str, list[Prediction]] = {}
        for row in rows:
            others = _toml({name: value for name, value in row.vary.items() if name != key})
            if row.prediction is not None:
                groups.setdefault(others, []).append(row.prediction)
        felt = any(_figures(found) != _figures(group[0]) for group in groups.values() for found in group)
        if felt or all(len(group) < 2 for group in groups.values()):
            continue
        notes.append(f"{key} changes no figure here")
        notes += [note for group in groups.values() for note in group[-1].notes if note not in group[0].notes]
    return tuple(dict.fromkeys(notes))


def _figures(found: Prediction) -> tuple[object, ...]:
    return found.speedup, found.baseline, found.speculative


def _toml(value: Any) -> str:
    """A value as `--set` reads it: numbers, booleans and lists as JSON (the same in TOML), text bare."""
    return value if isinstance(value, str) else json.dumps(value)
