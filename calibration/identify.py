"""What the measurements leave open, why, and which further measurement would narrow the answer most.

Linear and Gaussian around the mode: a measurement with Jacobian J and noise S takes the covariance from C to
C - C J' (J C J' + S)^-1 J C, whatever it will show (docs/calibration.md, eq. C5).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from calibration.candidates import Candidate, candidates
from calibration.fit_result import FitResult
from calibration.plan import Fitted, Plan
from calibration.widening import Belief, Spread, belief_before, got_wider, half_width, reason, sentence, spread_of
from simulator.acceptance import AcceptanceDraws, acceptance_draws
from simulator.closed_form import Cell, evaluate
from simulator.deployment import Deployment
from simulator.deployment.load import with_profile
from simulator.deployment.speculation import LOOKUP_METHODS, Acceptance
from simulator.facts import RUN_REQUESTS
from simulator.profile import SCATTER_SHARE, Profile
from simulator.study import Study, build_study

Array = NDArray[np.float64]

_OPEN = 0.75  # posterior over prior standard deviation above which a parameter was hardly told
_UNTOUCHED = 0.9  # the same, had everything else been known: nothing measured depends on it
_COMPANION = 0.35  # correlation that is worth a word
_TOLD = 0.8  # of its spread left: a measurement that tells a parameter
_DIFFERENCE = 1e-3
_DEFAULT_LENGTH = 3
_MOST_CELLS = 8
_NUM_DRAWS = 1000  # a standard deviation is then known to 2 %, the end of an interval to 3 %


@dataclass(frozen=True, slots=True)
class Undetermined:
    """A parameter that the measurements hardly tell.

    `spread_left` is its posterior over its prior spread, `influence` what it alone adds to the spread of ln(speedup)
    (root mean square over the cells).
    """

    name: str
    spread_left: float
    influence: float
    why: str


@dataclass(frozen=True, slots=True)
class Worth:
    """What a measurement is worth: standard deviation of ln(speedup) over the deployment's cells, before and after."""

    name: str
    text: str
    restarts: int
    spread_before: float
    spread_after: float

    @property
    def narrows(self) -> float:
        """By how much the spread shrinks, relative."""
        return 1.0 - self.spread_after / self.spread_before


@dataclass(frozen=True, slots=True)
class Identified:
    """What is open and what would tell it; without a method there is no speedup to narrow."""

    undetermined: tuple[Undetermined, ...]
    measurements: tuple[Worth, ...]
    cells: tuple[Cell, ...]
    parts: dict[str, float]  # spread of ln(speedup) from parameters, acceptance and model error
    wider: str = ""  # why the answer got wider by these measurements, where it did
    widening: float | None = None  # of the spread, by a model error above the usual one


