"""AllReduce kernels other than NCCL's: the engine's own on NVLink, and one-shot, two-shot, hierarchical on PCIe.

Forms, for S bytes, n ranks and a port of B bytes/s: one-shot a + (n - 1) S / B; two-shot a + s + 2 (n - 1) / n S / B;
islands of four a + 2 s + (3/2 + (n / 4 - 1) / 4) S / B. `a` and B are those of the measured one-shot table, `s` is one
more barrier.
"""

import dataclasses

import numpy as np

from hwmodel.allreduce_curve import (
    AllReduceCurve,
    Provenance,
    crossover_bytes,
    curve_from_points,
    join_at,
)
from hwmodel.allreduce_tables import Table, one_shot_limit_bytes, table_for
from hwmodel.errors import InputError
from hwmodel.interconnects import NVLINK_CLASSES
from hwmodel.nccl_curve import derived, nearest_group
from hwmodel.nccl_model import link_for
from hwmodel.specs import Gpu
from hwmodel.units import US

_ISLAND_GPUS = 4  # one switch's GPUs: the only island size that was published
_BARRIER_S = 1.0 * US  # two-shot against one-shot at 8 KiB on 8x A800: 47.5 - 46.5 us, vllm-project/vllm#50576
_BORROWED_CLASS = "pcie-switch"  # classes without a one-shot table of their own borrow this one
_NVLINK_KERNELS = "custom"
_CLEARLY_FASTER = 0.97  # runs of one lab repeat within 3 %: data/allreduce, rows above 128 MiB of both tables


def custom_curve(
    gpu: Gpu, interconnect: str, kernel: str, nccl: AllReduceCurve, max_bytes: float | None
) -> AllReduceCurve:
    """`kernel` up to `max_bytes` (default: as long as it is at least as fast as NCCL), and `nccl` above.

    A one-shot curve that is itself derived is believed only up to the switch-over size that its authors ship.
    On NVLink every kernel name means the engine's own, which chooses one-shot, two-shot or switch reduction itself.
    """
    if interconnect in NVLINK_CLASSES:
        own = _named_by_speed(_nvlink_curve(gpu, interconnect, nccl.num_gpus), nccl)
        return own if max_bytes is None else _joined(own, nccl, max_bytes)
    if interconnect == "pcie-no-p2p":
        raise InputError(
            f"AllReduce algorithm '{kernel}' needs peer-to-peer, 'pcie-no-p2p' has none; allowed: auto, nccl"
        )
    _byte_factor(kernel, nccl.num_gpus)  # refuses group sizes that the kernel cannot serve
    own = _pcie_curve(gpu, interconnect, kernel, nccl.num_gpus)
    if max_bytes is None:
        max_bytes = crossover_bytes(own, nccl)
        if own.kind != "measured" and kernel == "one-shot":
            max_bytes = min(max_bytes, one_shot_limit_bytes(nccl.num_gpus))
    return _joined(own, nccl, max_bytes)


def _joined(own: AllReduceCurve, nccl: AllReduceCurve, max_bytes: float) -> AllReduceCurve:
    if max_bytes <= 0:
        return nccl
    if max_bytes == float("inf"):
        return own
    text = f"{own.algorithms[0]} up to {max_bytes:.0f} bytes ({own.source}), nccl above ({nccl.source})"
    return join_at(own, nccl, max_bytes, text)


def _nvlink_curve(gpu: Gpu, interconnect: str, num_gpus: int) -> AllReduceCurve:
    """The engine's own kernels on NVLink; another card's table is scaled by link rate above its latency."""
    table = table_for(gpu, interconnect)
    groups = table.curves[_NVLINK_KERNELS]
    if table.exact and num_gpus in groups:
        return groups[num_gpus]
    base, base_gpus = nearest_group(groups, num_gpus)
    ratio = _port_ratio(table, gpu, interconnect) * _one_shot_factor(num_gpus) / _one_shot_factor(base_gpus)
    return _scaled(base, ratio, 0.0, _NVLINK_KERNELS, derived(table, base, gpu, num_gpus, "link rate"))


