"""vLLM's default batch limits by version and GPU (API server), and the share of memory that the engines take.

Source: vllm/engine/arg_utils.py, `get_batch_defaults` and its forerunners, of 0.9.2, 0.10.1, 0.16.0, 0.27.0 ... 0.33.0.
"""

from hwmodel.engine.records import EngineRequest
from hwmodel.engine.versions import Rows, Version, at_version
from hwmodel.records import dataclass
from hwmodel.units import GIB

_LARGE_GPU_BYTES = 70 * GIB
_LARGEST_GPU_BYTES = 160 * GIB
_A100 = "8.0"  # kept on the small tier: larger budgets reduced its throughput (vllm PR 17885)
_GB10 = "12.1"


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Requests and tokens that one engine step may hold."""

    max_num_seqs: int
    max_num_batched_tokens: int


_SMALL = BatchLimits(256, 2048)
_LARGE: Rows[BatchLimits] = [
    (None, (0, 8, 99), BatchLimits(256, 8192)),  # assumption: 1024 requests were seen first in 0.9.2
    (None, None, BatchLimits(1024, 8192)),
]
_LARGEST: Rows[BatchLimits | None] = [(None, (0, 27, 99), None), (None, None, BatchLimits(1024, 16384))]  # 0.28.0
_GB10_SMALL: Rows[bool] = [(None, (0, 32, 99), False), (None, None, True)]  # 0.33.0
_CPU = BatchLimits(128, 2048)  # per rank

# vllm/config/cache.py; raised together with CUDA graph memory profiling (vLLM pull request 38284, released in 0.21).
_VLLM_MEMORY_SHARE: Rows[float] = [(None, (0, 20, 999), 0.90), ((0, 21, 0), None, 0.92)]
_SGLANG_MEMORY_SHARE = 0.88  # mem_fraction_static: computed from the GPU at start, about this


def default_memory_share(engine: str, version: Version) -> float:
    """Share of GPU memory that the engine takes where the deployment names none (gpu_memory_utilization)."""
    return _SGLANG_MEMORY_SHARE if engine == "sglang" else at_version(_VLLM_MEMORY_SHARE, version)


def default_limits(request: EngineRequest, version: Version, runner: str) -> BatchLimits:
    """The limits that apply where the deployment names none."""
    if request.sm_arch == "cpu":
        ranks = request.tensor_parallel_size
        return BatchLimits(_CPU.max_num_seqs * ranks, _CPU.max_num_batched_tokens * ranks)
    if runner == "v0" or request.sm_arch == _A100:
        return _SMALL
    if request.sm_arch == _GB10 and at_version(_GB10_SMALL, version):
        return _SMALL
    largest = at_version(_LARGEST, version)
    if largest is not None and request.gpu_memory_bytes >= _LARGEST_GPU_BYTES:
        return largest
    return at_version(_LARGE, version) if request.gpu_memory_bytes >= _LARGE_GPU_BYTES else _SMALL
