"""How many bytes one weight matrix takes in a storage format, scales included."""

import math
from typing import NamedTuple

from hwmodel.units import BITS_PER_BYTE

_FP32_BITS = 32
_HALF_BITS = 16
_BYTE_BITS = 8


class WeightFormat(NamedTuple):
    """Storage of a matrix: *bits* a value, and scales per group, per block, per output channel or none.

    `group_size` runs along the input dimension; each group has a scale of `scale_bits` and, where asymmetric, a
    zero point of `zero_bits`. `block` is (outputs, inputs) that share one scale.
    """

    name: str
    bits: float
    group_size: int = 0
    scale_bits: float = 0.0
    zero_bits: float = 0.0
    block: tuple[int, int] | None = None
    per_channel: bool = False

    def matrix_bytes(self, out_features: int, in_features: int) -> float:
        """Bytes of an *out_features* x *in_features* matrix with its scales.

        >>> INT4_G32.matrix_bytes(2048, 7168) / (2048 * 7168)
        0.5625
        """
        values = out_features * in_features * self.bits
        scales = 0.0
        if self.group_size:
            scales = out_features * math.ceil(in_features / self.group_size) * (self.scale_bits + self.zero_bits)
        elif self.block:
            scales = math.ceil(out_features / self.block[0]) * math.ceil(in_features / self.block[1]) * self.scale_bits
        elif self.per_channel:
            scales = out_features * (self.scale_bits + self.zero_bits)
        return (values + scales) / BITS_PER_BYTE


BF16 = WeightFormat("bf16", _HALF_BITS)
FP16 = WeightFormat("fp16", _HALF_BITS)
FP32 = WeightFormat("fp32", _FP32_BITS)
# Plain element types a checkpoint may be stored in, by their torch names.
DTYPES = {"bfloat16": BF16, "float16": FP16, "half": FP16, "float32": FP32, "float": FP32}

# OCP Microscaling Formats specification v1.0: MXFP4 shares one 8-bit exponent among 32 values.
MXFP4 = WeightFormat("mxfp4", 4, group_size=32, scale_bits=_BYTE_BITS)
MXFP8 = WeightFormat("fp8", _BYTE_BITS, group_size=32, scale_bits=_BYTE_BITS)
# NVIDIA, "Introducing NVFP4": one FP8 scale for 16 values (and one FP32 scale for a tensor, too small to count).
NVFP4 = WeightFormat("nvfp4", 4, group_size=16, scale_bits=_BYTE_BITS)
# The format of Kimi-K2.5's routed experts (its config.json): groups of 32, symmetric, BF16 scales.
INT4_G32 = WeightFormat("int4", 4, group_size=32, scale_bits=_HALF_BITS)
FP8_TENSOR = WeightFormat("fp8", _BYTE_BITS)
FP8_CHANNEL = WeightFormat("fp8", _BYTE_BITS, scale_bits=_FP32_BITS, per_channel=True)


def fp8_block(outputs: int, inputs: int, exponent_scales: bool = False) -> WeightFormat:
    """FP8 with one scale for a block of *outputs* x *inputs*: FP32, or an 8-bit exponent."""
    return WeightFormat(
        "fp8", _BYTE_BITS, block=(outputs, inputs), scale_bits=_BYTE_BITS if exponent_scales else _FP32_BITS
    )


def integer_format(bits: int, group_size: int, zero_points: bool) -> WeightFormat:
    """INT*bits* with 16-bit scales per group of *group_size* inputs; 0 or less means one per output channel."""
    return WeightFormat(
        f"int{bits}",
        bits,
        group_size=max(group_size, 0),
        scale_bits=_HALF_BITS,
        zero_bits=bits if zero_points else 0,
        per_channel=group_size <= 0,
    )
