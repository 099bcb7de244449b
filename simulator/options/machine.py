"""Communication, layout, memory and hardware what-ifs, each with the best drafter after it."""

from collections.abc import Iterable, Iterator
from itertools import product
from typing import NamedTuple

from hwmodel.collectives import ALGORITHMS
from hwmodel.engine.versions import Version
from hwmodel.gpus import gpu_names, load_gpu
from hwmodel.interconnects import FASTER_CLASS, NVLINK_CLASSES
from hwmodel.models import load_model, model_names
from hwmodel.specs import Gpu, ModelShape
from simulator.options.build import SAME_ENGINE, Words, restart_experiment
from simulator.options.moves import Changes, Today, move_option
from simulator.options.record import Experiment, Need, Option, Risk
from simulator.options.situation import NO_METHOD, Screened, Situation
from simulator.published_drafters import geometry, name_words
from simulator.system import System, max_decode_context

MAX_LAYOUTS = 2  # of all that fit, the best ones are listed
MAX_MACHINES = 3
SAME_SPEED = 0.05  # machines closer than that are one line: nothing that is known tells them apart
_NCCL_TESTS = Experiment(
    "`all_reduce_perf` of nccl-tests at the sizes in question, the service stopped for a minute", 60.0
)
_IN_THIS_LAYOUT = "one restart in this layout, and `draftcast measure` before and after"
_DECODE_CONTEXT_CAME: Version = (0, 11, 0)  # vLLM alone has it
_SIZES = (1, 2, 4, 8)
_UTILIZATION = 0.95
# How much of the model's text survives another number format is not predicted: only whether it is a risk is said.
_ROUNDING = {
    "bf16": Risk("none", "BF16 weights: as trained"),
    "fp8": Risk("low", "FP8 weights: benchmarks rarely tell the difference, your own prompts may"),
}
_LOSSY = Risk("lossy", "4-bit weights: outputs differ; compare quality on your own prompts before you switch")


class Move(NamedTuple):
    """One what-if: overrides, name, kind, and what is said about it."""

    changes: Changes
    words: Words


def options(situation: Situation, today: Today) -> Iterable[Option]:
    """The what-ifs of communication, layout, memory, number format and hardware that gain something."""
    for moves in (_communication, _layouts, _memory, _formats, _machines):
        for move in moves(situation):
            option = move_option(situation, move.changes, today, move.words)
            if option is not None:
                yield option


def _communication(situation: Situation) -> Iterator[Move]:
    """Other AllReduce kernels on the same links, and the same GPUs on a better topology."""
    deployment, machine = situation.deployment, situation.today.study.system.machine
    if machine.parallel.tensor == 1:
        return
    stated = deployment.hardware.allreduce_latency_us or deployment.hardware.nccl_tests
    if not stated:  # else the curve is the measured one, whatever the algorithm
        found = [
            _screened(situation, (f"hardware.allreduce_algorithm={name}",)) for name in _other_algorithms(situation)
        ]
        best = max((each for each in found if each), key=lambda each: each.undrafted_gain, default=None)
        if best is not None:
            name = best.changes[0].split("=")[1]
            need = Need("tuning", f"a {name} AllReduce kernel in the engine, below the size where NCCL is faster", {})
            said = f"AllReduce {name}: the curve of published tests, scaled to this machine as NCCL's is"
            words = Words(f"AllReduce: {name}", "communication", SAME_ENGINE, _NCCL_TESTS, (need,), (said,))
            yield Move(best.changes[:1], words)
    better = FASTER_CLASS.get(machine.interconnect)
    while better in FASTER_CLASS:
        better = FASTER_CLASS[better]
    if better:
        need = Need("hardware", f"the same GPUs on {better} (another board or switches)", {"money": None})
        said = f"{better}: the published curve of that class, where one is known for the GPU"
        experiment = Experiment(
            "`all_reduce_perf` on such a machine, rented or borrowed for an hour", 0.0, takes_money=True
        )
        words = Words(f"PCIe topology: {better}", "hardware", SAME_ENGINE, experiment, (need,), (said,), None)
        changes = (f"hardware.interconnect={better}", "hardware.topology=", "hardware.nccl_tests=",
                   "hardware.allreduce_latency_us=", "hardware.allreduce_busbw_gb_per_s=")  # fmt: skip
        yield Move(changes, words)


def _other_algorithms(situation: Situation) -> list[str]:
    return [name for name in ALGORITHMS if name not in ("auto", situation.deployment.hardware.allreduce_algorithm)]


def _screened(situation: Situation, changes: Changes) -> Screened | None:
    return situation.screened((*changes, *NO_METHOD))