def _named_by_speed(own: AllReduceCurve, nccl: AllReduceCurve) -> AllReduceCurve:
    """`own` with "nccl" beside the points past which it never beats NCCL clearly: there the engine has handed over."""
    faster = np.flatnonzero(own.times_s < _CLEARLY_FASTER * nccl.time_s(own.sizes_bytes))
    handed_over = int(faster[-1]) + 1 if faster.size else 0
    names = (*own.algorithms[:handed_over], *("nccl" for _ in own.algorithms[handed_over:]))
    return dataclasses.replace(own, algorithms=names)


def _pcie_curve(gpu: Gpu, interconnect: str, kernel: str, num_gpus: int) -> AllReduceCurve:
    own = table_for(gpu, interconnect)
    if own.exact and num_gpus in own.curves.get(kernel, {}):
        return own.curves[kernel][num_gpus]
    table = _one_shot_table(gpu, interconnect, num_gpus)
    base, base_gpus = nearest_group(table.curves["one-shot"], num_gpus)
    factor, barrier_s = _byte_factor(kernel, num_gpus)
    ratio = _port_ratio(table, gpu, interconnect) * factor / _one_shot_factor(base_gpus)
    about = derived(table, base, gpu, num_gpus, f"the {kernel} byte count and link rate")
    return _scaled(base, ratio, barrier_s, kernel, about)


def _one_shot_table(gpu: Gpu, interconnect: str, num_gpus: int) -> Table:
    """The one-shot table to scale from: the card's own class, the general card's, then the borrowed class.

    The first that reaches `num_gpus` wins: a larger group adds cross traffic that a smaller one does not show.
    """
    general = _without_family(gpu)
    choices = [table_for(gpu, interconnect), table_for(general, interconnect), table_for(general, _BORROWED_CLASS)]
    choices = [table for table in choices if "one-shot" in table.curves]
    reaching = [table for table in choices if max(table.curves["one-shot"]) >= num_gpus]
    return reaching[0] if reaching else max(choices, key=lambda table: max(table.curves["one-shot"]))


def _without_family(gpu: Gpu) -> Gpu:
    """`gpu` under no card's name, so that the general stand-in tables are found for it."""
    return dataclasses.replace(gpu, name="")


def _byte_factor(kernel: str, num_gpus: int) -> tuple[float, float]:
    """(bytes through a port per message byte, seconds of further barriers) of a kernel."""
    if kernel == "one-shot":
        return _one_shot_factor(num_gpus), 0.0
    if kernel == "two-shot":
        return 2 * (num_gpus - 1) / num_gpus, _BARRIER_S
    islands, rest = divmod(num_gpus, _ISLAND_GPUS)
    if rest or islands < 2:
        raise InputError(f"hierarchical AllReduce: got {num_gpus} GPUs, allowed: two or more islands of {_ISLAND_GPUS}")
    inside = 2 * (_ISLAND_GPUS - 1) / _ISLAND_GPUS
    return inside + (islands - 1) / _ISLAND_GPUS, 2 * _BARRIER_S


def _one_shot_factor(num_gpus: int) -> float:
    return num_gpus - 1.0


def _port_ratio(table: Table, gpu: Gpu, interconnect: str) -> float:
    """Measured machine's link rate over that of `gpu`: how much longer bytes take here."""
    if table.exact:
        return 1.0
    there = link_for(table.card_like(gpu), table.interconnect)
    here = link_for(gpu, interconnect if interconnect in NVLINK_CLASSES else table.interconnect)
    return there.bandwidth_bytes_per_s / here.bandwidth_bytes_per_s


def _scaled(base: AllReduceCurve, ratio: float, barrier_s: float, name: str, about: Provenance) -> AllReduceCurve:
    """`base` with its time above latency times `ratio`, and `barrier_s` more latency."""
    times = base.latency_s + barrier_s + (base.times_s - base.latency_s) * ratio
    return curve_from_points(dict(zip(base.sizes_bytes.tolist(), times.tolist(), strict=True)), name, about)
