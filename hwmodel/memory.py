"""Whether it fits: weights, drafter, reserve and KV cache of one rank, and how many requests the cache holds."""

from dataclasses import dataclass

from hwmodel.rank import RankWork


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes of one rank, and the KV capacity of one data-parallel replica in tokens: 0 when it does not fit."""

    budget_bytes: float
    weight_bytes: float
    draft_bytes: float
    reserve_bytes: float
    kv_cache_bytes: float
    kv_bytes_per_token: float  # target and drafter, at the context in question
    kv_cache_tokens: float
    fits: bool


def plan_memory(
    work: RankWork,
    *,
    gpu_memory_bytes: float,
    gpu_memory_utilization: float,
    reserve_bytes: float,
    context_tokens: float,
    draft_bytes: float = 0.0,
    draft_kv_bytes_per_token: float = 0.0,
    extra_weight_bytes: float = 0.0,
    decode_context_parallel: int = 1,
    pipeline_parallel: int = 1,
) -> MemoryPlan:
    """The memory of one rank.

    Formula: tokens = (utilization * memory - weights - drafter - reserve) / (cache bytes a token) (docs/model.md,
    eq. F1). Windows and recurrent state make bytes a token depend on the context, so `context_tokens` is part of it.
    """
    stages = pipeline_parallel
    weights = work.weight_bytes / stages + extra_weight_bytes
    budget = gpu_memory_utilization * gpu_memory_bytes
    context = max(context_tokens, 1.0)
    per_token = work.cache_bytes(context) / context / stages + draft_kv_bytes_per_token / decode_context_parallel
    left = budget - weights - draft_bytes - reserve_bytes
    tokens = max(left, 0.0) / per_token if per_token > 0 else float("inf")
    return MemoryPlan(budget, weights, draft_bytes, reserve_bytes, max(left, 0.0), per_token, tokens, left > 0)


def max_running_requests(kv_cache_tokens: float, tokens_per_request: float, max_num_seqs: int) -> tuple[int, str]:
    """Requests that can run at once and what limits them: `max_num_seqs` or `kv_cache`."""
    held = int(kv_cache_tokens // max(tokens_per_request, 1.0))
    return (held, "kv_cache") if held < max_num_seqs else (max_num_seqs, "max_num_seqs")
