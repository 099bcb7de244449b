"""The questions: predict one configuration, choose among a grid, vary keys. Deployment in, typed answer out."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwmodel.engine.clients import client_effects
from hwmodel.engine.flags import SpeculativeChoice, speculative_flag
from hwmodel.engine.methods import check_method
from hwmodel.errors import DraftcastError, InputError
from simulator import explain
from simulator.closed_form import ArmResult, Capacity, Cell, Grid, capacity
from simulator.decision import Pick, Scores, pick_schedule, pick_static, restart_value, score
from simulator.deployment import Deployment, apply_overrides, with_method
from simulator.deployment.speculation import MAX_DRAFT_TOKENS
from simulator.results import ArmPoint, Choice, GridCell, JsonObject, Prediction, Recommendation, WhatIf, WhatIfRow
from simulator.study import DEFAULT_DRAWS, Study, build_study
from simulator.summary import finite, quantile_rows, quantiles, share_above

Array = NDArray[np.float64]

MODEL_VERSION = "1"  # changes whenever the same inputs give other figures
_DEFAULT_DRAFT_TOKENS = 3  # where neither the file nor the caller says: the commonest published choice
_SCHEDULE_FIRST = (0, 24, 0)  # vLLM: num_speculative_tokens_per_batch_size
_MAX_CELLS = 100_000
_INTERVAL = ("p05", "p50", "p95")


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
    k, more = draft_length(deployment, num_speculative_tokens)
    cell = Cell(k, checked_concurrency(concurrency or deployment.workload.concurrency[0]))
    study = build_study(deployment, k_max=k, num_draws=num_draws, seed=seed)
    return _prediction(study, cell, (*notes, *more), {"num_draws": num_draws, "seed": seed})


def draft_length(deployment: Deployment, asked: int | None) -> tuple[int, tuple[str, ...]]:
    """The draft length in question and a note where it is assumed; k without a method is an error."""
    speculation = deployment.speculation
    k = asked if asked is not None else speculation.num_speculative_tokens
    if k is not None and not 0 <= k <= MAX_DRAFT_TOKENS:
        raise InputError(f"num_speculative_tokens: got {k}, allowed 0 to {MAX_DRAFT_TOKENS}")
    if speculation.method == "none":
        if asked:
            raise InputError(f"num_speculative_tokens: got {k}, but speculation.method is none; name a method, e.g. --method eagle3")
        return 0, ()
    if k is None:
        return _DEFAULT_DRAFT_TOKENS, (f"num_speculative_tokens is not given; {_DEFAULT_DRAFT_TOKENS} assumed",)
    return k, ()


def checked_concurrency(value: int) -> int:
    """A concurrency that can be asked about."""
    if not 1 <= value <= 100_000:
        raise InputError(f"concurrency: got {value}, allowed 1 to 100000")
    return value


def _prediction(study: Study, cell: Cell, notes: Sequence[str], settings: JsonObject) -> Prediction:
    point = study.grid([cell], point=True)
    grid = study.grid([cell], point=False)
    error = np.exp(study.parameters.model_error * study.model_error_z)
    drafting = cell.num_speculative_tokens > 0
    speedup = (grid.speedup * error)[:, 0] if drafting else np.ones(len(study.z))
    cap = capacity(study.system, 0, study.kv_cache_tokens)
    inputs = _inputs(study, {"num_speculative_tokens": cell.num_speculative_tokens, "concurrency": cell.concurrency, **settings})
    why = explain.explain_cell(study, cell, point, 0)
    plateau = _plateau(study, cap)
    why += [_plateau_sentence(plateau)]
    if drafting:
        why += [explain.gain_end_sentence(study, cell.num_speculative_tokens), f"Drafter: {study.system.drafter.description}."]
    why += explain.settling_observations(study, cell.num_speculative_tokens)
    return Prediction(
        inputs=inputs,
        speedup=quantiles(speedup),
        probability_faster=share_above(speedup, 1.0) if drafting else 0.0,
        break_even_tokens_per_step=float(point.speculative.step_s[0, 0] / point.baseline.step_s[0, 0]),
        baseline=_arm_point(point.baseline, 0, grid.baseline, error),
        speculative=_arm_point(point.speculative, 0, grid.speculative, error),
        plateau=plateau,
        distinct_experts_per_layer=explain.distinct_experts(study, cell),
        memory=_memory(study, cell.num_speculative_tokens),
        why=tuple(why),
        notes=_notes(study, cell.num_speculative_tokens, notes),
        client_effects=_client_effects(study, cell.num_speculative_tokens),
        prediction_id=_identity(inputs),
    )


def _arm_point(point: ArmResult, column: int, draws: ArmResult, error: Array) -> ArmPoint:
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
        throughput_interval={name: interval[name] for name in _INTERVAL},
    )


def _plateau(study: Study, cap: Capacity) -> JsonObject:
    """The baseline's throughput when as many requests run as memory and max_num_seqs allow."""
    top = Cell(0, max(cap.max_running, 1))
    draws = study.grid([top], point=False).baseline
    point = study.grid([top], point=True).baseline
    error = np.exp(study.parameters.model_error * study.model_error_z)[:, 0]
    interval = quantiles(draws.throughput_tokens_per_s[:, 0] * error)
    parts = explain.parts_at(point.parts_s, 0)
    total = sum(parts.values())
    largest = sorted(parts, key=lambda name: -parts[name])[:2]
    return {
        "concurrency": top.concurrency,
        "throughput_tokens_per_s": {name: interval[name] for name in _INTERVAL},
        "limited_by": cap.limited_by,
        "largest_parts": {name: parts[name] / total for name in largest},
    }


