"""A deployment resolved into what costs are computed from: cards, layout, curve, engine modes, drafter, priors."""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwmodel.collectives import AllReduceCurve, allreduce_curve
from hwmodel.drafters import MODEL_FREE_METHODS, PARALLEL_METHODS, Drafter, DraftOptions, build_drafter, draft_machine
from hwmodel.engine.flags import schedule_refusal
from hwmodel.engine.limits import default_memory_share
from hwmodel.engine.mode import engine_mode
from hwmodel.engine.records import EngineMode, EngineRequest
from hwmodel.errors import InputError
from hwmodel.gpus import load_gpu
from hwmodel.interconnects import NVLINK_CLASSES
from hwmodel.models import attention_kind, load_model
from hwmodel.rank import Parallelism, RankWork, rank_work
from hwmodel.records import dataclass
from hwmodel.specs import Gpu, ModelShape
from hwmodel.step import Machine
from hwmodel.units import GB, KIB, US
from simulator.deployment import Deployment
from simulator.files import read_text
from simulator.parameters import Prior, PriorSet, prior_set, with_user_values

_KV_ELEMENT_BYTES = (("nvfp4", 0.5625), ("fp8", 1.0), ("int8", 1.0), ("fp32", 4.0), ("float32", 4.0))
_BF16_BYTES = 2.0
_MEASURED_CURVE_LOG_SD = {"allreduce_latency_scale": 0.03, "allreduce_size_scale": 0.05}  # nccl-tests, docs/model.md
_STATED_LATENCY_LOG_SD = 0.05  # one number by hand: less than a sweep
_STATED_BUSBW_LOG_SD = 0.10
_LARGE_MESSAGE_BYTES = 64e6  # where a bus bandwidth is read off


@dataclass(frozen=True)
class System:
    """Everything about one deployment that does not depend on load, draft length or parameter draws."""

    deployment: Deployment
    gpu: Gpu
    shape: ModelShape
    machine: Machine
    work: RankWork
    drafter: Drafter
    priors: PriorSet
    gpu_memory_utilization: float
    notes: tuple[str, ...]
    mode: Callable[[int], EngineMode]  # by draft length; 0 is the baseline

    @property
    def parallel(self) -> Parallelism:
        """Sizes of the parallel groups."""
        return self.machine.parallel

    @property
    def method(self) -> str:
        """The speculation method of the deployment."""
        return self.deployment.speculation.method

    @property
    def n_predict(self) -> int | None:
        """MTP layers of the model, where MTP is the method and the model has any."""
        return len(self.shape.mtp_layers) or None if self.method == "mtp" else None

    def verified_rows(self, num_speculative_tokens: NDArray[Any]) -> NDArray[np.float64]:
        """Rows that a drafted request brings into a step: 1 + k for a chain, the nodes of the tree for a tree."""
        spec = self.deployment.speculation
        if (spec.sglang_topk or 1) > 1 and spec.sglang_num_draft_tokens:
            return np.full(len(num_speculative_tokens), float(spec.sglang_num_draft_tokens))
        return np.asarray(num_speculative_tokens + 1.0)

    @property
    def context_tokens(self) -> float:
        """Mean context of a decode step."""
        return self.deployment.workload.context_tokens

    @cached_property
    def batch_divisor(self) -> int:
        """Replicas and pipeline micro-batches that share the offered concurrency."""
        return self.parallel.data * self.parallel.pipeline


