"""NCCL's AllReduce curve for any card, class and group size: measured, or the nearest measured one scaled."""

import math
from collections.abc import Mapping

import numpy as np

from hwmodel.allreduce_curve import AllReduceCurve, Provenance, curve_from_points
from hwmodel.allreduce_tables import Table, table_for
from hwmodel.interconnects import FASTER_CLASS
from hwmodel.nccl_model import allreduce_time_s, link_for
from hwmodel.specs import Gpu
from hwmodel.units import MIB

_LATENCY_BYTES = 2 * MIB  # beyond it bandwidth decides, which the derivation takes from the links


def nccl_curve(gpu: Gpu, num_gpus: int, interconnect: str) -> AllReduceCurve:
    """Seconds of NCCL's AllReduce over message size (`num_gpus` >= 2).

    A derived curve is never below that of the next faster PCIe class where latency counts. Measured ones stand as
    measured: two classes are two boxes, and a tuned box of a slow class may beat an untuned one of a fast class.
    """
    own = class_curve(gpu, num_gpus, interconnect)
    faster = FASTER_CLASS.get(interconnect)
    if faster is None or own.kind == "measured":
        return own
    bound = nccl_curve(gpu, num_gpus, faster)
    sizes = np.union1d(own.sizes_bytes, bound.sizes_bytes)
    ours, floor = own.time_s(sizes), np.where(sizes <= _LATENCY_BYTES, bound.time_s(sizes), 0.0)
    if not np.any(floor > ours):
        return own
    points = dict(zip(sizes.tolist(), np.maximum(ours, floor).tolist(), strict=True))
    about = Provenance(f"{own.source}; not below class {faster}", own.kind, num_gpus)
    return curve_from_points(points, "nccl", about)


def class_curve(gpu: Gpu, num_gpus: int, interconnect: str) -> AllReduceCurve:
    """The curve of one class by itself: measured, or derived.

    Formula, where no table fits: t_table(S) * t_model(card, class, n) / t_model(table's card, class, n'), so the
    machine's software and host cost come from the measurement and only the change from NCCL's model.
    """
    table = table_for(gpu, interconnect)
    groups = table.curves["nccl"]
    if table.exact and num_gpus in groups:
        return groups[num_gpus]
    base, base_gpus = nearest_group(groups, num_gpus)
    measured_link = link_for(table.card_like(gpu), table.interconnect)
    wanted_link = measured_link if table.exact else link_for(gpu, interconnect)
    sizes = base.sizes_bytes
    expected = allreduce_time_s(wanted_link, num_gpus, sizes)
    scale = expected / allreduce_time_s(measured_link, base_gpus, sizes)
    points = dict(zip(sizes.tolist(), (base.times_s * scale).tolist(), strict=True))
    return curve_from_points(points, "nccl", derived(table, base, gpu, num_gpus, "NCCL's tuning model"))


def nearest_group(groups: Mapping[int, AllReduceCurve], num_gpus: int) -> tuple[AllReduceCurve, int]:
    """(curve, its number of GPUs): interpolated between two measured group sizes, else the nearest of them.

    Between two sizes both are measured, so the model is not asked: log time is linear in log n.
    """
    smaller = [n for n in groups if n <= num_gpus]
    larger = [n for n in groups if n >= num_gpus]
    if not smaller or not larger:
        nearest = min(groups) if larger else max(groups)
        return groups[nearest], nearest
    low, high = max(smaller), min(larger)
    if low == high:
        return groups[low], low
    weight = math.log(num_gpus / low) / math.log(high / low)
    sizes = np.union1d(groups[low].sizes_bytes, groups[high].sizes_bytes)
    times = groups[low].time_s(sizes) ** (1 - weight) * groups[high].time_s(sizes) ** weight
    points = dict(zip(sizes.tolist(), times.tolist(), strict=True))
    name = groups[high].algorithms[0]
    text = f"{groups[low].source} (x{low}) and {groups[high].source.removeprefix('measured: ')} (x{high})"
    return curve_from_points(points, name, Provenance(text, "measured", num_gpus)), num_gpus


def derived(table: Table, base: AllReduceCurve, gpu: Gpu, num_gpus: int, how: str) -> Provenance:
    """Provenance of a curve that was scaled from a measured one: from which, by what, to which machine."""
    origin = base.source.removeprefix("measured: ")
    text = f"derived by {how} for {num_gpus}x {gpu.name} from {table.family} {table.interconnect} ({origin})"
    return Provenance(text, "model", num_gpus)
