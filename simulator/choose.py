"""The grid of draft lengths and loads, and what to deploy."""

from collections.abc import Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from hwmodel.engine.flags import SpeculativeChoice, speculative_flag
from hwmodel.errors import InputError
from hwmodel.percent import percent, probability
from simulator import explain
from simulator.answers import (
    INTERVAL,
    checked_concurrency,
    collected_notes,
    does_not_fit,
    effects_on_clients,
    memory_report,
    method_findings,
    prediction_identity,
    recorded_inputs,
    waiting_notes,
)
from simulator.closed_form import Cell, Grid
from simulator.comparison import Comparison
from simulator.decision import Pick, Scores, pick_static, restart_value, score
from simulator.defaults import DEFAULT_DRAWS
from simulator.deployment import Deployment, with_method
from simulator.draft_lengths import checked_lengths, only_accepted_lengths
from simulator.drafter_name import loaded_drafter
from simulator.results import Choice, GridCell, JsonObject, Recommendation
from simulator.schedule import Scheduled, scheduled
from simulator.study import Study, build_study
from simulator.summary import median, quantile_rows, quantiles, share_above

Array = NDArray[np.float64]

_MAX_CELLS = 100_000
_DEFAULT_LENGTHS = range(9)


def choose(
    deployment: Deployment,
    *,
    num_speculative_tokens: Sequence[int] | None = None,
    concurrency: Sequence[int] | None = None,
    method: str | None = None,
    num_draws: int = DEFAULT_DRAWS,
    seed: int = 0,
) -> Choice:
    """The grid of draft lengths and concurrencies, and what to deploy.

    Without `num_speculative_tokens`: 0 to 8 and the deployment's own; without `concurrency`: the deployment's.
    """
    deployment, notes = with_method(deployment, method) if method else (deployment, ())
    own = deployment.speculation.num_speculative_tokens or 0
    asked_lengths = {*_DEFAULT_LENGTHS, own} if num_speculative_tokens is None else num_speculative_tokens
    lengths = checked_lengths(deployment, sorted(asked_lengths))
    asked = deployment.workload.concurrency if concurrency is None else concurrency
    loads = sorted({checked_concurrency(c) for c in asked})
    if not loads:
        raise InputError("concurrency: got an empty list, allowed 1 to 100000")
    cells = [Cell(k, c) for k, c in product(lengths, loads)]
    if len(cells) > _MAX_CELLS:
        raise InputError(f"grid: got {len(cells)} cells, allowed at most {_MAX_CELLS}")
    study = build_study(deployment, k_max=max(lengths), num_draws=num_draws, seed=seed)
    point, grid = study.grid(cells, point=True), study.grid(cells, point=False)
    speedup = study.with_model_error(grid)
    scores = score(deployment, cells, grid.baseline, grid.speculative, speedup, (point.baseline, point.speculative))
    scores = only_accepted_lengths(study, scores)
    pick = pick_static(scores, deployment.objective.min_probability_faster)
    by_size = _by_batch_size(Comparison(study, grid, speedup, scores), pick)
    recommendation, more = _recommendation(study, scores, pick, by_size)
    more = (*more, *_grid_notes(scores, pick))
    returned = by_size.throughput_gain
    if pick.num_speculative_tokens or returned is None:
        returned = _throughput_gain(cells, speedup, scores, pick.best_enabled)
    value = restart_value(deployment, returned, _capacity_throughput(point, scores))
    settings = {"num_speculative_tokens": list(lengths), "concurrency": loads, "num_draws": num_draws, "seed": seed}
    inputs = recorded_inputs(study, settings)
    shown = explained_length(deployment, lengths, pick)
    more = (*more, *waiting_notes(study, shown, loads))
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
        memory=memory_report(study, shown),
        why=tuple(_choice_why(study, cells, point, shown)),
        notes=tuple(dict.fromkeys((*more, *collected_notes(study, shown, notes)))),
        prediction_id=prediction_identity(inputs),
    )