def _layouts(situation: Situation) -> Iterator[Move]:
    """The best ways to spread the model over the same GPUs, of all that fit."""
    engine, num_gpus = situation.deployment.engine, situation.deployment.num_gpus
    now = (engine.tensor_parallel_size, engine.pipeline_parallel_size, engine.data_parallel_size,
           engine.expert_parallel, engine.decode_context_parallel_size)  # fmt: skip
    found, system = [], situation.today.study.system
    for layout in _all_layouts(num_gpus, system.shape, _shares_context(system)):
        if layout != now:
            screened = _screened(situation, tuple(_layout_changes(layout)))
            if screened and screened.undrafted_gain > 1.0:
                found.append((screened.undrafted_gain, layout))
    for _, layout in sorted(found, key=lambda pair: -pair[0])[:MAX_LAYOUTS]:
        said = "other layouts: ranks are equally loaded, and the engine supports the combination"
        experiment = restart_experiment(situation, _IN_THIS_LAYOUT)
        words = Words(f"layout {_layout_name(layout)}", "layout", SAME_ENGINE, experiment, (), (said,))
        yield Move(tuple(_layout_changes(layout)), words)


_Layout = tuple[int, int, int, bool, int]


def _shares_context(system: System) -> bool:
    """Whether the engine has decode-context parallelism at all."""
    mode = system.mode(0)
    return mode.engine == "vllm" and mode.version >= _DECODE_CONTEXT_CAME


def _all_layouts(num_gpus: int, shape: ModelShape, shares_context: bool) -> Iterator[_Layout]:
    """Every power-of-two TP x PP x DP on at most these GPUs that uses as many as it can, experts split or whole.

    The cached context is shared by one rank or by as many as may, where the engine can share it.
    """
    has_experts = any(layer.moe for layer in shape.layers)
    powers = [2**i for i in range(num_gpus.bit_length()) if 2**i <= num_gpus]
    most = powers[-1]
    for tensor, pipeline in product(powers, powers):
        if most % (tensor * pipeline) == 0:
            data = most // (tensor * pipeline)
            contexts = sorted({1, max_decode_context(shape, tensor) if shares_context else 1})
            for experts, context in product((False, True) if has_experts else (False,), contexts):
                yield tensor, pipeline, data, experts, context


def _layout_changes(layout: _Layout) -> Iterator[str]:
    tensor, pipeline, data, experts, context = layout
    yield f"engine.tensor_parallel_size={tensor}"
    yield f"engine.pipeline_parallel_size={pipeline}"
    yield f"engine.data_parallel_size={data}"
    yield f"engine.expert_parallel={str(experts).lower()}"
    yield f"engine.decode_context_parallel_size={context}"


def _layout_name(layout: _Layout) -> str:
    tensor, pipeline, data, experts, context = layout
    parts = [f"TP{tensor}", *([f"PP{pipeline}"] if pipeline > 1 else []), *([f"DP{data}"] if data > 1 else [])]
    return " ".join([*parts, *(["EP"] if experts else []), *([f"DCP{context}"] if context > 1 else [])])


def _memory(situation: Situation) -> Iterator[Move]:
    """What makes room for more requests: a smaller cache element, more of the GPU, a shorter longest request."""
    engine, limit = situation.deployment.engine, situation.today.capacity.limited_by
    restart = restart_experiment(situation, "one restart with it: the engine logs the size of its KV cache")
    if not (engine.kv_cache_dtype or "auto").lower().startswith(("fp8", "int8", "nvfp4")):
        risk = Risk("low", "FP8 cache: keys and values are rounded; long contexts feel it first")
        yield Move(("engine.kv_cache_dtype=fp8",), Words("FP8 KV cache", "memory", risk, restart))
    utilization = situation.today.study.system.gpu_memory_utilization
    if utilization < _UTILIZATION:
        exact = Risk("none", "the same computation with more room")
        name = f"gpu_memory_utilization {_UTILIZATION:g}"
        said = (f"{name}: nothing else on the GPUs needs that memory",)
        words = Words(name, "memory", exact, restart, (), said)
        yield Move((f"engine.gpu_memory_utilization={_UTILIZATION:g}",), words)
    if limit == "does_not_fit" and engine.max_model_len:
        needed = int(2 ** max(int(situation.today.study.system.context_tokens * 2).bit_length(), 1))
        if needed < engine.max_model_len:
            exact = Risk("none", f"requests longer than {needed} tokens are refused")
            words = Words(f"max_model_len {needed}", "memory", exact, restart)
            yield Move((f"engine.max_model_len={needed}",), words)
    if limit == "max_num_seqs":
        more = situation.today.study.system.mode(0).max_num_seqs * 2
        exact = Risk("none", "the same computation, more requests at once")
        yield Move((f"engine.max_num_seqs={more}",), Words(f"max_num_seqs {more}", "memory", exact, restart))


