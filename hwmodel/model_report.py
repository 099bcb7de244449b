"""What `model MODEL --json` says of a model: parameters, bytes and cache, by component."""

from collections.abc import Iterable, Mapping
from typing import Any

from hwmodel.specs import Layer, ModelShape

_BF16_BYTES = 2
_FP32_BYTES = 4
_OUTSIDE_TOTAL = ("mtp", "vision")  # listed, but no part of what a model is said to have

Parts = dict[str, float]


def model_report(shape: ModelShape, tensor_parallel_size: int = 1) -> dict[str, Any]:
    """Parameters, weight bytes and cache bytes of *shape*, JSON-ready; keys are the contract of `model --json`.

    `parameters.active` counts what one token is multiplied with: the chosen experts, shared experts, attention,
    dense layers, routers, norms and LM head (a tied head too), not the input embedding. `kv_bytes_per_token` is a
    BF16 cache of the whole model, all KV heads once; layers with a window count as long as it is not full.
    `per_rank` is what one of *tensor_parallel_size* ranks holds. The final norm is left out everywhere.
    """
    counts, stored = _parameters(shape), _bytes(shape)
    windowless = [layer for layer in shape.layers if layer.attention.window_tokens is None]
    return {
        "model": shape.name,
        "architecture": shape.architecture,
        "quantization": shape.quantization,
        "num_hidden_layers": shape.num_hidden_layers,
        "hidden_size": shape.hidden_size,
        "parameters": {
            "total": round(_total(counts)),
            "active": round(_active(shape, counts)),
            "by_component": {name: round(value) for name, value in counts.items()},
        },
        "weight_bytes": {"total": _total(stored), "by_component": stored},
        "kv_bytes_per_token": kv_bytes_per_token(shape.layers),
        "kv_bytes_per_token_beyond_windows": kv_bytes_per_token(windowless),
        "indexer_cache_elements_per_token": sum(x.count * x.attention.indexer_elements_per_token for x in shape.layers),
        "state_bytes_per_sequence": sum(x.count * x.attention.state_bytes_per_sequence for x in shape.layers),
        "per_rank": {
            "tensor_parallel_size": tensor_parallel_size,
            "weight_bytes": rank_weight_bytes(shape, tensor_parallel_size),
        },
        "assumptions": list(shape.assumptions),
        "source": shape.source,
    }


def kv_bytes_per_token(layers: Iterable[Layer], element_bytes: float = _BF16_BYTES) -> float:
    """Cache bytes of one token in all of *layers*, every KV head once; indexer keys are not in it."""
    return sum(
        layer.count * layer.attention.cache_elements_per_token * element_bytes / layer.attention.compress_ratio
        for layer in layers
    )


def rank_weight_bytes(shape: ModelShape, tensor_parallel_size: int) -> float:
    """Weight bytes that one of *tensor_parallel_size* ranks holds, without MTP layers and vision tower.

    Everything is split but what attention replicates, routers and norms.
    """
    parts = _bytes(shape)
    replicated = sum(layer.count * layer.attention.replicated_bytes for layer in shape.layers)
    whole = replicated + parts.get("router", 0.0) + parts["norms"]
    return whole + (_total(parts) - whole) / tensor_parallel_size


def _total(parts: Mapping[str, float]) -> float:
    return sum(value for name, value in parts.items() if name not in _OUTSIDE_TOTAL)


def _active(shape: ModelShape, counts: Mapping[str, float]) -> float:
    idle = sum(
        layer.count * (layer.moe.num_experts - layer.moe.num_experts_per_tok) * layer.moe.expert_parameters
        for layer in shape.layers
        if layer.moe
    )
    tied_head = 0 if shape.lm_head_parameters else shape.embedding_parameters
    return _total(counts) - counts["embedding"] - idle + tied_head


def _parameters(shape: ModelShape) -> Parts:
    parts: Parts = {"attention": 0, "norms": 0}
    for layer in shape.layers:
        _add(parts, "attention", layer.count * layer.attention.parameters)
        _add(parts, "norms", layer.count * layer.norm_parameters)
        for name, value in _ffn_parameters(layer).items():
            _add(parts, name, layer.count * value)
    parts["embedding"] = shape.embedding_parameters
    parts["lm_head"] = shape.lm_head_parameters
    mtp = sum(x.attention.parameters + x.norm_parameters + sum(_ffn_parameters(x).values()) for x in shape.mtp_layers)
    return {**parts, **_present(mtp=mtp + shape.mtp_extra_parameters, vision=shape.vision_parameters)}


def _bytes(shape: ModelShape) -> Parts:
    norm_bytes = _FP32_BYTES if shape.quantization == "fp32" else _BF16_BYTES
    parts: Parts = {"attention": 0.0, "norms": 0.0}
    for layer in shape.layers:
        _add(parts, "attention", layer.count * _attention_bytes(layer))
        _add(parts, "norms", layer.count * layer.norm_parameters * norm_bytes)
        for name, value in _ffn_bytes(layer).items():
            _add(parts, name, layer.count * value)
    parts["embedding"] = shape.embedding_bytes
    parts["lm_head"] = shape.lm_head_bytes
    mtp = sum(
        _attention_bytes(x) + x.norm_parameters * norm_bytes + sum(_ffn_bytes(x).values()) for x in shape.mtp_layers
    )
    return {**parts, **_present(mtp=mtp + shape.mtp_extra_bytes, vision=shape.vision_bytes)}


def _attention_bytes(layer: Layer) -> float:
    return layer.attention.sharded_bytes + layer.attention.replicated_bytes


def _ffn_parameters(layer: Layer) -> Parts:
    parts: Parts = {}
    if layer.dense:
        parts["dense_mlp"] = layer.dense.parameters
    if layer.moe:
        parts["routed_experts"] = layer.moe.num_experts * layer.moe.expert_parameters
        parts["shared_experts"] = layer.moe.shared_parameters
        parts["router"] = layer.moe.router_parameters
    return parts


def _ffn_bytes(layer: Layer) -> Parts:
    parts: Parts = {}
    if layer.dense:
        parts["dense_mlp"] = layer.dense.weight_bytes
    if layer.moe:
        parts["routed_experts"] = layer.moe.num_experts * layer.moe.expert_bytes
        parts["shared_experts"] = layer.moe.shared_bytes
        parts["router"] = layer.moe.router_bytes
    return parts


def _add(parts: Parts, name: str, value: float) -> None:
    parts[name] = parts.get(name, 0) + value


def _present(**parts: float) -> Parts:
    return {name: value for name, value in parts.items() if value}
