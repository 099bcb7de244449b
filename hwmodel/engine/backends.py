"""Which attention backend runs, what graphs it can be captured in, and where its multi-token rows go.

A backend that takes one query token a row sends the 1 + k rows of a verification through its prefill branch, which for
MLA projects the whole context again (docs/model.md, v(ctx)).
"""

from hwmodel.engine.versions import Rows, Version, at_version

# Levels of vLLM's AttentionCGSupport, in its order.
NEVER, SINGLE, UNIFORM, ALWAYS = range(4)

# Sources of every row: vllm/platforms/cuda.py (`get_attn_backend_cls`, later `_get_backend_priorities`) and rocm.py.
_MLA_DEFAULT: dict[str, Rows[str]] = {
    "10": [
        (None, (0, 8, 5), "TRITON_MLA"),
        # 0.9.2 ... 0.11.2 by the block size that SM100 gets; 0.12.0 ... 0.14.1 first in the list (0.15 not read)
        (None, (0, 15, 99), "CUTLASS_MLA"),
        (None, None, "FLASHINFER_MLA"),  # 0.16.0 ... 0.33.0: first in the list
    ],
    "9": [
        (None, (0, 11, 1), "FLASHMLA"),  # 0.9.2, 0.10.2, 0.11.0
        (None, None, "FLASH_ATTN_MLA"),  # 0.11.2 ... 0.33.0
    ],
    "gfx": [(None, None, "TRITON_MLA")],  # rocm.py without VLLM_ROCM_USE_AITER
    "cpu": [(None, None, "CPU_MLA")],
    "": [(None, None, "TRITON_MLA")],  # SM 8.x and 12.x: the only one that accepts them
}
_GQA_DEFAULT: dict[str, Rows[str]] = {
    "10": [(None, (0, 8, 99), "FLASH_ATTN"), (None, None, "FLASHINFER")],  # 0.9.2: preferred on Blackwell
    "gfx": [(None, None, "TRITON_ATTN")],
    "cpu": [(None, None, "CPU_ATTN")],
    "": [(None, None, "FLASH_ATTN")],
}
_SPARSE_DEFAULT: dict[str, Rows[str]] = {
    "12": [(None, (0, 23, 99), "FLASHMLA_SPARSE"), (None, None, "FLASHINFER_MLA_SPARSE_SM120")],  # SM120 from 0.24.0
    "gfx": [(None, None, "ROCM_AITER_MLA_SPARSE")],
    "cpu": [(None, None, "CPU_MLA")],
    "": [(None, None, "FLASHMLA_SPARSE")],
}
_DEFAULTS = {"mla": _MLA_DEFAULT, "gqa": _GQA_DEFAULT, "hybrid": _GQA_DEFAULT, "sparse": _SPARSE_DEFAULT}

