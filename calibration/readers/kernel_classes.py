"""What a GPU kernel does, by its name: the class that its time is counted under.

Names are those of NCCL, vLLM, SGLang, FlashInfer, TensorRT-LLM, CUTLASS, cuBLAS, Triton and ROCm's Tensile; the first
class whose words occur wins, so the order matters: AllReduce fused with a norm is AllReduce, `topkGatingSoftmax` MoE.
"""

import re
from functools import lru_cache

ALLREDUCE = "allreduce"
OTHER = "other"

_WORDS: tuple[tuple[str, str], ...] = (
    (
        ALLREDUCE,
        r"all_?reduce|cross_device_reduce|custom_ar|multimem_all|(one|two)_?shot|quick_?reduce|lamport|ar_fusion",
    ),
    (
        "communication",
        r"nccl|rccl|deep_?ep|all_?to_?all|a2a|all_?gather|reduce_?scatter|send_?recv|broadcast_kernel|nvshmem",
    ),
    (
        "moe",
        r"moe|expert|grouped_?gemm|group_?gemm|gemm_?grouped|ptr_?array|top_?k_?gating|grouped_?top_?k|m_?grouped|"
        r"permute|silu_mul_quant_grouped|finalize_?routing|routing",
    ),
    (
        "attention",
        r"flash|fmha|attn|attention|mla|paged|splitkv|merge_state|reshape_and_cache|concat_and_cache|mqa_logits|"
        r"unified_decode|gated_?delta|causal_conv1d|selective_scan|mamba|ssd_|linear_attn|kda_",
    ),
    (
        "sampling",
        r"argmax|sampl|multinomial|top_?k|top_?p|gumbel|exponential|logprob|log_?softmax|softmax|penalt|rejection|"
        r"radix_?sort|bitonic|min_p|sort_kernel|devicesegmentedsort",
    ),
    (
        "gemm",
        r"gemm|gemv|cutlass|cublas|nvjet|matmul|split_?k|marlin|machete|xmma|cijk_|wvsplit|tensorop|dot_kernel|"
        r"scaled_mm|_mm_kernel|awq|gptq|ampere_|hopper_|sm\d+_.*(fp16|bf16|fp8|tf32)",
    ),
)
_CLASSES = tuple((name, re.compile(words)) for name, words in _WORDS)
CLASSES = (*(name for name, _ in _WORDS), OTHER)


@lru_cache(maxsize=10_000)
def class_of(kernel: str) -> str:
    """The class of a kernel name, one of `CLASSES`.

    >>> class_of("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)")
    'allreduce'
    >>> class_of("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)")
    'allreduce'
    """
    name = kernel.lower()
    return next((label for label, words in _CLASSES if words.search(name)), OTHER)
