"""The box as a graph: GPUs, switches, host bridges and sockets, and the links that a message from GPU to GPU passes."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from hwmodel.errors import InputError
from hwmodel.interconnects import NVLINK_CLASSES
from hwmodel.link_constants import link_family, link_table
from hwmodel.specs import Gpu
from hwmodel.units import GB, US
from simulator.topology import Topology, classify

CROSSINGS = ("nvlink", "switch", "host_bridge", "socket_link", "host_memory")  # from near to far
_SWITCH_GPUS = 4  # GPUs behind one switch of the usual 8-GPU boxes
_PAIR = 2  # GPUs behind one switch port group of the usual dual-socket box (ASUS ESC8000A, nvidia-smi topo -m)


@dataclass(frozen=True, slots=True)
class LinkSpec:
    """One direction of one link. `crossing` is what it counts as when a path passes it ("" for a mere port)."""

    name: str
    kind: str
    bytes_per_s: float
    latency_s: float
    crossing: str = ""
    collapsed_bytes_per_s: float | None = None  # rate while several GPUs write to several root ports through it


@dataclass(frozen=True)
class Box:
    """Links by name, and for each ordered pair of GPUs the names of those on its path and the widest gap it crosses."""

    family: str  # "pcie5", "pcie4", "nvlink": how the rates of its hops are filed
    interconnect: str
    num_gpus: int
    links: dict[str, LinkSpec]
    paths: dict[tuple[int, int], tuple[str, ...]]
    crossings: dict[tuple[int, int], str]
    order: tuple[int, ...]  # GPUs in ring order: neighbours first
    islands: tuple[tuple[int, ...], ...]  # GPUs of one socket, or of one switch where there is one socket
    description: str
    rate_scale: float = 1.0  # of the rates that were measured on one card of the family

    @property
    def crosses_sockets(self) -> bool:
        """Whether any pair of GPUs is on two sockets."""
        return "socket_link" in self.crossings.values()

    def latency_s(self, source: int, target: int) -> float:
        """Seconds that the first byte of a message takes from one GPU to another."""
        return sum(self.links[name].latency_s for name in self.paths[source, target])


@dataclass(frozen=True, slots=True)
class Place:
    """Where one GPU sits: its switch (and the switch above that), and its socket. None = none."""

    leaf: int | None
    top: int | None
    socket: int


def box_from_topology(topology: Topology, gpu: Gpu, num_gpus: int) -> Box:
    """The box of an `nvidia-smi topo -m`: PIX one switch, PXB switches in cascade, PHB and NODE one CPU, SYS two.

    The table tells nothing about the width of uplinks: one x16 per switch is assumed. Pairs with an NVLink bridge in a
    PCIe box count as neighbours on a switch.
    """
    interconnect, _ = classify(topology, num_gpus)
    if interconnect in NVLINK_CLASSES:
        return nvlink_box(gpu, num_gpus, interconnect)
    names = topology.links

    def groups(near: set[str]) -> list[int]:
        return _groups(num_gpus, lambda i, j: names[i][j] in near or names[i][j].startswith("NV"))

    leaf, top = groups({"PIX"}), groups({"PIX", "PXB"})
    socket = groups({"PIX", "PXB", "PHB", "NODE"})
    places = []
    for i in range(num_gpus):
        alone = leaf.count(leaf[i]) == 1 and top.count(top[i]) == 1
        cascade = len({leaf[j] for j in range(num_gpus) if top[j] == top[i]}) > 1
        places.append(Place(None if alone else leaf[i], top[i] if cascade else None, socket[i]))
    return pcie_box(gpu, places, interconnect)


def box_of_class(interconnect: str, gpu: Gpu, num_gpus: int) -> Box:
    """The usual box of an interconnect class (data/fits/links.toml says what its parts cost)."""
    if num_gpus < 2:
        raise InputError(f"links between GPUs: got {num_gpus} GPU, allowed: 2 or more")
    if interconnect in NVLINK_CLASSES:
        return nvlink_box(gpu, num_gpus, interconnect)
    half = (num_gpus + 1) // 2
    behind_switch = min(half, _SWITCH_GPUS)
    layouts: dict[str, Callable[[int], Place]] = {
        "pcie-switch": lambda i: Place(i // _SWITCH_GPUS, 0 if num_gpus > _SWITCH_GPUS else None, 0),
        "pcie-two-switches": lambda i: Place(i // behind_switch, None, 0),
        "pcie-root": lambda i: Place(None, None, 0),
        "pcie-dual-socket": lambda i: Place(i // half * -(-half // _PAIR) + i % half // _PAIR, None, i // half),
        "pcie-no-p2p": lambda i: Place(None, None, 0),
    }
    if interconnect not in layouts:
        raise InputError(f"links of interconnect '{interconnect}': allowed: {', '.join([*layouts, *NVLINK_CLASSES])}")
    return pcie_box(gpu, [layouts[interconnect](i) for i in range(num_gpus)], interconnect)


def nvlink_box(gpu: Gpu, num_gpus: int, interconnect: str) -> Box:
    """Every GPU has one port into the NVLink fabric; direct wiring is treated alike (the port is what fills)."""
    table = link_table()
    rate = gpu.nvlink_bytes_per_s * table["share"]["nvlink"]
    scale = gpu.nvlink_bytes_per_s / (table["nvlink_reference_gb_per_s"] * GB)
    latency = table["latency_us"]["nvlink_port"] * US
    links: dict[str, LinkSpec] = {}
    paths: dict[tuple[int, int], tuple[str, ...]] = {}
    for i in range(num_gpus):
        for way in ("out", "in"):
            links[f"gpu{i} nvlink {way}"] = LinkSpec(f"gpu{i} nvlink {way}", "nvlink_port", rate, latency, "nvlink")
    for i in range(num_gpus):
        for j in range(num_gpus):
            if i != j:
                paths[i, j] = (f"gpu{i} nvlink out", f"gpu{j} nvlink in")
    everybody = tuple(range(num_gpus))
    crossings = dict.fromkeys(paths, "nvlink")
    text = f"{num_gpus} GPUs, one NVLink port each into {'the switches' if interconnect == 'nvswitch' else 'the mesh'}"
    return Box("nvlink", interconnect, num_gpus, links, paths, crossings, everybody, (everybody,), text, scale)


def pcie_box(gpu: Gpu, places: list[Place], interconnect: str) -> Box:
    """The links and paths of GPUs at `places`."""
    builder = _PcieLinks(gpu, interconnect == "pcie-no-p2p", len({p.socket for p in places}) > 1)
    paths = {
        (i, j): tuple(builder.path(i, j, places)) for i in range(len(places)) for j in range(len(places)) if i != j
    }
    crossings = {pair: _widest(builder.links[name].crossing for name in path) for pair, path in paths.items()}
    return Box(
        family=link_family(gpu, nvlink=False),
        interconnect=interconnect,
        num_gpus=len(places),
        links=builder.links,
        paths=paths,
        crossings=crossings,
        order=tuple(sorted(range(len(places)), key=lambda i: (*_nest(places[i]), i))),
        islands=_islands(places),
        description=_described(places),
    )


class _PcieLinks:
    """Makes each link the first time that a path passes it."""

    def __init__(self, gpu: Gpu, through_memory: bool, two_sockets: bool) -> None:
        self.two_sockets = two_sockets
        self.rate = gpu.pcie_bytes_per_s
        self.through_memory = through_memory
        self.links: dict[str, LinkSpec] = {}

    def path(self, i: int, j: int, places: list[Place]) -> Iterable[str]:
        """Names of the links from GPU i to GPU j, in order."""
        a, b = places[i], places[j]
        yield self._port(i, "out", a)
        if a.leaf is None or a.leaf != b.leaf:
            shared_top = a.top is not None and a.top == b.top
            yield from self._climb(a, "up", shared_top)
            if not shared_top:
                yield from self._across(a.socket, b.socket)
            yield from self._climb(b, "down", shared_top)
        yield self._port(j, "in", b)

    def _port(self, i: int, way: str, place: Place) -> str:
        # A message passes a switch between the two ports: half of its latency is booked on each side.
        through = 0.0 if place.leaf is None else 0.5 * _latency_s("switch")
        share = link_table()["share"]["gpu_port" if place.leaf is not None else "root_port"]
        crossing = "switch" if place.leaf is not None else ""
        return self._link(f"gpu{i} {way}", "gpu_port", self.rate * share, _latency_s("gpu_port") + through, crossing)

    def _climb(self, place: Place, way: str, stay_below_root: bool) -> Iterable[str]:
        """The uplink of the GPU's switch, and that of the switch above where the path goes to the CPU."""
        collapsed = link_table()["collapse"]["uplink_gb_per_s"] * GB if way == "up" and self.two_sockets else None
        uplinks = []
        latency = _latency_s("uplink") + 0.5 * _latency_s("switch")
        share = link_table()["share"]
        if place.leaf is not None:
            inner = place.top is not None
            rate = self.rate * share["switch_port" if inner else "root_port"]
            name = f"switch{place.leaf} {way}link"
            uplinks.append(self._link(name, "uplink", rate, latency, "switch", None if inner else collapsed))
        if place.top is not None and not stay_below_root:
            name = f"top switch{place.top} {way}link"
            uplinks.append(self._link(name, "uplink", self.rate * share["root_port"], latency, "switch", collapsed))
        return uplinks if way == "up" else reversed(uplinks)

    def _across(self, a: int, b: int) -> Iterable[str]:
        capacity = link_table()["capacity_gb_per_s"]
        kind = "host_memory" if self.through_memory else "host_bridge"
        latency = _latency_s("host_bridge") + (_latency_s("host_memory") if self.through_memory else 0.0)
        yield self._link(f"socket{a} {kind.replace('_', ' ')}", kind, capacity[kind] * GB, latency, kind)
        if a != b:
            rate = capacity["socket_link"] * GB
            yield self._link(f"socket{a} to socket{b}", "socket_link", rate, _latency_s("socket_link"), "socket_link")

    def _link(
        self, name: str, kind: str, rate: float, latency: float, crossing: str, collapsed: float | None = None
    ) -> str:
        self.links.setdefault(name, LinkSpec(name, kind, rate, latency, crossing, collapsed))
        return name


