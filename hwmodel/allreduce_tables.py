"""Published AllReduce tables: one small file per card family and interconnect class, found through an index."""

import dataclasses
import tomllib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from hwmodel.allreduce_curve import AllReduceCurve, Provenance, curve_from_points
from hwmodel.interconnects import NVLINK_CLASSES
from hwmodel.nccl_model import by_prefix
from hwmodel.records import dataclass
from hwmodel.specs import Gpu
from hwmodel.units import GB, KIB, US

_FOLDER = Path(__file__).parent / "data" / "allreduce"
_TABLES_OF_NVLINK = "nvswitch"  # every published NVLink table was taken on NVSwitch machines


@dataclass(frozen=True)
class Table:
    """The measured curves of one card family in one interconnect class.

    `exact` says that they were measured on this card and class; otherwise they stand in and need scaling by the
    family's datasheet rates, which are here too.
    """

    family: str
    interconnect: str
    exact: bool
    max_custom_group: int | None
    sm_arch: str
    pcie_bytes_per_s: float
    nvlink_bytes_per_s: float
    curves: Mapping[str, Mapping[int, AllReduceCurve]]  # algorithm -> number of GPUs -> curve

    def card_like(self, gpu: Gpu) -> Gpu:
        """`gpu` with the family's links: what the tuning model needs to know of the measured machine."""
        return dataclasses.replace(
            gpu,
            sm_arch=self.sm_arch,
            pcie_bytes_per_s=self.pcie_bytes_per_s,
            nvlink_bytes_per_s=self.nvlink_bytes_per_s,
        )


@dataclass(frozen=True)
class EngineRules:
    """When the engine uses its own AllReduce kernels instead of NCCL by default."""

    custom_group_sizes: tuple[int, ...]
    pcie_custom_group_sizes: tuple[int, ...]
    pcie_custom_excluded_archs: tuple[str, ...]


@lru_cache(maxsize=1)
def _index() -> dict[str, Any]:
    return tomllib.loads((_FOLDER / "index.toml").read_text(encoding="utf-8"))


def engine_rules() -> EngineRules:
    """The engine's default choice between its own kernels and NCCL."""
    return EngineRules(**{key: tuple(value) for key, value in _index()["engine"].items()})


def one_shot_limit_bytes(num_gpus: int) -> float:
    """Message size up to which the public PCIe one-shot kernel is used when nobody measured the machine."""
    limits = _index()["one_shot"]
    small = num_gpus <= limits["small_group"]
    return float(limits["small_group_max_kib" if small else "large_group_max_kib"] * KIB)


def table_for(gpu: Gpu, interconnect: str) -> Table:
    """The table measured on `gpu` in this class, or the one that stands in for it."""
    family, exact = _family_for(gpu, interconnect)
    entry = _index()["family"][family]
    measured_class = interconnect if interconnect in entry["interconnects"] else _TABLES_OF_NVLINK
    limit = entry.get("max_custom_group")
    return dataclasses.replace(_load(family, measured_class), exact=exact, max_custom_group=limit)


def _family_for(gpu: Gpu, interconnect: str) -> tuple[str, bool]:
    """(family, measured on this very card and class): own family, declared stand-in, then the general stand-ins."""
    families: dict[str, Any] = _index()["family"]
    is_nvlink = interconnect in NVLINK_CLASSES
    needed = _TABLES_OF_NVLINK if is_nvlink else interconnect
    for key in ("cards", "stands_in_for"):
        matches = [
            (len(prefix), name)
            for name, entry in families.items()
            if needed in entry["interconnects"]
            for prefix in entry.get(key, ())
            if gpu.name.startswith(prefix)
        ]
        if matches:
            return max(matches)[1], key == "cards" and interconnect == needed
    if is_nvlink:
        return by_prefix(_index()["nvlink_stand_in"], gpu.sm_arch), False
    return str(_index()["stand_in"][interconnect]), False


@lru_cache(maxsize=16)
def _load(family: str, interconnect: str) -> Table:
    data = tomllib.loads((_FOLDER / f"{family}--{interconnect}.toml").read_text(encoding="utf-8"))
    curves: dict[str, dict[int, AllReduceCurve]] = {}
    for entry in data["curve"]:
        sizes, times_us = entry.get("bytes", data["bytes"]), entry["time_us"]
        points = {size: time_us * US for size, time_us in zip(sizes, times_us, strict=True)}
        about = Provenance(f"measured: {entry['source']}", "measured", entry["num_gpus"])
        by_group = curves.setdefault(entry["algorithm"], {})
        by_group[entry["num_gpus"]] = curve_from_points(points, entry["algorithm"], about)
    return Table(
        family=family,
        interconnect=interconnect,
        exact=True,
        max_custom_group=None,
        sm_arch=data["sm_arch"],
        pcie_bytes_per_s=data["pcie_gb_per_s"] * GB,
        nvlink_bytes_per_s=data["nvlink_gb_per_s"] * GB,
        curves=curves,
    )
