"""The draft lengths compared for the traffic of one window: the model of `predict`, anchored at the measured time."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration.records import AcceptanceCounts
from hwmodel.errors import InputError
from hwmodel.parameters import fitted_values
from hwmodel.units import MS
from simulator.anchor import DraftedFact
from simulator.answers import INTERVAL, draft_length, method_findings, scheduled_length
from simulator.closed_form import Cell
from simulator.decision import score
from simulator.deployment import Deployment
from simulator.deployment.speculation import LOOKUP_METHODS, MAX_DRAFT_TOKENS, Acceptance
from simulator.deployment.tables import MAX_CONCURRENCY, MAX_TOKENS, Measured
from simulator.study import Study, build_study
from simulator.summary import median, quantiles, share_above
from validate.watch.traffic import Traffic

Array = NDArray[np.float64]

DEFAULT_LENGTHS = tuple(range(9))
_FAR_OFF = 3.0  # of the noise of the measured time at the posterior's mode: the model cannot follow it
_MIN_NOISE = 0.01
_WALK = 1.2  # of the model's error, per root of ln(1 + k): 178 pairs of published draft lengths (docs/watch.md, W2)
_ALL_LENGTHS: Array = np.arange(MAX_DRAFT_TOKENS + 1.0)


@dataclass(frozen=True, slots=True)
class Asked:
    """Which lengths are compared, and how."""

    lengths: tuple[int, ...] | None = None  # None: 0 to 8 and the deployed one
    num_draws: int = 1000
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Advice:
    """Draws of the gain of every length over no speculation, `(num_draws,)` each, for one window's traffic."""

    deployed: int
    gains: dict[int, Array]
    acceptance_source: str
    notes: tuple[str, ...] = ()

    def over(self, k: int, other: int) -> Array:
        """Draws of the gain of `k` over `other`."""
        return np.asarray(self.gains[k] / self.gains[other])

    @property
    def best(self) -> int:
        """The length with the largest median gain over the deployed one; the shortest of equals."""
        medians = {k: round(float(median(self.over(k, self.deployed))), 6) for k in self.gains}
        return max(medians, key=lambda k: (medians[k], k == self.deployed, -k))

    def figures(self, k: int) -> dict[str, float | None]:
        """Quantiles of the gain of `k` over the deployed length."""
        found = quantiles(self.over(k, self.deployed))
        return {name: found[name] for name in INTERVAL}

    def probability_better(self, k: int) -> float:
        """That `k` is faster than the deployed length."""
        return 0.0 if k == self.deployed else share_above(self.over(k, self.deployed), 1.0)

    def rows(self) -> list[dict[str, Any]]:
        """Every length, for JSON."""
        return [
            {"num_speculative_tokens": k, "speedup": self.figures(k), "probability_better": self.probability_better(k)}
            for k in sorted(self.gains)
        ]


class UnknownError(InputError):
    """The window's traffic is known, but not what another draft length would do with it."""


def advice_for(deployment: Deployment, traffic: Traffic, asked: Asked) -> Advice:
    """The lengths compared for this traffic; `UnknownError` where something is missing, with what it is."""
    deployed = deployed_length(deployment, traffic)
    method = deployment.speculation.method
    if method == "none":
        raise UnknownError(
            "no method is named, so there is nothing to compare with: --method NAME, and --acceptance FILE of "
            "draftcast replay for what would be accepted"
        )
    lengths = compared_lengths(deployment, deployed, asked.lengths)
    acceptance, source = acceptance_now(deployment, traffic, deployed)
    changed = _deployment(deployment, traffic, deployed, acceptance)
    study = build_study(
        changed, k_max=max(lengths), num_draws=asked.num_draws, seed=asked.seed, drafted=_drafted(traffic, deployed)
    )
    lengths = tuple(k for k in lengths if k in (0, deployed) or not _refused(study, k))
    cells = [Cell(k, load) for k in lengths for load in changed.workload.concurrency]
    point, grid = (study.grid(cells, point=point) for point in (True, False))
    speedup = grid.speedup * _model_error(study, cells, deployed)
    scores = score(changed, cells, grid.baseline, grid.speculative, speedup, (point.baseline, point.speculative))
    usable = {k for i, k in enumerate(scores.lengths) if scores.allowed[i].all()} | {deployed}
    overall = scores.overall
    gains = {k: np.maximum(overall[:, i], 1e-9) for i, k in enumerate(scores.lengths) if k in usable}
    return Advice(deployed, gains, source, _notes(study))