# `cudagraph_support` / `_cudagraph_support` of v1/attention/backends/*, read in the versions at the row ends.
_GRAPH_SUPPORT: dict[str, Rows[int]] = {
    "TRITON_MLA": [
        (None, (0, 21, 99), NEVER),  # inherited default, 0.10.1 ... 0.20.2 (0.21 not read)
        (None, (0, 25, 99), UNIFORM),  # vllm PR 42885, 0.22.0 ... 0.25.0
        (None, (0, 30, 99), SINGLE),  # vllm PR 47144, 0.26.0 ... 0.30.0
        (None, None, UNIFORM),  # 0.31.0, 0.32.0, 0.33.0
    ],
    "CUTLASS_MLA": [(None, None, SINGLE)],  # 0.10.2 ... 0.33.0
    "FLASHMLA": [(None, None, UNIFORM)],
    "FLASH_ATTN_MLA": [(None, None, UNIFORM)],
    # 0.11.0 / 0.11.2, 0.29.0 / 0.32.0
    "FLASHINFER_MLA": [(None, (0, 11, 1), NEVER), (None, (0, 31, 99), UNIFORM), (None, None, ALWAYS)],
    "TOKENSPEED_MLA": [(None, None, UNIFORM)],
    "ROCM_AITER_MLA": [(None, (0, 13, 99), SINGLE), (None, None, UNIFORM)],  # 0.13.0 / 0.14.1
    "FLASHMLA_SPARSE": [(None, (0, 16, 99), SINGLE), (None, None, UNIFORM)],  # held back by its indexer up to 0.16.0
    "FLASHINFER_MLA_SPARSE_SM120": [(None, None, UNIFORM)],
    # 0.16.0, 0.22.0, 0.29.0
    "ROCM_AITER_MLA_SPARSE": [(None, (0, 21, 99), NEVER), (None, (0, 28, 99), SINGLE), (None, None, UNIFORM)],
    "FLASH_ATTN": [(None, None, UNIFORM)],  # FA2; FA3 on SM90 is ALWAYS, see graph_support
    "FLASHINFER": [(None, (0, 11, 1), SINGLE), (None, None, UNIFORM)],  # TRTLLM decode kernels, SM100 only
    "TRITON_ATTN": [(None, None, ALWAYS)],
    "ROCM_ATTN": [(None, None, ALWAYS)],
    "ROCM_AITER_FA": [(None, (0, 21, 99), SINGLE), (None, None, UNIFORM)],  # 0.16.0 / 0.22.0
    "FLEX_ATTENTION": [(None, (0, 21, 99), NEVER), (None, None, ALWAYS)],  # 0.16.0 / 0.22.0
    "CPU_MLA": [(None, None, NEVER)],
    "CPU_ATTN": [(None, None, NEVER)],
}
# `query_len_support` SINGLE_ONLY, or before 0.11.2 a `reorder_batch_threshold` of 1: multi-token rows are prefill.
_ROWS_AS_PREFILL: dict[str, Rows[bool]] = {
    "TRITON_MLA": [(None, (0, 30, 99), True), (None, None, False)],  # UNIFORM in 0.31.0
    "CUTLASS_MLA": [(None, None, True)],
    "FLASHMLA": [(None, (0, 11, 1), True), (None, None, False)],  # UNIFORM in 0.11.2
    "FLASH_ATTN_MLA": [(None, None, False)],  # threshold 512 since its first version, 0.10.2
    "FLASHINFER_MLA": [(None, (0, 11, 1), True), (None, None, False)],  # UNIFORM in 0.11.2
    "ROCM_AITER_MLA": [(None, (0, 13, 99), True), (None, None, False)],  # UNIFORM in 0.14.1
    "CPU_MLA": [(None, None, True)],
}
# Tokens per KV block that the backend forces; every other one keeps the default.
_BLOCK_SIZES = {
    "FLASHMLA": 64,
    "FLASHMLA_SPARSE": 64,
    "CUTLASS_MLA": 128,
    "FLASHINFER_MLA": 64,
    "CPU_MLA": 128,
    "CPU_ATTN": 128,
}
_DEFAULT_BLOCK_SIZE = 16  # vllm/platforms/cuda.py


def default_backend(attention_kind: str, sm_arch: str, version: Version) -> str:
    """Name of the attention backend that vLLM picks by itself."""
    table = _DEFAULTS[attention_kind]
    family = "gfx" if sm_arch.startswith("gfx") else sm_arch.split(".")[0]
    return at_version(table.get(family, table[""]), version)


def usable_backends(attention_kind: str, sm_arch: str) -> tuple[str, ...]:
    """Backends that some version of vLLM picks for this attention on this architecture: those that accept it."""
    table = _DEFAULTS[attention_kind]
    family = "gfx" if sm_arch.startswith("gfx") else sm_arch.split(".")[0]
    return tuple(dict.fromkeys(name for _, _, name in table.get(family, table[""])))


def graph_support(backend: str, sm_arch: str, attention_kind: str, version: Version) -> int | None:
    """Graph level of the backend, `None` for a name that is not known here.

    FlashAttention captures any batch with its third generation (SM90) only. FlashInfer takes uniform multi-token rows
    only through the TRTLLM kernels of SM100. A hybrid model is held to what its linear-attention layers can (uniform).
    """
    rows = _GRAPH_SUPPORT.get(backend)
    if rows is None:
        return None
    level = at_version(rows, version)
    if backend == "FLASH_ATTN" and sm_arch == "9.0":
        level = ALWAYS
    if backend == "FLASHINFER" and not sm_arch.startswith("10."):
        level = min(level, SINGLE)
    if attention_kind == "hybrid":
        level = min(level, UNIFORM)  # gdn_attn.py: UNIFORM_BATCH, 0.10.2 ... 0.33.0
    return level


def multi_token_rows_as_prefill(backend: str, version: Version) -> bool:
    """Whether rows of more than one token go through the backend's prefill branch."""
    rows = _ROWS_AS_PREFILL.get(backend)
    return rows is not None and at_version(rows, version)


def block_size_tokens(backend: str) -> int:
    """Tokens per KV block with this backend."""
    return _BLOCK_SIZES.get(backend, _DEFAULT_BLOCK_SIZE)


def known_backends() -> tuple[str, ...]:
    """Names of the backends whose graph support is known."""
    return tuple(sorted(_GRAPH_SUPPORT))
