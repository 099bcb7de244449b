"""Why the AllReduce of a step takes as long as it does, in sentences with numbers."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hwmodel.link_constants import protocol
from hwmodel.percent import percent
from hwmodel.units import GB, KIB, MS, US
from simulator.ranks.reduce_plan import group_members
from simulator.ranks.report import AllReduceReport
from simulator.ranks.topology_graph import Box

if TYPE_CHECKING:
    from simulator.ranks.step import Simulation

_FAR_OFF = 2.0  # a calibration beyond this factor says that the box is not as assumed


def sentences(
    simulation: "Simulation", allreduce: AllReduceReport, growth: Sequence[dict[str, Any]], jitter: bool
) -> list[str]:
    """What the AllReduce is made of, what others would take, what waiting adds, and how its share grows."""
    planner = simulation.planner
    if planner is None or not allreduce.count:
        return ["One rank: nothing is reduced."]
    group = group_members(planner.box, simulation.cell.system.parallel.tensor)
    lines = [_composition(planner.box, group, allreduce), *_alternatives(planner.box, allreduce)]
    lines += _calibration(allreduce)
    if jitter:
        lines.append(
            f"A profiler sees {allreduce.mean_s / US:.1f} us for each of the {allreduce.count} AllReduces:"
            f" {allreduce.network_s / US:.1f} on the network, {allreduce.skew_s / US:.1f} waiting for the last rank;"
            f" a test of the AllReduce alone shows {allreduce.nccl_tests_s / US:.1f}."
        )
    lines.append(_share(growth))
    return lines


def _composition(box: Box, group: Sequence[int], allreduce: AllReduceReport) -> str:
    size = f"{allreduce.bytes / KIB:.0f} KiB"
    takes = f"takes {allreduce.nccl_tests_s / US:.1f} us on {box.description}"
    text = f"One AllReduce of {size} ({allreduce.algorithm}) {takes}"
    name = allreduce.algorithm.split()
    if name[0] != "ring":
        return text + "."
    kind = protocol(name[1].lower())
    edges = [(group[i], group[(i + 1) % len(group)]) for i in range(len(group))]
    way_s = sum(box.latency_s(*edge) for edge in edges) / len(edges)
    far = sum(box.crossings[edge] == "socket_link" for edge in edges)
    hops, own_s = 2 * (len(edges) - 1), kind.hop_s + kind.fence_s
    bytes_s = max((allreduce.published_links_s or 0.0) - kind.base_s - hops * (own_s + way_s), 0.0)
    crossing = f", {far} of {len(edges)} hops between the sockets" if far else ""
    return (
        f"{text}. On the links as published: {hops} hops of {(own_s + way_s) / US:.1f} us ({own_s / US:.1f} of it the"
        f" {name[1]} protocol, {way_s / US:.2f} the way{crossing}), {kind.base_s / US:.1f} us for the kernel and"
        f" {bytes_s / US:.1f} for the bytes; times {allreduce.calibration:.2f}, which is what is known of this machine."
    )


def _alternatives(box: Box, allreduce: AllReduceReport) -> list[str]:
    rows = sorted(allreduce.alternatives, key=lambda row: float(row["network_s"]))
    listed = ", ".join(f"{row['algorithm']} {row['network_s'] / US:.1f}" for row in rows)
    lines = [f"The same message by other algorithms on this box, us: {listed}."]
    slow = {link.collapsed_bytes_per_s for link in box.links.values() if link.collapsed_bytes_per_s}
    one_shot = next((row for row in rows if row["algorithm"] == "one-shot"), None)
    if slow and one_shot and one_shot["network_s"] > rows[0]["network_s"]:
        lines.append(
            "One-shot collapses here: GPUs that share a switch push to several root ports at once, where posted writes"
            f" fall to {max(slow) / GB:.1f} GB/s an uplink."
        )
    return lines


def _calibration(allreduce: AllReduceReport) -> list[str]:
    factor = allreduce.calibration or 1.0
    if 1.0 / _FAR_OFF <= factor <= _FAR_OFF:
        return []
    return [
        f"The calibrated AllReduce is {factor:.2f} times what these links explain: the box, its algorithm or its tuning"
        " is not as assumed; give hardware.topology, or measure with nccl-tests."
    ]


def _share(growth: Sequence[dict[str, Any]]) -> str:
    first, last = growth[0], growth[-1]
    text = (
        f"Its share of the step is {percent(first['allreduce_share'])} with {first['rows']:.0f} rows"
        f" ({first['allreduce_s'] / US:.0f} us each, step {first['step_s'] / MS:.1f} ms)"
    )
    if last is first:
        return text + "."
    return (
        f"{text} and {percent(last['allreduce_share'])} with {last['rows']:.0f}"
        f" ({last['allreduce_s'] / US:.0f} us each, step {last['step_s'] / MS:.1f} ms)."
    )
