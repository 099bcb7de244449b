"""Which attention and which feed-forward block each layer has, and the layers of a model with equal ones merged."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from hwmodel.hf.attention import AttentionPlan, attention, grouped_query, latent
from hwmodel.hf.compressed_attention import compressed, hyper_connection_parameters
from hwmodel.hf.feedforward import FfnPlan, dense_plan, feed_forward, moe_plan, num_experts
from hwmodel.hf.fields import MAX_LAYERS, Fields, shown
from hwmodel.hf.formats import WeightFormat
from hwmodel.hf.linear_attention import gated_delta_net
from hwmodel.hf.pieces import formats
from hwmodel.hf.quantization import Quantization
from hwmodel.specs import Layer

_NORMS_PER_LAYER = 2
_LLAMA4_GLOBAL_EVERY = 4  # Llama4TextConfig: no_rope_layer_interval
_GPT_OSS_FULL_EVERY = 2  # GptOssConfig: layers alternate, sliding first, when layer_types is absent
_FULL_NAMES = {"full_attention", "attention", "global", "deepseek_sparse_attention"}
_WINDOW_NAMES = {"sliding_attention", "chunked_attention", "local"}

_Formats = tuple[WeightFormat, ...]


class LayerPlan(NamedTuple):
    """What one layer consists of: two blocks by *kind* (equal kinds are equal blocks) and norms."""

    attention_kind: str
    ffn_kind: str


class LayerReader:
    """Reads the layers of one configuration; blocks of a kind are built once."""

    def __init__(self, fields: Fields, hidden: int, plain: WeightFormat) -> None:
        """Reads *fields* of a model of *hidden* width that is stored in *plain* where it is not quantized."""
        self.fields = fields
        self.hidden = hidden
        self.plain = plain
        self.count = fields.integer("num_hidden_layers", "n_layer", "num_layers", high=MAX_LAYERS)
        self._attention: dict[str, AttentionPlan] = {}
        self._ffn: dict[str, FfnPlan] = {}

    def layers(self, quantization: Quantization) -> tuple[Layer, ...]:
        """All layers in order of first appearance, those of equal blocks and formats merged."""
        found: dict[tuple[LayerPlan, _Formats, _Formats], int] = {}
        attentions, ffns = attention_kinds(self.fields, self.count), ffn_kinds(self.fields, self.count)
        for index in range(self.count):
            plan = LayerPlan(attentions[index], ffns[index])
            key = (plan, *self._formats(plan, f"model.layers.{index}.", quantization))
            found[key] = found.get(key, 0) + 1
        return tuple(self._layer(count, *key) for key, count in found.items())

    def one(self, plan: LayerPlan, prefix: str, quantization: Quantization) -> Layer:
        """A single layer of the kinds in *plan* whose modules start with *prefix*."""
        return self._layer(1, plan, *self._formats(plan, prefix, quantization))

    def _formats(self, plan: LayerPlan, prefix: str, quantization: Quantization) -> tuple[_Formats, _Formats]:
        attention_linears = self._attention_plan(plan.attention_kind).linears
        ffn_linears = self._ffn_plan(plan.ffn_kind).linears
        return formats(attention_linears, prefix, quantization), formats(ffn_linears, prefix, quantization)

    def _layer(self, count: int, plan: LayerPlan, stored: _Formats, ffn_stored: _Formats) -> Layer:
        dense, moe = feed_forward(self._ffn_plan(plan.ffn_kind), ffn_stored, self.plain)
        return Layer(
            count=count,
            attention=attention(self._attention_plan(plan.attention_kind), stored, self.plain),
            dense=dense,
            moe=moe,
            norm_parameters=_NORMS_PER_LAYER * self.hidden + hyper_connection_parameters(self.fields, self.hidden),
        )

    def _attention_plan(self, kind: str) -> AttentionPlan:
        if kind not in self._attention:
            self._attention[kind] = _build_attention(self.fields, self.hidden, kind, self.plain)
        return self._attention[kind]

    def _ffn_plan(self, kind: str) -> FfnPlan:
        if kind not in self._ffn:
            plans: dict[str, Callable[[], FfnPlan]] = {
                "dense": lambda: dense_plan(self.fields, self.hidden),
                "moe": lambda: moe_plan(self.fields, self.hidden),
                "hash": lambda: moe_plan(self.fields, self.hidden, hash_routed=True),
            }
            self._ffn[kind] = plans[kind]()
        return self._ffn[kind]


def _build_attention(fields: Fields, hidden: int, kind: str, plain: WeightFormat) -> AttentionPlan:
    name, _, number = kind.partition(":")
    if name == "linear":
        return gated_delta_net(fields, hidden, plain)
    if name == "compressed":
        return compressed(fields, hidden, int(number))
    if name.startswith("latent"):
        return latent(fields, hidden, with_indexer=name == "latent-indexed")
    plan = grouped_query(fields, hidden)
    return plan._replace(spec=replace(plan.spec, window_tokens=int(number))) if number else plan


def attention_kinds(fields: Fields, count: int) -> list[str]:
    """The attention kind of each of *count* layers: full, window:N, linear, latent, latent-indexed, compressed:N."""
    if fields.has("compress_ratios"):
        ratios = fields.integers("compress_ratios")
        fields.per_layer(ratios, "compress_ratios", count)
        return [f"compressed:{ratio}" for ratio in ratios[:count]]
    if fields.has("kv_lora_rank"):
        return ["latent-indexed" if own else "latent" for own in _own_indexers(fields, count)]
    names = fields.texts("layer_types", "layers_block_type")
    fields.per_layer(names, "layer_types", count)
    if names:
        return [_named_kind(fields, name) for name in names[:count]]
    if fields.has("linear_num_value_heads"):
        every = fields.integer("full_attention_interval", high=MAX_LAYERS)
        return ["full" if (i + 1) % every == 0 else "linear" for i in range(count)]
    return _window_kinds(fields, count)


def _own_indexers(fields: Fields, count: int) -> list[bool]:
    """Which layers have an indexer of their own; the others use the choice of the layer before (GLM-5.2)."""
    types = fields.texts("indexer_types")
    fields.per_layer(types, "indexer_types", count)
    if types:
        return [name != "shared" for name in types[:count]]
    every = fields.integer("index_topk_freq", default=1, high=MAX_LAYERS)
    offset = fields.integer("index_skip_topk_offset", default=0, low=0, high=MAX_LAYERS)
    return [max(i - offset + 1, 0) % every == 0 for i in range(count)]


def _named_kind(fields: Fields, name: str) -> str:
    if name in _FULL_NAMES:
        return "full"
    if name in _WINDOW_NAMES:
        return f"window:{_window(fields)}"
    if name == "linear_attention":
        return "linear"
    raise fields.fail(
        f"layer_types names {shown(name)}; allowed: {', '.join(sorted(_FULL_NAMES | _WINDOW_NAMES))}, linear_attention"
    )


def _window(fields: Fields) -> int:
    if not fields.has("attention_chunk_size"):
        return fields.integer("sliding_window")
    fields.assume("chunked attention is read as a sliding window of its chunk size (on average half is filled)")
    return fields.integer("attention_chunk_size")


def _window_kinds(fields: Fields, count: int) -> list[str]:
    family = fields.text("model_type")
    if fields.has("attention_chunk_size"):
        every = fields.integer("no_rope_layer_interval", default=_LLAMA4_GLOBAL_EVERY, high=MAX_LAYERS)
    elif not fields.has("sliding_window") or not fields.flag("use_sliding_window", default=True):
        return ["full"] * count
    elif fields.has("sliding_window_pattern"):
        every = fields.integer("sliding_window_pattern", high=MAX_LAYERS)
    elif family == "gpt_oss":
        every = _GPT_OSS_FULL_EVERY
    else:
        fields.assume("sliding_window without layer_types: every layer has the window")
        return [f"window:{_window(fields)}"] * count
    window = f"window:{_window(fields)}"
    return ["full" if (i + 1) % every == 0 else window for i in range(count)]


def ffn_kinds(fields: Fields, count: int) -> list[str]:
    """The feed-forward kind of each of *count* layers: dense, moe or hash (experts chosen by token id)."""
    if not num_experts(fields):
        return ["dense"] * count
    names = fields.texts("mlp_layer_types")
    fields.per_layer(names, "mlp_layer_types", count)
    if names:
        return ["dense" if name == "dense" else "moe" for name in names[:count]]
    hashed = fields.integer("num_hash_layers", default=0, low=0)
    sparse = _moe_layers(fields, count)
    return ["dense" if not moe else "hash" if i < hashed else "moe" for i, moe in enumerate(sparse)]


def _moe_layers(fields: Fields, count: int) -> list[bool]:
    if isinstance(fields.table.get("moe_layers"), list):
        chosen = set(fields.integers("moe_layers"))
        return [i in chosen for i in range(count)]
    if isinstance(fields.table.get("moe_layer_freq"), list):
        flags = fields.integers("moe_layer_freq", high=1)
        fields.per_layer(flags, "moe_layer_freq", count)
        return [bool(flag) for flag in flags[:count]]
    dense_first = fields.integer("first_k_dense_replace", "moe_layer_start_index", default=0, low=0, high=MAX_LAYERS)
    # Qwen's decoder_sparse_step and Llama 4's interleave_moe_layer_step count from the end of each interval.
    step = fields.integer("decoder_sparse_step", "interleave_moe_layer_step", default=1, high=MAX_LAYERS)
    every = fields.integer("moe_layer_freq", "moe_layer_interval", default=1, high=MAX_LAYERS)
    dense_only: Sequence[int] = fields.integers("mlp_only_layers")
    return [i >= dense_first and (i + 1) % step == 0 and i % every == 0 and i not in dense_only for i in range(count)]
