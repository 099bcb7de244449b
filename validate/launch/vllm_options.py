"""Names of vLLM's command-line options, as far as a launch must be understood: aliases, values, versions.

Sources: vllm/engine/arg_utils.py and entrypoints/openai/cli_args.py of 0.7.3 ... 0.33.0. Options that are not listed
are passed over: by their names, `--enable-x` and the like take no value, all others one.
"""

from hwmodel.engine.versions import Version

FLAG = "flag"  # may have a --no- form
VALUE = "value"
LIST = "list"  # takes every word up to the next option

_VALUES = (
    "model", "config", "tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size",
    "data-parallel-size-local", "data-parallel-rank", "data-parallel-start-rank", "data-parallel-address",
    "data-parallel-rpc-port", "data-parallel-backend", "decode-context-parallel-size",
    "prefill-context-parallel-size", "max-model-len", "max-num-seqs", "max-num-batched-tokens",
    "gpu-memory-utilization", "block-size", "kv-cache-dtype", "attention-backend", "attention-config",
    "compilation-config", "speculative-config", "spec-method", "spec-model", "spec-tokens",
    "max-cudagraph-capture-size", "optimization-level", "quantization", "dtype", "tokenizer", "tokenizer-mode",
    "host", "port", "seed", "revision", "code-revision", "load-format", "download-dir", "chat-template",
    "tool-call-parser", "reasoning-parser", "distributed-executor-backend", "hf-overrides", "hf-config-path",
    "hf-token", "generation-config", "override-generation-config", "limit-mm-per-prompt", "swap-space",
    "cpu-offload-gb", "max-logprobs", "kv-transfer-config", "moe-backend", "linear-backend", "all2all-backend",
    "api-server-count", "max-parallel-loading-workers", "num-gpu-blocks-override", "scheduling-policy", "model-impl",
    "guided-decoding-backend", "structured-outputs-config", "reasoning-config", "mm-processor-kwargs",
    "stream-interval", "uvicorn-log-level", "root-path", "ssl-keyfile", "ssl-certfile", "response-role",
    "max-log-len", "tokenizer-revision", "rope-scaling", "rope-theta", "nnodes", "node-rank", "master-addr",
    "master-port", "kv-cache-memory-bytes", "per-request-spec-decode-metrics", "runner", "task", "convert",
    "performance-mode", "max-num-partial-prefills", "max-lora-rank", "max-loras", "mamba-cache-mode",
    "kv-offloading-size", "default-chat-template-kwargs", "prefix-caching-hash-algo", "mamba-ssm-cache-dtype",
    "mamba-block-size", "ignore-patterns", "kernel-config", "additional-config", "profiler-config", "eplb-config",
    "safetensors-load-strategy", "model-loader-extra-config", "allowed-origins", "allowed-methods",
    "allowed-headers", "allowed-local-media-path", "mm-encoder-tp-mode", "max-seq-len-to-capture",
    "num-scheduler-steps", "device", "served-model-path", "config-format", "logits-processors",
    "otlp-traces-endpoint", "long-prefill-token-threshold", "chat-template-content-format", "enable-log-deltas",
    "use-tqdm-on-load", "video-pruning-rate",
)  # fmt: skip
_FLAGS = (
    "enforce-eager", "enable-expert-parallel", "async-scheduling", "trust-remote-code", "enable-auto-tool-choice",
    "enable-prefix-caching", "enable-chunked-prefill", "enable-lora", "disable-log-stats", "disable-log-requests",
    "enable-log-requests", "disable-custom-all-reduce", "enable-reasoning", "enable-sleep-mode", "enable-eplb",
    "enable-dbo", "headless", "calculate-kv-scales", "disable-cascade-attn", "kv-sharing-fast-prefill",
    "data-parallel-hybrid-lb", "data-parallel-external-lb", "language-model-only", "disable-uvicorn-access-log",
    "enable-prompt-tokens-details", "enable-force-include-usage", "return-tokens-as-token-ids",
    "skip-tokenizer-init", "skip-mm-profiling", "use-v2-block-manager", "disable-sliding-window",
    "enable-server-load-tracking", "disable-frontend-multiprocessing", "enable-request-id-headers",
    "disable-hybrid-kv-cache-manager", "enable-per-request-metrics", "trust-request-chat-template",
    "fail-on-environ-validation", "async-engine", "interleave-mm-strings", "cudagraph-metrics", "grpc",
    "enable-log-outputs", "enable-logging-iteration-details", "exclude-tools-when-tool-choice-none",
    "enable-flash-late-interaction",
)  # fmt: skip
_LISTS = (
    "cudagraph-capture-sizes",
    "cuda-graph-sizes",
    "served-model-name",
    "api-key",
    "lora-modules",
    "middleware",
    "compile-sizes",
)

KINDS: dict[str, str] = (
    {name: VALUE for name in _VALUES} | {name: FLAG for name in _FLAGS} | {name: LIST for name in _LISTS}
)

SHORT: dict[str, str] = {
    "-tp": "tensor-parallel-size", "-pp": "pipeline-parallel-size", "-dp": "data-parallel-size",
    "-ep": "enable-expert-parallel", "-dcp": "decode-context-parallel-size", "-pcp": "prefill-context-parallel-size",
    "-sc": "speculative-config", "-cc": "compilation-config", "-O": "compilation-config", "-ac": "attention-config",
    "-q": "quantization", "-dpl": "data-parallel-size-local", "-dpn": "data-parallel-rank",
    "-dpr": "data-parallel-start-rank", "-dpa": "data-parallel-address", "-dpp": "data-parallel-rpc-port",
    "-dpb": "data-parallel-backend", "-asc": "api-server-count", "-n": "nnodes", "-r": "node-rank",
    "-spec-draft-tp": "speculative-draft-tensor-parallel-size", "-dph": "data-parallel-hybrid-lb",
    "-dpe": "data-parallel-external-lb",
}  # fmt: skip

# First version with the option; engines before it refuse to start. Source: vllm/engine/arg_utils.py of those versions.
FIRST: dict[str, Version] = {
    "-sc": (0, 19, 0),
    "-cc": (0, 16, 0),
    "--spec-method": (0, 22, 0),
    "--spec-model": (0, 22, 0),
    "--spec-tokens": (0, 22, 0),
    "--speculative-config": (0, 8, 2),
    "--per-request-spec-decode-metrics": (0, 29, 0),
}
DOTTED_FIRST: Version = (0, 9, 2)

# The options of the first engine (V0), their keys in today's JSON, and the last version that took them.
LEGACY_LAST: Version = (0, 8, 2)
LEGACY: dict[str, str | None] = {
    "speculative-model": "model",
    "num-speculative-tokens": "num_speculative_tokens",
    "ngram-prompt-lookup-max": "prompt_lookup_max",
    "ngram-prompt-lookup-min": "prompt_lookup_min",
    "speculative-draft-tensor-parallel-size": "draft_tensor_parallel_size",
    "spec-draft-tp": "draft_tensor_parallel_size",
    "speculative-disable-by-batch-size": "disable_by_batch_size",
    "speculative-max-model-len": "max_model_len",
    "speculative-model-quantization": "quantization",
    "spec-decoding-acceptance-method": None,
    "typical-acceptance-sampler-posterior-threshold": None,
    "typical-acceptance-sampler-posterior-alpha": None,
    "speculative-disable-mqa-scorer": None,
    "disable-logprobs-during-spec-decoding": None,
}
LEGACY_FLAGS = frozenset(("speculative-disable-mqa-scorer",))
