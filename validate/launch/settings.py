"""The engine settings of a launch that step times depend on, in one shape for both engines."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hwmodel.engine.graphs import CUDAGRAPH_MODES
from hwmodel.engine.versions import DEFAULT_VLLM, Version
from validate.launch.arguments import Arguments, human_readable_int
from validate.launch.findings import ERROR, WARNING, Finding

_AUTOMATIC = ("auto", "-1")
UNSET = re.compile(r"\$(?:\{|\(|[A-Za-z_])")  # a reference that the shell, compose or the kubelet would have replaced
_ONLY_V1: Version = (0, 11, 0)  # the first engine is gone, and with it what VLLM_USE_V1 chose
_RUNNERS = {"1": "v2", "0": "v1"}  # VLLM_USE_V2_MODEL_RUNNER
_ENGINES = {"1": "v1", "0": "v0"}  # VLLM_USE_V1
_MODE_NUMBERS = {0: "NONE", 1: "PIECEWISE", 2: "FULL"}  # vllm/config/compilation.py, CUDAGraphMode


@dataclass(slots=True)
class Settings:
    """What the launch sets; None is the engine's default. Names as in the deployment file's `[engine]` table."""

    model: str | None = None
    tensor_parallel_size: int | None = None
    pipeline_parallel_size: int | None = None
    data_parallel_size: int | None = None
    expert_parallel: bool | None = None
    decode_context_parallel_size: int | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    gpu_memory_utilization: float | None = None
    block_size: int | None = None
    kv_cache_dtype: str | None = None
    attention_backend: str | None = None
    cudagraph_mode: str | None = None
    cudagraph_capture_sizes: list[int] | None = None
    max_cudagraph_capture_size: int | None = None
    async_scheduling: bool | None = None
    model_runner: str | None = None
    enforce_eager: bool | None = None
    unresolved: dict[str, str] = field(default_factory=dict)  # settings that only the environment knows, as written
    findings: list[Finding] = field(default_factory=list)


def integer(option: str, value: Any, findings: list[Finding], *, human: bool = False) -> int | None:
    """The whole number of an option's text, or None where only the environment knows it; nonsense is a finding."""
    if value is None or not isinstance(value, str) or "$" in value:
        return None
    text = value.strip()
    number = human_readable_int(text) if human else int(text) if text.isascii() and text.isdigit() else None
    if number is None or number < 1:
        findings.append(
            Finding(ERROR, "invalid-value", f"--{option}: got {value[:60]!r}, a whole number of at least 1 is needed")
        )
        return None
    return number


def share(option: str, value: Any, findings: list[Finding]) -> float | None:
    """The number in (0, 1] of an option's text, or None."""
    if not isinstance(value, str) or "$" in value:
        return None
    try:
        number = float(value)
    except ValueError:
        number = 0.0
    if not 0 < number <= 1:
        findings.append(
            Finding(ERROR, "invalid-value", f"--{option}: got {value[:60]!r}, a number above 0 and at most 1 is needed")
        )
        return None
    return number


def vllm_settings(arguments: Arguments, environment: Mapping[str, str], version: Version = DEFAULT_VLLM) -> Settings:
    """The settings of a vLLM launch of that version, from its effective options and environment."""
    options = arguments.options
    settings = Settings(findings=[])
    found = settings.findings
    model = options.get("model")
    given = model if isinstance(model, str) else None
    settings.model = arguments.positionals[0] if arguments.positionals else given  # the positional wins
    settings.tensor_parallel_size = integer("tensor-parallel-size", options.get("tensor-parallel-size"), found)
    settings.pipeline_parallel_size = integer("pipeline-parallel-size", options.get("pipeline-parallel-size"), found)
    settings.data_parallel_size = integer("data-parallel-size", options.get("data-parallel-size"), found)
    settings.decode_context_parallel_size = integer(
        "decode-context-parallel-size", options.get("decode-context-parallel-size"), found
    )
    settings.expert_parallel = options.get("enable-expert-parallel")
    length = options.get("max-model-len")
    if not (isinstance(length, str) and length.strip().lower() in _AUTOMATIC):
        settings.max_model_len = integer("max-model-len", length, found, human=True)
    settings.max_num_seqs = integer("max-num-seqs", options.get("max-num-seqs"), found, human=True)
    settings.max_num_batched_tokens = integer(
        "max-num-batched-tokens", options.get("max-num-batched-tokens"), found, human=True
    )
    settings.gpu_memory_utilization = share("gpu-memory-utilization", options.get("gpu-memory-utilization"), found)
    settings.block_size = integer("block-size", options.get("block-size"), found)
    dtype = options.get("kv-cache-dtype")
    settings.kv_cache_dtype = dtype if isinstance(dtype, str) and dtype != "auto" else None
    settings.enforce_eager = options.get("enforce-eager")
    settings.async_scheduling = options.get("async-scheduling")
    settings.model_runner = _RUNNERS.get(environment.get("VLLM_USE_V2_MODEL_RUNNER", ""))
    if settings.model_runner is None and version < _ONLY_V1:
        settings.model_runner = _ENGINES.get(environment.get("VLLM_USE_V1", ""))
    settings.attention_backend = _attention_backend(options, environment)
    _graphs(settings, options)
    settings.unresolved = unresolved(options, {name: name.replace("-", "_") for name in options})
    return settings