def _latency_s(kind: str) -> float:
    return float(link_table()["latency_us"][kind]) * US


def _widest(crossings: Iterable[str]) -> str:
    return max((name for name in crossings if name), key=CROSSINGS.index)


def _groups(count: int, near: Callable[[int, int], bool]) -> list[int]:
    """The number of its group for each GPU; groups are what `near` connects, numbered by their first member."""
    label = list(range(count))
    for i in range(count):
        for j in range(i):
            if near(i, j) and label[i] != label[j]:
                old, new = max(label[i], label[j]), min(label[i], label[j])
                label = [new if x == old else x for x in label]
    order = sorted(set(label))
    return [order.index(x) for x in label]


def _nest(place: Place) -> tuple[int, int, int]:
    return place.socket, -1 if place.top is None else place.top, -1 if place.leaf is None else place.leaf


def _islands(places: list[Place]) -> tuple[tuple[int, ...], ...]:
    sockets = [place.socket for place in places]
    keys: list[Any] = sockets if len(set(sockets)) > 1 else [_nest(place) for place in places]
    return tuple(tuple(i for i, key in enumerate(keys) if key == wanted) for wanted in sorted(set(keys)))


def _described(places: list[Place]) -> str:
    sockets = len({p.socket for p in places})
    switches = {p.leaf for p in places if p.leaf is not None}
    text = f"{len(places)} GPUs"
    if switches:
        sizes = "+".join(str(sum(p.leaf == s for p in places)) for s in sorted(switches))
        text += f" behind {len(switches)} PCIe switch{'es' if len(switches) > 1 else ''} ({sizes})"
        text += ", cascaded below one more" if any(p.top is not None for p in places) else ""
    direct = sum(p.leaf is None for p in places)
    if direct:
        text += f", {direct} on root ports directly" if switches else " on root ports directly"
    return f"{text}, {sockets} CPU socket{'s' if sockets > 1 else ''}"
