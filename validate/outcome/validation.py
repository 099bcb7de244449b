"""A run held against its predictions: from the cells to the verdict, the causes and the entry for the ledger."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from calibration.records import Evidence
from calibration.selection import select
from hwmodel.errors import InputError
from simulator.deployment import Deployment
from validate.ledger.entries import clean, shown_source
from validate.ledger.store import Ledger
from validate.outcome.advice import next_steps, verdict
from validate.outcome.causes import causes_of, load_differences
from validate.outcome.figures import (
    Baseline,
    baseline_of_cell,
    baseline_of_fact,
    figures_of,
    measured_speedup,
)
from validate.outcome.predicted import Asked, Studies, asked_of, recorded, same_tables
from validate.outcome.run_data import Run, RunCell
from validate.outcome.scored import HEADLINES, Cause, Scored
from validate.outcome.split import split_of

JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be validated; `prediction` is an id that the user named."""

    deployment: Deployment
    run: Run
    baseline: Run | None = None
    prediction: str | None = None
    num_draws: int = 2000
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Validation:
    """What came of it."""

    question: Question
    run: Run  # with the cells that cannot be compared refused
    studies: Studies
    scored: tuple[Scored, ...]
    causes: tuple[Cause, ...]
    notes: tuple[str, ...]

    def to_dict(self, refit: JsonObject | None = None) -> JsonObject:
        """The JSON object of `draftcast validate --json`, without its inputs; `refit` is what became of a new fit."""
        return {
            "verdict": verdict(self.run, self.scored),
            "blind": bool(self.scored) and all(cell.predicted.blind for cell in self.scored),
            "cells": [_cell_dict(cell) for cell in self.scored],
            "not_scored": [
                {"concurrency": cell.concurrency or None, "reason": cell.refused}
                for cell in self.run.cells
                if cell.refused
            ],
            "causes": [cause.to_dict() for cause in self.causes if cause.matters],
            "ruled_out": [cause.to_dict() for cause in self.causes if not cause.matters],
            "next": next_steps(self.run, self.scored, self.studies, refitted=refit is not None),
            "refit": refit,
            "run": clean(
                {
                    "source": shown_source(self.run.source),
                    "sha256": self.run.sha256,
                    "server": dict(self.run.server),
                }
            ),
            "notes": list(dict.fromkeys(self.notes)),
        }


def validate(question: Question, ledger: Ledger | None) -> Validation:
    """The run of the question against what was predicted."""
    run, deployment = _comparable(question.run, question), question.deployment
    asked = asked_of(run, deployment)
    k_max = max((item.num_speculative_tokens for item in asked), default=1)
    studies = Studies(deployment, max(k_max, 1), question.num_draws, question.seed)
    predicted = recorded(ledger, asked, studies, question.prediction)
    baselines, notes = _baselines(question, run)
    scored = []
    for item, prediction in zip(asked, predicted, strict=True):
        baseline, cell = baselines.get(item.cell.concurrency, (None, None))
        figures = figures_of(item, prediction, baseline)
        if not any(name in figures for name in HEADLINES):
            run = _refused(run, item.cell, "the prediction has no finite interval for what was measured")
            continue
        split, reason = split_of(item, prediction, studies)
        scored.append(Scored(item, prediction, figures, split, reason, baseline, cell))
    causes = causes_of(run, scored, studies)
    notes = [*deployment.notes, *notes, *_notes(asked, scored, deployment), *run.evidence.notes]
    return Validation(question, run, studies, tuple(scored), tuple(causes), tuple(notes))


def _comparable(run: Run, question: Question) -> Run:
    """The run without the cells that `calibrate` would refuse as well: another engine, another model, another unit."""
    if not run.usable:
        return run
    system = Studies(question.deployment, 1, 1, 0).of(question.deployment.speculation.method).system
    for cell in run.usable:
        assert cell.measured is not None
        found = select(system, Evidence(cells=(cell.measured,)), lambda method, k: 1.0)
        if found.refused and all(question.kind == "fact" for question in found.questions):
            run = _refused(run, cell, found.refused[0].reason)
    return run


def _refused(run: Run, cell: RunCell, reason: str) -> Run:
    cells = tuple(replace(item, measured=None, refused=reason) if item is cell else item for item in run.cells)
    return replace(run, cells=cells)


