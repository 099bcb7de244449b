"""Messages over the links of a box: one message at a time occupies a link; what GPUs share is a SimPy resource.

A message's head moves on as soon as a link is granted, its tail follows (cut-through), so a path is as fast as its
narrowest link, and messages that share a link queue there.
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Any

import simpy

from simulator.ranks.topology_graph import Box, LinkSpec

Events = Generator[simpy.Event, Any, None]
_SHARED_KINDS = ("uplink", "host_bridge", "socket_link", "host_memory")  # the ports of one GPU need no queue of events
_SEVERAL = 2  # sources, and root ports, from which on an uplink collapses


class Message:
    """One transfer: `head` has happened when its first byte is there, `tail` when its last one is."""

    __slots__ = ("head", "tail", "tail_s")

    def __init__(self, env: simpy.Environment) -> None:
        """A message that nobody has sent yet."""
        self.head = env.event()
        self.tail = env.event()
        self.tail_s = 0.0


@dataclass(frozen=True, slots=True)
class Flow:
    """How a kernel sends: bytes per second it manages by itself (None: the wire's), and its wait after each message."""

    bytes_per_s: float | None = None
    fence_s: float = 0.0


class Link:
    """One direction of one link: its queue, and what has passed it."""

    __slots__ = (
        "busy_s",
        "collapsed",
        "free_s",
        "num_bytes",
        "num_messages",
        "queued_s",
        "resource",
        "spec",
        "waiting",
    )

    def __init__(self, env: simpy.Environment, spec: LinkSpec) -> None:
        """An idle link."""
        self.spec = spec
        self.resource = simpy.Resource(env) if spec.kind in _SHARED_KINDS else None
        self.free_s = 0.0
        self.waiting: Counter[tuple[int, str]] = Counter()  # messages in line by (source GPU, link they leave by)
        self.collapsed = False
        self.busy_s = 0.0
        self.queued_s = 0.0
        self.num_bytes = 0.0
        self.num_messages = 0

    def rate_bytes_per_s(self) -> float:
        """The rate now: collapsed from when several GPUs push to several root ports until the queue has drained."""
        slow = self.spec.collapsed_bytes_per_s
        if slow is None:
            return self.spec.bytes_per_s
        if not self.collapsed and len(self.waiting) >= _SEVERAL:
            sources, exits = (len(set(column)) for column in zip(*self.waiting, strict=True))
            self.collapsed = sources >= _SEVERAL and exits >= _SEVERAL
        return slow if self.collapsed else self.spec.bytes_per_s

    def occupied(self, seconds: float) -> None:
        """A message takes the link for so long."""
        self.busy_s += seconds
        self.num_messages += 1

    def left(self, entry: tuple[int, str]) -> None:
        """A message has passed."""
        self.waiting[entry] -= 1
        if not self.waiting[entry]:
            del self.waiting[entry]
        if not self.waiting:
            self.collapsed = False


class Network:
    """The links of `box` in one simulation."""

    def __init__(
        self, env: simpy.Environment, box: Box, record: Callable[[str, float, float, str], None] | None = None
    ):
        """Idle links; `record` is told (link, start, end, label) of every occupation."""
        self.env = env
        self.box = box
        self.links = {name: Link(env, spec) for name, spec in box.links.items()}
        self.engine_free_s = [0.0] * box.num_gpus  # when a GPU's kernel has sent what it was given before
        self.record = record
        self.paths = {pair: [self.links[name] for name in names] for pair, names in box.paths.items()}
        self.exits = {pair: _exit_of(path) for pair, path in self.paths.items()}

    def send(self, message: Message, pair: tuple[int, int], num_bytes: float, how: "Sending") -> None:
        """Start a message of `num_bytes` on the wire from one GPU to another."""
        self.env.process(self._travel(message, pair, num_bytes, how))

    def _travel(self, message: Message, pair: tuple[int, int], num_bytes: float, how: "Sending") -> Events:
        env, stretch = self.env, how.slowdown
        slowest = 0.0
        if how.flow.bytes_per_s is not None:
            slowest = (num_bytes / how.flow.bytes_per_s + how.flow.fence_s) * stretch
            start = max(env.now, self.engine_free_s[pair[0]])
            self.engine_free_s[pair[0]] = start + slowest
            if start > env.now:
                yield env.timeout(start - env.now)
        entry = (pair[0], self.exits[pair])
        for link in self.paths[pair]:
            if link.resource is None:
                wait, hold = self._pass_port(link, num_bytes * stretch, how.label)
            else:
                hold = yield from self._pass_shared(link, link.resource, num_bytes * stretch, entry, how.label)
                wait = 0.0
            link.num_bytes += num_bytes
            slowest = max(slowest, hold)
            yield env.timeout(wait + link.spec.latency_s * stretch)
        if how.hop_s is not None:
            message.head.succeed()
        yield env.timeout(slowest)
        source = how.upstream
        if source is not None:  # what is passed on while it arrives cannot end before it has arrived
            if not source.tail.processed:
                yield source.tail
            earliest = source.tail_s + ((how.hop_s or 0.0) + self.box.latency_s(*pair)) * stretch
            if earliest > env.now:
                yield env.timeout(earliest - env.now)
        message.tail_s = env.now
        message.tail.succeed()

    def _pass_port(self, link: "Link", stretched_bytes: float, label: str) -> tuple[float, float]:
        """(wait, occupation) at a link whose rate never changes: first come, first served by arithmetic."""
        hold = stretched_bytes / link.spec.bytes_per_s
        start = max(self.env.now, link.free_s)
        link.free_s = start + hold
        wait = start - self.env.now
        link.queued_s += wait
        link.occupied(hold)
        if self.record is not None:
            self.record(link.spec.name, start, link.free_s, label)
        return wait, hold

    def _pass_shared(
        self, link: "Link", resource: simpy.Resource, stretched_bytes: float, entry: tuple[int, str], label: str
    ) -> Generator[simpy.Event, Any, float]:
        """Wait for a shared link; seconds that it will be occupied."""
        asked = self.env.now
        link.waiting[entry] += 1
        request = resource.request()
        if not request.triggered:
            yield request
            link.queued_s += self.env.now - asked
        start = self.env.now
        hold = stretched_bytes / link.rate_bytes_per_s()
        link.occupied(hold)

        def done(_: simpy.Event) -> None:
            link.left(entry)
            resource.release(request)
            if self.record is not None:
                self.record(link.spec.name, start, self.env.now, label)

        timeout = self.env.timeout(hold)
        assert timeout.callbacks is not None
        timeout.callbacks.append(done)
        return hold


@dataclass(frozen=True, slots=True)
class Sending:
    """How one message is sent: the kernel's flow, the message it is forwarded from, and what the trace calls it."""

    flow: Flow = Flow()
    upstream: Message | None = None
    hop_s: float | None = None  # None: the receiver waits for the whole message, nobody looks at its head
    slowdown: float = 1.0  # stretches every time on the links alike
    label: str = ""


def _exit_of(path: Iterable[Link]) -> str:
    """The root port by which a message leaves the CPU towards its target: its last uplink, else its last port."""
    links = list(path)
    down = [link.spec.name for link in links if link.spec.kind == "uplink" and link.spec.name.endswith("downlink")]
    return down[0] if down else links[-1].spec.name
