"""The facts that costs are computed from: one GPU, one model's shape, in SI units and bytes.

Frozen records without behaviour beyond sums. `gpus.load_gpu` and `models.load_model` make them.
"""

from dataclasses import field

from hwmodel.records import dataclass


@dataclass(frozen=True, slots=True)
class Gpu:
    """One accelerator as its datasheet states it: dense rates, no efficiency folded in.

    `None` rates mean that the device has no such unit. `sm_arch` names the fitted efficiencies that apply.
    """

    name: str
    title: str
    sm_arch: str  # "12.0", "10.0", "10.3", "9.0", "8.9", "8.6", "8.0", "gfx942", "gfx950", "cpu"
    memory_bytes: float  # what the driver reports as total
    memory_bandwidth_bytes_per_s: float
    bf16_flop_per_s: float
    fp8_flop_per_s: float | None
    fp4_flop_per_s: float | None
    l2_bytes: float
    num_sms: int
    interconnect: str  # the class that a machine with these usually has
    pcie_bytes_per_s: float  # one direction, one GPU
    nvlink_bytes_per_s: float  # one direction, one GPU, 0 without
    p2p: bool  # peer-to-peer over PCIe works with the stock driver
    source: str = ""


@dataclass(frozen=True, slots=True)
class Attention:
    """One attention block. Bytes are of the weights in their stored form.

    `kind` is "gqa", "mla" or "linear". A cache entry is one token's keys and values (or latent) in this layer.
    """

    kind: str
    parameters: int
    sharded_bytes: float  # split over the tensor-parallel ranks
    replicated_bytes: float  # held whole by every rank (MLA: q_a, kv_a; indexers; norms)
    num_heads: int
    num_kv_heads: int  # the cache splits over at most this many ranks; 1 for an MLA latent
    qk_head_dim: int
    v_head_dim: int
    cache_elements_per_token: int  # over all kv heads; 0 for linear attention
    window_tokens: int | None = None  # sliding or chunked window: older tokens are neither kept nor read
    selected_tokens: int | None = None  # sparse attention reads at most this many cached tokens per query
    compress_ratio: int = 1  # tokens per cache entry
    indexer_elements_per_token: int = 0  # the sparse indexer's own key cache, scanned whole by every query
    state_bytes_per_sequence: float = 0.0  # recurrent state of linear attention, read and written every step


@dataclass(frozen=True, slots=True)
class DenseMlp:
    """One dense feed-forward block."""

    parameters: int
    weight_bytes: float


@dataclass(frozen=True, slots=True)
class Moe:
    """One mixture-of-experts block: routed experts, shared experts, router."""

    num_experts: int
    num_experts_per_tok: int
    expert_parameters: int  # of one routed expert
    expert_bytes: float  # of one routed expert
    weight_format: str  # of the routed experts: "bf16", "fp8", "int8", "int4", "nvfp4", "mxfp4"
    shared_parameters: int
    shared_bytes: float
    router_parameters: int
    router_bytes: float
    hash_routed: bool = False  # experts picked by token id: consecutive tokens are independent


@dataclass(frozen=True, slots=True)
class Layer:
    """`count` equal transformer layers: an attention block and one feed-forward block (dense or MoE)."""

    count: int
    attention: Attention
    dense: DenseMlp | None = None
    moe: Moe | None = None
    norm_parameters: int = 0


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A model as far as costs know it. `layers` are in order of first appearance, equal ones merged.

    `mtp_layers` are the multi-token-prediction layers of the checkpoint (count 1 each), `mtp_extra_*` their
    projections and norms; neither is part of `layers` or of the published parameter total.
    """

    name: str
    architecture: str  # Hugging Face model_type
    hidden_size: int
    num_hidden_layers: int
    vocab_size: int
    max_position_embeddings: int
    layers: tuple[Layer, ...]
    embedding_parameters: int
    embedding_bytes: float
    lm_head_parameters: int  # 0 when tied to the embedding; the head is still read: see lm_head_read_bytes
    lm_head_bytes: float
    lm_head_read_bytes: float  # what one forward pass reads for logits, tied or not
    quantization: str  # short label, "bf16", "fp8", "int4", "nvfp4", "mxfp4"
    mtp_layers: tuple[Layer, ...] = ()
    mtp_extra_parameters: int = 0
    mtp_extra_bytes: float = 0.0
    vision_parameters: int = 0
    vision_bytes: float = 0.0
    assumptions: tuple[str, ...] = field(default=())
    source: str = ""

    @property
    def expert_format(self) -> str:
        """Number format of the routed experts; empty for a dense model."""
        return next((layer.moe.weight_format for layer in self.layers if layer.moe), "")
