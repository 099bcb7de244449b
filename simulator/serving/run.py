"""`simulate`: both arms of a deployment over the same requests, at the posterior median or for parameter draws."""

from dataclasses import dataclass, field

import numpy as np

from hwmodel.errors import InputError
from simulator.answers import collected_notes, recorded_inputs
from simulator.deployment import Deployment, with_method
from simulator.files import check_outputs
from simulator.results import JsonObject
from simulator.serving.arms import Arm, Progress, run_arm
from simulator.serving.clients import Outage
from simulator.serving.output_files import OutputFiles
from simulator.serving.repeats import Asked, Repeat, Repeats, ratio, run_row, runs_report
from simulator.serving.report import ArmReport, Simulation, batch_interval, goodput_report
from simulator.serving.request import MAX_TIME_S
from simulator.serving.slo import highest_rate
from simulator.serving.task import Task, choose_policy
from simulator.serving.traces import read_trace
from simulator.serving.workload import Arrivals, parse_arrivals
from simulator.summary import quantiles
from simulator.sweeps import Sweep, Tell, in_this_process

_REQUESTS_PER_USER, _FEWEST_REQUESTS = 20, 100  # by default
_MAX_REQUESTS, _MAX_DRAWS = 100_000_000, 1000
MAX_RUNS = 100_000
_REPLACED_NOTES = ("speculation.policy", "limits are applied to the mean")  # true of the closed form only


@dataclass(frozen=True, slots=True)
class Outputs:
    """Files to be written beside the answer, and who is told how far it is."""

    records: str | None = None
    trace: str | None = None
    progress: Progress | None = None
    inputs: tuple[str, ...] = ()  # files that are read and must not be overwritten
    tell_repeats: Tell | None = None  # the runs and draws done beyond the first, and all


def simulate(  # noqa: PLR0913 - the public question in its own words
    deployment: Deployment,
    *,
    arrivals: str | None = None,
    num_requests: int | None = None,
    seed: int = 0,
    num_speculative_tokens: int | None = None,
    method: str | None = None,
    num_draws: int = 0,
    num_runs: int = 1,
    outage: tuple[float, float] | None = None,
    acceptance_steps: str | None = None,
    find_rate: bool = False,
    outputs: Outputs | None = None,
    sweep: Sweep = in_this_process,
) -> Simulation:
    """Both arms of a serving run; the same arguments give the same figures.

    `arrivals` as in `--arrivals` (default: a closed loop at the file's first concurrency), `outage` is (at, duration)
    in seconds, `acceptance_steps` a file of recorded steps in place of sampled acceptance. With `num_draws` the
    interval of the speedup is that of so many parameter draws, else that of the run. Of `num_runs` runs with
    `seed` and those that follow it the first is reported in full. `sweep` does draws and further runs, here or
    elsewhere.
    """
    deployment, notes = with_method(deployment, method) if method else (deployment, ())
    arrivals = arrivals or f"closed:{deployment.workload.concurrency[0]}"
    offered = parse_arrivals(arrivals)
    _, more = choose_policy(deployment, num_speculative_tokens, offered.users or None)
    files = outputs or Outputs()
    read = [offered.path, acceptance_steps or "", *files.inputs]
    check_outputs({"records": files.records, "trace": files.trace}, read)
    count = _checked(num_requests, num_draws, offered)
    if not 1 <= num_runs <= MAX_RUNS:
        raise InputError(f"runs: got {num_runs}, allowed 1 to {MAX_RUNS}")
    _check_outage(outage)
    asked = Asked(deployment, arrivals, count, num_speculative_tokens, num_draws, acceptance_steps, outage)
    task = asked.task(seed)
    answer = _Answer(task, outage)
    answer.run(files, find_rate=find_rate)
    if not answer.partial and num_runs - 1 + num_draws:
        seeds = range(seed, seed + num_runs)
        answer.repeat(Repeats(asked, seed, task), seeds, num_draws, sweep, files.tell_repeats)
    settings = {
        "arrivals": str(offered),
        "num_requests": count,
        "num_speculative_tokens": task.length,
        "policy": deployment.speculation.effective_policy,
        "seed": seed,
        "num_draws": num_draws,
        "num_runs": num_runs,
        "outage": None if outage is None else {"at_s": outage[0], "duration_s": outage[1]},
        "acceptance": f"recorded steps of {acceptance_steps}" if acceptance_steps else task.study.acceptance.source,
    }
    return answer.simulation(recorded_inputs(task.study, settings), (*notes, *more))


