"""What the engine of that version makes of the launch: runner, scheduling, graphs and limits, as far as it is known.

The facts themselves are those of `hwmodel.engine`; here they are asked with what a launch says, and left open (None)
where they depend on a GPU or a model that nothing names.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from hwmodel.engine import graphs, limits, runners
from hwmodel.engine.backends import default_backend
from hwmodel.engine.methods import canonical_method
from hwmodel.engine.records import EngineRequest
from hwmodel.engine.versions import Version, format_version
from hwmodel.errors import InputError
from hwmodel.models import attention_kind
from hwmodel.specs import Gpu, ModelShape
from validate.launch.settings import Settings
from validate.launch.speculative_keys import MTP_ALIASES

T = TypeVar("T")
# Where the GPU is not named: one of each family whose facts differ. Values are used only where all agree.
_FAMILIES = (("8.9", 48e9), ("9.0", 80e9), ("10.0", 192e9), ("12.0", 96e9))


@dataclass(frozen=True, slots=True)
class Case:
    """One way of running: what is asked of the engine facts."""

    version: Version
    settings: Settings
    method: str  # of `hwmodel.engine.methods`
    num_speculative_tokens: int
    gpu: Gpu | None = None
    shape: ModelShape | None = None
    parallel_drafting: bool = False


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """How the engine runs the launch; None where that depends on what is not known.

    `captured_tokens` are the least and the most tokens that the largest captured graph may have, 0 without graphs.
    `refusal` is why it would not start.
    """

    model_runner: str | None
    async_scheduling: bool | None
    refusal: str
    uniform_decode_graph: str | None
    mixed_decode_graph: str | None
    max_num_seqs: int | None
    max_num_batched_tokens: int | None
    captured_tokens: tuple[int, int]


def engine_method(config: dict[str, Any] | None) -> str | None:
    """The name of the method in the engine facts' vocabulary; None for one that is in none."""
    if config is None:
        return "none"
    name = str(config.get("method"))
    if name in MTP_ALIASES:
        return "mtp"
    if name == "eagle3" and config.get("parallel_drafting") is True:
        return "p_eagle"
    try:
        return canonical_method(name)
    except InputError:
        return None


def engine_facts(case: Case) -> EngineFacts:
    """The facts on a vLLM launch."""
    runner = _agreed(case, lambda request: runners.model_runner(request, case.version)[0])
    scheduling, refusal = _scheduling(case, runner)
    batch = _agreed(case, lambda request: _limits(request, case.version))
    captured = [_captured(request, case.version) for request in _requests(case)]
    kinds = _agreed(case, lambda request: _graph_kinds(request, case.version))
    return EngineFacts(
        model_runner=runner,
        async_scheduling=scheduling,
        refusal=refusal,
        uniform_decode_graph=None if kinds is None else kinds[0],
        mixed_decode_graph=None if kinds is None else kinds[1],
        max_num_seqs=case.settings.max_num_seqs or (None if batch is None else batch[0]),
        max_num_batched_tokens=case.settings.max_num_batched_tokens or (None if batch is None else batch[1]),
        captured_tokens=(min(captured), max(captured)),
    )


def v2_refusal(case: Case) -> str:
    """Why Model Runner V2, which the environment asks for, would not start with this; empty where it would."""
    notes = (note for request in _requests(case) for note in runners.model_runner(request, case.version)[1])
    return next((note for note in notes if "refuses to start" in note), "")


def _scheduling(case: Case, runner: str | None) -> tuple[bool | None, str]:
    """(whether scheduling overlaps the step, why the engine would refuse it)."""
    if runner is None:
        return None, ""
    answers = {runners.async_scheduling(request, case.version, runner) for request in _requests(case)}
    on = {answer for answer, _ in answers}
    refusal = next((note for _, notes in answers for note in notes if "refuses to start" in note), "")
    return (on.pop() if len(on) == 1 else None), refusal


def _limits(request: EngineRequest, version: Version) -> tuple[int, int]:
    runner, _ = runners.model_runner(request, version)
    defaults = limits.default_limits(request, version, runner)
    return (
        request.max_num_seqs or defaults.max_num_seqs,
        request.max_num_batched_tokens or defaults.max_num_batched_tokens,
    )


def _graph_kinds(request: EngineRequest, version: Version) -> tuple[str, str]:
    runner, _ = runners.model_runner(request, version)
    if runner == "v0":
        full = not request.enforce_eager and request.draft_tokens == 0 and request.sm_arch != "cpu"
        return ("full" if full else "none"), "none"
    backend = request.attention_backend or default_backend(request.attention_kind, request.sm_arch, version)
    try:
        uniform, mixed, _ = graphs.graph_kinds(request, version, backend.strip().upper())
    except InputError:  # a graph mode that no version has
        return "none", "none"
    return uniform, mixed


def _captured(request: EngineRequest, version: Version) -> int:
    """The largest captured token count, 0 without graphs."""
    runner, _ = runners.model_runner(request, version)
    try:
        sizes = graphs.capture_sizes(
            request, _graph_kinds(request, version), runner, version, _limits(request, version)
        )
    except InputError:  # a size that no version accepts: said where it is read
        return 0
    return sizes[-1] if sizes else 0


def _agreed(case: Case, fact: Callable[[EngineRequest], T]) -> T | None:
    """The fact where every GPU and model that the launch may mean gives the same one."""
    values = [fact(request) for request in _requests(case)]
    return values[0] if all(value == values[0] for value in values) else None


def _requests(case: Case) -> list[EngineRequest]:
    """What is asked, once for each GPU and kind of model that the launch may mean."""
    machines = [(case.gpu.sm_arch, case.gpu.memory_bytes)] if case.gpu else list(_FAMILIES)
    if case.shape:
        kinds = [(attention_kind(case.shape), any(layer.moe for layer in case.shape.layers), case.shape.quantization)]
    else:
        kinds = [("gqa", False, "bf16"), ("gqa", True, "fp8"), ("mla", True, "fp8"), ("hybrid", True, "bf16")]
    return [_request(case, machine, kind) for machine in machines for kind in kinds]


def _request(case: Case, machine: tuple[str, float], kind: tuple[str, bool, str]) -> EngineRequest:
    settings = case.settings
    sizes = settings.cudagraph_capture_sizes
    return EngineRequest(
        name="vllm",
        version=format_version(case.version),
        sm_arch=machine[0],
        attention_kind=kind[0],
        method=case.method,
        num_speculative_tokens=case.num_speculative_tokens,
        is_moe=kind[1],
        model_quantized=kind[2] != "bf16",
        data_parallel_size=settings.data_parallel_size or 1,
        tensor_parallel_size=settings.tensor_parallel_size or 1,
        gpu_memory_bytes=machine[1],
        max_num_seqs=settings.max_num_seqs,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        attention_backend=settings.attention_backend,
        cudagraph_mode=settings.cudagraph_mode,
        cudagraph_capture_sizes=tuple(sizes) if sizes else None,
        max_cudagraph_capture_size=settings.max_cudagraph_capture_size or None,
        async_scheduling=settings.async_scheduling,
        model_runner=settings.model_runner,
        enforce_eager=bool(settings.enforce_eager),
        parallel_drafting=case.parallel_drafting,
    )