def _plateau_sentence(plateau: JsonObject) -> str:
    band = plateau["throughput_tokens_per_s"]
    parts = ", ".join(f"{name} {share:.0%} of the step" for name, share in plateau["largest_parts"].items())
    words = {
        "kv_cache": "the KV cache holds no more",
        "max_num_seqs": "max_num_seqs allows no more",
        "does_not_fit": "it does not fit in memory: hypothetical",
    }[plateau["limited_by"]]
    return (
        f"The baseline levels off at {band['p50']:.0f} tok/s (90 %: {band['p05']:.0f} to {band['p95']:.0f}) with"
        f" {plateau['concurrency']} requests running: {words}; there {parts}."
    )


def _memory(study: Study, num_speculative_tokens: int) -> JsonObject:
    """The `memory` object of the contract, per replica; bytes over all of its ranks."""
    system = study.system
    base = capacity(system, 0, study.kv_cache_tokens)
    spec = capacity(system, num_speculative_tokens, study.kv_cache_tokens) if num_speculative_tokens else base
    ranks = system.parallel.tensor * system.parallel.pipeline
    return {
        "weights_bytes": base.memory.weight_bytes * ranks,
        "draft_bytes": spec.memory.draft_bytes * ranks,
        "weights_bytes_per_gpu": base.memory.weight_bytes,
        "reserve_bytes_per_gpu": max(base.memory.reserve_bytes, 0.0),
        "budget_bytes_per_gpu": base.memory.budget_bytes,
        "kv_cache_tokens_baseline": finite(base.memory.kv_cache_tokens * system.parallel.data),
        "kv_cache_tokens_speculative": finite(spec.memory.kv_cache_tokens * system.parallel.data),
        "max_concurrency_baseline": base.max_running,
        "max_concurrency_speculative": spec.max_running,
        "limited_by_baseline": base.limited_by,
        "limited_by_speculative": spec.limited_by,
        "fits": base.limited_by != "does_not_fit" and spec.limited_by != "does_not_fit",
    }


def _notes(study: Study, num_speculative_tokens: int, notes: Sequence[str]) -> tuple[str, ...]:
    """Everything that was assumed, refused or surprising, most important first, each once."""
    system = study.system
    collected = [f.text for f in _method_findings(study, num_speculative_tokens)]
    collected += _fit_notes(study, num_speculative_tokens)
    collected += explain.conflict_notes(study)
    collected += [*notes, *system.notes, *system.mode(num_speculative_tokens).notes, *study.acceptance.notes]
    collected += [f"AllReduce curve: {system.machine.allreduce.source}"] if system.parallel.tensor > 1 else []
    collected += [f"{system.shape.name}: {text}" for text in system.shape.assumptions]
    return tuple(dict.fromkeys(collected))


