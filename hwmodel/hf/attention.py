"""Attention blocks as a configuration describes them: grouped-query, latent (MLA) and the sparse indexer."""

from dataclasses import replace
from typing import NamedTuple

from hwmodel.hf.fields import Fields, divides
from hwmodel.hf.formats import WeightFormat
from hwmodel.hf.pieces import Linear, parameters, stored_bytes
from hwmodel.specs import Attention

_BIASED_QKV = {"qwen2", "qwen2_moe", "qwen2_vl_text", "qwen2_5_vl_text"}  # no key says it: their code always has it
_BIASED_OUT = {"llama", "gpt_oss"}  # attention_bias reaches o_proj too; elsewhere only q, k and v
_GATED_QUERY = {"qwen3_next"}  # q_proj also makes the output gate; Qwen3.5 says so by attn_output_gate
_NORMED_QUERY = {"qwen3", "qwen3_moe", "qwen3_next", "qwen3_5_moe_text", "qwen3_5_text", "qwen3_vl_moe_text"}
_QUERY_AND_GATE = 2


class AttentionPlan(NamedTuple):
    """One attention block before its formats are known.

    `loose_parameters` (norms, sinks, convolutions) stay in the plain format on every rank; `spec` holds the
    geometry, its parameters and bytes are filled in by `attention`.
    """

    linears: tuple[Linear, ...]
    loose_parameters: int
    spec: Attention


def geometry(kind: str, heads: int, kv_heads: int, head_dims: tuple[int, int], cache_elements: int) -> Attention:
    """An `Attention` of this shape without weights; *head_dims* are those of queries/keys and of values."""
    return Attention(
        kind=kind,
        parameters=0,
        sharded_bytes=0.0,
        replicated_bytes=0.0,
        num_heads=heads,
        num_kv_heads=kv_heads,
        qk_head_dim=head_dims[0],
        v_head_dim=head_dims[1],
        cache_elements_per_token=cache_elements,
    )


def attention(plan: AttentionPlan, stored: tuple[WeightFormat, ...], plain: WeightFormat) -> Attention:
    """The block of *plan* with its linear layers in the formats *stored*."""
    pairs = list(zip(plan.linears, stored, strict=True))
    whole = [(linear, fmt) for linear, fmt in pairs if linear.replicated]
    split = [(linear, fmt) for linear, fmt in pairs if not linear.replicated]
    loose_bytes = plain.matrix_bytes(plan.loose_parameters, 1)
    return replace(
        plan.spec,
        parameters=parameters(plan.linears) + plan.loose_parameters,
        sharded_bytes=stored_bytes([a for a, _ in split], [f for _, f in split], plain),
        replicated_bytes=stored_bytes([a for a, _ in whole], [f for _, f in whole], plain) + loose_bytes,
    )


def grouped_query(fields: Fields, hidden: int) -> AttentionPlan:
    """Multi-head or grouped-query attention: q, k, v and o projections."""
    heads = fields.integer("num_attention_heads", "n_head", "num_heads")
    kv_heads = fields.integer(
        "num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num", default=heads
    )
    divides(fields, heads, kv_heads, "num_attention_heads over num_key_value_heads")
    if fields.has("head_dim", "kv_channels", "attention_head_dim"):
        head_dim = fields.integer("head_dim", "kv_channels", "attention_head_dim")
    else:
        head_dim = divides(fields, hidden, heads, "hidden_size over num_attention_heads (there is no head_dim)")
    v_dim = fields.integer("v_head_dim", default=head_dim)
    family = fields.text("model_type")
    bias = fields.flag("attention_bias", "qkv_bias", default=family in _BIASED_QKV)
    gated = fields.flag("attn_output_gate", default=family in _GATED_QUERY)
    linears = (
        Linear("self_attn.q_proj", heads * head_dim * (_QUERY_AND_GATE if gated else 1), hidden, bias=bias),
        Linear("self_attn.k_proj", kv_heads * head_dim, hidden, bias=bias),
        Linear("self_attn.v_proj", kv_heads * v_dim, hidden, bias=bias),
        Linear("self_attn.o_proj", hidden, heads * v_dim, bias=bias and family in _BIASED_OUT),
    )
    loose = heads if family == "gpt_oss" else 0  # attention sinks
    if fields.text("qk_norm_type") == "per_layer":
        loose += (heads + kv_heads) * head_dim
    elif fields.flag("use_qk_norm", "qk_norm", default=family in _NORMED_QUERY) and family != "llama4_text":
        loose += head_dim + head_dim  # Llama 4 normalises without weights
    spec = geometry("gqa", heads, kv_heads, (head_dim, v_dim), kv_heads * (head_dim + v_dim))
    return AttentionPlan(linears, loose, spec)


def latent(fields: Fields, hidden: int, with_indexer: bool) -> AttentionPlan:
    """DeepSeek's multi-head latent attention: a compressed query and one latent that all heads share.

    Every rank holds the down-projections q_a and kv_a whole; the up-projections and the output are split by head.
    Source: DeepSeek-V2, arXiv 2405.04434, section 2.1; replication as in vLLM's and SGLang's deepseek_v2.
    """
    heads = fields.integer("num_attention_heads")
    kv_rank = fields.integer("kv_lora_rank")
    rope = fields.integer("qk_rope_head_dim")
    nope = fields.integer("qk_nope_head_dim")
    v_dim = fields.integer("v_head_dim")
    q_rank = fields.integer("q_lora_rank", default=0)
    query = heads * (nope + rope)
    if q_rank:
        linears = [
            Linear("self_attn.q_a_proj", q_rank, hidden, replicated=True),
            Linear("self_attn.q_b_proj", query, q_rank),
        ]
    else:
        linears = [Linear("self_attn.q_proj", query, hidden)]
    linears += [
        Linear("self_attn.kv_a_proj_with_mqa", kv_rank + rope, hidden, replicated=True),
        Linear("self_attn.kv_b_proj", heads * (nope + v_dim), kv_rank),
        Linear("self_attn.o_proj", hidden, heads * v_dim),
    ]
    loose = q_rank + kv_rank
    # One latent for all heads: the cache does not split over ranks.
    spec = geometry("mla", heads, 1, (nope + rope, v_dim), kv_rank + rope)
    if fields.has("index_topk"):
        spec = replace(spec, selected_tokens=fields.integer("index_topk"))
        if with_indexer:
            index_dim = fields.integer("index_head_dim")
            spec = replace(spec, indexer_elements_per_token=index_dim)
            linears += indexer(fields, hidden, q_rank or hidden)
            loose += index_dim + index_dim  # the key's LayerNorm has weight and bias
    return AttentionPlan(tuple(linears), loose, spec)


def indexer(fields: Fields, hidden: int, query_inputs: int) -> list[Linear]:
    """The lightning indexer of sparse attention: its queries, one key a token, one weight a head, on every rank.

    Source: DeepSeek-V3.2, inference code (Indexer); the head weights are kept unquantized.
    """
    heads = fields.integer("index_n_heads")
    dim = fields.integer("index_head_dim")
    return [
        Linear("self_attn.indexer.wq_b", heads * dim, query_inputs, replicated=True),
        Linear("self_attn.indexer.wk", dim, hidden, replicated=True),
        Linear("self_attn.indexer.weights_proj", heads, hidden, replicated=True, plain=True),
    ]
