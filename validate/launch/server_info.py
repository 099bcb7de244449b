"""What a server tells about its own configuration: vLLM in development mode (/server_info), SGLang its arguments."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from validate.launch.program import SGLANG, VLLM
from validate.launch.settings import Settings
from validate.launch.sglang_arguments import SglangArguments, sglang_settings, sglang_speculation

# (part of vllm_config, field there, our setting)
_FIELDS = (
    ("model_config", "model", "model"),
    ("model_config", "max_model_len", "max_model_len"),
    ("model_config", "enforce_eager", "enforce_eager"),
    ("parallel_config", "tensor_parallel_size", "tensor_parallel_size"),
    ("parallel_config", "pipeline_parallel_size", "pipeline_parallel_size"),
    ("parallel_config", "data_parallel_size", "data_parallel_size"),
    ("parallel_config", "enable_expert_parallel", "expert_parallel"),
    ("parallel_config", "decode_context_parallel_size", "decode_context_parallel_size"),
    ("scheduler_config", "max_num_seqs", "max_num_seqs"),
    ("scheduler_config", "max_num_batched_tokens", "max_num_batched_tokens"),
    ("scheduler_config", "async_scheduling", "async_scheduling"),
    ("cache_config", "gpu_memory_utilization", "gpu_memory_utilization"),
    ("cache_config", "block_size", "block_size"),
    ("cache_config", "cache_dtype", "kv_cache_dtype"),
    ("compilation_config", "cudagraph_capture_sizes", "cudagraph_capture_sizes"),
    ("compilation_config", "max_cudagraph_capture_size", "max_cudagraph_capture_size"),
    ("attention_config", "backend", "attention_backend"),
)
_TYPES: dict[str, tuple[type, ...]] = {
    "model": (str,), "kv_cache_dtype": (str,), "attention_backend": (str,),
    "enforce_eager": (bool,), "expert_parallel": (bool,), "async_scheduling": (bool,),
    "gpu_memory_utilization": (float, int), "cudagraph_capture_sizes": (list,),
}  # fmt: skip
# vllm/config/compilation.py, CUDAGraphMode
_GRAPH_MODES: dict[str, int | list[int]] = {
    "NONE": 0, "PIECEWISE": 1, "FULL": 2, "FULL_DECODE_ONLY": [2, 0], "FULL_AND_PIECEWISE": [2, 1],
}  # fmt: skip
_BACKEND_NAME = re.compile(r"[A-Z0-9_]+")
# The same in the text form: `name=value` of the engine's own representation (0.8.5, and config_format=text).
_TEXT_NUMBERS = {
    "tensor_parallel_size": "tensor_parallel_size", "pipeline_parallel_size": "pipeline_parallel_size",
    "data_parallel_size": "data_parallel_size", "max_model_len": "max_seq_len",
}  # fmt: skip
_TEXT_SPECULATION = re.compile(r"speculative_config=(None|SpeculativeConfig\(([^()]*)\))")
_TEXT_FIELD = re.compile(r"(\w+)=(?:'([^']*)'|(\d+)|None)")
_TEXT_NAMES = {"num_spec_tokens": "num_speculative_tokens"}
# Parts of a speculative configuration that the engine adds for itself, or that say nothing by themselves.
_INTERNAL = frozenset(
    (
        "target_model_config",
        "target_parallel_config",
        "draft_model_config",
        "draft_parallel_config",
        "draft_load_config",
    )
)
_LARGEST = 10**9


@dataclass(slots=True)
class Told:
    """What a server says of itself; `has_speculation` tells "off" from "not said"."""

    settings: Settings
    speculation: dict[str, Any] | None = None
    has_speculation: bool = False
    engine: str = VLLM
    version: str | None = None
    inferred: dict[str, str] = field(default_factory=dict)


def vllm_told(content: Mapping[str, Any]) -> Told:
    """The settings in the answer of vLLM's /server_info, whose `vllm_config` is an object or a text."""
    config = content["vllm_config"]
    if isinstance(config, str):
        return _from_text(config)
    settings = Settings()
    if not isinstance(config, dict):
        return Told(settings)
    for part, name, key in _FIELDS:
        table = config.get(part)
        value = table.get(name) if isinstance(table, dict) else None
        if _fits(key, value):
            setattr(settings, key, value)
    settings.kv_cache_dtype = None if settings.kv_cache_dtype == "auto" else settings.kv_cache_dtype
    settings.cudagraph_mode = _graph_mode(config.get("compilation_config"))
    if settings.attention_backend and not _BACKEND_NAME.fullmatch(settings.attention_backend):
        settings.attention_backend = None  # a class path, by which newer versions print it
    return Told(settings, _speculation(config.get("speculative_config")), "speculative_config" in config)