def unresolved(options: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, str]:
    """The settings, by the names of `Settings`, whose option holds a reference that nothing here resolves."""
    return {
        names[option]: value
        for option, value in options.items()
        if option in names and isinstance(value, str) and UNSET.search(value)
    }


def _attention_backend(options: Mapping[str, Any], environment: Mapping[str, str]) -> str | None:
    named = options.get("attention-backend") or _content(options.get("attention-config")).get("backend")
    named = named or environment.get("VLLM_ATTENTION_BACKEND")
    return named if isinstance(named, str) and named and "$" not in named else None


def _content(text: Any) -> dict[str, Any]:
    try:
        content = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _graph_mode(content: Mapping[str, Any]) -> str | None:
    """The mode by name, also where it is written as the number of vLLM's enumeration, or in small letters."""
    mode = content.get("cudagraph_mode")
    if isinstance(mode, int) and not isinstance(mode, bool):
        return _MODE_NUMBERS.get(mode)
    if content.get("use_cudagraph") is False and mode is None:
        return "NONE"
    return mode.strip().upper() if isinstance(mode, str) else None


def _level(options: Mapping[str, Any]) -> int | None:
    """The optimization level, -O0 to -O3; None where it is not given. Level 0 runs without graphs."""
    text = options.get("optimization-level")
    return int(text) if isinstance(text, str) and text.strip() in ("0", "1", "2", "3") else None


def _graphs(settings: Settings, options: Mapping[str, Any]) -> None:
    """CUDA graph mode and sizes, from --compilation-config or the options of their own (which came with 0.11.2)."""
    text = options.get("compilation-config")
    content = _content(text)
    if (
        isinstance(text, str)
        and not content
        and not text.strip().isdigit()
        and "$" not in text
        and text.strip() not in ("", "{}")
    ):
        settings.findings.append(
            Finding(
                ERROR,
                "compilation-config-not-json",
                f"--compilation-config: {text[:60]!r} is no JSON object: quotes were lost",
            )
        )
    settings.cudagraph_mode = _graph_mode(content)
    if settings.cudagraph_mode is not None and settings.cudagraph_mode not in CUDAGRAPH_MODES:
        text = f"cudagraph_mode: got {settings.cudagraph_mode[:60]!r}, allowed are {', '.join(CUDAGRAPH_MODES)}"
        settings.findings.append(Finding(ERROR, "invalid-value", text))
        settings.cudagraph_mode = None
    if _level(options) == 0:
        settings.cudagraph_mode = settings.cudagraph_mode or "NONE"
    sizes = (
        options.get("cudagraph-capture-sizes")
        or options.get("cuda-graph-sizes")
        or content.get("cudagraph_capture_sizes")
    )
    if isinstance(sizes, list):
        numbers = [int(size) for size in sizes if str(size).isascii() and str(size).isdigit() and int(size) > 0]
        if len(numbers) < len(sizes):
            settings.findings.append(
                Finding(WARNING, "invalid-value", "--cudagraph-capture-sizes: whole numbers are needed")
            )
        settings.cudagraph_capture_sizes = sorted(numbers) or None
    largest = options.get("max-cudagraph-capture-size") or content.get("max_cudagraph_capture_size")
    settings.max_cudagraph_capture_size = integer(
        "max-cudagraph-capture-size", None if largest is None else str(largest), settings.findings
    )