def _checked(num_requests: int | None, num_draws: int, arrivals: Arrivals) -> int:
    """The number of requests: as asked for, of a trace not more than it holds."""
    if num_requests is not None and not 1 <= num_requests <= _MAX_REQUESTS:
        raise InputError(f"requests: got {num_requests}, allowed 1 to {_MAX_REQUESTS}")
    most = sum(1 for _ in read_trace(arrivals.path)) if arrivals.kind == "trace" else _MAX_REQUESTS
    usual = most if arrivals.kind == "trace" else max(_REQUESTS_PER_USER * arrivals.users, _FEWEST_REQUESTS)
    count = min(num_requests, most) if num_requests is not None else usual
    if not 1 <= count <= _MAX_REQUESTS:
        raise InputError(f"requests: got {count}, allowed 1 to {_MAX_REQUESTS}")
    if not 0 <= num_draws <= _MAX_DRAWS:
        raise InputError(f"draws: got {num_draws}, allowed 0 to {_MAX_DRAWS}")
    return count


def _check_outage(outage: tuple[float, float] | None) -> None:
    if outage is not None and not all(0.0 <= x <= MAX_TIME_S for x in outage):
        text = f"got at={outage[0]:g},duration={outage[1]:g}, allowed: 0 to {MAX_TIME_S:g} seconds"
        raise InputError(f"outage: {text}")


