"""From a Hugging Face configuration to a `ModelShape`: the way through the other modules, top to bottom."""

from collections.abc import Mapping
from typing import Any

from hwmodel.hf.feedforward import num_experts
from hwmodel.hf.fields import MAX_TOKENS, Fields, shown
from hwmodel.hf.formats import BF16, DTYPES, MXFP4, WeightFormat
from hwmodel.hf.layers import LayerReader
from hwmodel.hf.mtp import read_mtp
from hwmodel.hf.quantization import Quantization, read_quantization
from hwmodel.hf.vision import vision_parameters
from hwmodel.specs import ModelShape

_NESTED = ("text_config", "llm_config", "language_config")  # where multimodal models keep the language model
_TOP_KEYS = (
    "quantization_config",
    "compression_config",
    "vision_config",
    "tie_word_embeddings",
    "torch_dtype",
    "dtype",
)
_EXPERT_DTYPES = {"fp4": MXFP4}
# Families whose layers are read by rules made for them; any other is read by its keys alone, which is noted.
_KNOWN_FAMILIES = frozenset(
    (
        *("llama", "llama4_text", "mistral", "mixtral", "gpt_oss", "minimax_m2"),
        *("qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "qwen3_next"),
        *("qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"),
        *("deepseek_v2", "deepseek_v3", "deepseek_v32", "deepseek_v4", "kimi_k2"),
        *("glm4_moe", "glm4_moe_lite", "glm_moe_dsa"),
    )
)


def shape_from_config(config: Mapping[str, Any], name: str, source: str = "") -> ModelShape:
    """The shape of the model that *config*, the content of a Hugging Face `config.json`, describes.

    Keys are read in all their usual spellings; what had to be assumed stands in `assumptions`. A configuration
    that cannot be read raises `InputError` in one line that names the key.
    """
    if not isinstance(config, Mapping):
        raise Fields({}, name).fail(f"the configuration is {shown(config)}; allowed: a table of keys")
    fields = _language_fields(config, name)
    plain = _plain_format(fields)
    quantization = _quantization(fields, plain)
    hidden = fields.integer("hidden_size", "n_embd", "d_model")
    reader = LayerReader(fields, hidden, plain)
    _note_family(fields)
    layers = reader.layers(quantization)
    mtp = read_mtp(fields, reader, quantization)
    vocab = fields.integer("vocab_size", high=MAX_TOKENS)
    tied = fields.flag("tie_word_embeddings")
    head_rows = vocab if tied else fields.integer("draft_vocab_size", default=vocab, high=MAX_TOKENS)
    table_bytes = plain.matrix_bytes(vocab, hidden)
    head_bytes = table_bytes if tied else quantization.format_of("lm_head").matrix_bytes(head_rows, hidden)
    vision = vision_parameters(fields)
    return ModelShape(
        name=name,
        architecture=fields.text("model_type", default="unknown"),
        hidden_size=hidden,
        num_hidden_layers=reader.count,
        vocab_size=vocab,
        max_position_embeddings=_max_positions(fields),
        layers=layers,
        embedding_parameters=vocab * hidden,
        embedding_bytes=table_bytes,
        lm_head_parameters=0 if tied else head_rows * hidden,
        lm_head_bytes=0.0 if tied else head_bytes,
        lm_head_read_bytes=head_bytes,
        quantization=quantization.label,
        mtp_layers=mtp.layers,
        mtp_extra_parameters=mtp.extra_parameters,
        mtp_extra_bytes=mtp.extra_bytes,
        vision_parameters=vision,
        vision_bytes=BF16.matrix_bytes(vision, 1),
        assumptions=tuple(fields.assumptions),
        source=source,
    )


def _language_fields(config: Mapping[str, Any], name: str) -> Fields:
    """The keys of the language model: a nested table where there is one, some keys of the outer table added."""
    outer = Fields(config, name)
    for key in _NESTED:
        inner = outer.mapping(key)
        if inner:
            added = {top: config[top] for top in _TOP_KEYS if config.get(top) is not None}
            kept = {k: v for k, v in inner.items() if v is not None}
            return Fields({"model_type": config.get("model_type"), **added, **kept}, name, outer.assumptions)
    return outer


def _plain_format(fields: Fields) -> WeightFormat:
    dtype = fields.text("dtype", "torch_dtype").removeprefix("torch.")
    if dtype in DTYPES:
        return DTYPES[dtype]
    if dtype:
        fields.assume(f"dtype {shown(dtype)} counts as bfloat16")
    elif fields.text("model_type") not in {"gpt_oss", "minimax_m2"}:
        fields.assume("no dtype: what is not quantized counts as bfloat16")
    return BF16


def _quantization(fields: Fields, plain: WeightFormat) -> Quantization:
    quantization = read_quantization(fields, plain, fields.mapping("quantization_config", "compression_config"))
    dtype = fields.text("expert_dtype")
    if not dtype:
        return quantization
    if dtype not in _EXPERT_DTYPES:
        fields.assume(f"expert_dtype {shown(dtype)}: routed experts are stored as the rest of the quantization says")
        return quantization
    fields.assume("expert_dtype fp4 is read as MXFP4: groups of 32 with an 8-bit scale")
    return quantization._replace(experts=_EXPERT_DTYPES[dtype])


def _max_positions(fields: Fields) -> int:
    names = ("max_position_embeddings", "max_sequence_length", "seq_length", "n_positions", "model_max_length")
    if not fields.has(*names):
        fields.assume("no max_position_embeddings: 32768 assumed")
    return fields.integer(*names, default=32_768, high=MAX_TOKENS)


def _note_family(fields: Fields) -> None:
    family = fields.text("model_type")
    if family in _KNOWN_FAMILIES:
        return
    kind = "latent (MLA) attention" if fields.has("kv_lora_rank") else "grouped-query attention"
    blocks = "mixture of experts" if num_experts(fields) else "dense gated feed-forward blocks"
    fields.assume(
        f"architecture {shown(family or 'unknown')} read by its keys alone: {kind}, {blocks}, two norms a layer"
    )