def build_system(
    deployment: Deployment,
    measured: AllReduceCurve | None = None,
    *,
    gpu: Gpu | None = None,
    shape: ModelShape | None = None,
) -> System:
    """The system of a deployment; `InputError` in one line where cards and keys do not go together.

    `measured` is an AllReduce curve to use in place of the one that the deployment leads to; `gpu` and `shape` stand in
    for the cards that it names.
    """
    gpu = gpu or load_gpu(deployment.hardware.gpu)
    shape = shape or load_model(deployment.model.config)
    engine = deployment.engine
    parallel = Parallelism(
        tensor=engine.tensor_parallel_size,
        pipeline=engine.pipeline_parallel_size,
        data=engine.data_parallel_size,
        expert_parallel=engine.expert_parallel,
        decode_context=engine.decode_context_parallel_size,
    )
    check_layout(shape, parallel)
    notes = [*_idle_gpus_note(deployment), *deployment.notes]
    interconnect, why = resolve_interconnect(deployment, gpu)
    notes += [why] if why else []
    notes += what_is_not_modelled(deployment)
    curve = resolve_curve(deployment, gpu, interconnect) if measured is None else measured
    modes: dict[int, EngineMode] = {}

    def mode(num_speculative_tokens: int) -> EngineMode:
        if num_speculative_tokens not in modes:
            modes[num_speculative_tokens] = engine_mode(_request(deployment, gpu, shape, num_speculative_tokens))
        return modes[num_speculative_tokens]

    notes += _schedule_note(deployment, mode(deployment.speculation.num_speculative_tokens or 1))
    machine = Machine(gpu, parallel, curve, interconnect, mode(0).attention_backend, _dense_format(shape))
    kv_bytes = kv_element_bytes(engine.kv_cache_dtype, shape)
    drafter = resolve_drafter(deployment, shape, machine, kv_bytes)
    return System(
        deployment=deployment,
        gpu=gpu,
        shape=shape,
        machine=machine,
        work=rank_work(shape, parallel, kv_bytes),
        drafter=drafter,
        priors=resolve_priors(deployment, machine, shape),
        gpu_memory_utilization=engine.gpu_memory_utilization or default_memory_share(engine.name, mode(0).version),
        notes=tuple(dict.fromkeys(notes)),
        mode=mode,
    )


def _schedule_note(deployment: Deployment, mode: EngineMode) -> list[str]:
    """A sentence where this engine would not follow the stated schedule."""
    spec = deployment.speculation
    if not spec.schedule:
        return []
    refusal = schedule_refusal(
        mode.engine, mode.version, spec.method, mode.model_runner, deployment.engine.data_parallel_size
    )
    return [f"{refusal}; the figures assume an engine that follows the stated schedule"] if refusal else []


def _idle_gpus_note(deployment: Deployment) -> list[str]:
    engine, used = deployment.engine, deployment.num_gpus_used
    if used >= deployment.num_gpus:
        return []
    sizes = f"TP {engine.tensor_parallel_size} x PP {engine.pipeline_parallel_size} x DP {engine.data_parallel_size}"
    return [
        f"{used} of the {deployment.num_gpus} GPUs serve ({sizes}), as the engine would without more in its launch:"
        " engine.tensor_parallel_size takes the others too"
    ]


def what_is_not_modelled(deployment: Deployment) -> list[str]:
    """Sentences on keys that the closed form reads in part or not at all: nothing is dropped silently."""
    spec, objective, notes = deployment.speculation, deployment.objective, []
    if (spec.sglang_topk or 1) > 1:
        nodes = spec.sglang_num_draft_tokens
        notes.append(
            f"draft tree: {nodes or 'k + 1'} rows are verified; an acceptance that is given is taken per depth, as of"
            " this tree"
        )
    if spec.expert_budget:
        notes.append(
            f"expert_budget {spec.expert_budget}: verification reads at most that many experts a layer; what that costs"
            " in output quality and acceptance is not in these figures (draftcast budget has a scenario)"
        )
    if spec.effective_policy in ("sglang-adaptive", "optimal"):
        notes.append(f"speculation.policy {spec.effective_policy}: predicted as a static draft length")
    if objective.tpot_ms_max is not None or objective.ttft_ms_max is not None:
        notes.append(f"limits are applied to the mean TPOT and TTFT, not to the {objective.percentile:g}th percentile")
    return notes


def check_layout(shape: ModelShape, parallel: Parallelism) -> None:
    """Refuse layouts that no engine accepts."""
    heads = {x.attention.num_heads for x in shape.layers if x.attention.kind != "linear"}
    for num_heads in sorted(heads):
        if num_heads % parallel.tensor:
            allowed = [n for n in range(1, num_heads + 1) if num_heads % n == 0 and n <= 64]
            raise InputError(
                f"engine.tensor_parallel_size: got {parallel.tensor}, but {shape.name} has {num_heads} attention heads;"
                f" allowed: {', '.join(map(str, allowed))}"
            )
    most = max_decode_context(shape, parallel.tensor)
    if parallel.decode_context > most:
        raise InputError(
            f"engine.decode_context_parallel_size: got {parallel.decode_context}, but {shape.name} has"
            f" {_kv_heads(shape)} key-value heads: TP {parallel.tensor} allows 1 to {most}"
        )
    if parallel.pipeline > shape.num_hidden_layers:
        raise InputError(
            f"engine.pipeline_parallel_size: got {parallel.pipeline}, allowed 1 to {shape.num_hidden_layers} (layers)"
        )
    if parallel.expert_parallel and not any(x.moe for x in shape.layers):
        raise InputError(f"engine.expert_parallel: got true, but {shape.name} has no experts; allowed: false")