def _formats(situation: Situation) -> Iterator[Move]:
    """The same model in another number format, where a card of it ships."""
    shape = situation.today.study.system.shape
    restart = restart_experiment(situation, "an evaluation of both on your own prompts, then one restart")
    for name in model_names():
        if name_words(name) != name_words(shape.name) or name == situation.deployment.model.config:
            continue
        other = load_model(name)
        if geometry(other) == geometry(shape) and other.quantization != shape.quantization:
            risk = _ROUNDING.get(other.quantization, _LOSSY)
            need = Need("weights", f"the weights of {name}", {"weights_bytes": None})
            words = Words(f"number format: {other.quantization}", "format", risk, restart, (need,))
            yield Move((f"model.config={name}", "model.weights_gb="), words)


def _machines(situation: Situation) -> Iterator[Move]:
    """Other machines with NVLink that hold the model, in the smallest layout; the best ones."""
    own = load_gpu(situation.deployment.hardware.gpu)
    found = []
    for name in gpu_names():
        gpu = load_gpu(name)
        if gpu.interconnect in NVLINK_CLASSES and gpu.name != own.name and _runs_format(gpu, situation):
            screened = _fastest(situation, gpu)
            if screened is not None and screened.undrafted_gain > 1.0:
                found.append((screened.undrafted_gain, name, screened))
    for name, screened in _distinct(found)[:MAX_MACHINES]:
        count = next(change for change in screened.changes if change.startswith("hardware.num_gpus=")).split("=")[1]
        need = Need("hardware", f"{count} x {name} with their own links", {"num_gpus": float(count), "money": None})
        said = "other machines: parameters from their priors, since nothing was measured on them"
        rent = Experiment("rent one for an hour and `draftcast measure` the model there", 0.0, takes_money=True)
        words = Words(f"machine: {count} x {name}", "hardware", SAME_ENGINE, rent, (need,), (said,), None)
        yield Move(tuple(change for change in screened.changes if change not in NO_METHOD), words)


def _runs_format(gpu: Gpu, situation: Situation) -> bool:
    """Whether the engine has kernels for the weights there: NVFP4 on AMD is emulated at best (vllm PR 35733)."""
    return not gpu.sm_arch.startswith("gfx") or situation.today.study.system.shape.quantization != "nvfp4"


def _distinct(found: list[tuple[float, str, Screened]]) -> list[tuple[str, Screened]]:
    """Machines by gain, without those that are as fast as one before."""
    kept: list[tuple[float, str, Screened]] = []
    for gain, name, screened in sorted(found, key=lambda entry: (-entry[0], entry[1])):
        if not kept or gain < kept[-1][0] * (1.0 - SAME_SPEED):
            kept.append((gain, name, screened))
    return [(name, screened) for _, name, screened in kept]


def _fastest(situation: Situation, gpu: Gpu) -> Screened | None:
    """The model on as many of these GPUs as it has now or half of them, the faster way; on more where it takes more."""
    held = situation.today.capacity.memory.weight_bytes * situation.today.study.system.parallel.num_gpus
    now = 2 ** (situation.deployment.num_gpus.bit_length() - 1)
    best = None
    for tensor in [max(now // 2, 1), now, *(size for size in _SIZES if size > now)]:
        if best is not None and tensor > now:
            break
        if tensor * gpu.memory_bytes < held:
            continue
        found = _screened(situation, tuple(machine_changes(gpu.name, tensor)))
        if found is not None and (best is None or found.undrafted_gain > best.undrafted_gain):
            best = found
    return best


def machine_changes(gpu: str, tensor: int) -> Iterator[str]:
    """Overrides that put a deployment on `tensor` GPUs of another kind, tensor parallel, with the links they have."""
    yield f"hardware.gpu={gpu}"
    yield f"hardware.num_gpus={tensor}"
    yield f"engine.tensor_parallel_size={tensor}"
    for key in ("pipeline_parallel_size", "data_parallel_size", "decode_context_parallel_size", "attention_backend"):
        yield f"engine.{key}="
    for key in ("interconnect", "nccl_tests", "topology", "allreduce_latency_us", "allreduce_busbw_gb_per_s"):
        yield f"hardware.{key}="
    yield "hardware.allreduce_algorithm="
