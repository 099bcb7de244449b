"""What switching speculation on breaks or changes for the clients of a server, one sentence each."""

from hwmodel.engine.methods import canonical_method
from hwmodel.engine.versions import Rows, Version, at_version, check_engine, format_version

_EAGLE_FAMILY = frozenset({"eagle", "eagle3", "mtp", "p_eagle", "dflash", "dspark"})
_MATCHING = frozenset({"ngram", "suffix"})
# vllm/sampling_params.py and v1/sample: 0.13.0 / 0.14.1, 0.16.0 / 0.17.0
_REFUSED: Rows[str] = [
    (None, (0, 13, 99), "min_p and logit_bias are ignored, requests with them are served; the log warns once at start"),
    (None, None, "requests with min_p or logit_bias are refused with HTTP 400"),
]
_MIN_TOKENS: Rows[str] = [
    (None, (0, 13, 99), "min_tokens is ignored"),
    (None, (0, 16, 99), "requests with min_tokens above 1 are refused with HTTP 400"),
    (None, None, ""),
]
_UNDRAFTED: Rows[str] = [
    (None, (0, 13, 99), "requests with logprobs, penalties or min_p silently get no drafts"),
    (None, None, ""),
]
_PREFIX_BLOCK: Rows[str] = [
    (None, (0, 32, 99), "a prefix-cache hit loses its last block, so time to first token rises slightly"),
    (None, None, ""),  # 0.33: hashes look ahead
]
_RESPONSE_METRICS: Version = (0, 29, 0)


def client_effects(engine: str, version: Version, method: str, runner: str) -> tuple[str, ...]:
    """Sentences on what clients notice when the method is switched on; `runner` as in `EngineMode.model_runner`."""
    engine = check_engine(engine)
    canonical_method(method)
    if method == "none":
        return ()
    if engine == "sglang":
        return _sglang_effects(version)
    number = format_version(version)
    facts = _v0_facts() if runner == "v0" else _v1_facts(version, method, runner)
    return (*(f"vLLM {number}: {fact}" for fact in facts if fact), *_common())


def _v0_facts() -> tuple[str, ...]:
    return (
        "logprobs are not computed for speculative steps unless disable_logprobs is set to false",
        "the engine falls back to V0, whose metrics have other names",
    )


def _v1_facts(version: Version, method: str, runner: str) -> tuple[str, ...]:
    matching, eagle = method in _MATCHING, method in _EAGLE_FAMILY
    facts = [
        at_version(_REFUSED, version),
        at_version(_MIN_TOKENS, version),
        at_version(_UNDRAFTED, version) if matching else "",
        at_version(_PREFIX_BLOCK, version) if eagle else "",
        "custom logits processors stop the server at start",
        "with LoRA the server refuses to start when max_num_batched_tokens is below max_num_seqs * (k + 1)",
    ]
    if matching and runner != "v2" and version >= (0, 14, 0):
        facts.append("async scheduling goes off, so every request pays more host time per step, drafted or not")
    if eagle:
        facts.append("kv_sharing_fast_prefill cannot be combined with it: the server stops at start")
    if method == "draft_model":
        facts.append("the draft model must have the target's vocabulary size")
    if version >= _RESPONSE_METRICS:
        facts.append("--per-request-spec-decode-metrics summary adds acceptance to every response with n = 1")
    return tuple(facts)


def _common() -> tuple[str, ...]:
    return (
        "a streamed chunk carries up to k + 1 tokens: tools that count chunks as tokens report too few, and the gap "
        "between chunks does not shrink with acceptance; compare time per output token",
        "at temperature 0 outputs may differ from those without speculation, because batch shapes change the rounding",
        "above temperature 0 fewer drafts are accepted",
    )


def _sglang_effects(version: Version) -> tuple[str, ...]:
    number = format_version(version)
    return (
        f"SGLang {number}: at most 48 requests run at once unless --max-running-requests is given; others wait",
        f"SGLang {number}: mixed chunked prefill goes off, so decoding waits for whole prefill chunks",
        *_common(),
    )