def max_decode_context(shape: ModelShape, tensor: int) -> int:
    """Ranks that may share one cached context: those that would hold the same key-value heads.

    Source: vllm/config/model.py, verify_with_parallel_config: at most TP / key-value heads; MLA has one latent.
    """
    return max(tensor // _kv_heads(shape), 1)


def _kv_heads(shape: ModelShape) -> int:
    """Key-value heads of the layers that keep a cache; 1 for an MLA latent."""
    return max((x.attention.num_kv_heads for x in shape.layers if x.attention.kind == "gqa"), default=1)


def kv_element_bytes(kv_cache_dtype: str | None, shape: ModelShape) -> float:
    """Bytes of one cache element: as the model's arithmetic (BF16, or FP32 for such a model) unless given."""
    name = (kv_cache_dtype or "auto").lower()
    if name == "auto" and shape.quantization == "fp32":
        name = "fp32"
    return next((size for start, size in _KV_ELEMENT_BYTES if name.startswith(start)), _BF16_BYTES)


def resolve_interconnect(deployment: Deployment, gpu: Gpu) -> tuple[str, str]:
    """The interconnect class and a sentence where it was found rather than stated."""
    hardware = deployment.hardware
    if deployment.num_gpus_used == 1:
        return "none", ""
    found, reason = _class_of_topology(deployment, gpu) if hardware.topology else ("", "")
    if hardware.interconnect:
        stated = f"interconnect {hardware.interconnect} as stated, though"
        if found and found != hardware.interconnect:
            return hardware.interconnect, f"{stated} {reason} is {found}"
        if (hardware.interconnect in NVLINK_CLASSES) != (gpu.interconnect in NVLINK_CLASSES):
            return hardware.interconnect, f"{stated} {gpu.title} usually has {gpu.interconnect}"
        return hardware.interconnect, ""
    if found:
        return found, f"interconnect {found} from {reason}"
    return (
        gpu.interconnect,
        f"hardware.interconnect is not given; {gpu.interconnect} assumed, as {gpu.title} usually has",
    )


def _class_of_topology(deployment: Deployment, gpu: Gpu) -> tuple[str, str]:
    """The class of the stated `nvidia-smi topo -m` text, and where it comes from."""
    from simulator.topology import classify, parse_topology

    path = deployment.hardware.topology or ""
    name, reason = classify(parse_topology(read_text(path)), deployment.num_gpus_used)
    if name.startswith("pcie") and not gpu.p2p:
        name, reason = "pcie-no-p2p", f"{gpu.title} has no peer-to-peer with the stock driver"
    return name, f"{Path(path).name} ({reason})"


def resolve_curve(deployment: Deployment, gpu: Gpu, interconnect: str) -> AllReduceCurve:
    """The AllReduce curve of the target's tensor-parallel group: the user's nccl-tests, else a table or the model."""
    hardware = deployment.hardware
    ranks = deployment.engine.tensor_parallel_size
    if hardware.nccl_tests and ranks > 1:
        from simulator.nccl_tests import parse_nccl_tests

        return parse_nccl_tests(read_text(hardware.nccl_tests), Path(hardware.nccl_tests).name, expected_ranks=ranks)
    limit = hardware.allreduce_one_shot_max_kib
    largest = None if limit is None else limit * KIB
    return allreduce_curve(gpu, ranks, interconnect, hardware.allreduce_algorithm, largest)


def resolve_drafter(deployment: Deployment, shape: ModelShape, machine: Machine, kv_bytes: float) -> Drafter:
    """The drafter with its own layout."""
    speculation = deployment.speculation
    method = speculation.method
    if method in MODEL_FREE_METHODS or method == "none":
        return build_drafter(method, shape, machine, kv_bytes)
    draft = load_model(speculation.draft_model) if speculation.draft_model else None
    if method == "draft_model" and draft is None:
        raise InputError(
            "speculation.draft_model: got nothing, but method draft_model needs a card name or config path: "
            "--set speculation.draft_model=NAME"
        )
    tensor = speculation.draft_tensor_parallel_size or machine.parallel.tensor
    if method == "mlp_speculator":
        tensor = 1  # vLLM forces it
    where = replace(machine, parallel=replace(machine.parallel, pipeline=1))  # the drafter runs on the last stage
    if tensor != machine.parallel.tensor:
        algorithm = deployment.hardware.allreduce_algorithm
        where = draft_machine(machine, tensor, allreduce_curve(machine.gpu, tensor, machine.interconnect, algorithm))
    options = DraftOptions(draft, where, speculation.draft_vocab_size, speculation.num_speculative_tokens or 1)
    return build_drafter(method, shape, machine, kv_bytes, options)


def resolve_priors(deployment: Deployment, machine: Machine, shape: ModelShape) -> PriorSet:
    """Priors for this machine, narrowed or moved by what the deployment states outright."""
    hardware = deployment.hardware
    priors = prior_set(
        sm_arch=machine.gpu.sm_arch,
        interconnect=machine.interconnect,
        engine=deployment.engine.name,
        attention_backend=machine.attention_backend,
        expert_format=shape.expert_format,
    )
    changes: dict[str, Prior] = {}

    def stated(name: str, center: float, spread: float, source: str) -> None:
        old = priors[name]
        changes[name] = Prior(name, center, spread, "lognormal", min(old.low, center), max(old.high, center), source)

    if machine.allreduce.kind == "user":
        for name, spread in _MEASURED_CURVE_LOG_SD.items():
            stated(name, 1.0, spread, "the deployment's nccl-tests")
    message = shape.hidden_size * _BF16_BYTES
    if hardware.allreduce_latency_us and machine.parallel.tensor > 1:
        wanted_s, latency_s = hardware.allreduce_latency_us * US, machine.allreduce.latency_s
        growth_s = float(machine.allreduce.time_s(message)) - latency_s
        if wanted_s <= growth_s:  # faster than the curve's growth alone: the whole curve is scaled
            scale = wanted_s / (latency_s + growth_s)
            stated("allreduce_size_scale", scale, _STATED_BUSBW_LOG_SD, "hardware.allreduce_latency_us")
        else:
            scale = (wanted_s - growth_s) / latency_s
        stated("allreduce_latency_scale", scale, _STATED_LATENCY_LOG_SD, "hardware.allreduce_latency_us")
    if hardware.allreduce_busbw_gb_per_s and machine.parallel.tensor > 1:
        ranks = machine.parallel.tensor
        wanted = _LARGE_MESSAGE_BYTES * 2 * (ranks - 1) / ranks / (hardware.allreduce_busbw_gb_per_s * GB)
        scale = wanted / float(machine.allreduce.time_s(_LARGE_MESSAGE_BYTES))
        stated("allreduce_size_scale", scale, _STATED_BUSBW_LOG_SD, "hardware.allreduce_busbw_gb_per_s")
    if hardware.host_overhead_ms is not None:
        old = priors["host_step_ms"]
        changes["host_step_ms"] = Prior(
            old.name,
            hardware.host_overhead_ms,
            0.0,
            "normal",
            0.0,
            max(old.high, hardware.host_overhead_ms),
            "deployment file",
        )
    if deployment.engine.attention_backend:
        changes["verify_path_applies"] = replace(
            priors["verify_path_applies"], center=1.0, source="engine.attention_backend"
        )
    return with_user_values(priors.replaced(changes), deployment.parameters)


def _dense_format(shape: ModelShape) -> str:
    """Arithmetic of the dense layers: FP8 models multiply in FP8, weight-only formats in BF16."""
    return "fp8" if shape.quantization == "fp8" else "bf16"


def _request(deployment: Deployment, gpu: Gpu, shape: ModelShape, num_speculative_tokens: int) -> EngineRequest:
    engine = deployment.engine
    method = deployment.speculation.method if num_speculative_tokens else "none"
    return EngineRequest(
        name=engine.name,
        version=engine.version,
        sm_arch=gpu.sm_arch,
        attention_kind=attention_kind(shape),
        method=method,
        num_speculative_tokens=num_speculative_tokens,
        is_moe=any(x.moe for x in shape.layers),
        model_quantized=shape.quantization != "bf16",
        data_parallel_size=engine.data_parallel_size,
        tensor_parallel_size=engine.tensor_parallel_size,
        gpu_memory_bytes=gpu.memory_bytes,
        max_num_seqs=engine.max_num_seqs,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        attention_backend=engine.attention_backend,
        cudagraph_mode=engine.cudagraph_mode,
        cudagraph_capture_sizes=engine.cudagraph_capture_sizes,
        max_cudagraph_capture_size=engine.max_cudagraph_capture_size,
        async_scheduling=engine.async_scheduling,
        model_runner=engine.model_runner,
        enforce_eager=engine.enforce_eager,
        parallel_drafting=method in PARALLEL_METHODS,
    )
