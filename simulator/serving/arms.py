"""One arm of a simulation: how it drafts and accepts, what it may hold, and one run of it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import simpy

from hwmodel.errors import InputError
from simulator.closed_form import Cell, capacity
from simulator.serving import clients
from simulator.serving.acceptance_sampling import AcceptanceSource
from simulator.serving.clients import Outage
from simulator.serving.decode_blocks import MAX_BLOCK_STEPS, DecodePlanner
from simulator.serving.engine import Engine, Observer
from simulator.serving.kv_blocks import BlockPool
from simulator.serving.metrics import ArmMetrics, Counting, Slo
from simulator.serving.policies import Policy
from simulator.serving.report import ArmReport
from simulator.serving.request import RequestSpec
from simulator.serving.scheduler import Limits, Scheduler
from simulator.serving.step_times import StepTimes
from simulator.serving.workload import Arrivals, requests
from simulator.study import Study

_WARM_UP_SHARE = 0.1  # of open-loop requests: the first find an empty engine
_MAX_BLOCKS = 2**40  # where the cache takes no memory per token
Progress = Callable[[str, int, int], None]  # arm, requests done, requests in all


@dataclass(frozen=True)
class Arm:
    """An arm at one set of parameters. `length` is what the engine is configured for, 0 for the baseline."""

    name: str
    study: Study
    times: StepTimes
    policy: Callable[[], Policy]
    acceptance: AcceptanceSource
    draft_share: float = 1.0

    @property
    def length(self) -> int:
        """Configured draft length."""
        return self.policy().largest

    def scheduler(self) -> Scheduler:
        """An empty scheduler with this arm's limits; `InputError` where the arm does not fit in memory.

        One engine is simulated: a data-parallel replica's, or the share of one pipeline micro-batch in it.
        """
        system = self.study.system
        cap = capacity(system, self.length, self.study.kv_cache_tokens)
        if cap.limited_by == "does_not_fit":
            raise InputError(f"simulate: the {self.name} arm would not start: {cap.reason}; allowed: one that fits")
        mode, engine = system.mode(self.length), system.deployment.engine
        stages = system.parallel.pipeline
        size = engine.block_size or mode.block_size
        blocks = int(min(cap.memory.kv_cache_tokens / stages / size, _MAX_BLOCKS))
        limits = Limits(
            max_num_seqs=max(mode.max_num_seqs // stages, 1),
            max_num_batched_tokens=mode.max_num_batched_tokens,
            lookahead_slots=mode.lookahead_slots if self.length else 0,
            longest_draft=self.length,
            max_model_len=engine.max_model_len,
            prefix_cache_hit_share=system.deployment.workload.prefix_cache_hit_share,
        )
        return Scheduler(limits, BlockPool(max(blocks, 1), size))


@dataclass(frozen=True, slots=True)
class Load:
    """What is offered to both arms. `num_requests` are simulated; `engines` share the deployment's load."""

    arrivals: Arrivals
    num_requests: int
    seed: int
    engines: int = 1
    max_block_steps: int = MAX_BLOCK_STEPS

    @property
    def users(self) -> int:
        """Users of one engine in a closed loop."""
        return max(round(self.arrivals.users / self.engines), 1)

    @property
    def scale(self) -> float:
        """The deployment's load over that of the engine simulated."""
        return self.arrivals.users / self.users if self.arrivals.closed else float(self.engines)

    @property
    def cut_ends(self) -> bool:
        """Whether a closed loop is long enough to leave out its ramp-up and tail."""
        return self.arrivals.closed and self.num_requests >= 3 * self.users

    def counting(self) -> Counting:
        """Which requests count."""
        if not self.arrivals.closed:
            return Counting(int(_WARM_UP_SHARE * self.num_requests), self.num_requests, until_closed=False)
        if not self.cut_ends:
            return Counting(0, self.num_requests, until_closed=False)
        return Counting(self.users, self.num_requests - self.users, until_closed=True)

    def specs(self, study: Study) -> Iterator[RequestSpec]:
        """The requests of one engine, numbered from 0."""
        arrivals = self.arrivals
        if not arrivals.closed and self.engines > 1:
            arrivals = replace(arrivals, rate_per_s=arrivals.rate_per_s / self.engines)
        everyone = requests(arrivals, study.deployment.workload, self.num_requests * self._stride, self.seed)
        if self._stride == 1:
            yield from everyone
            return
        for spec in everyone:
            if spec.number % self._stride == 0:
                yield replace(spec, number=spec.number // self._stride)

    @property
    def _stride(self) -> int:
        """A recorded trace is dealt out to the engines in turn."""
        return self.engines if self.arrivals.kind == "trace" else 1


def run_arm(
    arm: Arm, load: Load, slo: Slo, *, observers: tuple[Observer, ...] = (), outage: Outage | None = None
) -> ArmReport:
    """One run of an arm. Ctrl-C ends it early: the report then holds what was done so far."""
    env = simpy.Environment(initial_time=0.0)
    metrics, scheduler = ArmMetrics(slo, load.counting()), arm.scheduler()
    planner = DecodePlanner(
        env, scheduler, arm.times, arm.acceptance, arm.policy(), metrics, arm.draft_share, load.max_block_steps
    )
    engine = Engine(env, scheduler, planner, metrics, observers if outage is None else (*observers, outage))
    if load.arrivals.closed:
        if not load.cut_ends:
            metrics.open_s = 0.0
        done = env.process(clients.closed_loop(engine, load.specs(arm.study), load.users, ramp_s(arm, load)))
    else:
        done = env.process(clients.open_loop(engine, load.specs(arm.study)))
    if outage is not None:
        env.process(outage.process(engine))
    try:
        env.run(until=done)
    except KeyboardInterrupt:
        return ArmReport(metrics, float(env.now), load.scale, finished_all=False)
    scheduler.check()
    return ArmReport(metrics, float(env.now), load.scale, finished_all=True)


def ramp_s(arm: Arm, load: Load) -> float:
    """Seconds over which the users of a closed loop start: as stated, else about the duration of one request."""
    if load.arrivals.ramp_s is not None:
        return load.arrivals.ramp_s
    grid = arm.study.grid([Cell(arm.length, load.arrivals.users)], point=True)
    result = grid.speculative if arm.length else grid.baseline
    output = arm.study.deployment.workload.output_tokens
    return float(load.arrivals.users * output / result.throughput_tokens_per_s[0, 0])


class ProgressObserver:
    """Passes on how far an arm is."""

    def __init__(self, arm: str, num_requests: int, tell: Progress) -> None:
        """`tell` is called for every request that leaves; it decides how often it says something."""
        self._arm, self._total, self._tell, self._done = arm, num_requests, tell, 0

    def steps(self, starts_s: object, ends_s: object, facts: dict[str, int]) -> None:
        """Steps are too many to be told."""

    def request_done(self, request: object) -> None:
        """One more."""
        self._done += 1
        self._tell(self._arm, self._done, self._total)
