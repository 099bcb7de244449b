"""SGLang's mode: memory tiers, captured batch sizes, overlap scheduling.

Sources: sglang/srt/server_args.py 0.5.5; sglang/srt/arg_groups/{memory,cuda_graph,speculative}_hook.py 0.5.23.
"""

from hwmodel.engine.records import EngineMode, EngineRequest
from hwmodel.engine.runners import lookahead_slots
from hwmodel.engine.versions import Rows, Version, at_version, format_version
from hwmodel.units import GIB

_SPEC_MAX_RUNNING = 48  # --max-running-requests when speculation is on and none is given
# Assumption: without speculation it follows from the KV pool, between 2048 and 4096; memory limits first.
_PLAIN_MAX_RUNNING = 2048
_NEWER: Version = (0, 5, 6)  # assumption: the tiers of 0.5.23 apply to everything after 0.5.5
_TP_WIDE = 4
_CPU_MAX_BATCH = 160
# (memory below, chunked prefill tokens, captured requests with TP < 4, with TP >= 4)
_TIERS: Rows[tuple[tuple[float, int, int, int], ...]] = [
    (
        None,
        (0, 5, 5),
        (
            (20 * GIB, 2048, 8, 8),
            (35 * GIB, 2048, 24, 80),
            (60 * GIB, 4096, 32, 160),
            (160 * GIB, 8192, 256, 512),
            (float("inf"), 16384, 512, 512),
        ),
    ),
    (
        None,
        None,
        (
            (20 * GIB, 2048, 8, 8),
            (35 * GIB, 4096, 48, 160),
            (60 * GIB, 4096, 32, 160),
            (160 * GIB, 8192, 256, 512),
            (float("inf"), 16384, 512, 512),
        ),
    ),
]
_BACKENDS = {"9.0": "fa3", "10.0": "trtllm_mla", "10.3": "trtllm_mla", "cpu": "torch_native"}  # assumption for the rest


def sglang_mode(request: EngineRequest, version: Version, notes: tuple[str, ...]) -> EngineMode:
    """The mode of an SGLang server."""
    k = request.draft_tokens
    _, prefill, narrow, wide = _tier(request.gpu_memory_bytes, version)
    max_num_seqs = request.max_num_seqs or (_SPEC_MAX_RUNNING if k else _PLAIN_MAX_RUNNING)
    graphs = not request.enforce_eager and request.sm_arch != "cpu"
    sizes: tuple[int, ...] = ()
    if graphs:
        largest = wide if request.tensor_parallel_size >= _TP_WIDE else narrow
        batches = _batch_sizes(min(largest, max_num_seqs) if version >= _NEWER else largest, k > 0)
        sizes = request.cudagraph_capture_sizes or tuple(batch * (1 + k) for batch in batches)
    overlap, overlap_notes = _overlap(request, version)
    return EngineMode(
        engine="sglang",
        version=version,
        model_runner="sglang",
        attention_backend=request.attention_backend or _backend(request),
        async_scheduling=overlap,
        uniform_decode_graph="full" if graphs else "none",
        mixed_decode_graph="none",
        capture_sizes=sizes,
        multi_token_rows_as_prefill=False,
        variable_draft_length=False,
        ngram_variant=None,
        lookahead_slots=lookahead_slots(request.effective_method, k),
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=request.max_num_batched_tokens or prefill,
        block_size=1,  # --page-size default
        notes=notes + _limit_notes(request, version) + overlap_notes,
    )


def _tier(memory_bytes: float, version: Version) -> tuple[float, int, int, int]:
    return next(tier for tier in at_version(_TIERS, version) if memory_bytes < tier[0])


def _backend(request: EngineRequest) -> str:
    name = _BACKENDS.get(request.sm_arch, "flashinfer")
    return "trtllm_mha" if name == "trtllm_mla" and request.attention_kind != "mla" else name


def _batch_sizes(largest: int, speculative: bool) -> list[int]:
    """Requests that are captured, ascending: finer steps when each request is several tokens."""
    if speculative:
        wanted = [*range(1, 9), *range(10, 33, 2), *range(40, 65, 4), *range(72, 257, 8), *range(272, largest + 1, 16)]
    else:
        wanted = [1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 512, 16), *range(512, largest + 1, 32)]
    return [size for size in wanted if size <= largest]


def _limit_notes(request: EngineRequest, version: Version) -> tuple[str, ...]:
    number = format_version(version)
    if request.max_num_seqs is None and request.draft_tokens:
        return (
            f"SGLang {number}: speculation lowers --max-running-requests to {_SPEC_MAX_RUNNING} unless it is given; "
            f"set it, or throughput above that concurrency is lost",
        )
    if request.max_num_seqs is None:
        return (f"SGLang {number}: {_PLAIN_MAX_RUNNING} running requests are assumed; the KV pool sets the real limit",)
    return ()


def _overlap(request: EngineRequest, version: Version) -> tuple[bool, tuple[str, ...]]:
    """0.5.5 turns the overlap scheduler off with any speculation (SGLANG_ENABLE_SPEC_V2 aside)."""
    if request.async_scheduling is not None:
        return request.async_scheduling, ()
    if not request.draft_tokens or version >= _NEWER:
        return request.sm_arch != "cpu", ()
    return False, (f"SGLang {format_version(version)}: speculation turns the overlap scheduler off",)
