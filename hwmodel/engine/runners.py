"""Which vLLM model runner serves a deployment, and what follows from it: async scheduling, n-gram variant, lookahead.

"v0" is the first engine, "v1" the first GPU model runner of the V1 engine, "v2" Model Runner V2.
"""

from hwmodel.engine.names import unknown_name
from hwmodel.engine.records import EngineRequest
from hwmodel.engine.versions import Rows, Version, at_version, format_version

RUNNERS = ("v0", "v1", "v2")
_EAGLE_LIKE = frozenset({"eagle", "eagle3", "mtp", "p_eagle"})
NGRAM_METHODS = frozenset({"ngram", "ngram_gpu"})

# First version in which Model Runner V2 is the default for some model; before, only VLLM_USE_V2_MODEL_RUNNER=1.
_V2_FIRST: Version = (0, 22, 0)
# Spec methods that Model Runner V2 refuses (config/vllm.py, `_get_v2_model_runner_unsupported_features`).
_V2_LACKS: Rows[frozenset[str]] = [
    (None, (0, 30, 99), frozenset({"ngram", "ngram_gpu", "draft_model", "suffix", "medusa", "mlp_speculator"})),
    (None, (0, 31, 99), frozenset({"ngram", "ngram_gpu", "suffix", "medusa", "mlp_speculator"})),
    (None, (0, 32, 99), frozenset({"suffix", "medusa", "mlp_speculator"})),
    (None, None, frozenset({"suffix"})),
]
# Methods that fall back to the V0 engine. 0.8.5: any; 0.9.2: what V1 lacks; removed with V0 before 0.11.
_V0_FALLBACK: Rows[frozenset[str] | None] = [
    (None, (0, 8, 99), None),  # None: every method
    (None, (0, 9, 99), frozenset({"draft_model", "mlp_speculator", "mtp"})),
    (None, None, frozenset()),
]
# Methods whose async scheduling is on without being asked for, on the V1 runner (config/vllm.py).
_ASYNC_AUTO: Rows[frozenset[str]] = [
    (None, (0, 13, 99), frozenset()),  # off by default for everything
    (None, (0, 17, 99), _EAGLE_LIKE | {"none"}),  # 0.14.1, 0.16.0
    (None, (0, 19, 99), _EAGLE_LIKE | {"none", "ngram_gpu"}),  # 0.18.1
    (None, (0, 24, 99), _EAGLE_LIKE | {"none", "ngram_gpu", "dflash"}),  # 0.20.2
    (None, (0, 28, 99), _EAGLE_LIKE | {"none", "ngram_gpu", "dflash", "dspark"}),  # 0.25.0
    (None, None, _EAGLE_LIKE | {"none", "ngram_gpu", "dflash", "dspark", "draft_model"}),  # 0.29.0
]
# Methods that additionally allow --async-scheduling when it is asked for; others refuse to start.
_ASYNC_ON_REQUEST: Rows[frozenset[str]] = [
    (None, (0, 10, 99), frozenset({"none"})),
    (None, (0, 13, 99), _EAGLE_LIKE | {"none"}),  # 0.11 ... 0.13
    (None, (0, 15, 99), frozenset()),
    (None, None, frozenset({"draft_model"})),  # 0.16.0
]
_ASYNC_FIRST: Version = (0, 10, 0)  # the option exists
_LOOKAHEAD_METHODS = _EAGLE_LIKE | {"draft_model", "dspark"}


def uses_parallel_drafting(request: EngineRequest) -> bool:
    """Whether all draft tokens come from one pass of an EAGLE-type or separate drafter (P-EAGLE, PARD)."""
    return request.method == "p_eagle" or (request.parallel_drafting and request.method in {"eagle3", "draft_model"})


def model_runner(request: EngineRequest, version: Version) -> tuple[str, tuple[str, ...]]:
    """Name of the vLLM model runner, and notes on what is assumed."""
    if request.model_runner is not None:
        return _forced_runner(request, version)
    if version < (0, 8, 0):
        return "v0", ()
    method = request.effective_method
    if method != "none":
        fallback = at_version(_V0_FALLBACK, version)
        if fallback is None or method in fallback:
            return "v0", (f"vLLM {format_version(version)}: {method} falls back to the V0 engine",)
    if version < _V2_FIRST:
        return "v1", ()
    lacking = _v2_lack(request, version)
    default, notes = _v2_by_default(request, version)
    if default and request.sm_arch == "cpu":
        text = "Model Runner V2 needs Triton, which CPU builds lack, the V1 runner serves it"
        return "v1", (*notes, f"vLLM {format_version(version)}: {text}")
    if default and lacking:
        text = f"vLLM {format_version(version)}: Model Runner V2 does not support {lacking}, the V1 runner serves it"
        return "v1", (*notes, text)
    return ("v2" if default else "v1"), notes