def _fit_notes(study: Study, num_speculative_tokens: int) -> list[str]:
    lines = []
    for name, k in (("the baseline", 0), ("speculation", num_speculative_tokens)):
        plan = capacity(study.system, k, study.kv_cache_tokens)
        if plan.limited_by == "does_not_fit":
            held = (plan.memory.weight_bytes + plan.memory.draft_bytes + max(plan.memory.reserve_bytes, 0.0)) / 1e9
            lines.append(
                f"{name} does not fit: {held:.1f} GB of weights and reserve a GPU, {plan.memory.budget_bytes / 1e9:.1f} GB"
                " allowed by gpu_memory_utilization; the figures assume that it did"
            )
            break
    return lines


def _method_findings(study: Study, num_speculative_tokens: int) -> list[Any]:
    system = study.system
    deployment = system.deployment
    n_predict = len(system.shape.mtp_layers) or None if system.method == "mtp" else None
    return list(
        check_method(
            deployment.engine.name,
            system.mode(0).version,
            system.method,
            num_speculative_tokens,
            tensor_parallel_size=system.parallel.tensor,
            draft_tensor_parallel_size=deployment.speculation.draft_tensor_parallel_size,
            n_predict=n_predict,
        )
    )


def _client_effects(study: Study, num_speculative_tokens: int) -> tuple[str, ...]:
    if num_speculative_tokens == 0:
        return ()
    mode = study.system.mode(num_speculative_tokens)
    return client_effects(mode.engine, mode.version, study.system.method, mode.model_runner)


def _inputs(study: Study, settings: JsonObject) -> JsonObject:
    deployment = study.deployment.model_dump(mode="json", exclude_none=True)
    mode = study.system.mode(0)
    resolved = {
        "engine_version": ".".join(map(str, mode.version)),
        "interconnect": study.system.machine.interconnect,
        "attention_backend": mode.attention_backend,
        "max_num_seqs": mode.max_num_seqs,
        "max_num_batched_tokens": mode.max_num_batched_tokens,
    }
    return {"deployment": deployment, "method": study.system.method, **settings, "resolved": resolved, "model_version": MODEL_VERSION}


