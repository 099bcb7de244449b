"""One engine step on the ranks, event by event: the file to read first.

`step` asks the study for the step in question (`cell`), lays it out as a plan (`plan`), draws experts and jitter, and
lets every rank walk the plan (`rank_process`) over the links of the box (`links`).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import simpy

from hwmodel.errors import InputError
from hwmodel.interconnects import NVLINK_CLASSES
from simulator.answers import checked_concurrency, draft_length
from simulator.defaults import DEFAULT_DRAWS
from simulator.deployment import Deployment, with_method
from simulator.files import check_outputs, read_text
from simulator.ranks.cell import StepCell, number, step_cell
from simulator.ranks.expert_loads import LayerLoad, sample_loads
from simulator.ranks.jitter import no_jitter, sample_jitter
from simulator.ranks.links import Link, Network
from simulator.ranks.plan import Block, Plan, Reduce, mean_block_s, plan_step
from simulator.ranks.rank_process import RankAccount, ReduceHow, StepRun
from simulator.ranks.reduce_plan import ReduceOptions, ReducePlanner, group_members
from simulator.ranks.report import RankStep
from simulator.ranks.summary import StepResult, summarise
from simulator.ranks.topology_graph import Box, box_from_topology, box_of_class
from simulator.ranks.trace import StepTrace
from simulator.study import Study, build_study
from simulator.topology import classify, parse_topology

MAX_RANKS = 32  # a step of 32 ranks takes some ten seconds
MAX_STEPS = 1000
_SEED_OF_THIS_ROOM = 3  # the study's own draws use the seed as it is


@dataclass(frozen=True, slots=True)
class StepQuestion:
    """What is asked about the step; None means the deployment's own."""

    num_speculative_tokens: int | None = None
    concurrency: int | None = None
    method: str | None = None
    topology: str | None = None  # path of `nvidia-smi topo -m` text: another box
    algorithm: str = "auto"
    protocol: str = "auto"
    jitter: bool = True
    steps: int = 1
    num_draws: int = DEFAULT_DRAWS
    seed: int = 0


def step(
    deployment: Deployment, question: StepQuestion | None = None, *, trace: str | None = None, **asked_by_name: Any
) -> RankStep:
    """One engine step of the deployment on its ranks; what is asked is a `StepQuestion` or its fields by name.

    `trace` is a file to write a Perfetto trace of the first step to. The same question with the same seed gives the
    same answer, byte for byte.
    """
    check_outputs({"trace": trace})
    asked = question or StepQuestion(**asked_by_name)
    if not 1 <= asked.steps <= MAX_STEPS:
        raise InputError(f"steps: got {asked.steps}, allowed 1 to {MAX_STEPS}")
    deployment, notes = with_method(deployment, asked.method) if asked.method else (deployment, ())
    load = checked_concurrency(deployment.workload.concurrency[0] if asked.concurrency is None else asked.concurrency)
    k, more = draft_length(deployment, asked.num_speculative_tokens, load)
    study = build_study(deployment, k_max=k, num_draws=asked.num_draws, seed=asked.seed)
    simulation = _prepare(study, step_cell(study, k, load), asked)
    results = simulation.results(asked, trace)
    return summarise(study, simulation, asked, results, (*notes, *more))


@dataclass(frozen=True)
class Simulation:
    """Everything that the steps of one run share."""

    cell: StepCell
    plan: Plan
    groups: tuple[tuple[int, ...], ...]
    planner: ReducePlanner | None  # None: one rank, nothing to reduce
    hows: dict[tuple[int, float], ReduceHow]
    notes: tuple[str, ...]

    @property
    def num_ranks(self) -> int:
        """Ranks that are simulated."""
        return sum(len(group) for group in self.groups)

    @property
    def num_waiting(self) -> int:
        """Ranks that wait for each other after a block: those of an AllReduce, else those of the expert exchange."""
        return len(self.groups[0]) if len(self.groups[0]) > 1 else self.num_ranks

    def results(self, asked: StepQuestion, trace: str | None) -> list[StepResult]:
        """The simulated steps one after the other, each with its own draws of experts and jitter."""
        seeds = np.random.SeedSequence([asked.seed, _SEED_OF_THIS_ROOM]).spawn(asked.steps)
        if trace is None:
            return [self._one(seed, asked.jitter, None) for seed in seeds]
        try:
            with StepTrace(trace, self.groups, self.planner.box if self.planner else None) as sink:
                first = self._one(seeds[0], asked.jitter, sink)
        except OSError as error:
            raise InputError(f"cannot write {trace}: {error.strerror}; allowed: a new or writable file") from error
        return [first, *(self._one(seed, asked.jitter, None) for seed in seeds[1:])]

    def _one(self, seed: np.random.SeedSequence, jitter: bool, trace: StepTrace | None) -> StepResult:
        routing_rng, jitter_rng = (np.random.default_rng(child) for child in seed.spawn(2))
        loads = sample_loads(self.plan.moe_layers, self.num_ranks, self.cell.p, routing_rng)
        blocks = sum(isinstance(item, Block) and item.noisy for item in self.plan.items)
        shape = (self.num_ranks, blocks)
        skew_s = number(self.cell.p.allreduce_skew_s)
        noise = sample_jitter(*shape, self.num_waiting, skew_s, jitter_rng) if jitter else no_jitter(*shape)
        env = simpy.Environment()
        network = Network(env, self.planner.box, trace.link if trace else None) if self.planner else None
        run = StepRun(
            env=env,
            network=network,
            plan=self.plan,
            groups=self.groups,
            jitter=noise,
            expert_s=[load.seconds_by_rank for load in loads],
            reduces=self.hows,
            sink=trace.rank if trace else None,
        )
        run.start()
        env.run()
        return _result(run, loads, network.links.values() if network else ())


