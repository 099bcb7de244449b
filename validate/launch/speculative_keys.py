"""Facts about single keys of vLLM's speculative configuration that go beyond the versions in `hwmodel.engine.keys`."""

from hwmodel.engine.versions import Version

# Options of their own for three keys. Source: vllm/engine/arg_utils.py 0.22.
ALIASES = {"spec-method": "method", "spec-model": "model", "spec-tokens": "num_speculative_tokens"}
HYPHENS_FIRST: Version = (0, 26, 0)  # vllm/config/speculative.py: key names are normalised from here on
# Set by the engine while it builds the configuration; users may not. Source: vllm/config/speculative.py.
INTERNAL_KEYS = frozenset(
    ("target_model_config", "target_parallel_config", "draft_model_config", "draft_parallel_config")
)
# Accepted but read by no code of the V1 engine. Source: no reader under vllm/v1/ of 0.11.2 and 0.16.0.
IGNORED_KEYS: dict[str, tuple[Version, str]] = {
    "disable_by_batch_size": (
        (0, 9, 2),
        "only the first engine (V0) read it; use num_speculative_tokens_per_batch_size from 0.24 on",
    ),
}
_LOOKUP = frozenset(("ngram", "ngram_gpu"))
_SUFFIX = frozenset(("suffix",))
USED_BY: dict[str, frozenset[str]] = {
    "prompt_lookup_min": _LOOKUP,
    "prompt_lookup_max": _LOOKUP,
    "suffix_decoding_max_tree_depth": _SUFFIX,
    "suffix_decoding_max_cached_requests": _SUFFIX,
    "suffix_decoding_max_spec_factor": _SUFFIX,
    "suffix_decoding_min_token_prob": _SUFFIX,
    "enable_adaptive_verification": frozenset(("dspark",)),
    "dspark_draft_topk": frozenset(("dspark",)),
    "use_heterogeneous_vocab": frozenset(("draft_model",)),
}
# Names that `method` may have beyond the vocabulary of `hwmodel.engine.methods`. Source: vllm/config/speculative.py.
MTP_ALIASES = frozenset(
    (
        "deepseek_mtp", "mimo_mtp", "mimo_v2_mtp", "glm4_moe_mtp", "glm4_moe_lite_mtp", "glm_ocr_mtp", "ernie_mtp",
        "nemotron_h_mtp", "exaone_moe_mtp", "exaone4_5_mtp", "qwen3_next_mtp", "qwen3_5_mtp", "longcat_flash_mtp",
        "pangu_ultra_moe_mtp", "step3p5_mtp", "gemma4_mtp", "kimi_k3_mtp", "minimax_m3_mtp", "bailing_hybrid_mtp",
        "hy_v3_mtp",
    )
)  # fmt: skip
MTP_FIRST: Version = (0, 11, 0)  # "mtp" takes the place of the names above
# First versions of the methods that only vLLM's own vocabulary has.
OTHER_METHODS: dict[str, Version] = {"extract_hidden_states": (0, 17, 0), "custom_class": (0, 22, 0)}
