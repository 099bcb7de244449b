"""Multi-token-prediction layers of a checkpoint: what `method: mtp` runs as a drafter."""

from typing import NamedTuple

from hwmodel.hf.feedforward import num_experts
from hwmodel.hf.fields import MAX_LAYERS, Fields
from hwmodel.hf.layers import LayerPlan, LayerReader, attention_kinds, ffn_kinds
from hwmodel.hf.pieces import Linear, formats, parameters, stored_bytes
from hwmodel.hf.quantization import Quantization
from hwmodel.specs import Layer

_OWN_NAMES = ("qwen3_next", "qwen3_5", "qwen3_5_moe")  # these name the layers mtp.layers.N, others model.layers.L+N
# Families whose configuration names modules that no published checkpoint holds (MiniMax-M2 issue 47, M2.5 issue 8, M2.7
# issue 16, M3 issue 13): nothing there can draft.
_NOT_PUBLISHED = ("minimax_m2", "minimax_m3")
_NORMS = 3  # of the embedding, of the hidden state, before the head


class Mtp(NamedTuple):
    """The layers, and the parameters and bytes of their projections (2 hidden -> hidden) and norms."""

    layers: tuple[Layer, ...] = ()
    extra_parameters: int = 0
    extra_bytes: float = 0.0


def read_mtp(fields: Fields, reader: LayerReader, quantization: Quantization) -> Mtp:
    """The multi-token-prediction layers that the configuration announces, each of the model's own kind.

    Source: DeepSeek-V3, arXiv 2412.19437, section 2.2. Embedding and head are those of the model.
    """
    count = _count(fields)
    if not count:
        return Mtp()
    if fields.text("model_type").startswith(_NOT_PUBLISHED):
        fields.assume(
            "the MTP modules of the configuration are not in the published weights: there are none to draft with"
        )
        return Mtp()
    fields.assume("MTP layers use the model's own embedding and LM head, and are quantized like it unless ignored")
    layers = []
    extra_parameters, extra_bytes = 0, 0.0
    own = fields.text("model_type").startswith(_OWN_NAMES)
    for index in range(count):
        prefix = f"mtp.layers.{index}." if own else f"model.layers.{reader.count + index}."
        layers.append(reader.one(_plan(fields, reader, index), prefix, quantization))
        linear = (Linear("eh_proj", reader.hidden, 2 * reader.hidden),)
        stored = formats(linear, "mtp." if own else prefix, quantization)
        extra_parameters += parameters(linear) + _NORMS * reader.hidden
        extra_bytes += stored_bytes(linear, stored, reader.plain) + reader.plain.matrix_bytes(_NORMS, reader.hidden)
    return Mtp(tuple(layers), extra_parameters, extra_bytes)


def _count(fields: Fields) -> int:
    if fields.has("use_mtp") and not fields.flag("use_mtp"):
        return 0
    modules = fields.integer(
        "num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules", default=0, low=0, high=MAX_LAYERS
    )
    each = fields.integer("mtp_transformer_layers", default=1, high=MAX_LAYERS)
    return modules * each if modules * each <= MAX_LAYERS else 0


def _plan(fields: Fields, reader: LayerReader, index: int) -> LayerPlan:
    ratios = fields.integers("compress_ratios")
    if len(ratios) > reader.count + index:  # the list goes on into the MTP layers
        kind = f"compressed:{ratios[reader.count + index]}"
    elif ratios:
        kind = "compressed:0"
    else:
        kind = _last(attention_kinds(fields, reader.count))
    ffn = "moe" if num_experts(fields) else _last(ffn_kinds(fields, reader.count))
    return LayerPlan(kind, ffn)


def _last(kinds: list[str]) -> str:
    """The kind of the last layer that attends to the whole context; MTP layers are full layers."""
    if "latent-indexed" in kinds:
        return "latent-indexed"
    return "full" if "full" in kinds else kinds[-1]