def _result(run: StepRun, loads: list[LayerLoad], links: Any) -> StepResult:
    accounts = dict(sorted(run.accounts.items()))
    step_s = max(sum(account.parts_s.values()) for account in accounts.values())
    _check_conserved(accounts, step_s)
    return StepResult(step_s, accounts, loads, list[Link](links))


def _check_conserved(accounts: dict[int, RankAccount], step_s: float) -> None:
    """Invariant: every rank's parts fill the step without a gap, for all ranks end it together."""
    for rank, account in accounts.items():
        total = sum(account.parts_s.values())
        assert abs(total - step_s) <= 1e-9 * step_s, f"rank {rank} accounts for {total} s of {step_s}"


def _prepare(study: Study, cell: StepCell, asked: StepQuestion) -> Simulation:
    plan = plan_step(cell)
    parallel = cell.system.parallel
    together = parallel.data if parallel.data > 1 and cell.system.work.moe else 1
    num_ranks = parallel.tensor * together
    if num_ranks > MAX_RANKS:
        raise InputError(f"ranks to simulate: got {num_ranks}, allowed up to {MAX_RANKS}")
    if parallel.tensor == 1:
        if asked.topology or asked.algorithm != "auto" or asked.protocol != "auto":
            raise InputError("tensor_parallel_size is 1: no AllReduce; allowed: no --topology, --algorithm, --protocol")
        return Simulation(cell, plan, tuple((rank,) for rank in range(num_ranks)), None, {}, ())
    own, box, notes = _boxes(cell, asked, num_ranks)
    options = ReduceOptions(asked.algorithm, asked.protocol)
    options.check(box)
    planner = ReducePlanner(own, box, cell.p, options, mean_block_s(plan))
    groups = tuple(group_members(box, parallel.tensor, first) for first in range(0, num_ranks, parallel.tensor))
    return Simulation(cell, plan, groups, planner, _hows(plan, cell, planner), notes)


def _hows(plan: Plan, cell: StepCell, planner: ReducePlanner) -> dict[tuple[int, float], ReduceHow]:
    """How each kind of message of the plan is reduced."""
    found: dict[tuple[int, float], ReduceHow] = {}
    for item in plan.items:
        if isinstance(item, Reduce) and (item.num_ranks, item.num_bytes) not in found:
            machine = cell.system.drafter.machine if item.drafting else cell.system.machine
            assert machine is not None
            planned = planner.plan(machine, item.num_bytes)
            found[item.num_ranks, item.num_bytes] = ReduceHow(planned.choice, planned.slowdown)
    return found


def _boxes(cell: StepCell, asked: StepQuestion, num_gpus: int) -> tuple[Box, Box, tuple[str, ...]]:
    """The deployment's own box, the one to simulate, and what to say about them."""
    gpu, interconnect = cell.system.gpu, cell.system.machine.interconnect
    own_file = cell.system.deployment.hardware.topology
    if interconnect == "none":
        raise InputError(
            f"hardware.interconnect: got none, but {num_gpus} GPUs have to talk; name a class or a topology"
        )
    own = box_of_class(interconnect, gpu, num_gpus)
    if own_file:
        topology = parse_topology(read_text(own_file))
        if classify(topology, num_gpus)[0] == interconnect:
            own = box_from_topology(topology, gpu, num_gpus)
    if not asked.topology:
        note = (
            () if own_file else (f"no topology is given; the usual {interconnect} box is assumed: {own.description}",)
        )
        return own, own, note
    topology = parse_topology(read_text(asked.topology))
    box = box_from_topology(topology, gpu, num_gpus)
    if box.interconnect in NVLINK_CLASSES and gpu.nvlink_bytes_per_s <= 0:
        raise InputError(f"{asked.topology}: shows NVLink, but {gpu.name} has none; allowed: a PCIe topology")
    if box.interconnect == interconnect:
        return box, box, (f"the box is {asked.topology}: {box.description}",)
    return (
        own,
        box,
        (
            f"another box than the deployment's ({interconnect}): {box.interconnect}, {box.description}; its links keep"
            " the calibration of the deployment's own box",
        ),
    )
