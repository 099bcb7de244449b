"""The forward model of the fit: coordinates in, the questions' answers out, many rows at once.

Every answer comes from the closed form that `predict` uses (`simulator.closed_form`); nothing is computed here but
which of its figures a measurement is compared with.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from calibration.coordinates import Coordinates
from calibration.questions import Question, Setting
from hwmodel.allreduce_curve import AllReduceCurve
from hwmodel.parameters import Parameters
from hwmodel.residual import NUM_LOG_FACTORS, NUM_ROW_KNOTS, StepResidual
from simulator.closed_form import Load, PrefillCost, arm, baseline_step, prefill_cost, speculative_step
from simulator.deployment import with_method
from simulator.facts import allreduce_logit
from simulator.system import System, build_system

Array = NDArray[np.float64]


def settled(system: System, setting: Setting, curve: AllReduceCurve | None) -> System:
    """The system with the drafter and the lengths of a measurement."""
    deployment = system.deployment
    if setting.num_speculative_tokens and setting.method != system.method:
        deployment, _ = with_method(deployment, setting.method)
        system = replace(build_system(deployment, curve), priors=system.priors)
    lengths = {"input_tokens": setting.input_tokens, "output_tokens": setting.output_tokens}
    workload = deployment.workload.changed(**lengths)
    return replace(system, deployment=system.deployment.changed(workload=workload))


@dataclass(frozen=True)
class _Batch:
    """Questions that one call of the closed form answers."""

    system: System
    index: list[int]  # their places
    questions: list[Question]
    nuisance: int | None  # coordinate of the tokens per step, where nobody counted them

    def column(self, name: str) -> Array:
        """A number of every question, `(num_questions,)`."""
        return np.array([getattr(q, name) for q in self.questions], dtype=float)


class Forward:
    """The questions and the layout of the coordinates: parameters, knots, drafted steps, then unknown acceptances."""

    def __init__(
        self,
        system: System,
        questions: Sequence[Question],
        coordinates: Coordinates,
        curve: AllReduceCurve | None = None,
        fixed: tuple[tuple[int, float], ...] = (),
    ) -> None:
        """`fixed` are coordinates held at a value, whatever is asked."""
        self.system, self.questions, self.coordinates = system, tuple(questions), coordinates
        self.fixed = fixed
        self.num_parameters = len(system.priors.priors)
        grouped: dict[tuple[Setting, bool], list[int]] = {}
        for i, question in enumerate(self.questions):
            grouped.setdefault((question.setting, question.tokens_per_step is None), []).append(i)
        self._batches = [
            _Batch(
                settled(system, setting, curve),
                index,
                [self.questions[i] for i in index],
                coordinates.names.index(nuisance_name(setting)) if unknown else None,
            )
            for (setting, unknown), index in grouped.items()
        ]

    @property
    def residuals(self) -> slice:
        """Where the residual coordinates stand."""
        return slice(self.num_parameters, self.num_parameters + NUM_LOG_FACTORS)

    @property
    def by_rows(self) -> slice:
        """Where the log factors by token rows stand."""
        return slice(self.num_parameters, self.num_parameters + NUM_ROW_KNOTS)

    def parameters(self, y: Array, *, residual: bool = True) -> Parameters:
        """The parameters at rows of coordinates, with the residual or without."""
        z = y[:, : self.num_parameters]
        if self.fixed:
            z = z.copy()
            for index, value in self.fixed:
                z[:, index] = value
        parameters = self.system.priors.parameters(z)
        if not residual:
            return parameters
        return replace(parameters, residual=StepResidual.of(y[:, self.residuals]))

    def predict(self, y: Array) -> Array:
        """Predictions of all questions on the scale of the fit, `(rows, num_questions)`."""
        p = self.parameters(y)
        answers = np.empty((len(y), len(self.questions)))
        for batch in self._batches:
            answers[:, batch.index] = _answers(batch, p, y)
        return answers


def nuisance_name(setting: Setting) -> str:
    """Name of the coordinate of uncounted tokens per step."""
    return f"tokens per step ({setting.method}, k={setting.num_speculative_tokens}), log"


def _answers(batch: _Batch, p: Parameters, y: Array) -> Array:
    system, k = batch.system, batch.questions[0].setting.num_speculative_tokens
    requests, context = batch.column("requests"), batch.column("context_tokens")
    sequences = np.maximum(requests / system.batch_divisor, 1.0)
    alone = baseline_step(system, p, sequences, context)
    step = alone
    if k:
        share = batch.column("draft_probability")[None, :]
        step = speculative_step(system, p, np.full(len(sequences), k), sequences, share, context)
    tokens = batch.column("tokens_per_step")[None, :] if batch.nuisance is None else np.exp(y[:, [batch.nuisance]])
    prefill = prefill_cost(system, p, sequences, alone.total_s)
    mask = batch.column("with_prompts")
    prefill = PrefillCost(prefill.added_s * mask, prefill.steps)
    result = arm(system, step, prefill, tokens, Load(requests, requests, ("concurrency",) * len(requests)))
    shape = (len(y), len(requests))
    made: dict[str, Array] = {}
    for quantity in {q.quantity for q in batch.questions}:
        if quantity == "allreduce_share":
            value = allreduce_logit(alone.parts_s["allreduce"], alone.total_s)
        elif quantity == "throughput":
            value = np.log(result.throughput_tokens_per_s)
        else:
            value = np.log(result.tpot_s * (tokens if quantity == "step" else 1.0))
        made[quantity] = np.broadcast_to(value, shape)
    return np.stack([made[q.quantity][:, i] for i, q in enumerate(batch.questions)], axis=1)