@dataclass
class _Answer:
    """Runs a task and puts its result together; after Ctrl-C what is missing stays None."""

    task: Task
    outage: tuple[float, float] | None
    reports: dict[str, ArmReport | None] = field(default_factory=lambda: {"baseline": None, "speculative": None})
    outages: JsonObject = field(default_factory=dict)
    rates: dict[str, JsonObject] = field(default_factory=dict)
    ratios: list[float] = field(default_factory=list)
    runs: JsonObject | None = None
    failures: list[str] = field(default_factory=list)
    stopped: str = "interrupted: the figures are those of the requests that were done"
    partial: bool = False

    def run(self, outputs: Outputs, *, find_rate: bool) -> None:
        """The arms, then the search for the highest rate where it is asked for."""
        arms = self.task.arms()
        with OutputFiles(outputs.records, outputs.trace, outputs.progress) as files:
            for name, arm in arms.items():
                self._run_arm(name, arm, files)
                if self.partial:
                    files.discard()
                    break
        if not self.task.length:
            self.reports["speculative"] = self.reports["baseline"]
        try:
            if find_rate and not self.partial and self.task.slo.stated:
                self._find_rates(arms)
        except KeyboardInterrupt:
            self.partial = True

    def _run_arm(self, name: str, arm: Arm, files: OutputFiles) -> None:
        task = self.task
        outage = None if self.outage is None else Outage(*self.outage)
        observers = files.observers(name, task.load.num_requests)
        report = run_arm(arm, task.load, task.slo, observers=observers, outage=outage)
        self.reports[name] = report
        self.partial = not report.finished_all
        if outage is not None:
            self.outages[name] = outage.to_dict()

    def _find_rates(self, arms: dict[str, Arm]) -> None:
        """The highest rate that each arm serves within the limits."""
        task = self.task
        for name, arm in arms.items():
            workload = task.study.deployment.workload
            capacity = task.capacity_tokens_per_s(arm.length) / workload.output_tokens
            self.rates[name] = highest_rate(arm, task.load, task.slo, capacity)
        if not task.length:
            self.rates["speculative"] = self.rates["baseline"]

    def repeat(self, repeats: Repeats, seeds: range, num_draws: int, sweep: Sweep, tell: Tell | None) -> None:
        """The runs beyond the first, and the parameter draws."""
        cells: list[Repeat] = [*(("run", seed) for seed in seeds[1:]), *(("draw", draw) for draw in range(num_draws))]
        swept = sweep(repeats, cells, tell)
        runs, draws = swept.outcomes[: len(seeds) - 1], swept.outcomes[len(seeds) - 1 :]
        reports = {name: report for name, report in self.reports.items() if report is not None}
        if runs:
            self.runs = runs_report(run_row(seeds[0], self.task, reports), seeds[1:], runs)
        self.ratios = [outcome.value for outcome in draws if outcome is not None and outcome.value is not None]
        for name, outcomes in (("runs", runs), ("draws", draws)):
            reasons = [outcome.failed_reason for outcome in outcomes if outcome and outcome.failed_reason is not None]
            if reasons:
                self.failures.append(f"{len(reasons)} of {len(outcomes)} {name} failed; the first: {reasons[0]}")
        if swept.stopped is not None:
            self.partial, self.stopped = True, f"{swept.stopped} after {swept.done} of {len(cells)} repeats"

    def _speedup(self) -> JsonObject:
        baseline, speculative = self.reports["baseline"], self.reports["speculative"]
        if not self.task.length:
            return {"speedup": {"p05": 1.0, "p50": 1.0, "p95": 1.0}, "speedup_reason": None, "speedup_basis": "none"}
        if len(self.ratios) > 1:
            spread = quantiles(np.array(self.ratios))
            speedup = {name: spread[name] for name in ("p05", "p50", "p95")}
            return {"speedup": speedup, "speedup_reason": None, "speedup_basis": "parameter draws"}
        found = ratio(self.task, baseline, speculative)
        if baseline is None or speculative is None:
            nothing = {"p05": None, "p50": None, "p95": None}
            return {"speedup": nothing, "speedup_reason": "one arm did not run", "speedup_basis": "run"}
        closed = self.task.load.arrivals.closed
        interval = batch_interval(found, baseline.metrics, speculative.metrics, closed=closed)
        return {**interval, "speedup_basis": "run"}

    def simulation(self, inputs: JsonObject, notes: tuple[str, ...]) -> Simulation:
        """The whole result."""
        task = self.task
        found = [*self._notes(), *collected_notes(task.study, task.length, notes)]
        return Simulation(
            inputs=inputs,
            baseline=self.reports["baseline"],
            speculative=self.reports["speculative"],
            speedup=self._speedup(),
            goodput=goodput_report(task.slo, self.reports, self.rates),
            outage=self.outages or None,
            notes=tuple(note for note in dict.fromkeys(found) if not note.startswith(_REPLACED_NOTES)),
            partial=self.partial,
            runs=self.runs,
        )

    def _notes(self) -> list[str]:
        """What the run itself makes one say."""
        notes = [self.stopped] if self.partial else []
        notes += self.failures
        load = self.task.load
        if self.task.study.deployment.engine.name == "sglang":
            notes.append("requests are scheduled as vLLM does it; SGLang's scheduler differs in who is preempted when")
        if load.engines > 1:
            notes.append(f"one of {load.engines} engines that share the load is simulated; rates are scaled up")
        if load.arrivals.closed and not load.cut_ends:
            notes.append("fewer than 3 requests a user: ramp-up and tail are in the figures")
        for name, report in self.reports.items():
            if report is None or (name == "speculative" and not self.task.length):
                continue
            notes += self._overload(name, report)
            totals = report.metrics.totals
            if totals.rejected:
                why = "; ".join(f"{count} {reason}" for reason, count in report.metrics.rejections.items())
                notes.append(f"{name}: {totals.rejected} of {totals.arrived} requests rejected: {why}")
        return notes

    def _overload(self, name: str, report: ArmReport) -> list[str]:
        """A sentence where more is offered than the arm can ever serve."""
        task, metrics = self.task, report.metrics
        sent_s = min(metrics.close_s, report.now_s)
        totals = metrics.totals
        if task.load.arrivals.closed or not totals.finished or sent_s <= 0.0:
            return []
        mean_output = (totals.first_tokens + totals.decode_tokens) / totals.finished
        offered = totals.arrived / sent_s * mean_output * report.scale
        capacity = task.capacity_tokens_per_s(task.length if name == "speculative" else 0)
        if offered <= capacity:
            return []
        return [
            f"{name}: {offered:.4g} tokens/s are asked for and about {capacity:.4g} can be served: the queue grows as"
            f" long as requests arrive, and waiting times depend on how many were simulated"
        ]
