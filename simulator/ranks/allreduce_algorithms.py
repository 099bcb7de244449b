"""AllReduce as messages: ring, tree, one-shot, two-shot, hierarchical. Each is what one rank does, as a generator.

All of them take a `Call`, which the ranks of one AllReduce share, and the position of the rank in it.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import simpy

from hwmodel.errors import InputError
from hwmodel.interconnects import checked_name
from hwmodel.link_constants import Protocol, hop_rate_bytes_per_s, link_table, protocol
from hwmodel.units import KIB, US
from simulator.ranks.links import Flow, Message, Network, Sending

Events = Generator[simpy.Event, Any, None]
MESSAGE_ALGORITHMS = ("ring", "tree", "one-shot", "two-shot", "hierarchical")


@dataclass(frozen=True, slots=True)
class Choice:
    """How an AllReduce is done: algorithm, NCCL protocol (ring and tree only), NCCL channels."""

    algorithm: str
    protocol: str | None = None
    channels: int | None = None  # None: NCCL's usual number

    @property
    def label(self) -> str:
        """As printed: "ring LL", "one-shot"."""
        names = {"ll": "LL", "ll128": "LL128", "simple": "Simple", None: ""}
        return f"{self.algorithm} {names[self.protocol]}".strip()


@dataclass
class Call:
    """One AllReduce in flight: who takes part, how large it is, and the messages between them."""

    network: Network
    members: Sequence[int]  # GPUs, in ring order
    num_bytes: float
    choice: Choice
    slowdown: float = 1.0
    messages: dict[Any, Message] = field(default_factory=dict)
    barriers: dict[Any, list[Any]] = field(default_factory=dict)

    @property
    def env(self) -> simpy.Environment:
        """The simulation."""
        return self.network.env

    def message(self, key: Any) -> Message:
        """The message of that key, made by whoever asks first."""
        found = self.messages.get(key)
        if found is None:
            found = self.messages[key] = Message(self.env)
        return found

    def wait(self, seconds: float) -> simpy.Event:
        """A time of the kernel itself, stretched as the links are."""
        return self.env.timeout(seconds * self.slowdown)

    def send(self, key: Any, pair: tuple[int, int], num_bytes: float, how: Sending) -> None:
        """Send the message of that key."""
        self.network.send(self.message(key), pair, num_bytes, how)

    def barrier(self, key: Any, group: Sequence[int], gpu: int) -> Events:
        """Wait until every GPU of `group` has said so: the flag of the last one has to get here."""
        flag_s = link_table()["one_shot"]["flag_us"] * US
        yield self.wait(flag_s * (len(group) - 1))
        state = self.barriers.setdefault((key, tuple(group)), [0, self.env.event()])
        state[0] += 1
        if state[0] == len(group):
            state[1].succeed()
        yield state[1]
        farthest = max((self.network.box.latency_s(other, gpu) for other in group if other != gpu), default=0.0)
        yield self.wait(farthest)


def run_rank(call: Call, gpu: int) -> Events:
    """What `gpu` does in `call`, from entering the kernel to leaving it."""
    return _ALGORITHMS[call.choice.algorithm](call, gpu)


def check_algorithm(name: str, islands: Sequence[Sequence[int]]) -> None:
    """`InputError` for an algorithm that is not known, or that this box cannot run."""
    checked_name("AllReduce algorithm", name, MESSAGE_ALGORITHMS)
    sizes = sorted({len(island) for island in islands})
    if name == "hierarchical" and (len(islands) < 2 or len(sizes) > 1):
        text = "+".join(str(len(island)) for island in islands)
        raise InputError(f"hierarchical AllReduce: got islands of {text} GPUs, allowed: two or more of one size")


def _flow(call: Call, kind: Protocol, pair: tuple[int, int]) -> Flow:
    """What NCCL's channels send over one hop."""
    box = call.network.box
    usual = link_table()["choice"]["channels"]
    scale = box.rate_scale * (call.choice.channels or usual) / usual
    rate = hop_rate_bytes_per_s(box.family, box.crossings[pair], kind.name, call.num_bytes)
    return Flow(rate * scale, kind.fence_s)


