"""What a rank does: it walks the plan, waits where it must, and keeps account of its time, part by part."""

from collections import defaultdict
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import simpy

from simulator.ranks.allreduce_algorithms import Call, Choice, run_rank
from simulator.ranks.jitter import Jitter
from simulator.ranks.links import Network
from simulator.ranks.plan import Block, Meet, Plan, Reduce

Events = Generator[simpy.Event, Any, None]
SpanSink = Callable[[int, str, str, float, float], None]  # rank, what, category, start, end


@dataclass
class RankAccount:
    """Seconds of one rank over a step. `parts_s` add up to the step; the rest says what they were spent on."""

    parts_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    compute_s: float = 0.0
    network_s: float = 0.0  # inside AllReduce, from when the last rank had entered
    wait_s: float = 0.0  # for the last rank
    draft_communication_s: float = 0.0  # of the drafter's passes, waits included
    times_last: int = 0  # AllReduces that everybody else waited in for this rank


@dataclass(frozen=True, slots=True)
class ReduceHow:
    """How a message is reduced in this run."""

    choice: Choice
    slowdown: float


@dataclass
class StepRun:
    """One step in one simulation: the ranks, their groups, what they share."""

    env: simpy.Environment
    network: Network | None
    plan: Plan
    groups: Sequence[Sequence[int]]  # ranks of each tensor-parallel group, in ring order
    jitter: Jitter
    expert_s: Sequence[Sequence[float]]  # per MoE layer, per rank
    reduces: dict[tuple[int, float], ReduceHow]  # by (ranks, bytes)
    sink: SpanSink | None = None
    accounts: dict[int, RankAccount] = field(default_factory=dict)
    _calls: dict[tuple[int, int], "_SharedCall"] = field(default_factory=dict)
    _meetings: dict[tuple[int, int], "_Meeting"] = field(default_factory=dict)

    def start(self) -> None:
        """Put every rank at the start of the plan."""
        for group_number, group in enumerate(self.groups):
            for rank in group:
                self.accounts[rank] = RankAccount()
                self.env.process(self._walk(rank, group_number))

    def _walk(self, rank: int, group_number: int) -> Events:
        """The rank's whole step."""
        block_number = 0
        for position, item in enumerate(self.plan.items):
            if isinstance(item, Block):
                yield from self._block(rank, item, block_number)
                block_number += item.noisy
            elif isinstance(item, Reduce):
                yield from self._reduce(rank, group_number, position, item)
            else:
                yield from self._meet(rank, group_number, position, item)

    def _block(self, rank: int, block: Block, block_number: int) -> Events:
        seconds = [(name, value) for name, value in block.seconds if value > 0]
        if block.experts is not None:
            seconds.append(("experts", self.expert_s[block.experts][rank]))
        planned = sum(value for _, value in seconds)
        duration = self.jitter.stretched(rank, block_number, planned) if block.noisy and planned else planned
        start = self.env.now
        for name, value in seconds:
            part = value / planned * duration
            self.accounts[rank].parts_s["drafter" if block.drafting else name] += part
            self._tell(rank, f"{block.label}: {name}", name, start, start + part)
            start += part
        self.accounts[rank].compute_s += duration
        if duration:
            yield self.env.timeout(duration)

    def _reduce(self, rank: int, group_number: int, position: int, item: Reduce) -> Events:
        group = self.groups[group_number]
        members = [member for member in group if member in sorted(group)[: item.num_ranks]]
        if rank not in members:
            return
        shared = self._calls.get((group_number, position))
        if shared is None:
            assert self.network is not None
            how = self.reduces[item.num_ranks, item.num_bytes]
            call = Call(self.network, members, item.num_bytes, how.choice, how.slowdown)
            shared = self._calls[group_number, position] = _SharedCall(call, self.env.now)
        arrived = self.env.now
        shared.enter(rank, arrived)
        yield from run_rank(shared.call, rank)
        if shared.leave() == 0:
            del self._calls[group_number, position]
        wait, total = shared.last_s - arrived, self.env.now - arrived
        self._tell(rank, f"{item.label}: wait for rank {shared.last_rank}", "wait", arrived, shared.last_s)
        self._tell(rank, f"{item.label}: AllReduce", "allreduce", shared.last_s, self.env.now)
        account = self.accounts[rank]
        if item.drafting:
            account.parts_s["drafter"] += total
            account.draft_communication_s += total
            return
        account.parts_s["allreduce"] += total
        account.wait_s += wait
        account.network_s += total - wait
        account.times_last += shared.last_rank == rank and shared.last_s > shared.first_s

    def _meet(self, rank: int, group_number: int, position: int, item: Meet) -> Events:
        everybody = item.whole_box
        size = len(self.groups[group_number]) if not everybody else sum(len(group) for group in self.groups)
        key = (-1 if everybody else group_number, position)
        meeting = self._meetings.setdefault(key, _Meeting(self.env.event()))
        meeting.present += 1
        if meeting.present == size:
            meeting.opened.succeed()
        arrived = self.env.now
        yield meeting.opened
        waited = self.env.now - arrived
        account = self.accounts[rank]
        account.parts_s["drafter" if item.drafting else "allreduce"] += waited
        if item.drafting:
            account.draft_communication_s += waited
        else:
            account.wait_s += waited
        self._tell(rank, f"{item.label}: wait", "wait", arrived, self.env.now)
        if item.seconds:
            start = self.env.now
            yield self.env.timeout(item.seconds)
            account.parts_s["drafter" if item.drafting else item.part] += item.seconds
            if item.part == "allreduce" and not item.drafting:
                account.network_s += item.seconds
            else:
                account.compute_s += item.seconds
            self._tell(rank, item.label, item.part, start, self.env.now)

    def _tell(self, rank: int, what: str, category: str, start: float, end: float) -> None:
        if self.sink is not None and end > start:
            self.sink(rank, what, category, start, end)


@dataclass
class _SharedCall:
    """One AllReduce in flight, and who entered it last."""

    call: Call
    first_s: float
    last_s: float = 0.0
    last_rank: int = -1
    inside: int = 0

    def enter(self, rank: int, now: float) -> None:
        """A rank enters; nobody leaves before the last one is in."""
        self.last_s, self.last_rank = now, rank
        self.inside += 1

    def leave(self) -> int:
        """Ranks still inside."""
        self.inside -= 1
        return self.inside


@dataclass
class _Meeting:
    """Ranks that wait for each other."""

    opened: simpy.Event
    present: int = 0