def deployed_length(deployment: Deployment, traffic: Traffic) -> int:
    """What drafts now: as /metrics shows it, else as the deployment says; by the load where a schedule is deployed."""
    spec = deployment.speculation
    told = traffic.num_speculative_tokens
    if told != 0 and spec.schedule and spec.effective_policy == "schedule":
        return scheduled_length(spec.schedule, max(1, round(traffic.concurrency)))
    if told is not None:
        return told
    if spec.num_speculative_tokens is None:
        raise UnknownError(
            "the server does not tell its draft length, and the deployment does not either: "
            "--set speculation.num_speculative_tokens=N"
        )
    return spec.num_speculative_tokens


def compared_lengths(deployment: Deployment, deployed: int, asked: Sequence[int] | None) -> tuple[int, ...]:
    """The lengths to compare, no speculation and the deployed one among them; those asked for must be possible."""
    for k in asked or ():
        draft_length(deployment, k)
    return tuple(sorted({0, deployed, *(DEFAULT_LENGTHS if asked is None else asked)}))


def _refused(study: Study, k: int) -> bool:
    return any(finding.severity == "error" for finding in method_findings(study, k))


def acceptance_now(deployment: Deployment, traffic: Traffic, deployed: int) -> tuple[Acceptance | None, str]:
    """(the acceptance to predict with, in words whose it is)."""
    spec, counts = deployment.speculation, traffic.acceptance
    if deployed and counts is not None:
        share = traffic.draft_probability if spec.method in LOOKUP_METHODS else None
        if traffic.acceptance_source == "window":
            return _counted(counts, traffic.num_requests), f"{counts.drafts:.0f} drafts of this interval"
        return (
            _counted(counts, counts.num_requests, share),
            f"{counts.drafts:.0f} drafts since the server's start (too few in this interval)",
        )
    if deployed and traffic.tokens_per_step is not None and counts is None and traffic.tokens_per_step > 1:
        length = min(traffic.tokens_per_step, deployed + 1.0)  # SGLang: a gauge of tokens per verify step
        if spec.method not in LOOKUP_METHODS:
            return Acceptance(mean_length=length, measured_at_k=deployed), "tokens per step of this interval"
    if spec.acceptance is not None:
        return spec.acceptance, f"the deployment's ({spec.acceptance.form})"
    if deployed:
        raise UnknownError("too few drafts since the server's start to tell what is accepted")
    return None, "a prior: replay recorded outputs (draftcast replay) and give --acceptance FILE to know better"


def _counted(counts: AcceptanceCounts, num_requests: float | None, share: float | None = None) -> Acceptance:
    """Counts as a deployment file states them; positions that a racing counter has put out of order are levelled."""
    positions = list(accumulate(counts.accepted_per_position, min, initial=counts.drafts))[1:]
    counters: dict[str, object] = {
        "num_drafts": counts.drafts,
        "num_accepted_tokens": sum(positions),
        "num_accepted_tokens_per_pos": positions,
    }
    if counts.steps is not None:
        counters["itl_count"] = max(counts.steps, counts.drafts)
    requests = None if not num_requests else max(round(num_requests), 1)
    return Acceptance(counters=counters, num_requests=requests, draft_probability=share)


def _deployment(deployment: Deployment, traffic: Traffic, deployed: int, acceptance: Acceptance | None) -> Deployment:
    """The deployment with the traffic of now."""
    loads, weights = _loads(traffic.concurrency)
    workload: dict[str, Any] = {"concurrency": loads, "weights": weights}
    for name in ("input_tokens", "output_tokens"):
        value = getattr(traffic, name)
        if value is not None:
            workload[name] = int(min(max(round(value), 1), MAX_TOKENS))
    if traffic.prefix_hit_share is not None:
        workload["prefix_cache_hit_share"] = min(traffic.prefix_hit_share, 1.0)
    spec: dict[str, Any] = {"acceptance": acceptance, "schedule": None}
    if deployed:
        spec["num_speculative_tokens"] = deployed
    changed = deployment.changed(
        workload=deployment.workload.changed(**workload), speculation=deployment.speculation.changed(**spec)
    )
    facts = deployment.measured if deployment.measured_on is deployment else ()
    return changed.changed(measured=(*facts, *_fact(changed, traffic, deployed)), _measured_on=None)


