"""On what a group of published rows may have run: GPU, parallel sizes, links; each reading of what is left open."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from calibration.published import names
from calibration.published.cells import leading_number

# Where a source names no GPU: what serves published benchmarks, and how often (an assumption).
_USUAL_GPUS = {"h200": 0.5, "h100-sxm": 0.3, "b200": 0.12, "a100-sxm-80gb": 0.08}
_USUAL_GROUPS = (1, 2, 4, 8)
_LARGEST_GROUP = 16  # beyond one machine the tensor-parallel group is not the GPU count
_MOST_REPLICAS = 256
_PCIE_CLASSES = {
    2: ("pcie-switch", "pcie-root"),
    4: ("pcie-switch", "pcie-root", "pcie-dual-socket"),
    8: ("pcie-switch", "pcie-two-switches", "pcie-root", "pcie-dual-socket"),
}
_ONE_SHOT_MAX_KIB = (64, 128, 256, 512)  # crossovers between a one-shot AllReduce and NCCL that images were built with
_ONE_SHOT_LOG_PRIOR = -0.5


@dataclass(frozen=True, slots=True)
class Choice:
    """One reading; `log_prior` is up to a constant of the group. A `guess` may turn out too small for the model."""

    gpu: str | None  # None: no card, a stand-in
    tensor: int
    data: int
    interconnect: str | None
    one_shot_max_kib: int | None
    log_prior: float
    guess: bool

    @property
    def label(self) -> str:
        """For reports."""
        replicas = f"{self.data} x " if self.data > 1 else ""
        link = f" {self.interconnect}" if self.interconnect else ""
        one_shot = f", one-shot to {self.one_shot_max_kib} KiB" if self.one_shot_max_kib else ""
        return f"{replicas}{self.tensor} x {self.gpu or 'unknown GPU'}{link}{one_shot}"


def choices(text: Mapping[str, str]) -> list[Choice]:
    """All readings of the columns `gpu`, `gpu_count`, `tp`, `dp` and `interconnect`."""
    stated = names.names_a_gpu(text["gpu"])
    gpus: Mapping[str | None, float] = {names.gpu_card(text["gpu"]): 1.0} if stated else dict(_USUAL_GPUS.items())
    groups, data = parallel_sizes(text)
    return [
        Choice(gpu, tensor, data, link, limit, math.log(share) + weight, guess=not stated or len(groups) > 1)
        for gpu, share in gpus.items()
        for tensor in groups
        for link, limit, weight in _links(text["interconnect"], tensor)
    ]


def parallel_sizes(text: Mapping[str, str]) -> tuple[Sequence[int], int]:
    """Possible tensor-parallel sizes, and the data-parallel one.

    Where both together are more than the GPUs, attention is data-parallel inside one group of them (SGLang).
    """
    tensor, count, ranks = (leading_number(text[name]) or 0.0 for name in ("tp", "gpu_count", "dp"))
    data = int(min(max(ranks, 1.0), _MOST_REPLICAS))
    if count and (not tensor or tensor * data > count):
        tensor = max(count // data, 1.0)
    if not tensor:
        return _USUAL_GROUPS, data
    return ((int(tensor),) if tensor <= _LARGEST_GROUP else _USUAL_GROUPS[-1:]), data


def spreads_experts(text: Mapping[str, str]) -> bool:
    """Whether the `ep` cell says that whole experts are spread over the ranks."""
    cell = text["ep"].lower()
    number = leading_number(cell)
    return number > 1.0 if number is not None else cell.startswith(("on", "yes", "true", "enabled", "ep"))


def _links(interconnect: str, tensor: int) -> list[tuple[str | None, int | None, float]]:
    """Interconnect class, one-shot limit and log prior: open where the source only says PCIe."""
    classes = _PCIE_CLASSES.get(tensor, ())
    if "pcie" not in interconnect.lower() or not classes:
        return [(None, None, 0.0)]
    one_shot = [("pcie-switch", limit, _ONE_SHOT_LOG_PRIOR) for limit in _ONE_SHOT_MAX_KIB]
    return [*((name, None, 0.0) for name in classes), *one_shot]
