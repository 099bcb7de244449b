"""An expert budget in verification (MoE-Spec) as an option: the scenario's best budget, its ceiling, and the risk."""

from collections.abc import Iterable

import numpy as np

from hwmodel.errors import DraftcastError
from simulator.decision import restart_value
from simulator.deployment import apply_overrides
from simulator.expert_budget import LOSSY, BudgetCell, ExpertBudgets, expert_budgets, verdict
from simulator.options.build import ends
from simulator.options.record import Experiment, LoadGain, Need, Option, Risk
from simulator.options.situation import Situation
from simulator.summary import median, quantiles, share_above

_PATCH = Need("software", "a patch of the router: no released vLLM or SGLang has an expert budget", {})
_TEST = Experiment(
    "with the patch on a copy: acceptance and answers with and without the budget, on your own prompts",
    None,
    restarts=1,
)


def options(situation: Situation, drafter: Option) -> Iterable[Option]:
    """The best budget below all experts on top of `drafter`; nothing for a dense model or another baseline."""
    k = drafter.num_speculative_tokens
    if not k or not all(change.startswith("speculation.") for change in drafter.changes):
        return
    try:
        found = expert_budgets(
            apply_overrides(situation.deployment, drafter.changes),
            num_speculative_tokens=k,
            concurrency=situation.loads,
            num_draws=situation.num_draws,
            seed=situation.seed,
        )
    except DraftcastError:
        return
    partial = [budget for budget in found.budgets if budget < found.block.num_experts]
    best = max(partial, key=lambda budget: float(median(found.overall(budget))))
    yield _option(situation, drafter, found, best)


def _option(situation: Situation, drafter: Option, found: ExpertBudgets, budget: int) -> Option:
    cells = found.at(budget)
    speedup = np.stack([cell.speedup for cell in cells], axis=1) @ found.weights
    value = restart_value(situation.deployment, speedup, situation.today.throughput(found.weights))
    return drafter._replace(
        name=f"expert budget {budget}: {drafter.name}",
        kind="expert budget",
        changes=(*drafter.changes, f"speculation.expert_budget={budget}"),
        by_load=tuple(_load_gain(found, cell, j) for j, cell in enumerate(cells)),
        speedup=ends(quantiles(speedup)),
        gain=ends(quantiles(speedup)),
        probability_faster=share_above(speedup, 1.0),
        needs=(*drafter.needs, _PATCH),
        time_to_benefit_s=None,
        payback_s=ends(value.payback_s),
        payback_reason=value.payback_reason,
        risk=Risk("lossy", LOSSY),
        assumptions=(*drafter.assumptions, found.notes[0]),
        next_experiment=_TEST,
        notes=(*drafter.notes, *verdict(found)),
    )


def _load_gain(found: ExpertBudgets, cell: BudgetCell, j: int) -> LoadGain:
    """One load: speedup and times are medians of the draws, in the scenario."""
    return LoadGain(
        concurrency=cell.concurrency,
        num_speculative_tokens=found.num_speculative_tokens,
        speedup=ends(quantiles(cell.speedup)),
        probability_faster=share_above(cell.speedup, 1.0),
        tpot_s=float(median(found.baseline_tpot_s[:, j] / cell.speedup)),
        throughput_tokens_per_s=float(median(found.baseline_tokens_per_s[:, j] * cell.speedup)),
        limited_by="concurrency",
    )
