"""What a budget of experts in verification (MoE-Spec) is worth on one deployment: speed, ceiling, and what it may cost.

The speed is computed, the loss of acceptance is a scenario: nobody has measured it on the model in question, and the
budget changes the answers. Equations: docs/model.md, eq. G3.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hwmodel.errors import InputError
from hwmodel.models import moe_block
from hwmodel.moe import expected_distinct
from hwmodel.percent import percent
from hwmodel.records import dataclass
from hwmodel.specs import Moe
from simulator.answers import (
    INTERVAL,
    checked_concurrency,
    collected_notes,
    draft_length,
    prediction_identity,
    recorded_inputs,
)
from simulator.closed_form import Cell, Grid, acceptance_arrays, capacity, evaluate
from simulator.decision import load_weights
from simulator.defaults import DEFAULT_DRAWS
from simulator.deployment import Deployment, with_method
from simulator.deployment.speculation import LOOKUP_METHODS
from simulator.parameters import Prior, standard_draws
from simulator.ranks.gates import NUM_LAYERS, BudgetEffect, mean_effects
from simulator.ranks.routing_samples import RoutingPoint
from simulator.results import JsonObject
from simulator.study import Study, build_study
from simulator.summary import median, quantiles, share_above

Array = NDArray[np.float64]

# Relative loss of each position's acceptance by the square of the gate mass lost: 1.4 % at 7 % lost on average in the
# paper, on other models, budgets and trees; the spread is a guess, and is meant to be wide (docs/model.md, eq. G3).
ACCEPTANCE_LOSS = Prior("acceptance_loss", 3.0, 1.0, "lognormal", 0.0, 1000.0, "arXiv 2602.16052")
# Share of a verification step for the scores of all experts and their ranking: 2-3 % in the paper.
RANKING_SHARE = Prior("ranking_share", 0.025, 0.4, "lognormal", 0.0, 0.5, "arXiv 2602.16052")
_STREAM = 11  # of the scenario's draws, apart from a study's own
_BUDGETS = (0.75, 0.5, 0.35, 0.25)  # of the distinct experts at the heaviest load, by default
_MOST_BUDGETS = 64
_SEEN = 0.005  # in a ceiling of two decimals
_MANY_ROWS = 128  # in so large a step half as many layers tell as much
_MOST_TOKENS = 4096  # rows of one step that are sampled; more are as saturated
LOSSY = (
    "lossy: verification with dropped experts accepts other tokens than the model would have written: answers change;"
    " an independent llama.cpp port measured a perplexity of +7 % (128 experts, budget 64) and +23 % (80, budget 40)"
)


@dataclass(frozen=True)
class BudgetCell:
    """One budget at one load; gains `(num_draws,)` are over the same speculation without a budget."""

    concurrency: int
    effect: BudgetEffect
    step_gain: Array  # nothing lost: the most that this budget can give
    scenario_gain: Array  # with the ranking's cost and the acceptance lost in the scenario
    speedup: Array  # scenario, over the baseline without speculation


@dataclass(frozen=True)
class ExpertBudgets:
    """The curve over budgets and loads, and the ceiling of them all."""

    inputs: JsonObject
    study: Study
    num_speculative_tokens: int
    block: Moe
    budgets: tuple[int, ...]
    loads: tuple[int, ...]
    weights: Array
    cells: tuple[BudgetCell, ...]  # budgets x loads
    ceilings: Array  # (num_draws, num_loads): a budget of top-k with nothing lost, over no budget
    expert_share: Array  # (num_loads,): experts' share of the speculative step, at the median parameters
    plain_speedup: Array  # (num_draws, num_loads): without a budget
    baseline_tpot_s: Array  # (num_draws, num_loads): without speculation
    baseline_tokens_per_s: Array
    notes: tuple[str, ...]

    def at(self, budget: int) -> list[BudgetCell]:
        """The cells of one budget, by load."""
        return [cell for cell in self.cells if cell.effect.budget == budget]

    def overall(self, budget: int) -> Array:
        """Scenario gain of a budget over the traffic, `(num_draws,)`."""
        if budget >= self.block.num_experts:
            return np.ones(len(self.plain_speedup))
        speedup = np.stack([cell.speedup for cell in self.at(budget)], axis=1) @ self.weights
        return np.asarray(speedup / (self.plain_speedup @ self.weights))

    @property
    def best(self) -> int:
        """The budget with the largest median scenario gain over the traffic; the number of experts: none is better."""
        found = {b: float(median(self.overall(b))) for b in self.budgets}
        found[self.block.num_experts] = 1.0
        best = max(found, key=lambda b: (found[b], b))
        return min(best, self.block.num_experts)

    def to_dict(self) -> JsonObject:
        """The JSON object of `draftcast budget --json`."""
        return {
            "inputs": self.inputs,
            "num_speculative_tokens": self.num_speculative_tokens,
            "num_experts": self.block.num_experts,
            "num_experts_per_tok": self.block.num_experts_per_tok,
            "budgets": [self._of_budget(budget) for budget in self.budgets],
            "ceiling": self._ceiling(),
            "without_budget": [
                {"concurrency": load, "speedup": _interval(self.plain_speedup[:, j])}
                for j, load in enumerate(self.loads)
            ],
            "best_budget": self.best,
            "risk": LOSSY,
            "why": verdict(self),
            "notes": list(self.notes),
            "prediction_id": prediction_identity(self.inputs),
        }

    def _of_budget(self, budget: int) -> JsonObject:
        overall = self.overall(budget)
        return {
            "budget": budget,
            "gain": _interval(overall),
            "probability_better": share_above(overall, 1.0),
            "by_load": [_cell_json(cell) for cell in self.at(budget)],
        }

    def _ceiling(self) -> JsonObject:
        speedup = (self.plain_speedup * self.ceilings) @ self.weights / (self.plain_speedup @ self.weights)
        return {
            "budget": self.block.num_experts_per_tok,
            "gain": _interval(speedup),
            "by_load": [
                {
                    "concurrency": load,
                    "gain": _interval(self.ceilings[:, j]),
                    "expert_share": float(self.expert_share[j]),
                }
                for j, load in enumerate(self.loads)
            ],
        }


def _cell_json(cell: BudgetCell) -> JsonObject:
    return {
        "concurrency": cell.concurrency,
        **cell.effect.to_dict(),
        "gain_if_nothing_is_lost": _interval(cell.step_gain),
        "gain": _interval(cell.scenario_gain),
        "probability_better": share_above(cell.scenario_gain, 1.0),
        "speedup": _interval(cell.speedup),
    }


def _interval(draws: Array) -> dict[str, float | None]:
    found = quantiles(draws)
    return {name: found[name] for name in INTERVAL}


def expert_budgets(  # noqa: PLR0913 - the public question in its own words
    deployment: Deployment,
    *,
    budgets: Sequence[int] | None = None,
    num_speculative_tokens: int | None = None,
    concurrency: Sequence[int] | None = None,
    substitute: bool = True,
    method: str | None = None,
    num_draws: int = DEFAULT_DRAWS,
    seed: int = 0,
) -> ExpertBudgets:
    """The worth of expert budgets; by default some shares of the experts that the heaviest load reads."""
    deployment, notes = with_method(deployment, method) if method else (deployment, ())
    loads = tuple(sorted({checked_concurrency(c) for c in concurrency or deployment.workload.concurrency}))
    k, more = draft_length(deployment, num_speculative_tokens, loads[0])
    if k == 0:
        raise InputError("num_speculative_tokens: got 0, but a budget is for verification, e.g. --method eagle3 -k 3")
    study = build_study(_without_budget(deployment), k_max=k, num_draws=num_draws, seed=seed)
    block = moe_block(study.system.shape)
    asked = _Asked(study, k, loads, substitute, seed)
    chosen = tuple(sorted(set(budgets or asked.usual(block)), reverse=True))
    _check(chosen)
    plain = asked.grid(None)
    ceilings = asked.grid(block.num_experts_per_tok).speedup / plain.speedup
    point = study.grid([Cell(k, c) for c in loads], point=True).speculative
    settings: JsonObject = {
        "num_speculative_tokens": k,
        "concurrency": list(loads),
        "budgets": list(chosen),
        "substitute": substitute,
        "num_draws": num_draws,
        "seed": seed,
    }
    return ExpertBudgets(
        inputs=recorded_inputs(study, settings),
        study=study,
        num_speculative_tokens=k,
        block=block,
        budgets=chosen,
        loads=loads,
        weights=load_weights(study.deployment, loads),
        cells=tuple(asked.cells(chosen, plain)),
        ceilings=ceilings,
        expert_share=point.parts_s["experts"][0] / point.step_s[0],
        plain_speedup=plain.speedup * study.model_error_factor,
        baseline_tpot_s=plain.baseline.tpot_s,
        baseline_tokens_per_s=plain.baseline.throughput_tokens_per_s,
        notes=(*_notes(study, substitute), *collected_notes(study, k, (*notes, *more))),
    )


def _check(budgets: Sequence[int]) -> None:
    if not budgets or len(budgets) > _MOST_BUDGETS or min(budgets) < 1:
        got = ", ".join(map(str, budgets)) or "nothing"
        raise InputError(f"budgets: got {got}, allowed 1 to {_MOST_BUDGETS} numbers of experts from 1 on")


def _without_budget(deployment: Deployment) -> Deployment:
    return deployment.changed(speculation=deployment.speculation.changed(expert_budget=None))


def _notes(study: Study, substitute: bool) -> list[str]:
    notes = [
        "acceptance under a budget is a scenario: each position loses 3 (90 %: 0.6 to 15) times the square of the gate"
        " mass lost, from one published average on other models; ranking the experts takes 2.5 % of the step",
        f"no released vLLM or SGLang has an expert budget: it takes a patch (MoE-Spec published no code);"
        f" {'substitution' if substitute else 'truncation'} is assumed",
    ]
    if study.system.parallel.expert_parallel:
        notes.append("expert parallelism: the budget holds on each rank, for the experts that it has")
    return notes


@dataclass(frozen=True)
class _Asked:
    """What is asked, and the pieces of the answer."""

    study: Study
    k: int
    loads: tuple[int, ...]
    substitute: bool
    seed: int

    def grid(self, budget: int | None, loads: Sequence[int] | None = None, losses: Array | None = None) -> Grid:
        """Both arms with a budget, for every draw; `losses` are shares of acceptance lost, `(num_draws, 1)`."""
        study = self.study
        spec = study.deployment.speculation.changed(expert_budget=budget)
        system = replace(study.system, deployment=study.deployment.changed(speculation=spec))
        survival, share = acceptance_arrays(study.acceptance, point=False)
        if losses is not None:
            survival = survival * (1.0 - losses) ** np.arange(1.0, survival.shape[1] + 1.0)
        cells = [Cell(self.k, load) for load in (self.loads if loads is None else loads)]
        return evaluate(system, study.parameters, cells, survival, share, study.kv_cache_tokens)

    def usual(self, block: Moe) -> list[int]:
        """Budgets that are worth a look: shares of what the heaviest load reads, and top-k."""
        p, runs = self.study.point_parameters, self.runs(self.loads[-1])
        read = expected_distinct(block.num_experts, block.num_experts_per_tok, sum(runs), len(runs), p.routing)
        return [block.num_experts, block.num_experts_per_tok, *(max(round(read * share), 1) for share in _BUDGETS)]

    def effects(self, load: int, budgets: Sequence[int]) -> list[BudgetEffect]:
        """What the budgets keep in a step at this load, averaged over draws of the routing parameters."""
        block, runs = moe_block(self.study.system.shape), self.runs(load)
        p = self.study.parameters
        columns = [np.ravel(x) for x in (p.popularity_sigma, p.stickiness, p.routing_memory)]
        layers = NUM_LAYERS if sum(runs) < _MANY_ROWS else NUM_LAYERS // 2
        picked = np.linspace(0, len(columns[0]) - 1, layers).astype(int)
        routings = [RoutingPoint(*(float(column[i % len(column)]) for column in columns)) for i in picked]
        return mean_effects(block.num_experts, block.num_experts_per_tok, runs, routings, budgets, seed=self.seed)

    def runs(self, load: int) -> list[int]:
        """Rows of each request in the step; where drafts come and go, those that have one on average, at least one."""
        system = self.study.system
        running = capacity(system, self.k, self.study.kv_cache_tokens).running(load)[0]
        sequences = max(running // system.parallel.pipeline, 1)
        rows = int(system.verified_rows(np.array([self.k]))[0])
        sequences = max(min(sequences, _MOST_TOKENS // rows), 1)
        drafted = sequences
        if system.method in LOOKUP_METHODS:
            share = self.study.acceptance.for_length(self.k).median_draft_probability
            drafted = min(max(round(sequences * share), 1), sequences)
        return [rows] * drafted + [1] * (sequences - drafted)

    def cells(self, budgets: Sequence[int], plain: Grid) -> list[BudgetCell]:
        """The budgets at the loads, loads fastest."""
        z = standard_draws(len(plain.speedup), 2, np.random.default_rng([self.seed, _STREAM]))
        loss, ranking = ACCEPTANCE_LOSS.values(z[:, :1]), RANKING_SHARE.values(z[:, 1:])
        effects = [self.effects(load, budgets) for load in self.loads]
        num_experts = moe_block(self.study.system.shape).num_experts
        error = self.study.model_error_factor[:, 0]
        found = []
        for i, budget in enumerate(budgets):
            unhurt = self.grid(budget).speedup / plain.speedup
            for j, load in enumerate(self.loads):
                effect = effects[j][i]
                mass = effect.substituted_mass if self.substitute else effect.truncated_mass
                lost = np.minimum(loss * (1.0 - mass) ** 2, 1.0)
                kept = self.grid(budget, [load], lost).speedup[:, 0] / plain.speedup[:, j]
                scenario = kept / (1.0 + ranking[:, 0]) if budget < num_experts else np.ones_like(kept)
                found.append(BudgetCell(load, effect, unhurt[:, j], scenario, plain.speedup[:, j] * error * scenario))
        return found


def verdict(found: ExpertBudgets) -> list[str]:
    """What to make of it: the ceiling, the best budget of the scenario, and what it costs in answers."""
    ceiling = found.ceilings
    tops = median(ceiling)
    top = int(np.argmax(tops))
    share = found.expert_share
    most = f" (most at concurrency {found.loads[top]})" if tops.max() >= tops.min() + _SEEN else ""
    lines = [
        f"Ceiling: reading only the {_experts(found.block.num_experts_per_tok)} of one token, with nothing lost, would"
        f" give {_range(f'{tops.min():.2f}x', f'{tops.max():.2f}x')}{most}; experts are"
        f" {_range(percent(share.min()), percent(share.max()))} of the step."
    ]
    if found.best == found.block.num_experts:
        lines.append("No budget is expected to gain once the loss of acceptance in the scenario is counted.")
        return lines
    gain = quantiles(found.overall(found.best))
    mass = [cell.effect for cell in found.at(found.best)]
    lines.append(
        f"Best in the scenario: a budget of {_experts(found.best)}, {gain['p50']:.2f}x of the same speculation without"
        f" one (90 %: {gain['p05']:.2f} to {gain['p95']:.2f}); it keeps"
        f" {_range(*(percent(end(e.truncated_mass for e in mass)) for end in (min, max)))} of the gate mass."
    )
    return lines


def _experts(count: int) -> str:
    return "1 expert" if count == 1 else f"{count} experts"


def _range(low: str, high: str) -> str:
    """Both ends, or the one figure that they are.

    >>> _range("7 %", "7 %"), _range("7 %", "9 %")
    ('7 %', '7 % to 9 %')
    """
    return low if low == high else f"{low} to {high}"
