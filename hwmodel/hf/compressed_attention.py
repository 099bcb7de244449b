"""DeepSeek-V4's attention: one shared key-value head, its cache compressed by a ratio that differs by layer.

Ratio 0: a sliding window only. Ratio 4: one cache entry for 4 tokens, a sparse indexer picks among them.
Other ratios (128): one entry for that many tokens, all entries read.
Source: DeepSeek-V4 technical report and inference code; vllm-project/vllm model_executor/models/deepseek_v4.py.
"""

from dataclasses import replace

from hwmodel.hf.attention import AttentionPlan, geometry
from hwmodel.hf.fields import Fields, divides
from hwmodel.hf.pieces import Linear, parameters

_INDEXED_RATIO = 4  # layers of this ratio have an indexer and compress from overlapping windows
_WINDOW_BESIDE = (
    "compressed layers also read the last sliding_window tokens uncompressed; that window is not counted in their cache"
)


def compressed(fields: Fields, hidden: int, ratio: int) -> AttentionPlan:
    """The attention block of a layer whose entry in `compress_ratios` is *ratio*."""
    heads = fields.integer("num_attention_heads")
    dim = fields.integer("head_dim")
    q_rank = fields.integer("q_lora_rank")
    groups = fields.integer("o_groups")
    o_rank = fields.integer("o_lora_rank")
    linears = [
        Linear("attn.wq_a", q_rank, hidden, replicated=True),
        Linear("attn.wq_b", heads * dim, q_rank),
        Linear("attn.wkv", dim, hidden, replicated=True),
        Linear("attn.wo_a", groups * o_rank, divides(fields, heads * dim, groups, "heads x head_dim over o_groups")),
        Linear("attn.wo_b", hidden, groups * o_rank),
    ]
    loose = q_rank + dim + heads  # two norms, attention sinks
    spec = geometry("mla", heads, 1, (dim, dim), dim)
    if ratio <= 1:
        window = fields.integer("sliding_window", default=0, low=0)
        return AttentionPlan(tuple(linears), loose, replace(spec, window_tokens=window or None))
    fields.assume(_WINDOW_BESIDE)
    linears += _compressor("attn.compressor", hidden, dim, ratio)
    loose += dim + _positions(dim, ratio)
    spec = replace(spec, compress_ratio=ratio)
    if ratio == _INDEXED_RATIO:
        index_dim, index_heads = fields.integer("index_head_dim"), fields.integer("index_n_heads")
        linears += [
            Linear("attn.indexer.wq_b", index_heads * index_dim, q_rank, replicated=True),
            Linear("attn.indexer.weights_proj", index_heads, hidden, replicated=True, plain=True),
            *_compressor("attn.indexer.compressor", hidden, index_dim, ratio),
        ]
        loose += index_dim + _positions(index_dim, ratio)
        spec = replace(
            spec,
            selected_tokens=fields.integer("index_topk") * ratio,  # index_topk counts entries
            indexer_elements_per_token=index_dim // ratio,
        )
    return AttentionPlan(tuple(linears), loose, spec)


def hyper_connection_parameters(fields: Fields, hidden: int) -> int:
    """Parameters of the two hyper-connections of a layer (`hc_mult` residual streams), on every rank."""
    streams = fields.integer("hc_mult", default=0, low=0)
    if not streams:
        return 0
    fields.assume("hyper-connection weights (FP32 in the checkpoint) are counted among the norms")
    mixes = (2 + streams) * streams
    linear = Linear("hc", mixes, streams * hidden, bias=True)
    return 2 * parameters([linear])


def _windows(ratio: int) -> int:
    return 2 if ratio == _INDEXED_RATIO else 1  # overlapping windows: each entry is made from two


def _compressor(module: str, hidden: int, dim: int, ratio: int) -> list[Linear]:
    width = _windows(ratio) * dim
    return [
        Linear(f"{module}.wkv", width, hidden, replicated=True, plain=True),
        Linear(f"{module}.wgate", width, hidden, replicated=True, plain=True),
    ]


def _positions(dim: int, ratio: int) -> int:
    return ratio * _windows(ratio) * dim
