"""How the AllReduces of a step are done: which box, which algorithm, and how fast its links really are.

The links of the box say how the time of an algorithm comes about; how long the deployment's own AllReduce takes is what
`hwmodel` says at the posterior median. The ratio of the two stretches every time on the links (`slowdown`), so that
the simulated step agrees with `hwmodel`, and other algorithms and boxes are seen on the same footing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from hwmodel.allreduce_curve import AllReduceCurve
from hwmodel.errors import InputError
from hwmodel.interconnects import checked_name
from hwmodel.link_constants import PROTOCOLS, custom_kernel, usual_protocol
from hwmodel.parameters import Parameters
from hwmodel.step import Machine, allreduce_time_s
from simulator.ranks.allreduce_algorithms import MESSAGE_ALGORITHMS, Choice, check_algorithm
from simulator.ranks.cell import number, without_skew
from simulator.ranks.isolated import allreduce_period_s
from simulator.ranks.topology_graph import Box

AUTO = "auto"
_NCCL_ALGORITHMS = ("ring", "tree")
_CLOSE = 1e-3  # a slowdown is close enough
_ROUNDS = 4  # of the search for the slowdown: each leaves a tenth of the error or less


@dataclass(frozen=True, slots=True)
class ReduceOptions:
    """What was asked for: an algorithm and protocol instead of the usual ones, and another box."""

    algorithm: str = AUTO
    protocol: str = AUTO

    def check(self, box: Box) -> None:
        """`InputError` for names that are not known, and for algorithms that the box cannot run."""
        checked_name("AllReduce algorithm", self.algorithm, (AUTO, *MESSAGE_ALGORITHMS))
        checked_name("NCCL protocol", self.protocol, (AUTO, *PROTOCOLS))
        if self.algorithm != AUTO:
            check_algorithm(self.algorithm, box.islands)
        if self.protocol != AUTO and self.algorithm not in (AUTO, *_NCCL_ALGORITHMS):
            raise InputError(f"NCCL protocol: got {self.protocol} for {self.algorithm}, allowed with: auto, ring, tree")


@dataclass(frozen=True, slots=True)
class Planned:
    """How one size of message is reduced: `slowdown` of the links, and the mean time that results, seconds."""

    choice: Choice
    slowdown: float
    network_s: float
    published_s: float  # on the links as published


@dataclass
class ReducePlanner:
    """Plans AllReduces of the target and of the drafter, each size once.

    `own_box` is the deployment's, whose AllReduce `hwmodel` knows; `box` is the one to be simulated. `pause_s` is the
    compute between two AllReduces of the target's pass, in which the links drain.
    """

    own_box: Box
    box: Box
    p: Parameters
    options: ReduceOptions
    pause_s: float
    _known: dict[tuple[int, float], Planned] = field(default_factory=dict)
    _slowdowns: dict[tuple[int, float], float] = field(default_factory=dict)

    def plan(self, machine: Machine, num_bytes: float) -> Planned:
        """How a message of `num_bytes` is reduced by the tensor-parallel group of `machine`."""
        key = (machine.parallel.tensor, num_bytes)
        if key not in self._known:
            self._known[key] = self._planned(machine, num_bytes, self.chosen(machine, num_bytes))
        return self._known[key]

    def chosen(self, machine: Machine, num_bytes: float) -> Choice:
        """The algorithm and protocol in force."""
        usual = usual_choice(self.box, machine.parallel.tensor, num_bytes, machine.allreduce)
        algorithm = usual.algorithm if self.options.algorithm == AUTO else self.options.algorithm
        if algorithm not in _NCCL_ALGORITHMS:
            return Choice(algorithm)
        protocol = self.options.protocol
        if protocol == AUTO:
            protocol = _usual_protocol(self.box, num_bytes)
        return Choice(algorithm, protocol)

    def alternatives(self, machine: Machine, num_bytes: float) -> list[Planned]:
        """The same message by every algorithm that can run here, on links of the same slowdown.

        NCCL's with the protocol that it takes by itself, and with LL.
        """
        usual = _usual_protocol(self.box, num_bytes)
        choices = []
        for name in runnable_algorithms(self.box):
            protocols = dict.fromkeys((usual, "ll")) if name in _NCCL_ALGORITHMS else (None,)
            choices += [Choice(name, protocol) for protocol in protocols]
        return [self._planned(machine, num_bytes, choice) for choice in choices]

    def _planned(self, machine: Machine, num_bytes: float, choice: Choice) -> Planned:
        members = group_members(self.box, machine.parallel.tensor)
        slowdown = self._slowdown(machine, num_bytes)
        published = allreduce_period_s(self.box, num_bytes, choice, members, self.pause_s / slowdown)
        return Planned(choice, slowdown, published * slowdown, published)

    def _slowdown(self, machine: Machine, num_bytes: float) -> float:
        """The factor on all times of the own box's links that gives the time of `hwmodel`.

        Links that are twice as slow see the pause half as long: hence a search.
        """
        key = (machine.parallel.tensor, num_bytes)
        if key not in self._slowdowns:
            wanted = number(allreduce_time_s(machine, num_bytes, without_skew(self.p)))
            choice = usual_choice(self.own_box, machine.parallel.tensor, num_bytes, machine.allreduce)
            members = group_members(self.own_box, machine.parallel.tensor)
            slowdown = 1.0
            for _ in range(_ROUNDS):
                period = allreduce_period_s(self.own_box, num_bytes, choice, members, self.pause_s / slowdown)
                if abs(wanted / period - slowdown) < _CLOSE * slowdown:
                    break
                slowdown = wanted / period
            self._slowdowns[key] = slowdown
        return self._slowdowns[key]


def group_members(box: Box, num_ranks: int, first: int = 0) -> tuple[int, ...]:
    """The GPUs of a tensor-parallel group in ring order."""
    wanted = range(first, first + num_ranks)
    return tuple(gpu for gpu in box.order if gpu in wanted)


def usual_choice(box: Box, num_ranks: int, num_bytes: float, curve: AllReduceCurve) -> Choice:
    """What the engine does by itself, by the curve that `hwmodel` uses: NCCL's ring, or one of the other kernels."""
    name = curve.algorithm_at(num_bytes)
    if name == "custom":
        return Choice(custom_kernel(num_ranks, num_bytes))
    if name in MESSAGE_ALGORITHMS and name not in _NCCL_ALGORITHMS:
        return Choice(name)
    return Choice("ring", _usual_protocol(box, num_bytes))


def _usual_protocol(box: Box, num_bytes: float) -> str:
    mistuned = box.crosses_sockets and box.family == "pcie5"  # measured on dual Turin; PCIe 4 hosts start with LL
    return usual_protocol(box.family, num_bytes, mistuned)


def runnable_algorithms(box: Box) -> Sequence[str]:
    """The algorithms that can run on a box."""
    found = []
    for name in MESSAGE_ALGORITHMS:
        try:
            check_algorithm(name, box.islands)
        except InputError:
            continue
        found.append(name)
    return found
