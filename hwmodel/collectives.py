"""Collective operations of one parallel group: AllReduce curves by card and interconnect, all-to-all, all-gather.

A published table wherever one exists for the card, the class and the group size; otherwise the nearest table scaled
by NCCL's tuning model (`nccl_model`), and `source` says so. docs/model.md, section on collectives.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from hwmodel.allreduce_curve import AllReduceCurve, Floats, zero_curve
from hwmodel.allreduce_tables import engine_rules, table_for
from hwmodel.custom_allreduce import custom_curve
from hwmodel.errors import InputError
from hwmodel.interconnects import NVLINK_CLASSES, checked_name, interconnect_names
from hwmodel.nccl_curve import nccl_curve
from hwmodel.nccl_model import link_for, share_of_hops
from hwmodel.specs import Gpu

__all__ = [
    "ALGORITHMS",
    "AllReduceCurve",
    "allgather_time_s",
    "allreduce_curve",
    "alltoall_time_s",
    "interconnect_names",
    "zero_curve",
]
ALGORITHMS = ("auto", "nccl", "one-shot", "two-shot", "hierarchical")
_RING_SHARE_OF_ALLREDUCE = 0.5  # reduce-scatter and all-gather are the two halves of a ring AllReduce


@lru_cache(maxsize=256)
def allreduce_curve(
    gpu: Gpu, num_gpus: int, interconnect: str, algorithm: str = "auto", one_shot_max_bytes: float | None = None
) -> AllReduceCurve:
    """AllReduce seconds over message size for `num_gpus` of `gpu` in one interconnect class.

    "auto" is the engine's default: its own kernels on NVLink and for PCIe pairs (not on sm_12x), NCCL else. "one-shot",
    "two-shot" and "hierarchical" are the PCIe kernels up to the size where NCCL gets faster, or up to
    `one_shot_max_bytes`, and NCCL above. One GPU costs nothing.
    """
    checked_name("AllReduce algorithm", algorithm, ALGORITHMS)
    checked_name("interconnect", interconnect, interconnect_names())
    if num_gpus < 1:
        raise InputError(f"number of GPUs: got {num_gpus}, allowed: 1 or more")
    if one_shot_max_bytes is not None and not one_shot_max_bytes >= 0:
        raise InputError(f"largest one-shot message: got {one_shot_max_bytes} bytes, allowed: 0 or more")
    if num_gpus == 1:
        return zero_curve()
    _check_link(gpu, num_gpus, interconnect)
    nccl = nccl_curve(gpu, num_gpus, interconnect)
    if algorithm == "nccl" or (algorithm == "auto" and not uses_custom_kernels(gpu, num_gpus, interconnect)):
        return nccl
    kernel = "one-shot" if algorithm == "auto" else algorithm
    limit = None if algorithm == "auto" else one_shot_max_bytes
    return custom_curve(gpu, interconnect, kernel, nccl, limit)


def uses_custom_kernels(gpu: Gpu, num_gpus: int, interconnect: str) -> bool:
    """Whether the engine by default reduces with its own kernels here; source: data/allreduce/index.toml."""
    rules = engine_rules()
    if interconnect in NVLINK_CLASSES:
        limit = table_for(gpu, interconnect).max_custom_group
        return num_gpus in rules.custom_group_sizes and (limit is None or num_gpus <= limit)
    if interconnect == "pcie-no-p2p" or gpu.sm_arch.startswith(rules.pcie_custom_excluded_archs):
        return False
    return gpu.p2p and num_gpus in rules.pcie_custom_group_sizes


def alltoall_time_s(gpu: Gpu, num_ranks: int, interconnect: str, bytes_per_rank: ArrayLike) -> Floats:
    """Seconds of one all-to-all in which every rank holds `bytes_per_rank` and keeps 1/n of it (expert parallelism).

    Formula: l * (base + (n - 1) hop) / (base + 2 (n - 1) hop) + (n - 1) / n * bytes_per_rank / busbw, where l is the
    latency and busbw the large-message bus bandwidth of this machine's NCCL AllReduce. Every byte leaves through the
    rank's one port once, and a message passes each peer once, where AllReduce goes round twice.
    """
    per_rank = np.asarray(bytes_per_rank, dtype=np.float64)
    if num_ranks == 1:
        return np.zeros_like(per_rank)
    curve = allreduce_curve(gpu, num_ranks, interconnect, "nccl")
    latency_s = curve.latency_s * share_of_hops(num_ranks, link_for(gpu, interconnect))
    port_bytes_per_s = float(curve.bus_bandwidth_bytes_per_s(curve.sizes_bytes[-1]))
    return np.asarray(latency_s + (num_ranks - 1) / num_ranks * per_rank / port_bytes_per_s)


def allgather_time_s(curve: AllReduceCurve, num_bytes: ArrayLike, num_ranks: int) -> Floats:
    """Seconds to gather `num_bytes` in total, 1/n from each rank, on the machine of `curve`.

    Formula: t_allreduce(num_bytes) / 2. A ring AllReduce is a reduce-scatter and an all-gather, each of n - 1 hops and
    (n - 1) / n of the bytes.
    """
    if num_ranks == 1:
        return np.zeros_like(np.asarray(num_bytes, dtype=np.float64))
    return _RING_SHARE_OF_ALLREDUCE * curve.time_s(num_bytes)


def _check_link(gpu: Gpu, num_gpus: int, interconnect: str) -> None:
    classes = ", ".join(name for name in interconnect_names() if name != "none")
    if interconnect == "none":
        raise InputError(f"interconnect 'none' joins no {num_gpus} GPUs; allowed: 1 GPU, or one of {classes}")
    if interconnect in NVLINK_CLASSES and gpu.nvlink_bytes_per_s <= 0:
        raise InputError(f"interconnect '{interconnect}': {gpu.name} has no NVLink; allowed: the pcie-... classes")
    if interconnect not in NVLINK_CLASSES and gpu.pcie_bytes_per_s <= 0:
        raise InputError(f"interconnect '{interconnect}': {gpu.name} states no PCIe rate; allowed: nvlink, nvswitch")