def explained_length(deployment: Deployment, lengths: Sequence[int], pick: Pick) -> int:
    """The draft length that the explanation is about: the recommended one, else the file's own, else the best."""
    asked = deployment.speculation.num_speculative_tokens
    return pick.num_speculative_tokens or (asked if asked in lengths else 0) or pick.best_enabled


def _throughput_gain(cells: Sequence[Cell], speedup: Array, scores: Scores, k: int) -> Array:
    """Draws of the throughput gain of one draft length over the traffic, whatever the objective: what pays back."""
    columns = [cells.index(Cell(k, load)) for load in scores.loads]
    return np.asarray(speedup[:, columns] @ scores.weights)


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


def _refused(study: Study, pick: Pick) -> list[str]:
    """Why the engine version refuses the best length; empty where it takes it."""
    return [f.text for f in method_findings(study, pick.best_enabled) if f.severity == "error"]


def _by_batch_size(comparison: Comparison, pick: Pick) -> Scheduled:
    """The recommended schedule; none where there is nothing to enable."""
    if not pick.best_enabled or _refused(comparison.study, pick):
        return Scheduled(None, None)
    return scheduled(comparison, pick)


def _recommendation(
    study: Study, scores: Scores, pick: Pick, by_size: Scheduled
) -> tuple[Recommendation, tuple[str, ...]]:
    k, schedule = pick.num_speculative_tokens, by_size.ranges
    longest = max([k, *(row[2] for row in schedule or [])])  # vLLM clamps the schedule to num_speculative_tokens
    flag, notes = launch_flag(study, longest, schedule)
    deployed = bool(flag)
    only = by_size.gain if deployed and not k else None  # only a schedule is recommended: the figures are its
    gain = pick.gain if only is None else only
    return (
        Recommendation(
            num_speculative_tokens=longest if deployed else 0,
            best_if_enabled=pick.best_enabled,
            schedule=schedule,
            schedule_reason=by_size.reason,
            schedule_gain=None if by_size.gain is None else _interval(by_size.gain),
            flag=flag,
            restart_worth_it=deployed,
            probability_better=pick.probability_better if only is None else share_above(only, 1.0),
            gain=_interval(gain),
            by_load=_best_by_load(scores),
            why=_recommendation_text(study, scores, pick, by_size if deployed else Scheduled(None, None)),
            client_effects=effects_on_clients(study, pick.best_enabled),
        ),
        notes,
    )


def _interval(draws: Array) -> dict[str, float | None]:
    found = quantiles(draws)
    return {name: found[name] for name in INTERVAL}


def launch_flag(
    study: Study, num_speculative_tokens: int, schedule: list[list[int]] | None
) -> tuple[str, tuple[str, ...]]:
    """The launch text for the recommendation, empty for none; the version's notes on it."""
    if num_speculative_tokens == 0:
        return "", ()
    system, spec = study.system, study.deployment.speculation
    low, high = spec.lookup_range
    choice = SpeculativeChoice(
        method=system.method,
        num_speculative_tokens=num_speculative_tokens,
        draft_model=loaded_drafter(spec),
        prompt_lookup_min=low,
        prompt_lookup_max=high,
        draft_tensor_parallel_size=spec.draft_tensor_parallel_size,
        tensor_parallel_size=system.parallel.tensor,
        data_parallel_size=system.parallel.data,
        schedule=tuple((a, b, k) for a, b, k in schedule or []),
        model_runner=system.mode(num_speculative_tokens).model_runner,
        launch_config=spec.launch_config or {},
        sglang_topk=spec.sglang_topk or 1,
        sglang_num_draft_tokens=spec.sglang_num_draft_tokens,
        n_predict=system.n_predict,
    )
    try:
        flag = speculative_flag(system.deployment.engine.name, system.mode(0).version, choice)
    except InputError as error:
        return "", (str(error),)
    return flag.text, flag.notes


def _recommendation_text(study: Study, scores: Scores, pick: Pick, by_size: Scheduled) -> str:
    """The answer in some sentences; first, where it does not fit as it stands, that."""
    unfit = does_not_fit(study)
    if unfit and pick.best_enabled and not pick.num_speculative_tokens and by_size.gain is None:
        unfit += "`draftcast options` names what would fit. "
    return unfit + _answer(study, scores, pick, by_size)


