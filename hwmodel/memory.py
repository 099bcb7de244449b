"""Whether it fits: weights, drafter, reserve and KV cache of one rank, and how many requests the cache holds."""

from hwmodel.rank import Parallelism, RankWork
from hwmodel.records import dataclass


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


@dataclass(frozen=True, slots=True)
class MemoryBudget:
    """What one GPU has, and what is not weights or cache: bytes, `utilization` as a share."""

    gpu_memory_bytes: float
    gpu_memory_utilization: float
    reserve_bytes: float
    extra_weight_bytes: float = 0.0  # weights outside the decoder: vision tower, or a stated size's difference


@dataclass(frozen=True, slots=True)
class DraftMemory:
    """What a drafter takes on one rank."""

    weight_bytes: float
    kv_bytes_per_token: float


def plan_memory(
    work: RankWork,
    parallel: Parallelism,
    budget: MemoryBudget,
    context_tokens: float,
    draft: DraftMemory | None = None,
) -> MemoryPlan:
    """The memory of one rank.

    Formula: tokens = (utilization * memory - weights - drafter - reserve) / (cache bytes a token) (docs/model.md,
    eq. F1). Windows and recurrent state make bytes a token depend on the context, so `context_tokens` is part of it.
    """
    weights = work.weight_bytes / parallel.pipeline + budget.extra_weight_bytes
    usable = budget.gpu_memory_utilization * budget.gpu_memory_bytes
    context = max(context_tokens, 1.0)
    drafted = draft or DraftMemory(0.0, 0.0)
    per_token = work.cache_bytes(context) / context / parallel.pipeline + drafted.kv_bytes_per_token
    left = usable - weights - drafted.weight_bytes - budget.reserve_bytes
    tokens = max(left, 0.0) / per_token if per_token > 0 else float("inf")
    return MemoryPlan(
        usable, weights, drafted.weight_bytes, budget.reserve_bytes, max(left, 0.0), per_token, tokens, left > 0
    )


def max_running_requests(kv_cache_tokens: float, tokens_per_request: float, max_num_seqs: int) -> tuple[int, str]:
    """Requests that can run at once and what limits them: `max_num_seqs` or `kv_cache`."""
    held = int(kv_cache_tokens // max(tokens_per_request, 1.0))
    return (held, "kv_cache") if held < max_num_seqs else (max_num_seqs, "max_num_seqs")
