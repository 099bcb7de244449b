"""The pieces that a layer is made of before its storage format is known: linear layers and loose parameters."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from hwmodel.hf.formats import WeightFormat
from hwmodel.hf.quantization import Quantization


class Linear(NamedTuple):
    """One linear layer of a block: its name inside the layer and its size.

    A *replicated* one is held whole by every tensor-parallel rank. A *plain* one is never quantized (routers,
    recurrent gates, compressors: engines build them without a quantization). Biases stay in the plain format.
    """

    module: str
    out_features: int
    in_features: int
    replicated: bool = False
    plain: bool = False
    bias: bool = False

    @property
    def parameters(self) -> int:
        """Weights and biases, scales not counted."""
        return self.out_features * self.in_features + (self.out_features if self.bias else 0)

    def stored_bytes(self, stored: WeightFormat, plain: WeightFormat) -> float:
        """Bytes with the weights in *stored* and the bias in *plain* format."""
        bias = plain.matrix_bytes(self.out_features, 1) if self.bias else 0.0
        return stored.matrix_bytes(self.out_features, self.in_features) + bias


def parameters(linears: Iterable[Linear]) -> int:
    """Parameters of all *linears* together."""
    return sum(linear.parameters for linear in linears)


def formats(linears: Sequence[Linear], prefix: str, quantization: Quantization) -> tuple[WeightFormat, ...]:
    """The storage format of each of *linears*, whose full names start with *prefix*."""
    return tuple(
        quantization.plain if linear.plain else quantization.format_of(prefix + linear.module) for linear in linears
    )


def stored_bytes(linears: Sequence[Linear], stored: Sequence[WeightFormat], plain: WeightFormat) -> float:
    """Bytes of all *linears*, each in its own format of *stored*."""
    return sum(linear.stored_bytes(fmt, plain) for linear, fmt in zip(linears, stored, strict=True))
