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
from calibration.published.cells import leading_number, says_nothing
from calibration.published.layouts import Choice, choices, spreads_experts
from calibration.published.models import Match, mixture_of_experts, model_card, storage
from calibration.published.population import NO_SHIFTS, shifted
from calibration.published.rows import PublishedRow
from calibration.published.stand_ins import resized, stored_as, unknown_gpu
from hwmodel.errors import DraftcastError
from hwmodel.models import load_model
from hwmodel.specs import Gpu, ModelShape
from simulator.deployment import load_deployment
from simulator.parameters import Prior
from simulator.system import System, build_system

_ANY_GPU = "h200"  # named where a stand-in takes its place
_MAX_WEIGHT_SHARE = 0.9  # of a guessed GPU's memory
UNKNOWN_BANDWIDTH_LOG_SD = 1.2
# Arithmetic of a GPU without a card beside the guess: the cards that are there do 80 to 420 FLOP a byte (sd 0.5 of ln).
_COMPUTE = ("dense_compute_efficiency", "expert_compute_efficiency", "attention_flop_scale")
_UNKNOWN_COMPUTE_LOG_SD = 0.8
_STAND_IN_BANDWIDTH_LOG_SD = 0.5  # bytes of a model without a card are known about as well
# One pass of the drafter beyond its bytes, by engine (docs/model.md, fit results); vLLM's and SGLang's are priors.
_OTHER_ENGINES_DRAFT_PASS_MS = {"tensorrt": 0.3, "llama.cpp": 0.25}
_FOLLOWED_ENGINES = ("vllm", "sglang", *_OTHER_ENGINES_DRAFT_PASS_MS)
# Of an engine that is not followed here, between SGLang's 0.14 and vLLM's 0.65; of a drafter that is not known here.
_ANY_ENGINE_DRAFT_PASS_MS, _ANY_DRAFT_PASS_LOG_SD = 0.3, 0.9
_PATCHED = ("fork", "image", "nightly")  # builds whose attention path is not that of the release
_USUAL_DRAFT_MODEL = "llama-3.2-1b-bf16"
_USUAL_METHOD = "eagle"  # a head of one layer, where a source's word for its drafter is not known here
# The columns that candidates depend on: rows that agree in them share their systems.
_READ = (
    "engine",
    "engine_version",
    "date",
    "model",
    "arch",
    "quantization",
    "gpu",
    "gpu_count",
    "interconnect",
    "tp",
    "ep",
    "dp",
    "dcp",
    "method",
    "draft",
)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One reading of what a group ran on; `log_prior` is up to a constant of the group."""

    system: System
    log_prior: float
    label: str


def candidates(rows: Sequence[PublishedRow], shifts: Mapping[str, float] = NO_SHIFTS) -> list[Candidate]:
    """The candidate systems of one group; empty where none can be built.

    `shifts` move fitted constants by name (`population.CONSTANTS`), in units of ln.
    """
    longest = max(row.num_speculative_tokens or 1 for row in rows)
    found = _candidates(tuple(rows[0].text[name] for name in _READ), longest if _needs_length(rows[0]) else 1)
    return [replace(each, system=shifted(each.system, rows[0], shifts)) for each in found]


def names_its_gpu(row: PublishedRow) -> bool:
    """Whether the source says on which GPU the row ran."""
    return names.names_a_gpu(row.text["gpu"])


def _needs_length(row: PublishedRow) -> bool:
    """Whether the drafter is built for a draft length: Medusa has a head a position."""
    return _method(row.text) == "medusa"


@functools.lru_cache(maxsize=512)
def _candidates(read: tuple[str, ...], longest_draft: int) -> tuple[Candidate, ...]:
    text = dict(zip(_READ, read, strict=True))
    open_choices = choices(text)
    found = _built(text, open_choices, longest_draft)
    if not found:  # larger than any guess, or stated: then it did run
        found = _built(text, [replace(each, guess=False) for each in open_choices], longest_draft)
    if not found:  # a group size that the heads do not divide into: the nearest smaller one
        most = max(each.tensor for each in open_choices)
        for tensor in range(most - 1, 0, -1):
            smaller = [replace(each, tensor=tensor, guess=False) for each in open_choices if each.tensor == most]
            if found := _built(text, smaller, longest_draft):
                break
    return tuple(found)


def _built(text: Mapping[str, str], open_choices: Sequence[Choice], longest_draft: int) -> list[Candidate]:
    systems = ((choice, _system(text, choice, longest_draft)) for choice in open_choices)
    return [Candidate(system, choice.log_prior, choice.label) for choice, system in systems if system is not None]


def _method(text: Mapping[str, str]) -> str:
    """The method that the row names, or that its drafter's name tells."""
    return names.method_name(text["method"]) or names.method_name(text["draft"]) or _USUAL_METHOD


@functools.lru_cache(maxsize=256)
def _shape(model: str, arch: str, quantization: str) -> tuple[Match, ModelShape]:
    stored = storage(quantization) or storage(model)
    match = model_card(model, stored[0] if stored else None, arch)
    shape = load_model(match.card)
    if stored and stored[0] != shape.quantization:
        shape = stored_as(shape, *stored)
    return match, shape if match.exact else resized(shape, match.total, match.active)


