"""The interconnect classes: how the GPUs of one tensor-parallel group reach each other."""

from collections.abc import Iterable

from hwmodel.errors import UnknownNameError
from hwmodel.names import did_you_mean, nearest

_DESCRIPTIONS = {
    "pcie-switch": "PCIe, all GPUs behind switches of one root: peer traffic never passes the CPU",
    "pcie-two-switches": "PCIe, groups of GPUs behind their own switch, the groups meet in one CPU",
    "pcie-root": "PCIe, GPUs on host bridges of one CPU: peer traffic passes the CPU",
    "pcie-dual-socket": "PCIe, GPUs on two CPUs: part of the peer traffic crosses the socket link",
    "pcie-no-p2p": "PCIe without peer-to-peer (GeForce driver, virtual machine): every hop through host memory",
    "nvlink": "NVLink or xGMI directly between the GPUs: bridge or mesh",
    "nvswitch": "NVLink through NVSwitch: every pair at full rate",
    "none": "no link: one GPU, or GPUs that never talk",
}
NVLINK_CLASSES = ("nvlink", "nvswitch")
# A PCIe class and the next faster one: each adds something to the way of every message.
FASTER_CLASS = {
    "pcie-two-switches": "pcie-switch",
    "pcie-root": "pcie-two-switches",
    "pcie-dual-socket": "pcie-root",
    "pcie-no-p2p": "pcie-dual-socket",
}


def interconnect_names() -> dict[str, str]:
    """Every interconnect class with a one-line description, PCIe first and fast to slow."""
    return dict(_DESCRIPTIONS)


def checked_name(what: str, name: str, known: Iterable[str]) -> str:
    """`name` as it is when it is one of `known`; else `UnknownNameError` with the closest and all known names."""
    names = list(known)
    if name in names:
        return name
    hint = did_you_mean(nearest(name, names, most=1))
    raise UnknownNameError(f"no {what} '{name}'{hint} known: {', '.join(names)}")
