"""What a group of published rows may have run on: one or several candidate systems, each with its prior weight.

Sources leave things out: which GPU, how many, how the GPUs are joined. Each reading of what is left open becomes a
candidate; the measured baseline then says how well each explains it (`group_fit`).
"""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from calibration.published import names
from calibration.published.population import NO_SHIFTS, shifted
from calibration.published.rows import PublishedRow, leading_number
from calibration.published.stand_ins import stored_as, unknown_gpu
from hwmodel.errors import DraftcastError
from hwmodel.models import load_model
from hwmodel.specs import Gpu, ModelShape
from simulator.deployment import load_deployment
from simulator.parameters import Prior
from simulator.system import System, build_system

# Where a source names no GPU: what serves published benchmarks, and how often (an assumption).
_USUAL_GPUS = {"h200": 0.5, "h100-sxm": 0.3, "b200": 0.12, "a100-sxm-80gb": 0.08}
_USUAL_GROUPS = (1, 2, 4, 8)
_LARGEST_GROUP = 16  # beyond one machine the tensor-parallel group is not the GPU count
_PCIE_CLASSES = {
    2: ("pcie-switch", "pcie-root"),
    4: ("pcie-switch", "pcie-root", "pcie-dual-socket"),
    8: ("pcie-switch", "pcie-two-switches", "pcie-root", "pcie-dual-socket"),
}
_ONE_SHOT_MAX_KIB = (64, 128, 256, 512)  # crossovers between a one-shot AllReduce and NCCL that images were built with
_ONE_SHOT_LOG_PRIOR = -0.5
_MAX_WEIGHT_SHARE = 0.9  # of a guessed GPU's memory
UNKNOWN_BANDWIDTH_LOG_SD = 1.2
# One pass of the drafter beyond its bytes, by engine (docs/model.md, fit results); vLLM's and SGLang's are priors.
_OTHER_ENGINES_DRAFT_PASS_MS = {"tensorrt": 0.3, "llama.cpp": 0.25}
_PATCHED = ("fork", "image", "nightly")  # builds whose attention path is not that of the release
_USUAL_DRAFT_MODEL = "llama-3.2-1b-bf16"


@dataclass(frozen=True, slots=True)
class Candidate:
    """One reading of what a group ran on; `log_prior` is up to a constant of the group."""

    system: System
    log_prior: float
    label: str


@dataclass(frozen=True, slots=True)
class _Choice:
    gpu: str | None  # None: no card, a stand-in
    tensor: int
    interconnect: str | None
    one_shot_max_kib: int | None
    log_prior: float

    @property
    def label(self) -> str:
        """For reports."""
        link = f" {self.interconnect}" if self.interconnect else ""
        one_shot = f", one-shot to {self.one_shot_max_kib} KiB" if self.one_shot_max_kib else ""
        return f"{self.tensor} x {self.gpu or 'unknown GPU'}{link}{one_shot}"


def candidates(rows: Sequence[PublishedRow], shifts: Mapping[str, float] = NO_SHIFTS) -> list[Candidate]:
    """The candidate systems of one group; empty where none can be built.

    `shifts` move fitted constants by name (`population.CONSTANTS`), in units of ln.
    """
    found = []
    for choice in _choices(rows[0]):
        system = _system(rows[0], choice)
        if system is not None:
            found.append(Candidate(shifted(system, rows[0], shifts), choice.log_prior, choice.label))
    return found


def names_its_gpu(row: PublishedRow) -> bool:
    """Whether the row says on which GPU it ran, and a card describes that GPU."""
    return names.gpu_card(row.text["gpu"]) is not None


def _choices(row: PublishedRow) -> list[_Choice]:
    stated = row.text["gpu"]
    card = names.gpu_card(stated)
    gpus: Mapping[str | None, float] = {card: 1.0} if card or stated else dict(_USUAL_GPUS.items())
    group = leading_number(row.text["tp"]) or leading_number(row.text["gpu_count"])
    groups: Sequence[int] = (int(group),) if group and group <= _LARGEST_GROUP else _USUAL_GROUPS
    if group and group > _LARGEST_GROUP:
        groups = _USUAL_GROUPS[-1:]
    choices = []
    for gpu, share in gpus.items():
        for tensor in groups:
            for link, limit, weight in _links(row, tensor):
                choices.append(_Choice(gpu, tensor, link, limit, math.log(share) + weight))
    return choices


