"""Shapes and GPUs for what has no card: a model stored in another format, a GPU that nobody described here."""

import re
from dataclasses import replace

from hwmodel.specs import Gpu, Layer, ModelShape
from hwmodel.units import GB, GIB, MIB, TERA

BF16_BYTES = 2.0
_FAST_LINKS = ("nvlink", "nvswitch", "xgmi", "infinity fabric")
_FORMATS_OF_EXPERTS_ONLY = ("nvfp4", "mxfp4")  # checkpoints in these keep attention and dense layers larger


def stored_as(shape: ModelShape, weight_format: str, bytes_per_parameter: float) -> ModelShape:
    """The same model with its linear layers stored in another format; embedding and head stay as they are."""
    layers = tuple(_layer(layer, weight_format, bytes_per_parameter) for layer in shape.layers)
    return replace(shape, layers=layers, quantization=weight_format)


def _layer(layer: Layer, weight_format: str, size: float) -> Layer:
    moe, attention, dense = layer.moe, layer.attention, layer.dense
    if moe is not None:
        moe = replace(moe, expert_bytes=moe.expert_parameters * size, weight_format=weight_format)
    if moe is None or weight_format not in _FORMATS_OF_EXPERTS_ONLY:
        stored = attention.sharded_bytes + attention.replicated_bytes
        scale = attention.parameters * size / stored if stored else 1.0
        attention = replace(
            attention,
            sharded_bytes=attention.sharded_bytes * scale,
            replicated_bytes=attention.replicated_bytes * scale,
        )
        dense = replace(dense, weight_bytes=dense.parameters * size) if dense is not None else None
        moe = replace(moe, shared_bytes=moe.shared_parameters * size) if moe is not None else None
    return replace(layer, attention=attention, dense=dense, moe=moe)


def resized(shape: ModelShape, total: float, active: float) -> ModelShape:
    """The same model with routed experts `total` times as large and all other layers `active` times.

    Depth, width, cache and vocabulary stay: they grow more slowly than the weights, and a name does not say how.
    """
    layers = tuple(_resized_layer(layer, total, active) for layer in shape.layers)
    heads = tuple(_resized_layer(layer, total, active) for layer in shape.mtp_layers)
    return replace(shape, layers=layers, mtp_layers=heads)


def _resized_layer(layer: Layer, experts: float, others: float) -> Layer:
    attention, dense, moe = layer.attention, layer.dense, layer.moe
    attention = replace(
        attention,
        parameters=round(attention.parameters * others),
        sharded_bytes=attention.sharded_bytes * others,
        replicated_bytes=attention.replicated_bytes * others,
    )
    if dense is not None:
        dense = replace(dense, parameters=round(dense.parameters * others), weight_bytes=dense.weight_bytes * others)
    if moe is not None:
        moe = replace(
            moe,
            expert_parameters=round(moe.expert_parameters * experts),
            expert_bytes=moe.expert_bytes * experts,
            shared_parameters=round(moe.shared_parameters * others),
            shared_bytes=moe.shared_bytes * others,
        )
    return replace(layer, attention=attention, dense=dense, moe=moe)


def unknown_gpu(name: str, interconnect: str = "") -> Gpu:
    """A GPU of which nothing is known: the middle of what serves models, memory enough for anything.

    Its bandwidth is a guess (see `systems.UNKNOWN_BANDWIDTH_LOG_SD`), which the measured baseline corrects.
    `interconnect` is what the source says of its links: with NVLink or xGMI it is no PCIe card.
    """
    plain = interconnect.lower()
    fast = any(word in plain for word in _FAST_LINKS) and not re.search(r"no\W+nvlink", plain)
    return Gpu(
        name="unknown",
        title=name or "unknown GPU",
        sm_arch="10.0" if fast else "8.9",
        memory_bytes=2048 * GIB,
        memory_bandwidth_bytes_per_s=(4000 if fast else 1000) * GB,
        bf16_flop_per_s=(1000 if fast else 150) * TERA,
        fp8_flop_per_s=2000 * TERA if fast else None,
        fp4_flop_per_s=4000 * TERA if fast else None,
        l2_bytes=48 * MIB,
        num_sms=128,
        interconnect="nvswitch" if fast else "pcie-root",
        pcie_bytes_per_s=25 * GB,
        nvlink_bytes_per_s=450 * GB if fast else 0.0,
        p2p=True,
        source="no card: a guess, to be corrected by the measured baseline",
    )
