"""What switching speculation on breaks or changes for the clients of a server, one sentence each."""

from hwmodel.engine.methods import canonical_method
from hwmodel.engine.versions import Rows, Version, at_version, check_engine, format_version
from hwmodel.records import dataclass

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


@dataclass(frozen=True, slots=True)
class ClientEffect:
    """One thing that clients notice: `severity` is "warning" where requests are refused or served differently.

    `code` is a stable name; effects on the start of the server itself have none.
    """

    code: str
    severity: str
    text: str


def client_effects(engine: str, version: Version, method: str, runner: str) -> tuple[str, ...]:
    """Sentences on what clients notice when the method is switched on; `runner` as in `EngineMode.model_runner`."""
    return tuple(effect.text for effect in effects_on_clients(engine, version, method, runner))


def effects_on_clients(engine: str, version: Version, method: str, runner: str) -> tuple[ClientEffect, ...]:
    """The same with a code and a severity each."""
    engine = check_engine(engine)
    canonical_method(method)
    if method == "none":
        return ()
    if engine == "sglang":
        return (*_sglang_effects(version), *_common())
    number = format_version(version)
    facts = _v0_facts() if runner == "v0" else _v1_facts(version, method, runner)
    named = (ClientEffect(fact.code, fact.severity, f"vLLM {number}: {fact.text}") for fact in facts if fact.text)
    return (*named, *_common())


def _warning(code: str, text: str) -> ClientEffect:
    return ClientEffect(code, "warning", text)


def _info(code: str, text: str) -> ClientEffect:
    return ClientEffect(code, "info", text)


def _v0_facts() -> tuple[ClientEffect, ...]:
    return (
        _warning(
            "client-logprobs",
            "logprobs are not computed for speculative steps unless disable_logprobs is set to false",
        ),
        _info("client-metrics", "the engine falls back to V0, whose metrics have other names"),
    )


def _v1_facts(version: Version, method: str, runner: str) -> tuple[ClientEffect, ...]:
    matching, eagle = method in _MATCHING, method in _EAGLE_FAMILY
    facts = [
        _warning("client-min-p-logit-bias", at_version(_REFUSED, version)),
        _warning("client-min-tokens", at_version(_MIN_TOKENS, version)),
        _warning("client-undrafted", at_version(_UNDRAFTED, version) if matching else ""),
        _info("client-prefix-cache", at_version(_PREFIX_BLOCK, version) if eagle else ""),
        _info("", "custom logits processors stop the server at start"),
        _info("", "with LoRA the server refuses to start when max_num_batched_tokens is below max_num_seqs * (k + 1)"),
    ]
    if matching and runner != "v2" and version >= (0, 14, 0):
        text = "async scheduling goes off, so every request pays more host time per step, drafted or not"
        facts.append(_info("", text))
    if eagle:
        facts.append(_info("", "kv_sharing_fast_prefill cannot be combined with it: the server stops at start"))
    if method == "draft_model":
        facts.append(_info("", "the draft model must have the target's vocabulary size"))
    if version >= _RESPONSE_METRICS:
        text = "--per-request-spec-decode-metrics summary adds acceptance to every response with n = 1"
        facts.append(_info("client-response-metrics", text))
    return tuple(facts)


def _common() -> tuple[ClientEffect, ...]:
    return (
        _info(
            "client-chunks",
            "a streamed chunk carries up to k + 1 tokens: tools that count chunks as tokens report too few, and the "
            "gap between chunks does not shrink with acceptance; compare time per output token",
        ),
        _info(
            "client-rounding",
            "at temperature 0 outputs may differ from those without speculation, because batch shapes change the "
            "rounding",
        ),
        _info("client-temperature", "above temperature 0 fewer drafts are accepted"),
    )


def _sglang_effects(version: Version) -> tuple[ClientEffect, ...]:
    number = format_version(version)
    return (
        _warning(
            "client-running-requests",
            f"SGLang {number}: at most 48 requests run at once unless --max-running-requests is given; others wait",
        ),
        _info(
            "client-mixed-prefill",
            f"SGLang {number}: mixed chunked prefill goes off, so decoding waits for whole prefill chunks",
        ),
    )
