"""The keys of vLLM's speculative configuration, and the versions that accept them.

Source: vllm/config/speculative.py (0.8.5: config.py) of 0.8.2 ... 0.33.0. The config forbids keys it does not know.
"""

from typing import TypeAlias

from hwmodel.engine.versions import Version

Span: TypeAlias = tuple[Version | None, Version | None]

_ALWAYS: Span = (None, None)
KEYS: dict[str, Span] = {
    "method": _ALWAYS,
    "model": _ALWAYS,
    "num_speculative_tokens": _ALWAYS,
    "draft_tensor_parallel_size": _ALWAYS,
    "quantization": _ALWAYS,
    "max_model_len": _ALWAYS,
    "revision": _ALWAYS,
    "code_revision": _ALWAYS,
    "prompt_lookup_max": _ALWAYS,
    "prompt_lookup_min": _ALWAYS,
    "acceptance_method": (None, (0, 9, 2)),
    "posterior_threshold": (None, (0, 9, 2)),
    "posterior_alpha": (None, (0, 9, 2)),
    "disable_mqa_scorer": (None, (0, 9, 2)),
    "disable_logprobs": (None, (0, 11, 0)),
    "disable_log_stats": (None, (0, 11, 0)),
    "enable_chunked_prefill": (None, (0, 11, 0)),
    "disable_by_batch_size": (None, (0, 16, 99)),
    "speculative_token_tree": ((0, 9, 2), (0, 20, 99)),
    "enforce_eager": ((0, 11, 0), None),
    "disable_padded_drafter_batch": ((0, 11, 0), None),
    "suffix_decoding_max_tree_depth": ((0, 11, 2), None),
    "suffix_decoding_max_cached_requests": ((0, 11, 2), None),
    "suffix_decoding_max_spec_factor": ((0, 11, 2), None),
    "suffix_decoding_min_token_prob": ((0, 11, 2), None),
    "parallel_drafting": ((0, 16, 0), None),
    "use_local_argmax_reduction": ((0, 17, 0), None),
    "draft_load_config": ((0, 17, 0), None),
    "rejection_sample_method": ((0, 18, 0), None),
    "moe_backend": ((0, 19, 0), None),
    "synthetic_acceptance_rate": ((0, 19, 0), (0, 19, 99)),
    "synthetic_acceptance_rates": ((0, 20, 0), None),
    "synthetic_acceptance_length": ((0, 20, 0), None),
    "draft_sample_method": ((0, 21, 0), None),
    "attention_backend": ((0, 21, 0), None),
    "num_speculative_tokens_per_batch_size": ((0, 24, 0), None),
    "use_heterogeneous_vocab": ((0, 25, 0), None),
    "kv_cache_dtype": ((0, 26, 0), None),
    "enable_adaptive_verification": ((0, 28, 0), None),
    "dspark_draft_topk": ((0, 28, 0), None),
    "index_share_for_mtp_iteration": ((0, 29, 0), None),
    "disable_eagle_block_drop": ((0, 30, 0), None),
    "disable_lookahead_block_hashes": ((0, 33, 0), None),
    "draft_lm_head_quantization": ((0, 33, 0), None),
    "xpress_topc": ((0, 33, 0), None),
    "fly_window_size": ((0, 33, 0), None),
    "fly_entropy_threshold": ((0, 33, 0), None),
    "fly_entropy_top_k": ((0, 33, 0), None),
}


def accepted_keys(version: Version) -> frozenset[str]:
    """Keys that vLLM of that version accepts in `--speculative-config`."""
    return frozenset(name for name, (first, last) in KEYS.items() if _covers(first, last, version))


def _covers(first: Version | None, last: Version | None, version: Version) -> bool:
    return (first is None or first <= version) and (last is None or version <= last)
