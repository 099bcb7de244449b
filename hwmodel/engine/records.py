"""What is asked of the engine facts, and what they answer."""

from hwmodel.engine.versions import Version
from hwmodel.records import dataclass


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """What the deployment says about its engine; `None` means the engine's own default.

    `attention_kind` is "mla", "gqa", "hybrid" (linear attention layers) or "sparse" (an indexer picks cached tokens).
    """

    name: str
    version: str | None
    sm_arch: str  # as in `specs.Gpu.sm_arch`
    attention_kind: str
    method: str
    num_speculative_tokens: int
    is_moe: bool
    model_quantized: bool
    data_parallel_size: int
    tensor_parallel_size: int
    gpu_memory_bytes: float
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    attention_backend: str | None = None
    cudagraph_mode: str | None = None
    cudagraph_capture_sizes: tuple[int, ...] | None = None
    max_cudagraph_capture_size: int | None = None
    async_scheduling: bool | None = None
    model_runner: str | None = None
    enforce_eager: bool = False
    parallel_drafting: bool = False

    @property
    def draft_tokens(self) -> int:
        """Draft tokens per step that take effect: 0 without a method."""
        return 0 if self.method == "none" else self.num_speculative_tokens

    @property
    def effective_method(self) -> str:
        """The method, "none" when no token would be drafted."""
        return self.method if self.num_speculative_tokens > 0 else "none"


@dataclass(frozen=True, slots=True)
class EngineMode:
    """How the engine runs a deployment, as far as step time and acceptance depend on it.

    `uniform_decode_graph` is the graph kind ("full", "piecewise", "none") of a decode step in which every row has
    exactly 1 + k tokens; `mixed_decode_graph` of one where rows differ (some undrafted, or a prefill chunk among
    them).
    """

    engine: str
    version: Version
    model_runner: str  # "v1", "v2", "v0", "sglang"
    attention_backend: str
    async_scheduling: bool
    uniform_decode_graph: str
    mixed_decode_graph: str
    capture_sizes: tuple[int, ...]  # token counts, ascending; empty without graphs
    multi_token_rows_as_prefill: bool  # docs/model.md, v(ctx)
    variable_draft_length: bool  # no draft, or a shorter one, when nothing matches
    ngram_variant: str | None  # "kmp", "lps", "gpu_v1", "mrv2"; None: no n-gram, or not known (the notes say which)
    lookahead_slots: int  # KV slots reserved per request for drafts
    max_num_seqs: int
    max_num_batched_tokens: int
    block_size: int  # tokens per KV block
    notes: tuple[str, ...]