def identify(plan: Plan, fitted: Fitted, deployment: Deployment, profile: Profile, seed: int = 0) -> Identified:
    """What the fit leaves open for this deployment."""
    k = deployment.speculation.num_speculative_tokens or _DEFAULT_LENGTH
    if plan.system.method == "none":
        return Identified(_undetermined(plan, fitted.fit, None, []), (), (), {})
    study = build_study(with_profile(deployment, profile), k_max=k, num_draws=_NUM_DRAWS, seed=seed)
    loads = study.deployment.workload.concurrency
    cells = tuple(Cell(k, c) for c in loads[:: -(-len(loads) // _MOST_CELLS)])
    answer = _Answer(plan, fitted, study, cells)
    proposed = candidates(plan, fitted, study, k)
    slopes = [_slopes(candidate.predict, fitted.fit) for candidate in proposed]
    worth = [answer.worth(candidate, jacobian) for candidate, jacobian in zip(proposed, slopes, strict=True)]
    told = [(c.name, _narrowed(fitted.fit.covariance, j, c.noise)) for c, j in zip(proposed, slopes, strict=True)]
    worth.sort(key=lambda item: item.spread_after)
    return Identified(
        _undetermined(plan, fitted.fit, answer.slopes, told),
        tuple(worth),
        cells,
        answer.parts(),
        answer.wider(build_study(deployment, k_max=k, num_draws=_NUM_DRAWS, seed=seed)),
        answer.widening(),
    )


def _slopes(predict: Callable[[Array], Array], fit: FitResult) -> Array:
    """Jacobian of `predict` at the mode, `(m, n)`."""
    steps = _DIFFERENCE * fit.coordinates.spread
    values = predict(np.concatenate([fit.mode[None, :], fit.mode + np.diag(steps)]))
    return np.asarray(((values[1:] - values[0]) / steps[:, None]).T)


def _narrowed(covariance: Array, jacobian: Array, noise: Array) -> Array:
    """The covariance after a measurement."""
    if not len(noise):
        return covariance
    reach = jacobian @ covariance
    gain = np.linalg.solve(reach @ jacobian.T + np.diag(noise**2), reach)
    return np.asarray(covariance - reach.T @ gain)


@dataclass(frozen=True)
class _Answer:
    """ln(speedup) at the cells: its slopes, and what its spread is made of."""

    plan: Plan
    fitted: Fitted
    study: Study
    cells: tuple[Cell, ...]

    @property
    def acceptance(self) -> AcceptanceDraws:
        """What is known of drafts of the length in question."""
        return self.study.acceptance.for_length(self.cells[0].num_speculative_tokens)

    def log_speedup(self, y: Array) -> Array:
        """ln(speedup) at rows of coordinates, at the median acceptance, `(rows, num_cells)`."""
        survival = self.acceptance.median_survival
        share = np.array([[self.acceptance.median_draft_probability]])
        p = self.fitted.forward.parameters(y)
        grid = evaluate(self.study.system, p, self.cells, survival, share, self.study.kv_cache_tokens)
        return np.asarray(np.log(grid.speedup))

    def of_acceptance(self, acceptance: AcceptanceDraws) -> Array:
        """Variance of ln(speedup) from acceptance alone, `(num_cells,)`."""
        mode = np.repeat(self.fitted.fit.mode[None, :], len(acceptance.survival), axis=0)
        p, share = self.fitted.forward.parameters(mode), acceptance.draft_probability
        grid = evaluate(self.study.system, p, self.cells, acceptance.survival, share, self.study.kv_cache_tokens)
        return np.asarray(np.var(np.log(grid.speedup), axis=0))

    def counted(self) -> AcceptanceDraws:
        """Acceptance as it would be known from the counters of a run: at its present median."""
        known, spec = self.acceptance, self.study.deployment.speculation
        stated = Acceptance(
            per_position=tuple(np.minimum.accumulate(np.clip(known.median_survival[0], 0.0, 1.0)).tolist()),
            draft_probability=known.median_draft_probability if spec.method in LOOKUP_METHODS else None,
            num_requests=RUN_REQUESTS,
        )
        system = self.study.system
        return acceptance_draws(
            spec.changed(acceptance=stated),
            self.study.deployment.workload,
            k_max=known.median_survival.shape[1],
            num_draws=len(known.survival),
            rng=np.random.default_rng(0),
            ngram_variant=system.mode(known.median_survival.shape[1]).ngram_variant,
            context_tokens=system.context_tokens,
        )

    @cached_property
    def slopes(self) -> Array:
        """Derivatives of ln(speedup) at the mode, `(num_cells, n)`."""
        return _slopes(self.log_speedup, self.fitted.fit)

    @cached_property
    def _variances(self) -> tuple[Array, float]:
        """(variance from acceptance, variance of the scatter that no parameter explains)."""
        scatter = float(np.median(np.ravel(self.study.point_parameters.model_error)))
        return self.of_acceptance(self.acceptance), scatter**2

    def _from_parameters(self, covariance: Array) -> Array:
        return np.asarray(np.einsum("ci,ij,cj->c", self.slopes, covariance, self.slopes))

    def parts(self) -> dict[str, float]:
        """Standard deviations of ln(speedup) by origin, root mean square over the cells."""
        acceptance, scatter = self._variances
        from_parameters = self._from_parameters(self.fitted.fit.covariance)
        named = {"parameters": from_parameters, "acceptance": acceptance, "model_error": np.array([scatter])}
        return {name: float(np.sqrt(variance.mean())) for name, variance in named.items()}

    def wider(self, asked_before: Study) -> str:
        """A sentence where the measurements made the answer wider; `asked_before` is the deployment without them."""
        before, after = half_width(asked_before, self.cells), half_width(self.study, self.cells)
        if not got_wider(before, after):
            return ""
        return sentence(reason(self.plan, self.fitted, self.before(), self.now()), before, after)

    def now(self) -> Spread:
        """What the spread is made of with the measurements."""
        acceptance, scatter = self._variances
        fit = self.fitted.fit
        belief = Belief(fit.mode, fit.covariance, float(np.sqrt(scatter)), float(np.mean(acceptance)))
        return spread_of(belief, self.log_speedup, self._num_parameters)

    def before(self) -> Spread:
        """The same before them; where acceptance was counted in between, as it was stated."""
        k = self.cells[0].num_speculative_tokens
        stated = self.plan.book.draws(self.plan.system.method, k)
        acceptance = self._variances[0] if self.plan.earlier else self.of_acceptance(stated)
        belief = belief_before(self.plan, self.fitted.fit.coordinates.size, float(np.mean(acceptance)))
        return spread_of(belief, self.log_speedup, self._num_parameters)

    @property
    def _num_parameters(self) -> int:
        return len(self.plan.system.priors.priors)

    def widening(self) -> float:
        """The spread over what it would be with the usual model error: linear models at one mode."""
        fit, usual = self.fitted.fit, self.plan.prior_tau
        factor = self.plan.coordinates(usual.effective).factor
        narrow = _narrowed(factor @ factor.T, fit.jacobian, self.fitted.usual.noise)
        acceptance, scatter = self._variances
        least = (SCATTER_SHARE * usual.value) ** 2
        wide = np.mean(self._from_parameters(fit.linear_covariance) + acceptance + scatter)
        return float(np.sqrt(wide / np.mean(self._from_parameters(narrow) + acceptance + least)))

    def worth(self, candidate: Candidate, jacobian: Array) -> Worth:
        """What a measurement would leave."""
        acceptance, scatter = self._variances
        covariance = self.fitted.fit.covariance
        after = _narrowed(covariance, jacobian, candidate.noise)
        counted = acceptance
        if candidate.counts_acceptance:
            counted = np.minimum(acceptance, self.of_acceptance(self.counted()))

        def spread(of: Array, from_acceptance: Array) -> float:
            variance = self._from_parameters(of) + from_acceptance + scatter
            return float(np.sqrt(np.mean(variance)))

        before, left = spread(covariance, acceptance), spread(after, counted)
        return Worth(candidate.name, candidate.text, candidate.restarts, before, left)


def _undetermined(
    plan: Plan, fit: FitResult, slopes: Array | None, told: list[tuple[str, Array]]
) -> tuple[Undetermined, ...]:
    """The parameters that the data hardly tell and why, those that the answer depends on most first."""
    prior_spread = fit.coordinates.spread
    weight = np.zeros(len(fit.mode)) if slopes is None else np.sqrt(np.mean(slopes**2, axis=0)) * fit.spread
    found = []
    for i, prior in enumerate(plan.system.priors.priors):
        left = float(fit.spread[i] / prior_spread[i])
        if prior.spread == 0.0 or prior.kind == "switch" or prior.name == "model_error" or left < _OPEN:
            continue
        why = f"{_reason(fit, i)}{_remedy(fit, i, told)}"
        found.append(Undetermined(prior.name, left, float(weight[i]), why))
    return tuple(sorted(found, key=lambda item: (-item.influence, item.name)))


def _reason(fit: FitResult, index: int) -> str:
    pull = fit.jacobian[:, index] / fit.noise * fit.coordinates.spread[index] if len(fit.noise) else np.zeros(1)
    alone = 1.0 / np.sqrt(1.0 + float(pull @ pull))
    if alone > _UNTOUCHED:
        return "nothing that was measured depends on it"
    names = fit.coordinates.names
    row = fit.correlation[index].copy()
    row[index] = 0.0
    order = [j for j in np.argsort(-np.abs(row)) if abs(row[j]) >= _COMPANION][:2]
    if not order:
        return "the measurements see it only together with several others"
    partners = " and ".join(f"{names[j]} (correlation {row[j]:+.2f})" for j in order)
    return f"the measurements see it only together with {partners}"


def _remedy(fit: FitResult, index: int, told: list[tuple[str, Array]]) -> str:
    """The measurement that would tell the parameter best, if one does."""
    if not told:
        return ""
    spreads = [float(np.sqrt(max(covariance[index, index], 0.0))) for _, covariance in told]
    best = int(np.argmin(spreads))
    if spreads[best] > _TOLD * fit.spread[index]:
        return ""
    return f"; told by: {told[best][0]}"
