"""What links and collective kernels cost, piece by piece: the named constants of the event-by-event AllReduce."""

import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hwmodel.records import dataclass
from hwmodel.specs import Gpu
from hwmodel.units import GB, KIB, US

_FILE = Path(__file__).parent / "data" / "fits" / "links.toml"
_GEN5_BYTES_PER_S = 48 * GB  # between the 31.5 GB/s of PCIe 4.0 x16 and the 63 GB/s of 5.0
PROTOCOLS = ("ll", "ll128", "simple")


@functools.cache
def link_table() -> Mapping[str, Any]:
    """The constants as written in data/fits/links.toml, each with its source there."""
    return tomllib.loads(_FILE.read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True)
class Protocol:
    """One of NCCL's protocols: what a kernel, a hop and a byte cost (meanings in data/fits/links.toml)."""

    name: str
    base_s: float
    hop_s: float
    fence_s: float
    wire: float
    pieces: int
    cut_through: bool


@functools.cache
def protocol(name: str) -> Protocol:
    """The constants of "ll", "ll128" or "simple"."""
    row = link_table()["protocol"][name]
    return Protocol(
        name=name,
        base_s=row["base_us"] * US,
        hop_s=row["hop_us"] * US,
        fence_s=row["fence_us"] * US,
        wire=row["wire"],
        pieces=row["pieces"],
        cut_through=row["cut_through"],
    )


def link_family(gpu: Gpu, nvlink: bool) -> str:
    """The name under which the rates of a card's links are filed: "nvlink", "pcie5" or "pcie4"."""
    if nvlink:
        return "nvlink"
    return "pcie5" if gpu.pcie_bytes_per_s > _GEN5_BYTES_PER_S else "pcie4"


def hop_rate_bytes_per_s(family: str, crossing: str, protocol_name: str, message_bytes: float) -> float:
    """Bytes per second that one ring hop sends, flags included, with NCCL's usual channels."""
    rows = [
        row
        for row in link_table()["rate"]
        if row["links"] == family and row["crossing"] == crossing and row.get("from_kib", 0) * KIB <= message_bytes
    ]
    best = max(rows, key=lambda row: row.get("from_kib", 0))
    return float(best[protocol_name] * GB)


def usual_protocol(family: str, message_bytes: float, mistuned_socket: bool) -> str:
    """The protocol that NCCL takes by itself for a message, at its measured switch-over sizes."""
    choice = link_table()["choice"]
    simple_from = choice["mistuned_socket_simple_from_kib"] if mistuned_socket else choice["simple_from_kib"][family]
    if message_bytes >= simple_from * KIB:
        return "simple"
    if family == "nvlink" and message_bytes >= choice["ll128_from_kib"] * KIB:
        return "ll128"
    return "ll"


def custom_kernel(num_gpus: int, message_bytes: float) -> str:
    """Which of its kernels vLLM runs over NVLink: "one-shot" or "two-shot"."""
    limits = link_table()["custom"]
    small = num_gpus <= limits["small_group"]
    from_kib = limits["small_group_two_shot_from_kib" if small else "large_group_two_shot_from_kib"]
    return "two-shot" if message_bytes >= from_kib * KIB else "one-shot"