def _answer(study: Study, scores: Scores, pick: Pick, by_size: Scheduled) -> str:
    """What to enable, or why not."""
    method, k = study.system.method, pick.best_enabled
    if method == "none":
        return "No speculation method is named, so there is nothing to enable."
    if k == 0:
        return "Only the baseline was asked for, so there is nothing to enable."
    errors = _refused(study, pick)
    if errors:
        return f"Do not enable {method}: {errors[0]}"
    objective = study.deployment.objective
    unit = "" if objective.maximise == "throughput" else f" {objective.maximise}"
    expected = _expected(pick.gain, unit)
    if pick.num_speculative_tokens:
        tail = "" if by_size.gain is None else f"; by batch size {median(by_size.gain):.2f}x, see the schedule"
        return f"Enable {method} with k={k}: expected {expected}{tail}."
    if by_size.gain is not None:
        one = f"one length for all loads gives {expected}"
        return f"Enable {method} only by batch size, see the schedule: expected {_expected(by_size.gain, unit)}; {one}."
    need = objective.min_probability_faster
    text = f"Do not enable {method}: {pick.reason}; the best length, k={k}, is expected at {expected}"
    return f"{text} ({percent(need)} asked).{_worthwhile_loads(scores, need)}"


def _expected(draws: Array, unit: str) -> str:
    """Median, interval and odds of a gain over the traffic."""
    gain = quantiles(draws)
    band = f"{gain['p50']:.2f}x{unit} over the traffic (90 %: {gain['p05']:.2f} to {gain['p95']:.2f})"
    return f"{band}, P(better) {probability(share_above(draws, 1.0))}"


def _grid_notes(scores: Scores, pick: Pick) -> list[str]:
    """What the grid itself leaves open: loads that miss the limits, a best length at its edge."""
    notes = []
    missed = [load for j, load in enumerate(scores.loads) if not scores.within_limits[:, j].any()]
    if missed:
        notes.append(f"no draft length keeps the objective's limits at concurrency {', '.join(map(str, missed))}")
    if pick.num_speculative_tokens == max(scores.lengths) > 0:
        notes.append(
            f"k={pick.num_speculative_tokens} is the largest length compared: a longer one may be better, see -k"
        )
    return notes


def _best_by_load(scores: Scores) -> list[JsonObject]:
    """For each load the draft length with the largest median gain (0: the baseline), and how sure it is."""
    rows: list[JsonObject] = []
    for j, load in enumerate(scores.loads):
        medians = median(scores.gain[:, :, j])
        usable = [i for i in range(len(scores.lengths)) if scores.lengths[i] == 0 or scores.allowed[i, j]]
        within = bool(scores.within_limits[:, j].any())
        best = max(usable, key=lambda i: (float(medians[i]), -scores.lengths[i]))
        k = scores.lengths[best]
        probability = share_above(scores.gain[:, best, j], 1.0) if k else 0.0
        row = {"concurrency": load, "num_speculative_tokens": k, "gain": float(medians[best])}
        rows.append({**row, "probability_better": probability, "within_limits": within})
    return rows


def _worthwhile_loads(scores: Scores, min_probability: float) -> str:
    """A sentence on the loads at which a length would pay by itself; empty without one, or with one load only."""
    rows = _best_by_load(scores)
    good = [r for r in rows if r["num_speculative_tokens"] and r["probability_better"] >= min_probability]
    if not good or len(rows) == 1:
        return ""
    parts = ", ".join(
        f"k={r['num_speculative_tokens']} at concurrency {r['concurrency']} ({r['gain']:.2f}x,"
        f" P(better) {probability(r['probability_better'])})"
        for r in good
    )
    return f" It would pay at low load alone: {parts}." if good[-1] is not rows[-1] else f" It would pay for: {parts}."


def _choice_why(study: Study, cells: Sequence[Cell], point: Grid, k: int) -> list[str]:
    """Why, at the lowest and the highest load, for draft length `k`."""
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