def _identity(inputs: JsonObject) -> str:
    """The same question gets the same id: a hash of the inputs."""
    text = json.dumps(inputs, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def choose(
    deployment: Deployment,
    *,
    num_speculative_tokens: Sequence[int] = tuple(range(9)),
    concurrency: Sequence[int] | None = None,
    method: str | None = None,
    num_draws: int = DEFAULT_DRAWS,
    seed: int = 0,
) -> Choice:
    """The grid of draft lengths and concurrencies, and what to deploy."""
    deployment, notes = with_method(deployment, method) if method else (deployment, ())
    lengths = _checked_lengths(deployment, num_speculative_tokens)
    loads = sorted({checked_concurrency(c) for c in (concurrency or deployment.workload.concurrency)})
    cells = [Cell(k, c) for k, c in product(lengths, loads)]
    if len(cells) > _MAX_CELLS:
        raise InputError(f"grid: got {len(cells)} cells, allowed at most {_MAX_CELLS}")
    study = build_study(deployment, k_max=max(lengths), num_draws=num_draws, seed=seed)
    point, grid = study.grid(cells, point=True), study.grid(cells, point=False)
    error = np.exp(study.parameters.model_error * study.model_error_z)
    drafting = np.array([cell.num_speculative_tokens > 0 for cell in cells])
    speedup = np.where(drafting, grid.speedup * error, 1.0)
    scores = score(deployment, cells, grid.baseline, grid.speculative, speedup, (point.baseline, point.speculative))
    scores = _only_accepted_lengths(study, scores)
    pick = pick_static(scores, deployment.objective.min_probability_faster)
    recommendation, more = _recommendation(study, scores, pick)
    value = restart_value(deployment, pick.gain, _capacity_throughput(point, scores))
    settings = {"num_speculative_tokens": list(lengths), "concurrency": loads, "num_draws": num_draws, "seed": seed}
    inputs = _inputs(study, settings)
    shown = pick.best_enabled
    return Choice(
        inputs=inputs,
        grid=_grid_cells(cells, point, speedup),
        recommendation=recommendation,
        restart={
            "outage_s": value.outage_s,
            "expected_outage_s": value.expected_outage_s,
            "payback_s": value.payback_s,
            "payback_reason": value.payback_reason,
        },
        memory=_memory(study, shown),
        why=tuple(_choice_why(study, cells, point, pick)),
        notes=(*more, *_notes(study, shown, notes)),
        prediction_id=_identity(inputs),
    )


def _checked_lengths(deployment: Deployment, lengths: Sequence[int]) -> list[int]:
    for k in lengths:
        draft_length(deployment, k)
    if not lengths:
        raise InputError("num_speculative_tokens: got an empty list, allowed 0 to 64")
    return sorted({0, *lengths})


def _only_accepted_lengths(study: Study, scores: Scores) -> Scores:
    """Scores without the draft lengths that the engine version refuses."""
    from dataclasses import replace

    refused = [k for k in scores.lengths if any(f.severity == "error" for f in _method_findings(study, k))]
    allowed = scores.allowed.copy()
    for i, k in enumerate(scores.lengths):
        if k in refused:
            allowed[i] = False
    return replace(scores, allowed=allowed)


def _capacity_throughput(point: Grid, scores: Scores) -> float:
    """The baseline's throughput over the traffic, weighted by load."""
    at = {cell.concurrency: i for i, cell in enumerate(point.cells)}
    rates = np.array([point.baseline.throughput_tokens_per_s[0, at[c]] for c in scores.loads])
    return float(rates @ scores.weights)


def _grid_cells(cells: Sequence[Cell], point: Grid, speedup: Array) -> tuple[GridCell, ...]:
    arm = point.speculative
    return tuple(
        GridCell(
            num_speculative_tokens=cell.num_speculative_tokens,
            concurrency=cell.concurrency,
            speedup=figures,
            probability_faster=share_above(speedup[:, i], 1.0) if cell.num_speculative_tokens else 0.0,
            tpot_s=float(arm.tpot_s[0, i]),
            ttft_s=float(arm.ttft_s[0, i]),
            throughput_tokens_per_s=float(arm.throughput_tokens_per_s[0, i]),
            tokens_per_step=float(arm.tokens_per_step[0, i]),
            limited_by=arm.limited_by[i],
        )
        for i, (cell, figures) in enumerate(zip(cells, quantile_rows(speedup), strict=True))
    )


def _recommendation(study: Study, scores: Scores, pick: Pick) -> tuple[Recommendation, tuple[str, ...]]:
    objective = study.deployment.objective
    k = pick.num_speculative_tokens
    errors = [f.text for f in _method_findings(study, pick.best_enabled) if f.severity == "error"]
    mode = study.system.mode(0)
    wanted = pick_schedule(scores, objective.min_probability_faster, mode.max_num_seqs) if not errors else []
    schedule, reason = _deployable_schedule(study, wanted)
    static = k if k else max((row[2] for row in schedule or []), default=0)
    flag, notes = _flag(study, static, schedule)
    deployed = bool(flag)
    gain = quantiles(pick.gain)
    return (
        Recommendation(
            num_speculative_tokens=static if deployed else 0,
            best_if_enabled=pick.best_enabled,
            schedule=schedule,
            schedule_reason=reason,
            flag=flag,
            restart_worth_it=deployed,
            probability_better=pick.probability_better,
            gain={name: gain[name] for name in _INTERVAL},
            why=_recommendation_text(study, pick, errors, deployed, schedule),
            client_effects=_client_effects(study, pick.best_enabled),
        ),
        notes,
    )


def _deployable_schedule(study: Study, wanted: list[list[int]]) -> tuple[list[list[int]] | None, str | None]:
    """The schedule where this engine can run it and it differs from one length for all loads; else why not."""
    system = study.system
    if len({row[2] for row in wanted}) <= 1:
        return None, "one draft length is best at every load"
    if system.deployment.engine.name != "vllm" or system.mode(0).version < _SCHEDULE_FIRST:
        best = ", ".join(f"k={k} for {low} to {high} requests" for low, high, k in wanted)
        return None, f"needs vLLM 0.24 or later (num_speculative_tokens_per_batch_size); there: {best}"
    if system.parallel.data > 1:
        return None, "vLLM ignores num_speculative_tokens_per_batch_size with data parallelism"
    return wanted, None


def _flag(study: Study, num_speculative_tokens: int, schedule: list[list[int]] | None) -> tuple[str, tuple[str, ...]]:
    """The launch text for the recommendation, empty for none; the version's notes on it."""
    if num_speculative_tokens == 0:
        return "", ()
    system, spec = study.system, study.deployment.speculation
    low, high = spec.lookup_range
    choice = SpeculativeChoice(
        method=system.method,
        num_speculative_tokens=num_speculative_tokens,
        draft_model=spec.draft_model,
        prompt_lookup_min=low,
        prompt_lookup_max=high,
        draft_tensor_parallel_size=spec.draft_tensor_parallel_size,
        tensor_parallel_size=system.parallel.tensor,
        data_parallel_size=system.parallel.data,
        schedule=tuple((a, b, k) for a, b, k in schedule or []),
        model_runner=system.mode(num_speculative_tokens).model_runner,
        n_predict=len(system.shape.mtp_layers) or None if system.method == "mtp" else None,
    )
    try:
        flag = speculative_flag(system.deployment.engine.name, system.mode(0).version, choice)
    except InputError as error:
        return "", (str(error),)
    return flag.text, flag.notes


def _recommendation_text(
    study: Study, pick: Pick, errors: Sequence[str], deployed: bool, schedule: list[list[int]] | None
) -> str:
    method = study.system.method
    if method == "none" or pick.best_enabled == 0:
        return "No speculation method is named, so there is nothing to enable."
    if errors:
        return f"Do not enable {method}: {errors[0]}"
    gain = quantiles(pick.gain)
    band = f"{gain['p50']:.2f}x over the traffic (90 %: {gain['p05']:.2f} to {gain['p95']:.2f})"
    sure = f"P(better) {pick.probability_better:.0%}"
    k = pick.best_enabled
    if pick.num_speculative_tokens:
        tail = "; by batch size it gains more, see the schedule" if schedule else ""
        return f"Enable {method} with k={k}: expected {band}, {sure}{tail}."
    if deployed and schedule:
        return f"Enable {method} only by batch size, see the schedule: one length for all loads gives {band}, {sure}."
    need = study.deployment.objective.min_probability_faster
    return f"Do not enable {method}: {pick.reason}; the best length, k={k}, is expected at {band}, {sure} ({need:.0%} asked)."


def _choice_why(study: Study, cells: Sequence[Cell], point: Grid, pick: Pick) -> list[str]:
    """Why, at the lowest and the highest load, for the length that is best when enabled."""
    k = pick.best_enabled
    columns = [i for i, cell in enumerate(cells) if cell.num_speculative_tokens == k]
    lines = explain.explain_cell(study, cells[columns[0]], point, columns[0])
    if len(columns) > 1:
        last = columns[-1]
        base = explain.parts_at(point.baseline.parts_s, last)
        lines.append(explain.baseline_sentence(study, cells[last], base))
        if k:
            spec = explain.parts_at(point.speculative.parts_s, last)
            lines.append(explain.difference_sentence(study, cells[last], base, spec))
    if k:
        lines += [explain.gain_end_sentence(study, k), f"Drafter: {study.system.drafter.description}."]
    return lines + explain.settling_observations(study, k)


def whatif(
    deployment: Deployment,
    vary: Mapping[str, Sequence[Any]],
    *,
    num_draws: int = DEFAULT_DRAWS,
    seed: int = 0,
) -> WhatIf:
    """Every combination of the varied keys; a variant that cannot be built has an `error` and does not stop the rest."""
    if not vary:
        raise InputError("whatif: got nothing to vary; allowed: one or more KEY=V1,V2")
    combinations = list(product(*vary.values()))
    if len(combinations) > _MAX_CELLS:
        raise InputError(f"whatif: got {len(combinations)} combinations, allowed at most {_MAX_CELLS}")
    rows = []
    for values in combinations:
        named = dict(zip(vary, values, strict=True))
        try:
            varied = apply_overrides(deployment, [f"{key}={_toml(value)}" for key, value in named.items()])
            rows.append(WhatIfRow(named, predict(varied, num_draws=num_draws, seed=seed)))
        except DraftcastError as error:
            rows.append(WhatIfRow(named, None, str(error)))
    if all(row.prediction is None for row in rows):
        raise InputError(f"whatif: no variant can be built; the first: {rows[0].error}")
    inputs = {
        "deployment": deployment.model_dump(mode="json", exclude_none=True),
        "vary": {key: list(values) for key, values in vary.items()},
        "num_draws": num_draws,
        "seed": seed,
    }
    return WhatIf(inputs, tuple(rows))


def _toml(value: Any) -> str:
    """A value as `--set` reads it: numbers, booleans and lists as JSON (the same in TOML), text bare."""
    return value if isinstance(value, str) else json.dumps(value)