def _forced_runner(request: EngineRequest, version: Version) -> tuple[str, tuple[str, ...]]:
    name = (request.model_runner or "").strip().lower()
    if name not in RUNNERS:
        raise unknown_name("model runner", name, RUNNERS)
    lacking = _v2_lack(request, version)
    if name == "v2" and lacking:
        return name, (
            f"vLLM {format_version(version)} refuses to start: VLLM_USE_V2_MODEL_RUNNER=1 with {lacking}, which "
            f"Model Runner V2 does not support",
        )
    return name, ()


def _v2_lack(request: EngineRequest, version: Version) -> str:
    if request.effective_method == "none":
        return ""
    if uses_parallel_drafting(request):
        return "parallel drafting (P-EAGLE, PARD)"
    if request.method in at_version(_V2_LACKS, version):
        return f"speculative method {request.method}"
    return ""


def _v2_by_default(request: EngineRequest, version: Version) -> tuple[bool, tuple[str, ...]]:
    """Up to 0.28 by architecture, which the request does not name; from 0.29 on every model."""
    number = format_version(version)
    if version >= (0, 29, 0):
        return True, ()
    if request.is_moe or request.attention_kind in {"mla", "sparse"}:
        if version >= (0, 24, 0):
            return False, (f"vLLM {number}: the V1 runner is assumed; a few listed architectures get Model Runner V2",)
        return False, ()
    if version >= (0, 25, 0):
        return not (request.attention_kind == "hybrid" and version >= (0, 27, 0)), ()
    if request.model_quantized or request.attention_kind == "hybrid":
        return False, ()
    if version >= (0, 23, 0):
        return True, (f"vLLM {number}: Model Runner V2 is assumed, the default of dense Llama, Mistral and Qwen3",)
    return False, (f"vLLM {number}: the V1 runner is assumed; dense unquantised Qwen3 alone gets Model Runner V2",)


def async_scheduling(request: EngineRequest, version: Version, runner: str) -> tuple[bool, tuple[str, ...]]:
    """Whether scheduling overlaps the GPU step, and notes on what speculation changes about it."""
    if runner == "v0" or version < _ASYNC_FIRST or request.sm_arch == "cpu":  # vllm/platforms/cpu.py: always off
        return False, ()
    asked, method = request.async_scheduling, request.effective_method
    if asked is False:
        return False, ()
    automatic = "none" in at_version(_ASYNC_AUTO, version)
    if runner == "v2":
        return (asked or automatic), ()
    auto = at_version(_ASYNC_AUTO, version)
    if asked is None:
        on = method in auto
        if automatic and not on:
            return False, (
                f"vLLM {format_version(version)}: {method} turns async scheduling off, for every step, drafted or not",
            )
        return on, ()
    if method in auto or method in at_version(_ASYNC_ON_REQUEST, version):
        return True, ()
    number = format_version(version)
    return False, (f"vLLM {number} refuses to start: --async-scheduling with {method} on the V1 runner",)


def ngram_variant(method: str, version: Version, runner: str) -> tuple[str | None, tuple[str, ...]]:
    """Which n-gram search drafts (docs/model.md, n-gram variants), `None` without one or where it is not known."""
    if method not in NGRAM_METHODS:
        return None, ()
    number = format_version(version)
    if runner == "v0":
        return None, (f"vLLM {number}: the V0 engine has an n-gram search of its own, which is not modelled",)
    if runner == "v2":
        return "mrv2", (
            f"vLLM {number}: n-gram on Model Runner V2 takes the latest match and always drafts k tokens, padded with "
            f"the last token",
        )
    if method == "ngram_gpu":
        return "gpu_v1", ()
    if version <= (0, 10, 0):
        return "kmp", ()
    if version < (0, 10, 2):
        return None, (
            f"vLLM {number}: the n-gram search is not established between 0.10.0 (kmp) and 0.10.2 (lps); "
            f"lps is the likelier one",
        )
    return "lps", ()


def has_variable_draft_length(method: str, runner: str) -> bool:
    """Whether a row may carry no draft or a shorter one because nothing matched."""
    if method == "suffix":
        return True
    return method in NGRAM_METHODS and runner != "v2"


def lookahead_slots(method: str, num_speculative_tokens: int) -> int:
    """KV slots that the scheduler reserves per request beyond the scheduled tokens.

    Source: v1/core/sched/scheduler.py 0.13.0, 0.16.0; config/vllm.py `num_lookahead_tokens` 0.33.0.
    """
    if method == "dflash":
        return num_speculative_tokens + 1
    return num_speculative_tokens if method in _LOOKAHEAD_METHODS else 0
