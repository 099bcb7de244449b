"""One AllReduce after the other, with nothing between them as in nccl-tests or with a pause as inside a step."""

from collections.abc import Sequence

import simpy

from simulator.ranks.allreduce_algorithms import Call, Choice, Events, run_rank
from simulator.ranks.links import Network
from simulator.ranks.topology_graph import Box

_WARM_UP = 1
_TIMED = 3


def allreduce_period_s(
    box: Box, num_bytes: float, choice: Choice, members: Sequence[int] | None = None, pause_s: float = 0.0
) -> float:
    """Seconds that one AllReduce of `num_bytes` adds when ranks enter it `pause_s` after they have left the last.

    Without a pause a slow link still drains the last messages of one while the next begins, up to a tenth of the time.
    """
    env = simpy.Environment()
    network = Network(env, box)
    group = tuple(box.order if members is None else members)
    calls = [Call(network, group, num_bytes, choice) for _ in range(_WARM_UP + _TIMED)]
    left: list[float] = []

    def rank(gpu: int) -> Events:
        for number, call in enumerate(calls):
            yield from run_rank(call, gpu)
            if pause_s:
                yield env.timeout(pause_s)
            if number in (_WARM_UP - 1, len(calls) - 1):
                left.append(env.now)

    for gpu in group:
        env.process(rank(gpu))
    env.run()
    return (sum(left[len(group) :]) - sum(left[: len(group)])) / len(group) / _TIMED - pause_s