def _links(row: PublishedRow, tensor: int) -> list[tuple[str | None, int | None, float]]:
    """Interconnect class, one-shot limit and log prior: open where the source only says PCIe."""
    classes = _PCIE_CLASSES.get(tensor, ())
    if "pcie" not in row.text["interconnect"].lower() or not classes:
        return [(None, None, 0.0)]
    one_shot = [("pcie-switch", limit, _ONE_SHOT_LOG_PRIOR) for limit in _ONE_SHOT_MAX_KIB]
    return [*((name, None, 0.0) for name in classes), *one_shot]


@functools.lru_cache(maxsize=256)
def _shape(model: str, quantization: str) -> tuple[str, ModelShape]:
    stored = names.storage(quantization)
    card, _ = names.model_card(model, stored[0] if stored else None)
    shape = load_model(card)
    if stored and stored[0] != shape.quantization:
        shape = stored_as(shape, *stored)
    return card, shape


def _system(row: PublishedRow, choice: _Choice) -> System | None:
    card, shape = _shape(row.text["model"], row.text["quantization"])
    gpu = unknown_gpu(row.text["gpu"]) if choice.gpu is None else None
    try:
        system = build_system(load_deployment(_tables(row, choice, card)), gpu=gpu, shape=shape)
    except DraftcastError:
        return None  # a group size that the model's heads do not divide into, a link that the GPU lacks
    if not row.text["gpu"] and system.work.weight_bytes > _MAX_WEIGHT_SHARE * system.gpu.memory_bytes:
        return None
    return _with_priors(row, system, gpu)


def _tables(row: PublishedRow, choice: _Choice, card: str) -> dict[str, Any]:
    engine = names.engine_name(row.text["engine"])
    tables: dict[str, Any] = {
        "model": {"config": card},
        "hardware": {"gpu": choice.gpu or next(iter(_USUAL_GPUS)), "num_gpus": choice.tensor},
        "engine": {"name": engine, "tensor_parallel_size": choice.tensor},
        "speculation": {"method": names.method_name(row.text["method"])},
    }
    version = names.engine_version(row.text["engine"], row.text["engine_version"], row.text["date"])
    if version:
        tables["engine"]["version"] = version
    context_ranks = int(leading_number(row.text["dcp"]) or 1)
    if context_ranks > 1 and choice.tensor % context_ranks == 0:
        tables["engine"]["decode_context_parallel_size"] = context_ranks
    if "fp8 kv" in row.text["quantization"].lower():
        tables["engine"]["kv_cache_dtype"] = "fp8"
    if choice.interconnect and choice.tensor > 1:
        tables["hardware"]["interconnect"] = choice.interconnect
    if choice.one_shot_max_kib:
        tables["hardware"] |= {
            "allreduce_algorithm": "one-shot",
            "allreduce_one_shot_max_kib": choice.one_shot_max_kib,
        }
    if tables["speculation"]["method"] == "draft_model":
        tables["speculation"]["draft_model"] = _USUAL_DRAFT_MODEL
    return tables


def _with_priors(row: PublishedRow, system: System, gpu: Gpu | None) -> System:
    changes: dict[str, Prior] = {}
    engine, build = row.text["engine"].lower(), f"{row.text['engine']} {row.text['engine_version']}".lower()
    for name, milliseconds in _OTHER_ENGINES_DRAFT_PASS_MS.items():
        if name in engine:
            changes["draft_pass_ms"] = replace(system.priors["draft_pass_ms"], center=milliseconds)
    if any(word in build for word in _PATCHED):
        changes["verify_path_applies"] = replace(system.priors["verify_path_applies"], center=0.0)
    if gpu is not None or "offload" in row.text["interconnect"].lower():
        wide = system.priors["bandwidth_efficiency"]
        changes["bandwidth_efficiency"] = replace(wide, spread=UNKNOWN_BANDWIDTH_LOG_SD, low=1e-3, high=1e3)
    return replace(system, priors=system.priors.replaced(changes)) if changes else system