def _loads(concurrency: float) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """The two whole loads around a mean one, with what each counts.

    >>> _loads(2.25), _loads(3.0)
    (((2, 3), (0.75, 0.25)), ((3,), (1.0,)))
    """
    load = min(max(concurrency, 1.0), float(MAX_CONCURRENCY))
    low = int(load)
    above = load - low
    return ((low,), (1.0,)) if above < 1e-9 else ((low, low + 1), (1.0 - above, above))


def _fact(deployment: Deployment, traffic: Traffic, deployed: int) -> tuple[Measured, ...]:
    """What the window says of a baseline: its time per token, and the KV cache that its engine has."""
    if deployed:
        return ()
    return (
        Measured(
            concurrency=max(1, round(traffic.concurrency)),
            tpot_ms=traffic.tpot_s / MS,
            context_tokens=max(1, round(deployment.workload.context_tokens)),
            kv_cache_tokens=None if traffic.kv_cache_tokens is None else max(1, round(traffic.kv_cache_tokens)),
            relative_noise=max(traffic.relative_noise, _MIN_NOISE),
        ),
    )


def _drafted(traffic: Traffic, deployed: int) -> DraftedFact | None:
    """What the window says of the step with drafts in it."""
    if not deployed:
        return None
    inputs, outputs = traffic.input_tokens, traffic.output_tokens
    context = None if inputs is None or outputs is None else inputs + outputs / 2
    return DraftedFact(
        num_speculative_tokens=deployed,
        concurrency=max(traffic.concurrency, 1.0),
        context_tokens=context,
        draft_probability=min(1.0 if traffic.draft_probability is None else traffic.draft_probability, 1.0),
        tokens_per_step=traffic.tokens_per_step or 1.0,
        tpot_s=traffic.tpot_s,
        relative_noise=max(traffic.relative_noise, _MIN_NOISE),
    )


def _model_error(study: Study, cells: Sequence[Cell], deployed: int) -> Array:
    """What the model may be off by at each cell, `(num_draws, num_cells)` (docs/watch.md, eq. W2).

    Nothing drafts: one factor for all lengths, as in `predict`. Something does, and was timed: none at that length,
    and from there a random walk in ln(1 + k), since one timed step says nothing about how it grows with its tokens.
    """
    lengths = np.array([cell.num_speculative_tokens for cell in cells])
    if not deployed:
        return np.asarray(np.where(lengths > 0, study.model_error_factor, 1.0))
    num_draws = len(study.z)
    stream = np.random.default_rng(study.seed).spawn(4)[3]  # the first three are those of the study
    steps = stream.standard_normal((MAX_DRAFT_TOKENS, num_draws)).T * np.sqrt(np.diff(np.log1p(_ALL_LENGTHS)))
    walk = np.concatenate([np.zeros((num_draws, 1)), np.cumsum(steps, axis=1)], axis=1)
    growth = _WALK * growth_error_scale(study) * study.parameters.model_error
    return np.asarray(np.exp(growth * (walk[:, lengths] - walk[:, [0]])))


def growth_error_scale(study: Study) -> float:
    """How many times the usual error the growth of a step may have: more on a kind of chip that nobody has fitted.

    1 with a profile of this very deployment: its residual over token rows is in the draws, its error in the parameters.
    """
    if study.residual is not None:
        return 1.0
    return float(fitted_values()["gpu"].get(study.system.gpu.sm_arch, {}).get("growth_error_scale", 1.0))


def _notes(study: Study) -> tuple[str, ...]:
    off = float(np.max(np.abs(study.posterior.residuals), initial=0.0))
    if off <= _FAR_OFF:
        return ()
    return (
        f"the measured time is {off:.0f} standard errors from what the model can be made to say: is the deployment "
        "(GPU, model, parallel sizes) the server's?",
    )
