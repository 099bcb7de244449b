"""One AllReduce after the other with nothing between them, as nccl-tests measures it."""

from collections.abc import Sequence

import simpy

from simulator.ranks.allreduce_algorithms import Call, Choice, Events, run_rank
from simulator.ranks.links import Network
from simulator.ranks.topology_graph import Box

_WARM_UP = 1
_TIMED = 3


def allreduce_period_s(box: Box, num_bytes: float, choice: Choice, members: Sequence[int] | None = None) -> float:
    """Seconds from one AllReduce of `num_bytes` to the next, all ranks entering as soon as they have left the last."""
    env = simpy.Environment()
    network = Network(env, box)
    group = tuple(box.order if members is None else members)
    calls = [Call(network, group, num_bytes, choice) for _ in range(_WARM_UP + _TIMED)]
    left: list[float] = []

    def rank(gpu: int) -> Events:
        for number, call in enumerate(calls):
            yield from run_rank(call, gpu)
            if number in (_WARM_UP - 1, len(calls) - 1):
                left.append(env.now)

    for gpu in group:
        env.process(rank(gpu))
    env.run()
    return (sum(left[len(group) :]) - sum(left[: len(group)])) / len(group) / _TIMED