def _graph_mode(table: Any) -> str | None:
    """The graph mode, which JSON gives as the value of its enumeration: a number, or a pair for decode and the rest."""
    value = table.get("cudagraph_mode") if isinstance(table, dict) else None
    if isinstance(value, str):
        return value.rsplit(".", 1)[-1].upper()
    return next(
        (name for name, number in _GRAPH_MODES.items() if type(value) is type(number) and value == number), None
    )


def _fits(key: str, value: Any) -> bool:
    allowed = _TYPES.get(key)
    if allowed is None:
        return isinstance(value, int) and not isinstance(value, bool) and 0 < value < _LARGEST
    if key == "gpu_memory_utilization":
        return isinstance(value, int | float) and 0 < value <= 1
    if allowed == (list,):
        return isinstance(value, list) and bool(value) and all(type(item) is int and item > 0 for item in value)
    return isinstance(value, allowed)


def _speculation(value: Any) -> dict[str, Any] | None:
    """The plain parts of a speculative configuration: what a launch could have said."""
    if not isinstance(value, dict):
        return None
    plain = {
        name: item
        for name, item in value.items()
        if item is not None and name not in _INTERNAL and not isinstance(item, dict)
    }
    return {"method": plain.pop("method", None), **plain}


def _from_text(text: str) -> Told:
    settings = Settings()
    for key, name in _TEXT_NUMBERS.items():
        match = re.search(rf"\b{name}=(\d{{1,9}})\b", text)
        if match and int(match[1]) > 0:
            setattr(settings, key, int(match[1]))
    model = re.search(r"\bmodel='([^']*)'", text)
    settings.model = model[1] if model else None
    settings.enforce_eager = True if re.search(r"\benforce_eager=True\b", text) else None
    spec = _TEXT_SPECULATION.search(text)
    if spec is None:
        return Told(settings)
    if spec[2] is None:
        return Told(settings, None, True)
    config: dict[str, Any] = {"method": None}
    for name, word, number in _TEXT_FIELD.findall(spec[2]):
        if word or number:
            config[_TEXT_NAMES.get(name, name)] = int(number) if number else word
    return Told(settings, config, True)


def sglang_told(content: Mapping[str, Any]) -> Told:
    """The settings in SGLang's server arguments, read as if they stood on a command line."""
    options: dict[str, Any] = {}
    for key, value in content.items():
        name = {"tp-size": "tensor-parallel-size", "pp-size": "pipeline-parallel-size", "dp-size": "data-parallel-size",
                "ep-size": "expert-parallel-size"}.get(key.replace("_", "-"), key.replace("_", "-"))  # fmt: skip
        if value is True:
            options[name] = True
        elif isinstance(value, str | int | float) and value is not False:
            options[name] = str(value)
    arguments = SglangArguments(options)
    settings = sglang_settings(arguments)
    version = content.get("version")
    return Told(
        settings,
        sglang_speculation(arguments, settings),
        True,
        SGLANG,
        version if isinstance(version, str) else None,
    )
