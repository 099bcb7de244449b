"""NCCL's own tuning model: the time it expects of each algorithm and protocol, and which one it picks.

Prior where no measured table exists; as a rule it is only used in ratios, between two cards or two group sizes.
Source: NVIDIA/nccl src/graph/tuning.cc; constants in data/allreduce/nccl.toml.
"""

import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hwmodel.interconnects import NVLINK_CLASSES, checked_name
from hwmodel.records import dataclass
from hwmodel.specs import Gpu
from hwmodel.units import GB, US

Floats = npt.NDArray[np.float64]
_FILE = Path(__file__).parent / "data" / "allreduce" / "nccl.toml"
_TREE_SHARE = 0.92  # NCCL: a tree reaches at most this share of the ring's bandwidth; LL128 rings too
_RING_LL_SHARE = 0.5  # LL sends a flag with every 4 bytes
_TREE_LL_DIVISOR = 3.8  # NCCL's constant for LL trees
_TREE_LL128_SHARE = 7 / 9  # NCCL's constant inside one node
_CORRECTION_UNIT_BYTES = 64  # the tree correction table starts at messages of 64 bytes
_MIN_NVLS_GPUS = 3  # two ranks exchange directly: measured pairs follow the ring


@dataclass(frozen=True)
class Link:
    """What NCCL's model knows of a machine: link kind, card generation, ring bandwidth (channels x rate each)."""

    kind: str  # "nvlink" or "pci"
    generation: str
    bandwidth_bytes_per_s: float
    num_channels: int
    nvls: bool  # reduction inside NVSwitch


@lru_cache(maxsize=1)
def _constants() -> dict[str, Any]:
    return tomllib.loads(_FILE.read_text(encoding="utf-8"))


def link_for(gpu: Gpu, interconnect: str) -> Link:
    """The link of `gpu` in an interconnect class, from its datasheet rates and the class's share of them."""
    data = _constants()
    generation = by_prefix(data["generation"], gpu.sm_arch)
    if interconnect in NVLINK_CLASSES:
        rate = gpu.nvlink_bytes_per_s * data[generation]["nvlink_share"]
        nvls = interconnect == "nvswitch" and data[generation]["nvls_efficiency"] > 0
        return Link("nvlink", generation, rate, data["channels"]["nvlink"], nvls)
    checked_name("PCIe interconnect class", interconnect, data["class_share"])
    rate = gpu.pcie_bytes_per_s * data["pci"]["link_share"] * data["class_share"][interconnect]
    return Link("pci", generation, rate, data["channels"]["pci"], nvls=False)


def latency_s(link: Link, num_gpus: int, algorithm: str, protocol: str) -> float:
    """Seconds of latency of one AllReduce inside a node: base + 2 (n - 1) hops; NVLS one hop and no base.

    >>> pci = Link("pci", "blackwell", 24e9, 2, nvls=False)
    >>> round(latency_s(pci, 8, "ring", "ll") / US, 1)
    20.6
    """
    data = _constants()
    hop_us: float = data["hop_us"][link.kind][algorithm][protocol]
    if algorithm == "nvls":
        return hop_us * US
    base_us: float = data["base_us"][algorithm][protocol]
    return (base_us + 2 * (num_gpus - 1) * hop_us) * US


def bandwidth_bytes_per_s(link: Link, num_gpus: int, algorithm: str, protocol: str) -> float:
    """Message bytes per second ("algbw") of a large AllReduce, before the tree's size correction."""
    card = _constants()[link.generation]
    full, channels = link.bandwidth_bytes_per_s, link.num_channels
    ring_factor = num_gpus / (2 * (num_gpus - 1))
    if algorithm == "nvls":
        return float(2 * full * card["nvls_efficiency"] * (channels - 1) / channels * ring_factor)
    if algorithm == "ring":
        limits = {
            "ll": min(card["ll_max"] * GB, _RING_LL_SHARE * full),
            "ll128": min(_TREE_SHARE * full, channels * card["ring_ll128_per_channel"] * GB),
            "simple": full,
        }
        return float(limits[protocol] * ring_factor)
    per_channel = channels * card["tree_per_channel"] * GB
    tree = min(_TREE_SHARE * full, per_channel)
    limits = {
        "ll": min(tree / _TREE_LL_DIVISOR, card["ll_max"] * GB),
        "ll128": min(tree * _TREE_LL128_SHARE, per_channel),
        "simple": tree,
    }
    return float(limits[protocol] / 2)


def candidates(link: Link, num_gpus: int) -> list[tuple[str, str]]:
    """The (algorithm, protocol) pairs that NCCL weighs: LL128 only on NVLink, NVLS only with NVSwitch."""
    protocols = ("ll", "ll128", "simple") if link.kind == "nvlink" else ("ll", "simple")
    pairs = [(algorithm, protocol) for algorithm in ("ring", "tree") for protocol in protocols]
    if link.nvls and num_gpus >= _MIN_NVLS_GPUS:
        pairs.append(("nvls", "simple"))
    return pairs


def times_s(link: Link, num_gpus: int, pair: tuple[str, str], num_bytes: Floats) -> Floats:
    """Seconds of one AllReduce by `pair` = (algorithm, protocol), in the shape of `num_bytes`."""
    bandwidth: Any = bandwidth_bytes_per_s(link, num_gpus, *pair)
    if pair[0] == "tree":
        bandwidth = bandwidth * _tree_correction(pair[1], num_bytes)
    return np.asarray(latency_s(link, num_gpus, *pair) + num_bytes / bandwidth)


def allreduce_time_s(link: Link, num_gpus: int, num_bytes: npt.ArrayLike) -> Floats:
    """Seconds of the AllReduce that NCCL would pick, in the shape of `num_bytes`: the least over its candidates."""
    sizes = np.asarray(num_bytes, dtype=np.float64)
    return np.asarray(np.min([times_s(link, num_gpus, pair, sizes) for pair in candidates(link, num_gpus)], axis=0))


def chosen(link: Link, num_gpus: int, num_bytes: float) -> tuple[str, str]:
    """(algorithm, protocol) that NCCL's model picks for a message of `num_bytes`."""
    size = np.asarray(float(num_bytes))
    return min(candidates(link, num_gpus), key=lambda pair: float(times_s(link, num_gpus, pair, size)))


def by_prefix(table: dict[str, str], text: str) -> str:
    """The value whose key `text` starts with, else that of the key "other"."""
    return next((value for key, value in table.items() if text.startswith(key)), table["other"])


def _tree_correction(protocol: str, num_bytes: Floats) -> Floats:
    table = np.array(_constants()["tree_correction"][protocol], dtype=np.float64)
    step = np.floor(np.log2(np.maximum(num_bytes, _CORRECTION_UNIT_BYTES) / _CORRECTION_UNIT_BYTES))
    return np.asarray(table[np.minimum(step, len(table) - 1).astype(int)])


def share_of_hops(num_gpus: int, link: Link) -> float:
    """Latency of one pass round the ring over that of an AllReduce (two passes), LL protocol; between 1/2 and 1."""
    data = _constants()
    base_us, hop_us = data["base_us"]["ring"]["ll"], data["hop_us"][link.kind]["ring"]["ll"]
    return float((base_us + (num_gpus - 1) * hop_us) / (base_us + 2 * (num_gpus - 1) * hop_us))