def _baselines(question: Question, run: Run) -> tuple[dict[int, tuple[Baseline, RunCell | None]], list[str]]:
    """What the speedup is measured against, by concurrency: a baseline run, else the deployment's facts; and notes."""
    found: dict[int, tuple[Baseline, RunCell | None]] = {}
    notes: list[str] = []
    deployment = question.deployment
    if deployment.measured_on is deployment:
        for index, fact in enumerate(deployment.measured):
            baseline = baseline_of_fact(fact, index)
            if baseline is not None:
                found[fact.concurrency] = (baseline, None)
    for source in filter(None, (run, question.baseline)):
        cells = [cell for cell in source.usable if cell.measured and cell.measured.num_speculative_tokens == 0]
        for cell in cells:
            found[cell.concurrency] = (baseline_of_cell(cell, source.source), cell)
        if source is question.baseline:
            notes += _baseline_notes(question, cells)
    return found, notes


def _baseline_notes(question: Question, cells: Sequence[RunCell]) -> list[str]:
    assert question.baseline is not None
    refused = [f"at {cell.concurrency}: {cell.refused}" for cell in question.baseline.cells if cell.refused]
    notes = [f"baseline run: a cell cannot be used ({text})" for text in refused[:3]]
    if not cells and not refused:
        raise InputError(
            f"--baseline-run: {question.baseline.source} has no cell without speculation; "
            "allowed: a run of the server before it speculated"
        )
    different = load_differences(question.run, question.baseline)
    if different:
        notes.append(
            f"the baseline's run was sent another load ({'; '.join(different[:3])}): the speedup mixes the two"
        )
    return notes


def _notes(asked: Sequence[Asked], scored: Sequence[Scored], deployment: Deployment) -> list[str]:
    notes = [item.assumed for item in asked if item.assumed]
    if scored and not any(cell.predicted.entry for cell in scored):
        notes.append(
            "no prediction of this was on file before the run: predicted now, so this is not a blind prediction"
        )
    fresh = [cell.concurrency for cell in scored if cell.predicted.entry is None]
    if fresh and len(fresh) < len(scored):
        notes.append(f"concurrency {', '.join(map(str, fresh))}: not on file, predicted now: not blind")
    late = [cell for cell in scored if cell.predicted.entry is not None and not cell.predicted.blind]
    if late and not all(cell.question.cell.is_dated for cell in late):
        notes.append("the run does not tell when it was measured: that the prediction is older cannot be shown")
    elif late:
        notes.append("the prediction is younger than the run: it is not blind, and does not count in the track record")
    others = {
        cell.predicted.entry.prediction_id
        for cell in scored
        if cell.predicted.entry is not None and not same_tables(cell.predicted.body, deployment)
    }
    for identity in sorted(others):
        notes.append(f"prediction {identity} was made for other settings or another workload than this deployment's")
    return notes


def _cell_dict(cell: Scored) -> JsonObject:
    """One cell of the contract: the figure that speaks for it on top, all of them in `quantities`."""
    headline, entry = cell.headline, cell.predicted.entry
    speedup_by = None
    if "speedup" in cell.figures and cell.baseline is not None:
        speedup_by = measured_speedup(cell.question.cell, cell.baseline)[1]
    return {
        "concurrency": cell.concurrency,
        "num_speculative_tokens": cell.question.num_speculative_tokens,
        "method": cell.question.method if cell.question.num_speculative_tokens else "none",
        "quantity": headline.name,
        "predicted": headline.to_dict()["predicted"],
        "measured": headline.measured,
        "inside_interval": headline.inside,
        "within_noise": headline.within_noise,
        "quantities": {name: figure.to_dict() | _parts(cell, name) for name, figure in cell.figures.items()},
        "split_reason": cell.split_reason,
        "acceptance": None
        if cell.split is None
        else {"predicted": cell.split.predicted.to_dict(), "measured": cell.split.measured.to_dict()},
        "baseline": None if cell.baseline is None else cell.baseline.source,
        "speedup_by": speedup_by,
        "blind": cell.predicted.blind,
        "prediction_id": None if entry is None else entry.prediction_id,
        "predicted_at": None if entry is None else entry.created,
    }


def _parts(cell: Scored, name: str) -> JsonObject:
    if cell.split is None:
        return {"acceptance_part": None, "cost_part": None}
    acceptance, cost = cell.split.parts(cell.figures[name])
    return {"acceptance_part": acceptance, "cost_part": cost}