def _ring(call: Call, gpu: int) -> Events:
    """Reduce-scatter and all-gather round the ring: 2 (n - 1) steps, 1/n of the bytes a step."""
    kind = protocol(call.choice.protocol or "simple")
    members = call.members
    count, place = len(members), members.index(gpu)
    target = members[(place + 1) % count]
    pair = (gpu, target)
    flow = _flow(call, kind, pair)
    size = call.num_bytes / count / kind.pieces * kind.wire
    yield call.wait(kind.base_s)
    steps = 2 * (count - 1)
    for step in range(steps + 1):
        for piece in range(kind.pieces):
            upstream = None
            if step:
                received = call.message((step - 1, piece, gpu))
                yield from _arrival(received, kind.cut_through and step < steps)
                yield call.wait(kind.hop_s)
                upstream = received if kind.cut_through else None
            if step < steps:
                hop_s = kind.hop_s if kind.cut_through else None
                how = Sending(flow, upstream, hop_s, call.slowdown, f"step {step + 1} of {steps}")
                call.send((step, piece, target), pair, size, how)


def _arrival(message: Message, head: bool) -> Events:
    event = message.head if head else message.tail
    if not event.processed:
        yield event


def _tree(call: Call, gpu: int) -> Events:
    """Reduce up a binary tree, broadcast down it, piece after piece."""
    kind = protocol(call.choice.protocol or "simple")
    limits = link_table()["tree"]
    pieces = int(min(max(call.num_bytes // (limits["piece_kib"] * KIB), 1), limits["max_pieces"]))
    size = call.num_bytes / pieces * kind.wire
    place = call.members.index(gpu)
    children = [call.members[i] for i in (2 * place + 1, 2 * place + 2) if i < len(call.members)]
    parent = call.members[(place - 1) // 2] if place else None
    yield call.wait(kind.base_s)
    for piece in range(pieces):
        for child in children:
            yield from _arrival(call.message(("up", piece, child)), False)
            yield call.wait(kind.hop_s)
        if parent is not None:
            how = Sending(_flow(call, kind, (gpu, parent)), slowdown=call.slowdown, label="up")
            call.send(("up", piece, gpu), (gpu, parent), size, how)
        else:
            _to_children(call, kind, gpu, children, piece, size)
    if parent is not None:
        for piece in range(pieces):
            yield from _arrival(call.message(("down", piece, gpu)), False)
            yield call.wait(kind.hop_s)
            _to_children(call, kind, gpu, children, piece, size)


def _to_children(call: Call, kind: Protocol, gpu: int, children: Iterable[int], piece: int, size: float) -> None:
    for child in children:
        how = Sending(_flow(call, kind, (gpu, child)), slowdown=call.slowdown, label="down")
        call.send(("down", piece, child), (gpu, child), size, how)


def _one_shot(call: Call, gpu: int) -> Events:
    """Push the whole message to every peer, then add up what came."""
    yield call.wait(link_table()["one_shot"]["base_us"] * US)
    yield from _exchange(call, "all", call.members, gpu, call.num_bytes)


def _two_shot(call: Call, gpu: int) -> Events:
    """Every rank adds up 1/n of the message and pushes its sum to the others."""
    yield call.wait(link_table()["one_shot"]["base_us"] * US)
    part = call.num_bytes / len(call.members)
    yield from _exchange(call, "scatter", call.members, gpu, part)
    yield from _exchange(call, "gather", call.members, gpu, part)


def _hierarchical(call: Call, gpu: int) -> Events:
    """Add up inside the island, between the islands only 1/m of the message, then gather inside the island."""
    yield call.wait(link_table()["one_shot"]["base_us"] * US)
    islands = [[g for g in island if g in call.members] for island in call.network.box.islands]
    home = next(island for island in islands if gpu in island)
    part = call.num_bytes / len(home)
    peers = [island[home.index(gpu)] for island in islands]
    yield from _exchange(call, "inside", home, gpu, part)
    yield from _exchange(call, "between", peers, gpu, part)
    yield from _exchange(call, "gather", home, gpu, part)


def _exchange(call: Call, name: str, group: Sequence[int], gpu: int, num_bytes: float) -> Events:
    """Everybody of `group` pushes `num_bytes` to everybody else, nearest first; a barrier before and after."""
    place = group.index(gpu)
    others = [group[(place + i) % len(group)] for i in range(1, len(group))]
    yield from call.barrier((name, "start"), group, gpu)
    for other in others:
        how = Sending(slowdown=call.slowdown, label=name)
        call.send((name, gpu, other), (gpu, other), num_bytes, how)
    for other in others:
        yield from _arrival(call.message((name, other, gpu)), False)
    yield from call.barrier((name, "end"), group, gpu)


_ALGORITHMS: dict[str, Callable[[Call, int], Events]] = {
    "ring": _ring,
    "tree": _tree,
    "one-shot": _one_shot,
    "two-shot": _two_shot,
    "hierarchical": _hierarchical,
}