def _system(text: Mapping[str, str], choice: Choice, longest_draft: int) -> System | None:
    match, shape = _shape(text["model"], text["arch"], text["quantization"])
    gpu = unknown_gpu(text["gpu"], text["interconnect"]) if choice.gpu is None else None
    try:
        deployment = load_deployment(_tables(text, choice, (match.card, shape), longest_draft))
        system = build_system(deployment, gpu=gpu, shape=shape)
    except DraftcastError:
        return None  # a group size that the model's heads do not divide into, a link that the GPU lacks
    if choice.guess and gpu is None and system.work.weight_bytes > _MAX_WEIGHT_SHARE * system.gpu.memory_bytes:
        return None
    return _with_priors(text, system, gpu, match)


def _tables(
    text: Mapping[str, str], choice: Choice, model: tuple[str, ModelShape], longest_draft: int
) -> dict[str, Any]:
    card, shape = model
    method = _method(text)
    tables: dict[str, Any] = {
        "model": {"config": card},
        "hardware": {"gpu": choice.gpu or _ANY_GPU, "num_gpus": choice.tensor * choice.data},
        "engine": _engine(text, choice, shape),
        "speculation": {"method": method},
    }
    if choice.interconnect and choice.tensor > 1:
        tables["hardware"]["interconnect"] = choice.interconnect
    if choice.one_shot_max_kib:
        tables["hardware"] |= {
            "allreduce_algorithm": "one-shot",
            "allreduce_one_shot_max_kib": choice.one_shot_max_kib,
        }
    if method == "draft_model":
        tables["speculation"]["draft_model"] = _draft_model(text["draft"])
    if longest_draft > 1:
        tables["speculation"]["num_speculative_tokens"] = longest_draft
    return tables


def _engine(text: Mapping[str, str], choice: Choice, shape: ModelShape) -> dict[str, Any]:
    engine: dict[str, Any] = {"name": names.engine_name(text["engine"]), "tensor_parallel_size": choice.tensor}
    if version := names.engine_version(text["engine"], text["engine_version"], text["date"]):
        engine["version"] = version
    context_ranks = int(leading_number(text["dcp"]) or 1)
    if context_ranks > 1 and choice.tensor % context_ranks == 0:
        engine["decode_context_parallel_size"] = context_ranks
    if choice.data > 1:
        engine["data_parallel_size"] = choice.data
    if spreads_experts(text) and any(layer.moe for layer in shape.layers):
        engine["expert_parallel"] = True
    if "fp8 kv" in text["quantization"].lower():
        engine["kv_cache_dtype"] = "fp8"
    return engine


def _draft_model(name: str) -> str:
    """The card of a named draft model, or that of a small one."""
    if says_nothing(name) or mixture_of_experts(name, "") is None:
        return _USUAL_DRAFT_MODEL
    return model_card(name, None).card


def _with_priors(text: Mapping[str, str], system: System, gpu: Gpu | None, match: Match) -> System:
    changes: dict[str, Prior] = {"draft_pass_ms": _draft_pass(text, system.priors["draft_pass_ms"])}
    build = f"{text['engine']} {text['engine_version']}".lower()
    if any(word in build for word in _PATCHED):
        changes["verify_path_applies"] = replace(system.priors["verify_path_applies"], center=0.0)
    if gpu is not None:
        changes |= {name: _of_unknown_gpu(system.priors[name]) for name in _COMPUTE}
    bandwidth = system.priors["bandwidth_efficiency"]
    if gpu is not None or "offload" in text["interconnect"].lower():
        changes["bandwidth_efficiency"] = replace(bandwidth, spread=UNKNOWN_BANDWIDTH_LOG_SD, low=1e-3, high=1e3)
    elif not match.kin:
        changes["bandwidth_efficiency"] = replace(bandwidth, spread=_STAND_IN_BANDWIDTH_LOG_SD, low=1e-2, high=1e2)
    return replace(system, priors=system.priors.replaced(changes))


def _draft_pass(text: Mapping[str, str], usual: Prior) -> Prior:
    """The cost of a draft pass of that engine; wide where the engine or the drafter is not known here."""
    engine = text["engine"].lower()
    known = next((ms for name, ms in _OTHER_ENGINES_DRAFT_PASS_MS.items() if name in engine), usual.center)
    prior = replace(usual, center=known)
    if not says_nothing(engine) and not any(name in engine for name in _FOLLOWED_ENGINES):
        return replace(prior, center=_ANY_ENGINE_DRAFT_PASS_MS, spread=_ANY_DRAFT_PASS_LOG_SD)
    if names.method_name(text["method"]) is None and names.method_name(text["draft"]) is None:
        return replace(prior, spread=_ANY_DRAFT_PASS_LOG_SD)
    return prior


def _of_unknown_gpu(prior: Prior) -> Prior:
    return replace(prior, spread=math.hypot(prior.spread, _UNKNOWN_COMPUTE_LOG_SD), low=1e-3, high=1e3)
