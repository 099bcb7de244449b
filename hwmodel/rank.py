"""What one rank holds and does for each token: a model's shape divided by a parallel layout."""

from collections.abc import Sequence

from hwmodel.parameters import fitted_values
from hwmodel.records import dataclass
from hwmodel.specs import Attention, Layer, ModelShape, Moe

_ATTENTION_COLLECTIVES = 1  # after the output projection
_MLP_COLLECTIVES = 1  # after the down projection or the expert sum


@dataclass(frozen=True, slots=True)
class Parallelism:
    """How one model instance is spread: sizes of the tensor, pipeline, data and decode-context groups."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    expert_parallel: bool = False
    decode_context: int = 1

    @property
    def num_gpus(self) -> int:
        """GPUs of one deployment."""
        return self.tensor * self.pipeline * self.data


@dataclass(frozen=True, slots=True)
class MoeWork:
    """The MoE blocks of one kind, as one rank sees them."""

    num_layers: int
    num_experts: int
    num_experts_per_tok: int
    expert_bytes: float  # of one expert's part on this rank
    expert_parameters: float  # likewise
    num_ranks: int  # ranks that hold different experts (1 without expert parallelism)
    weight_format: str
    hash_routed: bool


@dataclass(frozen=True, slots=True)
class CacheWork:
    """The KV cache or state of the attention layers of one kind, as one rank reads it."""

    num_layers: int
    bytes_per_token: float
    indexer_bytes_per_token: float
    window_tokens: float  # most tokens that are kept and read; inf without a window
    selected_tokens: float  # most cached tokens that one query reads; inf without sparse attention
    compress_ratio: int
    flop_per_pair: float  # of one prompt token against one cached token
    decode_flop_per_pair: float  # the same in decode, where MLA works on the latent
    state_bytes_per_sequence: float


@dataclass(frozen=True, slots=True)
class RankWork:
    """Weights, cache, kernels and collectives of one forward pass on one rank. Bytes are read once a pass."""

    hidden_size: int
    vocab_size: int
    attention_bytes: float
    attention_parameters: float
    dense_bytes: float  # shared experts, dense layers, routers
    dense_parameters: float
    head_bytes: float
    head_parameters: float
    embedding_bytes: float  # held, not read
    moe: tuple[MoeWork, ...]
    cache: tuple[CacheWork, ...]
    num_layers: int
    num_attention_calls: int
    num_kernels: float
    num_collectives: int
    context_exchange_bytes: float  # of one row, all layers: queries gathered, partial outputs back

    @property
    def weight_bytes(self) -> float:
        """Bytes of weights that the rank holds."""
        experts = sum(m.num_layers * m.expert_bytes * m.num_experts / m.num_ranks for m in self.moe)
        return self.attention_bytes + self.dense_bytes + self.head_bytes + self.embedding_bytes + experts

    def kv_bytes_per_token(self) -> float:
        """Cache bytes that one more token of context takes on this rank (windows not yet full)."""
        return sum(
            c.num_layers * (c.bytes_per_token / c.compress_ratio + c.indexer_bytes_per_token) for c in self.cache
        )

    def cache_bytes(self, context_tokens: float) -> float:
        """Cache bytes of one sequence of `context_tokens` tokens on this rank, windows and state counted."""
        total = 0.0
        for c in self.cache:
            kept = min(context_tokens, c.window_tokens) * c.bytes_per_token / c.compress_ratio
            total += c.num_layers * (kept + context_tokens * c.indexer_bytes_per_token + c.state_bytes_per_sequence)
        return total


@dataclass(frozen=True, slots=True)
class Head:
    """The vocabulary head that ends a stack of layers; Medusa has one a position (`copies`). `read_bytes` is of one."""

    hidden_size: int
    vocab_size: int
    read_bytes: float
    copies: int = 1

    @property
    def parameters(self) -> float:
        """Weights that one row is multiplied with."""
        return float(self.copies * self.hidden_size * self.vocab_size)


def rank_work(shape: ModelShape, parallel: Parallelism, kv_element_bytes: float) -> RankWork:
    """The work of one rank of the target model; pipeline stages are added up (a token passes them all)."""
    head = Head(shape.hidden_size, shape.vocab_size, shape.lm_head_read_bytes)
    return work_of_layers(shape.layers, parallel, kv_element_bytes, head, held_embedding_bytes(shape))


def held_embedding_bytes(shape: ModelShape) -> float:
    """Bytes of an input embedding that is held beside the head; none where the head is the embedding."""
    return shape.embedding_bytes if shape.lm_head_bytes else 0.0


def work_of_layers(
    layers: Sequence[Layer],
    parallel: Parallelism,
    kv_element_bytes: float,
    head: Head,
    embedding_bytes: float = 0.0,
) -> RankWork:
    """The work of one rank of any stack of layers (target or drafter) that ends in `head`, sharded over the ranks."""
    tp = parallel.tensor
    kernels = fitted_values()["kernels"]
    num_layers = sum(layer.count for layer in layers)
    per_layer = sum(layer.count * _layer_kernels(layer, kernels) for layer in layers)
    collectives = 0 if tp == 1 else num_layers * (_ATTENTION_COLLECTIVES + _MLP_COLLECTIVES) + 1
    return RankWork(
        hidden_size=head.hidden_size,
        vocab_size=head.vocab_size,
        attention_bytes=sum(x.count * (x.attention.sharded_bytes / tp + x.attention.replicated_bytes) for x in layers),
        attention_parameters=sum(x.count * _attention_parameters(x.attention, tp) for x in layers),
        dense_bytes=sum(x.count * _dense_part(x, tp)[0] for x in layers),
        dense_parameters=sum(x.count * _dense_part(x, tp)[1] for x in layers),
        head_bytes=head.copies * head.read_bytes / tp,
        head_parameters=head.parameters / tp,
        embedding_bytes=embedding_bytes / tp,
        moe=tuple(_moe_work(x.count, x.moe, parallel) for x in layers if x.moe is not None),
        cache=tuple(_cache_work(x.count, x.attention, parallel, kv_element_bytes) for x in layers),
        num_layers=num_layers,
        num_attention_calls=num_layers,
        num_kernels=per_layer + kernels["step"],
        num_collectives=collectives,
        context_exchange_bytes=sum(x.count * _context_exchange_bytes(x.attention, parallel) for x in layers),
    )


def _layer_kernels(layer: Layer, kernels: dict[str, float]) -> float:
    count = kernels[layer.attention.kind]
    if layer.moe is None:
        return count + kernels["dense"]
    return count + kernels["moe"] + (kernels["shared_experts"] if layer.moe.shared_parameters else 0)


def _attention_parameters(attention: Attention, tp: int) -> float:
    """Parameters that one rank multiplies with: the replicated part whole, by its share of the bytes."""
    stored = attention.sharded_bytes + attention.replicated_bytes
    replicated = attention.replicated_bytes / stored if stored else 0.0
    return attention.parameters * (replicated + (1.0 - replicated) / tp)


def _dense_part(layer: Layer, tp: int) -> tuple[float, float]:
    """Bytes and parameters per rank of shared experts or the dense block (sharded) and the router (replicated)."""
    if layer.dense is not None:
        return layer.dense.weight_bytes / tp, layer.dense.parameters / tp
    assert layer.moe is not None
    moe = layer.moe
    return moe.shared_bytes / tp + moe.router_bytes, moe.shared_parameters / tp + moe.router_parameters


def _moe_work(count: int, moe: Moe, parallel: Parallelism) -> MoeWork:
    group = parallel.tensor * parallel.data
    split = 1 if parallel.expert_parallel else group
    return MoeWork(
        num_layers=count,
        num_experts=moe.num_experts,
        num_experts_per_tok=moe.num_experts_per_tok,
        expert_bytes=moe.expert_bytes / split,
        expert_parameters=moe.expert_parameters / split,
        num_ranks=min(group, moe.num_experts) if parallel.expert_parallel else 1,
        weight_format=moe.weight_format,
        hash_routed=moe.hash_routed,
    )


def _decode_head_dims(attention: Attention) -> tuple[int, int]:
    """Elements of a query and of a partial output of one head in decode: MLA works on the cached latent."""
    if attention.kind == "mla":
        latent = attention.cache_elements_per_token
        return latent, latent
    return attention.qk_head_dim, attention.v_head_dim


def _context_exchange_bytes(attention: Attention, parallel: Parallelism) -> float:
    """Bytes that one row exchanges in one layer when the ranks share its context: each rank's heads attend everywhere.

    The group gathers its ranks' queries and scatters their partial outputs, BF16. Source: vLLM's decode-context
    parallelism (all-gather of queries, reduce-scatter of outputs after the log-sum-exps).
    """
    if parallel.decode_context == 1 or attention.kind == "linear":
        return 0.0
    heads = attention.num_heads / parallel.tensor * parallel.decode_context
    return heads * sum(_decode_head_dims(attention)) * 2.0


def _cache_work(count: int, attention: Attention, parallel: Parallelism, element_bytes: float) -> CacheWork:
    tp = parallel.tensor
    heads_share = 1.0 / min(tp, max(attention.num_kv_heads, 1))
    infinite = float("inf")
    return CacheWork(
        num_layers=count,
        bytes_per_token=attention.cache_elements_per_token * element_bytes * heads_share / parallel.decode_context,
        indexer_bytes_per_token=float(attention.indexer_elements_per_token),  # one byte an element: FP8 keys
        window_tokens=infinite if attention.window_tokens is None else float(attention.window_tokens),
        selected_tokens=infinite if attention.selected_tokens is None else float(attention.selected_tokens),
        compress_ratio=max(attention.compress_ratio, 1),
        flop_per_pair=2.0 * attention.num_heads * (attention.qk_head_dim + attention.v_head_dim) / tp,
        decode_flop_per_pair=2.0 * attention.num_heads * sum(_decode_head_dims(attention)) / tp,
        state_bytes_per_sequence=attention.state_bytes_per_sequence / tp,
    )
