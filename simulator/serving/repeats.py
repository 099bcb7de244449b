"""A simulation repeated: with other seeds, or at other parameter draws; each repeat is a cell of a sweep."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from hwmodel.units import MS
from simulator.defaults import DEFAULT_DRAWS
from simulator.deployment import Deployment
from simulator.results import JsonObject
from simulator.serving.arms import Load, run_arm
from simulator.serving.clients import Outage
from simulator.serving.metrics import Slo
from simulator.serving.recorded_steps import read_recorded_steps
from simulator.serving.report import ArmReport, mean_tpot_ratio
from simulator.serving.task import Task, choose_policy
from simulator.serving.workload import parse_arrivals
from simulator.study import build_study
from simulator.summary import quantiles
from simulator.sweeps import Outcome

_SEEDS = 3  # requests, drafts, who is how good
_KEPT = (
    "requests", "throughput_tokens_per_s", "ttft_s", "tpot_s", "itl_s", "e2e_s", "tokens_per_step", "preemptions",
    "requests_rejected",
)  # fmt: skip
Repeat = tuple[Literal["run", "draw"], int]  # with the seed of a run, or the number of a draw


@dataclass(frozen=True, slots=True)
class Asked:
    """What is simulated, in terms that can be sent to another process."""

    deployment: Deployment
    arrivals: str
    num_requests: int
    num_speculative_tokens: int | None
    num_draws: int
    acceptance_steps: str | None
    outage: tuple[float, float] | None

    def task(self, seed: int) -> Task:
        """Everything prepared for runs with this seed."""
        offered = parse_arrivals(self.arrivals)
        policy, _ = choose_policy(self.deployment, self.num_speculative_tokens, offered.users or None)
        draws = max(self.num_draws, DEFAULT_DRAWS)
        study = build_study(self.deployment, k_max=policy().largest, num_draws=draws, seed=seed)
        seeds = np.random.SeedSequence(seed).generate_state(_SEEDS).tolist()
        recorded = read_recorded_steps(self.acceptance_steps) if self.acceptance_steps else None
        engines = study.system.batch_divisor
        # A trace is dealt out to the engines.
        simulated = max(self.num_requests // engines, 1) if offered.kind == "trace" else self.num_requests
        load = Load(offered, simulated, seeds[0], engines)
        return Task(study, policy, load, _slo(self.deployment), recorded, (seeds[1], seeds[2]))


class Repeats:
    """The function of the sweep; what the draws have in common is prepared once in each process."""

    def __init__(self, asked: Asked, seed: int, task: Task | None = None) -> None:
        """`task` is that of the seed, where it is there already."""
        self._asked, self._seed, self._task = asked, seed, task

    def __reduce__(self) -> tuple[type["Repeats"], tuple[Asked, int]]:
        """Sent without what is prepared, which the other process makes anew."""
        return Repeats, (self._asked, self._seed)

    def __call__(self, repeat: Repeat) -> JsonObject | float | None:
        """A run's row, or the speedup at a draw; None where it has none."""
        kind, number = repeat
        if kind == "run":
            return self._run(number)
        self._task = self._task or self._asked.task(self._seed)
        return speedup_at_draw(self._task, number)

    def _run(self, seed: int) -> JsonObject:
        task, outage = self._asked.task(seed), self._asked.outage
        reports = run_both(task, outage=outage)
        return run_row(seed, task, reports)


def run_both(task: Task, draw: int | None = None, outage: tuple[float, float] | None = None) -> dict[str, ArmReport]:
    """Both arms' reports, the same one twice where nothing is drafted; an interrupted one raises KeyboardInterrupt."""
    reports = {}
    for name, arm in task.arms(draw).items():
        reports[name] = run_arm(arm, task.load, task.slo, outage=None if outage is None else Outage(*outage))
        if not reports[name].finished_all:
            raise KeyboardInterrupt
    return {"speculative": reports["baseline"], **reports}


def run_row(seed: int, task: Task, reports: dict[str, ArmReport]) -> JsonObject:
    """What is kept of one run."""
    arms = {name: reports[name].to_dict() for name in ("baseline", "speculative")}
    kept = {name: {key: arm[key] for key in _KEPT} for name, arm in arms.items()}
    return {"seed": seed, "speedup": ratio(task, reports["baseline"], reports["speculative"]), **kept}


def runs_report(first: JsonObject, seeds: Sequence[int], outcomes: Sequence[Outcome | None]) -> JsonObject:
    """The `runs` object: every run that was done, and the spread of their speedups."""
    rows = [first]
    for seed, outcome in zip(seeds, outcomes, strict=True):
        if outcome is not None:
            failed = {"seed": seed, "failed_reason": outcome.failed_reason}
            rows.append(failed if outcome.failed_reason is not None else outcome.value)
    found = [row["speedup"] for row in rows if row.get("speedup") is not None]
    spread = quantiles(np.array(found)) if found else {}
    speedup = {name: spread.get(name) for name in ("p05", "p50", "p95")}
    return {"done": len(rows), "total": 1 + len(seeds), "speedup": speedup, "rows": rows}


def speedup_at_draw(task: Task, draw: int) -> float | None:
    """The speedup at one parameter draw, with model error."""
    if not task.length:
        return 1.0
    reports = run_both(task, draw)
    found = ratio(task, reports["baseline"], reports["speculative"])
    error = task.study.parameters.model_error[draw % len(task.study.parameters.model_error), 0]
    return None if found is None else found * float(np.exp(error * task.study.model_error_z[draw, 0]))


def ratio(task: Task, baseline: ArmReport | None, speculative: ArmReport | None) -> float | None:
    """The speedup of a run: throughput in a closed loop, TPOT for open-loop arrivals."""
    if baseline is None or speculative is None:
        return None
    if not task.load.arrivals.closed:
        return mean_tpot_ratio(baseline.metrics, speculative.metrics)
    ours, theirs = speculative.throughput_tokens_per_s, baseline.throughput_tokens_per_s
    return ours / theirs if ours and theirs else None


def _slo(deployment: Deployment) -> Slo:
    goal = deployment.objective
    ttft, tpot = (None if value is None else value * MS for value in (goal.ttft_ms_max, goal.tpot_ms_max))
    return Slo(ttft, tpot, goal.percentile)
